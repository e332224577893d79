//===- Duration.cpp - times such as 90s or 1d12h --------------------------===//
#include "tools/common/Duration.h"

#include <cmath>
#include <cstdlib>

namespace tcc::tools {

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
