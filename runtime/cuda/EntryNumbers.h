//===- EntryNumbers.h - copies of an entry's numbers to the host ---------===//
//
// A training loop reads a few numbers of each run: the loss, the norm of the gradients. Each output of one element is
// copied to page-locked memory, either on a stream of its own as soon as it is final, while the run continues, or at
// the run's end. So the host has the loss during the backward pass, and can submit the next update before this one
// ends. The memory holds the numbers of the last two runs. A number that depends on no input (a loss's constant weight,
// whose instruction may come last) is the same in each run, so it is waited for only once.
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
  /// Number of latest runs whose numbers are kept.
  static constexpr unsigned kRuns = 2;
  using AddressOf = std::function<api::CUdeviceptr(const plan::Buffer &)>;

  /// Null if the entry has no outputs of one element. References outlive the object.
  static Expected<std::unique_ptr<EntryNumbers>> open(const DriverLibrary &driver, const plan::Plan &plan,
                                                      const plan::Entry &entry, const AddressOf &addressOf);
  ~EntryNumbers();
  EntryNumbers(const EntryNumbers &) = delete;
  EntryNumbers &operator=(const EntryNumbers &) = delete;

  /// The instruction before which the early numbers are final; 0: there are none, all are copied at the end. Early
  /// numbers are final before the first instruction that changes weights, which depends on the loss
  /// (docs/design/plan-format.md).
  size_t earlyEnd() const { return early; }

  /// A run begins.
  void begin() { ++runs; }
  /// Copies the early numbers on `side`, after the present work of `stream`.
  Status copyEarly(api::CUstream stream, api::CUstream side);
  /// Copies the other numbers on `stream`, after the end of the run. Later work of the stream may overwrite the
  /// numbers.
  Status copyOthers(api::CUstream stream);

  bool has(uint32_t buffer) { return find(buffer) != nullptr; }
  /// Returns when the number has arrived. `atEnd` is set if all of the latest run is then done. Error: no such run.
  Status read(uint32_t buffer, unsigned ago, std::span<std::byte> to, bool &atEnd);

private:
  explicit EntryNumbers(const DriverLibrary &driver) : driver(driver) {}
  struct Number {
    uint32_t buffer;
    api::CUdeviceptr address;
    uint64_t bytes;
    bool early;
    bool fixed;         ///< the instruction that writes it reads nothing
    bool known = false; ///< `value` has been read
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
  std::array<api::CUevent, kRuns> earlyThere{}, allThere{}; ///< by run modulo kRuns: the copies are complete
  api::CUevent final = nullptr;                             ///< the early numbers are final on the card
  uint64_t runs = 0;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_ENTRYNUMBERS_H
