//===- RematBoundDual.cpp - dual of the relaxation ------------------------===//
//
// Any multipliers ≥ 0 of the rows give a bound: charge each row's violation at its multiplier and minimise what is left
// over the variables' bounds. Here only the rows that tie outputs to one another (an input at hand where a node is
// executed again, memory) are charged. What is left falls apart into one problem for each output, held or not over
// the intervals, and that is solved exactly, as a shortest path, in double precision with a bound of the rounding.
// With the costs left out, a positive bound proves that there is no solution at all.
//
// Good multipliers come from a primal-dual hybrid gradient method on the linear program, with diagonal steps, Halpern's
// averaging of reflected steps, restarts and an adapted balance of primal and dual steps (Applegate et al. 2021,
// "PDLP"; Lu and Yang 2024, "Restarted Halpern PDHG"). It never forms a matrix: rows of one edge of the graph lie side
// by side over the intervals, so that all loops run over dense arrays. Single precision is enough, as any multipliers
// are.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundDual.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::planning;

namespace {

size_t at(int index) { return static_cast<size_t>(index); }

using Floats = std::vector<float>;

class DualSolver {
public:
  explicit DualSolver(const RematModel &model);
  void run(uint64_t work, double enough, const std::function<bool()> &stop);
  RematDualBound best;

private:
  /// Where a value's memory counts: not during its own step, nor before the first milestone.
  static int firstCounted(const RematModel::Value &value) {
    return value.first + (value.ownStep || value.first == 0 ? 1 : 0);
  }
  void stepSizes();
  template <bool Measure> double iterate(float anchorShare);
  void rememberAnchor();
  void gradient();
  double balance() const;
  void evaluate();
  double bound(bool withCosts) const;

  const RematModel &model;
  double costScale = 1.0, bytesScale = 1.0;
  Floats cost, bytes, capacity;      // scaled
  Floats hold, redo, flow, tie, mem; // primal: hold, redo; dual: rows of one value over time, of edges, of memory
  Floats hold0, redo0, flow0, tie0, mem0;
  Floats holdX, redoX, holdG, redoG, used; // extrapolated; gradients (rows' multipliers times coefficients)
  Floats holdStep, redoStep, flowStep, tieStep, memStep;
  std::vector<size_t> tieOffset;
  float weight = 1.0f; // dual step ÷ primal step
};

DualSolver::DualSolver(const RematModel &model) : model(model) {
  size_t n = model.values.size();
  for (size_t node = 0; node < n; ++node) {
    if (model.values[node].last <= model.values[node].first)
      continue;
    costScale = std::max(costScale, model.cost[node]);
    bytesScale = std::max(bytesScale, model.bytes[node]);
  }
  for (size_t node = 0; node < n; ++node) {
    cost.push_back(static_cast<float>(model.cost[node] / costScale));
    bytes.push_back(static_cast<float>(model.bytes[node] / bytesScale));
  }
  for (double left : model.capacity)
    capacity.push_back(static_cast<float>(left / bytesScale));
  size_t rows = 0;
  for (auto [input, node] : model.edges) {
    tieOffset.push_back(rows);
    rows += at(model.values[at(node)].last - model.values[at(node)].first);
  }
  for (Floats *array : {&hold, &redo, &flow, &hold0, &redo0, &flow0, &holdX, &redoX, &holdG, &redoG, &holdStep,
                        &redoStep, &flowStep, &tieStep})
    array->assign(model.size(), 0.0f);
  for (Floats *array : {&tie, &tie0})
    array->assign(rows, 0.0f);
  for (Floats *array : {&mem, &mem0, &used, &memStep})
    array->assign(capacity.size(), 0.0f);
  hold = model.held;
  best.prices.assign(capacity.size(), 0.0);
  stepSizes();
}

/// Steps of Pock and Chambolle (2011): one over the sum of absolute coefficients of the column or row.
void DualSolver::stepSizes() {
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    for (int k = value.first; k <= value.last && value.last > value.first; ++k) {
      size_t here = value.offset + at(k - value.first);
      tieStep[here] = model.needed[here] != 0.0f ? 0.0f : 1.0f / 3.0f;
      flowStep[here] = k == value.first ? 0.0f : 1.0f / (3.0f - model.needed[here]);
      if (k >= firstCounted(value) && k <= model.stages) {
        holdStep[here] += bytes[node];
        memStep[at(k)] += bytes[node];
      }
      holdStep[here] += (k == value.first ? 0.0f : 1.0f - model.needed[here]) + (k < value.last ? 1.0f : 0.0f);
      redoStep[here] += 1.0f;
    }
  }
  for (auto [input, node] : model.edges) {
    const RematModel::Value &from = model.values[at(input)], &to = model.values[at(node)];
    for (int k = to.first + 1; k <= to.last; ++k) {
      size_t source = from.offset + at(k - from.first);
      if (tieStep[source] == 0.0f)
        continue; // the input is at hand in any case
      holdStep[source - 1] += 1.0f;
      redoStep[source] += 1.0f;
      redoStep[to.offset + at(k - to.first)] += 1.0f;
    }
  }
  for (Floats *steps : {&holdStep, &redoStep, &memStep})
    for (float &step : *steps)
      step = step > 0.0f ? 1.0f / step : 0.0f;
}

