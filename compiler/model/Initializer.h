//===- Initializer.h - a tensor that the model's file gives -----*- C++ -*-===//
//
// What the plan keeps of an initializer beside its variable in the IR: where its bytes are, and how it is called. Only
// emit and reports read it; what passes have to know is on the variable (compiler/dialect/WeightFacts.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_MODEL_INITIALIZER_H
#define TCC_COMPILER_MODEL_INITIALIZER_H

#include "compiler/model/TorchShape.h"
#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tcc {

/// Where the bytes of an initializer are. Weights never enter the IR.
struct Initializer {
  std::string name;
  plan::TensorType type;      ///< as stored, also under forceF64
  const char *data = nullptr; ///< bytes in memory (inside the model file), in storage order; null where external
  std::string file;           ///< external data: path, offset and length (bytes)
  uint64_t offset = 0, bytes = 0;
  std::string display;        ///< the one parameter it was folded from, by the exporter's notes; else empty
  std::string node;           ///< a node that reads it
  bool constant = false;      ///< a lifted constant or running statistic: not trained by default
  std::string list;           ///< "trained", "frozen", "buffer" or "constant", by the file and model.*
  std::string sign;           ///< the reason for `list`
  TorchShape torch;           ///< its shape in torch
  std::string torchName;      ///< its parameter's name in torch, if that differs and is certain
  bool namedByNode = false;   ///< `torchName` follows from its reader's name only
  bool computed = false;      ///< no part of the module's state, by the exporter's notes
};

/// An initializer that is read as a copy of another one.
struct TiedInitializer {
  std::string of;                   ///< the variable that it copies
  std::vector<int64_t> permutation; ///< of its axes; empty: the same elements in the same order
  plan::TensorType type;
};

} // namespace tcc

#endif // TCC_COMPILER_MODEL_INITIALIZER_H
