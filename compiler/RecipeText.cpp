//===- RecipeText.cpp - the text of a recipe, before it is parsed ---------===//
#include "compiler/RecipeText.h"

#include "runtime/plan/TerminalText.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tcc::recipe {

using plan::Expected;
using plan::Status;

namespace {

/// Where a character of TOML stands, as far as it decides what may stand there.
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
      return problem(fmt::format("a control character, {}; TOML has none but tabs and newlines", plan::oneLine(text.substr(at, 1))));
    if (first < 0x80)
      return Status::success();
    const std::string_view character = text.substr(at, width());
    if (plan::oneLine(character).starts_with("\\x"))
      return problem(fmt::format("the byte {} is no UTF-8; save the recipe as UTF-8", plan::oneLine(text.substr(at, 1))));
    if (!comment && !quote)
      return problem(fmt::format("the character {} stands outside of a string; keys are letters, digits, _ and -, or quoted",
                                 plan::oneLine(character)));
    return Status::success();
  }

  Status insideString() {
    if (text[at] == '\\' && quote == '"') {
      ++at;
      // The TOML library asks whether white space follows, which it cannot tell of U+FB26 to U+FEFE.
      const size_t next = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
      if (next < text.size() && static_cast<unsigned char>(text[next]) >= 0x80)
        return problem("a backslash before a character that is not ASCII; \\\\ stands for a backslash");
      if (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x20 && static_cast<unsigned char>(text[at]) < 0x7f)
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
    // Up to two more belong to the string.
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
      if (c == '[' && depth == 0 && text.substr(lineStart, at - lineStart).find_first_not_of(" \t") == text.npos && !namesTable())
        return problem("a table needs a name of letters, digits, _ and -, or in quotes");
      depth += c == '[' ? 1 : c == ']' && depth ? -1 : 0;
    }
    ++at;
    return Status::success();
  }

  /// Follows values and the brackets in them. The TOML library looks for a value's end through whatever comes next,
  /// strings included, and meets characters there that it calls impossible; it asserts that a value begins where one
  /// must. So nothing may begin inside a value, none may be missing, and brackets must match.
  Status followValue(char c) {
    if (inValue && (c == '=' || (begun && std::string_view("[{\"'").find(c) != std::string_view::npos)))
      return problem(fmt::format("{} inside a value; values of a list are parted by commas, and each setting has its own line",
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

  /// True if a name begins behind the brackets at `at`; the TOML library asserts that one does.
  bool namesTable() const {
    size_t next = at + (text.substr(at, 2) == "[[" ? 2 : 1);
    next = std::min(text.find_first_not_of(" \t", next), text.size());
    return next < text.size() && (std::isalnum(static_cast<unsigned char>(text[next])) || std::strchr("_-\"'", text[next]));
  }

  Status problem(const std::string &what) const {
    return plan::error("{}:{}:{}: {}", place, line, at - lineStart + 1, what);
  }

  std::string_view text;
  const std::string &place;
  size_t at = 0, line = 1, lineStart = 0;
  int keyParts = 1, depth = 0; ///< depth: brackets that are open
  std::string nesting;                 ///< brackets that are open in the value
  bool inValue = false, begun = false; ///< behind a '='; and something of the value was there
  bool comment = false, longQuote = false;
  char quote = 0; ///< that ends the string; 0 outside of one
};

} // namespace

Status checkRecipeText(std::string_view text, const std::string &place) {
  // A byte order mark is no part of the text.
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);
  return Scanner(text, place).run();
}

Expected<std::string> readRecipeFile(const std::string &path) {
  // Without waiting for the writer of a FIFO.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return plan::error("{}: cannot open the recipe: {}", path, std::strerror(errno));
  struct stat info = {};
  std::string text;
  Status status;
  if (fstat(file, &info) != 0)
    status = plan::error("{}: cannot read the recipe: {}", path, std::strerror(errno));
  else if (S_ISDIR(info.st_mode))
    status = plan::error("{}: is a folder, not a recipe", path);
  else if (!S_ISREG(info.st_mode))
    status = plan::error("{}: is no regular file (a FIFO, socket or device); write the recipe to a file first", path);
  else if (uint64_t(info.st_size) > kMostRecipeBytes)
    status = plan::error("{}: is larger than {} KiB, the most that a recipe may have", path, kMostRecipeBytes >> 10);
  char part[65536];
  while (status.ok() && text.size() <= kMostRecipeBytes) {
    const ssize_t count = read(file, part, sizeof part);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      status = plan::error("{}: cannot read the recipe: {}", path, std::strerror(errno));
    if (count <= 0)
      break;
    text.append(part, size_t(count));
  }
  close(file);
  if (!status.ok())
    return status;
  return text;
}

} // namespace tcc::recipe
