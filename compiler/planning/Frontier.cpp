//===- Frontier.cpp - the ladder of budgets of a program ------------------===//
#include "compiler/planning/Frontier.h"

#include "compiler/planning/RematSearch.h"
#include "compiler/planning/Scheduling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

namespace tcc::planning {

namespace {

PackingSolution packed(const Program &program, const Sequence &sequence, uint64_t work) {
  std::vector<int> bufferOf;
  return pack(packingOf(blocksOf(program, sequence), bufferOf), work);
}

/// Translates executions of nodes to executions of instructions. Consecutive nodes of one instruction become one
/// execution. Its first execution computes all results; without `firstTogether`, an instruction with partial executions
/// computes them one by one there, too.
Sequence sequenceOf(const Program &program, const RematSchedule &schedule, const std::vector<int> &nodeInstruction,
                    bool firstTogether) {
  Sequence sequence;
  std::vector<bool> nodeDone(nodeInstruction.size(), false), done(program.instructions.size(), false);
  for (int node : schedule) {
    int instruction = nodeInstruction[size_t(node)];
    bool first = !nodeDone[size_t(node)];
    nodeDone[size_t(node)] = true;
    bool isTogether = firstTogether || !program.instructions[size_t(std::max(instruction, 0))].partial;
    if (instruction < 0 || (first && done[size_t(instruction)] && isTogether) ||
        (!sequence.empty() && sequence.back() == instruction))
      continue;
    done[size_t(instruction)] = true;
    sequence.push_back(instruction);
  }
  return withoutDeadExecutions(program, sequence);
}

/// Calls `run` with 0 … count − 1, on as many threads as the machine has.
template <typename Run> void inParallel(size_t count, const Run &run) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < count;)
      run(i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(count, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
}

/// The same executions in an order of a smaller peak, or the sequence itself.
Sequence reordered(const Program &program, const Sequence &sequence, uint64_t work) {
  SchedulingOptions options;
  options.work = work;
  options.closePart = 8192; // packing loses more
  Sequence order = schedule(expand(program, sequence), options).order, result;
  for (int execution : order)
    result.push_back(sequence[size_t(execution)]);
  // In another order a copy may have no reader left.
  result = withoutDeadExecutions(program, result);
  return validate(program, result).empty() && peakOf(program, result) < peakOf(program, sequence) ? result : sequence;
}

/// A recomputation problem for one order of the program's instructions.
struct View {
  Sequence order; ///< instruction of the program at each place
  Program program;
  RematProblem problem;
  std::vector<int> nodeInstruction, nodeValue;
  std::vector<RematSchedule> byPrices;
  RematSolution least; ///< least memory that the solver reaches in this order

  View(const Program &whole, Sequence inThisOrder) : order(std::move(inThisOrder)), program(inOrder(whole, order)) {
    problem = rematProblemOf(program, nodeInstruction, &nodeValue);
  }
  void findLeast(const RematOptions &solver) {
    byPrices = sweepPrices(problem);
    least = leastMemory(problem, solver, byPrices);
  }
  Sequence sequence(const RematSchedule &schedule, bool firstTogether = true) const {
    Sequence result = sequenceOf(program, schedule, nodeInstruction, firstTogether);
    for (int &instruction : result)
      instruction = order[size_t(instruction)];
    return result;
  }
  /// A schedule with fetches, as a sequence of the offer; each value that is fetched is stored as soon as it is made.
  /// Nothing if it fetches a value that is not offered.
  std::optional<Sequence> sequence(const RematSchedule &schedule, const Offer &offer) const;
};

std::optional<Sequence> View::sequence(const RematSchedule &schedule, const Offer &offer) const {
  std::vector<int> numberOf(offer.program.values.size(), -1);
  for (size_t k = 0; k < offer.values.size(); ++k)
    numberOf[size_t(offer.values[k])] = int(k);
  std::vector<bool> isFetched(problem.nodes.size(), false);
  for (int entry : schedule)
    if (isFetch(entry))
      isFetched[size_t(nodeOfEntry(entry))] = true;
  Sequence result;
  std::vector<bool> nodeDone(problem.nodes.size(), false), done(program.instructions.size(), false);
  int latest = -1;
  for (int entry : schedule) {
    const size_t node = size_t(nodeOfEntry(entry));
    const int value = nodeValue[node];
    const int number = value < 0 ? -1 : numberOf[size_t(value)];
    if (isFetch(entry)) {
      if (number < 0)
        return std::nullopt;
      result.push_back(offer.fetchOf(size_t(number)));
      latest = -1;
      continue;
    }
    const int instruction = nodeInstruction[node];
    const bool first = !nodeDone[node];
    nodeDone[node] = true;
    if (instruction >= 0 && !(first && done[size_t(instruction)]) && latest != instruction) {
      done[size_t(instruction)] = true;
      latest = instruction;
      result.push_back(order[size_t(instruction)]);
    }
    if (first && isFetched[node]) {
      if (number < 0)
        return std::nullopt;
      result.push_back(offer.storeOf(size_t(number)));
    }
  }
  return withoutDeadExecutions(offer.program, result);
}

/// The instructions in the order of their first executions, each after the producers of all of its operands: a first
/// execution that makes only some results may precede them.
Sequence firstExecutions(const Program &program, const Sequence &sequence) {
  Sequence order;
  std::vector<bool> done(program.instructions.size(), false);
  std::function<void(int)> place = [&](int id) {
    if (done[size_t(id)])
      return;
    done[size_t(id)] = true;
    const ProgramInstruction &instruction = program.instructions[size_t(id)];
    for (int v : instruction.reads)
      if (int producer = program.values[size_t(v)].producer; producer >= 0)
        place(producer);
    for (int earlier : instruction.after)
      place(earlier);
    order.push_back(id);
  };
  for (int id : sequence)
    place(id);
  return order;
}

/// The program's order with cheap state updates moved to the end: readers of that state may be recomputed until it is
/// overwritten. The operands that this keeps alive are a small part of the peak.
Sequence withLateUpdates(const Program &program) {
  constexpr Bytes kPart = 256;
  const size_t count = program.instructions.size();
  Sequence order(count);
  std::iota(order.begin(), order.end(), 0);
  std::vector<bool> isNeeded(count, false); // by another instruction
  std::vector<size_t> lastReader(program.values.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    for (int earlier : program.instructions[i].after)
      isNeeded[size_t(earlier)] = true;
    for (int v : program.instructions[i].reads)
      lastReader[size_t(v)] = i;
  }
  std::vector<std::pair<Bytes, size_t>> updates; // bytes that each keeps alive
  for (size_t i = 0; i < count; ++i) {
    const ProgramInstruction &instruction = program.instructions[i];
    if (!instruction.writesState || !instruction.writes.empty() || isNeeded[i])
      continue;
    Bytes bytes = 0;
    for (int v : instruction.reads)
      if (lastReader[size_t(v)] == i)
        bytes += program.values[size_t(v)].bytes;
    updates.emplace_back(bytes, i);
  }
  std::sort(updates.begin(), updates.end());
  std::vector<bool> isLate(count, false);
  Bytes left = peakOf(program, order) / kPart;
  for (auto [bytes, i] : updates) {
    if (bytes > left)
      break;
    left -= bytes;
    isLate[i] = true;
  }
  std::stable_partition(order.begin(), order.end(), [&](int i) { return !isLate[size_t(i)]; });
  return order;
}

/// The peak without recomputation.
Bytes wholePeak(const RematProblem &problem) {
  RematSchedule once(problem.nodes.size());
  std::iota(once.begin(), once.end(), 0);
  return measure(problem, once).peak;
}

class Climb {
public:
  Climb(const Program &program, const FrontierOptions &options, Cost once) : program(program), options(options) {
    solver.work = options.work / (options.rungs + 1);
    if (options.extraTime)
      mostCost = Cost(double(once) * (1 + *options.extraTime));
    if (options.linkBytesPerCost)
      offer = offerTransfers(program, options.linkBytesPerCost);
  }

  std::vector<FrontierPoint> points, offloaded;
  std::string error;
  RematOptions solver;
  std::optional<Offer> offer; ///< where values may be kept on the host

  FrontierPoint pointOf(Sequence sequence, uint64_t packingWork) const {
    return pointOf(program, std::move(sequence), packingWork);
  }
  static FrontierPoint pointOf(const Program &program, Sequence sequence, uint64_t packingWork) {
    FrontierPoint made;
    made.peak = peakOf(program, sequence);
    made.packingWork = packingWork;
    made.packing = packed(program, sequence, packingWork);
    std::vector<int> bufferOf;
    made.host = pack(hostPackingOf(blocksOf(program, sequence), bufferOf), packingWork);
    made.bytes = made.packing.bytes;
    made.cost = costOf(program, sequence);
    made.sequence = std::move(sequence);
    return made;
  }

  /// Solves the budgets, given from most to least, in a view's order.
  void solve(const View &view, const std::vector<Bytes> &budgets);

  /// The sequence of the point with the smallest peak.
  Sequence smallest() const {
    return std::min_element(points.begin(), points.end(), [](const auto &a, const auto &b) { return a.peak < b.peak; })
        ->sequence;
  }

  /// Packs again, with more work, the points that could then be smaller than every point of no more cost.
  void refine();

  /// Adds each point with its transfers farther from the instructions that need them.
  void spreadPoints();

  /// Finds points that keep values on the host, in a view's order.
  void offload(const View &view);
  std::vector<Cost> transferExtras(const View &view, double price) const;

private:
  /// A sequence that may become a point.
  struct Candidate {
    Sequence sequence;
    Bytes peak;
    Cost cost;
  };
  Candidate candidateOf(Sequence sequence) const {
    const Bytes peak = peakOf(program, sequence);
    const Cost cost = costOf(program, sequence);
    return {std::move(sequence), peak, cost};
  }

  void repairFromMore(const View &view, Bytes budget, std::vector<RematSolution> &solved, size_t rung) const;

  /// Adds a solution as a sequence of the program. If computing results one by one gives a smaller peak than computing
  /// them together, that sequence is the candidate, and the other one goes to `asTheyAre`.
  void addCandidates(const View &view, const RematSolution &solution, std::vector<Candidate> &candidates,
                     std::vector<Candidate> &asTheyAre);

  /// Adds a copy of each candidate without its needless repeats. Keeps the candidate, too: its live ranges are shorter,
  /// so it may pack better.
  void addWithoutNeedlessRepeats(std::vector<Candidate> &candidates) const;

  /// Adds, after each candidate with `orderly[i]`, the same executions in an order of smaller peak, if one is found.
  std::vector<Candidate> withOtherOrders(std::vector<Candidate> candidates, const std::vector<bool> &orderly) const;
  /// Packs, with `work` each, the candidates that may still become points.
  std::vector<FrontierPoint> packPromising(const std::vector<Candidate> &candidates, uint64_t work) const;
  void add(std::vector<FrontierPoint> made) { std::move(made.begin(), made.end(), std::back_inserter(points)); }
  void sweep(const View &view, Cost above);
  /// With a limit on time, all costs within it count as equal, but not those of transfers: they fall with more memory.
  bool isNoDearer(Cost a, Cost b) const { return (options.extraTime && !hasTransfers(program)) || a <= b; }
  bool check(const Sequence &sequence) {
    std::string wrong = validate(program, sequence);
    if (!wrong.empty() && error.empty())
      error = "recomputation was scheduled wrongly: " + wrong;
    return wrong.empty();
  }

  const Program &program;
  const FrontierOptions &options;
  Cost mostCost = std::numeric_limits<Cost>::max();
  /// With a limit on time: budgets solved, and candidates packed, in parallel before the results prune the rest.
  static constexpr size_t kRungsAtOnce = 4;
};

void Climb::addCandidates(const View &view, const RematSolution &solution, std::vector<Candidate> &candidates,
                          std::vector<Candidate> &asTheyAre) {
  candidates.push_back(candidateOf(view.sequence(solution.schedule)));
  if (!check(candidates.back().sequence))
    return;
  // The schedule may save memory by computing the results of an instruction one by one.
  if (Sequence apart = view.sequence(solution.schedule, false); apart != candidates.back().sequence)
    if (Candidate other = candidateOf(std::move(apart)); other.peak < candidates.back().peak) {
      if (!check(other.sequence))
        return;
      asTheyAre.push_back(std::exchange(candidates.back(), std::move(other)));
    }
}

void Climb::solve(const View &view, const std::vector<Bytes> &budgets) {
  const size_t count = budgets.size();
  const bool all = !options.extraTime;
  std::vector<RematSolution> solved(count + 1); // the last element: the least budget's solution
  std::vector<Candidate> candidates, asTheyAre;
  // Bisection: the least budget within the limit on time is among [known, dear).
  size_t known = 0, dear = count;
  while (known < dear) {
    std::vector<size_t> rungs;
    const size_t most = all ? count : std::min(kRungsAtOnce, dear - known);
    for (size_t i = 1; i <= most; ++i)
      rungs.push_back(known + (dear - known) * i / most - 1);
    if (rungs.back() + 1 == count)
      rungs.push_back(count);
    // Rungs are solved independently, so the result does not depend on the number of threads.
    inParallel(rungs.size(), [&](size_t i) {
      solved[rungs[i]] = rungs[i] < count ? rematerialize(view.problem, budgets[rungs[i]], solver)
                                          : improve(view.problem, view.least.peak, view.least.schedule, solver);
    });
    size_t within = known;
    for (size_t rung : rungs) {
      if (rung < count)
        repairFromMore(view, budgets[rung], solved, rung);
      if (!solved[rung].feasible)
        continue;
      std::vector<Candidate> found;
      addCandidates(view, solved[rung], found, asTheyAre);
      if (!error.empty())
        return;
      if (!all)
        addWithoutNeedlessRepeats(found);
      if (rung < count &&
          std::any_of(found.begin(), found.end(), [&](const Candidate &made) { return made.cost <= mostCost; }))
        within = rung + 1;
      std::move(found.begin(), found.end(), std::back_inserter(candidates));
    }
    if (all)
      addWithoutNeedlessRepeats(candidates);
    known = all ? count : within;
    for (size_t rung : rungs)
      if (rung >= known && rung < dear) {
        dear = rung;
        break;
      }
  }
  // Look for other orders only of the candidates with the smaller peak.
  std::vector<bool> orderly(candidates.size(), true);
  std::move(asTheyAre.begin(), asTheyAre.end(), std::back_inserter(candidates));
  orderly.resize(candidates.size(), false);
  add(packPromising(withOtherOrders(std::move(candidates), orderly), options.packingWork));
  if (known < count)
    return;
  for (size_t rung = count; rung-- > 0;)
    if (solved[rung].feasible)
      return sweep(view, solved[rung].cost);
}

/// A repaired schedule for more memory is often better than one found from scratch.
void Climb::repairFromMore(const View &view, Bytes budget, std::vector<RematSolution> &solved, size_t rung) const {
  for (size_t more = rung; more-- > 0;) {
    const RematSolution &last = solved[more];
    if (!last.feasible)
      continue;
    RematSolution &own = solved[rung];
    if (!own.feasible || own.cost > last.cost + last.cost / 32)
      if (RematSolution repaired = repair(view.problem, budget, last.schedule);
          repaired.feasible && (!own.feasible || repaired.cost < own.cost))
        own = std::move(repaired);
    return;
  }
}

void Climb::addWithoutNeedlessRepeats(std::vector<Candidate> &candidates) const {
  std::vector<Candidate> fewer(candidates.size());
  inParallel(candidates.size(),
             [&](size_t i) { fewer[i] = candidateOf(withoutNeedlessRepeats(program, candidates[i].sequence)); });
  for (size_t i = 0; i < fewer.size(); ++i)
    if (fewer[i].cost < candidates[i].cost)
      candidates.push_back(std::move(fewer[i]));
}

std::vector<Climb::Candidate> Climb::withOtherOrders(std::vector<Candidate> candidates,
                                                     const std::vector<bool> &orderly) const {
  std::vector<std::vector<Candidate>> others(candidates.size());
  inParallel(candidates.size(), [&](size_t i) {
    if (!orderly[i] || candidates[i].cost > mostCost)
      return;
    if (Sequence other = reordered(program, candidates[i].sequence, options.schedulingWork);
        other != candidates[i].sequence)
      others[i].push_back(candidateOf(std::move(other)));
  });
  std::vector<Candidate> all;
  for (size_t i = 0; i < candidates.size(); ++i) {
    all.push_back(std::move(candidates[i]));
    std::move(others[i].begin(), others[i].end(), std::back_inserter(all));
  }
  return all;
}

/// A point rules out a candidate of no less cost whose peak is at least the point's packed size. So each round packs
/// the candidates that the fewest others would rule out if every packing had no gaps; few candidates remain after a
/// round.
std::vector<FrontierPoint> Climb::packPromising(const std::vector<Candidate> &candidates, uint64_t work) const {
  std::vector<FrontierPoint> made(candidates.size());
  std::vector<size_t> waiting, packedOnes;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].cost <= mostCost)
      waiting.push_back(i);
  while (!waiting.empty()) {
    std::erase_if(waiting, [&](size_t i) {
      auto rulesOut = [&](const FrontierPoint &point) {
        return isNoDearer(point.cost, candidates[i].cost) && point.bytes <= candidates[i].peak;
      };
      return std::any_of(points.begin(), points.end(), rulesOut) ||
             std::any_of(packedOnes.begin(), packedOnes.end(), [&](size_t other) { return rulesOut(made[other]); });
    });
    std::vector<size_t> now, later;
    for (size_t i : waiting) {
      auto comesFirst = [&](size_t other) {
        const Candidate &a = candidates[other], &b = candidates[i];
        return isNoDearer(a.cost, b.cost) && a.peak <= b.peak &&
               (!isNoDearer(b.cost, a.cost) || a.peak < b.peak || other < i);
      };
      const auto before = std::count_if(waiting.begin(), waiting.end(), comesFirst);
      (before < (options.extraTime ? long(kRungsAtOnce) : 1) ? now : later).push_back(i);
    }
    inParallel(now.size(), [&](size_t i) { made[now[i]] = pointOf(candidates[now[i]].sequence, work); });
    packedOnes.insert(packedOnes.end(), now.begin(), now.end());
    waiting = std::move(later);
  }
  // Back to the order of the candidates, independent of the rounds.
  std::sort(packedOnes.begin(), packedOnes.end());
  std::vector<FrontierPoint> result;
  for (size_t i : packedOnes)
    result.push_back(std::move(made[i]));
  return result;
}

