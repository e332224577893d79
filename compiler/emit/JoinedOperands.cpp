//===- JoinedOperands.cpp - operands of kernels that share a launch -------===//
#include "compiler/emit/JoinedOperands.h"

namespace tcc::emit {

void orderByMember(train::JoinedOp joined, plan::Instruction &instruction) {
  std::vector<int> order;
  int reads = 0, writes = int(joined->getNumOperands());
  for (train::FusedOp member : joined.getMembers()) {
    for (unsigned i = 0; i < member->getNumOperands(); ++i)
      order.push_back(reads++);
    for (unsigned i = 0; i < member->getNumResults(); ++i)
      order.push_back(writes++);
  }
  std::vector<uint32_t> place(order.size());
  const plan::Instruction before = instruction;
  for (auto [now, then] : llvm::enumerate(order)) {
    place[size_t(then)] = uint32_t(now);
    *instruction.mutable_operands(int(now)) = before.operands(then);
  }
  for (plan::InPlace &pair : *instruction.mutable_in_place()) {
    pair.set_source(place[pair.source()]);
    pair.set_destination(place[pair.destination()]);
  }
}

} // namespace tcc::emit
