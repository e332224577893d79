//===- Beside.cpp - overlap collectives with later instructions -*- C++ -*-===//
#include "compiler/emit/Beside.h"

#include <algorithm>
#include <set>

namespace tcc::emit {

void letCollectivesRunBeside(plan::Entry &entry) {
  const int count = entry.instructions_size();
  for (int at = 0; at < count; ++at) {
    plan::Instruction &collective = *entry.mutable_instructions(at);
    if (!collective.has_collective())
      continue;
    const plan::CollectiveCall::Kind kind = collective.collective().kind();
    if (kind == plan::CollectiveCall::OWN_SHARD) // a copy
      continue;
    // A reduce-scatter neither copies its sources nor reduces in place: they stay live until it ends.
    std::set<uint32_t> results, sources;
    int last = count - 1; // the last instruction that it overlaps
    for (const plan::Operand &operand : collective.operands()) {
      if (!operand.write() && kind != plan::CollectiveCall::REDUCE_SCATTER)
        continue;
      (operand.write() ? results : sources).insert(operand.buffer());
      const plan::Buffer &buffer = entry.buffers(int(operand.buffer()));
      if (buffer.arena() != plan::RESIDENT)
        last = std::min(last, buffer.last());
    }
    for (int other = at + 1; other <= last; ++other) {
      const plan::Instruction &instruction = entry.instructions(other);
      for (const plan::Operand &operand : instruction.operands())
        if (results.count(operand.buffer()) || (operand.write() && sources.count(operand.buffer())))
          last = other - 1;
      for (const plan::InPlace &pair : instruction.in_place())
        if (sources.count(instruction.operands(int(pair.source())).buffer()))
          last = other - 1;
    }
    collective.set_beside(std::max(0, last - at));
  }
}

} // namespace tcc::emit
