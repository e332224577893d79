//===- EntryNccl.cpp - entry points of NCCL ------------------------------===//
//
// NCCL, "NCCL API", "Using NCCL": "Creating a Communicator", "Error handling and communicator abort", "CUDA Stream
// Semantics", "Group Calls", "Data Pointers", "In-place Operations", "Using NCCL with CUDA Graphs". An operation is
// work of its stream, or of the graph that the stream captures; the operations of a group are one piece of work. An
// operation waits for all ranks when it runs, as a kernel would. Ranks are compared: all must run the same operations
// on as many elements, in the same order, captured on all ranks or on none.
//
// ncclCommAbort and ncclCommGetAsyncError take no lock that a waiting operation holds.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/Entry.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

#define TCC_NCCL_ENTRY extern "C" __attribute__((visibility("default"))) ncclResult_t
#define TCC_NCCL_BEGIN                                                                                                 \
  StandIn &d = standIn();                                                                                              \
  std::lock_guard lock(d.mutex);                                                                                       \
  if (d.enter())                                                                                                       \
  return ncclUnhandledCudaError

namespace {
/// Bytes of device memory that NCCL takes for itself.
constexpr uint64_t kOwnBytes = 16 << 20;
constexpr size_t kMostInGroup = 2048;

/// The part of communicators that needs no lock of the stand-in.
struct Registry {
  std::mutex mutex;
  std::map<const void *, std::shared_ptr<NcclState>> states;

  std::shared_ptr<NcclState> find(const void *handle) {
    std::lock_guard lock(mutex);
    auto found = states.find(handle);
    return found == states.end() ? nullptr : found->second;
  }
};
Registry &registry() {
  static Registry all;
  return all;
}

struct Pending {
  ncclComm_t handle;
  CUstream stream;
  NcclOperation operation;
};
struct Group {
  int depth = 0;
  std::vector<Pending> operations;
  ncclResult_t refused = ncclSuccess;
};
Group &group() {
  thread_local Group one;
  return one;
}

ncclResult_t refuseNccl(StandIn &d, ncclResult_t result, FaultKind kind, std::string text) {
  d.misuse(kind, CUDA_ERROR_INVALID_VALUE, std::move(text));
  return result;
}

NcclCommunicator *findCommunicator(StandIn &d, ncclComm_t handle, const char *call) {
  return d.lookup(d.communicators, handle, call, "communicator");
}

/// Checks that an operation's addresses are on the device and aligned, and in place only as the documentation allows.
ncclResult_t checkMemory(StandIn &d, const NcclOperation &operation, const NcclMeeting &ranks) {
  const uint64_t read = operation.readBytes(ranks), written = operation.writtenBytes(ranks);
  for (auto [address, bytes, name] : {std::tuple(operation.from, read, "reads"),
                                      std::tuple(static_cast<const void *>(operation.to), written, "writes")}) {
    if (bytes == 0)
      continue;
    if (!address)
      return refuseNccl(d, ncclInvalidArgument, FaultKind::Misuse, fmt::format("{} {} null", operation.text(), name));
    Allocation *found = d.machine.memory().find(address, bytes);
    if (!found || found->home != Home::Device)
      return refuseNccl(
          d, ncclInvalidArgument, FaultKind::OutOfBounds,
          fmt::format("{} {} {} bytes at {}", operation.text(), name, bytes, d.machine.memory().describe(address)));
    if (reinterpret_cast<uint64_t>(address) % bytesOf(operation.type))
      return refuseNccl(d, ncclInvalidArgument, FaultKind::Misaligned,
                        fmt::format("{} {} at {}", operation.text(), name, fmt::ptr(address)));
  }
  const auto source = reinterpret_cast<uint64_t>(operation.from), target = reinterpret_cast<uint64_t>(operation.to);
  if (read && written && source < target + written && target < source + read && !operation.inPlace(ranks))
    return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                      fmt::format("{}: source and result overlap, and not in place", operation.text()));
  return ncclSuccess;
}

