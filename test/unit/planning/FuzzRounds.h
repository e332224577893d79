//===- FuzzRounds.h - how many random problems ------------------*- C++ -*-===//
//
// Tests on random problems run some thousands of them, always the same ones, in seconds. A longer run on request:
//   TCC_FUZZ_ROUNDS=N  N problems for each test that judges small ones by brute force; those on larger problems, which
//                      take longer each, run N / 40; none runs fewer than usual
//   TCC_FUZZ_SEED=S    other problems; a failure names round and seed, and comes again with the same two variables
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PLANNING_FUZZROUNDS_H
#define TCC_TEST_UNIT_PLANNING_FUZZROUNDS_H

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tcc::planning {

/// Rounds of a test on small problems.
inline int fuzzRounds(int usual) {
  const char *asked = std::getenv("TCC_FUZZ_ROUNDS");
  return asked ? std::max(usual, std::atoi(asked)) : usual;
}

/// Rounds of a test on larger problems.
inline int fuzzRoundsOfLarger(int usual) {
  constexpr int kSmallForEachLarger = 40;
  const char *asked = std::getenv("TCC_FUZZ_ROUNDS");
  return asked ? std::max(usual, std::atoi(asked) / kSmallForEachLarger) : usual;
}

/// What random numbers begin with; `own` keeps tests apart.
inline unsigned fuzzSeed(unsigned own) {
  const char *asked = std::getenv("TCC_FUZZ_SEED");
  return own + (asked ? unsigned(std::strtoul(asked, nullptr, 10)) * 1'000'003u : 0u);
}

/// For SCOPED_TRACE.
inline std::string fuzzTrace(int round, unsigned seed) {
  return "round " + std::to_string(round) + ", seed " + std::to_string(seed);
}

/// In how many of `rounds` something is expected that so many (`count`) of `usual` rounds show.
inline int fuzzShare(int count, int usual, int rounds) { return int(int64_t(count) * rounds / usual); }

} // namespace tcc::planning

#endif // TCC_TEST_UNIT_PLANNING_FUZZROUNDS_H
