//===- OwnProcess.h - work in a process of its own --------------*- C++ -*-===//
//
// Each target of a plan for several is compiled in a process of its own: its memory is returned before the next begins.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_OWNPROCESS_H
#define TCC_TOOLS_TCC_OWNPROCESS_H

#include "support/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace tcc::tools {

/// Runs `work` in a child process and returns its result. Its changes to memory are lost. Must be called before this
/// process starts threads. Error: that of `work`, with its exit code; or the child crashed or could not be started.
Expected<std::vector<std::string>> inOwnProcess(const std::function<Expected<std::vector<std::string>>()> &work);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCC_OWNPROCESS_H