/// Whether an operation of a group touches memory that another one writes. The operations of a group run concurrently.
bool disturbEachOther(const std::vector<Pending> &operations, const NcclMeeting &ranks) {
  struct Range {
    uint64_t begin, end;
    bool written;
    size_t operation;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < operations.size(); ++i) {
    const NcclOperation &one = operations[i].operation;
    const auto source = reinterpret_cast<uint64_t>(one.from), target = reinterpret_cast<uint64_t>(one.to);
    if (const uint64_t bytes = one.readBytes(ranks))
      ranges.push_back({source, source + bytes, false, i});
    if (const uint64_t bytes = one.writtenBytes(ranks))
      ranges.push_back({target, target + bytes, true, i});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t j = i + 1; j < ranges.size() && ranges[j].begin < ranges[i].end; ++j)
      if (ranges[i].operation != ranges[j].operation && (ranges[i].written || ranges[j].written))
        return true;
  return false;
}

std::optional<Fault> runOperations(const std::vector<NcclOperation> &operations, NcclMeeting &ranks, NcclState &state,
                                   std::byte *buffers, uint32_t work) {
  StandIn &d = standIn();
  Memory &memory = d.machine.memory();
  // Two unordered operations of a communicator would both use its buffers.
  if (auto fault = memory.touchByWork(buffers, 1, kWrite, work, operations.front().call()))
    return fault;
  for (const NcclOperation &one : operations) {
    if (auto fault = memory.touchByWork(const_cast<void *>(one.from), one.readBytes(ranks), kRead, work, one.call()))
      return fault;
    if (auto fault = memory.touchByWork(one.to, one.writtenBytes(ranks), kWrite, work, one.call()))
      return fault;
    if (d.options.ncclFails && ++d.ncclOperations == d.options.ncclFails) {
      state.asyncError = ncclRemoteError;
      while (!state.aborted) // a kernel whose peer cannot be reached
        ::usleep(1000);
    }
    if (auto fault = one.run(ranks, state, d.options.ncclSeconds))
      return fault;
  }
  return std::nullopt;
}

/// Queues operations as one piece of work.
ncclResult_t enqueueOperations(StandIn &d, std::vector<Pending> pending) {
  const char *call = pending.front().operation.call();
  NcclCommunicator *communicator = findCommunicator(d, pending.front().handle, call);
  if (!communicator)
    return ncclInvalidArgument;
  for (const Pending &one : pending)
    if (one.handle != pending.front().handle || one.stream != pending.front().stream)
      return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                        fmt::format("{}: a group with several communicators or streams is not emulated", call));
  if (pending.size() > kMostInGroup)
    return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                      fmt::format("{}: {} operations in a group, more than {}", call, pending.size(), kMostInGroup));
  Stream *stream = d.stream(pending.front().stream);
  if (!stream)
    return ncclInvalidArgument;
  if (disturbEachOther(pending, *communicator->meeting))
    return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                      fmt::format("{}: an operation of the group touches what another one writes", call));
  if (stream->capture && communicator->capture != stream->capture) {
    communicator->capture = stream->capture;
    ++communicator->captures;
    communicator->captured = 0;
  }
  std::vector<NcclOperation> operations;
  for (Pending &one : pending) {
    one.operation.place =
        stream->capture ? fmt::format("operation {} of graph {}", ++communicator->captured, communicator->captures)
                        : fmt::format("operation {} outside of graphs", ++communicator->submitted);
    operations.push_back(one.operation);
  }
  Task task;
  task.what = call;
  task.isAwaited = [ranks = communicator->meeting] { return ranks->isAwaited(); };
  task.run = [operations = std::move(operations), ranks = communicator->meeting, state = communicator->state,
              graphs = stream->capture ? communicator->state->graphs : nullptr, buffers = communicator->buffers](
                 uint32_t work) { return runOperations(operations, *ranks, *state, buffers, work); };
  return d.enqueue(pending.front().stream, std::move(task), call) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t add(ncclComm_t handle, CUstream stream, NcclOperation operation, bool sums, ncclRedOp_t op) {
  TCC_NCCL_BEGIN;
  auto refused = [&](ncclResult_t result) {
    if (group().depth)
      group().refused = result;
    return result;
  };
  const char *call = operation.call();
  NcclCommunicator *communicator = findCommunicator(d, handle, call);
  if (!communicator)
    return refused(ncclInvalidArgument);
  if (operation.count == 0) // the documentation gives no rule; NCCL does nothing
    return ncclSuccess;
  const int type = operation.type;
  if (type < 0 || type > ncclBfloat16 || (sums && (op != ncclSum || type < ncclFloat16)))
    return refused(refuseNccl(d, ncclInvalidArgument, FaultKind::Misuse,
                              fmt::format("{} of type {}, operator {}", call, type, static_cast<int>(op))));
  if (operation.root < 0 || operation.root >= static_cast<int>(communicator->meeting->size()))
    return refused(
        refuseNccl(d, ncclInvalidArgument, FaultKind::Misuse, fmt::format("{}: root {}", call, operation.root)));
  if (ncclResult_t result = checkMemory(d, operation, *communicator->meeting))
    return refused(result);
  if (group().depth) {
    group().operations.push_back({handle, stream, std::move(operation)});
    return ncclSuccess;
  }
  return enqueueOperations(d, {{handle, stream, std::move(operation)}});
}

