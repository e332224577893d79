//===- NameList.h - names in a message -----------------------------------===//
#ifndef TCC_RUNTIME_STATE_NAMELIST_H
#define TCC_RUNTIME_STATE_NAMELIST_H

#include <cstddef>
#include <fmt/format.h>
#include <string>

namespace tcc::runtime {

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

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_NAMELIST_H
