//===- Signals.cpp - signals that end or checkpoint a run -----------------===//
#include "runtime/train/Signals.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <unistd.h>

using namespace tcc::runtime;

namespace {
// timeout(1), a closing terminal and some schedulers send the same signal twice within milliseconds; people do not.
constexpr double kSameSignalSeconds = 1;

// State shared by the handlers and the loop: handlers may only use lock-free atomics.
std::atomic<int> first{0}, pending{0}, uninterrupted{0}, requests{0}, descriptor{-1};
std::atomic<double> firstSeconds{0};
/// Two alternating texts, so that a handler never reads one that is being written.
char lastWords[2][4096];
std::atomic<int> currentWords{0};
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void say(const char *text) {
  if (int out = descriptor; out >= 0)
    (void)!write(out, text, std::strlen(text));
}

[[noreturn]] void endBy(int number) {
  say("\ntrun: stopped at once by a second signal; ");
  say(lastWords[currentWords]);
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
  int error = errno, none = 0;
  if (first.compare_exchange_strong(none, number)) {
    firstSeconds = seconds();
    if (number == SIGINT || number == SIGTERM)
      say("\ntrun: stopping: finishing the update, then writing a checkpoint; the same signal again stops at once\n");
  } else if ((number == SIGINT || number == SIGTERM) && seconds() - firstSeconds >= kSameSignalSeconds) {
    if (uninterrupted == 0)
      endBy(number);
    if (pending.exchange(number) == 0)
      say("\ntrun: stopping as soon as the checkpoint is complete\n");
  }
  errno = error;
}

void onRequest(int) { requests = 1; }
} // namespace

std::string tcc::runtime::signalName(int number) {
  const char *name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

SignalWatch::SignalWatch(int messages) {
  first = pending = uninterrupted = requests = 0;
  descriptor = messages;
  setLastWords("no checkpoint had been written");
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

int SignalWatch::received() const { return first; }

bool SignalWatch::takeRequest() { return requests.exchange(0) != 0; }

void SignalWatch::setLastWords(const std::string &text) {
  int next = 1 - currentWords;
  size_t length = std::min(text.size(), sizeof(lastWords[next]) - 1);
  std::memcpy(lastWords[next], text.data(), length);
  lastWords[next][length] = 0;
  currentWords = next;
}

SignalWatch::Uninterrupted::Uninterrupted() { ++uninterrupted; }

SignalWatch::Uninterrupted::~Uninterrupted() {
  if (--uninterrupted == 0)
    if (int number = pending)
      endBy(number);
}
