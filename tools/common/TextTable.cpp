//===- TextTable.cpp - aligned columns of text ----------------------------===//
#include "tools/common/TextTable.h"

#include "support/BytesText.h"
#include "support/TerminalText.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::report {

std::string Table::text() const {
  std::vector<size_t> widths(alignments.size(), 0);
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], characters(row[i]));
  std::string text;
  for (const auto &row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string padding(widths[i] - characters(row[i]), ' ');
      line += "  " + (alignments[i] == '>' ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string formatBytes(uint64_t bytes) { return bytesText(bytes); }

std::string counted(uint64_t count, const std::string &noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string flopText(double flops) {
  if (flops < 1e3)
    return fmt::format("{:.0f} FLOP", flops);
  static constexpr const char *units[] = {"KFLOP", "MFLOP", "GFLOP", "TFLOP"};
  int unit = -1;
  for (; unit < 3 && flops >= 999.95; ++unit)
    flops /= 1000;
  return fmt::format("{:.1f} {}", flops, units[unit]);
}

std::string listText(const std::vector<std::string> &names, size_t shown, size_t indent) {
  if (names.size() <= shown + 1)
    shown = names.size();
  std::string text, line;
  for (size_t i = 0; i < shown; ++i) {
    std::string word = names[i] + (i + 1 < shown ? "," : "");
    if (indent && !line.empty() && indent + line.size() + 1 + word.size() > kLineWidth) {
      text += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  text += line;
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

std::string timeText(uint64_t nanoseconds) {
  static constexpr const char *units[] = {"ns", "us", "ms", "s"};
  double value = double(nanoseconds);
  int unit = 0;
  for (; unit < 3 && value >= 999.995; ++unit)
    value /= 1000;
  return unit ? fmt::format("{:.2f} {}", value, units[unit]) : fmt::format("{} ns", nanoseconds);
}

std::string percentText(double fraction) { return fmt::format("{:.{}f} %", 100 * fraction, fraction < 0.0995 ? 2 : 1); }

std::string kernelText(const std::string &name) {
  constexpr size_t kHash = 32, kShown = 12;
  size_t at = name.size() > kHash ? name.size() - kHash - 1 : name.size();
  bool isHash = at < name.size() && name[at] == 'k' && (at == 0 || name[at - 1] == ' ') &&
                name.find_first_not_of("0123456789abcdef", at + 1) == std::string::npos;
  return isHash ? name.substr(0, at + 1 + kShown) : name;
}

} // namespace tcc::report
