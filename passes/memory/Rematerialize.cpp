//===- Rematerialize.cpp - recompute values within a memory budget --------===//
//
// The ladder depends on the model alone (planning::frontier); a budget only chooses a rung. So a smaller budget never
// gives a larger arena or a cheaper step.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Frontier.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"
#include "support/BytesText.h"

#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_REMATERIALIZEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct Ladder {
  func::FuncOp function;
  StringRef entry; ///< step, evaluate, …
  planning::Program program;
  std::vector<planning::FrontierPoint> points;

  /// The cheapest point within `bytes`; if there is none, the smallest point.
  const planning::FrontierPoint &within(planning::Bytes bytes) const {
    for (const planning::FrontierPoint &point : points)
      if (point.bytes <= bytes)
        return point;
    return points.back();
  }
  planning::Bytes least() const { return points.back().bytes; }
  /// The fewest bytes of a point that costs at most this share more than executing everything once.
  planning::Bytes leastAt(double extraTime) const {
    planning::Bytes bytes = points.front().bytes;
    for (const planning::FrontierPoint &point : points)
      if (double(point.cost) <= double(points.front().cost) * (1 + extraTime))
        bytes = std::min(bytes, point.bytes);
    return bytes;
  }
};

struct Rematerialize : impl::RematerializePassBase<Rematerialize> {
  using RematerializePassBase::RematerializePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    resident = residentBytes(module);
    std::vector<Ladder> ladders;
    for (func::FuncOp function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (auto entry = function->getAttrOfType<StringAttr>(names::kEntry))
        ladders.push_back({function, entry, EntryProblem(function).program, {}});
    if (chosenByTime() && llvm::all_of(ladders, [&](const Ladder &ladder) { return peakOf(ladder) < leastBytes; }))
      return;
    if (failed(climb(ladders)))
      return signalPassFailure();
    if (budgetBytes && failed(fit(ladders)))
      return signalPassFailure();
    std::vector<planning::Bytes> capacities = chooseCapacities(ladders);
    for (auto [variant, capacity] : llvm::enumerate(capacities))
      for (Ladder &ladder : ladders) {
        func::FuncOp function = ladder.function;
        if (variant + 1 < capacities.size()) {
          function = function.clone();
          function.setName((ladder.function.getName() + "." + std::to_string(variant)).str());
          module.insert(ladder.function, function);
        }
        follow(ladder, ladder.within(capacity), function, int64_t(variant));
      }
    Builder builder(&getContext());
    if (capacities.size() > 1)
      module->setAttr(names::kVariant, builder.getI64IntegerAttr(int64_t(capacities.size())));
    if (budgetBytes)
      module->setAttr(names::kBudgetBytes, builder.getI64IntegerAttr(int64_t(budgetBytes)));
  }

private:
  bool chosenByTime() const { return extraTime > 0 && !budgetBytes && variants == 1; }

  /// The peak in the given order, without recomputation.
  static planning::Bytes peakOf(const Ladder &ladder) {
    planning::Sequence once(ladder.program.instructions.size());
    std::iota(once.begin(), once.end(), 0);
    return planning::peakOf(ladder.program, once);
  }

  LogicalResult climb(std::vector<Ladder> &ladders) {
    planning::FrontierOptions options;
    options.rungs = rungs;
    if (chosenByTime())
      options.extraTime = extraTime;
    if (bounds)
      options.boundWork = options.work;
    std::vector<const planning::Program *> programs;
    for (const Ladder &ladder : ladders)
      programs.push_back(&ladder.program);
    std::vector<planning::Frontier> found = planning::frontiers(programs, options);
    for (auto [ladder, frontier] : llvm::zip_equal(ladders, found)) {
      ladder.points = std::move(frontier.points);
      if (!frontier.error.empty())
        return ladder.function.emitError("internal error: the ladder of budgets of `")
               << ladder.entry << "` is wrong: " << frontier.error;
    }
    return success();
  }

  /// Emits an error if even the smallest arena of the entry that needs most exceeds the budget.
  LogicalResult fit(const std::vector<Ladder> &ladders) {
    const Ladder &forcing =
        *llvm::max_element(ladders, [](const Ladder &a, const Ladder &b) { return a.least() < b.least(); });
    const planning::Bytes needed = forcing.least();
    if (resident + needed <= budgetBytes)
      return success();
    getOperation()->setAttr(names::kOverBudget, Builder(&getContext()).getI64IntegerAttr(int64_t(resident + needed)));
    // If both numbers round to the same text, print bytes only.
    const bool distinct = bytesText(budgetBytes) != bytesText(resident + needed);
    auto told = [&](planning::Bytes bytes) {
      return llvm::formatv(distinct ? "{0} ({1} bytes)" : "{1} bytes", bytesText(bytes), bytes).str();
    };
    std::string message =
        llvm::formatv(
            "no plan fits into the memory budget of {0}; the smallest budget that does is {1}: {2} of state{3} "
            "and {4} for `{5}`",
            told(budgetBytes), told(resident + needed), bytesText(resident), stateByRole(), bytesText(needed),
            forcing.entry)
            .str();
    message += "\n  with everything recomputed that can be, these live at its peak:" + forcedBy(forcing);
    message +=
        "\n  ways out: a larger budget, a smaller batch (--shape, --dim, or --fit batch), fewer --threads (scratch), "
        "an optimizer with less state, --entry without " +
        forcing.entry.str();
    return mlir::emitError(UnknownLoc::get(&getContext()), message);
  }

