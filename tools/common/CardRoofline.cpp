//===- CardRoofline.cpp - the least time of an instruction on a card ------===//
#include "tools/common/CardRoofline.h"

#include "tools/common/InstructionText.h"

namespace tcc::report {

ChosenCard chooseCard(const plan::Plan &plan, std::string_view driverName) {
  constexpr std::string_view kCuda = "cuda:";
  const std::string_view target = plan.target();
  if (!target.starts_with(kCuda))
    return {};
  if (const Card *card = findCardOfDriver(driverName))
    return {card, ChosenCard::From::Device};
  if (const Card *card = findCard(plan.card()))
    return {card, ChosenCard::From::Plan};
  return {usualCard(target.substr(kCuda.size())), ChosenCard::From::Architecture};
}

LeastTime leastTime(const Card &card, const plan::Instruction &instruction) {
  // Other instructions have empty calls.
  const bool tf32 = instruction.matmul().tf32() || instruction.convolution().tf32();
  const double rate = tf32 ? card.tf32 : productRate(card, arithmeticType(instruction));
  return {instruction.flops() / rate, static_cast<double>(instruction.bytes()) / card.bytesPerSecond};
}

} // namespace tcc::report
