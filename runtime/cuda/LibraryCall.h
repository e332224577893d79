//===- LibraryCall.h - a call of a library that has several algorithms ----===//
#ifndef TCC_RUNTIME_CUDA_LIBRARYCALL_H
#define TCC_RUNTIME_CUDA_LIBRARYCALL_H

#include "runtime/cuda/api/Driver.h"
#include "support/Status.h"

#include <concepts>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Device memory that a call reads or writes.
struct MemoryRange {
  api::CUdeviceptr address;
  uint64_t bytes;
};

/// A product, convolution or attention whose operands are known and that one of its library's algorithms computes.
/// AlgorithmChoice chooses the algorithm; use() sets it, and submit() adds the call to a stream.
template <typename Call>
concept LibraryCall = requires(Call call, const Call &described, const typename Call::Algorithm &algorithm,
                               const std::string &code, api::CUstream stream) {
  { Call::kLibrary } -> std::convertible_to<const char *>; // "cuDNN"
  { Call::kAsked } -> std::convertible_to<int>;            // algorithms to ask for when one is needed
  { Call::kLoadsWhenRun } -> std::convertible_to<bool>;    // an algorithm's first run loads its code

  // Everything that the library is told about the call: calls with equal texts may share an algorithm.
  { described.text() } -> std::convertible_to<std::string>;
  // Up to `most` algorithms that satisfy the plan, the library's favourite first. Error: it has none.
  { described.candidates(int()) } -> std::same_as<Expected<std::vector<typename Call::Algorithm>>>;
  // An algorithm's code in the run's record, and back. Error: not a code, or not allowed here.
  { described.codeOf(algorithm) } -> std::same_as<std::string>;
  { described.fromCode(code) } -> std::same_as<Expected<typename Call::Algorithm>>;
  // A description for people.
  { described.aboutOf(algorithm) } -> std::same_as<std::string>;
  { call.use(algorithm) } -> std::same_as<Status>;
  { described.submit(stream) } -> std::same_as<Status>;
  { described.operandRanges() } -> std::convertible_to<std::vector<MemoryRange>>;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_LIBRARYCALL_H
