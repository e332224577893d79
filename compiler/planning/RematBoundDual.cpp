//===- RematBoundDual.cpp - dual of the relaxation ------------------------===//
//
// Any multipliers ≥ 0 of the rows give a bound: charge each row's violation at its multiplier and minimise the rest
// over the variables' bounds. All rows are charged except those that follow one output from interval to interval. The
// rest then separates into one problem for each output (held or not in each interval), which is solved exactly as a
// shortest path, in double precision with a bound of the rounding; a variable of a span is 0 or 1, whichever costs
// less. With all costs 0, a positive bound proves that there is no solution at all.
//
// Good multipliers come from a primal-dual hybrid gradient method on the linear program, with diagonal steps (Pock and
// Chambolle 2011), Halpern's averaging of reflected steps, restarts and an adapted balance of primal and dual steps
// (Applegate et al. 2021, "PDLP"; Lu and Yang 2024, "Restarted Halpern PDHG"). Single precision is enough, as any
// multipliers are.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundModel.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::planning;

namespace {

/// A linear program: minimise cost · x over 0 ≤ x ≤ 1 with rows ≥ their right-hand sides; bounds may fix x to 0 or 1.
struct Program {
  std::vector<float> cost, lower, upper;
  std::vector<size_t> begin{0}; ///< of each row in the coefficient arrays below
  std::vector<uint32_t> column;
  std::vector<float> coefficient;
  std::vector<double> exact; ///< the coefficients before rounding to single precision
  std::vector<float> least;
  std::vector<double> exactLeast;
  std::vector<bool> ofPath; ///< row follows one output: not charged in the bound
  std::vector<int> after;   ///< last milestone that the row constrains

  void term(size_t variable, double factor) {
    column.push_back(static_cast<uint32_t>(variable));
    coefficient.push_back(static_cast<float>(factor));
    exact.push_back(factor);
  }
  void endRow(double bound, int milestone, bool path = false) {
    after.push_back(milestone);
    begin.push_back(column.size());
    least.push_back(static_cast<float>(bound));
    exactLeast.push_back(bound);
    ofPath.push_back(path);
  }
  size_t rows() const { return least.size(); }
};

/// Multipliers of a program's rows, improved step by step.
class Multipliers {
public:
  /// Starts from variables and multipliers of a program with the same columns and a prefix of these rows.
  Multipliers(const Program &program, std::vector<float> variables, std::vector<float> multipliers);
  /// One reflected step, averaged with the anchor. With `Measure` returns its length in the norm of the step sizes.
  template <bool Measure> double iterate(float anchorShare);
  /// Moves the anchor here, and rebalances primal and dual steps by their movement since the last restart.
  void restart();
  std::vector<float> x, y;

private:
  void anchor() {
    x0 = x;
    y0 = y;
  }
  const Program &program;
  std::vector<float> x0, y0, reflected, gradient, primalStep, dualStep;
  float weight = 1.0f; // dual step ÷ primal step
};

Multipliers::Multipliers(const Program &program, std::vector<float> variables, std::vector<float> multipliers)
    : x(std::move(variables)), y(std::move(multipliers)), program(program), reflected(x.size(), 0.0f),
      gradient(x.size(), 0.0f), primalStep(x.size(), 0.0f), dualStep(program.rows(), 0.0f) {
  y.resize(program.rows(), 0.0f);
  for (size_t row = 0; row < y.size(); ++row)
    for (size_t entry = program.begin[row]; entry < program.begin[row + 1]; ++entry)
      gradient[program.column[entry]] += y[row] * program.coefficient[entry];
  for (size_t row = 0; row < y.size(); ++row)
    for (size_t entry = program.begin[row]; entry < program.begin[row + 1]; ++entry) {
      primalStep[program.column[entry]] += std::abs(program.coefficient[entry]);
      dualStep[row] += std::abs(program.coefficient[entry]);
    }
  for (std::vector<float> *steps : {&primalStep, &dualStep})
    for (float &step : *steps)
      step = step > 0.0f ? 1.0f / step : 0.0f;
  anchor();
}

template <bool Measure> double Multipliers::iterate(float anchorShare) {
  const float keep = 1.0f - anchorShare, primal = 1.0f / weight, dual = weight;
  double moved = 0.0;
  const float *lower = program.lower.data(), *upper = program.upper.data(), *cost = program.cost.data();
  for (size_t j = 0; j < x.size(); ++j) {
    float wanted = x[j] + primal * primalStep[j] * (gradient[j] - cost[j]);
    float next = std::min(upper[j], std::max(lower[j], wanted));
    if (Measure && primalStep[j] > 0.0f)
      moved += static_cast<double>(weight / primalStep[j] * (next - x[j]) * (next - x[j]));
    reflected[j] = 2.0f * next - x[j];
    x[j] = keep * reflected[j] + anchorShare * x0[j];
    gradient[j] = 0.0f;
  }
  const uint32_t *column = program.column.data();
  const float *coefficient = program.coefficient.data();
  for (size_t row = 0, entry = 0; row < y.size(); ++row) {
    size_t begin = entry, end = program.begin[row + 1];
    float missing = program.least[row];
    for (; entry < end; ++entry)
      missing -= coefficient[entry] * reflected[column[entry]];
    float next = std::max(0.0f, y[row] + dual * dualStep[row] * missing);
    if (Measure && dualStep[row] > 0.0f)
      moved += static_cast<double>((next - y[row]) * (next - y[row]) / (weight * dualStep[row]));
    float averaged = keep * (2.0f * next - y[row]) + anchorShare * y0[row];
    y[row] = averaged;
    if (averaged != 0.0f)
      for (entry = begin; entry < end; ++entry)
        gradient[column[entry]] += averaged * coefficient[entry];
  }
  return Measure ? std::sqrt(moved) : 0.0;
}

void Multipliers::restart() {
  auto distance = [](const std::vector<float> &a, const std::vector<float> &b, const std::vector<float> &steps) {
    double sum = 0.0;
    for (size_t index = 0; index < a.size(); ++index)
      if (steps[index] > 0.0f)
        sum += static_cast<double>((a[index] - b[index]) * (a[index] - b[index]) / steps[index]);
    return std::sqrt(sum);
  };
  double primal = distance(x, x0, primalStep), dual = distance(y, y0, dualStep);
  if (primal > 1e-10 && dual > 1e-10)
    weight = static_cast<float>(std::sqrt(dual / primal * static_cast<double>(weight)));
  anchor();
}

/// Shortest path of one output through the intervals: least cost if it is held during the last milestone, and if not.
struct HeldPath {
  double held = 0.0, free = 0.0;

