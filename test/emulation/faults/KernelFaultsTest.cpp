//===- KernelFaultsTest.cpp - planted mistakes in kernels ----------------===//
//
// Each kernel has one mistake, which the machine must name in every order of threads; with the smallest change that
// mends it, the kernel must run clean. Buffer a holds 64 initialised numbers of 4 bytes for each block, b 64
// uninitialised ones; a block has 64 threads, two warps.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/tests/Evaluate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace tcc::emulation;

namespace {
struct Planted {
  const char *name, *fault, *wrong, *mended;
  Extent grid = {1}, block = {64};
};

// Addresses: %d10 of the thread's number in a, %d11 in b, %d12 in shared memory of 64 numbers, %d13 of the next
// thread's number in shared memory.
const char *kPrologue = R"(
  mul.wide.u32 %d9, %r4, 4;
  add.s64 %d10, %d1, %d9;
  add.s64 %d11, %d2, %d9;
  mul.wide.u32 %d8, %r1, 4;
  mov.b64 %d7, part;
  add.s64 %d12, %d7, %d8;
  xor.b32 %r9, %r1, 1;
  mul.wide.u32 %d8, %r9, 4;
  add.s64 %d13, %d7, %d8;
  xor.b32 %r9, %r1, 32;
  mul.wide.u32 %d8, %r9, 4;
  add.s64 %d14, %d7, %d8;
)";
const char *kShared = ".shared .align 16 .b8 part[256];\n.const .align 4 .b32 fixed[4] = {1, 2, 3, 4};";

