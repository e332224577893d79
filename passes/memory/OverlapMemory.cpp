//===- OverlapMemory.cpp - run memory-bound updates beside matmuls --------===//
//
// The arena must not grow beyond that of plan-memory, since a budget relies on it. Values that take over one another's
// memory count as one buffer: the instructions that access it keep their order.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Overlap.h"
#include "passes/memory/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_OVERLAPMEMORYPASS
#include "passes/LoweringPasses.h.inc"

namespace {

constexpr double kLeastHiddenBytes = 1 << 20; // fewer bytes are in cache, so the kernel is not memory-bound

/// An entry in its current order and packing, as an overlap problem.
struct Standing {
  explicit Standing(func::FuncOp function);

  EntryBuffers entry;
  std::vector<int> packed; ///< of each block: its buffer in the packing problem
  planning::OverlapProblem problem;
};

bool writesState(const EntryBuffers &entry, Operation *op) {
  return llvm::any_of(entry.definedBy(op), [&](unsigned id) { return entry.buffers[id].kind == EntryBuffer::kState; });
}

planning::OverlapInstruction describe(const EntryBuffers &entry, ArrayRef<int> packed, size_t transient,
                                      Operation *op) {
  planning::OverlapInstruction result;
  NominalTime time = nominalTime(op);
  // A product that contains an update uses memory bandwidth already.
  if (op->hasAttr(names::kCall) && !isa<RowwiseOp>(op))
    result.computeNs = uint64_t(time.arithmeticNs);
  // Updates: all their operands and results are in memory. Kernels between layers are not moved: half of their data is
  // in cache, and measured beside a convolution they take longer than before it. An op that emits its own loops may
  // access little of its operands (a scatter).
  else if (auto fused = dyn_cast<FusedOp>(op);
           fused && !fused.getLoopKernel() && bytesOf(op) >= kLeastHiddenBytes && writesState(entry, op)) {
    const double memoryNs = bytesOf(op) / target::costsOf(op).stateBytesPerNs;
    result.memoryNs = memoryNs > time.arithmeticNs ? uint64_t(memoryNs) : 0;
  }
  auto memoryOf = [&](unsigned id) {
    int block = entry.buffers[id].block;
    return block < 0 ? int(transient + id) : packed[size_t(block)];
  };
  for (Value operand : op->getOperands())
    result.reads.push_back(memoryOf(entry.bufferOf(operand)));
  for (unsigned id : entry.definedBy(op))
    result.writes.push_back(memoryOf(id));
  for (std::vector<int> *ids : {&result.reads, &result.writes}) {
    llvm::sort(*ids);
    ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  }
  return result;
}

Standing::Standing(func::FuncOp function) : entry(function) {
  problem.packing = planning::packingOf(entry.blocks, packed);
  problem.capacity = planning::Bytes(function->getAttrOfType<IntegerAttr>(names::kTransientBytes).getInt());
  for (Operation *op : entry.instructions)
    problem.instructions.push_back(describe(entry, packed, problem.packing.buffers.size(), op));
  problem.offsets = entry.offsets(function, packed, problem.packing.buffers.size());
}

struct OverlapMemory : impl::OverlapMemoryPassBase<OverlapMemory> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    // Reordering would invalidate the extended live ranges of reduce-scatters' sources.
    if (llvm::any_of(function.getBody().front(), [](Operation &op) { return op.hasAttr(names::kBeside); }))
      return;
    Standing standing(function);
    planning::OverlapSolution solution = planning::overlap(standing.problem);
    if (solution.hiddenNs == 0)
      return;
    if (std::string wrong = planning::validate(standing.problem, solution); !wrong.empty()) {
      function.emitError("internal error: the overlap of instructions is wrong: ") << wrong;
      return signalPassFailure();
    }
    Builder builder(&getContext());
    const planning::PackingProblem lives = planning::packingOf(standing.problem, solution);
    planning::PackingSolution placed{solution.offsets, standing.problem.capacity, 0};
    placed.lowerBound = planning::packGreedily(lives).lowerBound;
    standing.entry.place(function, lives, standing.packed, placed);
    for (auto [position, id] : llvm::enumerate(solution.order))
      if (int count = solution.beside[position])
        standing.entry.instructions[size_t(id)]->setAttr(names::kBeside, builder.getI64IntegerAttr(count));
    EntryProblem(function).apply(solution.order);
  }
};

} // namespace

} // namespace tcc::train
