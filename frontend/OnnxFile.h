//===- OnnxFile.h - read an ONNX file, and locate its weights ---*- C++ -*-===//
//
// Reads the protobuf and moves the initializers into a side table, which holds their bytes, or the location of the
// bytes in a file of external data. External files are checked, but not read here. The exporter's notes about
// initializers (metadata_props of their value_info) go into the same table, before a library function could drop them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_ONNXFILE_H
#define TCC_FRONTEND_ONNXFILE_H

#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tcc::frontend {

/// One initializer of the main graph, or a tensor of a node or inner graph that may be a weight.
struct OnnxInitializer {
  int32_t type = 0;          ///< onnx::TensorProto_DataType
  std::vector<int64_t> dims;
  uint64_t bytes = 0;        ///< in storage order, little-endian
  std::string data;          ///< the bytes, if they are inside the model
  std::string file;          ///< external data: the file, and the offset in it; empty: inside the model
  uint64_t offset = 0;
  std::string kind;          ///< by the exporter's notes: PARAMETER, BUFFER, CONSTANT_TENSOR …; empty: no note
  std::string persistent;    ///< of a BUFFER, by the same notes: "True", "False"; empty: no note
  std::vector<std::string> foldedFrom; ///< by the exporter's notes: the values it was computed from
  bool computed = false;               ///< a copy of such a value, under a name of its own
  bool absent = false;                 ///< the file is missing, which was allowed: roles follow from names alone
  bool fixed = false;                  ///< an input that the recipe fixes
  std::string code;                    ///< a constant of the model's code: the node that reads it (MergedReads.h)
  std::string home;                    ///< if no initializer: "a Constant node", "the graph of If_0/body"
  // INT4 and UINT4 count as UINT8 of rank 1, two elements in each byte:
  int32_t packedType = 0;        ///< INT4 or UINT4; 0: any other type
  std::vector<int64_t> elements; ///< the shape of such a tensor

  bool external() const { return !file.empty(); }
  bool inFourBits() const { return packedType != 0; }
  // As the file declares it.
  int32_t declaredType() const { return inFourBits() ? packedType : type; }
  const std::vector<int64_t> &declaredDims() const { return inFourBits() ? elements : dims; }
};

/// A part of a torch module's state, by the notes of torch.export.
struct OnnxState {
  std::string name; ///< "fc.weight"
  std::string kind; ///< PARAMETER, BUFFER, CONSTANT_TENSOR
};

/// An initializer that is a copy of another, from which it is computed: see Weights.h.
struct OnnxTie {
  std::string of;                   ///< the initializer that it copies
  std::vector<int64_t> permutation; ///< of the axes; empty: the same elements in the same order
  OnnxInitializer copy;             ///< type, shape and initial value
};

/// An initializer that the file stores as integers, and that is trained in floating point: see FakeQuantize.h.
struct OnnxQuantized {
  OnnxInitializer stored;           ///< type, shape and initial value in the file
  std::vector<float> scale;         ///< one, or one for each index of `axis`
  std::vector<int64_t> zeroPoint;   ///< as many
  int64_t axis = 0;
  // If scale and zero point are observed, the export writes new ones:
  bool observed = false;
  int32_t type = 0;                 ///< onnx::TensorProto_DataType of the integers
  std::string scaleName, zeroPointName; ///< the initializers that hold them
  int64_t level = 0;                ///< largest |q − zero point| if symmetric, else 0
  std::vector<std::string> scaleOf; ///< of a bias: the initializers whose product is its scale
};

/// Scale and zero point of an activation that follow from a range, which training observes.
struct OnnxObservedRange {
  std::string scaleName, zeroPointName; ///< the initializers that hold them
  std::string low, high;                ///< names of state; empty: that end is 0
  int32_t type = 0;                     ///< onnx::TensorProto_DataType of the integers
  bool symmetric = false;
};

/// A parsed model.
struct OnnxFile {
  std::string path, folder, name; ///< name: without folder
  onnx::ModelProto model;         ///< initializers have type and shape, and no bytes
  std::map<std::string, OnnxInitializer> initializers;
  std::map<std::string, OnnxTie> ties; ///< by name; removed from `initializers`
  std::map<std::string, OnnxQuantized> quantized; ///< by name; floating-point in `initializers`
  std::vector<OnnxObservedRange> ranges;          ///< their state is in `initializers`, but not in the model
  std::map<std::string, std::string> rounded;     ///< by value: the initializer that it is the rounded form of
  std::map<std::string, OnnxState> state; ///< the module's state, by value in torch.export's graph: "p_fc_weight"
  std::map<std::string, std::string> stateKinds; ///< the kinds of `state`, by name
  bool stateIsWhole = false;              ///< the file lists the whole state, even parts without an initializer
};

/// Reads `path`. Errors: missing file, folder, empty, no protobuf, no graph, an initializer whose bytes do not fit its
/// shape, external data that is too short, outside the model's folder, or missing, unless it may be `absent`.
Expected<OnnxFile> readOnnxFile(const std::string &path, bool absent = false);

/// Moves a tensor's bytes out of it, or checks the file in `folder` that holds them. The tensor keeps name, type and
/// shape. Errors: those of readOnnxFile for an initializer.
Expected<OnnxInitializer> takeTensor(onnx::TensorProto &tensor, const std::string &folder, bool absent = false);

/// The bytes of an initializer, from memory or its file.
Expected<std::string> initializerBytes(const OnnxInitializer &initializer);

/// The elements of a tensor inside a model (such as an attribute's) as raw little-endian bytes. Errors: external data,
/// strings, a number of elements that does not fit the shape.
Expected<std::string> tensorBytes(const onnx::TensorProto &tensor);

/// A sparse tensor in dense form. Errors: as tensorBytes, more than `mostBytes`, and indices out of range.
Expected<onnx::TensorProto> denseTensor(const onnx::SparseTensorProto &sparse, uint64_t mostBytes);

/// The note at a value that lists the values it was computed from.
inline constexpr const char *kFoldedFromNote = "pkg.onnxscript.optimizer.folded_from";
/// The strings of a list "['a', 'b']", as torch writes them into notes.
std::vector<std::string> quotedNames(const std::string &text);

/// Bytes of one element of an ONNX type that the importer reads; 0 for all others.
uint64_t onnxElementBytes(int32_t type);
/// The plan's type for an ONNX one; DTYPE_NONE for all others.
plan::DType storedType(int32_t onnxType);
/// "FLOAT", "INT64", …
std::string onnxTypeName(int32_t type);

/// The serialised model for the plan: without the bytes of the initializers in `variables` that exceed 1 KiB (the
/// export puts them back by name), and without references to external files.
Expected<std::string> strippedModel(const OnnxFile &file, const std::set<std::string> &variables);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ONNXFILE_H
