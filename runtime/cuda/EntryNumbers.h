//===- EntryNumbers.h - numbers of an entry, on their way to the host ----===//
//
// A training loop wants a few numbers of each run: the loss, the norm of the gradients. Each output of one element is
// copied to page-locked memory by itself: on a stream of its own as soon as it is final, while the run goes on, or at
// the run's end. So the host has the loss while the backward pass is computed, and has the next update submitted before
// this one ends. The memory holds the numbers of the last two runs. A number that is made of nothing (a loss's constant
// weight, whose instruction may come last) is the same in each run: it is waited for once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_ENTRYNUMBERS_H
#define TCC_RUNTIME_CUDA_ENTRYNUMBERS_H

#include "runtime/cuda/PinnedMemory.h"
#include "runtime/plan/plan.pb.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tcc::cuda {

/// Of one entry on one card, whose context is current.
class EntryNumbers {
public:
  /// How many runs back numbers are kept.
  static constexpr unsigned kRuns = 2;
  using AddressOf = std::function<api::CUdeviceptr(const plan::Buffer &)>;

  /// Null where the entry has no outputs of one element. References outlive the object.
  static Expected<std::unique_ptr<EntryNumbers>> open(const DriverLibrary &driver, const plan::Plan &plan,
                                                      const plan::Entry &entry, const AddressOf &addressOf);
  ~EntryNumbers();
  EntryNumbers(const EntryNumbers &) = delete;
  EntryNumbers &operator=(const EntryNumbers &) = delete;

  /// The instruction before which the early numbers are final; 0: there are none, all come at the end. They are final
  /// before the first instruction that changes weights: that depends on the loss (docs/design/plan-format.md).
  size_t earlyEnd() const { return early; }

  /// A run begins.
  void begin() { ++runs; }
  /// What `stream` has so far makes the early numbers: copies them on `side`.
  Status copyEarly(api::CUstream stream, api::CUstream side);
  /// The run's end is submitted to `stream`: copies the others there. What the stream gets afterwards may change the
  /// numbers' memory.
  Status copyOthers(api::CUstream stream);

  bool has(uint32_t buffer) { return find(buffer) != nullptr; }
  /// Returns when the number is there. `atEnd` becomes true if then all of the latest run is done. Error: no such run.
  Status read(uint32_t buffer, unsigned ago, std::span<std::byte> to, bool &atEnd);

private:
  explicit EntryNumbers(const DriverLibrary &driver) : driver(driver) {}
  struct Number {
    uint32_t buffer;
    api::CUdeviceptr address;
    uint64_t bytes;
    bool early;
    bool fixed;         ///< the instruction that writes it reads nothing
    bool known = false; ///< `value` is there
    std::array<std::byte, 8> value = {};
  };
  static constexpr uint64_t kSlotBytes = 8;
  Number *find(uint32_t buffer);
  std::byte *slot(uint64_t run, size_t number) const {
    return memory->data() + (run % kRuns * numbers.size() + number) * kSlotBytes;
  }
  Status copy(bool ofEarly, api::CUstream stream);

  const DriverLibrary &driver;
  std::vector<Number> numbers;
  size_t early = 0;
  std::optional<PinnedMemory> memory;
  std::array<api::CUevent, kRuns> earlyThere{}, allThere{}; ///< by run, in turn
  api::CUevent final = nullptr;                             ///< of the early numbers on the card
  uint64_t runs = 0;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_ENTRYNUMBERS_H
