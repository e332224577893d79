//===- StateCopyStream.h - copies of the state beside training -----------===//
//
// A checkpoint needs the state after update N, and update N + 1 changes it. The copies to page-locked memory are on a
// stream of their own: they begin when update N is done, and run beside the next forward pass. Who changes a variable
// waits, on the card, for its copy; the host waits for none of them before it writes the file.
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

/// Of one card, whose context is current.
class StateCopyStream {
public:
  struct Item {
    uint32_t variable;
    api::CUdeviceptr from;
    std::span<std::byte> to; ///< page-locked
  };

  /// `variables`: how many the plan has. References outlive the object.
  static Expected<std::unique_ptr<StateCopyStream>> open(const DriverLibrary &driver, size_t variables);
  /// Waits for the copies.
  ~StateCopyStream();
  StateCopyStream(const StateCopyStream &) = delete;
  StateCopyStream &operator=(const StateCopyStream &) = delete;

  /// Submits copies, in this order, of what `stream` has made of the variables so far.
  Status begin(api::CUstream stream, std::span<const Item> items);
  /// What `stream` gets from now on may change these variables: it waits for their copies.
  Status orderBefore(api::CUstream stream, std::span<const uint32_t> variables);
  /// Returns when the copy of that index is there. Any thread with the card's context, while nobody calls begin().
  Status wait(size_t index) const;

private:
  explicit StateCopyStream(const DriverLibrary &driver) : driver(driver) {}
  Status addEvent();

  const DriverLibrary &driver;
  api::CUstream own = nullptr;
  std::vector<api::CUevent> events; ///< first that of the variables' own stream, then one for each copy
  std::vector<int64_t> copyOf;      ///< by variable: the index of its copy, or -1
  int64_t submitted = 0;            ///< copies of the latest begin()
  int64_t ordered = 0;              ///< the stream that changes variables has waited for so many, in their order
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_STATECOPYSTREAM_H
