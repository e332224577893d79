//===- ShortText.h - parts of a message that stay short ---------*- C++ -*-===//
#ifndef TCC_SUPPORT_SHORTTEXT_H
#define TCC_SUPPORT_SHORTTEXT_H

#include <fmt/format.h>
#include <string>
#include <string_view>

namespace tcc {

/// At most the first `most` bytes of the text, cut between characters, and "…"; or all of a shorter text.
inline std::string shortened(std::string_view text, size_t most = 60) {
  if (text.size() <= most)
    return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80)
    --most;
  return std::string(text.substr(0, most)) + "…";
}

/// A number with at most 9 significant digits.
inline std::string numberText(double value) { return fmt::format("{:.9g}", value); }

} // namespace tcc

#endif // TCC_SUPPORT_SHORTTEXT_H
