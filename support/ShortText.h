//===- ShortText.h - parts of a message that stay short ---------*- C++ -*-===//
#ifndef TCC_SUPPORT_SHORTTEXT_H
#define TCC_SUPPORT_SHORTTEXT_H

#include <cstddef>
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

/// Names for one message: the first ones in quotes, each with a note, and the count of the rest.
class NameList {
public:
  void add(const std::string &name, const std::string &note = "") {
    if (count++ < kShown)
      shown += fmt::format("{}'{}'{}", shown.empty() ? "" : ", ", name, note.empty() ? "" : " (" + note + ")");
    else
      ++more;
  }
  /// True if the next name will be shown; expensive notes are computed only then.
  bool room() const { return count < kShown; }
  bool empty() const { return count == 0; }
  size_t size() const { return count; }
  std::string text() const { return more == 0 ? shown : fmt::format("{} and {} more", shown, more); }

private:
  static constexpr size_t kShown = 8;
  std::string shown;
  size_t count = 0, more = 0;
};

} // namespace tcc

#endif // TCC_SUPPORT_SHORTTEXT_H
