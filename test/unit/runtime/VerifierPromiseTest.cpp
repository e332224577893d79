//===- VerifierPromiseTest.cpp - other promises that a runtime trusts -----===//
#include "TestPlan.h"
#include "runtime/plan/FourBits.h"

using namespace tcc;
using namespace tcc::test;

namespace {
/// Changes the test plan, and expects a message with all the texts.
void refused(const std::function<void(plan::Plan &)> &change, std::initializer_list<std::string> texts) {
  plan::Plan plan = makeTestPlan();
  ASSERT_EQ(plan::verifyPlan(plan), std::vector<std::string>());
  change(plan);
  expectProblem(plan, texts);
}
} // namespace

TEST(VerifierPromise, BuffersOfNoKnownKind) {
  // The device would treat an unknown arena as the transient one, but the search for overlaps would skip it.
  refused([](plan::Plan &plan) { step(plan).mutable_buffers(kY)->set_arena(static_cast<plan::Arena>(7)); },
          {"'y'", "there is no memory space 7"});
  refused([](plan::Plan &plan) { step(plan).mutable_buffers(kY)->set_kind(static_cast<plan::Buffer::Kind>(70)); },
          {"'y'", "there is no kind 70"});
  refused([](plan::Plan &plan) { step(plan).mutable_buffers(kY)->mutable_type()->set_dtype(plan::DTYPE_NONE); },
          {"'y'", "no element type"});
}

TEST(VerifierPromise, AVariableIsOneBuffer) {
  refused([](plan::Plan &plan) { *step(plan).add_buffers() = plan.entries(0).buffers(kB); },
          {"variable 'b' is another buffer already"});
}

TEST(VerifierPromise, FilledBuffersAreFilled) {
  refused([](plan::Plan &plan) { step(plan).clear_inputs(); }, {"nothing fills", "'x'"});
  refused(
      [](plan::Plan &plan) {
        plan::Port &again = *step(plan).add_inputs();
        again = plan.entries(0).inputs(0);
        again.set_name("again");
      },
      {"input 'again'", "is another input already"});
  refused([](plan::Plan &plan) { step(plan).mutable_buffers(kB)->set_kind(plan::Buffer::INPUT); },
          {"'b'", "filled before the entry runs, and a variable"});
}

TEST(VerifierPromise, ABatchIsTheLengthOfAnInput) {
  for (int64_t batch : {int64_t(0), int64_t(-4), int64_t(63), int64_t(1) << 60})
    refused([&](plan::Plan &plan) { step(plan).set_batch(batch); }, {"a batch of " + std::to_string(batch)});
}

TEST(VerifierPromise, NumbersThatTheRuntimeReadsAreOne) {
  refused([](plan::Plan &plan) { step(plan).mutable_outputs(0)->set_name("loss_sum"); },
          {"output 'loss_sum'", "not one number"});
}

TEST(VerifierPromise, AProductIsNotWrittenOverItsFactors) {
  refused([](plan::Plan &plan) { step(plan).mutable_instructions(3)->add_in_place()->set_destination(2); },
          {"instruction 3", "a matmul cannot write operand 2 in place of 0"});
}

TEST(VerifierPromise, ExternalFilesHaveNames) {
  auto external = [](plan::Plan &plan, const std::string &path) {
    plan::ExternalBytes &bytes = *plan.mutable_variables(0)->mutable_external();
    bytes.set_path(path);
    bytes.set_bytes(2048);
  };
  for (const std::string &path : {std::string(), std::string("weights\0.bin", 12), std::string("\x1b[2J")})
    refused([&](plan::Plan &plan) { external(plan, path); }, {"variable 'w'", "no name of an external file"});
}

TEST(VerifierPromise, CopiesOfVariables) {
  auto tied = [](plan::Plan &plan) -> plan::Tie & {
    plan::Tie &tie = *plan.add_ties();
    tie.set_name("head");
    tie.set_of("w");
    tie.add_permutation(1);
    tie.add_permutation(0);
    tie.mutable_type()->set_dtype(plan::F32);
    tie.mutable_type()->add_dims(32);
    tie.mutable_type()->add_dims(16);
    return tie;
  };
  plan::Plan good = makeTestPlan();
  tied(good);
  EXPECT_EQ(plan::verifyPlan(good), std::vector<std::string>());
  refused([&](plan::Plan &plan) { tied(plan).set_of("none"); }, {"'head'", "copies 'none'"});
  refused([&](plan::Plan &plan) { tied(plan).set_permutation(0, 0); }, {"'head'", "no copy of variable 'w'"});
  refused([&](plan::Plan &plan) { tied(plan).set_permutation(0, -1); }, {"'head'", "no copy"});
  refused([&](plan::Plan &plan) { tied(plan).mutable_type()->clear_dims(); }, {"'head'", "no copy"});
  refused([&](plan::Plan &plan) { tied(plan).mutable_type()->set_dtype(plan::F64); }, {"'head'", "no copy"});
}

