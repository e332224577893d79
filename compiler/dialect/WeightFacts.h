//===- WeightFacts.h - what passes know about a weight ----------*- C++ -*-===//
//
// The importer writes these facts on each `train.variable` of an initializer, as the attribute `train.weight`: names
// and readers, by which recipes choose parameters, and the shape in torch. The weight's bytes never enter the IR, since
// no pass reads them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_DIALECT_WEIGHTFACTS_H
#define TCC_COMPILER_DIALECT_WEIGHTFACTS_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/model/TorchShape.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::train {

/// dictionary, on a variable: its WeightFacts, without empty ones.
inline constexpr llvm::StringLiteral kWeightAttribute = "train.weight";

struct WeightFacts {
  std::string display;           ///< the one parameter it was folded from, by the exporter's notes; else empty
  std::string torchName;         ///< its parameter's name in torch, if that differs and is certain
  std::vector<std::string> uses; ///< kinds of its readers, for @selectors: "bias", "norm", "embedding", "1d"
  bool constant = false;         ///< a lifted constant or running statistic: not trained by default
  TorchShape torch;              ///< its shape in torch, for optimizers that depend on rank or orientation
};

void setWeightFacts(VariableOp variable, const WeightFacts &facts);

/// The facts of a variable; nothing if it has no initializer, such as an adapter's.
std::optional<WeightFacts> weightFacts(VariableOp variable);

} // namespace tcc::train

#endif // TCC_COMPILER_DIALECT_WEIGHTFACTS_H
