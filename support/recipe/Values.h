//===- Values.h - the values that a recipe key takes ---------------------===//
//
// The type, range and words of a value, the check of a TOML value against them, and their text for the documentation.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_VALUES_H
#define TCC_SUPPORT_RECIPE_VALUES_H

#include "support/Toml.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::recipe {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double low = -kInfinity, high = kInfinity;
  bool openLow = false, openHigh = false;

  bool holds(double value) const {
    return (openLow ? value > low : value >= low) && (openHigh ? value < high : value <= high);
  }
  /// "at least 0", "from 0 to 1 (excluded)"; empty where every number is in it.
  std::string text() const;
};
inline constexpr Range kAny{};
inline constexpr Range kNotNegative{0, kInfinity};
inline constexpr Range kPositive{0, kInfinity, true};
inline constexpr Range kUnit{0, 1};
inline constexpr Range kBelowOne{0, 1, false, true};
inline constexpr int64_t kMostInteger = std::numeric_limits<int64_t>::max();

struct Values {
  enum class Type {
    Flag,
    Integer,
    Number,
    Text,
    Choice,       ///< one of `words`
    Texts,        ///< a string, or a list of them
    Numbers,      ///< a number, or a list of them; exactly `count` in a list where that is not 0
    Interval,     ///< [least, greatest], or one number if `counts` holds 1
    Integers,     ///< a list; if `counts` is not empty, one integer or a list of one of these lengths
    IntegerTable, ///< names with integers
    TextTable,    ///< names with strings
    ColumnRules,  ///< columns with rules (ColumnRules.h); `description` says what it is
    Transforms,   ///< a list of tables (Transforms.h)
    Other         ///< checked where it is read; `description` says what it is
  };
  Type type = Type::Other;
  Range range = kAny;                                                       ///< of each number
  int64_t least = std::numeric_limits<int64_t>::min(), most = kMostInteger; ///< of each integer
  std::vector<std::string> words, later = {}; ///< known words; those that this version refuses
  std::optional<double> also = std::nullopt;  ///< a number outside `range`
  size_t count = 0;
  std::vector<size_t> counts = {};
  std::string description = {};
};

Values flag();
Values integer(int64_t least = std::numeric_limits<int64_t>::min(), int64_t most = kMostInteger);
Values number(Range range = kAny);
/// A number of `range`, or this one.
Values numberOr(Range range, double also);
/// A number of `range`, or one of these words.
Values numberOr(Range range, std::vector<std::string> words);
Values text();
Values choice(std::vector<std::string> words, std::vector<std::string> later = {});
Values texts();
Values numbers(Range range, size_t count = 0);
Values integers(int64_t least);
/// One integer, or a list of as many as one of `counts`.
Values integersOf(int64_t least, int64_t most, std::vector<size_t> counts);
/// [least, greatest], both of `range`.
Values interval(Range range);
/// The same, or one number; with `pairs` above 1 also that many intervals in one list.
Values intervalOrNumber(Range range, size_t pairs = 1);
Values integerTable(int64_t least);
Values textTable();
Values columnRules(std::string description);
Values transforms();
Values other(std::string description);

/// Error: the value is of another type or out of range; the message says what was expected, but not where. The contents
/// of column rules, transforms and values of type Other are checked when they are stored.
Status check(const Values &values, const toml::node &node);

/// For the documentation, in Markdown: "number, at least 0", "`\"auto\"`, `\"fused\"`".
std::string describe(const Values &values);

/// A key's value as text for the plan: a string as it is, a list of strings with one line each.
std::string plainText(const toml::node &node);

/// "string", "integer", …: a value's type in TOML's words.
std::string_view typeName(const toml::node &node);

/// "expected WHAT, found a list".
Status expected(std::string_view what, const toml::node &node);

} // namespace tcc::recipe

#endif // TCC_SUPPORT_RECIPE_VALUES_H
