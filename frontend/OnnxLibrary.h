//===- OnnxLibrary.h - checker, inliner and shape inference of ONNX --*- C++ -*-===//
//
// Runs checker, function inliner and shape inference of the ONNX library, in that order; exceptions and crashes become
// errors with a place. The version converter is not used: it is wrong for some pairs of versions, so the importer has
// its own table for every opset.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_ONNXLIBRARY_H
#define TCC_FRONTEND_ONNXLIBRARY_H

#include "frontend/OnnxFile.h"
#include "frontend/StopMarks.h"

#include <functional>

namespace onnx {
class OpSchema;
}

namespace tcc::frontend {

/// Operator sets of the default domain that the importer reads.
constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;

/// An op that cannot be imported.
struct UnsupportedOp {
  std::string node, op, domain;
  int64_t opset = 0;
  std::string help; ///< what would help
};

struct PrepareOptions {
  std::map<std::string, int64_t> dims;                ///< symbolic dimensions
  std::map<std::string, std::vector<int64_t>> shapes; ///< whole shapes of inputs
  std::string dimsPlace;                              ///< "recipe.toml: " or empty, for messages
  std::vector<std::string> stopGradient;              ///< globs of model.stop_gradient
  std::string stopPlace;                              ///< "recipe.toml:3:1: " or empty, for messages
  bool requireBound = true;                           ///< unbound dimensions are an error
  bool isolate = true;                                ///< calls the ONNX library in child processes (Isolation.h)
  /// True if the importer's table has this op at this version of its domain.
  std::function<bool(const std::string &domain, const std::string &op, int64_t version)> knows;
  std::map<std::string, int64_t> batchAxis; ///< data.batch_axis
};

/// A model ready for the importer: functions inlined, shapes inferred, dimensions bound.
struct PreparedModel {
  onnx::GraphProto graph;          ///< initializers are absent: see OnnxFile::initializers
  std::map<std::string, int64_t> opsets;
  std::vector<onnx::FunctionProto> functions; ///< of the model: for calls that could not be inlined
  std::map<std::string, std::string> stoppedInitializers; ///< with their marks; nodes have notes: StopMarks.h
  std::vector<UnsupportedOp> unsupported; ///< by op name; includes branches that are never taken
  /// Shapes that the file declares for computed values, -1 for unknown extents. They may be wrong.
  std::map<std::string, std::vector<int64_t>> hints;
  std::vector<std::string> unbound; ///< "input x, axis 0 (batch)"
  std::vector<std::string> warnings;
  std::map<std::string, int64_t> sampledOutputs; ///< sample axes of a static export's outputs; symbols tell others
};

/// Checks and prepares a model. Errors: newer IR or opset, anything that the checker or shape inference refuses,
/// dimensions (unbound, unknown names, contradictions). Unsupported ops are no error here; all of them are listed.
Expected<PreparedModel> prepareModel(const OnnxFile &file, const PrepareOptions &options);

/// The standard's description of an op at a version of its domain's opset; null if it has none.
const onnx::OpSchema *schemaOf(const std::string &domain, const std::string &op, int64_t version);

/// Says how a node of the default domain violates the standard: the number of its inputs, a missing one, an attribute
/// or its type; empty if it does not. For nodes that the checker does not see.
std::string schemaProblem(const onnx::NodeProto &node, int64_t opset);
/// A node's name on one line (TerminalText.h), or "OpType → output" if it has none.
std::string nodeName(const onnx::NodeProto &node);
/// "" for the default domain under either of its names.
std::string canonicalDomain(const std::string &domain);
/// One line for messages.
std::string describe(const UnsupportedOp &op);
/// Describes a node that cannot be imported.
UnsupportedOp unsupportedOp(const onnx::NodeProto &node, int64_t opset);
/// "m.onnx: 2 of its nodes are not supported:", and the lines.
Status listedProblems(const std::string &path, const std::vector<std::string> &lines);

// Functions. A function's nodes may refer to its attributes, whose values the call gives.
/// True if the standard writes this op as a function of others.
bool hasFunctionBody(const std::string &domain, const std::string &op, int64_t opset);
/// The standard's body for a call with inputs of these types (none set: absent, or unknown).
Expected<onnx::FunctionProto> functionBody(const onnx::NodeProto &node, int64_t opset,
                                                 const std::vector<onnx::TypeProto> &types, bool isolate = true);
/// A function with references to its attributes replaced by the values of a call.
onnx::FunctionProto bindFunction(const onnx::FunctionProto &function, const onnx::NodeProto &call);
/// The operator sets by which to read a function's nodes.
std::map<std::string, int64_t> opsetsOf(const onnx::FunctionProto &function);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ONNXLIBRARY_H
