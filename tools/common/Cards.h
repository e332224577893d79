//===- Cards.h - a plan's card, and least times by its data sheet -*- C++ -*-===//
//
// Roofline (Williams, Waterman, Patterson, 2009): an instruction takes at least its bytes over the card's bandwidth,
// and its operations over the card's rate, whichever is longer. Rates are those of data sheets, each operand is moved
// once, launches take no time: this is a lower bound that most kernels do not reach. ExpectedTime.h has times that
// cards reach.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_CARDS_H
#define TCC_TOOLS_COMMON_CARDS_H

#include "runtime/cuda/cards/Cards.h"
#include "runtime/plan/plan.pb.h"

#include <algorithm>

namespace tcc::report {

using nvidia::Card;
using nvidia::cards;
using nvidia::findCard;
using nvidia::findCardOfDriver;
using nvidia::slices;
using nvidia::usualCard;

/// Operations per second on products of a type; those of other types run at f32's rate.
double productRate(const Card &card, plan::DType type);

/// The card whose data sheet times are compared with.
struct ChosenCard {
  const Card *card = nullptr;
  enum class From { Device, Plan, Architecture } from = From::Architecture;
};

/// For a plan for CUDA: the card that runs it, if its driver's name is known; else the card that the plan was made for;
/// else its architecture's usual card. Null for plans of other targets and unknown architectures.
ChosenCard chooseCard(const plan::Plan &plan, std::string_view driverName = "");

struct LeastTime {
  double arithmetic = 0, traffic = 0; ///< seconds
  double seconds() const { return std::max(arithmetic, traffic); }
};

/// Products of the library, and kernels that name the type of their products, run at the rate of that type; all other
/// instructions at f32's.
LeastTime leastTime(const Card &card, const plan::Instruction &instruction);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_CARDS_H
