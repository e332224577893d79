//===- InputRanges.h - legal values of integer inputs -----------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_INPUTRANGES_H
#define TCC_TOOLS_TCC_INPUTRANGES_H

#include "compiler/driver/CompileModel.h"

#include <map>
#include <optional>
#include <string>

namespace tcc::gradcheck {

/// The tables that an integer input indexes.
struct IndexRange {
  std::optional<int64_t> rows;    ///< the smallest axis it gathers from: values are 0 … rows − 1
  std::optional<int64_t> classes; ///< the smallest axis it picks from; values outside are allowed (ignore_index)
};

/// Follows every integer input of the loss through integer arithmetic and views to the tables that it indexes. Inputs
/// that index nothing are left out.
Expected<std::map<std::string, IndexRange>> findIndexRanges(mlir::MLIRContext &context,
                                                                  const CompileOptions &options);

} // namespace tcc::gradcheck

#endif // TCC_TOOLS_TCC_INPUTRANGES_H
