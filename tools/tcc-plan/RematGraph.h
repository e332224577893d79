//===- RematGraph.h - graphs of rematerialisation as files ------*- C++ -*-===//
#ifndef TCC_TOOLS_TCCPLAN_REMATGRAPH_H
#define TCC_TOOLS_TCCPLAN_REMATGRAPH_H

#include "compiler/planning/Rematerialization.h"
#include "support/Status.h"

namespace tcc::tools {

struct RematGraphFile {
  std::string name;
  planning::RematProblem problem;
  std::vector<bool> backward; ///< for each node: part of the backward pass, as the file says
};

/// Reads `{"format": 1, "name", "nodes": [{"name", "cost", "bytes", "backward"}], "edges": [[from, to]…]}`. An error
/// names the node or the edge.
Expected<RematGraphFile> readRematGraph(const std::string &path);

/// Checkpointing in segments (Chen et al. 2016): the forward nodes are cut into segments; of each, only the values that
/// later segments read are kept, and all others are recomputed when the backward pass first reads any of them. Segments
/// have equal numbers of nodes ("sqrt-n") or equal bytes ("greedy"); of all numbers of segments, the cheapest within
/// the budget is taken. Not feasible if none fits.
planning::RematSolution checkpointInSegments(const RematGraphFile &graph, planning::Bytes budget, bool byBytes);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCCPLAN_REMATGRAPH_H