TEST(VerifierPromise, QuantizedVariables) {
  auto quantized = [](plan::Plan &plan) -> plan::Quantized & {
    plan::Quantized &one = *plan.add_quantized();
    one.set_name("w");
    one.mutable_type()->set_dtype(plan::I8);
    one.mutable_type()->add_dims(16);
    one.mutable_type()->add_dims(32);
    one.set_axis(1);
    for (int i = 0; i < 32; ++i) {
      one.add_scale(0.5f);
      one.add_zero_point(0);
    }
    return one;
  };
  plan::Plan good = makeTestPlan();
  quantized(good);
  EXPECT_EQ(plan::verifyPlan(good), std::vector<std::string>());
  refused([&](plan::Plan &plan) { quantized(plan).mutable_type()->set_dtype(plan::F32); }, {"'w'", "no quantised form"});
  refused([&](plan::Plan &plan) { quantized(plan).mutable_type()->set_dims(0, 8); }, {"'w'", "no quantised form"});
  refused([&](plan::Plan &plan) { quantized(plan).set_axis(0); }, {"'w'", "32 scales"});
  refused([&](plan::Plan &plan) { quantized(plan).set_axis(-1); }, {"'w'", "32 scales"});
  refused([&](plan::Plan &plan) { quantized(plan).mutable_zero_point()->RemoveLast(); }, {"'w'", "31 zero points"});
  refused([&](plan::Plan &plan) { quantized(plan).set_scale(3, 0); }, {"'w'", "no scale"});
  refused([&](plan::Plan &plan) { plan.add_quantized_ranges()->set_high("w"); }, {"'w' is no scalar variable"});
}

TEST(VerifierPromise, NamesAndShapesOfExports) {
  auto torch = [](plan::Plan &plan) -> plan::TorchParameter & {
    plan::TorchParameter &torch = *plan.mutable_variables(0)->mutable_torch();
    torch.set_name("fc.weight");
    torch.mutable_dims()->Clear();
    torch.add_dims(32);
    torch.add_dims(16);
    torch.set_transposed(true);
    return torch;
  };
  plan::Plan good = makeTestPlan();
  torch(good);
  EXPECT_EQ(plan::verifyPlan(good), std::vector<std::string>());
  refused([&](plan::Plan &plan) { torch(plan).set_dims(0, 16); }, {"'w'", "does not hold the parameter 'fc.weight'"});
  refused([&](plan::Plan &plan) { torch(plan).set_name("b"); }, {"'w'", "cannot be exported as 'b'"});
  refused([&](plan::Plan &plan) { torch(plan).set_name(""); }, {"'w'", "cannot be exported as ''"});
  refused([](plan::Plan &plan) { plan.mutable_variables(0)->set_model_dtype(plan::I8); }, {"'w'", "holds no values"});
}

TEST(VerifierPromise, ScalesOfIntegers) {
  // w [16, 32] in 8 bits, b [16, 1] its scales.
  auto scaled = [](plan::Plan &plan) -> plan::Variable & {
    plan::Variable &w = *plan.mutable_variables(0), &b = *plan.mutable_variables(1);
    w.mutable_type()->set_dtype(plan::I8);
    w.set_model_dtype(plan::F32);
    w.set_role(plan::FROZEN);
    w.set_scale("b");
    b.set_role(plan::CONSTANT);
    b.mutable_type()->clear_dims();
    b.mutable_type()->add_dims(16);
    b.mutable_type()->add_dims(1);
    return w;
  };
  plan::Plan good = makeTestPlan();
  scaled(good);
  for (const std::string &problem : plan::verifyPlan(good)) // other problems remain, since buffers have the old sizes
    EXPECT_EQ(problem.find("scale"), problem.npos) << problem;
  refused([&](plan::Plan &plan) { scaled(plan).set_scale("none"); }, {"'w'", "its scale 'none' is no variable"});
  refused([&](plan::Plan &plan) { scaled(plan).set_role(plan::PARAMETER); }, {"'w'", "i8[16x32] of role 0 has no scale"});
  refused([&](plan::Plan &plan) { scaled(plan).set_model_dtype(plan::DTYPE_NONE); }, {"'w'", "has no scale"});
  refused([&](plan::Plan &plan) { scaled(plan), plan.mutable_variables(1)->set_role(plan::FROZEN); },
          {"'w'", "f32[16x1] is no scale of i8[16x32]"});
  refused([&](plan::Plan &plan) { scaled(plan), plan.mutable_variables(1)->mutable_type()->set_dims(0, 32); },
          {"'w'", "f32[32x1] is no scale of i8[16x32]"});
}

