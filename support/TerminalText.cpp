//===- TerminalText.cpp - text from files, made safe to print -------------===//
#include "support/TerminalText.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iterator>
#include <sys/ioctl.h>
#include <unistd.h>

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

std::optional<size_t> columnsOf(int descriptor) {
  if (const char *given = std::getenv("COLUMNS")) {
    size_t columns = 0;
    const char *end = given + std::strlen(given);
    if (auto [stop, code] = std::from_chars(given, end, columns); code == std::errc() && stop == end && columns > 0)
      return columns;
  }
  winsize size{};
  if (::isatty(descriptor) && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return std::nullopt;
}

size_t characters(std::string_view text) {
  return size_t(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// The column at which a broken line continues.
static size_t continuation(std::string_view line, size_t width) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  if (size_t gap = line.find("  ", begin); gap != line.npos) {
    gap = std::min(line.find_first_not_of(' ', gap), line.size());
    if (const size_t column = characters(line.substr(0, gap)); gap != line.size() && column <= width / 2)
      return column;
  }
  return std::min(begin + 2, width / 2);
}

std::string wrapped(std::string_view text, size_t width) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view rest = text.substr(at, end - at);
    const size_t indent = continuation(rest, width);
    for (bool first = true; characters(rest) > width - (first ? 0 : indent); first = false) {
      // The last space within the width, or else the first one after it; leading spaces do not count.
      const size_t begin = std::min(rest.find_first_not_of(' '), rest.size());
      size_t cut = rest.npos, column = 0;
      for (size_t i = 0; i < rest.size(); ++i) {
        if (i > begin && rest[i] == ' ' && (column <= width - (first ? 0 : indent) || cut == rest.npos))
          cut = i;
        column += (static_cast<unsigned char>(rest[i]) & 0xC0) != 0x80;
      }
      if (cut == rest.npos)
        break;
      std::string_view line = rest.substr(0, cut);
      out += std::string(line.substr(0, line.find_last_not_of(' ') + 1)) + "\n" + std::string(indent, ' ');
      rest.remove_prefix(std::min(rest.find_first_not_of(' ', cut), rest.size()));
    }
    out += rest;
    if (end < text.size())
      out += '\n';
    at = end + 1;
  }
  return out;
}

} // namespace tcc
