//===- SchedulingBound.cpp - lower bounds of the peak of any order --------===//
#include "compiler/planning/SchedulingBound.h"

#include <algorithm>
#include <bit>

namespace tcc::planning {

Precedence::Precedence(const SchedulingGraph &graph) : words((graph.size() + 63) / 64) {
  ancestors.assign(graph.size() * words, 0);
  descendants.assign(graph.size() * words, 0);
  auto join = [&](std::vector<uint64_t> &sets, int to, int from) {
    uint64_t *into = &sets[size_t(to) * words];
    const uint64_t *with = &sets[size_t(from) * words];
    for (size_t w = 0; w < words; ++w)
      into[w] |= with[w];
    into[size_t(from) / 64] |= uint64_t(1) << (from % 64);
  };
  for (int i : graph.given)
    for (int earlier : graph.nodes[size_t(i)].before)
      join(ancestors, i, earlier);
  for (size_t at = graph.given.size(); at-- > 0;)
    for (int later : graph.nodes[size_t(graph.given[at])].after)
      join(descendants, graph.given[at], later);
}

namespace {

/// An upper bound of the bytes that results of `node` save by taking over operands' memory. `lives(read)`: the operand
/// surely does not die there.
template <typename Lives> int64_t mostTakenOver(const SchedulingGraph &graph, int node, Lives lives) {
  std::vector<int> from, to;
  for (auto [read, written] : graph.nodes[size_t(node)].inPlace)
    if (!lives(read)) {
      from.push_back(read);
      to.push_back(written);
    }
  auto total = [&](std::vector<int> &list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    int64_t bytes = 0;
    for (int v : list)
      bytes += graph.values[size_t(v)].bytes;
    return bytes;
  };
  return std::min(total(from), total(to));
}

} // namespace

std::vector<int64_t> stepBounds(const SchedulingGraph &graph, const Precedence &precedence) {
  const size_t words = precedence.wordCount();
  std::vector<int64_t> bounds(graph.size(), 0);
  int64_t always = 0;
  std::vector<uint64_t> during(words);
  for (const SchedulingGraph::Value &value : graph.values) {
    if (value.producer < 0 && value.atExit) {
      always += value.bytes;
      continue;
    }
    if (!value.outlives())
      continue;
    std::fill(during.begin(), during.end(), value.atExit ? ~uint64_t(0) : 0);
    if (!value.atExit)
      for (int reader : value.readers) {
        const uint64_t *before = precedence.before(reader);
        for (size_t w = 0; w < words; ++w)
          during[w] |= before[w];
        during[size_t(reader) / 64] |= uint64_t(1) << (reader % 64);
      }
    if (value.producer >= 0) {
      const uint64_t *after = precedence.after(value.producer);
      for (size_t w = 0; w < words; ++w)
        during[w] &= after[w];
    }
    for (size_t w = 0; w < words; ++w)
      for (uint64_t bits = during[w]; bits; bits &= bits - 1)
        if (size_t i = w * 64 + size_t(std::countr_zero(bits)); i < bounds.size())
          bounds[i] += value.bytes;
  }
  for (size_t i = 0; i < bounds.size(); ++i) {
    const SchedulingGraph::Node &node = graph.nodes[i];
    bounds[i] += always + node.workspace;
    for (int v : node.writes)
      bounds[i] += graph.values[size_t(v)].bytes;
    bounds[i] -= mostTakenOver(graph, int(i), [&](int read) {
      const std::vector<int> &readers = graph.values[size_t(read)].readers;
      return std::any_of(readers.begin(), readers.end(),
                         [&](int reader) { return precedence.comesBefore(int(i), reader); });
    });
  }
  return bounds;
}

LeastSteps::LeastSteps(const SchedulingGraph &graph) : graph(graph) {
  positionOf.resize(graph.size());
  before.resize(graph.size());
  place.resize(graph.size());
  seen.assign(graph.values.size(), 0);
}

void LeastSteps::setOrder(const Sequence &newOrder, const std::vector<int64_t> &newLiveBefore) {
  order = &newOrder;
  liveBefore = &newLiveBefore;
  for (size_t position = 0; position < newOrder.size(); ++position)
    positionOf[size_t(newOrder[position])] = position;
}

int64_t LeastSteps::find(Segment segment, size_t position, bool early, uint64_t &work) {
  constexpr int64_t kAlways = FlowNetwork::kUnlimited;
  enum : int { kFree = -1, kSource = 0, kSink = 1 };
  network.clear();
  network.addNode();
  network.addNode();
  auto nodeAt = [&](size_t at) -> const SchedulingGraph::Node & { return graph.nodes[size_t((*order)[at])]; };
  std::fill(place.begin() + long(segment.begin), place.begin() + long(segment.end), int(kFree));
  // Ancestors have run before this step; descendants and the instruction itself have not.
  auto mark = [&](const std::vector<int> &list, int side) {
    for (int other : list)
      if (size_t at = positionOf[size_t(other)]; at >= segment.begin && at < segment.end)
        place[at] = side;
    work += list.size();
  };
  mark(nodeAt(position).before, kSource);
  for (size_t at = position; at-- > segment.begin;)
    if (place[at] == kSource)
      mark(nodeAt(at).before, kSource);
  place[position] = kSink;
  for (size_t at = position; at < segment.end; ++at)
    if (place[at] == kSink)
      mark(nodeAt(at).after, kSink);
  for (size_t at = segment.begin; at < segment.end; ++at)
    if (place[at] == kFree)
      place[at] = network.addNode();
  work += segment.end - segment.begin;
  auto placeOf = [&](int instruction) {
    size_t at = positionOf[size_t(instruction)];
    return at < segment.begin ? int(kSource) : at >= segment.end ? int(kSink) : place[at];
  };
  for (size_t at = segment.begin; at < segment.end; ++at)
    if (place[at] > kSink)
      for (int earlier : nodeAt(at).before)
        if (int from = placeOf(earlier); from > kSink)
          network.addEdge(place[at], from, kAlways);

  int64_t bytes = (*liveBefore)[segment.begin];
  // Charges `amount` if the producer is on the source side of the cut and some reader is not.
  auto payWhereCut = [&](int from, const std::vector<int> &readers, bool toTheEnd, int64_t amount, int except) {
    work += readers.size();
    bool open = false;
    for (int reader : readers)
      if (reader != except) {
        int to = placeOf(reader);
        toTheEnd |= to == kSink;
        open |= to != kSource;
      }
    if (from == kSink || (!toTheEnd && !open))
      return;
    if (from == kSource && toTheEnd) {
      bytes += amount;
    } else if (toTheEnd) {
      network.addEdge(from, kSink, amount);
    } else {
      int cut = network.addNode();
      network.addEdge(from, cut, amount);
      for (int reader : readers)
        if (int to = placeOf(reader); reader != except && to > kSink)
          network.addEdge(cut, to, kAlways);
    }
  };
  ++question;
  auto touch = [&](int v) {
    if (seen[size_t(v)] == question)
      return;
    seen[size_t(v)] = question;
    const SchedulingGraph::Value &value = graph.values[size_t(v)];
    if (!value.outlives())
      return;
    int from = value.producer < 0 ? int(kSource) : placeOf(value.producer);
    // Live before the segment: counted already, unless it dies.
    if (value.producer < 0 || positionOf[size_t(value.producer)] < segment.begin)
      bytes -= value.bytes;
    payWhereCut(from, value.readers, value.atExit, value.bytes, -1);
  };
  for (size_t at = segment.begin; at < segment.end; ++at) {
    for (int v : nodeAt(at).reads)
      touch(v);
    for (int v : nodeAt(at).writes)
      touch(v);
  }
  // The step itself. A result takes no memory if an operand whose memory it may take over dies, which it does once its
  // other readers have run. With a choice of operands the result is not charged; if several results may take one
  // operand's memory, each counts as if it did.
  const SchedulingGraph::Node &own = nodeAt(position);
  const int self = (*order)[position];
  bytes += own.workspace;
  for (int v : own.writes) {
    int read = -1, pairs = 0;
    for (auto [from, to] : own.inPlace)
      if (to == v) {
        read = from;
        ++pairs;
      }
    const int64_t size = graph.values[size_t(v)].bytes;
    // The producer is on the sink side, so a result that outlives its step is not counted yet.
    if (pairs == 0)
      bytes += size;
    else if (pairs == 1)
      payWhereCut(kSource, graph.values[size_t(read)].readers, false, size, self);
  }
  bytes += network.solve(kSource, kSink, &work);
  std::vector<bool> late;
  if (!early)
    late = network.reachingSink(kSink, &work);
  for (size_t at = segment.begin; at < segment.end; ++at)
    before[at] = place[at] == kSource ||
                 (place[at] > kSink && (early ? network.reachedFromSource(place[at]) : !late[size_t(place[at])]));
  return bytes;
}

} // namespace tcc::planning