  std::string stateByRole() {
    std::map<std::string, uint64_t> roles;
    for (VariableOp variable : getOperation().getOps<VariableOp>())
      roles[variable.getRole().str()] += uint64_t(tensorBytes(variable.getType()));
    std::string text;
    for (const auto &[role, bytes] : roles)
      text += (text.empty() ? " (" : ", ") + role + " " + bytesText(bytes);
    return text.empty() ? text : text + ")";
  }

  static std::string forcedBy(const Ladder &ladder) {
    constexpr size_t kMostLines = 8;
    const planning::Program &program = ladder.program;
    const planning::Sequence &sequence = ladder.points.back().sequence;
    std::vector<planning::Block> live = planning::liveAtPeak(program, sequence);
    std::string text;
    for (size_t i = 0; i < std::min(live.size(), kMostLines); ++i) {
      const planning::Block &block = live[i];
      std::string name = block.value >= 0 ? program.values[size_t(block.value)].name
                                          : (block.isScratch ? "scratch of " : "workspace of ") +
                                                program.instructions[size_t(sequence[size_t(block.execution)])].name;
      text += llvm::formatv("\n  {0,10}  {1}", bytesText(block.bytes), name.empty() ? "(no node)" : name).str();
    }
    if (live.size() > kMostLines) {
      uint64_t rest = 0;
      for (size_t i = kMostLines; i < live.size(); ++i)
        rest += live[i].bytes;
      text += llvm::formatv("\n  {0,10}  {1} more", bytesText(rest), live.size() - kMostLines).str();
    }
    return text;
  }

  /// Limits on the transient arena of each variant, largest first.
  std::vector<planning::Bytes> chooseCapacities(const std::vector<Ladder> &ladders) {
    planning::Bytes most = 0, least = 0;
    for (const Ladder &ladder : ladders) {
      most = std::max(most, chosenByTime() ? ladder.leastAt(extraTime) : ladder.points.front().bytes);
      least = std::max(least, ladder.least());
    }
    if (budgetBytes)
      most = std::min(most, planning::Bytes(budgetBytes - resident));
    std::vector<planning::Bytes> capacities{most};
    // Evenly spaced between most and least; capacities that give equal plans are dropped.
    auto taken = [&](planning::Bytes capacity) {
      planning::Bytes bytes = 0;
      for (const Ladder &ladder : ladders)
        bytes = std::max(bytes, ladder.within(capacity).bytes);
      return bytes;
    };
    for (unsigned i = 1; i < variants; ++i) {
      planning::Bytes capacity = most - planning::Bytes(double(most - least) * i / (variants - 1));
      if (taken(capacity) < taken(capacities.back()))
        capacities.push_back(capacity);
    }
    return capacities;
  }

  void follow(const Ladder &ladder, const planning::FrontierPoint &chosen, func::FuncOp function, int64_t variant) {
    EntryProblem(function).apply(chosen.sequence);
    Builder builder(&getContext());
    auto integer = [&](uint64_t value) { return builder.getI64IntegerAttr(int64_t(value)); };
    SmallVector<Attribute> frontier;
    for (const planning::FrontierPoint &point : ladder.points)
      frontier.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("bytes", integer(point.bytes)), builder.getNamedAttr("cost", integer(point.cost)),
           builder.getNamedAttr("lower_bound_cost", integer(point.lowerBound)),
           builder.getNamedAttr("chosen", builder.getBoolAttr(&point == &chosen))}));
    function->setAttr(names::kFrontier, builder.getArrayAttr(frontier));
    function->setAttr(names::kWithoutRecomputeBytes, integer(ladder.points.front().bytes));
    const planning::PackingSolution &packing = chosen.packing;
    function->setAttr(names::kPackedOffsets,
                      builder.getDenseI64ArrayAttr(llvm::to_vector_of<int64_t>(packing.offsets)));
    function->setAttr(names::kLowerBoundBytes, integer(packing.lowerBound));
    function->setAttr(names::kCost, integer(chosen.cost));
    function->setAttr(names::kTransientBytes, integer(chosen.bytes));
    function->setAttr(names::kBoundCost, integer(chosen.lowerBound));
    function->setAttr(names::kVariant, builder.getI64IntegerAttr(variant));
  }

  uint64_t resident = 0;
};

} // namespace

} // namespace tcc::train
