//===- WiredLinks.cpp - links over one wire for each peer ----------------===//
#include "runtime/parallel/WiredLinks.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr double kSlowSeconds = 30;
} // namespace

WiredLinks::WiredLinks(uint32_t rank, std::vector<std::string> given, std::vector<std::unique_ptr<Wire>> wires,
                       std::vector<Wire *> routes, std::unique_ptr<Watch> watch)
    : own(rank), names(std::move(given)), wires(std::move(wires)), routes(std::move(routes)), watch(std::move(watch)) {}

void WiredLinks::release() {
  for (const std::unique_ptr<Wire> &wire : wires)
    wire->release();
}

Status WiredLinks::exchange(std::span<Transfer> transfers) {
  if (std::optional<std::string> failed = watch->failure())
    return Status(*failed);
  open.clear();
  for (Transfer &transfer : transfers)
    open.push_back({&transfer});
  Deadline told = deadlineIn(kSlowSeconds);
  for (;;) {
    for (const std::unique_ptr<Wire> &wire : wires)
      wire->prepare();
    bool moved = false;
    for (Progress &progress : open) {
      Wire &wire = *routes[progress.transfer->peer];
      const Moved result = wire.move(progress);
      if (result == Moved::Broken)
        return broken(progress.transfer->peer, wire.reason);
      moved = moved || result == Moved::Some;
      if (progress.part > 0 && !progress.introduced) {
        progress.introduced = true;
        if (progress.transfer->onFirst)
          if (Status status = progress.transfer->onFirst(); !status.ok())
            return status;
      }
    }
    std::erase_if(open, [](const Progress &progress) { return progress.done() && progress.request < 0; });
    if (open.empty())
      return Status();
    if (moved)
      continue;
    if (Status status = wait(told); !status.ok())
      return status;
  }
}

/// The cause may be a rank other than the one whose connection broke, so wait for the watch to name it.
Status WiredLinks::broken(uint32_t peer, const std::string &reason) {
  if (std::optional<std::string> failed = watch->failure(2))
    return Status(*failed);
  std::string text = fmt::format("{}: {}", names[peer], reason);
  watch->abort(text);
  return Status(text);
}

Status WiredLinks::wait(Deadline &told) {
  Wire *const first = routes[open.front().transfer->peer];
  const bool mixed = std::any_of(open.begin(), open.end(),
                                 [&](const Progress &progress) { return routes[progress.transfer->peer] != first; });
  if (!mixed)
    first->wait(open, watch->wakes(), millisecondsUntil(told));
  else // a wire's wait does not see the others' events: poll each in turn
    for (const std::unique_ptr<Wire> &wire : wires)
      wire->wait(open, watch->wakes(), 1);
  if (std::optional<std::string> failed = watch->failure())
    return Status(*failed);
  if (std::chrono::steady_clock::now() < told)
    return Status();
  if (slow) {
    slow(fmt::format("{} has kept {} waiting for {:g} s; it is alive", names[open.front().transfer->peer], names[own],
                     kSlowSeconds));
    told = deadlineIn(10 * kSlowSeconds);
  } else {
    told = deadlineIn(kSlowSeconds);
  }
  return Status();
}
