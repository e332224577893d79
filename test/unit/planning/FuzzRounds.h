//===- FuzzRounds.h - how many random problems ------------------*- C++ -*-===//
//
// Tests on random problems run some thousands of them, always the same ones, in seconds. A longer run on request:
//   TCC_FUZZ_ROUNDS=N  N problems for each test that compares small problems with brute force; tests on larger
//                      problems, which take longer, run N / 40; no test runs fewer than usual
//   TCC_FUZZ_SEED=S    other problems; a failure names round and seed, and is reproduced with the same two variables
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

/// The seed of a test's random numbers; `own` differs between tests.
inline unsigned fuzzSeed(unsigned own) {
  const char *asked = std::getenv("TCC_FUZZ_SEED");
  return own + (asked ? unsigned(std::strtoul(asked, nullptr, 10)) * 1'000'003u : 0u);
}

/// For SCOPED_TRACE.
inline std::string fuzzTrace(int round, unsigned seed) {
  return "round " + std::to_string(round) + ", seed " + std::to_string(seed);
}

/// Scales a number of occurrences, `count` in `usual` rounds, to `rounds` rounds.
inline int fuzzShare(int count, int usual, int rounds) { return int(int64_t(count) * rounds / usual); }

} // namespace tcc::planning

#endif // TCC_TEST_UNIT_PLANNING_FUZZROUNDS_H
