//===- InitialValues.h - the variables' values before training -----------===//
#ifndef TCC_RUNTIME_INITIALVALUES_H
#define TCC_RUNTIME_INITIALVALUES_H

#include "runtime/plan/PlanFile.h"

#include <functional>
#include <map>

namespace tcc::runtime {

/// Reads the initial values of a plan's variables piece by piece, for devices with any kind of memory. Different
/// threads may read different variables.
class InitialValues {
public:
  /// Returns the memory for a variable's next piece: `bytes` at `offset` of its value. When it is called, the memory of
  /// the previous piece has been written in full.
  using Room = std::function<Expected<std::byte *>(uint64_t offset, uint64_t bytes)>;

  /// Opens the files of external weights. Of a sharded variable, only the part of `rank` is read (Shards.h). Errors
  /// name variable and file: it is missing or too short.
  static Expected<InitialValues> open(const plan::PlanReader &reader, uint32_t rank = 0);
  InitialValues(InitialValues &&) noexcept;
  ~InitialValues();

  /// Reads the value of a verified plan's variable in pieces of at most `pieceBytes`, a multiple of 64; there are no
  /// pieces for a value of zeros, nor for padding. Errors name variable and file: it cannot be read, or has changed
  /// since the plan was made; or the error is that of `room`.
  Status read(int variable, uint64_t pieceBytes, const Room &room) const;

private:
  InitialValues(const plan::PlanReader &reader, uint32_t rank) : reader(&reader), rank(rank) {}
  /// The range, of the bytes of an initial value, that this rank holds.
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
