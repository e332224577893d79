//===- CommandLineWording.h - advice as it would be typed --------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_COMMANDLINEWORDING_H
#define TCC_TOOLS_COMMON_COMMANDLINEWORDING_H

#include "support/Advice.h"

#include <functional>

namespace tcc::tools {

/// Options as they are typed: "--eval-data PATH", "--set data.max_bad=N", "tcc --entry train".
class CommandLineWording : public Wording {
public:
  std::string option(std::string_view name, std::string_view value) const override;
  std::string flag(std::string_view name, bool value) const override;
  std::string set(std::string_view key, std::string_view value) const override;
  std::string command(std::string_view name) const override;
  std::string run(std::string_view option, std::string_view value) const override;
  std::string resume(std::string_view run) const override;
  std::string compile(std::string_view option, std::string_view value) const override;
  std::string compileSet(std::string_view key, std::string_view value) const override;
  std::string compileCommand(std::string_view name) const override;

  /// The command that goes on with a run; without it "trun … --resume RUN".
  std::function<std::string(std::string_view run)> resumeCommand;
};

/// The wording of everything that this process prints (StandardStreams.h).
CommandLineWording &commandLineWording();

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_COMMANDLINEWORDING_H
