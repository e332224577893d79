//===- ThreadPoolTest.cpp - every tile once, workers alike ---------------===//
#include "runtime/cpu/ThreadPool.h"

#include <cfenv>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <omp.h>
#include <thread>

using namespace tcc::runtime;

TEST(ThreadPool, EveryTileOnceForAnyNumberOfThreads) {
  for (unsigned threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t tiles : {0, 1, 2, 3, 7, 64, 1000}) {
      auto seen = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(tiles) + 1);
      std::atomic<bool> workersInRange{true};
      pool.run(tiles, [&](unsigned worker, int64_t begin, int64_t end) {
        if (worker >= threads || begin >= end)
          workersInRange = false;
        for (int64_t tile = begin; tile < end; ++tile)
          seen[static_cast<size_t>(tile)].fetch_add(1);
      });
      EXPECT_TRUE(workersInRange);
      for (int64_t tile = 0; tile < tiles; ++tile)
        ASSERT_EQ(seen[static_cast<size_t>(tile)], 1)
            << "tile " << tile << " of " << tiles << ", " << threads << " threads";
    }
  }
}

/// Launches follow each other so closely that late workers of one launch meet the next.
TEST(ThreadPool, ManyShortLaunches) {
  ThreadPool pool(8);
  int64_t expected = 0;
  std::atomic<int64_t> total{0};
  for (int launch = 0; launch < 20000; ++launch) {
    int64_t tiles = 2 + launch % 13;
    expected += tiles * launch;
    pool.run(tiles,
             [&total, launch](unsigned, int64_t begin, int64_t end) { total.fetch_add((end - begin) * launch); });
    ASSERT_EQ(total.load(), expected) << "after launch " << launch;
  }
}

/// Each worker waits in its tile until all tiles are running, so that none is free to take the tile of another.
TEST(ThreadPool, RangesOfWorkersAreTheSameInEveryLaunch) {
  constexpr int64_t kWorkers = 4;
  ThreadPool pool(kWorkers);
  for (int launch = 0; launch < 200; ++launch) {
    std::atomic<int64_t> entered{0};
    std::atomic<int> strangers{0};
    pool.run(kWorkers, [&](unsigned worker, int64_t begin, int64_t end) {
      if (begin != worker || end != begin + 1)
        ++strangers;
      entered += end - begin;
      while (entered < kWorkers)
        std::this_thread::yield();
    });
    ASSERT_EQ(strangers, 0) << "launch " << launch;
  }
}

/// Tile 0 waits for all other tiles, so that the other worker must also run the rest of the first one's range.
TEST(ThreadPool, WhoIsDoneTakesTilesOfOthers) {
  ThreadPool pool(2);
  constexpr int64_t kTiles = 8;
  for (int launch = 0; launch < 200; ++launch) {
    std::atomic<int64_t> done{0};
    pool.run(kTiles, [&](unsigned, int64_t begin, int64_t end) {
      while (begin == 0 && done < kTiles - end)
        std::this_thread::yield();
      done += end - begin;
    });
    ASSERT_EQ(done, kTiles);
  }
}

/// A subnormal number, unless this thread flushes those to zero.
float smallest() {
  volatile float normal = std::numeric_limits<float>::min();
  return normal / 2;
}

TEST(ThreadPool, WorkersShareOneFloatingPointAndOpenMpSetting) {
  std::fenv_t before;
  std::fegetenv(&before);
  int ompBefore = omp_get_max_threads();
  // The caller's settings must not matter.
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); // flush subnormals to zero
  EXPECT_EQ(smallest(), 0);
#endif
  {
    WorkerScope scope;
    ThreadPool pool(3);
    std::atomic<int> wrong{0};
    pool.run(3000, [&](unsigned, int64_t, int64_t) {
      if (std::fegetround() != FE_TONEAREST || smallest() == 0 || omp_get_max_threads() != 1)
        ++wrong;
    });
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__x86_64__)
  EXPECT_EQ(smallest(), 0);
#endif
  EXPECT_EQ(omp_get_max_threads(), ompBefore);
  std::fesetenv(&before);
}