TEST(VerifierPromise, FourBits) {
  // w [16, 32] in 4 bits, b [8] its scales.
  auto packed = [](plan::Plan &plan) -> plan::Variable & {
    plan::Variable &w = *plan.mutable_variables(0), &b = *plan.mutable_variables(1);
    const int64_t dims[] = {16, 32};
    const bool inRow[] = {false, true};
    *w.mutable_four_bits() = plan::fourBitsOf(plan::FourBits::NF4, 64, dims, inRow);
    *w.mutable_type() = plan::bytesType(w.four_bits());
    w.set_model_dtype(plan::F32);
    w.set_role(plan::FROZEN);
    w.set_scale("b");
    b.set_role(plan::CONSTANT);
    *b.mutable_type() = plan::scalesType(w.four_bits());
    return w;
  };
  plan::Plan good = makeTestPlan();
  packed(good);
  for (const std::string &problem : plan::verifyPlan(good)) // other problems remain, since buffers have the old sizes
    EXPECT_EQ(problem.find("scale"), problem.npos) << problem;
  refused([&](plan::Plan &plan) { packed(plan).clear_scale(); }, {"'w'", "4 bits without a scale"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_four_bits()->set_block(48); },
          {"'w'", "is no scale of u8[256]"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_four_bits()->set_block(32); },
          {"'w'", "f32[8] is no scale of u8[256]"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_four_bits()->set_strides(0, 64); },
          {"'w'", "is no scale of u8[256]"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_four_bits()->set_dims(0, 17); },
          {"'w'", "is no scale of u8[256]"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_four_bits()->set_code(plan::FourBits::NONE); },
          {"'w'", "is no scale"});
  refused([&](plan::Plan &plan) { packed(plan).mutable_type()->set_dtype(plan::I8); }, {"'w'", "i8[256] of role"});
  // Nested scales are codes, and their numbers are another variable.
  auto nested = [&](plan::Plan &plan) -> plan::Variable & {
    plan::Variable &w = packed(plan), &numbers = *plan.add_variables();
    w.mutable_four_bits()->set_nested(true);
    w.set_nested_scale("numbers");
    *plan.mutable_variables(1)->mutable_type() = plan::scalesType(w.four_bits());
    numbers.set_name("numbers");
    numbers.set_role(plan::CONSTANT);
    *numbers.mutable_type() = plan::nestedType(w.four_bits());
    return w;
  };
  auto numbers = [](plan::Plan &plan) -> plan::Variable & {
    return *plan.mutable_variables(plan.variables_size() - 1);
  };
  plan::Plan sound = makeTestPlan();
  nested(sound);
  for (const std::string &problem : plan::verifyPlan(sound))
    EXPECT_EQ(problem.find("scale"), problem.npos) << problem;
  refused([&](plan::Plan &plan) { nested(plan).clear_nested_scale(); }, {"'w'", "'', which its nested scales need"});
  refused([&](plan::Plan &plan) { nested(plan).set_nested_scale("b"); }, {"'w'", "u8[8] does not hold the numbers"});
  refused([&](plan::Plan &plan) { nested(plan).mutable_four_bits()->clear_nested(); },
          {"'w'", "belongs to nested scales, which it does not have"});
  refused([&](plan::Plan &plan) { nested(plan).mutable_four_bits()->set_code(plan::FourBits::INT4); },
          {"'w'", "f32[2] does not hold the numbers"});
  refused([&](plan::Plan &plan) { nested(plan), numbers(plan).set_role(plan::FROZEN); },
          {"'w'", "f32[2] does not hold the numbers"});
  refused([&](plan::Plan &plan) { nested(plan), numbers(plan).mutable_type()->set_dims(0, 1); },
          {"'w'", "f32[1] does not hold the numbers"});
  refused([&](plan::Plan &plan) { nested(plan), plan.mutable_variables(1)->mutable_type()->set_dtype(plan::F32); },
          {"'w'", "f32[8] is no scale of u8[256]"});
}

