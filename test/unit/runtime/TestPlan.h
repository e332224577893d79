//===- TestPlan.h - a small good plan to run and to damage ---------------===//
//
// Entry "step" of 4 instructions over three variables w [16x32], b [64], unused [3]:
//   0 copy    x -> y            (x: input, 64 f32)
//   1 kernel  s = add(y, b)     (code object 0)
//   2 kernel  t = twice(s)      in place of s
//   3 matmul  z = t[4x16] · w[16x32]
//   4 kernel  b = twice(b)      in place, state
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_RUNTIME_TESTPLAN_H
#define TCC_TEST_UNIT_RUNTIME_TESTPLAN_H

#include "runtime/cpu/Library.h"
#include "test/support/Choose.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Verifier.h"
#include "runtime/plan/Spaces.h"
#include "test/support/HandMadeCode.h"

#include <gtest/gtest.h>
#include <string>

namespace tcc::test {

inline plan::Buffer *addBuffer(plan::Entry &entry, const std::string &name, std::vector<int64_t> dims,
                               plan::Arena arena, uint64_t offset, int first, int last, int variable = -1) {
  plan::Buffer *buffer = entry.add_buffers();
  buffer->set_name(name);
  buffer->set_node("node_" + name);
  buffer->mutable_type()->set_dtype(plan::F32);
  uint64_t count = 1;
  for (int64_t dim : dims) {
    buffer->mutable_type()->add_dims(dim);
    count *= static_cast<uint64_t>(dim);
  }
  buffer->set_arena(arena);
  buffer->set_offset(offset);
  buffer->set_bytes(count * 4);
  buffer->set_first(first);
  buffer->set_last(last);
  buffer->set_variable(variable);
  if (variable >= 0)
    buffer->set_kind(plan::Buffer::STATE);
  return buffer;
}

inline void addOperand(plan::Instruction &instruction, uint32_t buffer, int readVersion, int writtenVersion) {
  plan::Operand *operand = instruction.add_operands();
  operand->set_buffer(buffer);
  operand->set_read(readVersion >= 0);
  operand->set_write(writtenVersion >= 0);
  operand->set_version(readVersion >= 0 ? readVersion : 0);
  operand->set_version_written(writtenVersion >= 0 ? writtenVersion : 0);
}

inline plan::Variable *addVariable(plan::Plan &plan, const std::string &name, std::vector<int64_t> dims,
                                   uint64_t offset, double fill) {
  plan::Variable *variable = plan.add_variables();
  variable->set_name(name);
  variable->mutable_type()->set_dtype(plan::F32);
  for (int64_t dim : dims)
    variable->mutable_type()->add_dims(dim);
  variable->set_offset(offset);
  variable->set_fill(fill);
  return variable;
}

inline plan::Instruction *addKernel(plan::Entry &entry, const std::string &symbol, int64_t tiles) {
  plan::Instruction *instruction = entry.add_instructions();
  instruction->set_node("node_" + symbol);
  instruction->mutable_kernel()->set_symbol(symbol);
  instruction->mutable_kernel()->set_tiles(tiles);
  return instruction;
}

enum TestBuffer : uint32_t { kX, kY, kS, kT, kZ, kW, kB };

/// The number of tiles that the product states; stating more than it has is allowed.
inline constexpr int64_t kTestTiles = 32;

/// The bytes of the code object in plans that do not run.
inline constexpr std::string_view kNoCode = "x";

/// The plan above. Payload 0 is its code object; for other code than kNoCode call bindCode. Its level is the machine's,
/// so that this process can run it.
inline plan::Plan makeTestPlan() {
  plan::Plan plan;
  plan.set_format_version(plan::kPlanFormatVersion);
  plan.set_producer("test");
  plan.set_target(test::machineLevel());
  plan.set_max_workers(4);
  plan.set_library(runtime::libraryName());
  plan.set_model_payload(-1);
  plan::Payload &code = *plan.add_payloads();
  code.set_bytes(kNoCode.size());
  code.set_xxh3(plan::hashBytes(kNoCode.data(), kNoCode.size()));
  plan.add_code_objects()->set_abi(plan::kKernelAbiVersion);
  addVariable(plan, "w", {16, 32}, 0, 0.5);
  addVariable(plan, "b", {64}, 2048, 3);
  addVariable(plan, "unused", {3}, 2304, 1);
  plan::setSpaceBytes(plan, plan::RESIDENT, 2304 + 12);

  plan::MatmulCall matmul;
  matmul.set_dtype(plan::F32);
  matmul.set_batch(1);
  matmul.set_m(4);
  matmul.set_n(32);
  matmul.set_k(16);
  auto needs = test::query(matmul);
  EXPECT_TRUE(needs.ok()) << needs.message();

  plan::Entry &entry = *plan.add_entries();
  entry.set_name("step");
  entry.set_scalars(-1);
  entry.set_batch(64);
  addBuffer(entry, "x", {64}, plan::TRANSIENT, 0, -1, 0)->set_kind(plan::Buffer::INPUT);
  addBuffer(entry, "y", {64}, plan::TRANSIENT, 256, 0, 1);
  addBuffer(entry, "s", {64}, plan::TRANSIENT, 0, 1, 2);    // in the place of x, which is dead
  addBuffer(entry, "t", {4, 16}, plan::TRANSIENT, 0, 2, 3); // in s's place, by a declared pair
  addBuffer(entry, "z", {4, 32}, plan::TRANSIENT, 512, 3, 5)->set_kind(plan::Buffer::OUTPUT);
  addBuffer(entry, "w", {16, 32}, plan::RESIDENT, 0, -1, 5, 0);
  addBuffer(entry, "b", {64}, plan::RESIDENT, 2048, -1, 5, 1);
  uint64_t slot = std::max<uint64_t>(needs->scratchSlotBytes, 512); // the product may need none

  plan::Instruction *copy = entry.add_instructions();
  copy->mutable_copy();
  addOperand(*copy, kX, 0, -1);
  addOperand(*copy, kY, -1, 1);
  plan::Instruction *add = addKernel(entry, "add", 4);
  addOperand(*add, kY, 1, -1);
  addOperand(*add, kB, 0, -1);
  addOperand(*add, kS, -1, 1);
  plan::Instruction *twice = addKernel(entry, "twice", 4);
  addOperand(*twice, kS, 1, -1);
  addOperand(*twice, kT, -1, 1);
  twice->add_in_place()->set_destination(1);
  plan::Instruction *product = entry.add_instructions();
  product->set_node("node_matmul");
  *product->mutable_matmul() = matmul;
  product->set_tiles(kTestTiles);
  product->set_scratch_offset(1024); // above z
  product->set_scratch_slot_bytes(slot);
  addOperand(*product, kT, 1, -1);
  addOperand(*product, kW, 0, -1);
  addOperand(*product, kZ, -1, 1);
  plan::Instruction *update = addKernel(entry, "twice", 4);
  addOperand(*update, kB, 0, -1);
  addOperand(*update, kB, -1, 1);
  update->add_in_place()->set_destination(1);

  entry.set_transient_bytes(1024 + slot * plan.max_workers());
  plan::setSpaceBytes(plan, plan::TRANSIENT, entry.transient_bytes());

  plan::Port *input = entry.add_inputs();
  input->set_name("x");
  input->set_buffer(kX);
  plan::Port *output = entry.add_outputs();
  output->set_name("z");
  output->set_buffer(kZ);
  describeKernels(plan);
  bindCode(*plan.mutable_code_objects(0), kNoCode);
  return plan;
}

/// Fails unless some message about the plan contains all the texts.
inline void expectProblem(const plan::Plan &plan, std::initializer_list<std::string> texts) {
  std::vector<std::string> problems = plan::verifyPlan(plan);
  EXPECT_FALSE(problems.empty()) << "nothing was found";
  std::string all;
  for (const std::string &problem : problems) {
    bool hit = true;
    for (const std::string &text : texts)
      hit &= problem.find(text) != std::string::npos;
    if (hit)
      return;
    all += problem + "\n";
  }
  ADD_FAILURE() << "no message says '" << *texts.begin() << "' …; there are:\n" << all;
}

/// Instruction 3 replaced by a convolution z[1,2,8,8] = t[1,1,8,8] * w[2,1,3,3].
inline plan::ConvolutionCall &makeConvolution(plan::Plan &plan) {
  plan::Instruction &call = *plan.mutable_entries(0)->mutable_instructions(3);
  plan::ConvolutionCall &conv = *call.mutable_convolution();
  conv.set_dtype(plan::F32);
  for (int64_t d : {1, 1, 8, 8})
    conv.add_x_dims(d);
  for (int64_t d : {2, 1, 3, 3})
    conv.add_w_dims(d);
  for (int64_t d : {1, 2, 8, 8})
    conv.add_y_dims(d);
  for (int i = 0; i < 2; ++i) {
    conv.add_strides(1);
    conv.add_dilations(1);
    conv.add_pads_begin(1);
    conv.add_pads_end(1);
  }
  conv.set_groups(1);
  conv.set_tile_batch(1);
  return conv;
}

/// The entry of a plan that makeTestPlan() made, and its instruction of that number.
inline plan::Entry &step(plan::Plan &plan) { return *plan.mutable_entries(0); }
inline plan::Instruction &instruction(plan::Plan &plan, int index) { return *step(plan).mutable_instructions(index); }

} // namespace tcc::test

#endif // TCC_TEST_UNIT_RUNTIME_TESTPLAN_H
