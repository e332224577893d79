//===- Cards.cpp - a plan's card, and least times by its data sheet -------===//
#include "tools/common/Cards.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Targets.h"
#include "tools/common/InstructionText.h"

namespace tcc::report {

double productRate(const Card &card, plan::DType type) {
  return type == plan::BF16 || type == plan::F16 ? card.bf16 : card.f32;
}

ChosenCard chooseCard(const plan::Plan &plan, std::string_view driverName) {
  if (!plan::runsOnGrids(plan))
    return {};
  if (const Card *card = findCardOfDriver(driverName))
    return {card, ChosenCard::From::Device};
  if (const Card *card = findCard(plan.card()))
    return {card, ChosenCard::From::Plan};
  return {usualCard(plan::levelOf(plan.target())), ChosenCard::From::Architecture};
}

LeastTime leastTime(const Card &card, const plan::Instruction &instruction) {
  // Other instructions have empty calls.
  const bool tf32 = instruction.matmul().tf32() || instruction.convolution().tf32();
  const double rate = tf32 ? card.tf32 : productRate(card, arithmeticType(instruction));
  return {instruction.flops() / rate, static_cast<double>(instruction.bytes()) / card.bytesPerSecond};
}

} // namespace tcc::report
