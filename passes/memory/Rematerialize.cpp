//===- Rematerialize.cpp - recompute values within a memory budget --------===//
//
// The ladder depends on the model alone (planning::frontier); a budget only chooses a rung. So a smaller budget never
// gives a larger arena or a cheaper step.
//
// On a device with memory of its own, values and state may be kept on the host. Each choice of the state that is there
// (a level) has a ladder of its own, since its entries fetch and store it; the levels depend on the model alone, too.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Frontier.h"
#include "passes/Common.h"
#include "passes/FrontierRows.h"
#include "passes/Lowering.h"
#include "passes/RecipeAttribute.h"
#include "passes/memory/EntryProblem.h"
#include "passes/memory/HostState.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/BytesText.h"
#include "support/PlanNames.h"

#include "llvm/Support/FormatVariadic.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_REMATERIALIZEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct Ladder {
  func::FuncOp function;
  StringRef entry;  ///< step, evaluate, …
  double calls = 1; ///< for each update
  planning::Program program{};
  planning::Frontier frontier{};

  /// The cheapest point within so many bytes, of the device and of the host; null if there is none.
  const planning::FrontierPoint *within(planning::Bytes bytes, planning::Bytes hostBytes) const {
    const planning::FrontierPoint *best = nullptr;
    for (const auto *points : {&frontier.points, &frontier.offloaded})
      for (const planning::FrontierPoint &point : *points)
        if (point.bytes <= bytes && point.host.bytes <= hostBytes && (!best || point.cost < best->cost))
          best = &point;
    return best;
  }
  /// The point of the fewest bytes within so many of the host.
  const planning::FrontierPoint &least(planning::Bytes hostBytes) const {
    const planning::FrontierPoint *best = &frontier.points.back();
    for (const planning::FrontierPoint &point : frontier.offloaded)
      if (point.bytes < best->bytes && point.host.bytes <= hostBytes)
        best = &point;
    return *best;
  }
  /// The fewest bytes of a point that costs at most this share more than the cheapest one.
  planning::Bytes leastAt(double extraTime) const {
    const std::vector<planning::FrontierPoint> &points = frontier.points;
    planning::Bytes bytes = points.front().bytes;
    for (const planning::FrontierPoint &point : points)
      if (double(point.cost) <= double(points.front().cost) * (1 + extraTime))
        bytes = std::min(bytes, point.bytes);
    return bytes;
  }
};

bool keepsOnHost(const planning::FrontierPoint &point) { return point.host.bytes > 0; }

/// A choice of the state that is kept on the host, with the entries that fetch it.
struct Level {
  std::vector<std::string> moved; ///< variables
  planning::Bytes residentBytes = 0, movedBytes = 0;
  std::vector<Ladder> ladders{};
  bool entered = false, climbed = false;

  /// Time of an update within so many bytes, and of each other entry once; nothing if one does not fit.
  std::optional<double> costWithin(planning::Bytes bytes, planning::Bytes hostBytes) const {
    if (residentBytes > bytes || movedBytes > hostBytes)
      return std::nullopt;
    double cost = 0;
    for (const Ladder &ladder : ladders) {
      const planning::FrontierPoint *point = ladder.within(bytes - residentBytes, hostBytes - movedBytes);
      if (!point)
        return std::nullopt;
      cost += double(point->cost) * ladder.calls;
    }
    return cost;
  }
  /// The same of the cheapest points of all.
  double leastCost() const {
    double cost = 0;
    for (const Ladder &ladder : ladders)
      cost += double(ladder.frontier.points.front().cost) * ladder.calls;
    return cost;
  }
  /// A time that no plan of the level beats.
  double boundCost() const {
    double cost = 0;
    for (const Ladder &ladder : ladders) {
      const std::array<planning::Cost, 3> channels = planning::costsByChannel(ladder.program);
      cost += double(*std::max_element(channels.begin(), channels.end())) * ladder.calls;
    }
    return cost;
  }
  /// The entry that needs most.
  const Ladder &forcing(planning::Bytes hostBytes) const {
    return *llvm::max_element(
        ladders, [&](const Ladder &a, const Ladder &b) { return a.least(hostBytes).bytes < b.least(hostBytes).bytes; });
  }
  planning::Bytes needed(planning::Bytes hostBytes) const {
    return residentBytes + forcing(hostBytes - movedBytes).least(hostBytes - movedBytes).bytes;
  }
};

