//===- CheckInputs.h - values for the inputs of a program -------*- C++ -*-===//
//
// For checks, not for training: random values, or the first samples of a file.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_CHECKINPUTS_H
#define TCC_TOOLS_TCC_CHECKINPUTS_H

#include "compiler/driver/CompileModel.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

/// Bytes of each input of an entry, in its order.
using InputValues = std::vector<std::vector<std::byte>>;

/// Random values. Floats are normal, or uniform in [0.05, 0.95) if `positive`. Integers pass the entry's checks, from 0
/// on if possible; without a check they are below the extent of the table that the input indexes (`ranges`), or 0 and 1
/// if it indexes none. Booleans are true or false.
InputValues drawInputs(const plan::Entry &entry, const std::map<std::string, IndexRange> &ranges, uint64_t seed,
                       bool positive);

/// The first samples of a .safetensors file. `columns`: input → tensor, where names differ. Floats convert to the
/// input's type, integers where every value fits. Errors name file and tensor: missing, of a wrong shape or type, a
/// value that the entry's checks of indices refuse.
Expected<InputValues> readInputs(const plan::Entry &entry, const std::string &path,
                                 const std::map<std::string, std::string> &columns);

} // namespace tcc::gradcheck

#endif // TCC_TOOLS_TCC_CHECKINPUTS_H
