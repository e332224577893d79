//===- Quantities.cpp - parse sizes and times: 512MiB, 60%, 1d12h ---------===//
#include "tools/common/Quantities.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

namespace tcc::tools {

Expected<uint64_t> parseMemorySize(const std::string &option, const std::string &text, uint64_t wholeBytes) {
  auto wrong = [&](const std::string &why) {
    return Status(fmt::format("{} {}: {}", option, text, why), StatusCode::Usage);
  };
  const char *expected = wholeBytes ? "expected a size such as 512MiB, 1.5GiB, 4096 (bytes) or 60%"
                                    : "expected a size such as 512MiB, 1.5GiB or 4096 (bytes)";
  char *end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number) || number <= 0)
    return wrong(expected);
  std::string_view unit = end;
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  if (unit == "%") {
    if (!wholeBytes)
      return wrong(expected);
    if (number > 100)
      return wrong("more than everything there is");
    return uint64_t(double(wholeBytes) * number / 100);
  }
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"B", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 0x1p40}};
  for (auto [name, bytes] : kUnits)
    if (unit == name) {
      double size = number * bytes;
      if (size < 1 || size > 0x1p62)
        return wrong(expected);
      return uint64_t(size);
    }
  if (unit == "KB" || unit == "MB" || unit == "GB" || unit == "K" || unit == "M" || unit == "G")
    return wrong(fmt::format("units are KiB, MiB and GiB: write {}{}iB", text.substr(0, size_t(end - text.c_str())),
                             unit.substr(0, 1)));
  return wrong(expected);
}

Expected<double> parseDuration(const std::string &option, const std::string &text) {
  static constexpr std::pair<char, double> kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
  const Status wrong(fmt::format("{} {}: expected a time with its unit, such as 90s, 30m, 2h or 1d12h", option, text),
                     StatusCode::Usage);
  double total = 0, last = HUGE_VAL;
  for (const char *at = text.c_str(); *at;) {
    char *end = nullptr;
    const bool digit = *at >= '0' && *at <= '9';
    const double number = digit ? std::strtod(at, &end) : -1;
    double unit = 0;
    for (auto [name, seconds] : kUnits)
      if (digit && *end == name)
        unit = seconds;
    // Larger units come first, each once.
    if (!(number >= 0) || !std::isfinite(number) || unit == 0 || unit >= last)
      return wrong;
    total += number * unit;
    last = unit;
    at = end + 1;
  }
  return total > 0 && std::isfinite(total) ? Expected<double>(total) : wrong;
}

} // namespace tcc::tools
