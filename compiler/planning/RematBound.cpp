//===- RematBound.cpp - lower bounds of recomputation -----------*- C++ -*-===//
//
// What no schedule within a budget goes below.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Rematerialization.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::planning;

/// Bytes that live during every execution of a node. An input whose memory the output takes over counts once.
static Bytes bytesOfStep(const RematProblem &problem, size_t node) {
  const RematNode &self = problem.nodes[node];
  Bytes bytes = self.bytes + self.workspace;
  for (int input : problem.inputs[node])
    bytes += problem.nodes[static_cast<size_t>(input)].bytes;
  if (self.overwrites >= 0)
    bytes -= std::min(self.bytes, problem.nodes[static_cast<size_t>(self.overwrites)].bytes);
  return bytes;
}

Bytes tcc::planning::boundPeak(const RematProblem &problem) {
  Bytes bound = 0, atExit = 0;
  for (size_t node = 0; node < problem.nodes.size(); ++node) {
    bound = std::max(bound, bytesOfStep(problem, node));
    if (problem.nodes[node].liveAtExit)
      atExit += problem.nodes[node].bytes; // all of them live during the last step
  }
  return std::max(bound, atExit);
}

RematBound tcc::planning::boundCost(const RematProblem &problem, Bytes budget, const RematOptions &) {
  RematBound bound;
  for (const RematNode &node : problem.nodes)
    bound.givenOrder += node.cost;
  bound.anyOrder = bound.givenOrder;
  bound.infeasible = boundPeak(problem) > budget;
  bound.memoryPrices.assign(problem.nodes.size(), 0.0);
  return bound;
}
