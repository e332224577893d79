//===- StateCopyStream.h - copies of the state beside training -----------===//
//
// A checkpoint needs the state after update N, and update N + 1 changes it. The copies to page-locked memory are on a
// stream of their own: they begin when update N is done, and run concurrently with the next forward pass. Work that
// changes a variable waits, on the card, for its copy; the host waits only when it writes the file.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_STATECOPYSTREAM_H
#define TCC_RUNTIME_CUDA_STATECOPYSTREAM_H

#include "runtime/cuda/DriverLibrary.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tcc::cuda {

/// The copies of one card, whose context is current.
class StateCopyStream {
public:
  struct Item {
    uint32_t variable;
    api::CUdeviceptr from;
    std::span<std::byte> to; ///< page-locked
    bool isOnHost = false;   ///< `from` is page-locked memory of the host
  };

  /// `variables`: number of the plan's variables. References outlive the object.
  static Expected<std::unique_ptr<StateCopyStream>> open(const DriverLibrary &driver, size_t variables);
  /// Waits for the copies.
  ~StateCopyStream();
  StateCopyStream(const StateCopyStream &) = delete;
  StateCopyStream &operator=(const StateCopyStream &) = delete;

  /// Submits copies of the variables, in this order, after the present work of `stream`. Earlier copies are complete
  /// before; after an error none is under way.
  Status begin(api::CUstream stream, std::span<const Item> items);
  /// Makes future work of `stream`, which may change these variables, wait for their copies.
  Status orderBefore(api::CUstream stream, std::span<const uint32_t> variables);
  /// Returns when the copy of that index is complete. May run on any thread with the card's context, but not during
  /// begin().
  Status wait(size_t index) const;

private:
  explicit StateCopyStream(const DriverLibrary &driver) : driver(driver) {}
  Status addEvent();
  /// Waits for all copies.
  Status finish() const;

  /// A copy within the host, for a function that a stream calls.
  struct HostCopy {
    const std::byte *from;
    std::span<std::byte> to;
  };

  const DriverLibrary &driver;
  api::CUstream own = nullptr;
  std::vector<HostCopy> hostCopies; ///< of the latest begin()
  std::vector<api::CUevent> events; ///< first that of the stream that changes variables, then one for each copy
  std::vector<int64_t> copyOf;      ///< by variable: the index of its copy, or -1
  int64_t submitted = 0;            ///< copies of the latest begin()
  int64_t ordered = 0;              ///< number of copies that the stream that changes variables has waited for
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_STATECOPYSTREAM_H
