//===- MachineTest.cpp - blocks, warps, shuffles and orders --------------===//
#include "test/emulation/tests/Evaluate.h"

#include <gtest/gtest.h>
#include <numeric>

using namespace tcc::emulation;

namespace {
struct Mode {
  const char *name;
  MachineOptions options;
};
const Mode kModes[] = {{"Fast", {false, ThreadOrder::Ascending, 1}},
                       {"Ascending", {true, ThreadOrder::Ascending, 1}},
                       {"Descending", {true, ThreadOrder::Descending, 1}},
                       {"Seeded", {true, ThreadOrder::Seeded, 11}},
                       {"SeededOtherwise", {true, ThreadOrder::Seeded, 12}}};
class Machines : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Emulation, Machines, testing::ValuesIn(kModes), [](auto &info) { return info.param.name; });

/// Sums of blocks: a tree in shared memory with barriers, then one in the first warp with shuffles.
const std::string kBlockSum = kernelText(R"(
  mul.wide.u32 %d4, %r4, 4;
  add.s64 %d4, %d1, %d4;
  ld.global.nc.b32 %r5, [%d4];
  mov.b64 %d5, part;
  mul.wide.u32 %d6, %r1, 4;
  add.s64 %d6, %d5, %d6;
  st.shared.b32 [%d6], %r5;
  shr.u32 %r6, %r3, 1;
$halves:
  bar.sync 0;
  setp.lt.u32 %p1, %r6, 32;
  @%p1 bra $warp;
  setp.ge.u32 %p2, %r1, %r6;
  @%p2 bra $next;
  mul.wide.u32 %d7, %r6, 4;
  add.s64 %d7, %d6, %d7;
  ld.shared.b32 %r7, [%d7];
  ld.shared.b32 %r8, [%d6];
  add.s32 %r8, %r8, %r7;
  st.shared.b32 [%d6], %r8;
$next:
  shr.u32 %r6, %r6, 1;
  bra.uni $halves;
$warp:
  setp.gt.u32 %p3, %r1, 31;
  @%p3 ret;
  ld.shared.b32 %r9, [%d6];
  shfl.sync.bfly.b32 %r10, %r9, 16, 31, -1;
  add.s32 %r9, %r9, %r10;
  shfl.sync.bfly.b32 %r10, %r9, 8, 31, -1;
  add.s32 %r9, %r9, %r10;
  shfl.sync.bfly.b32 %r10, %r9, 4, 31, -1;
  add.s32 %r9, %r9, %r10;
  shfl.sync.bfly.b32 %r10, %r9, 2, 31, -1;
  add.s32 %r9, %r9, %r10;
  shfl.sync.bfly.b32 %r10, %r9, 1, 31, -1;
  add.s32 %r9, %r9, %r10;
  setp.ne.u32 %p4, %r1, 0;
  mul.wide.u32 %d8, %r2, 4;
  add.s64 %d8, %d2, %d8;
  @!%p4 st.global.b32 [%d8], %r9;)",
                                         ".shared .align 16 .b8 part[1024];");
} // namespace

TEST_P(Machines, SumABlock) {
  Bench bench(GetParam().options);
  ASSERT_EQ(bench.load(kBlockSum), "");
  auto *from = bench.buffer<uint32_t>(256 * 7);
  auto *to = bench.buffer<uint32_t>(7, "sums", false);
  std::iota(from, from + 256 * 7, 1000);
  ASSERT_EQ(bench.launch("k", {7}, {256}, {Bench::at(from), Bench::at(to), 0}), "");
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(to[i], std::accumulate(from + 256 * i, from + 256 * (i + 1), 0u)) << i;
}

