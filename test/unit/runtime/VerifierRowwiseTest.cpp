//===- VerifierRowwiseTest.cpp - products whose rows go to a kernel ------===//
#include "TestPlan.h"

using namespace tcc;
using namespace tcc::test;

namespace {
plan::Entry &step(plan::Plan &plan) { return *plan.mutable_entries(0); }

/// Instruction 3 is t · w, whose two rows of 32 a tile go to a kernel that writes z.
plan::MatmulCall &makeRowwise(plan::Plan &plan) {
  plan::Instruction &call = *step(plan).mutable_instructions(3);
  plan::MatmulCall &matmul = *call.mutable_matmul();
  matmul.set_tile_batch(1);
  matmul.set_tile_m(2);
  matmul.set_tile_n(matmul.n());
  matmul.set_chunk_k(matmul.k());
  matmul.mutable_row_kernel()->set_symbol("rows");
  matmul.mutable_row_kernel()->set_tiles(2);
  matmul.set_row_operands(1);
  plan::KernelSignature &rows = *plan.mutable_code_objects(0)->add_kernels();
  rows.set_symbol("rows");
  rows.set_tiles(2);
  for (bool written : {false, true}) {
    plan::KernelSignature::Operand &operand = *rows.add_operands();
    operand.set_bytes(4 * 32 * 4);
    operand.set_tile_bytes(2 * 32 * 4);
    operand.set_alignment(4);
    operand.set_read(!written);
    operand.set_write(written);
  }
  bindCode(*plan.mutable_code_objects(0), kNoCode);
  return matmul;
}
} // namespace

TEST(VerifierRowwise, AProductAndItsKernel) {
  plan::Plan plan = makeTestPlan();
  makeRowwise(plan);
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
}

TEST(VerifierRowwise, OperandsThatAreNotThere) {
  plan::Plan plan = makeTestPlan();
  makeRowwise(plan).set_row_operands(2);
  expectProblem(plan, {"instruction 3", "takes 4 operands, it has 3"});
  for (int count : {-7, 0, 1 << 30}) {
    plan = makeTestPlan();
    makeRowwise(plan).set_row_operands(count);
    expectProblem(plan, {"instruction 3", "a kernel with " + std::to_string(count) + " operands"});
  }
}

TEST(VerifierRowwise, OperandsTooSmall) {
  plan::Plan plan = makeTestPlan();
  makeRowwise(plan).set_m(64);
  expectProblem(plan, {"instruction 3 (node 'node_matmul')", "A needs", "offers"});
  plan = makeTestPlan();
  plan::MatmulCall &matmul = makeRowwise(plan);
  matmul.set_n(33);
  matmul.set_tile_n(33);
  expectProblem(plan, {"instruction 3", "B needs", "offers"});
}

TEST(VerifierRowwise, TilesThatDoNotMeet) {
  for (int64_t tiles : {1, 3, 0}) {
    plan::Plan plan = makeTestPlan();
    makeRowwise(plan).mutable_row_kernel()->set_tiles(tiles);
    expectProblem(plan, {"instruction 3", "the product's rows come in 2"});
  }
}

TEST(VerifierRowwise, AKernelOfOtherRows) {
  auto refused = [](auto change, const std::string &text) {
    plan::Plan plan = makeTestPlan();
    makeRowwise(plan);
    change(*plan.mutable_code_objects(0)->mutable_kernels()->rbegin());
    bindCode(*plan.mutable_code_objects(0), kNoCode);
    expectProblem(plan, {"instruction 3", text});
  };
  const char *rows = "does not read 2 rows of 32 f32 values of the product a tile";
  refused([](plan::KernelSignature &kernel) { kernel.mutable_operands(0)->set_tile_bytes(0); }, rows);
  refused([](plan::KernelSignature &kernel) { kernel.mutable_operands(0)->set_bytes(1024); }, rows);
  refused([](plan::KernelSignature &kernel) { kernel.set_scratch_bytes(64); }, "which a kernel behind a product");
  refused([](plan::KernelSignature &kernel) { kernel.mutable_operands(1)->set_bytes(1024); }, "needs 1024 bytes");
}

TEST(VerifierRowwise, PartsOfRows) {
  auto expectPart = [](auto change) {
    plan::Plan plan = makeTestPlan();
    change(makeRowwise(plan));
    expectProblem(plan, {"instruction 3", "one product, in f32, of whole rows, added to nothing"});
  };
  expectPart([](plan::MatmulCall &call) { call.set_tile_n(16); });
  expectPart([](plan::MatmulCall &call) { call.set_chunk_k(8); });
  expectPart([](plan::MatmulCall &call) { call.set_accumulate(true); });
  expectPart([](plan::MatmulCall &call) { call.set_result_dtype(plan::BF16); });
}

TEST(VerifierRowwise, AKernelThatWritesWhatTheProductReads) {
  plan::Plan plan = makeTestPlan();
  makeRowwise(plan).set_row_operands(2);
  // The kernel updates w, which is B: later tiles would read what earlier ones wrote.
  plan::Instruction &call = *step(plan).mutable_instructions(3);
  plan::Operand &written = *call.add_operands();
  written.set_buffer(kW);
  written.set_write(true);
  written.set_version_written(1);
  plan::InPlace &pair = *call.add_in_place();
  pair.set_source(1);
  pair.set_destination(3);
  expectProblem(plan, {"instruction 3", "the kernel writes", "which the product reads"});
  plan = makeTestPlan();
  makeRowwise(plan);
  step(plan).mutable_instructions(3)->add_in_place()->set_destination(2);
  expectProblem(plan, {"instruction 3", "the kernel writes in place of", "which the product reads"});
}

TEST(VerifierRowwise, ACodeObjectThatIsNotThere) {
  plan::Plan plan = makeTestPlan();
  makeRowwise(plan).mutable_row_kernel()->set_code(7);
  expectProblem(plan, {"instruction 3", "code object 7 does not exist"});
}
