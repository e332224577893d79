//===- Links.h - messages between two ranks ------------------------------===//
//
// What a backend offers: a stream of bytes to and from every other rank. Collectives.h makes everything else of it.
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

/// Bytes for one other rank, or from it: the parts in their order.
struct Transfer {
  uint32_t peer = 0;
  bool send = false;
  std::vector<Piece> parts;
  /// Called once the first part of a receipt is there, before anything waits for the others; null: nothing.
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

  /// Carries out all transfers, at most one of each direction with a peer. Nothing of it waits for another of them.
  virtual Status exchange(std::span<Transfer> transfers) = 0;

  /// Up to so many bytes from that peer can be read where they arrived: the last part of a receipt may have no place
  /// (null) and is then given one, until release. They must be all that the receipt has behind its other parts, and
  /// begin at a multiple of 64 bytes of it. 0: none.
  virtual uint64_t mostLent(uint32_t) const { return 0; }
  virtual void release() {}

  virtual void abort(const std::string &text) = 0;
  virtual std::optional<std::string> failure() = 0;
  virtual void setStep(uint64_t step) = 0;
  virtual void onSlow(std::function<void(const std::string &)> hearer) = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_LINKS_H
