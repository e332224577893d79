//===- Roofline.cpp - measure this machine's peak rates ------------------===//
#include "runtime/cpu/Roofline.h"
#include "runtime/cpu/Arena.h"
#include "runtime/cpu/LibraryPrimitive.h"
#include "support/Advice.h"
#include "support/MachineMemory.h"
#include "support/StreamCopy.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tcc::runtime {

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The shortest time of as many runs as fit into `seconds`, at least three, after a warm-up run.
template <typename Run> double shortest(double seconds, Run &&run) {
  run();
  double best = 0, end = now() + seconds;
  for (int count = 0; count < 3 || now() < end; ++count) {
    double start = now();
    run();
    double took = now() - start;
    best = count == 0 ? took : std::min(best, took);
  }
  return best;
}

/// A product with reasonable tiles; for a measurement they need not be the best choice.
plan::MatmulCall callOf(const MatmulPeak &shape, CpuLevel level) {
  plan::MatmulCall call;
  call.set_dtype(shape.dtype);
  call.set_batch(1);
  call.set_m(shape.m);
  call.set_n(shape.n);
  call.set_k(shape.k);
  call.set_trans_b(shape.transB);
  call.set_implementation(hasPanels(level, shape.dtype) ? plan::MatmulCall::PANELS : plan::MatmulCall::LIBRARY);
  call.set_tile_batch(1);
  call.set_tile_m(256);
  call.set_tile_n(256);
  call.set_chunk_k(shape.k);
  call.set_block_k(std::min<int64_t>(shape.k, 1024));
  constexpr uint64_t most = uint64_t(4) << 20; // the library's own scratch for tiles of this size
  call.set_library_scratch_bytes(call.implementation() == plan::MatmulCall::LIBRARY ? most : 0);
  call.set_numerics(numericsOf(call.implementation()));
  return call;
}

Expected<double> matmulSeconds(ThreadPool &pool, const MatmulPeak &shape, CpuLevel level, double seconds) {
  plan::MatmulCall call = callOf(shape, level);
  auto needs = needsOf(call);
  if (!needs)
    return needs.status();
  Scratch scratch{needs->scratchSlotBytes, std::min<uint64_t>(needs->scratchSlots, pool.size()),
                  needs->scratchSharedBytes};
  auto prepared = prepare(call, level, scratch, pool.size());
  if (!prepared)
    return prepared.status();
  uint64_t size = plan::dtypeBytes(shape.dtype);
  uint64_t bytes[] = {static_cast<uint64_t>(shape.m * shape.k) * size, static_cast<uint64_t>(shape.k * shape.n) * size,
                      static_cast<uint64_t>(shape.m * shape.n) * 4, needs->partialBytes,
                      needs->scratchBytes(pool.size())};
  std::vector<Arena> memory;
  for (uint64_t amount : bytes) {
    auto arena = Arena::allocate(std::max<uint64_t>(amount, 64), "roofline");
    if (!arena)
      return arena.status();
    memory.push_back(arena.take());
  }
  for (int operand : {0, 1})
    plan::fillElements(memory[static_cast<size_t>(operand)].data(), shape.dtype,
                       bytes[operand] / plan::dtypeBytes(shape.dtype), 0.5);
  void *pointers[] = {memory[0].data(), memory[1].data(), memory[2].data(), memory[3].data()};
  bool good = true;
  double best = shortest(seconds, [&] { good = runCall(**prepared, pool, pointers, memory[4].data()) && good; });
  return good ? Expected<double>(best) : error("the library failed");
}

Status measureCopy(ThreadPool &pool, Roofline &roofline) {
  constexpr uint64_t most = uint64_t(256) << 20, piece = uint64_t(1) << 20;
  uint64_t bytes = std::clamp(freeMemoryBytes() / 8, piece * 16, most) / piece * piece;
  auto from = Arena::allocate(bytes, "roofline"), to = Arena::allocate(bytes, "roofline");
  if (!from || !to)
    return from ? to.status() : from.status();
  std::memset(from->data(), 1, bytes);
  auto tiles = static_cast<int64_t>(bytes / piece);
  auto copy = [&](auto &&each) {
    return shortest(0.15, [&] {
      pool.run(tiles, [&](unsigned, int64_t begin, int64_t end) {
        uint64_t at = static_cast<uint64_t>(begin) * piece;
        each(to->data() + at, from->data() + at, static_cast<uint64_t>(end - begin) * piece);
      });
    });
  };
  double best = std::min(copy(copyPastCaches), copy([](char *a, const char *b, uint64_t n) { std::memcpy(a, b, n); }));
  roofline.bytesPerSecond = 2.0 * static_cast<double>(bytes) / best;
  roofline.copiedBytes = bytes;
  return Status();
}
} // namespace

double Roofline::flopsPerSecond(plan::DType dtype) const {
  for (const MatmulPeak &peak : matmul)
    if (peak.dtype == dtype)
      return peak.flopsPerSecond;
  return matmul.empty() ? 0 : matmul.front().flopsPerSecond;
}

Expected<Roofline> measureRoofline(unsigned threads, const std::string &target,
                                   const std::vector<plan::DType> &types) {
  auto level = levelFromName(target);
  if (!level)
    return level.status();
  if (Status status = checkLevel(target); !status.ok())
    return status;
  Roofline roofline;
  ThreadPool pool(threads);
  WorkerScope scope;
  roofline.threads = pool.size();
  std::vector<plan::DType> all = {plan::F32};
  for (plan::DType type : types)
    if (type == plan::BF16 && multipliesBf16(*level) && std::find(all.begin(), all.end(), type) == all.end())
      all.push_back(type);
  // Dense operands of a few megabytes: large enough to amortise packing, small enough for the last-level cache.
  constexpr MatmulPeak shapes[] = {{plan::F32, 1024, 1024, 1024, false, 0},
                                   {plan::F32, 1024, 3072, 768, false, 0},
                                   {plan::F32, 1024, 768, 3072, true, 0}};
  for (plan::DType type : all) {
    MatmulPeak best;
    for (MatmulPeak shape : shapes) {
      shape.dtype = type;
      auto seconds = matmulSeconds(pool, shape, *level, 0.12);
      if (!seconds)
        return seconds.status().withContext(
            fmt::format("measuring the machine's matmul rate ({} leaves it out)", advice::flag("roofline", false)));
      shape.flopsPerSecond = 2.0 * static_cast<double>(shape.m * shape.n * shape.k) / *seconds;
      if (shape.flopsPerSecond > best.flopsPerSecond)
        best = shape;
    }
    roofline.matmul.push_back(best);
  }
  if (Status status = measureCopy(pool, roofline); !status.ok())
    return status.withContext(
        fmt::format("measuring the machine's memory bandwidth ({} leaves it out)", advice::flag("roofline", false)));
  return roofline;
}

} // namespace tcc::runtime
