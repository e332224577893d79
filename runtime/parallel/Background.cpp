//===- Background.cpp - run collectives concurrently with other work -----===//
#include "runtime/parallel/Background.h"

using namespace tcc;
using namespace tcc::runtime;

Background::Background(std::function<Status(size_t)> carryOut)
    : carryOut(std::move(carryOut)), thread([this] { run(); }) {}

Background::~Background() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  mayRun.notify_one();
  thread.join();
}

void Background::submit(size_t job) {
  {
    std::lock_guard lock(mutex);
    jobs.push_back(job);
  }
  mayRun.notify_one();
}

Status Background::finish(uint64_t count) {
  std::unique_lock lock(mutex);
  mayGoOn.wait(lock, [&] { return done >= count; });
  return problem;
}

Status Background::finishAll() {
  std::unique_lock lock(mutex);
  mayGoOn.wait(lock, [&] { return done == jobs.size(); });
  jobs.clear();
  done = 0;
  return std::exchange(problem, Status());
}

void Background::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    mayRun.wait(lock, [&] { return stopping || done < jobs.size(); });
    if (stopping)
      return;
    const size_t job = jobs[done];
    const bool skipped = !problem.ok();
    lock.unlock();
    Status status = skipped ? Status() : carryOut(job);
    lock.lock();
    if (!status.ok())
      problem = status;
    ++done;
    mayGoOn.notify_all();
  }
}