  struct Interval {
    double made, absent; ///< cost if the output has to be available in the interval; if it need not be
  };
  Interval interval(double again, bool mayRedo) const {
    const double forced = mayRedo ? again : std::numeric_limits<double>::infinity();
    const double chosen = mayRedo ? std::min(0.0, again) : 0.0;
    const double made = std::min(held + chosen, free + forced);
    return {made, std::min(made, free + chosen)};
  }
  /// Extends the path through the interval and the milestone at its end.
  void pass(const Interval &interval, bool needed, double holding, bool mustHold) {
    held = interval.made + holding;
    free = mustHold ? std::numeric_limits<double>::infinity() : needed ? interval.made : interval.absent;
  }
};

class DualSolver {
public:
  explicit DualSolver(const RematModel &model);
  void run(uint64_t work, double enough, const std::function<bool()> &stop);
  RematPrefixBounds prefixes() const;
  RematDualBound best;

private:
  /// First milestone at which a value's memory counts: not its own step, nor before the first milestone.
  static int firstCounted(const RematModel::Value &value) {
    return value.first + (value.ownStep || value.first == 0 ? 1 : 0);
  }
  size_t hold(size_t node, int k) const { return model.values[node].offset + at(k - model.values[node].first); }
  size_t redo(size_t node, int k) const { return model.size() + hold(node, k); }
  void addColumns();
  void addRows();
  void addSpan(int p, int q);
  bool addCovers(const std::vector<float> &x);
  uint64_t improve(Multipliers &multipliers, uint64_t work, double enough, const std::function<bool()> &stop);
  void evaluate(const std::vector<float> &y);
  void charge(size_t row, float multiplier, std::vector<double> &reduced, double &sum, double &size) const;
  double bound(const std::vector<float> &y, bool withCosts) const;

