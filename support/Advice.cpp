//===- Advice.cpp - advice in messages, worded by the program that shows it ===//
#include "support/Advice.h"

namespace tcc {

namespace {
// A mark is kBegin, the kind's letter, the name, kMiddle, the value, kEnd: control characters, which no message has.
constexpr char kBegin = '\x01', kMiddle = '\x02', kEnd = '\x03';
constexpr std::string_view kAll = "\x01\x02\x03";
enum Kind : char {
  kOption = 'o',
  kFlag = 'f',
  kSet = 's',
  kCommand = 'c',
  kRun = 'n',
  kResume = 'r',
  kCompile = 'p',
  kCompileSet = 't',
  kCompileCommand = 'd'
};

std::string mark(Kind kind, std::string_view name, std::string_view value = {}) {
  std::string text{kBegin, kind};
  text += name;
  text += kMiddle;
  text += value;
  return text += kEnd;
}

std::string joined(std::string_view first, std::string_view separator, std::string_view second) {
  std::string text(first);
  if (!second.empty())
    text.append(separator).append(second);
  return text;
}

std::string wordsOf(char kind, std::string_view name, std::string_view value, const Wording &wording) {
  switch (kind) {
  case kOption:
    return wording.option(name, value);
  case kFlag:
    return wording.flag(name, value == "true");
  case kSet:
    return wording.set(name, value);
  case kCommand:
    return wording.command(name);
  case kRun:
    return wording.run(name, value);
  case kResume:
    return wording.resume(name);
  case kCompile:
    return wording.compile(name, value);
  case kCompileSet:
    return wording.compileSet(name, value);
  case kCompileCommand:
    return wording.compileCommand(name);
  default:
    return joined(name, " ", value);
  }
}
} // namespace

std::string advice::option(std::string_view name, std::string_view value) { return mark(kOption, name, value); }
std::string advice::flag(std::string_view name, bool value) { return mark(kFlag, name, value ? "true" : "false"); }
std::string advice::set(std::string_view key, std::string_view value) { return mark(kSet, key, value); }
std::string advice::command(std::string_view name) { return mark(kCommand, name); }
std::string advice::run(std::string_view option, std::string_view value) { return mark(kRun, option, value); }
std::string advice::resume(std::string_view run) { return mark(kResume, run); }
std::string advice::compile(std::string_view option, std::string_view value) { return mark(kCompile, option, value); }
std::string advice::compileSet(std::string_view key, std::string_view value) { return mark(kCompileSet, key, value); }
std::string advice::compileCommand(std::string_view name) { return mark(kCompileCommand, name); }

std::string Wording::option(std::string_view name, std::string_view value) const { return joined(name, " = ", value); }
std::string Wording::flag(std::string_view name, bool value) const {
  return joined(name, " = ", value ? "true" : "false");
}
std::string Wording::set(std::string_view key, std::string_view value) const { return joined(key, " = ", value); }
std::string Wording::command(std::string_view name) const { return std::string(name); }
std::string Wording::run(std::string_view option, std::string_view value) const { return joined(option, " = ", value); }
std::string Wording::resume(std::string_view run) const { return joined("resume", " ", run); }
std::string Wording::compile(std::string_view option, std::string_view value) const {
  return joined(option, " = ", value);
}
std::string Wording::compileSet(std::string_view key, std::string_view value) const {
  return joined(key, " = ", value);
}
std::string Wording::compileCommand(std::string_view name) const { return std::string(name); }

std::string worded(std::string_view text, const Wording &wording) {
  std::string result;
  while (!text.empty()) {
    const size_t begin = text.find(kBegin);
    result += text.substr(0, begin);
    if (begin == std::string_view::npos)
      break;
    text.remove_prefix(begin);
    const size_t middle = text.find_first_of(kAll, 1);
    const size_t end = middle == std::string_view::npos ? middle : text.find_first_of(kAll, middle + 1);
    if (middle == std::string_view::npos || (text[middle] == kMiddle && end == std::string_view::npos))
      return result; // cut short: a message that another process sent and that was damaged
    if (middle < 2 || text[middle] != kMiddle || text[end] != kEnd) { // a name from a file has that character
      result += kBegin;
      text.remove_prefix(1);
      continue;
    }
    result += wordsOf(text[1], text.substr(2, middle - 2), text.substr(middle + 1, end - middle - 1), wording);
    text.remove_prefix(end + 1);
  }
  return result;
}

} // namespace tcc
