//===- Signals.h - signals that end or checkpoint a run ---------*- C++ -*-===//
//
// SIGINT, SIGTERM, SIGHUP, SIGXCPU and SIGPWR ask the run to finish its update, write a checkpoint and stop. A second
// SIGINT or SIGTERM ends the process at once, except that a file that is being written is completed. SIGUSR1 asks for a
// checkpoint only. SIGPIPE and SIGXFSZ become errors of the write that caused them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TRUN_SIGNALS_H
#define TCC_TOOLS_TRUN_SIGNALS_H

#include "runtime/train/RunControl.h"

#include <csignal>
#include <utility>
#include <vector>

namespace tcc::tools {

/// Passes signals to a run while it lives, one object at a time; the destructor restores the earlier handlers. A signal
/// that was ignored when the process started (nohup) stays ignored.
class SignalWatch {
public:
  /// `messages`: the descriptor to which the handler writes its answer at once; -1: none. Replaces `run.onWritten`.
  SignalWatch(runtime::RunControl &run, int messages);
  ~SignalWatch();
  SignalWatch(const SignalWatch &) = delete;
  SignalWatch &operator=(const SignalWatch &) = delete;

private:
  std::vector<std::pair<int, struct sigaction>> before;
};

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_SIGNALS_H