  const RematModel &model;
  double costScale = 1.0, bytesScale = 1.0;
  Program program; // costs by `costScale`, rows of memory by `bytesScale`
  std::vector<size_t> memoryRow;
  std::vector<std::pair<int, size_t>> coverRows; ///< milestone, row
  std::vector<float> bestMultipliers;
};

DualSolver::DualSolver(const RematModel &model) : model(model) {
  for (size_t node = 0; node < model.values.size(); ++node)
    if (model.values[node].last > model.values[node].first) {
      costScale = std::max(costScale, model.cost[node]);
      bytesScale = std::max(bytesScale, model.bytes[node]);
    }
  best.prices.assign(model.capacity.size(), 0.0);
  addColumns();
  addRows();
  for (auto [p, q] : model.spans)
    addSpan(p, q);
}

void DualSolver::addColumns() {
  program.lower = model.held;
  program.upper.assign(model.size(), 1.0f);
  program.cost.assign(2 * model.size(), 0.0f);
  program.lower.resize(2 * model.size(), 0.0f);
  program.upper.insert(program.upper.end(), model.mayRedo.begin(), model.mayRedo.end());
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    for (int k = value.first; k <= value.last && value.last > value.first; ++k)
      program.cost[redo(node, k)] = static_cast<float>(model.cost[node] / costScale);
  }
}

void DualSolver::addRows() {
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    for (int k = value.first + 1; k <= value.last; ++k) {
      bool needed = model.needed[hold(node, k)] != 0.0f;
      program.term(hold(node, k - 1), 1.0);
      program.term(redo(node, k), 1.0);
      if (!needed)
        program.term(hold(node, k), -1.0);
      program.endRow(needed ? 1.0 : 0.0, k, true);
    }
  }
  for (auto [input, node] : model.edges) {
    const RematModel::Value &to = model.values[at(node)];
    for (int k = to.first + 1; k <= to.last; ++k) {
      if (model.needed[hold(at(input), k)] != 0.0f)
        continue; // available in any case
      program.term(hold(at(input), k - 1), 1.0);
      program.term(redo(at(input), k), 1.0);
      program.term(redo(at(node), k), -1.0);
      program.endRow(0.0, k - 1);
    }
  }
  memoryRow.push_back(0);
  for (int k = 1; k <= model.stages; ++k) {
    for (size_t node = 0; node < model.values.size(); ++node) {
      const RematModel::Value &value = model.values[node];
      if (value.last > value.first && firstCounted(value) <= k && k <= value.last && model.bytes[node] > 0.0)
        program.term(hold(node, k), -model.bytes[node] / bytesScale);
    }
    memoryRow.push_back(program.rows());
    program.endRow(-model.capacity[at(k)] / bytesScale, k);
  }
}

void DualSolver::addSpan(int p, int q) {
  size_t n = model.values.size(), none = SIZE_MAX;
  std::vector<size_t> span(n, none);
  std::vector<bool> needed(n, false);
  for (size_t node = 0; node < n; ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first || value.first > p || value.last <= p)
      continue;
    span[node] = program.cost.size();
    program.cost.push_back(0.0f);
    program.lower.push_back(0.0f);
    program.upper.push_back(1.0f);
    for (int k = p + 1; k <= std::min(q, value.last); ++k) {
      program.term(redo(node, k), 1.0);
      needed[node] = needed[node] || model.needed[hold(node, k)] != 0.0f;
    }
    program.term(span[node], -1.0);
    program.endRow(0.0, q);
    if (!needed[node] && (q > value.last || q > model.stages))
      continue;
    program.term(hold(node, p), 1.0);
    program.term(span[node], 1.0);
    if (!needed[node])
      program.term(hold(node, q), -1.0);
    program.endRow(needed[node] ? 1.0 : 0.0, q);
  }
  for (auto [input, node] : model.edges)
    if (span[at(node)] != none && !needed[at(input)]) {
      program.term(hold(at(input), p), 1.0);
      program.term(span[at(input)], 1.0);
      program.term(span[at(node)], -1.0);
      program.endRow(0.0, q);
    }
}

/// Charges a row: subtracts its coefficients from the reduced costs and adds its right-hand side to the bound, both
/// times the multiplier. `size` sums the terms' absolute values, for the rounding bound.
void DualSolver::charge(size_t row, float multiplier, std::vector<double> &reduced, double &sum, double &size) const {
  double price = static_cast<double>(multiplier) * costScale;
  for (size_t entry = program.begin[row]; entry < program.begin[row + 1]; ++entry) {
    reduced[program.column[entry]] -= price * program.exact[entry];
    size += std::abs(price * program.exact[entry]);
  }
  sum += price * program.exactLeast[row];
  size += std::abs(price * program.exactLeast[row]);
}