/// Waits until no graph holds captured operations of the communicator; reports a fault if that takes too long.
void awaitGraphs(StandIn &d, const NcclState &state, const char *call, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (state.graphs.use_count() > 1)
    if (std::chrono::steady_clock::now() < until) {
      ::usleep(1000);
    } else {
      std::lock_guard lock(d.mutex);
      if (d.sticky) // after a fault the driver destroys nothing, so that graphs remain
        return;
      d.misuse(FaultKind::Deadlock, CUDA_ERROR_INVALID_VALUE,
               fmt::format("{} waits for {} operations in graphs that are not destroyed", call,
                           state.graphs.use_count() - 1));
      return;
    }
}

void removeCommunicator(StandIn &d, ncclComm_t handle) {
  std::lock_guard lock(d.mutex);
  if (NcclCommunicator *found = d.communicators.find(handle)) {
    d.machine.memory().release(found->buffers);
    d.deviceBytes -= kOwnBytes;
    d.communicators.remove(handle);
  }
  std::lock_guard other(registry().mutex);
  registry().states.erase(handle);
}
} // namespace

extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(ncclResult_t result) {
  // The library's wording differs; nothing may depend on it.
  static constexpr const char *kNames[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                           "internal error", "invalid argument",     "invalid usage",
                                           "remote error",   "in progress"};
  return result >= 0 && result < 8 ? kNames[result] : "unknown result code";
}
extern "C" __attribute__((visibility("default"))) const char *ncclGetLastError(ncclComm_t) {
  return "reported by the stand-in of NCCL";
}

