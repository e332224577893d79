//===- VerifierGrid.cpp - kernels of a GPU: formats and grids ------------===//
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/VerifierImpl.h"

namespace tcc::plan::verifier {

void verifyFormat(const Plan &plan, int index, Reporter &report) {
  const CodeObject &code = plan.code_objects(index);
  const bool onGrids = runsOnGrids(plan);
  if (!CodeObject::Format_IsValid(code.format()))
    report("code object {}: there is no format {}", index, static_cast<int>(code.format()));
  else if ((code.format() == CodeObject::PTX) != onGrids)
    report("code object {}: it is {}, the plan is for {}, by {}", index, CodeObject::Format_Name(code.format()),
           plan.target().empty() ? "no target" : plan.target(), onGrids ? "grids" : "workers");
  else if (onGrids && levelOf(plan.target()) != code.processor())
    report("code object {}: it was made for '{}', the plan is for {}", index, code.processor(), plan.target());
  for (const CodeObject::Assembled &one : code.assembled())
    if (!onGrids || one.architecture() != code.processor())
      report("code object {}: it has machine code for '{}', the plan is for {}", index, one.architecture(),
             plan.target());
  for (const KernelSignature &signature : code.kernels()) {
    uint32_t threads = signature.tile_threads();
    const bool shared = threads >= kWarpThreads && threads <= kMostBlockThreads && threads % kWarpThreads == 0;
    if (onGrids ? threads != 1 && !shared : threads != 0)
      report("code object {}, kernel '{}': {} threads share a tile, which {} has none of", index, signature.symbol(),
             threads, CodeObject::Format_Name(code.format()));
    if (onGrids && isJoined(signature.symbol())) {
      if (code.abi() != kJoinedAbiVersion)
        report("code object {}, kernel '{}': kernels share its launch, which kernel ABI version {} does not know",
               index, signature.symbol(), code.abi());
      if (signature.operands_size() > kMostTablePointers || signature.scratch_bytes())
        report("code object {}, kernel '{}': {} operands and {} bytes of scratch of kernels that share a launch; "
               "{} and 0 are the most",
               index, signature.symbol(), signature.operands_size(), signature.scratch_bytes(), kMostTablePointers);
    }
  }
}

void verifyGrid(const Context &context, const Entry &entry, int index, const KernelCall &kernel,
                const KernelSignature &signature) {
  const Instruction &instruction = entry.instructions(index);
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    context.report("{}: {}", describeInstruction(entry, index), fmt::format(format, std::forward<Args>(args)...));
  };
  if (!runsOnGrids(context.plan)) {
    if (kernel.has_grid())
      fail("kernel '{}' has a grid, the plan is for {}", kernel.symbol(), context.plan.target());
    return;
  }
  const Grid &grid = kernel.grid();
  if (grid.blocks() < 1 || grid.blocks() > kMostGridBlocks || grid.threads() < kWarpThreads ||
      grid.threads() > kMostBlockThreads || grid.threads() % kWarpThreads != 0) {
    fail("a grid of {} blocks of {} threads; blocks are 1 to {}, threads a multiple of {} up to {}", grid.blocks(),
         grid.threads(), kMostGridBlocks, kWarpThreads, kMostBlockThreads);
    return;
  }
  if (signature.tile_threads() > kWarpThreads && signature.tile_threads() != grid.threads())
    fail("{} threads of kernel '{}' share a tile, its blocks have {}", signature.tile_threads(), kernel.symbol(),
         grid.threads());
  if (isJoined(signature.symbol()) && grid.blocks() != signature.tiles())
    fail("{} blocks of kernels that share a launch, '{}' has work for {}", grid.blocks(), kernel.symbol(),
         signature.tiles());
  // Thread t of the grid has scratch slot t; a thread without a tile needs none.
  if (signature.scratch_bytes() == 0)
    return;
  uint64_t takers = std::min<uint64_t>(uint64_t(grid.blocks()) * grid.threads(), static_cast<uint64_t>(kernel.tiles()));
  if (signature.tile_threads() != 1)
    fail("kernel '{}' has scratch for each tile's threads, {} of them; only single threads have", kernel.symbol(),
         signature.tile_threads());
  if (takers > context.plan.max_workers())
    fail("{} threads of kernel '{}' take scratch at a time, the plan has slots for {}", takers, kernel.symbol(),
         context.plan.max_workers());
  if (instruction.scratch_slot_bytes() != signature.scratch_bytes() || instruction.scratch_shared_bytes() != 0)
    fail("kernel '{}' has a slot of {} bytes every {} bytes, the plan {} after {}", kernel.symbol(),
         signature.scratch_bytes(), signature.scratch_bytes(), instruction.scratch_slot_bytes(),
         instruction.scratch_shared_bytes());
}

