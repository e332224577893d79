//===- Collective.cpp - a plan's collective as NCCL's operations ---------===//
#include "runtime/cuda/Collective.h"
#include "runtime/parallel/CollectiveStep.h"
#include "runtime/plan/Shards.h"

namespace tcc::cuda {

namespace {
api::ncclDataType_t ncclTypeOf(plan::DType type) {
  switch (type) {
  case plan::F64:
    return api::ncclFloat64;
  case plan::F16:
    return api::ncclFloat16;
  case plan::BF16:
    return api::ncclBfloat16;
  default:
    return api::ncclFloat32;
  }
}

void *at(api::CUdeviceptr address) { return reinterpret_cast<void *>(address); }
} // namespace

/// Operations that are submitted together, at most NCCL's limit of 2048 per group.
class Collective::Group {
public:
  explicit Group(const NcclLibrary &library) : library(library) {}

  template <typename Operation> void operator()(Operation operation) {
    if (status.ok() && count++ % kMost == 0)
      restart();
    if (status.ok())
      status = library.check(operation(), "submitting a collective");
  }
  Status end() {
    close();
    return status;
  }

private:
  static constexpr uint64_t kMost = 1024;

  void restart() {
    close();
    if (status.ok())
      status = library.check(library->groupStart(), "beginning a group of collectives");
    open = status.ok();
  }
  void close() {
    if (!open)
      return;
    open = false;
    Status ended = library.check(library->groupEnd(), "submitting collectives");
    if (status.ok())
      status = ended;
  }

