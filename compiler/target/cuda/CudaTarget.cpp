//===- CudaTarget.cpp - NVIDIA's cards as a target ------------------------===//
#include "compiler/target/cuda/CudaTarget.h"
#include "compiler/target/cuda/AttentionCalls.h"
#include "compiler/target/cuda/Convolutions.h"
#include "compiler/target/cuda/passes/CudaPasses.h"

#include "compiler/dialect/Attention.h"
#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/ProductSlices.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <limits>

namespace tcc::target::cuda {

namespace {

class CudaTarget final : public Target {
public:
  CudaTarget(const std::string &name, const Architecture &architecture, const CudaModel &model)
      : Target(name), model(model), architecture(architecture), generated(codeOf(architecture, model)) {
    able.multipliesTf32 = able.multipliesBf16 = able.multipliesF16 = true;
    able.roundsConvolutionGradients = able.sharesLaunches = true;
    able.updatesRows = false; // not timed: each warp of a scatter looks through all indices
    able.collectives = true;     // NCCL, which adds in an order of its own
    able.attendsInOneOp = false; // in f32 one thread would compute a tile; products and softmax rows use warps
    able.attentionTiles = true;
    able.attentionCalls = kAttentionCalls;
    able.readsNumbersEarly = true;
    able.chunkBytes = model.chunkBytes;
    able.rowsToKernels = true;
    able.reductionUnits = model.reductionUnits;
    able.slots = uint32_t(model.grid.scratchThreads);
    able.execution = plan::Plan::GRIDS;
  }

  const Capabilities &capabilities() const override { return able; }
  const CostModel &costs() const override { return model.nominal; }
  double flopsPerNs(mlir::Operation *op, bool isCall) const override {
    if (isCall) {
      const mlir::Type factor = mlir::getElementTypeOrSelf(op->getOperand(0).getType());
      auto module = op->getParentOfType<mlir::ModuleOp>();
      const bool product = mlir::isa<train::MatMulOp, train::MatMulEpilogueOp, train::RowwiseOp>(op);
      const double narrow = product ? model.narrowFlopsPerNs : model.narrowConvolutionFlopsPerNs;
      if (factor.getIntOrFloatBitWidth() == 16)
        return narrow;
      if (factor.isF32() && module && module->hasAttr(kTf32Attribute))
        return narrow / 2;
    }
    std::optional<double> tiles;
    op->walk([&](mlir::Operation *inner) {
      if (const train::TileNumbers numbers = tileNumbers(inner); numbers != train::TileNumbers::None)
        tiles = model.tileFlopsPerNs / (numbers == train::TileNumbers::F32    ? 6
                                        : numbers == train::TileNumbers::TF32 ? 2
                                                                              : 1);
    });
    return tiles ? *tiles : Target::flopsPerNs(op, isCall);
  }
  const CodeModel &code() const override { return generated; }
  /// Products run on cuBLASLt, convolutions on cuDNN, and attention on cuDNN if a pass asks for it.
  std::optional<Call> call(mlir::Operation *op) const override {
    auto library = mlir::dyn_cast<train::LibraryCall>(op);
    if (!library)
      return std::nullopt;
    Call request;
    library.buildCall(request.instruction);
    auto module = op->getParentOfType<mlir::ModuleOp>();
    const bool tf32 = module && module->hasAttr(kTf32Attribute);
    if (request.instruction.has_convolution() && !(module && module->hasAttr(kConvolutionKernelsAttribute)) &&
        callCudnn(request, tf32, model))
      return request;
    if (request.instruction.has_attention() && callCudnnAttention(request, architecture, model))
      return request;
    if (!request.instruction.has_matmul())
      return std::nullopt;
    plan::MatmulCall &product = *request.instruction.mutable_matmul();
    if (!multiplies(product) || !finishes(product))
      return std::nullopt;
    product.set_implementation(plan::MatmulCall::BLAS);
    product.set_tile_batch(product.batch());
    product.set_tile_m(product.m());
    product.set_tile_n(product.n());
    if (product.has_row_kernel() && !cutRows(product, module, model))
      return std::nullopt;
    product.set_chunk_k(product.k());
    product.set_tf32(product.dtype() == plan::F32 && tf32);
    const auto result = double(product.batch()) * double(product.tile_m()) * double(product.n()) * sizeof(float);
    const int64_t parts = std::min(product.k() / model.partLength, model.mostParts);
    const auto workspace = uint64_t(std::min(result * double(parts), double(model.mostWorkspaceBytes)));
    product.set_library_scratch_bytes(workspace / plan::kLibraryWorkspaceAlignment * plan::kLibraryWorkspaceAlignment);
    const uint64_t scratch =
        product.library_scratch_bytes() + (product.has_row_kernel() ? plan::sliceBytes(product) : 0);
    if (scratch)
      request.scratchSlotBytes = scratch + plan::kLibraryWorkspaceAlignment;
    request.readsInPlace = true;
    return request;
  }