/// A convolution must use cuDNN in a plan that runs on grids, and a CPU's kernels in other plans.
static void verifyConvolutionLibrary(const Context &context, const Entry &entry, int index) {
  const Instruction &instruction = entry.instructions(index);
  const ConvolutionCall &call = instruction.convolution();
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    context.report("{}: {}", describeInstruction(entry, index), fmt::format(format, std::forward<Args>(args)...));
  };
  const bool dnn = call.implementation() == ConvolutionCall::CUDNN;
  if (dnn != runsOnGrids(context.plan)) {
    fail("a convolution of {}, the plan is for {}", dnn ? "cuDNN" : "a CPU's kernels", context.plan.target());
    return;
  }
  if (call.tf32() && (!dnn || call.dtype() != F32))
    fail("only cuDNN convolves f32 in TF32");
  if (!dnn)
    return;
  const DType result = call.result_dtype() == DTYPE_NONE ? call.dtype() : call.result_dtype();
  if ((call.dtype() != F32 && call.dtype() != BF16 && call.dtype() != F16) || result != call.dtype())
    fail("cuDNN makes no {} of {}", DType_Name(result), DType_Name(call.dtype()));
  if (call.widened() || call.partial_bytes() || call.form() != ConvolutionCall::CHANNELS || call.tile_lines() ||
      call.tile_columns() || call.block_words() || (call.x_dims_size() > 0 && call.tile_batch() != call.x_dims(0)))
    fail("cuDNN computes a convolution in one piece, without forms, tiles or partial sums");
  for (const auto *dims : {&call.x_dims(), &call.w_dims(), &call.y_dims()}) {
    uint64_t count = 1;
    for (int64_t dim : *dims)
      count = saturatingProduct({count, static_cast<uint64_t>(std::max<int64_t>(dim, 0))});
    if (count > std::numeric_limits<int32_t>::max())
      fail("a tensor of {} elements is more than cuDNN takes", count);
  }
  const uint64_t workspace = call.library_scratch_bytes(), scratch = instruction.scratch_slot_bytes();
  if (workspace > 0 && (scratch < kLibraryWorkspaceAlignment || scratch - kLibraryWorkspaceAlignment < workspace))
    fail("scratch of {} bytes does not hold an aligned workspace of {}", scratch, workspace);
}

void verifyLibrary(const Context &context, const Entry &entry, int index) {
  const Instruction &instruction = entry.instructions(index);
  const MatmulCall &call = instruction.matmul();
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    context.report("{}: {}", describeInstruction(entry, index), fmt::format(format, std::forward<Args>(args)...));
  };
  if (instruction.has_convolution())
    return verifyConvolutionLibrary(context, entry, index);
  bool blas = instruction.has_matmul() && call.implementation() == MatmulCall::BLAS;
  if (blas != runsOnGrids(context.plan)) {
    fail("a call of {}, the plan is for {}", blas ? "cuBLASLt" : "a CPU's library", context.plan.target());
    return;
  }
  if (call.tf32() && (!blas || call.dtype() != F32))
    fail("only cuBLASLt multiplies f32 in TF32");
  if (call.has_epilogue() && !blas)
    fail("only cuBLASLt has epilogues");
  if (!blas)
    return;
  DType result = call.result_dtype() == DTYPE_NONE ? call.dtype() : call.result_dtype();
  bool narrow = call.dtype() == BF16 || call.dtype() == F16;
  bool known = ((narrow || call.dtype() == F32 || call.dtype() == F64) && result == call.dtype()) ||
               (narrow && result == F32);
  if (!known)
    fail("cuBLASLt makes no {} of {}", DType_Name(result), DType_Name(call.dtype()));
  if (call.rounds_b() || call.widened())
    fail("cuBLASLt does not convert operands");
  for (auto [name, size, tile] : {std::tuple("batch", call.batch(), call.tile_batch()), {"m", call.m(), call.tile_m()},
                                  {"n", call.n(), call.tile_n()}, {"k", call.k(), call.chunk_k()}}) {
    if (size > std::numeric_limits<int32_t>::max())
      fail("{} = {} is more than cuBLASLt takes", name, size);
    if (tile != size && !(name == std::string_view("m") && call.has_row_kernel()))
      fail("cuBLASLt computes a product in one piece, it is cut along {}", name);
  }
  if (const Epilogue &epilogue = call.epilogue();
      (epilogue.keeps_input() || epilogue.kind() == Epilogue::GELU_GRADIENT) && call.n() % kBlasAuxiliaryElements != 0)
    fail("n = {}: cuBLASLt takes rows of gelu's input in multiples of {}", call.n(), kBlasAuxiliaryElements);
  if (call.has_epilogue() && !narrow && call.dtype() != F32)
    fail("cuBLASLt has no such epilogue for {}", DType_Name(call.dtype()));
  uint64_t workspace = call.library_scratch_bytes();
  if (call.has_row_kernel()) {
    const uint64_t slice = saturatingProduct({sliceRowBytes(call), static_cast<uint64_t>(call.tile_m())});
    const uint64_t most = std::numeric_limits<uint64_t>::max() - kLibraryWorkspaceAlignment - workspace;
    workspace = slice > most ? std::numeric_limits<uint64_t>::max() : workspace + sliceBytes(call);
  }
  if (uint64_t scratch = instruction.scratch_slot_bytes();
      workspace > 0 && (scratch < kLibraryWorkspaceAlignment || scratch - kLibraryWorkspaceAlignment < workspace))
    fail("scratch of {} bytes does not hold an aligned {} of {}", scratch,
         call.has_row_kernel() ? "slice and workspace" : "workspace", workspace);
}

bool takesFirstTile(const Plan &plan, const KernelSignature &signature) {
  return runsOnGrids(plan) && std::any_of(signature.operands().begin(), signature.operands().end(),
                                            [](const KernelSignature::Operand &one) { return one.tile_bytes() > 0; });
}

void verifySlices(const Context &context, const Entry &entry, int index, const KernelSignature &signature) {
  const MatmulCall &call = entry.instructions(index).matmul();
  if (sliceTiles(call, signature) == 0)
    context.report("{}: slices of {} rows are no whole tiles of kernel '{}'", describeInstruction(entry, index),
                   call.tile_m(), signature.symbol());
  if (const uint32_t alignment = signature.operands(0).alignment();
      saturatingProduct({sliceRowBytes(call), static_cast<uint64_t>(call.tile_m())}) % alignment != 0)
    context.report(
        "{}: slices of {} rows of {} f32 values do not begin at multiples of {} bytes, as kernel '{}' expects",
        describeInstruction(entry, index), call.tile_m(), call.n(), alignment, signature.symbol());
  verifyGrid(context, entry, index, call.row_kernel(), signature);
}

} // namespace tcc::plan::verifier
