//===- RefusalTest.cpp - PTX outside the subset --------------------------===//
//
// Each case is refused with its line, its text and a reason. Nothing is skipped silently: not a modifier, not an
// operand.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/tests/Evaluate.h"

#include <gtest/gtest.h>

using namespace tcc::emulation;

namespace {
struct Refused {
  const char *name, *body, *reason;
};
class Refusals : public testing::TestWithParam<Refused> {};

const Refused kRefused[] = {
    {"UnknownInstruction", "dp4a.s32.s32 %r0, %r1, %r2, %r3;", "not in the subset"},
    {"UnknownModifier", "add.sat.s32 %r0, %r1, %r2;", "'.sat' is not emulated here"},
    {"NoRounding", "add.f32 %r0, %r1, %r2;", "may be contracted to an fma; write .rn"},
    {"NoRoundingOfProduct", "mul.f64 %d0, %d1, %d2;", "may be contracted to an fma; write .rn"},
    {"OtherRounding", "add.rz.f32 %r0, %r1, %r2;", "only .rn is emulated, not .rz"},
    {"FlushToZero", "mul.rn.ftz.f32 %r0, %r1, %r2;", "flushes subnormal numbers"},
    {"FlushInComparison", "setp.lt.ftz.f32 %p0, %r1, %r2;", "flushes subnormal numbers"},
    {"Approximate", "ex2.approx.f32 %r0, %r1;", "differs between architectures"},
    {"ApproximateRoot", "sqrt.approx.f32 %r0, %r1;", "differs between architectures"},
    {"FullDivision", "div.full.f32 %r0, %r1, %r2;", "may be contracted"},
    {"Atomic", "atom.global.add.f32 %r0, [%d1], %r2;", "the order of atomic operations differs"},
    {"Reduction", "red.global.add.f32 [%d1], %r2;", "the order of atomic operations differs"},
    {"OldShuffle", "shfl.bfly.b32 %r0, %r1, 1, 31;", "4 operands, expected 5"},
    {"NamedBarrier", "bar.sync 1;", "only barrier 0"},
    {"BarrierOfSome", "bar.sync 0, 64;", "only barrier 0"},
    {"Arrive", "bar.arrive 0, 64;", "only .sync"},
    {"NarrowRegister", "add.s64 %d0, %r1, %d2;", "a register of 32 bits where 64 are read"},
    {"WideResult", "add.s64 %r0, %d1, %d2;", "a result of 64 bits for a register of 32"},
    {"UndeclaredRegister", "add.s32 %r0, %r1, %r99;", "no declared register"},
    {"SpecialRegister", "mov.u32 %r0, %smid;", "no special register that is emulated"},
    {"UnknownLabel", "bra nowhere;", "label nowhere is nowhere"},
    {"UnknownVariable", "mov.b64 %d0, nothing;", "nothing is declared nowhere"},
    {"UnknownParameter", "ld.param.b64 %d0, [nothing];", "nothing is no parameter"},
    {"OutsideParameter", "ld.param.b64 %d0, [from+4];", "outside of parameter from"},
    {"TooFewOperands", "add.s32 %r0, %r1;", "2 operands, expected 3"},
    {"Call", "call foo;", "not in the subset"},
    {"ClampedConversion", "cvt.rn.sat.f32.f64 %r0, %d1;", "clamp"},
    {"ConversionWithoutRounding", "cvt.f32.f64 %r0, %d1;", "says .rn or .rz"},
    {"ConstantWritten", "st.const.b32 [%d1], %r1;", "constants cannot be written"},
    {"RegistersOfAnotherWidth", "ld.global.v4.b32 {%r1, %r2}, [%d1];", "4 registers in braces"},
};
} // namespace

TEST_P(Refusals, NamesLineAndText) {
  const Refused &refused = GetParam();
  auto got = evaluate(refused.body, 'n', {{0, 0, 0, 0}});
  std::string text = refused.body;
  text.pop_back();
  EXPECT_NE(got.problem.find(refused.reason), std::string::npos) << got.problem;
  EXPECT_TRUE(got.problem.starts_with("PTX line 3")) << got.problem; // the body begins at line 35
  // The message quotes the whole instruction, or the word of it that names no register or label.
  size_t open = got.problem.find('\''), close = got.problem.find('\'', open + 1);
  EXPECT_NE(text.find(got.problem.substr(open + 1, close - open - 1)), std::string::npos) << got.problem;
}
INSTANTIATE_TEST_SUITE_P(Ptx, Refusals, testing::ValuesIn(kRefused),
                         [](auto &info) { return std::string(info.param.name); });

TEST(Ptx, ModuleLevelProblemsAreLocated) {
  Bench bench;
  EXPECT_EQ(bench.load("hello"), "PTX line 1: 'hello': not in the subset of PTX that is emulated (module level)");
  EXPECT_EQ(bench.load(""), "PTX line 1: 'end of text': no .version: this is no PTX module");
  EXPECT_EQ(bench.load(".version 8.0\n.target sm_90\n.address_size 32\n"),
            "PTX line 3: '32': only addresses of 64 bits are emulated");
  EXPECT_EQ(bench.load(".version 8.0\n.func foo() { ret; }\n"),
            "PTX line 2: '.func': not in the subset of PTX that is emulated (module level)");
  EXPECT_EQ(bench.load(".version 8.0\n.global .align 4 .b8 t[2] = {1, 2, 3};\n"),
            "PTX line 2: '3': more initial values than the variable has elements");
  EXPECT_EQ(bench.load(".version 8.0\n.entry k() {\nret\n"), "PTX line 4: 'end of text': no operand");
}
