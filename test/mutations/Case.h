//===- Case.h - one plan, tried -------------------------------------------===//
#ifndef TCC_TEST_MUTATIONS_CASE_H
#define TCC_TEST_MUTATIONS_CASE_H

#include <cstdint>
#include <string>

namespace tcc::test {

/// How a plan ended.
enum class Outcome { Ran, RefusedByReader, RefusedByVerifier, RefusedByDevice, Finding };

struct CaseResult {
  Outcome outcome;
  std::string message; ///< why it was refused, or what went wrong
};

struct CaseOptions {
  uint64_t seed = 0; ///< of the inputs
  unsigned threads = 2;
  uint64_t memoryBytes = 0; ///< limit of the address space; 0: none (sanitizers take terabytes)
  unsigned cpuSeconds = 20;
  uint64_t mostPlanBytes = 0; ///< plans that ask for more are not run; 0: no limit
  std::string folder;         ///< for exports
};

/// Opens and verifies a plan. If it is accepted, runs every entry, each instruction alone between guard pages; then
/// runs it on the CPU device, and exports it. Returns a finding only if two values share memory; any other violation
/// ends the process.
CaseResult tryPlanHere(const std::string &bytes, const CaseOptions &options);

/// The same in a child process: a signal, a time-out or an unexpected exit status is a finding as well.
CaseResult tryPlan(const std::string &bytes, const CaseOptions &options);

} // namespace tcc::test

#endif // TCC_TEST_MUTATIONS_CASE_H
