//===- Choice.h - how the CPU runs a product or a convolution ---*- C++ -*-===//
//
// The one place that decides which implementation runs a call and how it is cut into tiles. The answer is a complete
// descriptor: it goes into the plan as it is. It follows from the call's shape, the machine level and the model's
// constants, never from the machine that compiles or the number of workers.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CPU_CHOICE_H
#define TCC_COMPILER_TARGET_CPU_CHOICE_H

#include "compiler/target/cpu/CpuModel.h"
#include "runtime/cpu/calls/CpuLevel.h"
#include "runtime/cpu/calls/MatmulDesigns.h"
#include "runtime/cpu/calls/Needs.h"

#include <optional>
#include <vector>

namespace tcc::target::cpu {

struct Choice {
  runtime::CallNeeds needs;
  uint64_t reorderedBytes = 0; ///< of activations that could be copied into another layout in the time that it would save
  bool ownKernels = false;     ///< not oneDNN's: they read operands in place
};

/// Completes a call of which shapes, types and flags are given. Error: a type that no implementation multiplies, sizes
/// below 1 or too large, a shape the library has no kernel for.
Expected<Choice> choose(plan::MatmulCall &call, runtime::CpuLevel level, const CpuModel &model);

/// Likewise. The error names the dimension that does not fit.
Expected<Choice> choose(plan::ConvolutionCall &call, runtime::CpuLevel level, const CpuModel &model);

/// The same product on panels in tiles that need at most `bytes` of scratch for `slots` of them in flight, or as little
/// as they can where that costs little time (PanelModel::scratchSlack). Sums keep their order, and so the bits. Nothing for
/// another implementation, or where there are no such tiles.
std::optional<Choice> lighter(plan::MatmulCall &call, uint64_t slots, uint64_t bytes, const CpuModel &model);

/// Writes an implementation, its tiles and its numerics version into the call.
void setTiling(plan::MatmulCall &call, plan::MatmulCall::Implementation implementation,
               const runtime::MatmulTiling &tiling);

/// The parts of the choice, one file each.
runtime::MatmulTiling chooseLibraryTiling(const runtime::MatmulShape &shape, const CpuModel &model);
bool suitsPanels(const runtime::MatmulShape &shape, const CpuModel &model);
runtime::MatmulTiling choosePanelTiling(const runtime::MatmulShape &shape, const CpuModel &model);
/// Tilings with sums in the order of `usual`, none much slower: fastest first.
std::vector<runtime::MatmulTiling> panelTilingsLike(const runtime::MatmulShape &shape, const runtime::MatmulTiling &usual,
                                                    const CpuModel &model);
bool suitsFewRows(const runtime::MatmulShape &shape, const CpuModel &model);
runtime::MatmulTiling chooseFewRowsTiling(const runtime::MatmulShape &shape, const CpuModel &model);
/// Nothing where such a product would not have the bits of a product by itself, or would need more memory than its
/// result takes. `plain`: how the product by itself is cut, `packed`: on panels.
std::optional<runtime::MatmulTiling> chooseRowsTiling(const runtime::MatmulShape &shape,
                                                      const runtime::MatmulTiling &plain, bool packed,
                                                      const CpuModel &model);
/// Products of a batch that one tile computes: small ones share a tile of about 6 MFLOP.
int64_t productsOfATile(const runtime::MatmulShape &shape);
/// Sets the form and the tiles of a convolution, and what follows from them; elements of activations that could be turned
/// from one layout into another in the time that the other layout saves.
Expected<double> chooseTiles(plan::ConvolutionCall &call, const CpuModel &model);

/// Idle time when `tiles` equal tiles go to `workers`: at least 1.
inline double imbalance(int64_t tiles, int64_t workers) {
  return static_cast<double>((tiles + workers - 1) / workers * workers) / static_cast<double>(tiles);
}

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CHOICE_H