/// The bound that multipliers give. Without costs only its sign matters: positive proves infeasibility.
double DualSolver::bound(const std::vector<float> &y, bool withCosts) const {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> reduced(program.cost.size(), 0.0);
  double sum = 0.0, size = 0.0; // of the terms' absolute values
  for (size_t row = 0; row < program.rows(); ++row) {
    if (program.ofPath[row] || !(y[row] > 0.0f))
      continue;
    charge(row, y[row], reduced, sum, size);
  }
  for (size_t column = 2 * model.size(); column < reduced.size(); ++column)
    sum += std::min(0.0, reduced[column]);
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    HeldPath path{reduced[hold(node, value.first)], model.held[hold(node, value.first)] != 0.0f ? infinity : 0.0};
    for (int k = value.first + 1; k <= value.last; ++k) {
      const size_t here = hold(node, k);
      const double cost = withCosts ? model.cost[node] : 0.0;
      size += cost;
      path.pass(path.interval(reduced[redo(node, k)] + cost, model.mayRedo[here] != 0.0f), model.needed[here] != 0.0f,
                reduced[here], model.held[here] != 0.0f);
    }
    sum += std::min(path.held, path.free); // infinite: needed where it cannot be available
  }
  double operations = 4.0 * static_cast<double>(program.column.size() + program.cost.size()) + 64.0;
  return sum - operations * std::numeric_limits<double>::epsilon() * size;
}

/// Each prefix omits the rows that constrain later milestones, so it is a program of its own. The rows of an interval
/// depend on nothing after it, so one pass gives all prefixes.
RematPrefixBounds DualSolver::prefixes() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const size_t n = model.values.size();
  RematPrefixBounds result;
  result.milestones = model.milestones;
  std::vector<std::vector<size_t>> rowsAfter(at(model.stages) + 1);
  for (size_t row = 0; row < bestMultipliers.size(); ++row)
    if (!program.ofPath[row] && bestMultipliers[row] > 0.0f && program.after[row] <= model.stages)
      rowsAfter[at(program.after[row])].push_back(row);
  std::vector<double> reduced(program.cost.size(), 0.0);
  std::vector<HeldPath> paths(n);
  double charged = 0.0, size = 0.0; // of the terms' absolute values
  const double operations = 4.0 * static_cast<double>(program.column.size() + program.cost.size()) + 64.0;
  for (int m = 0; m <= model.stages; ++m) {
    for (size_t row : rowsAfter[at(m)]) {
      charge(row, bestMultipliers[row], reduced, charged, size);
    }
    RematPrefixBounds::Prefix prefix{charged, std::vector<double>(n, 0.0)};
    for (size_t node = 0; node < n; ++node) {
      const RematModel::Value &value = model.values[node];
      if (value.last <= value.first || value.first > m)
        continue;
      HeldPath &path = paths[node];
      if (value.first == m) {
        path = {reduced[hold(node, m)], model.held[hold(node, m)] != 0.0f ? infinity : 0.0};
      } else if (m <= value.last) {
        const size_t here = hold(node, m);
        path.pass(path.interval(reduced[redo(node, m)] + model.cost[node], model.mayRedo[here] != 0.0f),
                  model.needed[here] != 0.0f, reduced[here], model.held[here] != 0.0f);
      }
      size += model.cost[node];
      if (m >= value.last) {
        prefix.least += std::min(path.held, path.free);
        continue;
      }
      const HeldPath::Interval next =
          path.interval(reduced[redo(node, m + 1)] + model.cost[node], model.mayRedo[hold(node, m + 1)] != 0.0f);
      prefix.least += next.absent;
      prefix.rise[node] = next.made < infinity ? next.made - next.absent : infinity;
    }
    prefix.least -= operations * std::numeric_limits<double>::epsilon() * size;
    result.prefixes.push_back(std::move(prefix));
  }
  return result;
}

void DualSolver::evaluate(const std::vector<float> &y) {
  double extra = bound(y, true);
  if (extra > best.extra) {
    best.extra = extra;
    bestMultipliers = y;
    for (int k = 1; k <= model.stages; ++k)
      best.prices[at(k)] = static_cast<double>(std::max(0.0f, y[memoryRow[at(k)]])) * costScale / bytesScale;
    for (auto [k, row] : coverRows)
      best.prices[at(k)] += static_cast<double>(std::max(0.0f, y[row])) * costScale / bytesScale;
  }
  best.infeasible = best.infeasible || std::isinf(extra) || bound(y, false) > 0.0;
}

