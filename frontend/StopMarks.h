//===- StopMarks.h - find the marks of stopped gradients --------*- C++ -*-===//
//
// Three marks stop gradients: an Identity that torch's newer exporter notes as aten.detach, a node StopGradient of
// domain `tcc`, and the recipe's model.stop_gradient. All become a note at the node (or graph input) that computes the
// value, which survives the inlining of functions; the importer reads it after it has imported the node. Stopped
// initializers, which have no node, are listed.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_STOPMARKS_H
#define TCC_FRONTEND_STOPMARKS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// The mark that makes a node of the file a stop: "aten.detach", "tcc::StopGradient"; empty if there is none.
std::string exportedStop(const onnx::NodeProto &node);

/// A stop in a prepared graph.
struct Stop {
  std::string node;   ///< name of the node or initializer
  std::string source; ///< its mark: "aten.detach", "tcc::StopGradient", "model.stop_gradient: GLOB"
};

class StopMarks {
public:
  /// `globs`: model.stop_gradient; `place`: "recipe.toml:3:1: ", for messages.
  StopMarks(const OnnxFile &file, const std::vector<std::string> &globs, const std::string &place);

  /// Before functions are inlined: removes the function tcc::StopGradient, turns its calls into Identity, and marks
  /// what the globs match. Error: a node StopGradient of another version or without one input and one output.
  Status mark(onnx::ModelProto &model);
  /// After functions are inlined: marks values that match by the names that inlining gave. Error: a glob without a
  /// match.
  Status finish(onnx::ModelProto &model);

  std::map<std::string, std::string> initializers; ///< by stopped initializer: its mark

private:
  template <typename Nodes> void markNodes(Nodes &nodes, const onnx::ModelProto &model);
  template <typename Nodes> Status convert(Nodes &nodes, bool &found);
  void markModel(onnx::ModelProto &model);
  void markGraph(onnx::GraphProto &graph, const onnx::ModelProto &model);
  /// The recipe's glob that matches a name of a node or value; null: none.
  const std::string *match(const std::string &name);

  const OnnxFile &file;
  std::vector<std::pair<std::string, bool>> globs; ///< each with whether it matched
  std::string place;
  std::set<std::string> names; ///< of all nodes and values, to suggest the nearest in errors
};

/// The mark of output `output` of a node of a prepared graph, or of an input of a graph inside a node; empty: none.
std::string stopOf(const onnx::NodeProto &node, int output);
std::string stopOf(const onnx::ValueInfoProto &input);

/// The marked nodes of a prepared graph, graphs inside nodes included.
std::vector<Stop> stopsIn(const onnx::GraphProto &graph);

/// Says why a file has no marks, and how to export it with marks. One line.
std::string missingStopsText(const OnnxFile &file);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_STOPMARKS_H