/// The product of the transposed matrix and the multipliers.
void DualSolver::gradient() {
  std::fill(holdG.begin(), holdG.end(), 0.0f);
  std::fill(redoG.begin(), redoG.end(), 0.0f);
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    for (int k = value.first; k <= value.last && value.last > value.first; ++k) {
      size_t here = value.offset + at(k - value.first);
      if (k > value.first) {
        holdG[here - 1] += flow[here];
        redoG[here] += flow[here];
        holdG[here] -= (1.0f - model.needed[here]) * flow[here];
      }
      if (k >= firstCounted(value) && k <= model.stages)
        holdG[here] -= bytes[node] * mem[at(k)];
    }
  }
  for (size_t edge = 0; edge < model.edges.size(); ++edge) {
    auto [input, node] = model.edges[edge];
    const RematModel::Value &from = model.values[at(input)], &to = model.values[at(node)];
    for (int k = to.first + 1; k <= to.last; ++k) {
      float price = tie[tieOffset[edge] + at(k - to.first - 1)];
      holdG[from.offset + at(k - 1 - from.first)] += price;
      redoG[from.offset + at(k - from.first)] += price;
      redoG[to.offset + at(k - to.first)] -= price;
    }
  }
}

void DualSolver::rememberAnchor() {
  hold0 = hold;
  redo0 = redo;
  flow0 = flow;
  tie0 = tie;
  mem0 = mem;
}

