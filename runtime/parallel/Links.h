//===- Links.h - messages between two ranks ------------------------------===//
//
// The interface of a backend: a stream of bytes to and from every other rank. Collectives.h builds everything else on
// it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_LINKS_H
#define TCC_RUNTIME_PARALLEL_LINKS_H

#include "runtime/parallel/Communicator.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Bytes to or from one other rank: the parts in order.
struct Transfer {
  uint32_t peer = 0;
  bool send = false;
  std::vector<Piece> parts;
  /// Called once the first part of a receipt has arrived, before waiting for the others; may be null.
  std::function<Status()> onFirst = nullptr;
  /// The first part of this transfer is a header, and its receipt has onFirst.
  bool introduces = false;
};

class Links {
public:
  virtual ~Links() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  virtual std::string describe(uint32_t rank) const = 0;

  /// Carries out all transfers, at most one in each direction with a peer. No transfer waits for another.
  virtual Status exchange(std::span<Transfer> transfers) = 0;

  /// The most bytes from that peer that can be read without a copy, in the memory where they arrive; 0: none. If the
  /// last part of a receipt has no address (null), exchange sets one, which is valid until release. That part must
  /// begin at a multiple of 64 bytes of the receipt.
  virtual uint64_t mostLent(uint32_t) const { return 0; }
  virtual void release() {}

  virtual void abort(const std::string &text) = 0;
  virtual std::optional<std::string> failure() = 0;
  virtual void setStep(uint64_t step) = 0;
  virtual void onSlow(std::function<void(const std::string &)> hearer) = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_LINKS_H
