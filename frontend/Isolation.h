//===- Isolation.h - run a library call in a child process ------*- C++ -*-===//
//
// The ONNX library expects models of its own tools: some inputs crash its checker, shape inference and function
// builders, or keep them busy for ever. A call runs in a forked child with limits of its own; its result comes back
// through a pipe, and a crash of the child is one of the outcomes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_ISOLATION_H
#define TCC_FRONTEND_ISOLATION_H

#include <cstdint>
#include <functional>
#include <string>

namespace tcc::frontend {

struct IsolationLimits {
  unsigned cpuSeconds = 2;
  uint64_t memoryBytes = uint64_t(2) << 30; ///< in addition to the memory that the process has mapped already
};

struct IsolatedResult {
  enum Kind {
    Returned, ///< `text` is what the call returned
    Threw,    ///< `text` is the message of what it threw
    Ended     ///< the child crashed or met a limit; `text` says so: "crashes (Segmentation fault)"
  };
  Kind kind = Ended;
  std::string text;
};

/// Calls `call` in a child process; in this process if `fork` is false (for fuzzers, which look for crashes themselves)
/// or if fork fails. The child writes nothing to the terminal.
IsolatedResult callIsolated(bool fork, const IsolationLimits &limits, const std::function<std::string()> &call);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ISOLATION_H
