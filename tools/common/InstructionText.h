//===- InstructionText.h - describe a plan's instruction in words --*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_INSTRUCTIONTEXT_H
#define TCC_TOOLS_COMMON_INSTRUCTIONTEXT_H

#include "runtime/plan/plan.pb.h"

#include <string>

namespace tcc::report {

/// Who executes an instruction: the library, a kernel that tcc generated, or neither (copies and fills).
enum class InstructionKind { Library, Generated, Copy };
InstructionKind instructionKind(const plan::Instruction &instruction);

/// "library", "generated", "copy".
const char *kindName(InstructionKind kind);

/// "matmul 256x768x3072 NT", "conv 3x3 256->256 8x14x14 forward", "kernel 3fa2bc91 of 7 nodes", "copy f32 4x64". Fields
/// of the call that this function does not know are appended by name, so that two calls that differ read differently.
/// `byKernels`: the plan's kernels compute or finish the library's call.
std::string instructionText(const plan::Entry &entry, const plan::Instruction &instruction, bool byKernels = false);

/// " + bias, gelu and its input", " with sums of A": the epilogue of a product's call; "" without one.
std::string epilogueText(const plan::MatmulCall &call);

/// " + bias": the same for a convolution's call.
std::string finishText(const plan::ConvolutionCall &call);

/// Equal for instructions that execute the same call: all fields of the call, its operations and bytes.
std::string instructionKey(const plan::Entry &entry, const plan::Instruction &instruction);

/// The element type that a call multiplies; f32 where it names none: most generated kernels compute in it.
plan::DType arithmeticType(const plan::Instruction &instruction);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_INSTRUCTIONTEXT_H
