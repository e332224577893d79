//===- Beside.cpp - what runs while ranks wait for each other ---*- C++ -*-===//
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
    std::set<uint32_t> results;
    int last = count - 1; // the last instruction beside it
    for (const plan::Operand &operand : collective.operands())
      if (operand.write()) {
        results.insert(operand.buffer());
        const plan::Buffer &buffer = entry.buffers(int(operand.buffer()));
        if (buffer.arena() != plan::RESIDENT)
          last = std::min(last, buffer.last());
      }
    for (int other = at + 1; other <= last; ++other)
      for (const plan::Operand &operand : entry.instructions(other).operands())
        if (results.count(operand.buffer()))
          last = other - 1;
    collective.set_beside(std::max(0, last - at));
  }
}

} // namespace tcc::emit
