//===- PlanMemory.cpp -----------------------------------------------------===//
#include "compiler/planning/Packing.h"
#include "passes/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_PLANMEMORYPASS
#include "passes/LoweringPasses.h.inc"

namespace {

constexpr int kMoreTries = 4;

struct PlanMemory : impl::PlanMemoryPassBase<PlanMemory> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryBuffers entry(function);
    std::vector<int> packed;
    planning::PackingProblem problem = planning::packingOf(entry.blocks, packed);
    // A rung of the ladder is packed as it was when it was chosen: a budget relies on its bytes. Where the blocks come
    // in another order than then, more work finds what that found.
    auto chosenWith = function->getAttrOfType<IntegerAttr>(names::kPackingWork);
    auto promised = function->getAttrOfType<IntegerAttr>(names::kTransientBytes);
    auto keepsPromise = [&](const planning::PackingSolution &found) {
      return !promised || found.bytes <= planning::Bytes(promised.getInt());
    };
    uint64_t work = chosenWith ? uint64_t(chosenWith.getInt()) : planning::kPackingWork;
    planning::PackingSolution solution = planning::pack(problem, work);
    // A hundredth above what lives at once is worth some more time, less is not.
    if (!promised && solution.bytes > solution.lowerBound + solution.lowerBound / 100)
      if (planning::PackingSolution other = planning::pack(problem, 4 * work); other.bytes < solution.bytes)
        solution = std::move(other);
    for (int more = 0; more < kMoreTries && !keepsPromise(solution); ++more)
      solution = planning::pack(problem, work *= 4);
    if (!keepsPromise(solution)) {
      function.emitError("internal error: the arena takes ")
          << solution.bytes << " bytes, the ladder of budgets said " << promised.getInt();
      return signalPassFailure();
    }
    if (std::string clash = planning::validate(problem, solution); !clash.empty()) {
      function.emitError("internal error: memory plan is wrong: ") << clash;
      return signalPassFailure();
    }
    entry.place(function, packed, solution);
  }
};

} // namespace

} // namespace tcc::train
