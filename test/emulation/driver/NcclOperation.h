//===- NcclOperation.h - collectives of NCCL's stand-in ------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_NCCLOPERATION_H
#define TCC_TEST_EMULATION_DRIVER_NCCLOPERATION_H

#include "test/emulation/driver/NcclMeeting.h"
#include "test/emulation/machine/Fault.h"

#include <optional>

namespace tcc::emulation {

/// The state of a communicator that any thread may access without the stand-in's lock, which a waiting rank holds.
struct NcclState {
  std::atomic<bool> aborted{false};
  std::atomic<int> asyncError{cuda::api::ncclSuccess};
  std::shared_ptr<int> graphs = std::make_shared<int>(0); ///< each captured operation holds a reference
};

struct NcclCommunicator {
  std::shared_ptr<NcclMeeting> meeting;
  std::shared_ptr<NcclState> state = std::make_shared<NcclState>();
  std::byte *buffers = nullptr;        ///< NCCL's own memory on the device: each operation writes it
  uint64_t submitted = 0;              ///< operations outside of captures
  const void *capture = nullptr;       ///< the latest capture with operations of this communicator
  uint64_t captures = 0, captured = 0; ///< number of captures; operations in the latest one
};

struct NcclOperation {
  enum Kind { AllReduce, Reduce, Broadcast, ReduceScatter, AllGather } kind;
  const void *from = nullptr;
  void *to = nullptr;
  uint64_t count = 0; ///< elements, as the caller gave them
  cuda::api::ncclDataType_t type = cuda::api::ncclFloat32;
  int root = 0;
  std::string place; ///< "operation 7", "operation 2 of graph 1"

  const char *call() const;
  std::string text() const;
  /// Bytes that this rank reads, and writes.
  uint64_t readBytes(const NcclMeeting &ranks) const;
  uint64_t writtenBytes(const NcclMeeting &ranks) const;
  /// Whether source and result are in place by the documentation's definition.
  bool inPlace(const NcclMeeting &ranks) const;

  /// Compares this operation with those of the other ranks, and carries it out with them. If the communicator is
  /// aborted, the result is NaN.
  std::optional<Fault> run(NcclMeeting &ranks, const NcclState &state, double seconds) const;

private:
  uint64_t elementBytes() const;
  void add(NcclMeeting &ranks, uint64_t begin, uint64_t elements, uint32_t start, std::byte *to) const;
};

/// Bytes of an element; 0 if NCCL does not have the type.
uint64_t bytesOf(cuda::api::ncclDataType_t type);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_NCCLOPERATION_H
