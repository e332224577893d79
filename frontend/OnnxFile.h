//===- OnnxFile.h - an ONNX file and the places of its weights --*- C++ -*-===//
//
// Reads the protobuf and takes the initializers out of it at once: their bytes stay where they are (in the parsed message,
// or in a file of external data, which is looked at but never read here), and a side table says where. The exporter's notes
// about them (metadata_props of their value_info) go into the same table, before any library function could drop them.
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

/// One initializer of the main graph, or a tensor inside of it that may be a weight.
struct OnnxInitializer {
  int32_t type = 0;          ///< onnx::TensorProto_DataType
  std::vector<int64_t> dims;
  uint64_t bytes = 0;        ///< in storage order, little-endian
  std::string data;          ///< the bytes, where they are inside the model
  std::string file;          ///< external data: the file, and the offset in it; empty: inside the model
  uint64_t offset = 0;
  std::string kind;          ///< by the exporter's notes: PARAMETER, BUFFER, CONSTANT_TENSOR …; empty: none
  std::string persistent;    ///< of a BUFFER, by the same notes: "True", "False"; empty: none
  std::vector<std::string> foldedFrom; ///< by the exporter's notes: the values it was computed from
  bool computed = false;               ///< a copy of such a value, under a name of its own
  bool absent = false;                 ///< the file is missing, as was allowed: roles follow from names alone
  bool fixed = false;                  ///< an input that the recipe fixes
  std::string code;                    ///< a constant of the model's code, as which this node reads an equal weight: MergedReads.h
  std::string home;                    ///< no initializer of the model, but a tensor in "a Constant node", "the graph of If_0/body"

  bool external() const { return !file.empty(); }
};

/// A part of a torch module's state, by the notes of torch.export.
struct OnnxState {
  std::string name; ///< "fc.weight"
  std::string kind; ///< PARAMETER, BUFFER, CONSTANT_TENSOR
};

/// An initializer that is a copy of another, and read as one: see Weights.h.
struct OnnxTie {
  std::string of;                   ///< the initializer that it copies
  std::vector<int64_t> permutation; ///< of the axes; empty: the same elements in the same order
  OnnxInitializer copy;             ///< type, shape and first value
};

/// An initializer that the file stores as integers, and that is trained in floating point: see FakeQuantize.h.
struct OnnxQuantized {
  OnnxInitializer stored;           ///< type, shape and first value in the file
  std::vector<float> scale;         ///< one, or one for each index of `axis`
  std::vector<int64_t> zeroPoint;   ///< as many
  int64_t axis = 0;
  // Where scale and zero point are observed, the export writes new ones:
  bool observed = false;
  int32_t type = 0;                 ///< onnx::TensorProto_DataType of the integers
  std::string scaleName, zeroPointName; ///< the initializers that hold them
  int64_t level = 0;                ///< symmetric: the largest |q − zero point|; 0: it is not
  std::vector<std::string> scaleOf; ///< a bias: its scale is the product of these initializers
};

/// Scale and zero point of an activation that follow from a range, which training observes.
struct OnnxObservedRange {
  std::string scaleName, zeroPointName; ///< the initializers that hold them
  std::string low, high;                ///< state; an empty name: that end is 0
  int32_t type = 0;                     ///< onnx::TensorProto_DataType of the integers
  bool symmetric = false;
};

/// A parsed model.
struct OnnxFile {
  std::string path, folder, name; ///< name: without folder
  onnx::ModelProto model;         ///< initializers have type and shape, and no bytes
  std::map<std::string, OnnxInitializer> initializers;
  std::map<std::string, OnnxTie> ties; ///< by name; these are no initializers any more
  std::map<std::string, OnnxQuantized> quantized; ///< by name; initializers that are in floating point by now
  std::vector<OnnxObservedRange> ranges;          ///< their state is initializers that the model has not
  std::map<std::string, std::string> rounded;     ///< values that are a rounded initializer, and which
  std::map<std::string, OnnxState> state; ///< of the module, by its value in torch.export's graph: "p_fc_weight"
  std::map<std::string, std::string> stateKinds; ///< the kinds of `state`, by name
  bool stateIsWhole = false;              ///< the file lists the whole state, what has no initializer too
};

/// Reads `path`. Errors: missing file, folder, empty, no protobuf, no graph, an initializer whose bytes do not fit its shape,
/// external data that is too short, outside the model's folder, or missing, unless it may be `absent`.
Expected<OnnxFile> readOnnxFile(const std::string &path, bool absent = false);

/// Moves a tensor's bytes out of it, or looks at the file in `folder` that has them. The tensor keeps name, type and shape.
/// Errors: as of readOnnxFile for an initializer.
Expected<OnnxInitializer> takeTensor(onnx::TensorProto &tensor, const std::string &folder, bool absent = false);

/// The bytes of an initializer, from memory or its file.
Expected<std::string> initializerBytes(const OnnxInitializer &initializer);

/// The elements of a tensor inside a model (an attribute's, say) as raw little-endian bytes. Errors: external data, strings,
/// fewer or more elements than the shape asks for.
Expected<std::string> tensorBytes(const onnx::TensorProto &tensor);

/// A sparse tensor with its zeros. Errors: as tensorBytes, more than `mostBytes`, and indices that are not inside.
Expected<onnx::TensorProto> denseTensor(const onnx::SparseTensorProto &sparse, uint64_t mostBytes);

/// "['a', 'b']" as its strings: how torch writes lists into notes.
std::vector<std::string> quotedNames(const std::string &text);

/// Bytes of one element of an ONNX type that the importer reads; 0 for all others.
uint64_t onnxElementBytes(int32_t type);
/// The plan's type for an ONNX one; DTYPE_NONE for all others.
plan::DType storedType(int32_t onnxType);
/// "FLOAT", "INT64", …
std::string onnxTypeName(int32_t type);

/// The model as a release format needs it: without the bytes of the initializers in `variables` that exceed 1 KiB (whoever
/// has the variables puts them back by name), and without references to external files.
Expected<std::string> strippedModel(const OnnxFile &file, const std::set<std::string> &variables);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_ONNXFILE_H
