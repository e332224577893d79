//===- OnnxLibrary.h - the official library's part of the import -*- C++ -*-===//
//
// Checker, function inliner and shape inference of the ONNX library, in that order, each exception turned into an error with
// its place. The version converter is left out: it is not right for every pair of versions, so the importer reads every opset
// by its own table.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_ONNXLIBRARY_H
#define TCC_FRONTEND_ONNXLIBRARY_H

#include "frontend/OnnxFile.h"

#include <functional>

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
  bool requireBound = true;                           ///< unbound dimensions are an error
  /// True if the importer's table has this op at this version of its domain.
  std::function<bool(const std::string &domain, const std::string &op, int64_t version)> knows;
};

/// A model ready for the importer: functions inlined, shapes inferred, dimensions bound.
struct PreparedModel {
  onnx::GraphProto graph;          ///< initializers are absent: see OnnxFile::initializers
  std::map<std::string, int64_t> opsets;
  std::vector<UnsupportedOp> unsupported;
  std::vector<std::string> unbound; ///< "input x, axis 0 (batch)"
};

/// Checks and prepares a model. Errors: newer IR or opset, what the checker or shape inference refuse, dimensions (unbound,
/// unknown names, contradictions). Unsupported ops are no error here: they are listed, all of them.
plan::Expected<PreparedModel> prepareModel(const OnnxFile &file, const PrepareOptions &options);

/// A node's name, or "OpType → output" where it has none.
std::string nodeName(const onnx::NodeProto &node);
/// "" for the default domain under either of its names.
std::string canonicalDomain(const std::string &domain);
/// One line for messages.
std::string describe(const UnsupportedOp &op);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ONNXLIBRARY_H
