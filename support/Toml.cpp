//===- Toml.cpp - parse untrusted text as TOML ----------------------------===//
#include "support/Toml.h"

#include "support/TerminalText.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fmt/format.h>

namespace tcc {

namespace {
/// The deepest nesting of lists and inline tables.
constexpr size_t kMostNestedValues = 32;

/// The context of a character of TOML, which decides the characters that may follow.
class Scanner {
public:
  Scanner(std::string_view text, const std::string &place) : text(text), place(place) {}

  Status run() {
    while (at < text.size()) {
      const char c = text[at];
      if (c == '\n') {
        ++line;
        lineStart = ++at;
        comment = false;
        keyParts = 1;
        if (nesting.empty())
          inValue = begun = false;
        if (quote && !longQuote)
          quote = 0; // an error that the parser reports
        continue;
      }
      if (Status status = checkCharacter(); !status.ok())
        return status;
      if (comment)
        at += width();
      else if (Status status = quote ? insideString() : outside(); !status.ok())
        return status;
    }
    return Status::success();
  }

private:
  /// Bytes of the character at `at`.
  size_t width() const {
    const auto first = static_cast<unsigned char>(text[at]);
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  }

  Status checkCharacter() {
    const auto first = static_cast<unsigned char>(text[at]);
    const bool returns = first == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
    if ((first < 0x20 && first != '\t' && !returns) || first == 0x7f)
      return problem(
          fmt::format("a control character, {}; TOML has none but tabs and newlines", oneLine(text.substr(at, 1))));
    if (first < 0x80)
      return Status::success();
    const std::string_view character = text.substr(at, width());
    if (oneLine(character).starts_with("\\x"))
      return problem(fmt::format("the byte {} is not UTF-8; save the recipe as UTF-8", oneLine(text.substr(at, 1))));
    if (!comment && !quote)
      return problem(fmt::format("the character {} is outside a string; keys are letters, digits, _ and -, or quoted",
                                 oneLine(character)));
    return Status::success();
  }

  Status insideString() {
    if (text[at] == '\\' && quote == '"') {
      ++at;
      // The TOML library asks whether white space follows, which it cannot tell of U+FB26 to U+FEFE.
      const size_t next = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
      if (next < text.size() && static_cast<unsigned char>(text[next]) >= 0x80)
        return problem("a backslash before a character that is not ASCII; \\\\ stands for a backslash");
      if (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x20 &&
          static_cast<unsigned char>(text[at]) < 0x7f)
        ++at;
      return Status::success();
    }
    if (text[at] != quote) {
      at += width();
      return Status::success();
    }
    size_t count = 1;
    while (longQuote && count < 3 && at + count < text.size() && text[at + count] == quote)
      ++count;
    at += count;
    if (longQuote && count < 3)
      return Status::success();
    // Up to two more quotes belong to the string.
    while (longQuote && at < text.size() && text[at] == quote)
      ++at;
    quote = 0;
    return Status::success();
  }

  Status outside() {
    const char c = text[at];
    if (Status status = followValue(c); !status.ok())
      return status;
    if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      quote = c;
      longQuote = text.substr(at, 3) == std::string(3, c);
      at += longQuote ? 2 : 0;
    } else if (c == '.') {
      if (++keyParts > kMostKeyParts)
        return problem(fmt::format("a key of more than {} parts", kMostKeyParts));
    } else if (std::string_view(",={}[]").find(c) != std::string_view::npos) {
      keyParts = 1;
      if (c == '[' && depth == 0 && text.substr(lineStart, at - lineStart).find_first_not_of(" \t") == text.npos &&
          !namesTable())
        return problem("a table needs a name of letters, digits, _ and -, or in quotes");
      depth += c == '[' ? 1 : c == ']' && depth ? -1 : 0;
    }
    ++at;
    return Status::success();
  }

  /// Tracks values and the brackets in them. The TOML library searches for a value's end through all following text,
  /// strings included, and asserts on characters that it finds there; it also asserts that a value begins where one
  /// must. So no value may begin inside another, none may be missing, and brackets must match.
  Status followValue(char c) {
    if (inValue && (c == '=' || (begun && std::string_view("[{\"'").find(c) != std::string_view::npos)))
      return problem(fmt::format("{} inside a value; separate the values of a list by commas, and put each setting on "
                                 "a line of its own",
                                 c == '=' ? "'='" : c == '[' || c == '{' ? "a bracket begins" : "a string begins"));
    const bool closes = c == ']' || c == '}';
    if (closes && !nesting.empty() && c != (nesting.back() == '[' ? ']' : '}'))
      return problem(fmt::format("'{}' where a '{}' is open", c, nesting.back()));
    if (inValue && !begun && (c == ',' || (closes && (nesting.empty() || c == '}'))))
      return problem(fmt::format("a value is missing before '{}'", c));
    if (c == '=') {
      inValue = true, begun = false;
    } else if (c == ',') {
      inValue = !nesting.empty() && nesting.back() == '[';
      begun = false;
    } else if (inValue && (c == '[' || c == '{')) {
      if (nesting.size() == kMostNestedValues)
        return problem(fmt::format("values nested deeper than {} levels", kMostNestedValues));
      nesting += c;
      inValue = c == '[';
    } else if (closes && !nesting.empty()) {
      nesting.pop_back();
      inValue = begun = true;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '#') {
      begun = inValue;
    }
    return Status::success();
  }

  /// True if a name follows the brackets at `at`; the TOML library asserts that one does.
  bool namesTable() const {
    size_t next = at + (text.substr(at, 2) == "[[" ? 2 : 1);
    next = std::min(text.find_first_not_of(" \t", next), text.size());
    return next < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[next])) || std::strchr("_-\"'", text[next]));
  }

  Status problem(const std::string &what) const {
    return place.empty() ? error("{}", what) : error("{}:{}:{}: {}", place, line, at - lineStart + 1, what);
  }

  std::string_view text;
  const std::string &place;
  size_t at = 0, line = 1, lineStart = 0;
  int keyParts = 1, depth = 0; ///< depth: open brackets
  std::string nesting;                 ///< open brackets in the value
  bool inValue = false, begun = false; ///< after a '='; the value has begun
  bool comment = false, longQuote = false;
  char quote = 0; ///< that ends the string; 0 outside of one
};

} // namespace

Status checkTomlText(std::string_view text, const std::string &place) {
  // A byte order mark is no part of the text.
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);
  return Scanner(text, place).run();
}

void tomlAsserted() { throw TomlAssertion(); }

Expected<toml::table> parseToml(std::string_view text, const std::string &place) {
  if (Status status = checkTomlText(text, place); !status.ok())
    return status;
  const std::string prefix = place.empty() ? "" : place + ": ";
  try {
    toml::parse_result parsed = toml::parse(text);
    if (parsed)
      return std::move(parsed).table();
    const toml::source_position position = parsed.error().source().begin;
    const std::string_view description = parsed.error().description();
    return place.empty() ? error("{}", description)
                         : error("{}:{}:{}: {}", place, position.line, position.column, description);
  } catch (const TomlAssertion &) {
    return error("{}not valid TOML; look for a missing or extra value, comma, bracket or quote", prefix);
  }
}

} // namespace tcc
