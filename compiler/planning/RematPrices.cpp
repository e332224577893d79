//===- RematPrices.cpp - one walk that keeps values by a price of memory --===//
//
// A byte that is held during a crowded step has a price. Walking through the nodes in order, each value that was just
// made or read is held until its next use if that costs less than making it again then (with the inputs that will not
// be held), and is dropped otherwise; a missing value is recomputed just before its use. The price is the Lagrange
// multiplier of the budget: bisection finds the least price at which the schedule fits, for several definitions of a
// crowded step. Recomputations that do not lower the peak are removed at the end.
//
//===----------------------------------------------------------------------===//

#include "compiler/planning/RematSearch.h"

#include <algorithm>
#include <limits>

namespace tcc::planning {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Walk {
public:
  explicit Walk(const RematProblem &problem) : problem(problem), count(int(problem.nodes.size())) {
    uses.resize(problem.nodes.size());
    for (int v = 0; v < count; ++v)
      for (int input : problem.inputs[size_t(v)])
        uses[size_t(input)].push_back(v);
    for (const RematNode &node : problem.nodes)
      nodes.push_back({double(node.cost), double(node.bytes),
                       !node.repeatable         ? -1
                       : node.repeatBefore >= 0 ? node.repeatBefore
                                                : count,
                       node.liveAtExit});
    crowded.assign(problem.nodes.size() + 1, 0);
    stamp.assign(problem.nodes.size(), 0);
  }

  /// Steps at which more than `bytes` are live while nothing is recomputed are crowded.
  void setCrowded(const std::vector<int64_t> &live, double bytes) {
    for (int t = 0; t < count; ++t)
      crowded[size_t(t) + 1] = crowded[size_t(t)] + (double(live[size_t(t)]) > bytes ? 1 : 0);
  }

  struct Answer {
    /// Empty if it would recompute each node several times on average, or if it is not `within`.
    RematSchedule schedule;
    bool within = true; ///< false: more than `budget` bytes are surely live at some step
    /// With any price between these two the answer is the same.
    double samePriceFrom = 0, samePriceTo = 0;
  };
  Answer schedule(double pricePerByteStep, double budget = kNever) {
    price = pricePerByteStep;
    Answer answer;
    made.clear();
    heldUntil.assign(size_t(count), -1);
    past.assign(size_t(count), 0);
    heldBytes = closestBelow = 0;
    closestAbove = kNever;
    for (int t = 0; t < count; ++t) {
      touched.clear();
      execute(t);
      bool isTooLong = made.size() > kMostExecutions * problem.nodes.size();
      for (size_t i = 0; i < touched.size() && !isTooLong; ++i)
        decide(touched[i], t);
      answer.within = heldBytes <= budget;
      if (isTooLong || !answer.within)
        break;
      if (t + 1 == count)
        answer.schedule = made;
    }
    // At a lower price, held values stay held, and dropped ones stay dropped until holding costs no more than making
    // them again. At a higher price, vice versa. The margins are far above rounding errors.
    answer.samePriceFrom = price * std::min(1.0, closestBelow * (1 + 1e-9));
    answer.samePriceTo = price * std::max(1.0, closestAbove * (1 - 1e-9));
    return answer;
  }

private:
  bool atHand(int u) const { return heldUntil[size_t(u)] >= 0; }

  /// Executes `target`, and before it its missing inputs: depth first, without recursion.
  void execute(int target) {
    stack.assign(1, target);
    while (!stack.empty()) {
      int v = stack.back();
      if (v != target && atHand(v)) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      const std::vector<int> &inputs = problem.inputs[size_t(v)];
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
        if (!atHand(*input)) {
          stack.push_back(*input);
          ready = false;
        }
      if (!ready)
        continue;
      stack.pop_back();
      made.push_back(v);
      heldBytes += atHand(v) ? 0 : nodes[size_t(v)].bytes;
      heldUntil[size_t(v)] = target;
      touched.push_back(v);
      touched.insert(touched.end(), inputs.begin(), inputs.end());
    }
  }

  void decide(int u, int t) {
    const Node &node = nodes[size_t(u)];
    const std::vector<int> &mine = uses[size_t(u)];
    size_t &next = past[size_t(u)];
    while (next < mine.size() && mine[next] <= t)
      ++next;
    int until = next < mine.size() ? mine[next] : node.liveAtExit ? count : -1;
    if (until >= 0 && until < count && until <= node.repeatUntil) {
      ++stamps;
      visits = 0;
      double held = price * node.bytes * double(crowded[size_t(until)] - crowded[size_t(t) + 1]);
      if (held > 0) {
        if (double cost = costAt(u, until, held); held > cost) {
          until = -1;
          closestBelow = std::max(closestBelow, cost / held);
        } else {
          closestAbove = std::min(closestAbove, cost / held);
        }
      }
    }
    heldBytes += (until >= 0 ? node.bytes : 0) - (atHand(u) ? node.bytes : 0);
    heldUntil[size_t(u)] = until;
  }

  /// Cost of making `u` again just before step `at`, given the decisions so far. Stops counting at `enough`.
  double costAt(int u, int at, double enough) {
    const Node &node = nodes[size_t(u)];
    if (at > node.repeatUntil || ++visits > kMostVisits)
      return kNever;
    if (stamp[size_t(u)] == stamps)
      return 0; // counted already
    stamp[size_t(u)] = stamps;
    double cost = node.cost;
    for (int input : problem.inputs[size_t(u)]) {
      if (cost >= enough)
        break;
      if (heldUntil[size_t(input)] < at)
        cost += costAt(input, at, enough - cost);
    }
    return cost;
  }