/// One reflected step, averaged with the anchor. Gives the squared length of the step, in the norm of the step sizes.
template <bool Measure> double DualSolver::iterate(float anchorShare) {
  const float keep = 1.0f - anchorShare, primal = 1.0f / weight, dual = weight;
  double moved = 0.0;
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    size_t size = at(value.last - value.first + 1), o = value.offset;
    float *__restrict h = &hold[o], *__restrict r = &redo[o], *__restrict hx = &holdX[o], *__restrict rx = &redoX[o];
    const float *__restrict hg = &holdG[o], *__restrict rg = &redoG[o], *__restrict h0 = &hold0[o];
    const float *__restrict r0 = &redo0[o], *__restrict hs = &holdStep[o], *__restrict rs = &redoStep[o];
    const float *__restrict low = &model.held[o], *__restrict high = &model.mayRedo[o];
    float price = cost[node];
    for (size_t k = 0; k < size; ++k) {
      float wantH = h[k] + primal * hs[k] * hg[k], wantR = r[k] + primal * rs[k] * (rg[k] - price);
      float newH = std::min(1.0f, std::max(low[k], wantH)), newR = std::min(high[k], std::max(0.0f, wantR));
      if constexpr (Measure) {
        if (hs[k] > 0.0f)
          moved += static_cast<double>(weight / hs[k] * (newH - h[k]) * (newH - h[k]));
        moved += static_cast<double>(weight / rs[k] * (newR - r[k]) * (newR - r[k]));
      }
      float reflectedH = 2.0f * newH - h[k], reflectedR = 2.0f * newR - r[k];
      hx[k] = reflectedH;
      rx[k] = reflectedR;
      h[k] = keep * reflectedH + anchorShare * h0[k];
      r[k] = keep * reflectedR + anchorShare * r0[k];
    }
  }
  std::fill(holdG.begin(), holdG.end(), 0.0f);
  std::fill(redoG.begin(), redoG.end(), 0.0f);
  std::fill(used.begin(), used.end(), 0.0f);

  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    int begin = firstCounted(value), end = std::min(value.last, model.stages);
    const float *__restrict hx = &holdX[value.offset + at(begin - value.first)];
    float *__restrict sum = &used[at(begin)];
    for (int k = 0; k <= end - begin; ++k)
      sum[k] += bytes[node] * hx[k];
  }
  for (size_t k = 1; k < mem.size(); ++k) {
    float wanted = std::max(0.0f, mem[k] + dual * memStep[k] * (used[k] - capacity[k]));
    if (Measure && memStep[k] > 0.0f)
      moved += static_cast<double>((wanted - mem[k]) * (wanted - mem[k]) / (weight * memStep[k]));
    mem[k] = keep * (2.0f * wanted - mem[k]) + anchorShare * mem0[k];
  }
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    size_t size = at(value.last - value.first + 1), o = value.offset;
    const float *__restrict hx = &holdX[o], *__restrict rx = &redoX[o], *__restrict need = &model.needed[o];
    const float *__restrict y0 = &flow0[o], *__restrict step = &flowStep[o];
    float *__restrict y = &flow[o], *__restrict hg = &holdG[o], *__restrict rg = &redoG[o];
    for (size_t k = 1; k < size; ++k) {
      float missing = need[k] + (1.0f - need[k]) * hx[k] - hx[k - 1] - rx[k];
      float wanted = std::max(0.0f, y[k] + dual * step[k] * missing);
      if constexpr (Measure)
        moved += static_cast<double>((wanted - y[k]) * (wanted - y[k]) / (weight * step[k]));
      y[k] = keep * (2.0f * wanted - y[k]) + anchorShare * y0[k];
      rg[k] = y[k];
    }
    for (size_t k = 1; k < size; ++k)
      hg[k - 1] += y[k];
    for (size_t k = 1; k < size; ++k)
      hg[k] -= (1.0f - need[k]) * y[k];
    int begin = firstCounted(value), end = std::min(value.last, model.stages);
    float *__restrict hm = hg + (begin - value.first);
    const float *__restrict price = &mem[at(begin)];
    for (int k = 0; k <= end - begin; ++k)
      hm[k] -= bytes[node] * price[k];
  }
  for (size_t edge = 0; edge < model.edges.size(); ++edge) {
    auto [input, node] = model.edges[edge];
    const RematModel::Value &from = model.values[at(input)], &to = model.values[at(node)];
    size_t size = at(to.last - to.first), source = from.offset + at(to.first + 1 - from.first);
    const float *__restrict hx = &holdX[source - 1], *__restrict rx = &redoX[source];
    const float *__restrict user = &redoX[to.offset + 1], *__restrict step = &tieStep[source];
    float *__restrict y = &tie[tieOffset[edge]], *__restrict hg = &holdG[source - 1], *__restrict rg = &redoG[source];
    float *__restrict ug = &redoG[to.offset + 1];
    const float *__restrict y0 = &tie0[tieOffset[edge]];
    for (size_t k = 0; k < size; ++k) {
      float wanted = std::max(0.0f, y[k] + dual * step[k] * (user[k] - hx[k] - rx[k]));
      if constexpr (Measure)
        moved += static_cast<double>((wanted - y[k]) * (wanted - y[k]) * 3.0f / weight);
      float next = keep * (2.0f * wanted - y[k]) + anchorShare * y0[k];
      y[k] = next;
      hg[k] += next;
      rg[k] += next;
      ug[k] -= next;
    }
  }
  return moved;
}

/// How far the dual moved since the anchor, over how far the primal did, in their steps' norms.
double DualSolver::balance() const {
  double primal = 0.0, dual = 0.0;
  auto add = [](double &sum, float now, float then, float step) {
    if (step > 0.0f)
      sum += static_cast<double>((now - then) * (now - then) / step);
  };
  for (size_t index = 0; index < hold.size(); ++index) {
    add(primal, hold[index], hold0[index], holdStep[index]);
    add(primal, redo[index], redo0[index], redoStep[index]);
    add(dual, flow[index], flow0[index], flowStep[index]);
  }
  for (size_t row = 0; row < tie.size(); ++row)
    add(dual, tie[row], tie0[row], 1.0f / 3.0f);
  for (size_t k = 0; k < mem.size(); ++k)
    add(dual, mem[k], mem0[k], memStep[k]);
  return primal > 0.0 && dual > 0.0 ? std::sqrt(dual / primal) : 0.0;
}

