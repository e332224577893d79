//===- JoinedKernels.h - kernels that share a launch ------------*- C++ -*-===//
//
// A kernel in PTX whose symbol begins with `j` consists of several kernels that share one grid. It is an entry
// `symbol(table, i64 tiles, pointer scratch)`: instead of one parameter for each pointer (KernelAbi.h) it has a table,
// an array of the operands' pointers, passed by value. Each block is one tile, and each kernel has its own range of
// blocks, which is compiled in. The operands are those that the first kernel reads, those that it writes, then those of
// the second kernel, and so on.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_JOINEDKERNELS_H
#define TCC_RUNTIME_PLAN_JOINEDKERNELS_H

#include "runtime/plan/plan.pb.h"

#include <string_view>

namespace tcc::plan {

/// The first letter of symbols of kernels that share a launch; others begin with `k`.
inline constexpr char kJoinedSymbol = 'j';

/// ABI version of code in which kernels share launches. An older `trun`, which would launch them with wrong parameters,
/// refuses this version.
inline constexpr uint32_t kJoinedAbiVersion = 2;

/// Pointers in a table: with tiles and scratch 4 KiB of parameters ("CUDA C++ Programming Guide", __global__ function
/// parameters: the limit before CUDA 12.1).
inline constexpr int kMostTablePointers = (4096 - 16) / 8;

inline bool isJoined(std::string_view symbol) { return !symbol.empty() && symbol.front() == kJoinedSymbol; }

/// The range of an instruction's operands that belongs to one kernel.
struct OperandRange {
  int first = 0, count = 0;
};

/// The operands of the member kernel that `operand` belongs to; all operands if kernels do not share this launch.
inline OperandRange operandsOfMember(const Instruction &instruction, int operand) {
  const int count = instruction.operands_size();
  if (!isJoined(instruction.kernel().symbol()) || operand < 0 || operand >= count)
    return {0, count};
  auto begins = [&](int i) {
    return i == 0 || (instruction.operands(i - 1).write() && !instruction.operands(i).write());
  };
  int first = operand, end = operand + 1;
  while (!begins(first))
    --first;
  while (end < count && !begins(end))
    ++end;
  return {first, end - first};
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_JOINEDKERNELS_H
