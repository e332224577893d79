//===- Card.h - the card that a plan runs on ----------------------------===//
#ifndef TCC_RUNTIME_CUDA_CARD_H
#define TCC_RUNTIME_CUDA_CARD_H

#include "runtime/cuda/DriverLibrary.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tcc::cuda {

/// A card and its primary context, which is current to the calling thread when the card has been opened.
class Card {
public:
  /// The card of that number among those that the driver shows (CUDA_VISIBLE_DEVICES selects). If it shows only one,
  /// every rank gets that, since a launcher may show each rank its own. Error: no such card, or no context.
  static Expected<Card> open(const DriverLibrary &library, uint32_t ordinal = 0);
  Card(Card &&) noexcept;
  ~Card();

  const std::string &name() const { return cardName; }
  /// "GPU-12345678-…", unique among all cards of all machines.
  const std::string &uuid() const { return cardUuid; }
  /// 90: compute capability 9.0.
  int capability() const { return computeCapability; }
  /// Multiprocessors.
  int processors() const { return multiprocessors; }
  /// Bytes of free memory.
  Expected<uint64_t> freeBytes() const;
  uint64_t totalBytes() const { return memoryBytes; }

  const DriverLibrary &driver() const { return *library; }
  api::CUcontext handle() const { return context; }

  /// Makes the context current to the calling thread.
  Status select() const;

private:
  explicit Card(const DriverLibrary &library) : library(&library) {}

  const DriverLibrary *library;
  api::CUdevice device = 0;
  api::CUcontext context = nullptr;
  std::string cardName, cardUuid;
  int computeCapability = 0, multiprocessors = 0;
  uint64_t memoryBytes = 0;
};

/// The compute capability of an architecture: 90 for "sm_90"; 0 for another text.
int capabilityOf(std::string_view architecture);

/// The versions of driver and card that PTX requires, from its header.
struct PtxNeeds {
  int version = 0;    ///< 87: 8.7
  int capability = 0; ///< 90
  char only = 0;      ///< 'a': code of sm_90a runs on 9.0 alone; 'f': of sm_100f on 10.x alone; 0: on all later cards

  bool runsOn(int card) const {
    return only == 'a'   ? card == capability
           : only == 'f' ? card >= capability && card / 10 == capability / 10
                         : card >= capability;
  }
};
/// Error: a text without such a header.
Expected<PtxNeeds> needsOf(std::string_view ptx);

/// The first driver that reads a version of PTX, as DriverLibrary::version() counts (PTX ISA, "Release Notes").
int driverFor(int ptxVersion);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_CARD_H