  void addPasses(Stage stage, mlir::OpPassManager &passes, const Wishes &wishes) const override {
    if (!wishes.fuse)
      return;
    switch (stage) {
    case Stage::Composites:
      // The forward call decides which statistics a generated gradient reads.
      if (wishes.libraryKernels && wishes.attentionCalls != "none") {
        train::CallAttentionPassOptions call;
        call.gradients = wishes.attentionCalls == "both";
        passes.addPass(train::createCallAttentionPass(call));
      }
      return;
    case Stage::Layouts:
      // Once it is known which products there are.
      if (wishes.libraryKernels) {
        passes.addNestedPass<mlir::func::FuncOp>(train::createAlignProductsPass({model.productRowBytes}));
        passes.addPass(mlir::createCSEPass());
      }
      return;
    case Stage::Views:
      passes.addNestedPass<mlir::func::FuncOp>(train::createSumAttentionRowsPass());
      return;
    case Stage::Kernels: // a reduction that becomes an epilogue needs no parts
    case Stage::Parts:   // an epilogue that absorbs a split reduction saves the kernel that adds the parts
      if (wishes.libraryKernels && wishes.epilogues != "none")
        passes.addNestedPass<mlir::func::FuncOp>(train::createFuseEpiloguesPass({wishes.epilogues}));
      return;
    case Stage::Order:
      // The buffers of kernels that share a launch live at the same time.
      if (wishes.overlap)
        passes.addNestedPass<mlir::func::FuncOp>(train::createJoinKernelsPass());
      return;
    }
  }

private:
  /// The types that warps multiply in attention or its gradient.
  static train::TileNumbers tileNumbers(mlir::Operation *op) {
    if (auto forward = mlir::dyn_cast<train::AttentionOp>(op))
      return train::tileNumbersOf(forward);
    auto backward = mlir::dyn_cast<train::AttentionGradOp>(op);
    return backward ? train::tileNumbersOf(backward) : train::TileNumbers::None;
  }

  /// Whether the library supports types and sizes: sums in f32, or in f64 for f64; dimensions in 31 bits.
  static bool multiplies(const plan::MatmulCall &product) {
    const plan::DType type = product.dtype(), result = product.result_dtype();
    const bool narrow = type == plan::BF16 || type == plan::F16;
    const bool known =
        type == result ? narrow || type == plan::F32 || type == plan::F64 : narrow && result == plan::F32;
    return known && !product.rounds_b() &&
           std::max({product.batch(), product.m(), product.n(), product.k()}) <= std::numeric_limits<int32_t>::max();
  }

  /// Cuts the rows of a product that a kernel reads into even slices. False: the product is no larger than a slice, or
  /// no slice starts at a row aligned to the 16-byte accesses of kernels and library.
  static bool cutRows(plan::MatmulCall &product, mlir::ModuleOp module, const CudaModel &model) {
    auto asked = module ? module->getAttrOfType<mlir::IntegerAttr>(kSliceBytesAttribute) : mlir::IntegerAttr();
    const int64_t rowBytes = product.n() * int64_t(sizeof(float));
    const int64_t most = (asked ? asked.getInt() : model.sliceBytes) / rowBytes;
    if (most == 0 || product.n() == 1 || product.m() <= most || product.batch() != 1 || product.accumulate() ||
        product.has_epilogue() || plan::resultType(product) != plan::F32)
      return false;
    const int64_t even = llvm::divideCeil(product.m(), llvm::divideCeil(product.m(), most));
    const auto rowUnit = int64_t(kAccessBytes / plan::dtypeBytes(product.dtype()));
    int64_t rows = most / rowUnit * rowUnit;
    for (int64_t unit = rowUnit; unit <= model.sliceRows; unit *= 2)
      if (const auto found = int64_t(llvm::alignTo(uint64_t(even), uint64_t(unit))); found <= most)
        rows = found;
    product.set_tile_m(rows);
    return rows > 0;
  }

  /// Whether the library has the product's epilogue (cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t): bias, gelu's
  /// input and sums have the result's type; the row stride of gelu's input is a multiple of 8 elements; biases of a
  /// batch have a stride. In f32, version 13 has no algorithm for gelu's gradient without sums, nor for sums of its B,
  /// which is the product's A (docs/measurements/device-runs.md).
  static bool finishes(const plan::MatmulCall &product) {
    if (!product.has_epilogue())
      return true;
    const plan::Epilogue &epilogue = product.epilogue();
    const bool keepsRows = epilogue.keeps_input() || epilogue.kind() == plan::Epilogue::GELU_GRADIENT;
    const bool missing = epilogue.sums() == plan::Epilogue::OF_A || (epilogue.kind() == plan::Epilogue::GELU_GRADIENT &&
                                                                     epilogue.sums() == plan::Epilogue::NO_SUMS);
    return product.dtype() != plan::F64 && !(product.dtype() == plan::F32 && missing) &&
           (product.batch() == 1 || epilogue.kind() == plan::Epilogue::BIAS) &&
           (!keepsRows || product.n() % plan::kBlasAuxiliaryElements == 0);
  }

  CudaModel model;
  Architecture architecture;
  CodeModel generated;
  Capabilities able;
};

std::string levelOf(const Architecture &architecture) { return "cuda:" + std::string(architecture.name); }

} // namespace

TargetKind cudaKind() {
  TargetKind kind;
  kind.name = "cuda";
  kind.hasOwnMemory = true;
  for (const Architecture &architecture : kArchitectures)
    kind.levels.push_back(levelOf(architecture));
  kind.defaultLevel = [](bool) -> Expected<std::string> {
    std::vector<std::string> names;
    for (const Architecture &architecture : kArchitectures)
      names.push_back(levelOf(architecture));
    return Status(fmt::format("--target cuda: cuda needs an architecture; write one of {} (H100 and H200: cuda:sm_90)",
                              fmt::join(names, ", ")),
                  StatusCode::Usage);
  };
  kind.create = [](const std::string &name) -> std::unique_ptr<const Target> {
    for (const Architecture &architecture : kArchitectures)
      if (name == levelOf(architecture))
        return std::make_unique<CudaTarget>(name, architecture, CudaModel());
    return nullptr;
  };
  return kind;
}

} // namespace tcc::target::cuda
