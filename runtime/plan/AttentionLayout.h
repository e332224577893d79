//===- AttentionLayout.h - tensors of a call of attention --------*- C++ -*-===//
//
// What compiler, verifier and device agree on about AttentionCall: which tensors it has, their sizes, and the bytes in
// its scratch before the library's workspace.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H
#define TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H

#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <array>
#include <vector>

namespace tcc::plan {

/// A tensor of the call, in the order of AttentionCall.tensors.
struct AttentionTensor {
  const char *name;
  std::array<int64_t, 4> dims; ///< batch, heads, positions, features
  bool isRows;                 ///< F32, one number a row; else of the call's type
  bool isWritten;
};

inline std::vector<AttentionTensor> attentionTensors(const AttentionCall &call) {
  const std::array<int64_t, 4> query{call.batch(), call.heads(), call.queries(), call.depth()},
      key{call.batch(), call.key_heads(), call.keys(), call.depth()},
      value{call.batch(), call.key_heads(), call.keys(), call.width()},
      output{call.batch(), call.heads(), call.queries(), call.width()},
      rows{call.batch(), call.heads(), call.queries(), 1};
  if (call.kind() == AttentionCall::GRADIENT)
    return {{"query", query, false, false},           {"key", key, false, false},
            {"value", value, false, false},           {"output", output, false, false},
            {"logsumexp", rows, true, false},         {"the output's gradient", output, false, false},
            {"query's gradient", query, false, true}, {"key's gradient", key, false, true},
            {"value's gradient", value, false, true}};
  return {{"query", query, false, false},
          {"key", key, false, false},
          {"value", value, false, false},
          {"output", output, false, true},
          {"logsumexp", rows, true, true}};
}

/// Bytes in the scratch of a gradient before the workspace: the sums of output times its gradient, one a row.
inline uint64_t attentionRowBytes(const AttentionCall &call) {
  if (call.kind() != AttentionCall::GRADIENT)
    return 0;
  const uint64_t bytes = uint64_t(call.batch()) * uint64_t(call.heads()) * uint64_t(call.queries()) * sizeof(float);
  return (bytes + kLibraryWorkspaceAlignment - 1) / kLibraryWorkspaceAlignment * kLibraryWorkspaceAlignment;
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H
