//===- ExpectedTime.h - the time that a card is expected to take -*- C++ -*-===//
//
// Beside the bound of a data sheet (Cards.h), the time that launches take by what cards of the architecture have shown
// (runtime/cuda/cards/Rates.h). A generated kernel waits for memory and issues instructions, partly at the same time; a
// product is computed in tiles, which the multiprocessors take in waves; attention is computed in tiles of queries and
// keys; and each launch has a beginning and an end of its own. docs/measurements/cuda-estimates.md compares the sums
// with what cards took.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_EXPECTEDTIME_H
#define TCC_TOOLS_COMMON_EXPECTEDTIME_H

#include "runtime/cuda/cards/Rates.h"
#include "tools/common/Cards.h"
#include "tools/common/KernelWork.h"

#include <array>
#include <string>
#include <vector>

namespace tcc::report {

/// Kinds of launches whose times have different reasons.
enum class WorkClass {
  Products,
  Convolutions,
  AttentionForward,
  AttentionGradient,
  Loss, ///< kernels of rows that read the loss's target: cross-entropy
  Rows, ///< norms, softmax and other kernels whose threads exchange values
  Elementwise,
  Sums,      ///< of columns, or of whole tensors
  Optimizer, ///< kernels that write parameters or moments
  Lookups,   ///< rows chosen by indices, and additions to them
  Copies,
  Links,    ///< collectives and transfers to the host: no time is expected
  Launches, ///< the beginnings and ends of all launches
};
inline constexpr size_t kWorkClasses = static_cast<size_t>(WorkClass::Launches) + 1;

/// "products", "attention gradient", …
const char *className(WorkClass one);

/// A launch, or several equal ones one after another, as the model of their time sees it.
struct Work {
  WorkClass kind = WorkClass::Elementwise;
  int64_t launches = 1;
  double bytes = 0;          ///< read and written, each operand once
  double flops = 0;          ///< of the instruction
  double flopsShare = 1;     ///< the rate of these operations' type divided by that of bf16
  double instructions = 0;   ///< of warps
  double approximations = 0; ///< of these, by the unit for 2^x, 1/x and roots
  bool passes = false;       ///< threads that share a row wait for each other between passes over it
  bool library = false;
  bool causal = false;
  bool geluGradient = false; ///< the epilogue of a product
  double tilesShare = 1;     ///< of attention in a kernel: the rate of its products on tensor cores divided by bf16's
  /// Of a product, or of the product that a convolution is. Of attention: heads of all samples, queries, keys; by a
  /// library also features of a key, and of a value.
  double batch = 0, m = 0, n = 0, k = 0, width = 0;
};

/// The launches of an instruction: of a product in slices, its products and its kernels.
std::vector<Work> worksOf(const Card &card, const plan::Plan &plan, const plan::Entry &entry,
                          const plan::Instruction &instruction, const KernelWorks &kernels);

/// Seconds of all launches, without their beginnings and ends. At least the bound of the data sheet.
double expectedSeconds(const Card &card, const nvidia::Rates &rates, const Work &work);

/// Seconds by class.
struct ExpectedTime {
  std::array<double, kWorkClasses> seconds = {};
  void add(const Card &card, const nvidia::Rates &rates, const std::vector<Work> &works, double calls = 1);
  double of(WorkClass one) const { return seconds[static_cast<size_t>(one)]; }
  double total() const;
};

/// "products 61.3, rows 9.4, others 0.2": milliseconds of the classes, most first, those of less than half a percent
/// together.
std::string classesText(const ExpectedTime &time);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_EXPECTEDTIME_H
