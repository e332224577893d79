//===- SchedulingSearch.cpp - improve an order by cuts and windows --------===//
#include "compiler/planning/SchedulingSearch.h"

#include <algorithm>

namespace tcc::planning {

namespace {

/// Cuts that are tried in one part before it is split.
constexpr size_t kCutsPerPart = 24;
/// Most instructions for which precedence is stored as one bit per pair.
constexpr size_t kMostForPrecedence = 20000;

} // namespace

MeasuredOrder measured(const SchedulingGraph &graph, Sequence order) {
  MeasuredOrder result;
  result.order = std::move(order);
  LiveBytes memory(graph);
  result.peak = graph.entryBytes;
  for (int id : result.order) {
    result.live.push_back(memory.live());
    result.steps.push_back(memory.during(id));
    result.peak = std::max(result.peak, result.steps.back());
    result.average += double(result.steps.back());
    memory.run(id);
  }
  result.live.push_back(memory.live());
  if (!result.order.empty())
    result.average /= double(result.order.size());
  return result;
}

OrderSearch::OrderSearch(const SchedulingGraph &graph, const SchedulingOptions &options)
    : graph(graph), options(options), cuts(graph) {
  bound = std::max(graph.entryBytes, graph.exitBytes);
  bounds.assign(graph.size(), 0);
  if (graph.size() <= kMostForPrecedence) {
    bounds = stepBounds(graph, Precedence(graph));
    work += graph.size() * graph.size() / 8;
  }
  for (int64_t bytes : bounds)
    bound = std::max(bound, bytes);
}

bool OrderSearch::exhausted() const { return work >= options.work || (options.stop && options.stop()); }

MeasuredOrder OrderSearch::splitByCuts(MeasuredOrder current, bool early) {
  std::vector<Segment> parts{{0, graph.size()}};
  int64_t target = bound;
  auto peakOfPart = [&](Segment part) {
    return *std::max_element(current.steps.begin() + long(part.begin), current.steps.begin() + long(part.end));
  };
  while (!parts.empty() && !exhausted()) {
    Segment part = parts.back();
    parts.pop_back();
    if (part.begin == part.end || peakOfPart(part) <= target)
      continue;
    // Find the step that limits the part most: the one with the largest bound; of equal ones, the one with the most
    // memory in the current order.
    std::vector<size_t> candidates;
    for (size_t at = part.begin; at < part.end; ++at)
      if (current.steps[at] > target)
        candidates.push_back(at);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](size_t a, size_t b) { return current.steps[a] > current.steps[b]; });
    auto promising = std::max_element(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
      return bounds[size_t(current.order[a])] < bounds[size_t(current.order[b])];
    });
    std::rotate(candidates.begin(), promising, promising + 1);
    cuts.setOrder(current.order, current.live);
    int64_t least = -1;
    size_t limiting = part.begin;
    size_t stride = std::max<size_t>(1, candidates.size() / kCutsPerPart);
    for (size_t k = 0; k < candidates.size() && !exhausted(); k += k == 0 ? 1 : stride) {
      size_t at = candidates[k];
      if (k > 0 && current.steps[at] <= least)
        break;
      if (int64_t bytes = cuts.find(part, at, early, work); bytes > least) {
        least = bytes;
        limiting = at;
      }
    }
    if (part.begin == 0 && part.end == graph.size())
      bound = std::max(bound, least);
    target = std::max(target, least);
    if (least >= peakOfPart(part) || least < 0)
      continue;
    cuts.find(part, limiting, early, work);
    Sequence first, rest;
    const int middle = current.order[limiting];
    for (size_t at = part.begin; at < part.end; ++at)
      if (at != limiting)
        (cuts.runsBefore(at) ? first : rest).push_back(current.order[at]);
    Sequence order = current.order;
    size_t split = part.begin + first.size();
    std::copy(first.begin(), first.end(), order.begin() + long(part.begin));
    order[split] = middle;
    std::copy(rest.begin(), rest.end(), order.begin() + long(split) + 1);
    current = measured(graph, std::move(order));
    work += 8 * graph.size();
    Segment left{part.begin, split}, right{split + 1, part.end};
    bool rightFirst = right.begin < right.end && (left.begin == left.end || peakOfPart(right) > peakOfPart(left));
    parts.push_back(rightFirst ? left : right);
    parts.push_back(rightFirst ? right : left);
  }
  return current;
}

MeasuredOrder OrderSearch::solveWindows(MeasuredOrder current, size_t window, uint64_t workPerWindow) {
  window = std::min(window, graph.size());
  while (current.peak > bound && !exhausted()) {
    size_t at = size_t(std::max_element(current.steps.begin(), current.steps.end()) - current.steps.begin());
    if (current.steps.empty() || current.steps[at] < current.peak)
      return current; // the peak is at entry
    Segment segment;
    segment.begin = std::min(at - std::min(at, window / 2), graph.size() - window);
    segment.end = segment.begin + window;
    const bool whole = window == graph.size();
    Sequence order = current.order;
    WithinLimit result = orderWithin(graph, order, segment, current.peak - 1, !whole, workPerWindow, work);
    if (result == WithinLimit::Impossible && whole)
      bound = current.peak;
    if (result != WithinLimit::Found)
      return current;
    current = measured(graph, std::move(order));
    work += 8 * graph.size();
  }
  return current;
}

MeasuredOrder OrderSearch::solveCoarsely(MeasuredOrder best, int64_t part, uint64_t mostWork) {
  SchedulingGraph coarse = graph.withoutSmallValues(best.peak / part);
  MeasuredOrder current = measured(coarse, best.order);
  const uint64_t end = work + mostWork;
  while (best.peak > bound && current.peak > bound && work < end && !exhausted()) {
    Sequence order = current.order;
    WithinLimit result = orderWithin(coarse, order, {0, graph.size()}, current.peak - 1, false, end - work, work);
    if (result == WithinLimit::Impossible)
      bound = std::max(bound, current.peak);
    if (result != WithinLimit::Found)
      break;
    current = measured(coarse, order);
    MeasuredOrder fine = measured(graph, std::move(order));
    work += 16 * graph.size();
    if (fine.betterThan(best))
      best = std::move(fine);
  }
  return best;
}

} // namespace tcc::planning
