//===- ChangedPlan.h - a plan, changed at random -------------------------===//
#ifndef TCC_TEST_MUTATIONS_CHANGEDPLAN_H
#define TCC_TEST_MUTATIONS_CHANGEDPLAN_H

#include "runtime/plan/PlanFile.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tcc::test {

/// A plan to change, and its payloads.
struct PlanSource {
  std::string name;
  plan::Plan plan;
  std::vector<std::string> payloads;

  /// Opens the file. Nothing, with a message on standard error, if that fails.
  static std::optional<PlanSource> read(const std::string &path);
  static PlanSource of(const plan::PlanReader &reader, std::string name);

  /// The bytes of the plan's file. The writer computes the checksums of header and payloads anew; the hashes that bind
  /// signatures to code stay as they are. Empty if the header is too large to write.
  std::string file() const;
};

struct ChangedPlan {
  std::string bytes;                ///< of the file
  std::vector<std::string> changes; ///< in words
};

/// Changes a plan by reflection in one to four places, often in one entry. Sometimes repairs versions, live ranges and
/// arena sizes, so that the verifier must find mistakes other than those of book-keeping; rarely flips one bit of a
/// payload.
ChangedPlan changePlan(const PlanSource &source, std::mt19937_64 &random);

} // namespace tcc::test

#endif // TCC_TEST_MUTATIONS_CHANGEDPLAN_H
