//===- Choice.h - how the CPU runs a product or a convolution ---*- C++ -*-===//
//
// The one place that decides which implementation runs a call and how it is cut into tiles. The result is a complete
// descriptor that goes into the plan unchanged. It depends on the call's shape, the machine level and the model's
// constants, never on the machine that compiles or the number of workers.
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
  uint64_t reorderedBytes = 0; ///< activations whose copy into another layout takes as long as that layout saves
  bool ownKernels = false;     ///< kernels of our own, not oneDNN's: they read operands in place
};

/// Completes a call whose shapes, types and flags are given. Error: a type that no implementation multiplies, sizes
/// below 1 or too large, a shape without a kernel in the library.
Expected<Choice> choose(plan::MatmulCall &call, runtime::CpuLevel level, const CpuModel &model);

/// Likewise. The error names the dimension that does not fit.
Expected<Choice> choose(plan::ConvolutionCall &call, runtime::CpuLevel level, const CpuModel &model);

/// Retiles a product on panels so that `slots` tiles in flight need at most `bytes` of scratch, or as little as
/// possible, within the time of PanelModel::scratchSlack. Sums keep their order, and so their bits. Nothing for another
/// implementation, or if there are no such tiles.
std::optional<Choice> lighter(plan::MatmulCall &call, uint64_t slots, uint64_t bytes, const CpuModel &model);

/// Writes an implementation, its tiles and its numerics version into the call.
void setTiling(plan::MatmulCall &call, plan::MatmulCall::Implementation implementation,
               const runtime::MatmulTiling &tiling);

/// The parts of the choice: MatmulChoice.cpp, PanelChoice.cpp and ConvolutionChoice.cpp.
runtime::MatmulTiling chooseLibraryTiling(const runtime::MatmulShape &shape, const CpuModel &model);
bool suitsPanels(const runtime::MatmulShape &shape, const CpuModel &model);
runtime::MatmulTiling choosePanelTiling(const runtime::MatmulShape &shape, const CpuModel &model);
/// Tilings with sums in the order of `usual`, none much slower: fastest first.
std::vector<runtime::MatmulTiling> panelTilingsLike(const runtime::MatmulShape &shape,
                                                    const runtime::MatmulTiling &usual, const CpuModel &model);
bool suitsFewRows(const runtime::MatmulShape &shape, const CpuModel &model);
runtime::MatmulTiling chooseFewRowsTiling(const runtime::MatmulShape &shape, const CpuModel &model);
/// The tiling of a product that hands its rows to a kernel. Nothing if its bits would differ from those of the plain
/// product, or if it would need more memory than its result. `plain`: the tiling of the plain product; `packed`: on
/// panels.
std::optional<runtime::MatmulTiling> chooseRowsTiling(const runtime::MatmulShape &shape,
                                                      const runtime::MatmulTiling &plain, bool packed,
                                                      const CpuModel &model);
/// Number of products of a batch per tile: small ones share a tile of about 6 MFLOP.
int64_t productsOfATile(const runtime::MatmulShape &shape);
/// Sets the form and the tiles of a convolution, and the fields derived from them. Returns the number of activation
/// elements whose copy into the other layout takes as long as that layout saves.
Expected<double> chooseTiles(plan::ConvolutionCall &call, const CpuModel &model);

/// Slowdown by idle workers when `tiles` equal tiles are shared by `workers`: at least 1.
inline double imbalance(int64_t tiles, int64_t workers) {
  return static_cast<double>((tiles + workers - 1) / workers * workers) / static_cast<double>(tiles);
}

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CHOICE_H
