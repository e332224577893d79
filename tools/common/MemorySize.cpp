//===- MemorySize.cpp - sizes such as 512MiB or 60% -----------------------===//
#include "tools/common/MemorySize.h"

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

} // namespace tcc::tools
