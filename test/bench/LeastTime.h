//===- LeastTime.h - the least time of a call -------------------*- C++ -*-===//
//
// What benches of single calls share. Includes nothing of this project: products.cpp compiles without it, too.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_BENCH_LEASTTIME_H
#define TCC_TEST_BENCH_LEASTTIME_H

#include <algorithm>
#include <chrono>
#include <limits>

namespace tcc::bench {

/// The least of at least five turns, and of at least 0.4 s of them, in milliseconds.
template <typename Run> double leastMilliseconds(Run run) {
  double least = std::numeric_limits<double>::max(), total = 0;
  for (int i = 0; i < 5 || total < 400; ++i) {
    auto begin = std::chrono::steady_clock::now();
    run();
    double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    least = std::min(least, took);
    total += took;
  }
  return least;
}

} // namespace tcc::bench

#endif // TCC_TEST_BENCH_LEASTTIME_H
