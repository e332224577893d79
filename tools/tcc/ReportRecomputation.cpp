//===- ReportRecomputation.cpp - recomputed tensors and their cost --------===//
#include "tools/tcc/ReportSections.h"

#include <algorithm>
#include <map>

namespace tcc::report {

namespace {

/// Equal for two executions of one call for the same nodes: the call with its shapes and operations.
std::string callKey(const plan::Instruction &instruction) {
  std::string key = instructionName(instruction);
  const plan::MatmulCall &product = instruction.matmul();
  key += fmt::format(" {}x{}x{}x{} {}{} {}", product.batch(), product.m(), product.n(), product.k(), product.trans_a(),
                     product.trans_b(), instruction.flops());
  for (const std::string &node : instruction.nodes())
    key += '\0' + node;
  return key;
}

/// The last instruction before `again` that reads a result of `earlier`.
int32_t lastReader(const plan::Entry &program, const emit::EntryLives &lives, int32_t earlier, int32_t again) {
  int32_t last = earlier;
  for (const plan::Operand &operand : program.instructions(earlier).operands())
    if (operand.write() && operand.buffer() < lives.buffers.size())
      for (int32_t reader : lives.buffers[operand.buffer()].readers)
        if (reader < again)
          last = std::max(last, reader);
  return last;
}

} // namespace

Recomputation analyzeRecomputation(const plan::Entry &program, const emit::EntryLives &lives) {
  Recomputation result;
  uint64_t work = 0;
  bool moves = false;
  std::map<std::string, int32_t> executed;
  for (int32_t i = 0; i < program.instructions_size(); ++i) {
    const plan::Instruction &instruction = program.instructions(i);
    std::string key = callKey(instruction);
    moves |= instruction.has_transfer();
    if (!instruction.has_transfer())
      work += instruction.cost();
    if (!instruction.recompute()) {
      result.flopsOnce += instruction.flops();
      // A gradient at the same nodes may be a product of the same shape.
      if (lives.phases[size_t(i)] == emit::Phase::Forward)
        executed[key] = i;
      continue;
    }
    result.flops += instruction.flops();
    result.extraCost += instruction.cost();
    auto found = executed.find(key);
    int32_t givenUp = found == executed.end() ? -1 : lastReader(program, lives, found->second, i);
    bool first = true;
    for (const plan::Operand &operand : instruction.operands()) {
      if (!operand.write() || operand.buffer() >= uint32_t(program.buffers_size()))
        continue;
      const plan::Buffer &buffer = program.buffers(int(operand.buffer()));
      result.tensors.push_back({buffer.name(), buffer.node(), program.name(), buffer.bytes(),
                                first ? instruction.flops() : 0, first ? instruction.cost() : 0, i, givenUp});
      first = false;
    }
    executed[key] = i;
  }
  if (!result.tensors.empty() && program.without_recompute_bytes() > program.transient_bytes())
    result.bytes = program.without_recompute_bytes() - program.transient_bytes();
  // A first execution may leave some results to a later one, so the sum over repeats would be wrong: the extra cost is
  // the program's cost beyond that of the ladder's first rung, which executes everything once.
  result.cost = moves ? program.cost() : work; // with transfers the time of three streams
  result.waited = result.cost - std::min(work, result.cost);
  if (program.frontier_size() && program.frontier(0).cost() <= work)
    result.extraCost = work - program.frontier(0).cost();
  result.lowerBoundCost = program.lower_bound_cost();
  std::stable_sort(result.tensors.begin(), result.tensors.end(), [](auto &a, auto &b) { return a.bytes > b.bytes; });
  return result;
}

void addRecomputation(Recomputation &sum, const Recomputation &program, uint64_t calls) {
  sum.bytes = std::max(sum.bytes, program.bytes);
  sum.flops += program.flops * double(calls);
  sum.flopsOnce += program.flopsOnce * double(calls);
  sum.cost += program.cost * calls;
  sum.extraCost += program.extraCost * calls;
  sum.waited += program.waited * calls;
  sum.lowerBoundCost += program.lowerBoundCost * calls;
  sum.tensors.insert(sum.tensors.end(), program.tensors.begin(), program.tensors.end());
  std::stable_sort(sum.tensors.begin(), sum.tensors.end(), [](auto &a, auto &b) { return a.bytes > b.bytes; });
}

double Recomputation::extraFlopsFraction() const { return flopsOnce > 0 ? flops / flopsOnce : 0; }

double Recomputation::extraCostFraction() const {
  return baseCost() ? double(extraCost) / double(baseCost()) : 0;
}

double Recomputation::boundFraction() const {
  uint64_t base = baseCost();
  return base && lowerBoundCost > base ? double(lowerBoundCost - base) / double(base) : 0;
}

double Recomputation::gap() const {
  return lowerBoundCost && cost > lowerBoundCost ? double(cost) / double(lowerBoundCost) - 1 : 0;
}

} // namespace tcc::report
