//===- VerifierCallsTest.cpp - calls, ports and size of damaged plans ----===//
#include "TestPlan.h"
#include "runtime/plan/Spaces.h"

using namespace tcc;
using namespace tcc::test;

TEST(VerifierCalls, OperandOutOfBounds) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 0).mutable_operands(0)->set_buffer(42);
  expectProblem(plan, {"instruction 0", "operand 0 is buffer 42, the entry has 7"});
  plan = makeTestPlan();
  instruction(plan, 1).mutable_operands(0)->set_byte_offset(256);
  expectProblem(plan, {"instruction 1", "operand 0 starts at byte 256", "'y'"});
}

TEST(VerifierCalls, MatmulLargerThanItsBuffers) {
  for (int which = 0; which < 3; ++which) {
    plan::Plan plan = makeTestPlan();
    plan::MatmulCall &matmul = *instruction(plan, 3).mutable_matmul();
    matmul.set_chunk_k(100);
    which == 0 ? matmul.set_k(17) : which == 1 ? matmul.set_n(33) : matmul.set_m(5);
    expectProblem(plan, {"instruction 3 (node 'node_matmul')", "needs", "offers"});
  }
  plan::Plan plan = makeTestPlan();
  instruction(plan, 3).mutable_matmul()->set_m(int64_t(1) << 39); // products beyond 64 bits
  instruction(plan, 3).mutable_matmul()->set_k(int64_t(1) << 39);
  instruction(plan, 3).mutable_matmul()->set_chunk_k(int64_t(1) << 39);
  expectProblem(plan, {"instruction 3", "A needs"});
}

TEST(VerifierCalls, MatmulThatRoundsReadsF32) {
  plan::Plan plan = makeTestPlan();
  plan::MatmulCall &matmul = *instruction(plan, 3).mutable_matmul(); // 4 x 32 x 16
  matmul.set_dtype(plan::BF16);
  matmul.set_result_dtype(plan::F32);
  matmul.set_k(17);
  matmul.set_chunk_k(17);
  matmul.set_rounds_b(true);
  expectProblem(plan, {"instruction 3", "B needs 2176 bytes"});
}

TEST(VerifierCalls, MatmulThroughAByteOffset) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 3).mutable_operands(0)->set_byte_offset(4);
  expectProblem(plan, {"instruction 3", "A needs 256 bytes", "offers 252"});
  instruction(plan, 3).mutable_operands(0)->set_byte_offset(2);
  expectProblem(plan, {"instruction 3", "A starts inside an element"});
}

TEST(VerifierCalls, MatmulWithoutTilesOrPartialSums) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 3).mutable_matmul()->set_tile_m(0);
  expectProblem(plan, {"instruction 3", "tile_m = 0"});
  plan = makeTestPlan();
  instruction(plan, 3).mutable_matmul()->set_chunk_k(8);
  expectProblem(plan, {"instruction 3", "takes 4 operands, it has 3"});
}

TEST(VerifierCalls, OperandRoles) {
  plan::Plan plan = makeTestPlan();
  std::swap(*instruction(plan, 3).mutable_operands(1), *instruction(plan, 3).mutable_operands(2));
  expectProblem(plan, {"instruction 3", "must be"});
  plan = makeTestPlan();
  instruction(plan, 0).mutable_operands()->RemoveLast();
  expectProblem(plan, {"instruction 0", "a copy takes 2 operands, it has 1"});
}

TEST(VerifierCalls, Convolution) {
  plan::Plan plan = makeTestPlan();
  makeConvolution(plan);
  step(plan).mutable_buffers(kZ)->mutable_type()->set_dims(0, 4);
  for (const std::string &problem : plan::verifyPlan(plan))
    ADD_FAILURE() << problem;

  struct Case {
    const char *text;
    void (*damage)(plan::ConvolutionCall &);
  };
  const Case cases[] = {{"spatial axis 0 does not fit", [](plan::ConvolutionCall &c) { c.set_strides(0, 2); }},
                        {"spatial axis 1 does not fit", [](plan::ConvolutionCall &c) { c.set_dilations(1, 3); }},
                        {"spatial axis 0 does not fit", [](plan::ConvolutionCall &c) { c.set_pads_begin(0, -1); }},
                        {"ranks do not fit", [](plan::ConvolutionCall &c) { c.mutable_strides()->RemoveLast(); }},
                        {"batch or channels do not fit", [](plan::ConvolutionCall &c) { c.set_groups(2); }},
                        {"batch or channels do not fit", [](plan::ConvolutionCall &c) { c.set_groups(0); }},
                        {"with a dimension of 0", [](plan::ConvolutionCall &c) { c.set_x_dims(0, 0); }},
                        {"tile_batch = 0", [](plan::ConvolutionCall &c) { c.set_tile_batch(0); }},
                        {"x needs 2560 bytes", [](plan::ConvolutionCall &c) {
                           c.set_x_dims(0, 10);
                           c.set_y_dims(0, 10);
                         }}};
  for (const Case &damaged : cases) {
    plan = makeTestPlan();
    damaged.damage(makeConvolution(plan));
    expectProblem(plan, {"instruction 3", damaged.text});
  }
}