TEST_P(Machines, ShuffleEveryWay) {
  // Each mode, select and clamp is tested for the value, and for whether it came from inside the segment.
  struct Form {
    const char *mode;
    unsigned select, clamp;
  };
  for (Form form : {Form{"up", 3, 0},
                    {"down", 3, 31},
                    {"bfly", 5, 31},
                    {"idx", 9, 31},
                    {"up", 1, 0x1800},
                    {"down", 6, 0x181f},
                    {"bfly", 8, 0x181f},
                    {"idx", 11, 0x181f},
                    {"idx", 2, 0x1c1f},
                    {"down", 1, 15}}) {
    Bench bench(GetParam().options);
    ASSERT_EQ(bench.load(kernelText(fmt::format(R"(
  add.s32 %r5, %r1, 100;
  shfl.sync.{}.b32 %r6|%p1, %r5, {}, {}, -1;
  selp.b32 %r7, 1, 0, %p1;
  mul.wide.u32 %d4, %r1, 8;
  add.s64 %d4, %d1, %d4;
  st.global.v2.b32 [%d4], {{%r6, %r7}};)",
                                                form.mode, form.select, form.clamp))),
              "");
    auto *to = bench.buffer<uint32_t>(2 * 64, "results", false);
    ASSERT_EQ(bench.launch("k", {1}, {64}, {Bench::at(to), 0, 0}), "");
    for (int t = 0; t < 64; ++t) {
      // __shfl_*_sync(…, width) as the CUDA C++ Programming Guide describes it: segments of `width` lanes.
      int lane = t % 32, width = 32 - int(form.clamp >> 8), first = lane / width * width;
      std::string mode = form.mode;
      int source = mode == "up"     ? lane - int(form.select)
                   : mode == "down" ? lane + int(form.select)
                   : mode == "bfly" ? lane ^ int(form.select)
                                    : first + int(form.select) % width;
      bool inside =
          mode == "up" ? source >= first : source <= std::min(first + width - 1, first + int(form.clamp & 31 % 32));
      if (mode != "up" && (form.clamp & 31) == 31)
        inside = source < first + width;
      if (!inside)
        source = lane;
      EXPECT_EQ(to[2 * t], uint32_t(t / 32 * 32 + source + 100)) << form.mode << " " << form.select << " lane " << t;
      EXPECT_EQ(to[2 * t + 1], uint32_t(inside)) << form.mode << " " << form.select << " lane " << t;
    }
  }
}

