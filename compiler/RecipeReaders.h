//===- RecipeReaders.h - one value of a recipe, checked ---------*- C++ -*-===//
//
// Each reader checks type and range and stores the value; its error says what was expected, without the place.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPEREADERS_H
#define TCC_COMPILER_RECIPEREADERS_H

#include "compiler/RecipeKeys.h"

#include <fmt/format.h>
#include <limits>
#include <map>

namespace tcc::recipe {

using plan::Status;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double low = -kInfinity, high = kInfinity;
  bool openLow = false, openHigh = false;

  bool holds(double value) const {
    return (openLow ? value > low : value >= low) && (openHigh ? value < high : value <= high);
  }
  std::string text() const {
    if (high == kInfinity)
      return fmt::format("{} {}", openLow ? "above" : "at least", low);
    return fmt::format("from {} {}to {}{}", low, openLow ? "(excluded) " : "", high, openHigh ? " (excluded)" : "");
  }
};
inline constexpr Range kAny{};
inline constexpr Range kNotNegative{0, kInfinity};
inline constexpr Range kPositive{0, kInfinity, true};
inline constexpr Range kUnit{0, 1};
inline constexpr Range kBelowOne{0, 1, false, true};

Status expected(std::string_view what, const toml::node &node);
Status readNumber(const toml::node &node, Range range, double &out);
Status readInteger(const toml::node &node, int64_t low, int64_t high, int64_t &out);
Status readBool(const toml::node &node, bool &out);
Status readString(const toml::node &node, std::string &out);
/// One of `supported`; a member of `later` is known, and refused as not done yet.
Status readChoice(const toml::node &node, const std::vector<std::string> &supported,
                  const std::vector<std::string> &later, std::string &out);
Status readStrings(const toml::node &node, std::vector<std::string> &out);
Status readNumbers(const toml::node &node, Range range, std::vector<double> &out);
Status readIntegers(const toml::node &node, int64_t low, std::vector<int64_t> &out);
/// A number, a truth value, nested lists of these, "FILE.safetensors:TENSOR", or { file, tensor }.
Status readFixedValue(const toml::node &node, FixedValue &out);
Status readIntegerTable(const toml::node &node, int64_t low, std::map<std::string, int64_t> &out);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPEREADERS_H
