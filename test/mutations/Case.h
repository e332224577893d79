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
  uint64_t memoryBytes = 0; ///< of address space; 0: no limit (sanitizers take terabytes)
  unsigned cpuSeconds = 20;
  uint64_t mostPlanBytes = 0; ///< plans that ask for more are not run; 0: no limit
  std::string folder;         ///< for exports
};

/// Opens a plan, verifies it, and where it is accepted runs every entry: each instruction alone between guard pages,
/// then all as the CPU device does, then exports it. A finding is returned only where two values share memory; what a
/// plan does wrong otherwise ends the process.
CaseResult tryPlanHere(const std::string &bytes, const CaseOptions &options);

/// The same in a child process: a signal, a time limit, or an exit of another kind is a finding, too.
CaseResult tryPlan(const std::string &bytes, const CaseOptions &options);

} // namespace tcc::test

#endif // TCC_TEST_MUTATIONS_CASE_H
