//===- WeighScratch.cpp - reduce scratch that determines the peak ---------===//
//
// The fastest form of each call and kernel was chosen in isolation. In the given order, the scratch of a few of them
// may determine the size of the arena: these get a form with less scratch.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"

#include "llvm/ADT/DenseMap.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_WEIGHSCRATCHPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// An instruction, and the bytes of all values and partial sums that are live while it runs.
struct Instruction {
  Operation *op;
  planning::Bytes live;
};

struct WeighScratch : impl::WeighScratchPassBase<WeighScratch> {
  void runOnOperation() override {
    target = target::targetOf(getOperation());
    if (!target)
      return;
    auto attribute = getOperation()->getAttrOfType<IntegerAttr>(names::kSlots);
    slots = attribute ? uint64_t(attribute.getInt()) : 1;

    // All entries share one arena, so the largest entry determines its size.
    std::vector<Instruction> instructions;
    planning::Bytes floor = 0;
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (!function->hasAttr(names::kEntry))
        continue;
      EntryProblem entry(function);
      for (auto [op, live] : llvm::zip_equal(entry.instructions, liveWithoutScratch(entry))) {
        instructions.push_back({op, live});
        floor = std::max(floor, live);
      }
    }
    planning::Bytes arena = floor; // the arena's size if every instruction has its lightest form
    for (const Instruction &i : instructions)
      if (i.live + scratchBytes(i.op) > floor)
        arena = std::max(arena, i.live + leastScratch(i.op));
    // Equal kernels stay equal, so that one is compiled for all: they get the lowest of their limits.
    llvm::DenseMap<std::pair<OperationName, Attribute>, planning::Bytes> limits;
    for (const Instruction &i : instructions)
      if (i.live + scratchBytes(i.op) > arena) {
        auto [limit, fresh] = limits.try_emplace(formOf(i.op), arena - i.live);
        limit->second = std::min(limit->second, arena - i.live);
      }
    for (const Instruction &i : instructions)
      if (auto limit = limits.find(formOf(i.op)); limit != limits.end())
        lighten(i.op, limit->second);
  }

private:
  static std::vector<planning::Bytes> liveWithoutScratch(const EntryProblem &entry) {
    planning::Sequence sequence(entry.instructions.size());
    std::iota(sequence.begin(), sequence.end(), 0);
    planning::Program program = entry.program;
    for (planning::ProgramInstruction &instruction : program.instructions) {
      instruction.workspace -= instruction.scratch;
      instruction.scratch = 0;
    }
    std::vector<planning::Bytes> live = planning::liveBytes(program, sequence);
    return {live.begin() + 1, live.end() - 1};
  }

  static LoopKernel kernelOf(Operation *op) {
    auto fused = dyn_cast<FusedOp>(op);
    return fused ? fused.getLoopKernel() : LoopKernel();
  }

  /// Equal for instructions that run the same code: a call's descriptor, or the types and attributes of a kernel's op.
  static std::pair<OperationName, Attribute> formOf(Operation *op) {
    if (LoopKernel kernel = kernelOf(op)) {
      Builder builder(op->getContext());
      return {kernel->getName(), builder.getArrayAttr({TypeAttr::get(builder.getFunctionType(kernel->getOperandTypes(),
                                                                                             kernel->getResultTypes())),
                                                       kernel->getAttrDictionary()})};
    }
    Attribute call = op->getAttr(names::kCall);
    return {op->getName(), call ? call : Attribute(UnitAttr::get(op->getContext()))};
  }

  std::optional<target::Call> lighterCall(Operation *op, planning::Bytes bytes) const {
    auto chosen = op->getAttrOfType<CallAttr>(names::kCall);
    if (!chosen || !isa<LibraryCall>(op))
      return std::nullopt;
    Expected<plan::Instruction> instruction = target::parseCall(chosen.getDescriptor().str());
    return instruction ? target->lighterCall(op, *instruction, slots, bytes) : std::nullopt;
  }

  /// Most tiles of a kernel that use scratch at the same time.
  uint64_t tilesInFlight(LoopKernel kernel) const { return std::min(slots, uint64_t(kernel.getTileCount())); }

  planning::Bytes leastScratch(Operation *op) const {
    if (auto fused = dyn_cast<FusedOp>(op); fused && mayShrinkScratch(fused, slots)) {
      LoopKernel kernel = fused.getLoopKernel();
      return planning::Bytes(kernel.getLeastScratchBytes()) * tilesInFlight(kernel);
    }
    if (std::optional<target::Call> call = lighterCall(op, 0))
      return call->scratchBytes(slots);
    return scratchBytes(op);
  }

  void lighten(Operation *op, planning::Bytes bytes) const {
    if (auto fused = dyn_cast<FusedOp>(op); fused && mayShrinkScratch(fused, slots)) {
      LoopKernel kernel = fused.getLoopKernel();
      kernel.shrinkScratch(int64_t(bytes / tilesInFlight(kernel)));
      describeScratch(fused);
    } else if (std::optional<target::Call> call = lighterCall(op, bytes)) {
      op->setAttr(names::kCall, CallAttr::get(op->getContext(), call->text()));
      op->setAttr(names::kScratch, target::scratchOf(op->getContext(), *call));
    }
  }

  const target::Target *target = nullptr;
  uint64_t slots = 1;
};

} // namespace

} // namespace tcc::train
