//===- Signals.cpp - signals that end or checkpoint a run -------*- C++ -*-===//
#include "tools/trun/Signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <unistd.h>

using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
// timeout(1), a closing terminal and some schedulers send the same signal twice within milliseconds; people do not.
constexpr double kSameSignalSeconds = 1;

// State shared by the handlers and the watch: handlers may only use lock-free atomics.
std::atomic<RunControl *> watched{nullptr};
std::atomic<int> pending{0}, descriptor{-1};
std::atomic<double> firstSeconds{0};
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<RunControl *>::is_always_lock_free);

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const char *nameOf(int number) {
  switch (number) {
  case SIGINT:
    return "SIGINT";
  case SIGTERM:
    return "SIGTERM";
  case SIGHUP:
    return "SIGHUP";
  case SIGXCPU:
    return "SIGXCPU";
  case SIGPWR:
    return "SIGPWR";
  default:
    return "a signal";
  }
}

void say(const char *text) {
  if (int out = descriptor; out >= 0)
    (void)!write(out, text, std::strlen(text));
}

[[noreturn]] void endBy(int number) {
  const char *path = watched.load()->lastCheckpoint();
  say("\ntrun: stopped at once by a second signal; ");
  say(*path ? "the last checkpoint is " : "no checkpoint had been written");
  say(path);
  say("\n");
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  _exit(128 + number);
}

void onStop(int number) {
  const int error = errno;
  RunControl &run = *watched.load();
  if (!run.stoppedBy()) {
    firstSeconds = seconds();
    run.stop(nameOf(number));
    if (number == SIGINT || number == SIGTERM)
      say("\ntrun: stopping: finishing the update, then writing a checkpoint; the same signal again stops at once\n");
  } else if ((number == SIGINT || number == SIGTERM) && seconds() - firstSeconds >= kSameSignalSeconds) {
    if (!run.isWriting())
      endBy(number);
    if (pending.exchange(number) == 0)
      say("\ntrun: stopping as soon as the checkpoint is complete\n");
  }
  errno = error;
}

void onRequest(int) { watched.load()->requestCheckpoint(); }
} // namespace

SignalWatch::SignalWatch(RunControl &run, int messages) {
  watched = &run;
  pending = 0;
  descriptor = messages;
  run.onWritten = [] {
    if (int number = pending)
      endBy(number);
  };
  auto install = [&](int number, void (*handler)(int)) {
    struct sigaction action {}, old{};
    if (sigaction(number, nullptr, &old) != 0 || old.sa_handler == SIG_IGN)
      return;
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, &old) == 0)
      before.emplace_back(number, old);
  };
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGPWR})
    install(number, onStop);
  install(SIGUSR1, onRequest);
  install(SIGPIPE, SIG_IGN);
  install(SIGXFSZ, SIG_IGN);
}

SignalWatch::~SignalWatch() {
  for (const auto &[number, old] : before)
    sigaction(number, &old, nullptr);
}
