//===- HandMadePlan.h - a plan small enough to count by hand --------------===//
//
// Program "step", 192 bytes resident. Bytes of the transient arena over time ('=': the place passes from b to c):
//
//   address  instruction 0     1       2      3
//   256–1256             .     scratch .      .
//   128–256              .     b       b=c    c
//    64–128              a     a       .      .
//     0–64               x     .       .      .
//   live               128  1192     128    128
//
// Scratch is that of two workers: 200 bytes together, and 400 each.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_REPORT_HANDMADEPLAN_H
#define TCC_TEST_UNIT_REPORT_HANDMADEPLAN_H

#include "runtime/plan/plan.pb.h"
#include "runtime/plan/Spaces.h"

#include <string>
#include <vector>

namespace tcc::test {

inline plan::Variable &addVariable(plan::Plan &plan, const std::string &name, plan::VariableRole role, int64_t count,
                                   uint64_t offset) {
  plan::Variable &variable = *plan.add_variables();
  variable.set_name(name);
  variable.set_role(role);
  variable.set_offset(offset);
  variable.mutable_type()->set_dtype(plan::F32);
  variable.mutable_type()->add_dims(count);
  return variable;
}

inline plan::Buffer &addBuffer(plan::Entry &entry, const std::string &name, uint64_t offset, uint64_t bytes, int first,
                               int last) {
  plan::Buffer &buffer = *entry.add_buffers();
  buffer.set_name(name);
  buffer.set_node("node_" + name);
  buffer.set_arena(plan::TRANSIENT);
  buffer.set_offset(offset);
  buffer.set_bytes(bytes);
  buffer.set_first(first);
  buffer.set_last(last);
  buffer.set_variable(-1);
  buffer.set_why_alive("read by node_after_" + name);
  buffer.mutable_type()->set_dtype(plan::U8);
  buffer.mutable_type()->add_dims(int64_t(bytes));
  return buffer;
}

inline plan::Instruction &addInstruction(plan::Entry &entry, const std::string &node, double flops, uint64_t bytes) {
  plan::Instruction &instruction = *entry.add_instructions();
  instruction.set_node(node);
  instruction.add_nodes(node);
  instruction.set_flops(flops);
  instruction.set_bytes(bytes);
  entry.set_flops(entry.flops() + flops);
  return instruction;
}

inline plan::Plan handMadePlan() {
  plan::Plan plan;
  plan.set_producer("tcc test");
  plan.set_model("hand.onnx");
  plan.set_target("cpu:v3");
  plan.set_library("some library");
  plan.set_max_workers(2);
  plan::setSpaceBytes(plan, plan::RESIDENT, 192);
  plan::setSpaceBytes(plan, plan::TRANSIENT, 1280);
  plan.mutable_training()->set_accumulate(1);
  addVariable(plan, "w", plan::PARAMETER, 16, 0);
  addVariable(plan, "w/momentum_buffer", plan::OPTIMIZER, 16, 64);
  addVariable(plan, "dead", plan::PARAMETER, 4, 128);
  addVariable(plan, "mean", plan::FROZEN, 2, 144);
  plan::OptimizerGroup &group = *plan.mutable_training()->mutable_optimizer()->add_groups();
  group.set_name("default");
  group.set_lr_scale(1);
  group.set_weight_decay(0.5);
  plan::Decisions::GroupMembers &members = *plan.mutable_decisions()->add_groups();
  members.set_name("default");
  members.add_parameters("w");
  plan::Decisions::Unused &unused = *plan.mutable_decisions()->add_unused_parameters();
  unused.set_name("dead");
  unused.set_reason("its branch is read by nobody");
  unused.set_node("dead_branch");
  plan::Decisions::ZeroFill &kept = *plan.mutable_decisions()->add_zero_fill_kept();
  kept.set_parameter("w");
  kept.set_bytes(64);
  kept.set_reason("scattered into");

  plan::Entry &step = *plan.add_entries();
  step.set_name("step");
  step.set_batch(8);
  step.set_transient_bytes(1280);
  step.set_scalars(-1);
  addBuffer(step, "x", 0, 64, -1, 0).set_kind(plan::Buffer::INPUT);
  addBuffer(step, "a", 64, 64, 0, 1);
  addBuffer(step, "b", 128, 128, 1, 2);
  addBuffer(step, "c", 128, 128, 2, 4).set_kind(plan::Buffer::OUTPUT);
  plan::Buffer &state = addBuffer(step, "w", 0, 64, -1, 4);
  state.set_arena(plan::RESIDENT);
  state.set_kind(plan::Buffer::STATE);
  state.set_variable(0);
  addInstruction(step, "first", 10, 128).mutable_kernel()->set_symbol("k_same");
  plan::Instruction &product = addInstruction(step, "product", 1000, 192);
  product.mutable_matmul();
  product.set_tiles(4);
  product.set_scratch_offset(256);
  product.set_scratch_shared_bytes(200);
  product.set_scratch_slot_bytes(400);
  addInstruction(step, "third", 10, 256).mutable_kernel()->set_symbol("k_same");
  addInstruction(step, "last", 0, 64).mutable_fill();
  return plan;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_REPORT_HANDMADEPLAN_H
