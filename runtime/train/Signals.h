//===- Signals.h - signals that end or checkpoint a run -------------------===//
//
// SIGINT, SIGTERM, SIGHUP, SIGXCPU and SIGPWR ask the loop to finish its update, write a checkpoint and stop. A second
// SIGINT or SIGTERM ends the process at once, except that a file that is being written is completed. SIGUSR1 asks for a
// checkpoint only. SIGPIPE and SIGXFSZ become errors of the write that caused them.
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

/// Handles signals while it lives, one object at a time; the destructor restores the earlier handlers. A signal that
/// was ignored when the process started (nohup) stays ignored.
class SignalWatch {
public:
  /// `messages`: the descriptor to which the handler writes its answer at once; -1: none.
  explicit SignalWatch(int messages);
  ~SignalWatch();
  SignalWatch(const SignalWatch &) = delete;
  SignalWatch &operator=(const SignalWatch &) = delete;

  /// The signal that asked for the end, or 0.
  int received() const;
  /// True once after each SIGUSR1.
  bool takeRequest();
  /// Sets the message that is printed when a second signal ends the process, such as the path of the last checkpoint.
  void setLastWords(const std::string &text);

  /// While it lives, a second signal is deferred: for files that are written in several steps.
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
