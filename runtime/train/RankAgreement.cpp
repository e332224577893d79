//===- RankAgreement.cpp - decisions on which all ranks agree --------------===//
#include "runtime/train/RankAgreement.h"
#include "runtime/train/Ranks.h"

#include <cstdlib>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kRequested = 1, kEarly = 2, kDue = 4, kAsked = 8;

uint64_t bitsOf(EndReasons ends) { return (ends.requested ? kRequested : 0) | (ends.early ? kEarly : 0); }
EndReasons endsOf(uint64_t bits) { return {(bits & kRequested) != 0, (bits & kEarly) != 0}; }
} // namespace

Expected<EndReasons> RankAgreement::ends(EndReasons own) {
  if (std::optional<EndReasons> before = std::exchange(agreed, std::nullopt))
    return *before;
  if (!session.ranks)
    return own;
  auto all = session.ranks->anyOf(bitsOf(own));
  return all ? Expected<EndReasons>(endsOf(*all)) : all.status();
}

Expected<uint64_t> RankAgreement::numberOfFirst(uint64_t own) {
  return session.worldSize() == 1 ? own : session.ranks->anyOf(session.leads() ? own : 0);
}

Expected<bool> RankAgreement::asFirst(bool own) {
  auto first = numberOfFirst(own);
  return first ? Expected<bool>(*first != 0) : first.status();
}

Expected<RankAgreement::Checkpoint> RankAgreement::checkpoint(Checkpoint own, EndReasons ownEnds) {
  if (session.worldSize() == 1)
    return own;
  // Ranks receive a signal at different updates, and their clocks differ: rank 0 decides for all.
  auto all = session.ranks->anyOf(bitsOf(ownEnds) |
                                  (session.leads() ? (own.due ? kDue : 0) | (own.asked ? kAsked : 0) : 0));
  if (!all)
    return all.status();
  const Checkpoint first{(*all & kDue) != 0, (*all & kAsked) != 0};
  if (!first.due) // the next update begins at once, so ends() reuses this agreement
    agreed = endsOf(*all);
  return first;
}

Status RankAgreement::compareState(uint64_t step, Trace::Track *track) {
  if (session.worldSize() == 1 || !session.computes() || compared == step)
    return Status();
  TraceScope span(track, "compare ranks", "update", step);
  auto differences = differencesOfReplicas(session, step, /*begins=*/!compared, sums);
  if (!differences) // an error, such as the end of a rank, does not mean that the state differs
    return differences.status().withContext(fmt::format("step {}", step));
  differs = !differences->empty();
  if (differs)
    return Status(*differences);
  compared = step;
  return Status();
}

UpdateRunner::Cause RankAgreement::firstCause(const UpdateRunner::Cause &own, std::string &where) {
  if (session.worldSize() == 1)
    return own;
  using Field = std::string UpdateRunner::Cause::*;
  std::vector<UpdateRunner::Cause> causes(session.worldSize());
  for (Field field :
       {&UpdateRunner::Cause::node, &UpdateRunner::Cause::nanInput, &UpdateRunner::Cause::infiniteInput}) {
    auto texts = session.ranks->gatherTexts(own.*field);
    if (!texts)
      return own;
    for (size_t rank = 0; rank < causes.size(); ++rank)
      causes[rank].*field = (*texts)[rank];
  }
  auto places = session.ranks->gatherTexts(std::to_string(own.place));
  if (!places)
    return own;
  for (size_t rank = 0; rank < causes.size(); ++rank)
    causes[rank].place = std::strtoull((*places)[rank].c_str(), nullptr, 10);
  std::optional<size_t> first;
  for (Field field :
       {&UpdateRunner::Cause::nanInput, &UpdateRunner::Cause::node, &UpdateRunner::Cause::infiniteInput}) {
    for (size_t rank = 0; rank < causes.size(); ++rank)
      if (!(causes[rank].*field).empty() && (!first || causes[rank].place < causes[*first].place))
        first = rank;
    if (first)
      break;
  }
  if (!first)
    return own;
  where = fmt::format(" on {}", session.ranks->describe(static_cast<uint32_t>(*first)));
  return causes[*first];
}
