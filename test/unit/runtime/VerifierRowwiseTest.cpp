//===- VerifierRowwiseTest.cpp - products whose rows go to a kernel ------===//
#include "TestPlan.h"

#include <fmt/ranges.h>
#include <functional>

using namespace tcc;
using namespace tcc::test;

namespace {
/// Makes instruction 3, t · w, pass the two rows of 32 of each tile to a kernel that writes z.
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
    expectProblem(plan, {"instruction 3", "one product in f32 of whole rows, without addend"});
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

namespace {
/// The same for a card: a product of cuBLASLt in two slices of two rows; a slice has two tiles, one for each warp.
plan::Plan onCard(const std::function<void(plan::Instruction &, plan::KernelSignature &)> &change) {
  plan::Plan plan = makeTestPlan();
  plan::MatmulCall &matmul = makeRowwise(plan);
  plan.set_target("cuda:sm_90");
  plan.set_execution(plan::Plan::GRIDS);
  plan::CodeObject &code = *plan.mutable_code_objects(0);
  code.set_format(plan::CodeObject::PTX);
  code.set_processor("sm_90");
  for (plan::KernelSignature &kernel : *code.mutable_kernels())
    kernel.set_tile_threads(32);
  auto onGrid = [](plan::KernelCall &call) {
    call.mutable_grid()->set_blocks(2);
    call.mutable_grid()->set_threads(64);
  };
  for (plan::Instruction &instruction : *step(plan).mutable_instructions())
    if (instruction.has_kernel())
      onGrid(*instruction.mutable_kernel());
  onGrid(*matmul.mutable_row_kernel());
  matmul.set_implementation(plan::MatmulCall::BLAS);
  matmul.set_library_scratch_bytes(512);
  matmul.mutable_row_kernel()->set_tiles(4);
  plan::KernelSignature &rows = *code.mutable_kernels()->rbegin();
  rows.set_tiles(4);
  for (plan::KernelSignature::Operand &operand : *rows.mutable_operands())
    operand.set_tile_bytes(32 * 4), operand.set_alignment(16);
  plan::Instruction &instruction = *step(plan).mutable_instructions(3);
  instruction.set_tiles(1);
  instruction.clear_scratch_shared_bytes();
  // A slice of 256 bytes, the workspace, and padding that aligns both.
  instruction.set_scratch_slot_bytes(256 + 512 + plan::kLibraryWorkspaceAlignment);
  change(instruction, rows);
  const uint64_t end = instruction.scratch_offset() + instruction.scratch_slot_bytes();
  step(plan).set_transient_bytes(end);
  plan::setSpaceBytes(plan, plan::TRANSIENT, end);
  bindCode(code, kNoCode);
  return plan;
}

std::string problemsOnCard(const std::function<void(plan::Instruction &, plan::KernelSignature &)> &change) {
  return fmt::format("{}", fmt::join(plan::verifyPlan(onCard(change), 20), "\n"));
}
} // namespace

TEST(VerifierRowwise, SlicesOnACard) {
  EXPECT_EQ(problemsOnCard([](auto &, auto &) {}), "");
  auto finds = [](auto change, const char *words) {
    const std::string problems = problemsOnCard(change);
    EXPECT_NE(problems.find(words), std::string::npos) << words << "\n" << problems;
  };
  finds([](plan::Instruction &call, auto &) { call.set_scratch_slot_bytes(512 + plan::kLibraryWorkspaceAlignment); },
        "does not hold an aligned slice and workspace of 768");
  finds([](plan::Instruction &call, auto &) { call.mutable_matmul()->mutable_row_kernel()->clear_grid(); },
        "a grid of 0 blocks");
  // A tile of three rows ends in the middle of a slice; five tiles do not divide the rows evenly.
  const char *tiles = "slices of 2 rows are no whole tiles of kernel 'rows'";
  finds([](auto &, plan::KernelSignature &rows) { rows.mutable_operands(0)->set_tile_bytes(3 * 32 * 4); }, tiles);
  finds(
      [](plan::Instruction &call, plan::KernelSignature &rows) {
        rows.set_tiles(5), call.mutable_matmul()->mutable_row_kernel()->set_tiles(5);
      },
      tiles);
  finds(
      [](plan::Instruction &call, plan::KernelSignature &rows) {
        call.mutable_matmul()->set_n(33), call.mutable_matmul()->set_tile_n(33);
        rows.mutable_operands(0)->set_alignment(64);
      },
      "slices of 2 rows of 33 f32 values do not begin at multiples of 64 bytes");
  finds([](plan::Instruction &call, auto &) { call.mutable_matmul()->set_tile_n(16); }, "it is cut along n");
  // Called alone, the kernel would get one parameter too few.
  plan::Plan plan = onCard([](auto &, auto &) {});
  for (plan::KernelSignature &kernel : *plan.mutable_code_objects(0)->mutable_kernels())
    kernel.mutable_operands(0)->set_tile_bytes(32 * 4);
  bindCode(*plan.mutable_code_objects(0), kNoCode);
  expectProblem(plan, {"instruction 1", "takes slices of a product, but no product calls it"});
}
