//===- CardRoofline.h - the least time of an instruction on a card -*- C++ -*-===//
//
// Roofline (Williams, Waterman, Patterson, 2009): an instruction takes at least its bytes over the card's bandwidth,
// and its operations over the card's rate, whichever is longer. Rates are those of data sheets, each operand is moved
// once, launches take no time: no kernel is faster, most are slower.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_CARDROOFLINE_H
#define TCC_TOOLS_COMMON_CARDROOFLINE_H

#include "tools/common/Cards.h"

#include <algorithm>
#include <string_view>

namespace tcc::report {

/// The card whose data sheet times are held against.
struct ChosenCard {
  const Card *card = nullptr;
  enum class From { Device, Plan, Architecture } from = From::Architecture;
};

/// Of a plan for CUDA: the card that runs it, if its driver's name is known; else the one that the plan was made for;
/// else its architecture's usual one. Null for plans of other targets and unknown architectures.
ChosenCard chooseCard(const plan::Plan &plan, std::string_view driverName = "");

struct LeastTime {
  double arithmetic = 0, traffic = 0; ///< seconds
  double seconds() const { return std::max(arithmetic, traffic); }
};

/// Products of the library, and of kernels that say so, at the rate of their type; all else at f32's.
LeastTime leastTime(const Card &card, const plan::Instruction &instruction);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_CARDROOFLINE_H