/// The bound that the multipliers of edges and memory give, or, without costs, whether it is positive.
double DualSolver::bound(bool withCosts) const {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> holdCost(hold.size(), 0.0), redoCost(hold.size(), 0.0);
  double sum = 0.0, size = 0.0; // of the terms' absolute values
  double count = 16.0;
  auto price = [](float multiplier) { return static_cast<double>(std::max(0.0f, multiplier)); };
  for (size_t edge = 0; edge < model.edges.size(); ++edge) {
    auto [input, node] = model.edges[edge];
    const RematModel::Value &from = model.values[at(input)], &to = model.values[at(node)];
    for (int k = to.first + 1; k <= to.last; ++k) {
      double charge = price(tie[tieOffset[edge] + at(k - to.first - 1)]) * costScale;
      holdCost[from.offset + at(k - 1 - from.first)] -= charge;
      redoCost[from.offset + at(k - from.first)] -= charge;
      redoCost[to.offset + at(k - to.first)] += charge;
      size += 3.0 * charge;
      count += 3.0;
    }
  }
  for (int k = 1; k <= model.stages; ++k) {
    double charge = price(mem[at(k)]) * costScale / bytesScale * model.capacity[at(k)];
    sum -= charge;
    size += std::abs(charge);
  }
  for (size_t node = 0; node < model.values.size(); ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    // Least cost up to here with the output held, and with it not held.
    double heldBest = 0.0, freeBest = 0.0;
    for (int k = value.first; k <= value.last; ++k) {
      size_t here = value.offset + at(k - value.first);
      double ofHold = holdCost[here], ofRedo = redoCost[here] + (withCosts ? model.cost[node] : 0.0);
      if (k >= firstCounted(value) && k <= model.stages) {
        double charge = price(mem[at(k)]) * costScale / bytesScale * model.bytes[node];
        ofHold += charge;
        size += charge;
      }
      size += withCosts ? model.cost[node] : 0.0;
      count += 8.0;
      if (k == value.first) {
        heldBest = ofHold;
        freeBest = model.held[here] != 0.0f ? infinity : 0.0;
        continue;
      }
      double forced = model.mayRedo[here] != 0.0f ? ofRedo : infinity;
      double chosen = model.mayRedo[here] != 0.0f ? std::min(0.0, ofRedo) : 0.0;
      double made = std::min(heldBest + chosen, freeBest + forced); // the output is there in the interval
      double absent = model.needed[here] != 0.0f ? made : std::min(made, freeBest + chosen);
      heldBest = made + ofHold;
      freeBest = model.held[here] != 0.0f ? infinity : absent;
    }
    sum += std::min(heldBest, freeBest); // infinite: needed where it can't be
  }
  return sum - 2.0 * count * std::numeric_limits<double>::epsilon() * size;
}

void DualSolver::evaluate() {
  double extra = bound(true);
  if (extra > best.extra) {
    best.extra = extra;
    for (size_t k = 1; k < mem.size(); ++k)
      best.prices[k] = static_cast<double>(std::max(0.0f, mem[k])) * costScale / bytesScale;
  }
  best.infeasible |= std::isinf(extra) || bound(false) > 0.0;
}

void DualSolver::run(uint64_t work, double enough, const std::function<bool()> &stop) {
  if (model.size() == 0 || model.stages == 0)
    return;
  uint64_t perIteration = 4 * hold.size() + 2 * tie.size() + 64;
  uint64_t iterations = work / perIteration;
  gradient();
  rememberAnchor();
  double first = 0.0, previous = 0.0;
  uint64_t sinceRestart = 0;
  constexpr uint64_t kCheck = 16;
  for (uint64_t iteration = 0; iteration < iterations; ++iteration) {
    float share = 1.0f / static_cast<float>(sinceRestart + 2);
    bool check = sinceRestart == 0 || sinceRestart % kCheck == 0;
    ++sinceRestart;
    if (!check) {
      iterate<false>(share);
      continue;
    }
    double moved = std::sqrt(iterate<true>(share));
    if (sinceRestart == 1) {
      first = previous = moved;
      continue;
    }
    bool restart = moved <= 0.2 * first || (moved <= 0.8 * first && moved > previous) ||
                   static_cast<double>(sinceRestart) >= 0.36 * static_cast<double>(iteration);
    previous = moved;
    if (!restart)
      continue;
    evaluate();
    if (best.infeasible || best.extra >= enough || (stop && stop()))
      return;
    if (double ratio = balance(); ratio > 1e-10 && ratio < 1e10)
      weight = static_cast<float>(std::sqrt(ratio * static_cast<double>(weight)));
    rememberAnchor();
    sinceRestart = 0;
  }
  evaluate();
}

} // namespace

RematDualBound tcc::planning::boundByDual(const RematModel &model, uint64_t work, double enough,
                                          const std::function<bool()> &stop) {
  DualSolver solver(model);
  solver.run(work, enough, stop);
  return std::move(solver.best);
}
