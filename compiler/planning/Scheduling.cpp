//===- Scheduling.cpp - an order of least peak ----------------------------===//
//
// Several initial orders, each improved by cuts; then exact search of windows around the peak, and of the whole
// program, coarsely first. The search ends when the peak meets the lower bound of all orders, or when the work is
// spent.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Scheduling.h"

#include "compiler/planning/SchedulingSearch.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tcc::planning {

namespace {

/// Limits of the other orders that are returned: their number, and the excess of their peak as a part of the best peak.
constexpr size_t kMostOthers = 8;
constexpr int64_t kOthersPart = 20;

class Scheduler {
public:
  Scheduler(const Program &program, const SchedulingOptions &options)
      : program(program), options(options), graph(program), search(graph, options), workPerWindow(options.work / 40) {}

  SchedulingSolution run() {
    Sequence own(graph.size());
    std::iota(own.begin(), own.end(), 0);
    SchedulingSolution solution;
    solution.order = own;
    solution.peak = peakOf(program, own);
    if (graph.given.size() < graph.size())
      return solution; // no order is valid
    best = measured(graph, graph.given);
    remember(best);
    improve();
    settle();
    // The graph's live bytes should agree with the program's, but correctness does not rely on it.
    if (Bytes peak = peakOf(program, best.order); peak <= solution.peak || graph.given != own) {
      solution.order = best.order;
      solution.peak = peak;
    }
    solution.lowerBound = std::min(Bytes(search.lowerBound()), solution.peak);
    for (MeasuredOrder &order : met)
      if (order.peak <= best.peak + best.peak / kOthersPart && order.order != solution.order)
        solution.others.push_back(std::move(order.order));
    return solution;
  }

private:
  bool finished() const {
    const int64_t close = options.closePart ? best.peak / int64_t(options.closePart) : 0;
    return best.peak - close <= search.lowerBound() || search.exhausted();
  }

  void consider(const MeasuredOrder &order) {
    remember(order);
    if (order.betterThan(best))
      best = order;
  }

  void remember(const MeasuredOrder &order) {
    auto place =
        std::find_if(met.begin(), met.end(), [&](const MeasuredOrder &other) { return !other.betterThan(order); });
    if (place != met.end() && !order.betterThan(*place))
      return; // equal peak and average: most likely the same order
    met.insert(place, order);
    if (met.size() > kMostOthers)
      met.pop_back();
  }

  /// Alternate between the smallest and the largest minimum cuts, as long as that helps.
  void cut(MeasuredOrder order) {
    bool early = true;
    int64_t least = order.peak;
    for (int idle = 0; idle < 2 && !finished(); early = !early) {
      order = search.splitByCuts(std::move(order), early);
      idle = order.peak < least ? 0 : idle + 1;
      least = std::min(least, order.peak);
      consider(order);
    }
  }

  void improve() {
    const Sequence given = best.order;
    search.spend(8 * graph.size());
    if (finished())
      return;
    std::vector<MeasuredOrder> starts{best};
    auto start = [&](Sequence order) {
      search.spend(16 * graph.size());
      starts.push_back(measured(graph, std::move(order)));
      consider(starts.back());
    };
    start(freeEarly(graph, given, best.peak));
    start(freeEarly(graph, allocateLate(graph, given), std::numeric_limits<int64_t>::max()));
    if (!finished())
      start(growLeast(graph));
    if (!finished())
      start(shrinkLeast(graph));
    std::stable_sort(starts.begin(), starts.end(),
                     [](const MeasuredOrder &a, const MeasuredOrder &b) { return a.peak < b.peak; });
    for (MeasuredOrder &order : starts)
      if (!finished())
        cut(std::move(order));
    for (size_t window : {size_t(12), size_t(24), size_t(48), size_t(96), graph.size()}) {
      if (finished() || window > graph.size())
        continue;
      MeasuredOrder solved = search.solveWindows(best, window, workPerWindow);
      if (solved.peak < best.peak) {
        consider(solved);
        cut(std::move(solved));
      }
    }
    for (int64_t part = 32; part <= 8192 && !finished(); part *= 4)
      consider(search.solveCoarsely(best, part, 2 * workPerWindow));
  }

  /// Frees memory earlier and allocates it later at the same peak, if that lowers the average.
  void settle() {
    consider(measured(graph, freeEarly(graph, best.order, best.peak)));
    consider(measured(graph, allocateLate(graph, best.order)));
    consider(measured(graph, freeEarly(graph, best.order, best.peak)));
  }

  const Program &program;
  const SchedulingOptions &options;
  SchedulingGraph graph;
  OrderSearch search;
  uint64_t workPerWindow;
  MeasuredOrder best;
  std::vector<MeasuredOrder> met; ///< the best ones, best first
};

} // namespace

SchedulingSolution schedule(const Program &program, const SchedulingOptions &options) {
  return Scheduler(program, options).run();
}

Sequence leastPacked(const Program &program, const SchedulingSolution &solution, uint64_t work) {
  auto packed = [&](const Sequence &order) {
    std::vector<int> bufferOf;
    return pack(packingOf(blocksOf(program, order), bufferOf), work).bytes;
  };
  const Sequence *best = &solution.order;
  Bytes least = packed(*best);
  for (const Sequence &order : solution.others) {
    if (least <= solution.peak)
      break;
    if (peakOf(program, order) >= least)
      continue;
    if (Bytes bytes = packed(order); bytes < least) {
      least = bytes;
      best = &order;
    }
  }
  return *best;
}

} // namespace tcc::planning
