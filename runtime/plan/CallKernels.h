//===- CallKernels.h - kernels that a library's call can do without -*- C++ -*-===//
//
// Some calls of libraries name generated kernels for machines whose library cannot compute them. The kernels of
// attention compute all of the call. Those of an epilogue finish the plain product or convolution, which the library
// still computes. Compiler, verifier and device agree here on which operands each kernel takes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_CALLKERNELS_H
#define TCC_RUNTIME_PLAN_CALLKERNELS_H

#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <utility>
#include <vector>

namespace tcc::plan {

using KernelCalls = google::protobuf::RepeatedPtrField<KernelCall>;

inline bool isFinished(const ConvolutionCall &call) { return call.finish() != ConvolutionCall::SUMS; }

/// True for calls that kernels can compute or finish. Whether a plan has them is another question.
inline bool mayHaveKernels(const Instruction &instruction) {
  return instruction.has_attention() || instruction.matmul().has_epilogue() || isFinished(instruction.convolution());
}

/// Of such a call, in the order of their launches. Empty: only the library computes it.
inline const KernelCalls &kernelsOf(const Instruction &instruction) {
  return instruction.has_attention() ? instruction.attention().kernels()
         : instruction.has_matmul()  ? instruction.matmul().epilogue().kernels()
                                     : instruction.convolution().kernels();
}
inline KernelCalls &mutableKernelsOf(Instruction &instruction) {
  return instruction.has_attention() ? *instruction.mutable_attention()->mutable_kernels()
         : instruction.has_matmul()  ? *instruction.mutable_matmul()->mutable_epilogue()->mutable_kernels()
                                     : *instruction.mutable_convolution()->mutable_kernels();
}

/// The numbers of an instruction's operands with an epilogue. -1: there is none.
struct EpilogueOperands {
  int added = -1; ///< the bias, or the x of GELU_GRADIENT
  int bias = -1;  ///< the bias that kernels add
  int c = -1, kept = -1, sums = -1;
  int count = 0;

  static EpilogueOperands of(const Epilogue &epilogue) {
    EpilogueOperands at;
    int next = 2; // after A and B
    if (epilogue.kind() != Epilogue::NONE)
      at.added = next++;
    at.bias = epilogue.kind() == Epilogue::GELU_GRADIENT ? -1 : at.added;
    if (epilogue.exact_bias())
      at.bias = next++;
    at.c = next++;
    if (epilogue.keeps_input())
      at.kept = next++;
    if (epilogue.sums() != Epilogue::NO_SUMS)
      at.sums = next++;
    at.count = next;
    return at;
  }
  /// Where kernels expect the plain product: they read it behind gelu, and else write C over it.
  int product() const { return kept >= 0 ? kept : c; }
};

/// The most parts in which kernels sum: bytes of sums then fit into 64 bits.
inline constexpr int64_t kMostSumParts = int64_t(1) << 20;

/// Bytes at the start of the aligned scratch through which one kernel of a call passes sums to the next. Valid for
/// dimensions up to 2⁴⁰ and at most kMostSumParts.
inline uint64_t callKernelScratchBytes(const Instruction &instruction) {
  if (instruction.has_attention())
    return attentionRowBytes(instruction.attention());
  const MatmulCall &call = instruction.matmul();
  const Epilogue &epilogue = call.epilogue();
  if (!instruction.has_matmul() || epilogue.sum_parts() <= 1)
    return 0;
  const uint64_t bytes = static_cast<uint64_t>(epilogue.sum_parts()) * sizeof(float) *
                         static_cast<uint64_t>(epilogue.sums() == Epilogue::OF_A ? call.m() : call.n());
  return (bytes + kLibraryWorkspaceAlignment - 1) / kLibraryWorkspaceAlignment * kLibraryWorkspaceAlignment;
}

/// The operands of each of the call's kernels, as numbers of the instruction's operands, or kInScratch. Empty: no
/// kernels compute such a call. Valid only for calls that the verifier has accepted.
inline std::vector<std::vector<int>> callKernelOperands(const Instruction &instruction) {
  if (instruction.has_attention())
    return attentionKernelOperands(instruction.attention());
  if (instruction.has_convolution()) {
    const int bias = instruction.convolution().exact_bias() ? 3 : 2, y = bias + 1;
    return {{y, bias, y}};
  }
  const Epilogue &epilogue = instruction.matmul().epilogue();
  const EpilogueOperands at = EpilogueOperands::of(epilogue);
  std::vector<std::vector<int>> all;
  if (epilogue.kind() == Epilogue::GELU_GRADIENT) {
    if (at.bias < 0)
      return {};
    all.push_back({at.c, at.added, at.bias, at.c});
  } else if (epilogue.kind() != Epilogue::NONE) {
    all.push_back({at.product(), at.bias, at.c});
  }
  if (at.sums < 0)
    return all;
  const int summed = epilogue.sums() == Epilogue::OF_A ? 0 : epilogue.sums() == Epilogue::OF_B ? 1 : at.c;
  if (epilogue.sum_parts() <= 1) {
    all.push_back({summed, at.sums});
    return all;
  }
  all.push_back({summed, kInScratch});
  all.push_back({kInScratch, at.sums});
  return all;
}

/// The product or convolution alone that the call's kernels finish, and its operands as numbers of the instruction's.
/// None for attention.
inline std::pair<Instruction, std::vector<int>> plainCallOf(const Instruction &instruction) {
  std::pair<Instruction, std::vector<int>> plain;
  if (instruction.has_matmul()) {
    *plain.first.mutable_matmul() = instruction.matmul();
    plain.first.mutable_matmul()->clear_epilogue();
    plain.second = {0, 1, EpilogueOperands::of(instruction.matmul().epilogue()).product()};
  } else if (instruction.has_convolution()) {
    ConvolutionCall &call = *plain.first.mutable_convolution();
    call = instruction.convolution();
    call.clear_finish();
    call.clear_kernels();
    call.clear_exact_bias();
    plain.second = {0, 1, instruction.convolution().exact_bias() ? 4 : 3};
  }
  return plain;
}

/// Launches of a call that kernels compute or finish.
inline int64_t launchesByKernels(const Instruction &instruction) {
  return kernelsOf(instruction).size() + !instruction.has_attention();
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_CALLKERNELS_H