/// A smaller peak does not always pack into a smaller arena, since long live ranges fragment it. At high prices of
/// memory all live ranges are short. So this function tries some schedules by prices that cost more than the least
/// budget's solution, and keeps those that pack smaller than any point of no more cost.
void Climb::sweep(const View &view, Cost above) {
  constexpr double kStep = 1.15; // from one cost to the next
  std::vector<std::pair<Cost, const RematSchedule *>> found;
  for (const RematSchedule &schedule : view.byPrices)
    if (Cost cost = measure(view.problem, schedule).cost; cost > above)
      found.emplace_back(cost, &schedule);
  std::stable_sort(found.begin(), found.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Candidate> candidates;
  double next = double(above) * 1.02;
  for (const auto &[cost, schedule] : found) {
    if (double(cost) < next && cost != found.back().first)
      continue;
    next = double(cost) * kStep;
    Candidate candidate = candidateOf(view.sequence(*schedule));
    if (Sequence apart = view.sequence(*schedule, false); apart != candidate.sequence)
      if (Candidate other = candidateOf(std::move(apart)); other.peak < candidate.peak)
        candidate = std::move(other);
    if (!check(candidate.sequence))
      return;
    candidates.push_back(std::move(candidate));
  }
  std::vector<Candidate> better;
  const std::vector<FrontierPoint> rough = packPromising(candidates, 0);
  for (size_t i = 0; i < rough.size(); ++i) {
    auto noWorse = [&](const FrontierPoint &other) {
      return other.cost <= rough[i].cost && other.bytes <= rough[i].bytes;
    };
    if (std::none_of(points.begin(), points.end(), noWorse) &&
        std::none_of(rough.begin(), rough.begin() + long(i), noWorse))
      better.push_back({rough[i].sequence, rough[i].peak, rough[i].cost});
  }
  const std::vector<bool> orderly(better.size(), true);
  add(packPromising(withOtherOrders(std::move(better), orderly), options.packingWork));
}

namespace {

/// Bytes that may be fetched ahead or wait to be stored, for sequences to choose from.
std::vector<std::optional<Bytes>> stagings(const Program &program, const Sequence &sequence) {
  const Bytes largest = largestTransfers(program, sequence);
  std::vector<std::optional<Bytes>> sizes;
  for (Bytes times : {1, 3, 6, 16})
    sizes.push_back(times * largest);
  sizes.push_back(std::nullopt);
  return sizes;
}

} // namespace

void Climb::spreadPoints() {
  if (!hasTransfers(program))
    return;
  std::vector<Candidate> candidates;
  for (const FrontierPoint &point : points)
    for (std::optional<Bytes> staging : stagings(program, point.sequence)) {
      Candidate candidate = candidateOf(spread(program, point.sequence, staging));
      if (!check(candidate.sequence))
        return;
      if (candidates.empty() || candidate.sequence != candidates.back().sequence)
        candidates.push_back(std::move(candidate));
    }
  add(packPromising(candidates, options.packingWork));
}

namespace {

/// Prices of a transfer, as shares of its time, between which `offload` looks, how many it tries, and the share of a
/// sequence's time that may be spent waiting before the price rises.
constexpr double kLeastPrice = 1.0 / 1024, kMostPrice = 1, kWaited = 0.01;
constexpr unsigned kPrices = 6;

/// The time of a sequence without its transfers.
Cost workOf(const Program &program, const Sequence &sequence) {
  Cost work = 0;
  const std::vector<Execution> executions = executionsOf(program, sequence);
  for (size_t at = 0; at < sequence.size(); ++at)
    if (program.instructions[size_t(sequence[at])].transfer == Transfer::None)
      work += executions[at].cost;
  return work;
}

} // namespace

/// What a transfer of each node's output costs beyond its price. It has time from the value's making to its last use.
/// Where that is short something waits for it; so of two values the one that has longer is moved. Values that are not
/// offered are not moved at all.
std::vector<Cost> Climb::transferExtras(const View &view, double price) const {
  const size_t count = view.problem.nodes.size();
  std::vector<Cost> extra(count, 0), start(count + 1, 0);
  std::vector<size_t> lastUse(count, 0);
  for (size_t node = 0; node < count; ++node) {
    start[node + 1] = start[node] + view.problem.nodes[node].cost;
    for (int input : view.problem.inputs[node])
      lastUse[size_t(input)] = node;
  }
  for (size_t node = 0; node < count; ++node) {
    const Cost transfer = transferCost(view.problem.nodes[node].bytes, options.linkBytesPerCost);
    const Cost idle = lastUse[node] > node ? start[lastUse[node]] - start[node + 1] : 0;
    const bool isOffered = std::binary_search(offer->values.begin(), offer->values.end(), view.nodeValue[node]);
    extra[node] = !isOffered            ? start.back() // dearer than everything else
                  : idle < 2 * transfer ? transfer
                                        : Cost(price * double(transfer) * (1 - double(idle) / double(start.back())));
  }
  return extra;
}

void Climb::offload(const View &view) {
  const unsigned rungs = std::max(options.rungs / 2, 1u);
  const Bytes most = wholePeak(view.problem);
  RematOptions lighter = solver; // together they take about as long as the ladder without a host
  lighter.work = solver.work / 4;
  auto problemAt = [&](double price) {
    RematProblem problem = view.problem;
    problem.linkBytesPerCost = std::max<Bytes>(1, Bytes(double(options.linkBytesPerCost) / price));
    const std::vector<Cost> extra = transferExtras(view, price);
    for (size_t node = 0; node < extra.size(); ++node)
      problem.nodes[node].transferExtra = extra[node];
    return problem;
  };
  const Bytes least = std::min(leastMemory(problemAt(kLeastPrice), lighter).peak, view.least.peak);
  std::vector<std::vector<Candidate>> found(rungs);
  std::vector<std::string> wrong(rungs);
  inParallel(rungs, [&](size_t rung) {
    const Bytes budget = most - Bytes(double(most - least) * double(rung + 1) / rungs);
    // What moving a byte is worth is not known beforehand: transfers beside other work cost nothing, until they fill
    // the channels. So the price rises while something waits for them, and falls while nothing does.
    double low = std::log2(kLeastPrice), high = std::log2(kMostPrice);
    for (unsigned turn = 0; turn < kPrices; ++turn) {
      const double price = turn == 0 ? low : (low + high) / 2;
      const RematSolution solved = rematerialize(problemAt(std::exp2(price)), budget, lighter);
      const std::optional<Sequence> tight = solved.feasible ? view.sequence(solved.schedule, *offer) : std::nullopt;
      if (!tight)
        return;
      if (std::none_of(tight->begin(), tight->end(), [&](int id) { return offer->has(id); })) {
        high = price;
        continue;
      }
      double waited = 1;
      for (std::optional<Bytes> staging : stagings(offer->program, *tight)) {
        Sequence made = withoutNeedlessRepeats(offer->program, spread(offer->program, *tight, staging));
        if (wrong[rung] = validate(offer->program, made); !wrong[rung].empty())
          return;
        const Bytes peak = peakOf(offer->program, made);
        const Cost cost = costOf(offer->program, made);
        waited = std::min(waited, 1 - double(workOf(offer->program, made)) / double(std::max<Cost>(cost, 1)));
        if (found[rung].empty() || made != found[rung].back().sequence)
          found[rung].push_back({std::move(made), peak, cost});
      }
      if (turn == 0 && waited < kWaited)
        return; // cheaper than cheap
      (waited < kWaited ? high : low) = price;
    }
  });
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!wrong[i].empty() && error.empty())
      error = "values were moved to the host wrongly: " + wrong[i];
    std::move(found[i].begin(), found[i].end(), std::back_inserter(candidates));
  }
  // Only candidates that may become points are packed: those that no point, nor another candidate, rules out by size.
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) {
    return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
  });
  std::vector<Candidate> kept;
  for (Candidate &candidate : candidates)
    if (std::none_of(points.begin(), points.end(),
                     [&](const FrontierPoint &point) {
                       return point.cost <= candidate.cost && point.bytes <= candidate.peak;
                     }) &&
        (kept.empty() || candidate.peak < kept.back().peak))
      kept.push_back(std::move(candidate));
  offloaded.resize(kept.size());
  inParallel(kept.size(), [&](size_t i) {
    offloaded[i] = pointOf(offer->program, std::move(kept[i].sequence), options.packingWork);
  });
}