const Planted kPlanted[] = {
    {"ReadBeyondTheEnd", "out-of-bounds", "ld.global.b32 %r5, [%d10+4];", "ld.global.b32 %r5, [%d10];"},
    {"ReadBeforeTheBeginning", "out-of-bounds", "ld.global.b32 %r5, [%d10+-4];", "ld.global.b32 %r5, [%d10];"},
    {"WriteOfAWholeVectorAtTheTail", "out-of-bounds",
     "setp.eq.u32 %p1, %r1, 63; @%p1 st.global.v2.b32 [%d11+-4], {%r1, %r1}; @%p1 st.global.b32 [%d11+4], %r1;",
     "setp.eq.u32 %p1, %r1, 63; @%p1 st.global.v2.b32 [%d11+-4], {%r1, %r1};"},
    {"NullPointer", "out-of-bounds", "ld.global.b32 %r5, [%d3];", "ld.global.b32 %r5, [%d10];"},
    {"BlockTooMany",
     "out-of-bounds",
     "st.global.b32 [%d11], %r1;",
     "setp.lt.u32 %p1, %r4, 64; @%p1 st.global.b32 [%d11], %r1;",
     {2}},
    {"SharedBeyondTheEnd", "out-of-bounds", "st.shared.b32 [%d12+4], %r1;", "st.shared.b32 [%d12], %r1;"},
    {"LocalBeyondTheEnd", "out-of-bounds",
     ".local .align 8 .b8 l[8]; mov.b64 %d20, l; st.local.b64 [%d20], %d9; st.local.b32 [%d20+8], %r1;",
     ".local .align 8 .b8 l[8]; mov.b64 %d20, l; st.local.b64 [%d20], %d9; st.local.b32 [%d20+4], %r1;"},
    {"MisalignedWord", "misaligned", "ld.global.b32 %r5, [%d1+2];", "ld.global.b32 %r5, [%d1+4];"},
    {"MisalignedVector", "misaligned", "ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d1+8];",
     "ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d1+16];"},
    {"ReadOfWhatNobodyWrote", "uninitialised-read", "ld.global.b32 %r5, [%d11];",
     "st.global.b32 [%d11], %r1; ld.global.b32 %r5, [%d11];"},
    {"ReadOfHalfAValue", "uninitialised-read", "st.global.b16 [%d11], %h1; ld.global.b32 %r5, [%d11];",
     "st.global.b32 [%d11], %r1; ld.global.b32 %r5, [%d11];"},
    {"SharedReadFirst", "uninitialised-read", "ld.shared.b32 %r5, [%d12];",
     "st.shared.b32 [%d12], 0; ld.shared.b32 %r5, [%d12];"},
    {"SharedOfTheBlockBefore",
     "uninitialised-read",
     "setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.b32 [%d12], 0; ld.shared.b32 %r5, [%d12];",
     "st.shared.b32 [%d12], 0; ld.shared.b32 %r5, [%d12];",
     {2}},
    {"LocalReadFirst", "uninitialised-read",
     ".local .align 8 .b8 l[8]; mov.b64 %d20, l; st.local.b32 [%d20], %r1; ld.local.b64 %d21, [%d20];",
     ".local .align 8 .b8 l[8]; mov.b64 %d20, l; st.local.b32 [%d20], %r1; ld.local.b32 %r21, [%d20];"},
    {"MissingBarrier", "race",
     "st.shared.b32 [%d12], 0; bar.sync 0; st.shared.b32 [%d12], %r1; ld.shared.b32 %r5, [%d14];",
     "st.shared.b32 [%d12], 0; bar.sync 0; st.shared.b32 [%d12], %r1; bar.sync 0; ld.shared.b32 %r5, [%d14];"},
    {"MissingSecondBarrier", "race",
     "st.shared.b32 [%d12], %r1; bar.sync 0; ld.shared.b32 %r5, [%d14]; st.shared.b32 [%d12], %r5;",
     "st.shared.b32 [%d12], %r1; bar.sync 0; ld.shared.b32 %r5, [%d14]; bar.sync 0; st.shared.b32 [%d12], %r5;"},
    {"BarrierOfAWarpForTwo", "race",
     "st.shared.b32 [%d12], 0; bar.sync 0; st.shared.b32 [%d12], %r1; bar.warp.sync -1; ld.shared.b32 %r5, [%d14];",
     "st.shared.b32 [%d12], 0; bar.sync 0; st.shared.b32 [%d12], %r1; bar.warp.sync -1; ld.shared.b32 %r5, [%d13];"},
    {"ShuffleTakenForABarrier", "race",
     "st.shared.b32 [%d12], 0; bar.sync 0; st.shared.b32 [%d12], %r1; shfl.sync.idx.b32 %r6, %r1, 0, 31, -1; "
     "ld.shared.b32 %r5, [%d13];",
     "st.shared.b32 [%d12], %r1; bar.warp.sync -1; ld.shared.b32 %r5, [%d13];"},
    {"AllWriteOnePlace", "race", "st.global.b32 [%d2], 0;", "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.b32 [%d2], 0;"},
    {"BlocksWriteOnePlace",
     "race",
     "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.b32 [%d2], %r2;",
     "setp.eq.u32 %p1, %r4, 0; @%p1 st.global.b32 [%d2], %r2;",
     {2}},
    {"BarrierBetweenBlocks",
     "race",
     "setp.eq.u32 %p1, %r4, 0; @%p1 st.global.b32 [%d1], 5; bar.sync 0; ld.global.b32 %r5, [%d1];",
     "bar.sync 0; ld.global.b32 %r5, [%d1];",
     {2}},
    {"BytesOverlap",
     "race",
     "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.b16 [%d2], %h1; @!%p1 st.global.b8 [%d2+1], %h1;",
     "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.b16 [%d2], %h1; @!%p1 st.global.b8 [%d2+2], %h1;",
     {1},
     {2}},
    {"UpdateInPlaceOfANeighbour", "race",
     "ld.global.b32 %r5, [%d10]; xor.b32 %r6, %r1, 1; mul.wide.u32 %d20, %r6, 4; add.s64 %d20, %d1, %d20; "
     "st.global.b32 [%d20], %r5;",
     "ld.global.b32 %r5, [%d10]; st.global.b32 [%d10], %r5;"},
    {"NonCoherentReadOfAResult", "stale-read", "st.global.b32 [%d10], %r1; ld.global.nc.b32 %r5, [%d10];",
     "st.global.b32 [%d10], %r1; ld.global.b32 %r5, [%d10];"},
    {"WriteAfterANonCoherentRead", "stale-read", "ld.global.nc.b32 %r5, [%d10]; st.global.b32 [%d10], %r5;",
     "ld.global.b32 %r5, [%d10]; st.global.b32 [%d10], %r5;"},
    {"GlobalInstructionOnShared", "wrong-space", "st.global.b32 [%d12], %r1;", "st.b32 [%d12], %r1;"},
    {"SharedInstructionOnGlobal", "wrong-space", "ld.shared.b32 %r5, [%d10];", "ld.b32 %r5, [%d10];"},
    {"GlobalInstructionOnConstants", "wrong-space", "mov.b64 %d20, fixed; ld.global.b32 %r5, [%d20];",
     "mov.b64 %d20, fixed; ld.const.b32 %r5, [%d20];"},
    {"BarrierOfSomeWarps", "divergent-barrier",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $out; bar.sync 0;\n$out:", "bar.sync 0;\n$out:"},
    {"BarrierInTwoPlaces", "divergent-barrier",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $other; bar.sync 0; bra.uni $out;\n$other: bar.sync 0;\n$out:",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $other;\n$other: bar.sync 0;\n$out:"},
    {"ShuffleOfSomeLanes", "absent-lane", "setp.lt.u32 %p1, %r1, 5; @%p1 ret; shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;",
     "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;"},
    {"ShuffleInABlockThatEndsInAWarp",
     "absent-lane",
     "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;",
     "shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xff;",
     {1},
     {8}},
    {"ProductOfTilesBySomeLanes", "absent-lane",
     "setp.lt.u32 %p1, %r1, 5; @%p1 ret; "
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
     "{%r1, %r1, %r1, %r1};",
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
     "{%r1, %r1, %r1, %r1};"},
    {"ProductOfTilesInTwoPlaces", "divergent-shuffle",
     "and.b32 %r9, %r1, 1; setp.ne.u32 %p1, %r9, 0; @%p1 bra $odd; "
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
     "{%r1, %r1, %r1, %r1};"
     " bra.uni $out;\n$odd: "
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
     "{%r1, %r1, %r1, %r1};"
     "\n$out:",
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
     "{%r1, %r1, %r1, %r1};"},
    {"CopyReadBeforeItsEnd", "uninitialised-read",
     "st.shared.b32 [%d12], 0; cp.async.ca.shared.global [%d12], [%d10], 4; ld.shared.b32 %r5, [%d12]; "
     "cp.async.wait_all;",
     "st.shared.b32 [%d12], 0; cp.async.ca.shared.global [%d12], [%d10], 4; cp.async.wait_all; ld.shared.b32 %r5, "
     "[%d12];"},
    {"CopyOfAnotherThreadReadWithoutABarrier", "race",
     "st.shared.b32 [%d12], 0; bar.sync 0; cp.async.ca.shared.global [%d12], [%d10], 4; cp.async.wait_all; "
     "ld.shared.b32 %r5, [%d14];",
     "st.shared.b32 [%d12], 0; bar.sync 0; cp.async.ca.shared.global [%d12], [%d10], 4; cp.async.wait_all; bar.sync 0; "
     "ld.shared.b32 %r5, [%d14];"},
    {"CopyOverWhatOthersRead", "race",
     "st.shared.b32 [%d12], %r1; bar.sync 0; ld.shared.b32 %r5, [%d14]; cp.async.ca.shared.global [%d12], [%d10], 4; "
     "cp.async.wait_all;",
     "st.shared.b32 [%d12], %r1; bar.sync 0; ld.shared.b32 %r5, [%d14]; bar.sync 0; cp.async.ca.shared.global [%d12], "
     "[%d10], 4; cp.async.wait_all;"},
    {"CopyFromBeyondTheEnd", "out-of-bounds", "cp.async.ca.shared.global [%d12], [%d10+4], 4; cp.async.wait_all;",
     "setp.ne.u32 %p1, %r1, 63; selp.b32 %r5, 4, 0, %p1; cp.async.ca.shared.global [%d12], [%d10+4], 4, %r5; "
     "cp.async.wait_all;"},
    {"MisalignedCopy", "misaligned",
     "setp.eq.u32 %p1, %r1, 0; @%p1 cp.async.cg.shared.global [%d12], [%d1+8], 16; cp.async.wait_all;",
     "setp.eq.u32 %p1, %r1, 0; @%p1 cp.async.cg.shared.global [%d12], [%d1+16], 16; cp.async.wait_all;"},
    {"ShuffleFromOutsideTheMask", "absent-lane",
     "and.b32 %r6, %r1, 16; setp.ne.u32 %p1, %r6, 0; @%p1 bra $out; shfl.sync.bfly.b32 %r5, %r1, 16, 31, "
     "0xffff;\n$out:",
     "and.b32 %r6, %r1, 16; setp.ne.u32 %p1, %r6, 0; @%p1 bra $out; shfl.sync.bfly.b32 %r5, %r1, 8, 31, "
     "0xffff;\n$out:"},
    {"ShuffleInTwoPlaces", "divergent-shuffle",
     "and.b32 %r6, %r1, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra $odd; shfl.sync.idx.b32 %r5, %r1, 0, 31, -1; bra.uni "
     "$out;\n$odd: shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;\n$out:",
     "shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;"},
    {"LaneOutsideItsMask", "divergent-shuffle", "shfl.sync.idx.b32 %r5, %r1, 0, 31, 1;",
     "shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;"},
    {"ShuffleBesideABarrier", "divergent-shuffle",
     "and.b32 %r6, %r1, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra $odd; shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;\n$odd: "
     "bar.sync 0;",
     "shfl.sync.idx.b32 %r5, %r1, 0, 31, -1; bar.sync 0;"},
    {"DivisionByZero", "division-by-zero", "div.u32 %r5, 7, %r1;", "add.s32 %r6, %r1, 1; div.u32 %r5, 7, %r6;"},
    {"Trap", "trap", "setp.eq.u32 %p1, %r1, 40; @%p1 trap;", "setp.eq.u32 %p1, %r1, 64; @%p1 trap;"},
    {"JumpBeyondTheTable", "trap", "t: .branchtargets $a, $b;\nmin.u32 %r5, %r1, 2; brx.idx %r5, t;\n$a:\n$b:",
     "t: .branchtargets $a, $b;\nmin.u32 %r5, %r1, 1; brx.idx %r5, t;\n$a:\n$b:"},
    {"BlockTooLarge", "launch-limits", "", nullptr, {1}, {1025}},
    {"GridTooLarge", "launch-limits", "", nullptr, {1, 65536}, {32}},
    {"NoThreads", "launch-limits", "", nullptr, {1}, {0}},
};

class KernelFaults : public testing::TestWithParam<Planted> {};

/// The machine's messages about a kernel, one for each order of threads.
std::vector<std::string> run(const char *body, const Planted &planted) {
  Bench bench({true, ThreadOrder::Ascending, 3});
  if (std::string problem = bench.load(kernelText(std::string(kPrologue) + body, kShared)); !problem.empty())
    return {problem};
  std::vector<std::string> found;
  for (ThreadOrder order : {ThreadOrder::Ascending, ThreadOrder::Descending, ThreadOrder::Seeded}) {
    bench.machine.options.order = order;
    auto *a = bench.buffer<uint32_t>(64 * planted.grid.x, "a");
    auto *b = bench.buffer<uint32_t>(64, "b", false);
    found.push_back(bench.launch("k", planted.grid, planted.block, {Bench::at(a), Bench::at(b), 0}));
  }
  return found;
}
} // namespace