struct Rematerialize : impl::RematerializePassBase<Rematerialize> {
  using RematerializePassBase::RematerializePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    hostLimit = hostBytes ? planning::Bytes(hostBytes) : std::numeric_limits<planning::Bytes>::max();
    const target::Target *target = target::targetOf(module);
    if (!target || !target->capabilities().keepsOnHost || variants > 1) // such targets have one variant
      offload = "none";
    std::vector<Level> levels = levelsOf(module);
    Level &first = levels.front();
    enter(first);
    if (chosenByTime() && first.moved.empty() &&
        llvm::all_of(first.ladders, [&](const Ladder &ladder) { return peakOf(ladder) < leastBytes; }))
      return;
    if (failed(climb(first)))
      return signalPassFailure();
    Level *chosen = &first;
    if (budgetBytes) {
      chosen = choose(levels);
      if (!chosen)
        return signalPassFailure();
      Builder builder(&getContext());
      module->setAttr(names::kUpdateCost,
                      builder.getF64FloatAttr(*chosen->costWithin(planning::Bytes(budgetBytes), hostLimit)));
      module->setAttr(names::kLeastCost, builder.getF64FloatAttr(levels.front().leastCost()));
    } else if (!chosenByTime() && variants == 1) { // the ladders are asked for, all of them
      for (Level &level : levels)
        if (!level.climbed && failed(climbLevel(level)))
          return signalPassFailure();
    }
    const std::vector<planning::Bytes> capacities = chooseCapacities(*chosen);
    const planning::Bytes hostCapacity = budgetBytes ? hostLimit - chosen->movedBytes : 0;
    for (Level &level : levels)
      if (&level != chosen && level.entered)
        for (Ladder &ladder : level.ladders)
          ladder.function.erase();
    settle(*chosen);
    for (auto [variant, capacity] : llvm::enumerate(capacities))
      for (Ladder &ladder : chosen->ladders) {
        func::FuncOp function = ladder.function;
        if (variant + 1 < capacities.size()) {
          function = function.clone();
          function.setName((ladder.function.getName() + "." + std::to_string(variant)).str());
          module.insert(ladder.function, function);
        }
        const planning::FrontierPoint *point = ladder.within(capacity, hostCapacity);
        follow(levels, ladder, point ? *point : ladder.least(hostCapacity), function, int64_t(variant));
      }
    Builder builder(&getContext());
    if (capacities.size() > 1)
      module->setAttr(names::kVariant, builder.getI64IntegerAttr(int64_t(capacities.size())));
    if (budgetBytes)
      module->setAttr(names::kBudgetBytes, builder.getI64IntegerAttr(int64_t(budgetBytes)));
  }