  const NcclLibrary &library;
  Status status;
  uint64_t count = 0;
  bool open = false;
};

Collective::Collective(const plan::Entry &entry, const plan::Instruction &instruction,
                       std::span<const api::CUdeviceptr> pointers, const plan::Parallel &parallel)
    : call(&instruction.collective()), parallel(&parallel) {
  const int half = instruction.operands_size() / 2;
  const bool gathers = call->kind() == plan::CollectiveCall::ALL_GATHER;
  for (int i = 0; i < half; ++i) {
    const int whole = gathers ? half + i : i;
    const plan::TensorType &type = entry.buffers(static_cast<int>(instruction.operands(whole).buffer())).type();
    const uint64_t elements = plan::elementCount(type).value_or(0);
    tensors.push_back({pointers[static_cast<size_t>(i)], pointers[static_cast<size_t>(half + i)], elements,
                       plan::shardElements(elements, std::max<uint32_t>(parallel.ranks(), 1)),
                       plan::dtypeBytes(type.dtype())});
  }
}

Status Collective::begin(const DriverLibrary &driver, api::CUstream stream, uint32_t rank) const {
  auto copy = [&](api::CUdeviceptr to, api::CUdeviceptr from, uint64_t bytes) {
    return bytes == 0 || to == from ? Status()
                                    : driver.check(driver->memcpyDtoDAsync(to, from, bytes, stream), "copying memory");
  };
  for (const Tensor &tensor : tensors) {
    const uint64_t bytes = tensor.elementBytes,
                   first = rank % std::max<uint32_t>(parallel->ranks(), 1) * tensor.shardElements;
    const uint64_t begin = std::min(first, tensor.elements),
                   count = std::min(tensor.shardElements, tensor.elements - begin);
    Status status;
    switch (call->kind()) {
    case plan::CollectiveCall::ALL_GATHER:
      status = copy(tensor.destination + begin * bytes, tensor.source, count * bytes);
      break;
    case plan::CollectiveCall::REDUCE_SCATTER: // a single rank has the sum already
    case plan::CollectiveCall::OWN_SHARD:
      status = copy(tensor.destination, tensor.source + begin * bytes, count * bytes);
      if (const uint64_t padding = tensor.shardElements - count; status.ok() && padding)
        status = driver.check(driver->memsetD8Async(tensor.destination + count * bytes, 0, padding * bytes, stream),
                              "clearing memory");
      break;
    default:
      status = copy(tensor.destination, tensor.source, tensor.elements * bytes);
    }
    if (!status.ok())
      return status;
  }
  return Status();
}

/// The ranks whose numbers differ in one binary digit: step is 1, 2, 4, …
static runtime::RankGroup pairOf(uint32_t rank, uint32_t step) { return {rank & ~step, step, 2}; }

std::vector<runtime::RankGroup> Collective::groupsOf(const plan::Parallel &parallel, uint32_t rank, uint32_t size) {
  std::vector<runtime::RankGroup> groups;
  auto add = [&](const runtime::RankGroup &group) {
    if (group.count > 1 && !(group == runtime::RankGroup{0, 1, size}))
      groups.push_back(group);
  };
  if (plan::replicatesShards(parallel)) {
    plan::CollectiveCall call;
    for (plan::CollectiveCall::Reach reach : {plan::CollectiveCall::WITHIN_NODE, plan::CollectiveCall::ACROSS_NODES}) {
      call.set_reach(reach);
      add(runtime::groupOf(call, parallel, rank, size));
    }
  }
  if (parallel.virtual_ranks())
    for (uint32_t step = 1; step < size; step *= 2)
      add(pairOf(rank, step));
  return groups;
}

Status Collective::submit(const CardRanks &ranks, api::CUstream stream) const {
  if (call->kind() != plan::CollectiveCall::ALL_REDUCE || !parallel->virtual_ranks())
    return submitTo(ranks, runtime::groupOf(*call, *parallel, ranks.rank(), ranks.size()), stream);
  Status status;
  for (uint32_t step = 1; step < ranks.size() && status.ok(); step *= 2)
    status = submitTo(ranks, pairOf(ranks.rank(), step), stream);
  return status;
}

Status Collective::submitTo(const CardRanks &ranks, const runtime::RankGroup &members, api::CUstream stream) const {
  if (members.count == 1)
    return Status();
  const CardGroup *together = ranks.group(members);
  if (!together)
    return error("internal error: ranks {}, {}, … have no communicator of their own", members.first,
                 members.first + members.stride);
  const NcclLibrary &nccl = ranks.library();
  const api::ncclComm_t communicator = together->communicator;
  const uint64_t size = members.count, own = together->numberOf(ranks.rank());
  const api::ncclDataType_t type = ncclTypeOf(call->dtype());
  Group group(nccl);
  /// Calls visit(begin, count), in elements, for each rank's part of an unequally divided tensor.
  auto forParts = [&](const Tensor &tensor, auto &&visit) {
    for (uint64_t rank = 0; rank < size; ++rank) {
      const uint64_t begin = std::min(rank * tensor.shardElements, tensor.elements);
      if (const uint64_t count = std::min(tensor.shardElements, tensor.elements - begin))
        visit(static_cast<int>(rank), begin, count);
    }
  };
  for (const Tensor &tensor : tensors) {
    const uint64_t bytes = tensor.elementBytes;
    const bool equal = tensor.shardElements * size == tensor.elements;
    if (tensor.elements == 0)
      continue;
    switch (call->kind()) {
    case plan::CollectiveCall::ALL_REDUCE:
      group([&] {
        return nccl->allReduce(at(tensor.destination), at(tensor.destination), tensor.elements, type, api::ncclSum,
                               communicator, stream);
      });
      break;
    case plan::CollectiveCall::BROADCAST:
      group([&] {
        return nccl->broadcast(at(tensor.destination), at(tensor.destination), tensor.elements * bytes, api::ncclInt8,
                               static_cast<int>(call->root()), communicator, stream);
      });
      break;
    case plan::CollectiveCall::ALL_GATHER:
      if (equal) {
        group([&] {
          return nccl->allGather(at(tensor.destination + own * tensor.shardElements * bytes), at(tensor.destination),
                                 tensor.shardElements * bytes, api::ncclInt8, communicator, stream);
        });
        break;
      }
      forParts(tensor, [&](int root, uint64_t begin, uint64_t count) {
        void *part = at(tensor.destination + begin * bytes);
        group([&] { return nccl->broadcast(part, part, count * bytes, api::ncclInt8, root, communicator, stream); });
      });
      break;
    case plan::CollectiveCall::REDUCE_SCATTER:
      if (equal) {
        group([&] {
          return nccl->reduceScatter(at(tensor.source), at(tensor.destination), tensor.shardElements, type,
                                     api::ncclSum, communicator, stream);
        });
        break;
      }
      forParts(tensor, [&](int root, uint64_t begin, uint64_t count) {
        group([&] {
          return nccl->reduce(at(tensor.source + begin * bytes), at(tensor.destination), count, type, api::ncclSum,
                              root, communicator, stream);
        });
      });
      break;
    default:
      break;
    }
  }
  return group.end();
}

} // namespace tcc::cuda
