//===- KernelOrder.cpp - a topological order kept up to date --------------===//
#include "passes/fusion/KernelOrder.h"

#include <queue>

using namespace mlir;

namespace tcc::train {

namespace {

/// Edges that one search looks at before it gives up. Ordinary models need a few dozen; programs with thousands of
/// readers of one value must not pay for each pair of them.
constexpr unsigned kMostEdges = 10'000;
/// Space between neighbours, so that nodes can move without the others getting new labels.
constexpr uint64_t kGap = uint64_t(1) << 32;

} // namespace

KernelOrder::KernelOrder(Block &block, const llvm::DenseMap<Operation *, KernelGroup *> &groupOf) : groupOf(groupOf) {
  llvm::DenseMap<const KernelGroup *, Operation *> lastOf;
  for (Operation &op : block)
    if (KernelGroup *group = groupOf.lookup(&op))
      lastOf[group] = &op;
  nodes.emplace_back();
  // A group has the position of its last op: no op between its ops reads the others.
  for (Operation &op : block) {
    KernelGroup *group = groupOf.lookup(&op);
    if (group && lastOf[group] != &op)
      continue;
    Node node;
    node.group = group;
    node.op = &op;
    node.before = unsigned(nodes.size()) - 1;
    nodes.back().after = unsigned(nodes.size());
    (group ? nodeOfGroup[group] : nodeOfOp[&op]) = unsigned(nodes.size());
    nodes.push_back(node);
  }
  nodes.back().after = 0;
  relabel();
}

unsigned KernelOrder::nodeOf(Operation *op) const {
  if (KernelGroup *group = groupOf.lookup(op))
    return nodeOfGroup.lookup(group);
  return nodeOfOp.lookup(op);
}

void KernelOrder::relabel() {
  uint64_t label = 0;
  unsigned node = 0;
  do {
    nodes[node].label = label;
    label += kGap;
    node = nodes[node].after;
  } while (node);
}

bool KernelOrder::pathBetween(const KernelGroup &a, const KernelGroup &b) {
  unsigned first = nodeOfGroup.lookup(&a), last = nodeOfGroup.lookup(&b);
  if (isBefore(last, first))
    std::swap(first, last);
  reached.clear();
  ++searches;
  unsigned edges = 0;
  // Latest first: most paths take the last edge that leads from the forward to the backward pass around the loss.
  std::priority_queue<std::pair<uint64_t, unsigned>> work;
  bool found = false;
  auto leave = [&](unsigned from) {
    auto visit = [&](Operation *op) {
      for (Operation *user : op->getUsers()) {
        if (++edges > kMostEdges)
          found = true;
        unsigned next = nodeOf(user);
        if (next == last)
          found |= from != first;
        else if (next != from && isBefore(next, last) && nodes[next].seen != searches) {
          nodes[next].seen = searches;
          reached.push_back(next);
          work.push({nodes[next].label, next});
        }
        if (found)
          return;
      }
    };
    if (!nodes[from].group)
      return visit(nodes[from].op);
    for (Operation *op : nodes[from].group->ops) {
      visit(op);
      if (found)
        return;
    }
  };
  leave(first);
  while (!work.empty() && !found) {
    unsigned next = work.top().second;
    work.pop();
    leave(next);
  }
  return found;
}

void KernelOrder::unlink(unsigned node) {
  nodes[nodes[node].before].after = nodes[node].after;
  if (nodes[node].after)
    nodes[nodes[node].after].before = nodes[node].before;
}

void KernelOrder::insertAfter(unsigned place, ArrayRef<unsigned> moved) {
  if (moved.empty())
    return;
  unsigned behind = nodes[place].after;
  uint64_t space = behind ? nodes[behind].label - nodes[place].label : (moved.size() + 1) * kGap;
  const uint64_t step = space / (moved.size() + 1);
  unsigned before = place;
  for (unsigned node : moved) {
    nodes[node].before = before;
    nodes[before].after = node;
    nodes[node].label = nodes[before].label + step;
    before = node;
  }
  nodes[before].after = behind;
  if (behind)
    nodes[behind].before = before;
  if (step == 0)
    relabel();
}

void KernelOrder::merge(const KernelGroup &from, const KernelGroup &to) {
  unsigned kept = nodeOfGroup.lookup(&to), other = nodeOfGroup.lookup(&from);
  // Nodes that the earlier one reaches move behind the later one, in the same order.
  std::sort(reached.begin(), reached.end(), [&](unsigned a, unsigned b) { return isBefore(a, b); });
  for (unsigned node : reached)
    unlink(node);
  insertAfter(isBefore(kept, other) ? other : kept, reached);
  reached.clear();
  if (isBefore(kept, other)) {
    unlink(kept);
    insertAfter(other, kept);
  }
  unlink(other);
  nodeOfGroup.erase(&from);
}

} // namespace tcc::train
