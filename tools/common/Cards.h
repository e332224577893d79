//===- Cards.h - data sheets of NVIDIA's cards ------------------*- C++ -*-===//
//
// Memory and peak rates of cards by their data sheets. `--memory-budget 60%` is a share of this memory, and reports and
// profiles compute least times from the rates. Apart from the budget, no decision of a plan depends on them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_CARDS_H
#define TCC_TOOLS_COMMON_CARDS_H

#include "runtime/plan/plan.pb.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace tcc::report {

struct Card {
  std::string_view name;         ///< as --device-memory takes it: "h200"
  std::string_view title;        ///< "H200 SXM"
  std::string_view driverName;   ///< cuDeviceGetName's: "NVIDIA H200"
  std::string_view architecture; ///< "sm_90"
  uint64_t memoryBytes;          ///< the data sheet's gigabytes as 10⁹ bytes: a little less than the driver reports
  double bytesPerSecond;         ///< of memory
  double f32, tf32, bf16;        ///< operations per second, without sparsity, sums in f32
  int processors;                ///< streaming multiprocessors
  std::string_view source;
};

/// All known cards. Among the cards of one architecture, the most common one in data centres comes first.
std::span<const Card> cards();

/// The card of a name, upper or lower case; null if there is none.
const Card *findCard(std::string_view name);

/// The card of this name in the driver (cuDeviceGetName); null for an unknown one.
const Card *findCardOfDriver(std::string_view driverName);

/// The default card of an architecture: the first of `cards()`; null for an unknown architecture.
const Card *usualCard(std::string_view architecture);

/// Operations per second on products of a type; those of other types run at f32's rate.
double productRate(const Card &card, plan::DType type);

// Roofline (Williams, Waterman, Patterson, 2009): an instruction takes at least its bytes over the card's bandwidth,
// and its operations over the card's rate, whichever is longer. Rates are those of data sheets, each operand is moved
// once, launches take no time: this is a lower bound that most kernels do not reach.

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
