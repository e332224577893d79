//===- NodeImport.h - the interface between a node and its importer --*- C++ -*-===//
//
// Importers read inputs and attributes here and build train ops with the builder; the driver folds constants after each
// node, so that shape arithmetic arrives as train.constant. Inputs that are present are tensors (or sequences, for ops
// that take them); the ONNX library has checked the node.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_NODEIMPORT_H
#define TCC_FRONTEND_NODEIMPORT_H

#include "compiler/dialect/Builders.h"
#include "frontend/Limits.h"
#include "frontend/OpTable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <onnx/onnx_pb.h>

#include <functional>
#include <limits>
#include <optional>

namespace tcc {
struct ModelSettings;
}

namespace tcc::frontend {

using Shape = llvm::SmallVector<int64_t>;

/// A tensor of 4-bit integers: two in each byte, the first in the lower half.
struct FourBitTensor {
  mlir::Value bytes; ///< ui8, of rank 1
  Shape shape;
  bool isSigned = false;
};

/// The value of an ONNX name.
struct Slot {
  Slot() = default;
  Slot(mlir::Value tensor, std::optional<llvm::SmallVector<mlir::Value>> sequence = std::nullopt)
      : tensor(tensor), sequence(std::move(sequence)) {}

  mlir::Value tensor;                                       ///< null for a sequence, and for an absent optional
  std::optional<llvm::SmallVector<mlir::Value>> sequence;
  std::optional<FourBitTensor> fourBits; ///< `tensor` is null then, and the slot unusable but for ops that read 4 bits
  std::string unusable;  ///< why it cannot be an input of an op, such as a constant of strings
  bool failed = false;   ///< the import of its node failed and was reported; its readers are skipped
};

/// Thrown by the helpers below if an importer asks for an absent input, a tensor beyond the limits, or a table that
/// takes too much work. GraphImport reports it as the node's problem. Importers themselves return errors.
struct NodeProblem {
  Status status;
};

/// State that all nodes of a model share.
struct ImportBudget {
  uint64_t constantBytes = kMostConstantBytes; ///< left for tables and constants; each loop iteration counts
  llvm::DenseSet<int64_t> randomIds;           ///< of ops that draw random numbers
};

/// The status of an importer whose problem was already reported for a node inside.
inline Status alreadyReported() { return Status(std::string()); }

class NodeImport {
public:
  NodeImport(const onnx::NodeProto &node, int64_t opset, mlir::OpBuilder &builder, mlir::Location loc, bool forceF64)
      : node(node), opset(opset), builder(builder), loc(loc), forceF64(forceF64) {}

  const onnx::NodeProto &node;
  const int64_t opset;       ///< version of the op's domain in the model
  mlir::OpBuilder &builder;
  const mlir::Location loc;
  const bool forceF64;
  llvm::SmallVector<Slot> inputs, outputs;
  /// Elements of a small tensor that is no trainable parameter; null if they are not known at compile time.
  std::function<mlir::DenseElementsAttr(mlir::Value)> constantOf;
  /// Imports the graph of an attribute with the given inputs, and returns its outputs; the graph sees the names around
  /// the node. `suffix` ("[3]") distinguishes the names of its nodes from those of other iterations. Error:
  /// alreadyReported().
  std::function<Expected<llvm::SmallVector<Slot>>(const onnx::GraphProto &, llvm::ArrayRef<Slot>,
                                                  const std::string &suffix)>
      importGraph;
  /// The same for a graph that counts only if `gate` (one boolean) is true: if it is false, no gradient leaves the
  /// graph, not even NaN.
  std::function<Expected<llvm::SmallVector<Slot>>(const onnx::GraphProto &, llvm::ArrayRef<Slot>,
                                                        const std::string &suffix, mlir::Value gate)>
      importGatedGraph;
  /// The value; if `gate` is false, it has no gradient.
  std::function<mlir::Value(mlir::Value value, mlir::Value gate)> gated;
  /// The graph inputs that a value depends on, in their order.
  std::vector<std::string> inputsBehind(mlir::Value value) const;
  /// "--fix c=VALUE …": how to make a value constant that depends on graph inputs; empty if it depends on none.
  std::string fixAdvice(mlir::Value value) const;
  /// Warns that the plan may differ from what the model asks for; the node's name and op are put before the message.
  std::function<void(const std::string &)> warn;
  ImportBudget *budget = nullptr;
  /// The recipe's [model]; null if there is none.
  const ModelSettings *settings = nullptr;

  // Inputs.
  bool has(unsigned i) const { return i < inputs.size() && (inputs[i].tensor || inputs[i].sequence); }
  /// Throws if the input is absent, or a sequence.
  mlir::Value in(unsigned i) const;
  train::Expr expr(unsigned i) const { return train::Expr(builder, loc, in(i)); }
  train::Expr expr(mlir::Value value) const { return train::Expr(builder, loc, value); }
  llvm::ArrayRef<int64_t> shape(unsigned i) const { return train::shapeOf(in(i)); }
  int64_t rank(unsigned i) const { return int64_t(shape(i).size()); }
  /// Elements of an integer (or boolean) input that must be known at compile time; the error names where it comes from.
  Expected<Shape> ints(unsigned i) const;
  /// The same for one number of any type.
  Expected<double> number(unsigned i) const;
  /// The origin of a value that is not known at compile time: "graph input x", "initializer w, which is a weight".
  std::string origin(mlir::Value value) const;

