//===- WiredLinks.h - links over one wire for each peer ------------------===//
//
// The wire to a peer is shared memory, a TCP connection, or MPI. A Watch knows which ranks are alive.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_WIREDLINKS_H
#define TCC_RUNTIME_PARALLEL_WIREDLINKS_H

#include "runtime/parallel/Watch.h"
#include "runtime/parallel/Wire.h"

#include <memory>
#include <vector>

namespace tcc::runtime {

class WiredLinks final : public Links {
public:
  /// `routes`: the wire to each rank, one of `wires`; null for this rank.
  WiredLinks(uint32_t rank, std::vector<std::string> names, std::vector<std::unique_ptr<Wire>> wires,
             std::vector<Wire *> routes, std::unique_ptr<Watch> watch);

  uint32_t rank() const override { return own; }
  uint32_t size() const override { return static_cast<uint32_t>(names.size()); }
  std::string describe(uint32_t other) const override { return names[other]; }
  void abort(const std::string &text) override { watch->abort(text); }
  std::optional<std::string> failure() override { return watch->failure(); }
  void setStep(uint64_t step) override { watch->setStep(step); }
  void onSlow(std::function<void(const std::string &)> hearer) override { slow = std::move(hearer); }
  uint64_t mostLent(uint32_t peer) const override { return routes[peer]->mostLent(); }
  void release() override;
  Status exchange(std::span<Transfer> transfers) override;

private:
  Status broken(uint32_t peer, const std::string &reason);
  Status wait(Deadline &told);

  const uint32_t own;
  const std::vector<std::string> names;
  const std::vector<std::unique_ptr<Wire>> wires;
  const std::vector<Wire *> routes;
  std::function<void(const std::string &)> slow;
  std::vector<Progress> open;         ///< unfinished transfers of an exchange
  const std::unique_ptr<Watch> watch; ///< last: its thread says goodbye before the wires go
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_WIREDLINKS_H
