//===- VerifierGrid.cpp - kernels of a GPU: formats and grids ------------===//
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/VerifierImpl.h"

namespace tcc::plan::verifier {

namespace {
constexpr std::string_view kCuda = "cuda:";
} // namespace

void verifyFormat(const Plan &plan, int index, Reporter &report) {
  const CodeObject &code = plan.code_objects(index);
  bool forCuda = hasFixedSlots(plan);
  if (!CodeObject::Format_IsValid(code.format()))
    report("code object {}: there is no format {}", index, static_cast<int>(code.format()));
  else if ((code.format() == CodeObject::PTX) != forCuda)
    report("code object {}: it is {}, the plan is for {}", index, CodeObject::Format_Name(code.format()),
           plan.target().empty() ? "no target" : plan.target());
  else if (forCuda && plan.target() != std::string(kCuda) + code.processor())
    report("code object {}: it was made for '{}', the plan is for {}", index, code.processor(), plan.target());
  for (const KernelSignature &signature : code.kernels()) {
    uint32_t threads = signature.tile_threads();
    if (forCuda ? threads != 1 && threads != kWarpThreads : threads != 0)
      report("code object {}, kernel '{}': {} threads share a tile, which {} has none of", index, signature.symbol(),
             threads, CodeObject::Format_Name(code.format()));
  }
}

void verifyGrid(const Context &context, const Entry &entry, int index, const KernelCall &kernel,
                const KernelSignature &signature) {
  const Instruction &instruction = entry.instructions(index);
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    context.report("{}: {}", describeInstruction(entry, index), fmt::format(format, std::forward<Args>(args)...));
  };
  if (!hasFixedSlots(context.plan)) {
    if (kernel.has_grid())
      fail("kernel '{}' has a grid, the plan is for {}", kernel.symbol(), context.plan.target());
    return;
  }
  const Grid &grid = kernel.grid();
  if (grid.blocks() < 1 || grid.blocks() > kMostGridBlocks || grid.threads() < kWarpThreads ||
      grid.threads() > kMostBlockThreads || grid.threads() % kWarpThreads != 0) {
    fail("a grid of {} blocks of {} threads; blocks are 1 to {}, threads a multiple of {} up to {}", grid.blocks(),
         grid.threads(), kMostGridBlocks, kWarpThreads, kMostBlockThreads);
    return;
  }
  // The slot of a thread is that of its number in the grid; one without a tile has none.
  if (signature.scratch_bytes() == 0)
    return;
  uint64_t takers = std::min<uint64_t>(uint64_t(grid.blocks()) * grid.threads(), static_cast<uint64_t>(kernel.tiles()));
  if (signature.tile_threads() != 1)
    fail("kernel '{}' has scratch for each tile's threads, {} of them; only single threads have", kernel.symbol(),
         signature.tile_threads());
  if (takers > context.plan.max_workers())
    fail("{} threads of kernel '{}' take scratch at a time, the plan has slots for {}", takers, kernel.symbol(),
         context.plan.max_workers());
  if (instruction.scratch_slot_bytes() != signature.scratch_bytes() || instruction.scratch_shared_bytes() != 0)
    fail("kernel '{}' has a slot of {} bytes every {} bytes, the plan {} after {}", kernel.symbol(),
         signature.scratch_bytes(), signature.scratch_bytes(), instruction.scratch_slot_bytes(),
         instruction.scratch_shared_bytes());
}

void refuseCall(const Context &context, const Entry &entry, int index) {
  if (hasFixedSlots(context.plan))
    context.report("{}: a call of a CPU's library, the plan is for {}", describeInstruction(entry, index),
                   context.plan.target());
}

} // namespace tcc::plan::verifier