TCC_NCCL_ENTRY ncclGetVersion(int *version) {
  if (!version)
    return ncclInvalidArgument;
  *version = standIn().options.ncclVersion;
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclGetUniqueId(ncclUniqueId *id) {
  if (!id)
    return ncclInvalidArgument;
  *id = NcclMeeting::makeId();
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommInitRank(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank) {
  StandIn &d = standIn();
  constexpr const char *kCall = "ncclCommInitRank";
  tcc::Expected<std::shared_ptr<NcclMeeting>> opened = tcc::Status("not opened");
  {
    std::lock_guard lock(d.mutex);
    if (d.enter())
      return ncclUnhandledCudaError;
    if (d.forbiddenInCapture(kCall))
      return ncclInvalidUsage;
    if (group().depth)
      return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                        fmt::format("{} in a group: several ranks of a process are not emulated", kCall));
    if (!communicator || ranks < 1 || ranks > static_cast<int>(NcclMeeting::kMostRanks) || rank < 0 || rank >= ranks)
      return refuseNccl(d, ncclInvalidArgument, FaultKind::Misuse,
                        fmt::format("{}: rank {} of {}", kCall, rank, ranks));
    opened = NcclMeeting::open(id, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank), d.device);
    if (!opened)
      return refuseNccl(d, ncclInvalidArgument, FaultKind::Misuse, fmt::format("{}: {}", kCall, opened.message()));
  }
  NcclMeeting &meeting = **opened;
  if (d.options.ncclLeaves == meeting.rank() && d.options.ncclLeaves)
    ::_exit(1);
  if (meeting.meet([] { return false; }, d.options.ncclSeconds) != NcclMeeting::Outcome::Met) {
    std::lock_guard lock(d.mutex);
    return refuseNccl(
        d, ncclSystemError, FaultKind::Deadlock,
        fmt::format("{}: rank {} does not come within {} s", kCall, meeting.missing(), d.options.ncclSeconds));
  }
  std::lock_guard lock(d.mutex);
  for (uint32_t other = 0; other < meeting.size(); ++other)
    if (other != meeting.rank() && meeting.deviceOf(other) == d.device)
      return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse,
                        fmt::format("{}: ranks {} and {} both use device {}", kCall, rank, other, d.device));
  auto made = std::make_unique<NcclCommunicator>();
  made->meeting = *opened;
  made->buffers = d.machine.memory().allocate(64, Home::Device, "variable buffers of NCCL", true).base;
  d.deviceBytes += kOwnBytes;
  d.meetOthers();
  std::shared_ptr<NcclState> state = made->state;
  auto *handle = reinterpret_cast<ncclComm_t>(d.communicators.add(std::move(made)));
  std::lock_guard other(registry().mutex);
  registry().states[handle] = state;
  *communicator = handle;
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommDestroy(ncclComm_t communicator) {
  StandIn &d = standIn();
  std::shared_ptr<NcclState> state = registry().find(communicator);
  {
    TCC_NCCL_BEGIN;
    if (!findCommunicator(d, communicator, "ncclCommDestroy"))
      return ncclInvalidArgument;
    if (d.fail(d.queue.finishAll()))
      return ncclUnhandledCudaError;
  }
  awaitGraphs(d, *state, "ncclCommDestroy", d.options.graphSeconds);
  removeCommunicator(d, communicator);
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommAbort(ncclComm_t communicator) {
  StandIn &d = standIn();
  std::shared_ptr<NcclState> state = registry().find(communicator);
  if (!state) {
    std::lock_guard lock(d.mutex);
    (void)findCommunicator(d, communicator, "ncclCommAbort");
    return ncclInvalidArgument;
  }
  state->aborted = true;
  awaitGraphs(d, *state, "ncclCommAbort", d.options.graphSeconds);
  removeCommunicator(d, communicator);
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error) {
  std::shared_ptr<NcclState> state = registry().find(communicator);
  if (!state || !error) {
    StandIn &d = standIn();
    std::lock_guard lock(d.mutex);
    (void)findCommunicator(d, communicator, "ncclCommGetAsyncError");
    return ncclInvalidArgument;
  }
  *error = static_cast<ncclResult_t>(state->asyncError.load());
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommCount(ncclComm_t communicator, int *ranks) {
  TCC_NCCL_BEGIN;
  NcclCommunicator *found = findCommunicator(d, communicator, "ncclCommCount");
  if (!found)
    return ncclInvalidArgument;
  *ranks = static_cast<int>(found->meeting->size());
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclCommUserRank(ncclComm_t communicator, int *rank) {
  TCC_NCCL_BEGIN;
  NcclCommunicator *found = findCommunicator(d, communicator, "ncclCommUserRank");
  if (!found)
    return ncclInvalidArgument;
  *rank = static_cast<int>(found->meeting->rank());
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                             ncclComm_t communicator, CUstream stream) {
  return add(communicator, stream, {NcclOperation::AllReduce, from, to, count, type, 0, ""}, true, op);
}

TCC_NCCL_ENTRY ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                          ncclComm_t communicator, CUstream stream) {
  return add(communicator, stream, {NcclOperation::Reduce, from, to, count, type, root, ""}, true, op);
}

TCC_NCCL_ENTRY ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                             ncclComm_t communicator, CUstream stream) {
  return add(communicator, stream, {NcclOperation::Broadcast, from, to, count, type, root, ""}, false, ncclSum);
}

TCC_NCCL_ENTRY ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t communicator, CUstream stream) {
  return add(communicator, stream, {NcclOperation::ReduceScatter, from, to, count, type, 0, ""}, true, op);
}

TCC_NCCL_ENTRY ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                             CUstream stream) {
  return add(communicator, stream, {NcclOperation::AllGather, from, to, count, type, 0, ""}, false, ncclSum);
}

TCC_NCCL_ENTRY ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

TCC_NCCL_ENTRY ncclGroupEnd() {
  TCC_NCCL_BEGIN;
  if (group().depth == 0)
    return refuseNccl(d, ncclInvalidUsage, FaultKind::Misuse, "ncclGroupEnd without ncclGroupStart");
  if (--group().depth > 0)
    return ncclSuccess;
  std::vector<Pending> pending = std::move(group().operations);
  const ncclResult_t refused = std::exchange(group().refused, ncclSuccess);
  group().operations.clear();
  if (refused || pending.empty())
    return refused;
  return enqueueOperations(d, std::move(pending));
}