/// Adds rows that the fractional `x` violates, but no integer solution: take a set A of outputs such that the bytes of
/// all others exceed a milestone's capacity by D. Then Σ min(bytes, D) · (1 − hold) ≥ D over the others, whichever
/// outputs of A are held (Carr et al. 2000, "knapsack cover"). A contains the least held outputs, as many as violate
/// most.
bool DualSolver::addCovers(const std::vector<float> &x) {
  bool added = false;
  for (int k = 1; k <= model.stages; ++k) {
    std::vector<size_t> nodes;
    double total = 0.0;
    for (size_t node = 0; node < model.values.size(); ++node) {
      const RematModel::Value &value = model.values[node];
      if (value.last <= value.first || firstCounted(value) > k || k > value.last || model.bytes[node] <= 0.0)
        continue;
      nodes.push_back(node);
      total += model.bytes[node];
    }
    auto held = [&](size_t node) { return std::clamp(static_cast<double>(x[hold(node, k)]), 0.0, 1.0); };
    std::stable_sort(nodes.begin(), nodes.end(), [&](size_t a, size_t b) { return held(a) < held(b); });
    double worst = 0.02, chosen = 0.0;
    size_t begin = 0;
    for (size_t first = 0; first < nodes.size() && total > model.capacity[at(k)]; ++first) {
      double over = total - model.capacity[at(k)], sum = 0.0;
      for (size_t other = first; other < nodes.size(); ++other)
        sum += std::min(model.bytes[nodes[other]], over) * (1.0 - held(nodes[other]));
      if (1.0 - sum / over > worst) {
        worst = 1.0 - sum / over;
        chosen = over;
        begin = first;
      }
      total -= model.bytes[nodes[first]];
    }
    if (chosen <= 0.0)
      continue;
    double bytes = 0.0;
    for (size_t other = begin; other < nodes.size(); ++other) {
      double counted = std::min(model.bytes[nodes[other]], chosen);
      bytes += counted;
      program.term(hold(nodes[other], k), -counted / bytesScale);
    }
    program.endRow((chosen - bytes) / bytesScale, k);
    coverRows.emplace_back(k, program.rows() - 1);
    added = true;
  }
  return added;
}

void DualSolver::run(uint64_t work, double enough, const std::function<bool()> &stop) {
  if (model.size() == 0 || model.stages == 0)
    return;
  std::vector<float> x = program.lower, y;
  for (int round = 0; round < 4; ++round) {
    Multipliers multipliers(program, std::move(x), std::move(y));
    work -= improve(multipliers, round < 3 ? work / 2 : work, enough, stop);
    if (best.infeasible || best.extra >= enough || (stop && stop()))
      return;
    x = std::move(multipliers.x);
    y = std::move(multipliers.y);
    if (!addCovers(x))
      return;
  }
}

/// Returns the number of visits spent.
uint64_t DualSolver::improve(Multipliers &multipliers, uint64_t work, double enough,
                             const std::function<bool()> &stop) {
  uint64_t visits = program.column.size() + 2 * program.cost.size() + program.rows() + 64, iterations = work / visits;
  double start = 0.0, first = 0.0, previous = 0.0; // lengths of steps
  constexpr uint64_t kCheck = 16;
  uint64_t sinceRestart = 0, idle = 0;
  for (uint64_t iteration = 0; iteration < iterations; ++iteration) {
    float share = 1.0f / static_cast<float>(sinceRestart + 2);
    bool measured = sinceRestart % kCheck == 0;
    ++sinceRestart;
    if (!measured) {
      multipliers.iterate<false>(share);
      continue;
    }
    double moved = multipliers.iterate<true>(share);
    if (sinceRestart == 1) {
      first = previous = moved;
      start = std::max(start, moved);
      continue;
    }
    bool restart = moved <= 0.2 * first || (moved <= 0.8 * first && moved > previous) ||
                   static_cast<double>(sinceRestart) >= 0.36 * static_cast<double>(iteration);
    previous = moved;
    if (!restart)
      continue;
    double before = best.extra;
    evaluate(multipliers.y);
    idle = moved < 1e-4 * start && best.extra <= 1.00001 * before ? idle + 1 : 0;
    if (best.infeasible || best.extra >= enough || idle == 3 || (stop && stop()))
      return iteration * visits;
    multipliers.restart();
    sinceRestart = 0;
  }
  evaluate(multipliers.y);
  return iterations * visits;
}

} // namespace

RematDualBound tcc::planning::boundByDual(const RematModel &model, uint64_t work, double enough,
                                          const std::function<bool()> &stop) {
  DualSolver solver(model);
  solver.run(work, enough, stop);
  return std::move(solver.best);
}

RematPrefixBounds tcc::planning::boundPrefixes(RematModel model, uint64_t work, const std::function<bool()> &stop) {
  model.spans.clear();
  DualSolver solver(model);
  solver.run(work, std::numeric_limits<double>::infinity(), stop);
  return solver.prefixes();
}