TEST(VerifierCalls, KernelsAndCode) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 1).mutable_kernel()->set_tiles(0);
  expectProblem(plan, {"instruction 1", "a call of 0 tiles, kernel 'add' has 4"});
  instruction(plan, 1).mutable_kernel()->set_code(3);
  expectProblem(plan, {"instruction 1", "code object 3 does not exist"});
  plan = makeTestPlan();
  plan.mutable_code_objects(0)->set_payload(7);
  expectProblem(plan, {"code object 0", "payload 7 does not exist"});
  plan.mutable_code_objects(0)->set_abi(plan::kKernelAbiVersion + 1);
  expectProblem(plan, {"code object 0", "kernel ABI version 2", "version 1", "recompile"});
  plan = makeTestPlan();
  instruction(plan, 1).clear_call();
  expectProblem(plan, {"instruction 1", "calls nothing"});
}

TEST(VerifierCalls, AKernelsSignature) {
  auto refused = [](auto change, std::initializer_list<std::string> texts) {
    plan::Plan plan = makeTestPlan();
    change(instruction(plan, 1));
    expectProblem(plan, texts);
  };
  refused([](plan::Instruction &call) { call.mutable_operands()->DeleteSubrange(1, 1); },
          {"instruction 1", "kernel 'add' takes 3 operands, it is given 2"});
  refused([](plan::Instruction &call) { call.mutable_kernel()->set_symbol("twice"); },
          {"instruction 1", "kernel 'twice' takes 2 operands, it is given 3"});
  refused([](plan::Instruction &call) { call.mutable_kernel()->set_symbol("none"); },
          {"instruction 1", "no signature of a kernel 'none'"});
  refused([](plan::Instruction &call) { call.mutable_operands(0)->set_byte_offset(4); },
          {"instruction 1", "operand 0 of kernel 'add' needs 256 bytes", "offers 252"});
  refused([](plan::Instruction &call) { call.mutable_operands(0)->set_byte_offset(2); },
          {"instruction 1", "starts inside an element"});
  refused([](plan::Instruction &call) { call.mutable_operands(1)->set_write(true); },
          {"instruction 1", "operand 1 of kernel 'add'", "is read, the plan says it is read and written"});
  refused([](plan::Instruction &call) { call.mutable_operands(2)->set_write(false); },
          {"instruction 1", "operand 2 of kernel 'add'", "is written, the plan says it is not touched"});
  refused([](plan::Instruction &call) { call.add_in_place()->set_destination(2); },
          {"instruction 1", "kernel 'add' cannot write its operand 2 in place of 0"});
}

TEST(VerifierCalls, SignaturesThatDoNotBelongToTheCode) {
  auto refused = [](auto change) {
    plan::Plan plan = makeTestPlan();
    change(*plan.mutable_code_objects(0));
    expectProblem(plan, {"code object 0", "the signatures of its kernels do not belong to its code"});
  };
  refused([](plan::CodeObject &code) { code.mutable_kernels(0)->mutable_operands(1)->set_bytes(4); });
  refused([](plan::CodeObject &code) { code.mutable_kernels(0)->mutable_operands()->RemoveLast(); });
  refused([](plan::CodeObject &code) { code.mutable_kernels(0)->set_tiles(5); });
  refused([](plan::CodeObject &code) { code.mutable_kernels(0)->set_scratch_bytes(64); });
  refused([](plan::CodeObject &code) { code.mutable_kernels(1)->mutable_in_place(0)->set_required(true); });
  refused([](plan::CodeObject &code) { code.mutable_kernels()->SwapElements(0, 1); });
  refused([](plan::CodeObject &code) { code.set_signatures_xxh3(1); });
  plan::Plan plan = makeTestPlan();
  plan.mutable_payloads(0)->set_xxh3(1);
  expectProblem(plan, {"code object 0", "do not belong"});
}

