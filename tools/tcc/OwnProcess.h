//===- OwnProcess.h - work in a process of its own --------------*- C++ -*-===//
//
// A process holds oneDNN to one machine level for its life, and the answers to the compiler's questions depend on the
// level. So each target of a plan for several is compiled in a process of its own.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_OWNPROCESS_H
#define TCC_TOOLS_TCC_OWNPROCESS_H

#include "support/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace tcc::tools {

/// What `work` returns, which a child of this process runs. Its changes to memory are lost. To be called before this
/// process starts threads. Error: the one of `work`, with its exit code; the child crashed or could not be started.
Expected<std::vector<std::string>> inOwnProcess(const std::function<Expected<std::vector<std::string>>()> &work);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCC_OWNPROCESS_H
