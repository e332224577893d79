//===- TerminalText.cpp - text from files, made safe to print -------------===//
#include "support/TerminalText.h"

#include <cstdint>
#include <fmt/format.h>
#include <iterator>

namespace tcc {
namespace {

struct Decoded {
  uint32_t code = 0;
  size_t bytes = 0; ///< 0: not UTF-8
};

/// RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF.
Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80)
    return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes)
    return {};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff)
    return {};
  return {code, bytes};
}

bool isUnsafe(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view text, bool keepLines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = decode(text);
    if (next.bytes == 0)
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (isUnsafe(next.code) && !(keepLines && (next.code == '\n' || next.code == '\t')))
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", next.code);
    else
      out += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes ? next.bytes : 1);
  }
  return out;
}

} // namespace

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const Decoded next = decode(text);
    if (next.bytes == 0)
      return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

std::string terminalText(std::string_view text) { return escaped(text, true); }
std::string oneLine(std::string_view name) { return escaped(name, false); }

} // namespace tcc