TEST(VerifierCalls, ScratchOfAKernel) {
  plan::Plan plan = makeTestPlan();
  plan.mutable_code_objects(0)->mutable_kernels(0)->set_scratch_bytes(64);
  bindCode(*plan.mutable_code_objects(0), kNoCode);
  expectProblem(plan, {"instruction 1", "kernel 'add' needs 64 bytes of scratch", "has 0"});
}

TEST(VerifierCalls, AKernelThatMustUpdateInPlace) {
  plan::Plan plan = makeTestPlan();
  for (plan::KernelSignature::Pair &pair : *plan.mutable_code_objects(0)->mutable_kernels(1)->mutable_in_place())
    pair.set_required(true);
  bindCode(*plan.mutable_code_objects(0), kNoCode);
  EXPECT_TRUE(plan::verifyPlan(plan).empty());
  instruction(plan, 2).clear_in_place();
  expectProblem(plan, {"instruction 2", "kernel 'twice' updates its operand 0 in place"});
}

TEST(VerifierCalls, Ports) {
  plan::Plan plan = makeTestPlan();
  step(plan).mutable_inputs(0)->set_buffer(99);
  expectProblem(plan, {"input 'x'", "buffer 99 does not exist"});
  step(plan).mutable_inputs(0)->set_buffer(kY);
  expectProblem(plan, {"input 'x'", "not of kind INPUT"});
  step(plan).mutable_outputs(0)->set_buffer(kT);
  expectProblem(plan, {"output 'z'", "dies at instruction 3"});
  step(plan).mutable_outputs(0)->set_sample_axis(5);
  expectProblem(plan, {"output 'z'", "sample axis 5"});
  step(plan).set_scalars(kX);
  expectProblem(plan, {"cannot hold the 0 run-time scalars"});
  step(plan).set_scalars(-1);
  step(plan).set_counters(99);
  expectProblem(plan, {"its counters are buffer 99"});
  step(plan).set_counters(kX);
  expectProblem(plan, {"cannot hold the counters of random numbers"});
}

/// Counters are four words that are live from the start of the entry, like inputs.
TEST(VerifierCalls, Counters) {
  plan::Plan plan = makeTestPlan();
  step(plan).set_counters(step(plan).buffers_size());
  plan::Buffer &counters = *addBuffer(step(plan), "counters", {4}, plan::TRANSIENT, 512, -1, 0); // z is not live yet
  counters.set_kind(plan::Buffer::COUNTERS);
  counters.mutable_type()->set_dtype(plan::U32);
  std::vector<std::string> problems = plan::verifyPlan(plan);
  EXPECT_TRUE(problems.empty()) << problems.front();
  counters.set_first(0);
  expectProblem(plan, {"filled before the entry runs"});
}

TEST(VerifierCalls, NamesUsedTwice) {
  plan::Plan plan = makeTestPlan();
  *plan.add_entries() = plan.entries(0);
  expectProblem(plan, {"entry 'step'", "used twice"});
  plan.mutable_variables(1)->set_name("w");
  expectProblem(plan, {"variable 'w'", "used twice"});
}

TEST(VerifierCalls, MessagesAreLimited) {
  plan::Plan plan = makeTestPlan();
  for (int i = 0; i < 500; ++i)
    addVariable(plan, "more", {1}, 0, 0);
  EXPECT_EQ(plan::verifyPlan(plan, 7).size(), 7u);
}

/// Five thousand buffers with overlapping live ranges and distinct offsets; then one is moved onto a neighbour.
TEST(VerifierCalls, ManyBuffers) {
  constexpr int count = 5000, ring = 64;
  plan::Plan plan;
  plan.set_max_workers(1);
  plan.set_model_payload(-1);
  plan::setSpaceBytes(plan, plan::TRANSIENT, ring * 64);
  plan::Entry &entry = *plan.add_entries();
  entry.set_name("step");
  entry.set_scalars(-1);
  entry.set_batch(1);
  entry.set_transient_bytes(ring * 64);
  for (int i = 0; i < count; ++i) {
    addBuffer(entry, "v" + std::to_string(i), {16}, plan::TRANSIENT, static_cast<uint64_t>(i % ring) * 64, i,
              std::min(i + ring - 1, count));
    plan::Instruction *fill = entry.add_instructions();
    fill->mutable_fill();
    addOperand(*fill, static_cast<uint32_t>(i), -1, 1);
  }
  EXPECT_TRUE(plan::verifyPlan(plan).empty()) << plan::verifyPlan(plan).front();
  entry.mutable_buffers(2500)->set_offset(static_cast<uint64_t>(2499 % ring) * 64);
  expectProblem(plan, {"'v2499'", "'v2500'", "overlap while both live, at instruction 2500"});
}