void Climb::refine() {
  std::vector<size_t> promising;
  for (size_t i = 0; i < points.size(); ++i) {
    auto isBeaten = [&, &point = points[i]](const FrontierPoint &other) {
      return &other != &point && isNoDearer(other.cost, point.cost) && other.bytes <= point.peak;
    };
    if (points[i].bytes > points[i].peak && points[i].packingWork < options.refiningWork &&
        std::none_of(points.begin(), points.end(), isBeaten))
      promising.push_back(i);
  }
  inParallel(promising.size(), [&](size_t i) {
    FrontierPoint &point = points[promising[i]];
    if (PackingSolution better = packed(program, point.sequence, options.refiningWork); better.bytes < point.bytes) {
      point.bytes = better.bytes;
      point.packing = std::move(better);
      point.packingWork = options.refiningWork;
    }
  });
}

} // namespace

/// Why the facts of a point are not those of its sequence; empty: they are.
static std::string wrongFacts(const Program &program, const FrontierPoint &point) {
  if (std::string bad = validate(program, point.sequence); !bad.empty())
    return bad;
  if (Bytes peak = peakOf(program, point.sequence); peak != point.peak || peak > point.bytes)
    return "its sequence has " + std::to_string(peak) + " bytes live at once, not " + std::to_string(point.peak) +
           " that fit";
  const std::vector<Block> blocks = blocksOf(program, point.sequence);
  std::vector<int> bufferOf;
  if (std::string bad = validate(packingOf(blocks, bufferOf), point.packing);
      !bad.empty() || point.packing.bytes != point.bytes)
    return "it is packed wrongly: " + bad;
  if (std::string bad = validate(hostPackingOf(blocks, bufferOf), point.host); !bad.empty())
    return "it is packed wrongly on the host: " + bad;
  if (Cost cost = costOf(program, point.sequence); cost != point.cost)
    return "its sequence costs " + std::to_string(cost);
  if (point.lowerBound > point.cost)
    return "the lower bound of " + std::to_string(point.lowerBound) + " is above its cost of " +
           std::to_string(point.cost);
  return "";
}

