//===- Advice.cpp - what to do, in the words of the program that shows it --===//
#include "support/Advice.h"

namespace tcc {

namespace {
// A mark is kBegin, the kind's letter, the name, kMiddle, the value, kEnd: control characters, which no message has.
constexpr char kBegin = '\x01', kMiddle = '\x02', kEnd = '\x03';
enum Kind : char { kOption = 'o', kFlag = 'f', kSet = 's', kCommand = 'c', kResume = 'r', kCompile = 'p', kCompileSet = 't' };

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
  case kResume:
    return wording.resume(name);
  case kCompile:
    return wording.compile(name, value);
  case kCompileSet:
    return wording.compileSet(name, value);
  default:
    return joined(name, " ", value);
  }
}
} // namespace

std::string advice::option(std::string_view name, std::string_view value) { return mark(kOption, name, value); }
std::string advice::flag(std::string_view name, bool value) { return mark(kFlag, name, value ? "true" : "false"); }
std::string advice::set(std::string_view key, std::string_view value) { return mark(kSet, key, value); }
std::string advice::command(std::string_view name) { return mark(kCommand, name); }
std::string advice::resume(std::string_view run) { return mark(kResume, run); }
std::string advice::compile(std::string_view option, std::string_view value) { return mark(kCompile, option, value); }
std::string advice::compileSet(std::string_view key, std::string_view value) { return mark(kCompileSet, key, value); }

std::string Wording::option(std::string_view name, std::string_view value) const { return joined(name, " = ", value); }
std::string Wording::flag(std::string_view name, bool value) const {
  return joined(name, " = ", value ? "true" : "false");
}
std::string Wording::set(std::string_view key, std::string_view value) const { return joined(key, " = ", value); }
std::string Wording::command(std::string_view name) const { return std::string(name); }
std::string Wording::resume(std::string_view run) const { return joined("resume", " ", run); }
std::string Wording::compile(std::string_view option, std::string_view value) const {
  return joined(option, " = ", value);
}
std::string Wording::compileSet(std::string_view key, std::string_view value) const { return joined(key, " = ", value); }

std::string worded(std::string_view text, const Wording &wording) {
  std::string result;
  while (!text.empty()) {
    const size_t begin = text.find(kBegin);
    result += text.substr(0, begin);
    if (begin == std::string_view::npos)
      break;
    const size_t middle = text.find(kMiddle, begin), end = text.find(kEnd, begin);
    if (middle == std::string_view::npos || end == std::string_view::npos || middle < begin + 2 || end < middle)
      return result; // cut short: a message that another process sent and that was damaged
    result += wordsOf(text[begin + 1], text.substr(begin + 2, middle - begin - 2),
                      text.substr(middle + 1, end - middle - 1), wording);
    text.remove_prefix(end + 1);
  }
  return result;
}

} // namespace tcc