  // Attributes, with their defaults.
  const onnx::AttributeProto *attribute(std::string_view name) const;
  int64_t intAttr(std::string_view name, int64_t otherwise) const;
  double floatAttr(std::string_view name, double otherwise) const;
  std::string stringAttr(std::string_view name, std::string_view otherwise) const;
  std::optional<Shape> intsAttr(std::string_view name) const;
  /// The `attribute` if it is given, else input `i` if it is present, else nullopt.
  Expected<std::optional<Shape>> intsFrom(std::string_view attribute, unsigned i) const;

  /// An axis in [0, rank): negative ones count from the end. Error: out of range.
  Expected<int64_t> axis(int64_t given, int64_t rank) const;
  Expected<Shape> axes(llvm::ArrayRef<int64_t> given, int64_t rank) const;

  // Types.
  /// Throws if the tensor would be too large.
  mlir::RankedTensorType type(llvm::ArrayRef<int64_t> shape, mlir::Type element) const;
  /// The element type for a TensorProto_DataType; null if it is not supported.
  mlir::Type elementType(int32_t onnxType) const;
  mlir::Type i1() const { return builder.getI1Type(); }
  mlir::Type i64() const { return builder.getI64Type(); }

  // Values.
  /// A constant from little-endian bytes in storage order.
  mlir::Value constant(llvm::ArrayRef<int64_t> shape, int32_t onnxType, llvm::StringRef bytes) const;
  mlir::Value splat(llvm::ArrayRef<int64_t> shape, mlir::Type element, double value) const;
  mlir::Value iota(llvm::ArrayRef<int64_t> shape, int64_t dim) const; ///< i64
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape) const {
    (void)type(shape, train::elementTypeOf(x));
    return train::reshape(builder, loc, x, shape);
  }
  mlir::Value broadcast(mlir::Value x, llvm::ArrayRef<int64_t> shape) const {
    (void)type(shape, train::elementTypeOf(x));
    return train::broadcastTo(builder, loc, x, shape);
  }
  /// x[.., begin : begin + size, ..] along `dim`.
  mlir::Value slice(mlir::Value x, int64_t dim, int64_t begin, int64_t size) const;
  /// Removes the extents of 1 along `dims`, which reductions leave.
  mlir::Value dropDims(mlir::Value x, llvm::ArrayRef<int64_t> dims) const;
  /// The key of random numbers, and the id of a new op that draws them: the id follows from the node's name and the
  /// number of such ops of that name so far.
  mlir::Value randomKey() const;
  int64_t randomId(uint64_t seed = 0) const;
  /// Broadcasts both to their common shape. Error: there is none.
  Expected<std::pair<train::Expr, train::Expr>> common(mlir::Value x, mlir::Value y) const;

  // Limits: see Limits.h. These throw.
  /// The number of elements of a table that the importer is about to compute.
  int64_t table(llvm::ArrayRef<int64_t> extents) const;
  /// Counts bytes of a constant.
  void spend(uint64_t bytes) const;

  // Results.
  /// scalarsToo, for a scalar.
  Status asVector(Status (*import)(NodeImport &));
  Status set(unsigned i, mlir::Value value);
  Status result(mlir::Value value) { return set(0, value); }
  bool wants(unsigned i) const { return int(i) < node.output_size() && !node.output(int(i)).empty(); }

private:
  Expected<mlir::DenseElementsAttr> elements(unsigned i) const;
};

/// Imports an op that works along axes. A scalar input is treated as a vector of one element, so that axes 0 and -1 are
/// valid, and the results are scalars again. torch does so for all of these ops, onnxruntime for some.
template <Status (*import)(NodeImport &)> Status scalarsToo(NodeImport &n) {
  return n.rank(0) == 0 ? n.asVector(import) : import(n);
}

/// "f32[4x64]", for messages.
std::string typeText(mlir::Value value);
inline std::string shapeText(llvm::ArrayRef<int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }
/// The saturating product of extents.
inline int64_t countOf(llvm::ArrayRef<int64_t> shape) {
  return int64_t(std::min<uint64_t>(saturatingProduct(shape), std::numeric_limits<int64_t>::max()));
}

/// The element type for a TensorProto_DataType (f64 for every float if `forceF64`); null if it is not supported.
mlir::Type importedElementType(mlir::MLIRContext *context, int32_t onnxType, bool forceF64);
/// Bytes of an ONNX tensor as an attribute; converts to the imported element type.
mlir::DenseElementsAttr importedElements(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> shape, int32_t onnxType,
                                         llvm::StringRef bytes, bool forceF64);

} // namespace tcc::frontend

/// Defines `name` as the value of an Expected, or returns its error.
#define TCC_TRY(name, expression)                                                                                      \
  auto name##OrError = (expression);                                                                                   \
  if (!name##OrError.ok())                                                                                             \
    return name##OrError.status();                                                                                     \
  auto name = name##OrError.take()

#endif // TCC_FRONTEND_NODEIMPORT_H
