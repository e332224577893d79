//===- LeastTime.h - the least time of a call -------------------*- C++ -*-===//
//
// Shared by the benches of single calls. Includes nothing of this project, since products.cpp also compiles without it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_BENCH_LEASTTIME_H
#define TCC_TEST_BENCH_LEASTTIME_H

#include <algorithm>
#include <chrono>
#include <limits>

namespace tcc::bench {

/// The least time of a call, in milliseconds. Calls at least five times, and for at least 0.4 s in total.
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