TEST(VerifierPromise, ProductsWithFourBits) {
  auto product = [](plan::Plan &plan, int64_t k, int64_t n) -> plan::MatmulCall & {
    const int64_t dims[] = {k, n};
    const bool inRow[] = {true, false};
    for (plan::Instruction &instruction : *step(plan).mutable_instructions())
      if (instruction.has_matmul()) {
        *instruction.mutable_matmul()->mutable_four_bits() = plan::fourBitsOf(plan::FourBits::INT4, 32, dims, inRow);
        return *instruction.mutable_matmul();
      }
    throw std::logic_error("no product");
  };
  // Codes and scales are operands of their own.
  refused([&](plan::Plan &plan) { product(plan, 16, 32); }, {"matmul", "takes 4 operands"});
  refused([&](plan::Plan &plan) { product(plan, 32, 16); }, {"a matrix in 4 bits that is not [k, n]"});
  refused([&](plan::Plan &plan) { product(plan, 16, 32).mutable_four_bits()->set_block(48); }, {"a matrix in 4 bits"});
  refused([&](plan::Plan &plan) { product(plan, 16, 32).set_accumulate(true); }, {"does more than multiply"});
  // The numbers of nested scales are one more operand, which INT4 does not have.
  refused([&](plan::Plan &plan) { product(plan, 16, 32).mutable_four_bits()->set_nested(true); },
          {"a matrix in 4 bits"});
  refused(
      [&](plan::Plan &plan) {
        plan::FourBits &layout = *product(plan, 16, 32).mutable_four_bits();
        layout.set_code(plan::FourBits::NF4);
        layout.set_nested(true);
      },
      {"matmul", "takes 5 operands"});
  // Zero points are one more operand; blocks without elements are no grid.
  auto grid = [&](plan::Plan &plan, plan::BlockGrid::Zeros zeros) -> plan::BlockGrid & {
    plan::FourBits &layout = *product(plan, 16, 32).mutable_four_bits();
    layout.set_block(0);
    plan::BlockGrid &blocks = *layout.mutable_grid();
    blocks.set_zeros(zeros);
    for (int64_t extent : {16, 1})
      blocks.add_blocks(extent);
    for (int64_t stride : {32, 1}) {
      blocks.add_scale_strides(stride);
      if (zeros != plan::BlockGrid::NONE)
        blocks.add_zero_strides(stride);
    }
    return blocks;
  };
  refused([&](plan::Plan &plan) { grid(plan, plan::BlockGrid::NONE); }, {"matmul", "takes 4 operands"});
  refused([&](plan::Plan &plan) { grid(plan, plan::BlockGrid::CODES); }, {"matmul", "takes 5 operands"});
  refused([&](plan::Plan &plan) { grid(plan, plan::BlockGrid::NONE).set_blocks(0, 0); }, {"a matrix in 4 bits"});
  refused([&](plan::Plan &plan) { grid(plan, plan::BlockGrid::CODES).clear_zero_strides(); }, {"a matrix in 4 bits"});
  refused([&](plan::Plan &plan) { grid(plan, plan::BlockGrid::NUMBERS).set_zero_strides(0, -1); },
          {"a matrix in 4 bits"});
}

TEST(VerifierPromise, Adapters) {
  // b [64] as A, [4, 16], of w [16, 32]; another variable as B, [32, 4].
  auto adapters = [](plan::Plan &plan) -> plan::Adapters & {
    plan::Adapters &adapters = *plan.mutable_adapters();
    adapters.set_rank(4);
    adapters.set_alpha(8);
    adapters.set_scale(2);
    plan::Adapter &adapter = *adapters.add_list();
    adapter.set_of("w");
    adapter.set_a("b");
    adapter.set_b("unused");
    adapter.set_input_first(true);
    return adapters;
  };
  refused([&](plan::Plan &plan) { adapters(plan); }, {"adapter of 'w'", "'b' is f32[64], no matrix"});
  refused([&](plan::Plan &plan) { adapters(plan).mutable_list(0)->set_b("b"); }, {"'b' is no variable, or another"});
  refused([&](plan::Plan &plan) { adapters(plan).set_rank(0); }, {"adapters: rank 0"});
  refused([&](plan::Plan &plan) { adapters(plan).set_dropout(1); }, {"dropout 1"});
  // Dims of its own are those of a matrix that bytes hold.
  refused(
      [&](plan::Plan &plan) {
        plan::Adapter &adapter = *adapters(plan).mutable_list(0);
        for (int64_t extent : {16, 32})
          adapter.add_dims(extent);
      },
      {"adapter of 'w'", "does not hold a matrix in 4 bits"});
}
