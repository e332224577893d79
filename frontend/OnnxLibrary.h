//===- OnnxLibrary.h - checker, inliner and shape inference of ONNX --*- C++ -*-===//
//
// Checker, function inliner and shape inference of the ONNX library, in that order, each exception and each crash turned
// into an error with its place. The version converter is left out: it is not right for every pair of versions, so the importer reads every opset
// by its own table.
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
  std::map<std::string, std::string> stoppedInitializers; ///< with what marks them; nodes have notes: StopMarks.h
  std::vector<UnsupportedOp> unsupported; ///< by name alone, branches that are never taken included
  /// Shapes that the file declares of values that nodes compute, -1 where it leaves them open: they may be wrong.
  std::map<std::string, std::vector<int64_t>> hints;
  std::vector<std::string> unbound; ///< "input x, axis 0 (batch)"
  std::vector<std::string> warnings;
  std::map<std::string, int64_t> sampledOutputs; ///< sample axes of a static export's outputs; symbols tell others
};

/// Checks and prepares a model. Errors: newer IR or opset, what the checker or shape inference refuse, dimensions (unbound,
/// unknown names, contradictions). Unsupported ops are no error here: they are listed, all of them.
Expected<PreparedModel> prepareModel(const OnnxFile &file, const PrepareOptions &options);

/// The standard's description of an op at a version of its domain's opset; null where it has none.
const onnx::OpSchema *schemaOf(const std::string &domain, const std::string &op, int64_t version);

/// What the standard does not allow of a node of its default domain: the number of its inputs, one that is missing, an
/// attribute or its type; empty where all is well. For nodes that the checker does not see.
std::string schemaProblem(const onnx::NodeProto &node, int64_t opset);
/// A node's name on one line (TerminalText.h), or "OpType → output" where it has none.
std::string nodeName(const onnx::NodeProto &node);
/// "" for the default domain under either of its names.
std::string canonicalDomain(const std::string &domain);
/// One line for messages.
std::string describe(const UnsupportedOp &op);
/// What to say of a node that nobody can import.
UnsupportedOp unsupportedOp(const onnx::NodeProto &node, int64_t opset);
/// "m.onnx: 2 of its nodes are not supported:", and the lines.
Status listedProblems(const std::string &path, const std::vector<std::string> &lines);

// Functions. A function's nodes may name its attributes, which the call gives; here they are put in.
/// True if the standard writes this op as a function of others.
bool hasFunctionBody(const std::string &domain, const std::string &op, int64_t opset);
/// The standard's body for a call with inputs of these types (none set: absent, or unknown).
Expected<onnx::FunctionProto> functionBody(const onnx::NodeProto &node, int64_t opset,
                                                 const std::vector<onnx::TypeProto> &types, bool isolate = true);
/// A function with the attributes of a call.
onnx::FunctionProto bindFunction(const onnx::FunctionProto &function, const onnx::NodeProto &call);
/// The operator sets that a function's nodes are to be read by.
std::map<std::string, int64_t> opsetsOf(const onnx::FunctionProto &function);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ONNXLIBRARY_H
