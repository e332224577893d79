//===- InitialValues.h - what the variables hold before training ---------===//
#ifndef TCC_RUNTIME_INITIALVALUES_H
#define TCC_RUNTIME_INITIALVALUES_H

#include "runtime/plan/PlanFile.h"

#include <functional>
#include <map>

namespace tcc::runtime {

/// The first values of a plan's variables, piece by piece, for devices of any memory. Values of different variables may
/// be read by different threads.
class InitialValues {
public:
  /// Gives the memory of a variable's next piece: `bytes` at `offset` of its value. What it gave before is then written
  /// in full.
  using Room = std::function<Expected<std::byte *>(uint64_t offset, uint64_t bytes)>;

  /// Opens the files of external weights. Errors name variable and file: it is missing or too short. Of a shard, `rank`
  /// gets its own part (Shards.h).
  static Expected<InitialValues> open(const plan::PlanReader &reader, uint32_t rank = 0);
  InitialValues(InitialValues &&) noexcept;
  ~InitialValues();

  /// Reads the value of a verified plan's variable in pieces of at most `pieceBytes`, a multiple of 64; a value of
  /// zeros has none, and padding neither. Errors name variable and file: it cannot be read, or does not have the
  /// content that the plan was made from. Or that of `room`.
  Status read(int variable, uint64_t pieceBytes, const Room &room) const;

private:
  InitialValues(const plan::PlanReader &reader, uint32_t rank) : reader(&reader), rank(rank) {}
  /// Of the bytes of a first value, those that this rank holds.
  std::pair<uint64_t, uint64_t> ownBytes(const plan::Variable &variable, uint64_t all) const;
  Status readPart(const plan::ExternalBytes &source, std::pair<uint64_t, uint64_t> own, uint64_t pieceBytes,
                  const Room &room) const;
  Status readHashed(const plan::ExternalBytes &source, uint64_t pieceBytes, const Room &room) const;

  const plan::PlanReader *reader;
  uint32_t rank = 0;
  std::map<std::string, int> files; ///< by path, as the plan names it
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_INITIALVALUES_H
