//===- Choice.cpp - how the CPU runs a product or a convolution ----------===//
#include "compiler/target/cpu/Choice.h"

#include "runtime/cpu/calls/Dimensions.h"
#include "runtime/plan/DType.h"

namespace tcc::target::cpu {

namespace {
using Call = plan::MatmulCall;

/// Chooses implementation and tiles. Without AVX-512 the library's products allocate megabytes at each call, so
/// products there use panels.
Status decide(Call &call, const runtime::MatmulShape &s, runtime::CpuLevel level, const CpuModel &model) {
  bool hasPanels = runtime::hasPanels(level, call.dtype());
  // Panels are copied anyway, so that the copy may unpack: a widened matrix in memory would cost a pass over it.
  if (call.has_four_bits()) {
    if (!hasPanels || call.accumulate() || s.batch != 1)
      return error("no matmul of {} x {} x {} unpacks 4 bits", s.m, s.n, s.k);
    setTiling(call, Call::PANELS, choosePanelTiling(s, model));
    return Status::success();
  }
  bool panels = hasPanels && (level == runtime::CpuLevel::V3 || suitsPanels(s, model));
  bool few = runtime::hasFewRows(level, call.dtype()) && suitsFewRows(s, model);
  if (call.has_row_kernel()) {
    std::optional<runtime::MatmulTiling> rows;
    if (hasPanels && !few && !call.accumulate() && call.row_operands() <= runtime::kMostRowOperands)
      rows = chooseRowsTiling(s, panels ? choosePanelTiling(s, model) : chooseLibraryTiling(s, model), panels, model);
    if (!rows)
      return error("no rows of a matmul of {} x {} x {} at a time: it is an instruction of its own", s.m, s.n, s.k);
    setTiling(call, Call::ROWS_TO_KERNEL, *rows);
    return Status::success();
  }
  if (few)
    setTiling(call, Call::FEW_ROWS, chooseFewRowsTiling(s, model));
  else if (panels)
    setTiling(call, Call::PANELS, choosePanelTiling(s, model));
  else if (s.roundsB)
    return error("no library matmul of {} x {} x {} rounds its second operand", s.m, s.n, s.k);
  else
    setTiling(call, Call::LIBRARY, chooseLibraryTiling(s, model));
  return Status::success();
}
} // namespace

void setTiling(Call &call, Call::Implementation implementation, const runtime::MatmulTiling &t) {
  call.set_implementation(implementation);
  call.set_tile_batch(t.tileBatch);
  call.set_tile_m(t.tileM);
  call.set_tile_n(t.tileN);
  call.set_chunk_k(t.chunkK);
  call.set_block_k(t.blockK);
  call.set_numerics(runtime::numericsOf(implementation));
}

Expected<Choice> choose(Call &call, runtime::CpuLevel level, const CpuModel &model) {
  call.set_widened(call.dtype() == plan::BF16 && !runtime::multipliesBf16(level));
  auto shape = runtime::shapeOf(call);
  if (!shape)
    return shape.status();
  if (Status status = decide(call, *shape, level, model); !status.ok())
    return status;
  Choice choice;
  choice.ownKernels = call.implementation() != Call::LIBRARY;
  if (!choice.ownKernels)
    call.set_library_scratch_bytes(runtime::libraryScratchBound(*shape, *runtime::tilingOf(call, *shape), level));
  auto needs = runtime::needsOf(call);
  if (!needs)
    return needs.status();
  choice.needs = *needs;
  return choice;
}

std::optional<Choice> lighter(Call &call, uint64_t slots, uint64_t bytes, const CpuModel &model) {
  auto shape = runtime::shapeOf(call);
  auto needs = runtime::needsOf(call);
  if (call.implementation() != Call::PANELS || !shape || !needs)
    return std::nullopt;
  auto usual = runtime::tilingOf(call, *shape);
  if (!usual)
    return std::nullopt;
  std::optional<Choice> found;
  uint64_t least = needs->scratchBytes(slots);
  for (const runtime::MatmulTiling &tiling : panelTilingsLike(*shape, *usual, model)) {
    if (least <= bytes)
      break;
    Call other = call;
    setTiling(other, Call::PANELS, tiling);
    auto its = runtime::needsOf(other);
    if (!its || its->scratchBytes(slots) >= least)
      continue;
    least = its->scratchBytes(slots);
    call = other;
    found = Choice{*its, 0, true};
  }
  return found;
}

Expected<Choice> choose(plan::ConvolutionCall &call, runtime::CpuLevel level, const CpuModel &model) {
  if (Status status = runtime::checkShape(call); !status.ok())
    return status;
  call.set_widened(call.dtype() == plan::BF16 && !runtime::multipliesBf16(level));
  auto turned = chooseTiles(call, model);
  if (!turned)
    return turned.status();
  call.set_numerics(runtime::numericsOf(call.form()));
  auto needs = runtime::needsOf(call);
  if (!needs)
    return needs.status();
  Choice choice;
  choice.needs = *needs;
  choice.reorderedBytes = static_cast<uint64_t>(*turned * static_cast<double>(plan::dtypeBytes(call.dtype())));
  return choice;
}

} // namespace tcc::target::cpu
