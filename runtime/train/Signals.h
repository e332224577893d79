//===- Signals.h - a polite end ------------------------------------------===//
//
// SIGINT and SIGTERM ask the loop to finish its update and to write a checkpoint. A second one ends the process at
// once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_SIGNALS_H
#define TCC_RUNTIME_TRAIN_SIGNALS_H

#include <csignal>

namespace tcc::runtime {

/// Watches while it lives; the handlers that were there come back afterwards.
class SignalWatch {
public:
  SignalWatch() {
    seen() = 0;
    struct sigaction action {};
    action.sa_handler = [](int number) { seen() = number; };
    action.sa_flags = SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &oldInterrupt);
    sigaction(SIGTERM, &action, &oldTerminate);
  }
  ~SignalWatch() {
    sigaction(SIGINT, &oldInterrupt, nullptr);
    sigaction(SIGTERM, &oldTerminate, nullptr);
  }
  SignalWatch(const SignalWatch &) = delete;
  SignalWatch &operator=(const SignalWatch &) = delete;

  /// The signal that came, or 0.
  int received() const { return seen(); }

private:
  static volatile std::sig_atomic_t &seen() {
    static volatile std::sig_atomic_t number = 0;
    return number;
  }
  struct sigaction oldInterrupt {
  }, oldTerminate{};
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SIGNALS_H
