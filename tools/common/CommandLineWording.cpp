//===- CommandLineWording.cpp - advice as it would be typed -----------------===//
#include "tools/common/CommandLineWording.h"

#include <fmt/format.h>

namespace tcc::tools {

namespace {
/// KEY=VALUE as a word of a shell: a value in brackets, braces or quotes is quoted as a whole.
std::string assignment(std::string_view key, std::string_view value) {
  return value.find_first_of("[]{}\" ") == std::string_view::npos ? fmt::format("{}={}", key, value)
                                                                  : fmt::format("'{}={}'", key, value);
}
} // namespace

std::string CommandLineWording::option(std::string_view name, std::string_view value) const {
  return value.empty() ? fmt::format("--{}", name) : fmt::format("--{} {}", name, value);
}
std::string CommandLineWording::flag(std::string_view name, bool value) const {
  return fmt::format("--{}{}", value ? "" : "no-", name);
}
std::string CommandLineWording::set(std::string_view key, std::string_view value) const {
  return "--set " + assignment(key, value);
}
std::string CommandLineWording::command(std::string_view name) const { return fmt::format("trun {}", name); }
std::string CommandLineWording::run(std::string_view name, std::string_view value) const {
  return "trun " + option(name, value);
}
std::string CommandLineWording::resume(std::string_view run) const {
  return resumeCommand ? resumeCommand(run) : fmt::format("trun … --resume {}", run);
}
std::string CommandLineWording::compile(std::string_view name, std::string_view value) const {
  return "tcc " + option(name, value);
}
std::string CommandLineWording::compileSet(std::string_view key, std::string_view value) const {
  return "tcc " + set(key, value);
}
std::string CommandLineWording::compileCommand(std::string_view name) const { return fmt::format("tcc {}", name); }

CommandLineWording &commandLineWording() {
  static CommandLineWording wording;
  return wording;
}

} // namespace tcc::tools