TEST_P(Machines, VoteInPartsOfAWarp) {
  Bench bench(GetParam().options);
  // Odd and even lanes vote apart.
  ASSERT_EQ(bench.load(kernelText(R"(
  setp.lt.u32 %p1, %r1, 20;
  and.b32 %r5, %r1, 1;
  setp.eq.u32 %p2, %r5, 0;
  @%p2 bra $even;
  vote.sync.ballot.b32 %r6, %p1, 0xaaaaaaaa;
  bra.uni $out;
$even:
  vote.sync.any.pred %p3, !%p1, 0x55555555;
  selp.b32 %r6, 7, 8, %p3;
$out:
  mul.wide.u32 %d4, %r1, 4;
  add.s64 %d4, %d1, %d4;
  st.global.b32 [%d4], %r6;)")),
            "");
  auto *to = bench.buffer<uint32_t>(32, "results", false);
  ASSERT_EQ(bench.launch("k", {1}, {32}, {Bench::at(to), 0, 0}), "");
  for (unsigned t = 0; t < 32; ++t)
    EXPECT_EQ(to[t], t % 2 ? 0xaaaaau : 7u) << t;
}

TEST_P(Machines, IndexAGridOfThreeDimensions) {
  Bench bench(GetParam().options);
  ASSERT_EQ(bench.load(kernelText(R"(
  mov.u32 %r5, %ctaid.z; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %ctaid.y; mad.lo.s32 %r5, %r5, %r6, %r7;
  mov.u32 %r6, %nctaid.x; mad.lo.s32 %r5, %r5, %r6, %r2;
  mov.u32 %r6, %ntid.z; mov.u32 %r7, %tid.z; mad.lo.s32 %r5, %r5, %r6, %r7;
  mov.u32 %r6, %ntid.y; mov.u32 %r7, %tid.y; mad.lo.s32 %r5, %r5, %r6, %r7;
  mad.lo.s32 %r5, %r5, %r3, %r1;
  mov.u32 %r8, %laneid; mov.u32 %r9, %warpid; mad.lo.s32 %r8, %r9, 32, %r8;
  mul.wide.u32 %d4, %r5, 4;
  add.s64 %d4, %d1, %d4;
  st.global.b32 [%d4], %r8;)")),
            "");
  Extent grid{3, 4, 5}, block{5, 3, 4};
  auto *to = bench.buffer<uint32_t>(60 * 60, "results", false);
  ASSERT_EQ(bench.launch("k", grid, block, {Bench::at(to), 0, 0}), "");
  for (uint32_t i = 0; i < 60 * 60; ++i) // each thread wrote its number in the block to its own element
    ASSERT_EQ(to[i], i % 60);
  EXPECT_EQ(bench.machine.threadsRun, 3600u);
}

TEST_P(Machines, KeepLocalMemoryAndVariables) {
  Bench bench(GetParam().options);
  // A local table is filled from a constant and read by a computed index; dynamic shared memory follows static.
  ASSERT_EQ(bench.load(kernelText(R"(
  .local .align 8 .b8 depot[32];
  .reg .b64 %SPL;
  mov.b64 %SPL, depot;
  mov.b64 %d4, numbers;
  ld.const.v2.b32 {%r5, %r6}, [%d4];
  ld.const.v2.b32 {%r7, %r8}, [numbers+8];
  st.local.v2.b32 [%SPL], {%r5, %r6};
  st.local.b32 [%SPL+8], %r7;
  st.local.b32 [depot+12], %r8;
  and.b32 %r9, %r1, 3;
  mul.wide.u32 %d5, %r9, 4;
  add.s64 %d6, %SPL, %d5;
  cvta.local.u64 %d7, %d6;
  ld.b32 %r10, [%d7];
  mov.b64 %d8, table;
  add.s64 %d8, %d8, %d5;
  ld.global.nc.b32 %r11, [%d8];
  mad.lo.s32 %r10, %r11, 1000, %r10;
  mul.wide.u32 %d9, %r1, 4;
  mov.b64 %d10, dynamic;
  add.s64 %d10, %d10, %d9;
  st.shared.b32 [%d10], %r10;
  bar.sync 0;
  xor.b32 %r12, %r1, 1;
  mul.wide.u32 %d11, %r12, 4;
  mov.b64 %d12, dynamic;
  add.s64 %d12, %d12, %d11;
  ld.shared.b32 %r13, [%d12];
  add.s64 %d13, %d1, %d9;
  st.global.b32 [%d13], %r13;)",
                                  ".const .align 8 .b32 numbers[4] = {10, 20, 30, -40};\n"
                                  ".global .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};\n"
                                  ".shared .align 4 .b8 unused[12];\n.extern .shared .align 16 .b8 dynamic[];")),
            "");
  auto *to = bench.buffer<int32_t>(64, "results", false);
  ASSERT_EQ(bench.launch("k", {1}, {64}, {Bench::at(to), 0, 0}, 64 * 4), "");
  const int32_t numbers[] = {10, 20, 30, -40};
  for (int t = 0; t < 64; ++t)
    EXPECT_EQ(to[t], ((t ^ 1) % 4 + 1) * 1000 + numbers[(t ^ 1) % 4]) << t;
}

// A kernel that is correct in one order of threads only gives other results in the others.
TEST(Orders, ShowWhatDependsOnThem) {
  const std::string last = kernelText("st.global.b32 [%d1], %r1;");
  auto result = [&](MachineOptions options) {
    Bench bench(options);
    EXPECT_EQ(bench.load(last), "");
    auto *to = bench.buffer<uint32_t>(1);
    EXPECT_EQ(bench.launch("k", {1}, {64}, {Bench::at(to), 0, 0}), "");
    return *to;
  };
  EXPECT_EQ(result({false, ThreadOrder::Ascending, 1}), 63u);
  EXPECT_EQ(result({false, ThreadOrder::Descending, 1}), 0u);
  uint32_t one = result({false, ThreadOrder::Seeded, 1});
  EXPECT_EQ(one, result({false, ThreadOrder::Seeded, 1}));
  bool other = false;
  for (uint64_t seed = 2; seed < 6; ++seed)
    other |= result({false, ThreadOrder::Seeded, seed}) != one;
  EXPECT_TRUE(other);
}
