//===- JoinedKernels.h - kernels that share a launch ------------*- C++ -*-===//
//
// A kernel in PTX whose symbol begins with `j` is several that divide the blocks of one grid. It is an entry
// `symbol(table, i64 tiles, pointer scratch)`, where KernelAbi.h has a parameter for each pointer: the table is an
// array of the operands' pointers, by value. What a block does is a tile: there are as many blocks as tiles, and each
// kernel has blocks of its own, whose numbers are compiled in. Operands are those that the first kernel reads, those
// that it writes, then the second one's, and so on.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_JOINEDKERNELS_H
#define TCC_RUNTIME_PLAN_JOINEDKERNELS_H

#include "runtime/plan/plan.pb.h"

#include <string_view>

namespace tcc::plan {

/// The first letter of symbols of kernels that share a launch; others begin with `k`.
inline constexpr char kJoinedSymbol = 'j';

/// Version of the contract of code in which kernels share launches. A `trun` that knows none would launch them with
/// wrong parameters, and refuses this version.
inline constexpr uint32_t kJoinedAbiVersion = 2;

/// Pointers in a table: with tiles and scratch 4 KiB of parameters ("CUDA C++ Programming Guide", __global__ function
/// parameters: the limit before CUDA 12.1).
inline constexpr int kMostTablePointers = (4096 - 16) / 8;

inline bool isJoined(std::string_view symbol) { return !symbol.empty() && symbol.front() == kJoinedSymbol; }

/// A range of an instruction's operands: those of one kernel.
struct OperandRange {
  int first = 0, count = 0;
};

/// The operands of the kernel that has an operand; all of an instruction that is one kernel, or none.
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