static std::string validateOffloaded(const Program &program, const std::vector<FrontierPoint> &points) {
  for (const FrontierPoint &point : points)
    if (std::string bad = wrongFacts(program, point); !bad.empty())
      return "a point with values on the host: " + bad;
  return "";
}

Frontier frontier(const Program &program, const FrontierOptions &options) {
  Sequence once(program.instructions.size());
  std::iota(once.begin(), once.end(), 0);
  Climb climb(program, options, costOf(program, once));
  auto evenly = [](Bytes most, Bytes least, unsigned count) {
    std::vector<Bytes> budgets;
    for (unsigned rung = 1; rung < count; ++rung)
      budgets.push_back(least + Bytes(double(most - least) * (1 - double(rung) / count)));
    // Costs rise steeply near the least budget, so more budgets are tried there.
    for (unsigned part : {32, 64, 128})
      budgets.push_back(least + Bytes(double(most - least) / part));
    budgets.push_back(least);
    return budgets;
  };
  View given(program, withLateUpdates(program));
  const Bytes most = wholePeak(given.problem);
  climb.points.resize(1);
  inParallel(2, [&](size_t i) {
    if (i == 0)
      climb.points.front() = climb.pointOf(once, kPackingWork);
    else
      given.findLeast(climb.solver);
  });
  if (given.least.peak < most && options.rungs) {
    climb.solve(given, evenly(most, given.least.peak, options.rungs));
    // If another order of the same executions needs much less memory, solve a ladder of budgets for that order, too.
    Sequence smallest = climb.smallest();
    if (options.extraTime)
      // Sequences beyond the limit on time were not searched, but recomputation may be cheap in the order of one.
      if (Sequence least = reordered(program, withoutNeedlessRepeats(program, given.sequence(given.least.schedule)),
                                     options.schedulingWork);
          peakOf(program, least) < peakOf(program, smallest))
        smallest = std::move(least);
    if (peakOf(program, smallest) + (most - given.least.peak) / 8 < given.least.peak && climb.error.empty()) {
      View other(program, firstExecutions(program, smallest));
      other.findLeast(climb.solver);
      if (other.least.peak < given.least.peak) {
        unsigned count = unsigned(double(options.rungs) * double(given.least.peak - other.least.peak) /
                                  double(most - other.least.peak));
        climb.solve(other, evenly(given.least.peak, other.least.peak, std::max(count, 4u)));
      }
    }
  }
  climb.refine();
  if (climb.error.empty())
    climb.spreadPoints();
  if (climb.offer && options.rungs && climb.error.empty())
    climb.offload(given);
  Frontier result;
  result.error = climb.error;
  // Keep the Pareto front: by rising cost, each point smaller than all before it.
  std::stable_sort(climb.points.begin(), climb.points.end(), [](const FrontierPoint &a, const FrontierPoint &b) {
    return a.cost != b.cost ? a.cost < b.cost : a.bytes < b.bytes;
  });
  std::vector<FrontierPoint> &kept = result.points;
  for (FrontierPoint &candidate : climb.points)
    if (kept.empty() || candidate.bytes < kept.back().bytes)
      kept.push_back(std::move(candidate));

  // Points that keep values on the host, and that no other point rules out.
  auto rulesOut = [](const FrontierPoint &a, const FrontierPoint &b) {
    return a.cost <= b.cost && a.bytes <= b.bytes && a.host.bytes <= b.host.bytes;
  };
  std::stable_sort(climb.offloaded.begin(), climb.offloaded.end(), [](const FrontierPoint &a, const FrontierPoint &b) {
    return std::tuple(a.cost, a.bytes, a.host.bytes) < std::tuple(b.cost, b.bytes, b.host.bytes);
  });
  for (FrontierPoint &candidate : climb.offloaded) {
    auto isWorse = [&](const FrontierPoint &other) { return rulesOut(other, candidate); };
    if (std::none_of(kept.begin(), kept.end(), isWorse) &&
        std::none_of(result.offloaded.begin(), result.offloaded.end(), isWorse))
      result.offloaded.push_back(std::move(candidate));
  }

  // With transfers a step takes at least the time of its own work, and that of each channel. So it takes at least any
  // weighted mean of the two, which is a problem of recomputation with other costs: `work` of its own work's, the rest
  // of a fetch's. The stores' channel is left out, and so is a hundredth of the rest: sizes in the problem are rounded.
  const std::array<Cost, 3> channels = costsByChannel(program);
  const Cost least = *std::max_element(channels.begin(), channels.end());
  RematOptions bounding;
  bounding.work = options.boundWork / (kept.size() + result.offloaded.size());
  auto bound = [&](Bytes bytes, double work, Bytes linkBytesPerCost) {
    RematProblem problem = boundProblemOf(program);
    Cost sum = 0;
    for (RematNode &node : problem.nodes) {
      node.cost = Cost(double(node.cost) * work);
      sum += node.cost;
    }
    problem.linkBytesPerCost = linkBytesPerCost;
    const Cost extra = boundCost(problem, bytes, bounding).anyOrder;
    return extra > sum ? Cost(double(channels[size_t(Transfer::None)]) * work) + (extra - sum) : Cost(0);
  };
  inParallel(kept.size() + result.offloaded.size(), [&](size_t i) {
    FrontierPoint &point = i < kept.size() ? kept[i] : result.offloaded[i - kept.size()];
    point.lowerBound = least;
    if (!options.boundWork || i == 0 || hasTransfers(program))
      return;
    if (i < kept.size())
      point.lowerBound = std::max(least, bound(point.bytes, 1, 0));
    else
      for (double work : {0.5, 0.8})
        point.lowerBound =
            std::max(point.lowerBound,
                     bound(point.bytes, work, Bytes(double(options.linkBytesPerCost) / (1 - work) * 1.01) + 1));
  });
  // A lower bound for a larger budget also holds for a smaller one.
  for (std::vector<FrontierPoint> *list : {&kept, &result.offloaded})
    for (size_t i = 1; i < list->size(); ++i)
      if ((*list)[i].bytes <= (*list)[i - 1].bytes)
        (*list)[i].lowerBound = std::max((*list)[i].lowerBound, (*list)[i - 1].lowerBound);
  if (result.error.empty())
    result.error = validate(program, kept);
  if (result.error.empty() && climb.offer)
    result.error = validateOffloaded(climb.offer->program, result.offloaded);
  return result;
}

std::vector<Frontier> frontiers(const std::vector<const Program *> &programs, const FrontierOptions &options) {
  std::vector<Frontier> result(programs.size());
  inParallel(programs.size(), [&](size_t i) { result[i] = frontier(*programs[i], options); });
  return result;
}

std::string validate(const Program &program, const std::vector<FrontierPoint> &points) {
  if (points.empty())
    return "the ladder has no point";
  for (size_t i = 0; i < points.size(); ++i) {
    const FrontierPoint &point = points[i];
    auto wrong = [&](const std::string &what) {
      return "point " + std::to_string(i) + " (" + std::to_string(point.bytes) + " bytes, cost " +
             std::to_string(point.cost) + "): " + what;
    };
    if (std::string bad = wrongFacts(program, point); !bad.empty())
      return wrong(bad);
    if (i && (point.bytes >= points[i - 1].bytes || point.cost <= points[i - 1].cost))
      return wrong("the point before it is no larger and no cheaper");
  }
  return "";
}

} // namespace tcc::planning
