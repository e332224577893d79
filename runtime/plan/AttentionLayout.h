//===- AttentionLayout.h - tensors of a call of attention --------*- C++ -*-===//
//
// The layout of an AttentionCall, shared by compiler, verifier and device: its tensors, their sizes, and the bytes in
// its scratch before the library's workspace.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H
#define TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H

#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <array>
#include <set>
#include <vector>

namespace tcc::plan {

/// A tensor of the call, in the order of AttentionCall.tensors.
struct AttentionTensor {
  /// Heads may be strided views; Rows hold one F32 number for each row of scores; a Bias is dense. All but Rows have
  /// the call's type.
  enum Kind { Heads, Rows, Bias };

  const char *name;
  std::array<int64_t, 4> dims; ///< batch, heads, positions, features; of a bias: keys last
  Kind kind;
  bool isWritten;

  uint64_t elementBytes(const AttentionCall &call) const {
    return kind == Rows ? sizeof(float) : dtypeBytes(call.dtype());
  }
};

inline std::vector<AttentionTensor> attentionTensors(const AttentionCall &call) {
  constexpr auto kHeads = AttentionTensor::Heads, kRows = AttentionTensor::Rows, kBias = AttentionTensor::Bias;
  const std::array<int64_t, 4> query{call.batch(), call.heads(), call.queries(), call.depth()},
      key{call.batch(), call.key_heads(), call.keys(), call.depth()},
      value{call.batch(), call.key_heads(), call.keys(), call.width()},
      output{call.batch(), call.heads(), call.queries(), call.width()},
      rows{call.batch(), call.heads(), call.queries(), 1},
      bias{call.bias_batch(), call.bias_heads(), call.queries(), call.keys()};
  const bool gradient = call.kind() == AttentionCall::GRADIENT;
  std::vector<AttentionTensor> tensors = {
      {"query", query, kHeads, false}, {"key", key, kHeads, false}, {"value", value, kHeads, false}};
  auto add = [&](bool present, AttentionTensor tensor) {
    if (present)
      tensors.push_back(tensor);
  };
  add(gradient, {"output", output, kHeads, false});
  add(gradient, {"logsumexp", rows, kRows, false});
  add(gradient, {"the output's gradient", output, kHeads, false});
  add(call.bias_batch() > 0, {"bias", bias, kBias, false});
  add(gradient, {"query's gradient", query, kHeads, true});
  add(gradient, {"key's gradient", key, kHeads, true});
  add(gradient, {"value's gradient", value, kHeads, true});
  add(gradient && call.bias_gradient(), {"bias's gradient", bias, kBias, true});
  add(!gradient, {"output", output, kHeads, true});
  add(!gradient, {"logsumexp", rows, kRows, true});
  return tensors;
}

/// Bytes in a gradient's scratch before the workspace: the sums of output times its gradient, one for each row.
inline uint64_t attentionRowBytes(const AttentionCall &call) {
  if (call.kind() != AttentionCall::GRADIENT)
    return 0;
  const uint64_t bytes = uint64_t(call.batch()) * uint64_t(call.heads()) * uint64_t(call.queries()) * sizeof(float);
  return (bytes + kLibraryWorkspaceAlignment - 1) / kLibraryWorkspaceAlignment * kLibraryWorkspaceAlignment;
}

/// The operands of each of the call's kernels, as numbers of the instruction's operands. Attention is one kernel of all
/// operands. Its gradient is two: the first sums output times its gradient of each row, the second one reads these sums
/// in place of the output. Empty: no kernels compute such a call. Valid only if each tensor is in an operand.
inline std::vector<std::vector<int>> attentionKernelOperands(const AttentionCall &call) {
  const std::vector<AttentionTensor> tensors = attentionTensors(call);
  const bool gradient = call.kind() == AttentionCall::GRADIENT;
  if (call.bias_gradient() || call.tensors_size() != static_cast<int>(tensors.size()))
    return {};
  constexpr int kOutput = 3, kOutputGrad = 5; // of the gradient's tensors
  std::set<int> read, written;
  for (int i = 0; i < call.tensors_size(); ++i)
    if (!gradient || i != kOutput)
      (tensors[static_cast<size_t>(i)].isWritten ? written : read).insert(static_cast<int>(call.tensors(i).operand()));
  std::vector<int> last(read.begin(), read.end());
  if (gradient)
    last.push_back(kInScratch);
  last.insert(last.end(), written.begin(), written.end());
  if (!gradient)
    return {last};
  return {{static_cast<int>(call.tensors(kOutput).operand()), static_cast<int>(call.tensors(kOutputGrad).operand()),
           kInScratch},
          last};
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_ATTENTIONLAYOUT_H