TEST_P(KernelFaults, AreFoundByName) {
  const Planted &planted = GetParam();
  for (const std::string &found : run(planted.wrong, planted))
    EXPECT_TRUE(found.starts_with(std::string(planted.fault) + ": kernel 'k'")) << found;
  if (planted.mended) {
    for (const std::string &found : run(planted.mended, planted))
      EXPECT_EQ(found, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Emulation, KernelFaults, testing::ValuesIn(kPlanted),
                         [](auto &info) { return info.param.name; });

TEST(KernelFaultReports, SayWhereAndWho) {
  Bench bench;
  ASSERT_EQ(bench.load(kernelText("mul.wide.u32 %d9, %r4, 4; add.s64 %d10, %d1, %d9;\nst.global.b32 [%d10+8], %r1;")),
            "");
  auto *a = bench.buffer<uint32_t>(64, "a");
  EXPECT_EQ(bench.launch("k", {2}, {32}, {Bench::at(a), 0, 0}),
            fmt::format("out-of-bounds: kernel 'k', PTX line 19: 'st.global.b32 [%d10+8], %r1': a write of 4 bytes at "
                        "{}: 0 bytes after the "
                        "end of a (256 bytes) [block (1, 0, 0), thread (30, 0, 0)]",
                        fmt::ptr(a + 64)));
  EXPECT_EQ(bench.launch("k", {1}, {32}, {Bench::at(a), 0, 0}, 0, 2), "");
}

// Two unordered launches race; two ordered ones do not.
TEST(KernelFaultReports, LaunchesWithoutOrder) {
  struct Order final : WorkOrder {
    bool isBefore(uint32_t earlier, uint32_t later) const override { return earlier == 1 && later == 3; }
  } order;
  for (const char *second : {"st.global.b32 [%d10], 0;", "ld.global.b32 %r5, [%d10];"}) {
    Bench bench;
    bench.machine.memory().order = &order;
    auto *a = bench.buffer<uint32_t>(64, "a");
    ASSERT_EQ(bench.load(kernelText("mul.wide.u32 %d9, %r4, 4; add.s64 %d10, %d1, %d9; st.global.b32 [%d10], %r1;")),
              "");
    ASSERT_EQ(bench.launch("k", {1}, {64}, {Bench::at(a), 0, 0}, 0, 1), "");
    ASSERT_EQ(bench.load(kernelText(std::string("mul.wide.u32 %d9, %r4, 4; add.s64 %d10, %d1, %d9;") + second)), "");
    std::string found = bench.launch("k", {1}, {64}, {Bench::at(a), 0, 0}, 0, 2);
    EXPECT_TRUE(found.starts_with("unordered-work: kernel 'k'")) << found;
    EXPECT_NE(found.find("earlier work 1 wrote it"), std::string::npos) << found;
    EXPECT_EQ(bench.launch("k", {1}, {64}, {Bench::at(a), 0, 0}, 0, 3), "");
  }
}
