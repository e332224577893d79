//===- Signals.h - signals that end or checkpoint a run -------------------===//
//
// SIGINT, SIGTERM, SIGHUP, SIGXCPU and SIGPWR ask the loop to finish its update and to write a checkpoint. A second SIGINT
// or SIGTERM ends the process at once, but for a file that is being written: that is completed. SIGUSR1 asks for a
// checkpoint without an end. SIGPIPE and SIGXFSZ become errors of the write that caused them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_SIGNALS_H
#define TCC_RUNTIME_TRAIN_SIGNALS_H

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// "SIGTERM".
std::string signalName(int number);

/// Watches while it lives, one at a time; the handlers that were there come back afterwards. A signal that the process
/// was started to ignore (nohup) stays ignored.
class SignalWatch {
public:
  /// `messages`: the descriptor that a signal is answered on at once; -1: none.
  explicit SignalWatch(int messages);
  ~SignalWatch();
  SignalWatch(const SignalWatch &) = delete;
  SignalWatch &operator=(const SignalWatch &) = delete;

  /// The signal that asks for the end, or 0.
  int received() const;
  /// True once after each SIGUSR1.
  bool takeRequest();
  /// The message of a second signal before it ends the process, such as the path of the last checkpoint.
  void setLastWords(const std::string &text);

  /// While it lives a second signal waits. For files that are written in several steps.
  class Uninterrupted {
  public:
    Uninterrupted();
    ~Uninterrupted();
    Uninterrupted(const Uninterrupted &) = delete;
    Uninterrupted &operator=(const Uninterrupted &) = delete;
  };

private:
  std::vector<std::pair<int, struct sigaction>> before;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SIGNALS_H
