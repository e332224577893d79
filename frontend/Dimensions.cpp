//===- Dimensions.cpp - symbolic dimensions and sums of them --------------===//
#include "frontend/Dimensions.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tcc::frontend {
namespace {

/// Largest dimension: the product of two does not overflow.
constexpr int64_t kLargest = int64_t(1) << 31;
constexpr int kDeepest = 100;

/// A recursive-descent parser: sum, product, power, atom. After a failure, all further results are failures.
class Parser {
public:
  Parser(const std::string &text, const std::map<std::string, int64_t> &names) : text(text), names(names) {}

  std::optional<int64_t> run() {
    int64_t value = sum();
    skip();
    return valid && at == text.size() ? std::optional(value) : std::nullopt;
  }
  std::set<std::string> found;  ///< names, whether they have a value or not
  bool wellFormed() {
    skip();
    return !malformed && at == text.size();
  }

private:
  void skip() {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])))
      ++at;
  }
  bool take(std::string_view token) {
    skip();
    if (!text.substr(at).starts_with(token))
      return false;
    at += token.size();
    return true;
  }
  int64_t fail() {
    valid = false;
    return 0;
  }
  int64_t wrong() {
    malformed = true;
    return fail();
  }
  int64_t checked(int64_t value) { return value < -kLargest || value > kLargest ? fail() : value; }

  int64_t sum() {
    if (++depth > kDeepest)
      return wrong();
    int64_t value = product();
    while (valid || !malformed) {
      if (take("+"))
        value = checked(value + product());
      else if (take("-"))
        value = checked(value - product());
      else
        break;
    }
    --depth;
    return value;
  }

  int64_t product() {
    int64_t value = power();
    while (!malformed) {
      skip();
      if (text.substr(at).starts_with("**"))
        break;
      if (take("*")) {
        value = checked(value * power());
      } else if (take("//")) {
        value = divided(value, power(), true);
      } else if (take("/")) {
        value = divided(value, power(), false);
      } else if (take("%")) {
        int64_t divisor = power(), quotient = divided(value, divisor, true);
        value -= quotient * divisor;
      } else {
        break;
      }
    }
    return value;
  }

  int64_t divided(int64_t value, int64_t divisor, bool floor) {
    if (!valid || divisor == 0)
      return fail();
    int64_t quotient = value / divisor, rest = value % divisor;
    if (rest != 0 && !floor && !insideFloor)
      return fail(); // no whole number of elements
    return quotient - (rest != 0 && (rest < 0) != (divisor < 0));
  }

  int64_t power() {
    int64_t base = atom();
    if (!take("**"))
      return base;
    int64_t exponent = power(), value = 1;
    if (exponent < 0 || exponent > 62)
      return fail();
    for (int64_t i = 0; i < exponent && valid; ++i)
      value = checked(value * base);
    return value;
  }

  int64_t atom() {
    if (++depth > kDeepest)
      return wrong();
    int64_t value = plainAtom();
    --depth;
    return value;
  }
  int64_t plainAtom() {
    if (take("-"))
      return -atom();
    if (take("(")) {
      int64_t value = sum();
      return take(")") ? value : wrong();
    }
    skip();
    size_t begin = at;
    if (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) {
      int64_t value = 0;
      while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])))
        value = checked(value * 10 + (text[at++] - '0'));
      return value;
    }
    while (at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_' || text[at] == '.'))
      ++at;
    if (at == begin)
      return wrong();
    std::string name(text.substr(begin, at - begin));
    if ((name == "Max" || name == "Min" || name == "max" || name == "min" || name == "floor") && take("(")) {
      const bool outer = insideFloor;
      insideFloor |= name == "floor";
      int64_t value = sum();
      while (take(",")) {
        int64_t other = sum();
        value = name[1] == 'a' ? std::max(value, other) : std::min(value, other);
      }
      insideFloor = outer;
      return take(")") ? value : wrong();
    }
    found.insert(name);
    auto given = names.find(name);
    return given == names.end() ? fail() : given->second;
  }

  std::string_view text;
  const std::map<std::string, int64_t> &names;
  size_t at = 0;
  int depth = 0;
  bool valid = true, malformed = false, insideFloor = false;
};

} // namespace

bool isPlaceholder(const std::string &text) {
  std::string word;
  for (char c : text)
    word += char(std::tolower(static_cast<unsigned char>(c)));
  auto numberedAfter = [&](std::string_view prefix) {
    return word.starts_with(prefix) && std::all_of(word.begin() + long(prefix.size()), word.end(),
                                                   [](unsigned char c) { return std::isdigit(c) || c == '_'; });
  };
  return std::none_of(word.begin(), word.end(), [](unsigned char c) { return std::isalpha(c) != 0; }) ||
         word == "none" || word == "null" || word == "nan" || numberedAfter("unk") || numberedAfter("unknown");
}

std::set<std::string> dimensionNames(const std::string &text) {
  const std::map<std::string, int64_t> none;
  Parser parser(text, none);
  parser.run();
  return parser.wellFormed() ? parser.found : std::set<std::string>{text};
}

std::optional<int64_t> dimensionValue(const std::string &text, const std::map<std::string, int64_t> &names) {
  if (auto found = names.find(text); found != names.end())
    return found->second;
  return Parser(text, names).run();
}

} // namespace tcc::frontend