  static constexpr int kMostVisits = 100;
  static constexpr size_t kMostExecutions = 5;
  struct Node {
    double cost, bytes;
    int repeatUntil; ///< the last step before which it may be executed again
    bool liveAtExit;
  };
  const RematProblem &problem;
  const int count;
  std::vector<Node> nodes;
  std::vector<std::vector<int>> uses;
  std::vector<size_t> past;     ///< number of past uses of each node
  std::vector<int64_t> crowded; ///< number of crowded steps before each step
  double price = 0;
  double heldBytes = 0; ///< of all held values
  /// Cost of recomputing over cost of holding: the largest ratio of dropped values, the least of held ones.
  double closestBelow = 0, closestAbove = 0;
  RematSchedule made;
  std::vector<int> heldUntil; ///< the step until which a value is held; −1: it is not held
  std::vector<int> touched, stack, stamp;
  int stamps = 0, visits = 0;
};

/// Live bytes at each step where everything is executed once.
std::vector<int64_t> liveOnce(const RematProblem &problem) {
  const size_t count = problem.nodes.size();
  std::vector<size_t> last(count);
  std::vector<int64_t> live(count + 1, 0);
  for (size_t v = 0; v < count; ++v) {
    last[v] = problem.nodes[v].liveAtExit ? count - 1 : v;
    for (int input : problem.inputs[v])
      last[size_t(input)] = std::max(last[size_t(input)], v);
  }
  for (size_t v = 0; v < count; ++v) {
    live[v] += int64_t(problem.nodes[v].bytes);
    live[last[v] + 1] -= int64_t(problem.nodes[v].bytes);
  }
  for (size_t v = 1; v < count; ++v)
    live[v] += live[v - 1];
  for (size_t v = 0; v < count; ++v)
    live[v] += int64_t(problem.nodes[v].workspace);
  live.pop_back();
  return live;
}

/// The range of prices at which schedules differ, from the cost per byte of recomputable outputs.
std::pair<double, double> priceRange(const RematProblem &problem) {
  double least = kNever, most = 0;
  for (const RematNode &node : problem.nodes)
    if (node.repeatable && node.bytes) {
      double ratio = double(node.cost + 1) / double(node.bytes);
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
  return {least / double(problem.nodes.size() + 1), most * 64};
}

double middle(double low, double high) {
  // The geometric mean by Newton's method, since the last bit of library functions differs between platforms.
  double product = low * high, root = (low + high) / 2;
  for (int i = 0; i < 60 && root > 0; ++i)
    root = (root + product / root) / 2;
  return root;
}

constexpr double kCrowded[] = {1.0, 0.9, 0.75, 0.5, 0.0};

} // namespace

RematSchedule scheduleByPrices(const RematProblem &problem, Bytes budget) {
  constexpr int kBisections = 12;
  Walk walk(problem);
  const std::vector<int64_t> live = liveOnce(problem);
  const auto [least, most] = priceRange(problem);
  RematSchedule best;
  Cost bestCost = 0;
  for (double share : kCrowded) {
    walk.setCrowded(live, share * double(budget));
    double low = least, high = most, sameTo = 0, sameFrom = kNever;
    for (int i = 0; i < kBisections && most > 0; ++i) {
      double price = i == 0 ? high : middle(low, high);
      if (price > sameFrom) { // same answer as for the last higher price
        high = price;
        continue;
      }
      if (price < sameTo) { // same answer as for the last lower price
        low = price;
        continue;
      }
      Walk::Answer answer = walk.schedule(price, i == 0 ? kNever : double(budget));
      if (answer.within && answer.schedule.empty()) { // price too high: too many recomputations
        high = price;
        sameFrom = answer.samePriceFrom;
        continue;
      }
      RematMeasure measured;
      if (answer.within)
        measured = measure(problem, answer.schedule);
      if (!answer.within || measured.peak > budget) {
        if (i == 0)
          break; // not even the highest price fits
        low = price;
        sameTo = answer.samePriceTo;
        continue;
      }
      high = price;
      sameFrom = answer.samePriceFrom;
      if (best.empty() || measured.cost < bestCost) {
        best = std::move(answer.schedule);
        bestCost = measured.cost;
      }
    }
  }
  if (!best.empty())
    takeBack(problem, best, budget);
  return best;
}

std::vector<RematSchedule> sweepPrices(const RematProblem &problem) {
  constexpr int kPrices = 24;
  Walk walk(problem);
  const std::vector<int64_t> live = liveOnce(problem);
  const auto [least, most] = priceRange(problem);
  std::vector<RematSchedule> found;
  const double highest = double(*std::max_element(live.begin(), live.end()));
  for (double share : {0.0, 0.25, 0.5, 0.75}) {
    walk.setCrowded(live, share * highest);
    double ratio = 1, sameFrom = kNever;
    for (int i = 0; i < kPrices && most > 0; ++i, ratio *= 2) {
      const double price = std::max(least, most / ratio);
      if (price > sameFrom)
        continue;
      Walk::Answer answer = walk.schedule(price);
      sameFrom = answer.samePriceFrom;
      if (!answer.schedule.empty() && (found.empty() || answer.schedule != found.back()))
        found.push_back(std::move(answer.schedule));
    }
  }
  return found;
}

const RematSchedule *leastOf(const RematProblem &problem, const std::vector<RematSchedule> &schedules) {
  const RematSchedule *best = nullptr;
  RematMeasure least;
  for (const RematSchedule &schedule : schedules) {
    RematMeasure measured = measure(problem, schedule);
    if (!best || measured.peak < least.peak || (measured.peak == least.peak && measured.cost < least.cost)) {
      best = &schedule;
      least = measured;
    }
  }
  return best;
}

} // namespace tcc::planning
