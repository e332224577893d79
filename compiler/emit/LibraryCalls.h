//===- LibraryCalls.h - what the library makes of an op ---------*- C++ -*-===//
#ifndef TCC_EMIT_LIBRARYCALLS_H
#define TCC_EMIT_LIBRARYCALLS_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/cpu/Library.h"
#include "runtime/plan/plan.pb.h"

#include <map>
#include <optional>
#include <string>

namespace tcc::emit {

/// An op's instruction as the library will run it: tiles, kernels, scratch.
struct LibraryCallPlan {
  plan::Instruction instruction;
  runtime::LibraryNeeds needs;
};

/// Asks the library once per distinct call.
class LibraryCalls {
public:
  /// Nothing if the op has no library call or the library has no kernel for its types and shapes.
  std::optional<LibraryCallPlan> find(mlir::Operation *op);

private:
  std::map<std::string, std::optional<LibraryCallPlan>> known; // by serialised request
};

} // namespace tcc::emit

#endif // TCC_EMIT_LIBRARYCALLS_H
