//===- TerminalWidth.cpp - how wide lines may be --------------------------===//
#include "support/TerminalWidth.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tcc {

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
