//===- LibraryCalls.cpp ---------------------------------------------------===//
#include "compiler/emit/LibraryCalls.h"

namespace tcc::emit {

std::optional<LibraryCallPlan> LibraryCalls::find(mlir::Operation *op) {
  auto call = mlir::dyn_cast<train::LibraryCall>(op);
  if (!call)
    return std::nullopt;
  LibraryCallPlan request;
  call.buildCall(request.instruction);
  std::string key = request.instruction.SerializeAsString();
  if (auto found = known.find(key); found != known.end())
    return found->second;
  plan::Expected<runtime::LibraryNeeds> needs =
      request.instruction.has_matmul()        ? runtime::query(*request.instruction.mutable_matmul())
      : request.instruction.has_convolution() ? runtime::query(*request.instruction.mutable_convolution())
                                              : plan::Expected<runtime::LibraryNeeds>(plan::error("no library call"));
  std::optional<LibraryCallPlan> answer;
  if (needs) {
    request.needs = *needs;
    answer = request;
  }
  known[key] = answer;
  return answer;
}

} // namespace tcc::emit