private:
  bool chosenByTime() const { return !budgetBytes && variants == 1 && (extraTime > 0 || offload == "state"); }

  /// The choices of state on the host, from none to all; with `offload` = "state" the one that it asks for.
  std::vector<Level> levelsOf(ModuleOp module) {
    Level none;
    none.residentBytes = planning::Bytes(residentBytes(module));
    std::vector<Level> levels{none};
    if (offload != "auto" && offload != "state")
      return levels;
    const MovableState movable = movableState(module);
    auto add = [&](size_t count) {
      Level level = none;
      level.moved.assign(movable.names.begin(), movable.names.begin() + long(count));
      for (const std::string &name : level.moved)
        level.movedBytes += planning::Bytes(residentBytes(module.lookupSymbol<VariableOp>(name)));
      level.residentBytes -= level.movedBytes;
      if (count > levels.back().moved.size())
        levels.push_back(std::move(level));
    };
    // Some of the optimizer's state, by bytes, all of it, and the weights, too.
    planning::Bytes all = 0, some = 0;
    for (size_t i = 0; i < movable.weights; ++i)
      all += planning::Bytes(residentBytes(module.lookupSymbol<VariableOp>(movable.names[i])));
    planning::Bytes share = 8;
    for (size_t i = 0; i < movable.weights && share > 1 && offload == "auto"; ++i) {
      some += planning::Bytes(residentBytes(module.lookupSymbol<VariableOp>(movable.names[i])));
      if (some < all / share)
        continue;
      add(i + 1);
      while (share > 1 && some >= all / share)
        share /= 2;
    }
    add(movable.weights);
    if (offload == "auto")
      add(movable.names.size());
    else if (levels.size() > 1)
      levels.erase(levels.begin());
    return levels;
  }

  double callsOf(StringRef entry) {
    constexpr double kSeldom = 1e-3; // entries that no update calls decide between equals
    const FailureOr<Recipe> recipe = recipeOf(getOperation());
    const double calls = succeeded(recipe) ? double(plan::callsPerUpdate(recipe->training, entry.str())) : 1;
    return calls > 0 ? calls : kSeldom;
  }

  /// Makes the functions of a level, in which the entries fetch the state that is on the host, and their programs.
  void enter(Level &level) {
    ModuleOp module = getOperation();
    if (level.moved.empty() || offload == "state") {
      for (func::FuncOp function : module.getOps<func::FuncOp>())
        if (auto entry = function->getAttrOfType<StringAttr>(names::kEntry))
          level.ladders.push_back({function, entry, callsOf(entry)});
    } else {
      for (Plain &plain : resident) {
        func::FuncOp function = plain.function.clone();
        function.setName((plain.function.getName() + ".host" + std::to_string(level.moved.size())).str());
        module.insert(plain.function, function);
        level.ladders.push_back({function, plain.entry, callsOf(plain.entry)});
      }
    }
    llvm::StringSet<> moved;
    for (const std::string &name : level.moved)
      moved.insert(name);
    for (Ladder &ladder : level.ladders) {
      if (!moved.empty())
        keepOnHost(ladder.function, moved);
      ladder.program = EntryProblem(ladder.function).program;
    }
    if (resident.empty())
      for (Ladder &ladder : level.ladders)
        resident.push_back({ladder.function, ladder.entry, ladder.function.getName().str()});
    level.entered = true;
  }

  LogicalResult climbLevel(Level &level) {
    enter(level);
    return climb(level);
  }

  /// The level of the least time within the budgets; null, after an error, if none fits. Levels that cannot be cheaper
  /// are not computed: state on the host takes no time off a step that runs everything once.
  Level *choose(std::vector<Level> &levels) {
    Level *best = nullptr;
    std::optional<double> cost;
    for (Level &level : levels) {
      if (best && *cost <= levels.front().leastCost())
        break;
      if (level.movedBytes > hostLimit)
        continue;
      if (!level.climbed) {
        enter(level);
        // Its transfers alone may take longer.
        if (best && level.boundCost() >= *cost)
          continue;
        if (failed(climb(level)))
          return nullptr;
      }
      const std::optional<double> own = level.costWithin(planning::Bytes(budgetBytes), hostLimit);
      if (own && (!cost || *own < *cost)) {
        cost = own;
        best = &level;
      }
    }
    if (!best)
      refuse(levels);
    return best;
  }

  /// Makes a level's state that of the module.
  void settle(Level &level) {
    ModuleOp module = getOperation();
    for (const std::string &name : level.moved)
      module.lookupSymbol<VariableOp>(name)->setAttr(names::kOnHost, UnitAttr::get(&getContext()));
    for (auto [own, plain] : llvm::zip_equal(level.ladders, resident))
      if (own.function.getName() != plain.name) {
        std::string name = plain.name;
        own.function.setName(name);
      }
  }

  /// The peak in the given order, without recomputation.
  static planning::Bytes peakOf(const Ladder &ladder) {
    planning::Sequence once(ladder.program.instructions.size());
    std::iota(once.begin(), once.end(), 0);
    return planning::peakOf(ladder.program, once);
  }

  LogicalResult climb(Level &level) {
    planning::FrontierOptions options;
    options.rungs = chosenByTime() && extraTime == 0 ? 0 : rungs;
    if (chosenByTime() && extraTime > 0)
      options.extraTime = extraTime;
    if (level.movedBytes && offload == "auto") { // further levels, each with half of the work
      options.rungs = std::max(options.rungs / 2, 1u);
      options.work /= 2;
    }
    if (bounds)
      options.boundWork = options.work;
    if (!chosenByTime() && (offload == "auto" || offload == "activations"))
      options.linkBytesPerCost = linkBytesPerCost(getOperation());
    std::vector<const planning::Program *> programs;
    for (const Ladder &ladder : level.ladders)
      programs.push_back(&ladder.program);
    std::vector<planning::Frontier> found = planning::frontiers(programs, options);
    level.climbed = true;
    for (auto [ladder, frontier] : llvm::zip_equal(level.ladders, found)) {
      ladder.frontier = std::move(frontier);
      if (!ladder.frontier.error.empty())
        return ladder.function->emitError("internal error: the ladder of budgets of `")
               << ladder.entry << "` is wrong: " << ladder.frontier.error;
    }
    return success();
  }

  /// Emits an error that says what the smallest budget is.
  void refuse(const std::vector<Level> &levels) {
    const Level *least = nullptr;
    for (const Level &level : levels)
      if (level.climbed && level.movedBytes <= hostLimit &&
          (!least || level.needed(hostLimit) < least->needed(hostLimit)))
        least = &level;
    if (!least) { // the state that `offload` moves does not fit on the host, whatever the budget is
      getOperation()->setAttr(names::kOverBudget,
                              Builder(&getContext()).getI64IntegerAttr(std::numeric_limits<int64_t>::max()));
      mlir::emitError(UnknownLoc::get(&getContext()))
          << "offload.what = \"state\" keeps " << bytesText(levels.front().movedBytes) << " on the host, more than the "
          << bytesText(hostLimit) << " of --host-memory; a larger --host-memory, or another offload.what";
      return;
    }
    const planning::Bytes needed = least->needed(hostLimit), hostLeft = hostLimit - least->movedBytes;
    const Ladder &forcing = least->forcing(hostLeft);
    const planning::FrontierPoint &point = forcing.least(hostLeft);
    getOperation()->setAttr(names::kOverBudget, Builder(&getContext()).getI64IntegerAttr(int64_t(needed)));
    // If both numbers round to the same text, print bytes only.
    const bool distinct = bytesText(budgetBytes) != bytesText(needed);
    auto told = [&](planning::Bytes bytes) {
      return llvm::formatv(distinct ? "{0} ({1} bytes)" : "{1} bytes", bytesText(bytes), bytes).str();
    };
    std::string onHost;
    if (const planning::Bytes bytes = least->movedBytes + point.host.bytes)
      onHost = llvm::formatv(", with {0} on the host", bytesText(bytes));
    std::string message =
        llvm::formatv(
            "no plan fits into the memory budget of {0}; the smallest budget that does is {1}{2}: {3} of state{4} "
            "and {5} for `{6}`",
            told(budgetBytes), told(needed), onHost, bytesText(least->residentBytes), stateByRole(*least),
            bytesText(point.bytes), forcing.entry)
            .str();
    message += "\n  with everything recomputed that can be, these live at its peak:" + forcedBy(forcing, point);
    message +=
        "\n  ways out: a larger budget, a smaller batch (--shape, --dim, or --fit batch), fewer --threads (scratch), "
        "an optimizer with less state, --entry without " +
        forcing.entry.str();
    if (hostBytes)
      message += ", a larger --host-memory";
    if (couldShardAccumulators())
      message += ", parallel.accumulators = \"shards\"";
    mlir::emitError(UnknownLoc::get(&getContext()), message);
  }

  /// True if the recipe asks for whole sums of a window on each rank where a shard would do.
  bool couldShardAccumulators() {
    FailureOr<Recipe> recipe = recipeOf(getOperation());
    return succeeded(recipe) && recipe->parallel.accumulators == "whole" && recipe->parallel.mayShardAccumulators() &&
           llvm::any_of(getOperation().getOps<VariableOp>(),
                        [](VariableOp variable) { return variable.getRole() == roles::kAccumulator; });
  }

  std::string stateByRole(const Level &level) {
    std::map<std::string, uint64_t> roles;
    for (VariableOp variable : getOperation().getOps<VariableOp>())
      if (!llvm::is_contained(level.moved, variable.getSymName()))
        roles[variable.getRole().str()] += uint64_t(tensorBytes(variable.getType()));
    std::string text;
    for (const auto &[role, bytes] : roles)
      text += (text.empty() ? " (" : ", ") + role + " " + bytesText(bytes);
    return text.empty() ? text : text + ")";
  }

  static std::string forcedBy(const Ladder &ladder, const planning::FrontierPoint &point) {
    constexpr size_t kMostLines = 8;
    const planning::Program program =
        keepsOnHost(point) ? planning::offerTransfers(ladder.program, 1).program : ladder.program;
    const planning::Sequence &sequence = point.sequence;
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
  std::vector<planning::Bytes> chooseCapacities(const Level &level) {
    planning::Bytes most = 0, least = 0;
    for (const Ladder &ladder : level.ladders) {
      most = std::max(most, chosenByTime()
                                ? ladder.leastAt(std::max(double(extraTime), level.moved.empty() ? 0 : kStreamedTime))
                                : ladder.frontier.points.front().bytes);
      least = std::max(least, ladder.frontier.points.back().bytes);
    }
    if (budgetBytes)
      most = std::min(most, planning::Bytes(budgetBytes) - level.residentBytes);
    std::vector<planning::Bytes> capacities{most};
    // Evenly spaced between most and least; capacities that give equal plans are dropped.
    auto taken = [&](planning::Bytes capacity) {
      planning::Bytes bytes = 0;
      for (const Ladder &ladder : level.ladders) {
        const planning::FrontierPoint *point = ladder.within(capacity, 0);
        bytes = std::max(bytes, point ? point->bytes : ladder.frontier.points.back().bytes);
      }
      return bytes;
    };
    for (unsigned i = 1; i < variants; ++i) {
      planning::Bytes capacity = most - planning::Bytes(double(most - least) * i / (variants - 1));
      if (taken(capacity) < taken(capacities.back()))
        capacities.push_back(capacity);
    }
    return capacities;
  }

  void follow(const std::vector<Level> &levels, const Ladder &ladder, const planning::FrontierPoint &chosen,
              func::FuncOp function, int64_t variant) {
    EntryProblem problem(function);
    if (keepsOnHost(chosen))
      problem.offerTransfers();
    problem.apply(chosen.sequence);
    Builder builder(&getContext());
    auto integer = [&](uint64_t value) { return builder.getI64IntegerAttr(int64_t(value)); };
    SmallVector<Attribute> frontier;
    auto addRow = [&](const planning::FrontierPoint &point, planning::Bytes moved) {
      frontier.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("bytes", integer(point.bytes)), builder.getNamedAttr("cost", integer(point.cost)),
           builder.getNamedAttr("lower_bound_cost", integer(point.lowerBound)),
           builder.getNamedAttr("chosen", builder.getBoolAttr(&point == &chosen)),
           builder.getNamedAttr("host_bytes", integer(point.host.bytes)),
           builder.getNamedAttr("moved_state_bytes", integer(moved))}));
    };
    for (const Level &level : levels)
      for (const Ladder &one : level.ladders)
        if (level.climbed && one.entry == ladder.entry)
          for (const auto *points : {&one.frontier.points, &one.frontier.offloaded})
            for (const planning::FrontierPoint &point : *points)
              addRow(point, level.movedBytes);
    function->setAttr(names::kFrontier, withoutBeatenRows(&getContext(), frontier));
    function->setAttr(names::kWithoutRecomputeBytes, integer(ladder.frontier.points.front().bytes));
    const planning::PackingSolution &packing = chosen.packing;
    function->setAttr(names::kPackedOffsets,
                      builder.getDenseI64ArrayAttr(llvm::to_vector_of<int64_t>(packing.offsets)));
    if (keepsOnHost(chosen)) {
      function->setAttr(names::kHostPackedOffsets,
                        builder.getDenseI64ArrayAttr(llvm::to_vector_of<int64_t>(chosen.host.offsets)));
      function->setAttr(names::kHostTransientBytes, integer(chosen.host.bytes));
    }
    function->setAttr(names::kLowerBoundBytes, integer(packing.lowerBound));
    function->setAttr(names::kCost, integer(chosen.cost));
    function->setAttr(names::kTransientBytes, integer(chosen.bytes));
    function->setAttr(names::kBoundCost, integer(chosen.lowerBound));
    function->setAttr(names::kVariant, builder.getI64IntegerAttr(variant));
  }

  /// Time that a plan without a budget may take longer, so that state from the host needs less memory on its way.
  static constexpr double kStreamedTime = 0.01;

  struct Plain {
    func::FuncOp function;
    StringRef entry;
    std::string name;
  };
  std::vector<Plain> resident; ///< the functions as they were given
  planning::Bytes hostLimit = 0;
};

} // namespace

} // namespace tcc::train
