//===- Transfers.h - values and state in the memory of the host -*- C++ -*-===//
//
// A device with memory of its own may keep some of it on the host. Transfers run on two channels, beside other
// instructions (Program.h). What a sequence decides is where each fetch begins and where each store is done: the
// farther a transfer is from the instruction that needs it, the shorter that one waits, and the more memory it takes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_TRANSFERS_H
#define TCC_PLANNING_TRANSFERS_H

#include "compiler/planning/Program.h"

#include <optional>
#include <vector>

namespace tcc::planning {

/// Smaller values and variables stay on the device: they are not worth a call of the driver.
inline constexpr Bytes kLeastMovedBytes = 64 << 10;

/// The values of a program that may be stored on the host and fetched, and the optional instructions that do so: number
/// storeOf(k) stores `values[k]` and storeOf(k) + 1 fetches it.
struct Offer {
  Program program; ///< the given one, with a host value for each offered value, then the optional instructions
  std::vector<int> values;
  size_t first = 0; ///< of the optional instructions

  int storeOf(size_t k) const { return int(first + 2 * k); }
  int fetchOf(size_t k) const { return storeOf(k) + 1; }
  bool has(int instruction) const { return size_t(instruction) >= first; }
  bool isStore(int instruction) const { return (size_t(instruction) - first) % 2 == 0; }
  /// The value that an optional instruction moves.
  int movedBy(int instruction) const { return values[(size_t(instruction) - first) / 2]; }
};

/// Offers every value of at least kLeastMovedBytes that an instruction makes, that does not live to the end, and that
/// the program does not fetch or store itself.
Offer offerTransfers(const Program &program, Bytes bytesPerCost);

/// True if the program has transfers of its own.
bool hasTransfers(const Program &program);

/// The most bytes that one instruction's transfers move: what `stagingBytes` must hold at least.
Bytes largestTransfers(const Program &program, const Sequence &sequence);

/// The sequence with fetches begun earlier and stores done later, such that as little as possible waits for them while
/// at most `stagingBytes` are fetched ahead or not yet stored; nothing: no limit. The order of all other instructions
/// stays, and so do the results.
Sequence spread(const Program &program, const Sequence &sequence, std::optional<Bytes> stagingBytes);

} // namespace tcc::planning

#endif // TCC_PLANNING_TRANSFERS_H
