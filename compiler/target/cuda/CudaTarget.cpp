//===- CudaTarget.cpp - NVIDIA's cards as a target ------------------------===//
#include "compiler/target/cuda/CudaTarget.h"

#include "compiler/dialect/Attention.h"
#include "compiler/dialect/Element.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/target/Target.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "runtime/cuda/cards/Rates.h"
#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/CallKernels.h"
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

static_assert(plan::kWarpThreads == train::kGroupThreads, "a warp is a lane group");

CudaModel modelOf(const Architecture &architecture) {
  const nvidia::Rates rates = nvidia::ratesOf(architecture.name);
  CudaModel model;
  model.nominal.callFlopsPerNs = rates.call / nvidia::kPerNs;
  model.nominal.kernelFlopsPerNs = rates.kernel / nvidia::kPerNs;
  model.nominal.bytesPerNs = model.nominal.stateBytesPerNs = rates.memory / nvidia::kPerNs;
  model.nominal.launchNs = rates.launchNs;
  model.narrowFlopsPerNs = rates.narrowProduct / nvidia::kPerNs;
  model.narrowConvolutionFlopsPerNs = rates.narrowConvolution / nvidia::kPerNs;
  model.tileFlopsPerNs = rates.tiles / nvidia::kPerNs;
  model.attentionCallFlopsPerNs = rates.attentionCall / nvidia::kPerNs;
  return model;
}

CodeModel codeOf(const Architecture &architecture, const CudaModel &model) {
  CodeModel code;
  code.processor = architecture.name;
  code.features = "+ptx" + std::to_string(architecture.ptx);
  code.vectorLanes = plan::kWarpThreads;
  code.lanes = Lanes::Threads;
  code.triple = "nvptx64-nvidia-cuda";
  code.format = plan::CodeObject::PTX;
  code.grid = model.grid;
  return code;
}

namespace {

// The plan fixes the convolution and a bound of the workspace; trun takes the first engine of the library's list that
// needs no more. The bound follows from the measured workspaces of engines (docs/measurements/cudnn-engines.md):
//
// - Engines with tensor cores need channels-last tensors whose channels are a multiple of an access, and copy others.
//   Engines of f32 without tensor cores read channels first.
// - Weights are always copied into the engine's own order.
// - Weight gradients are summed in parts of the batch and the pixels, in f32.

using Dims = google::protobuf::RepeatedField<int64_t>;

/// Bytes of an access of tensor cores: the channels of a pixel are padded to a multiple of it.
constexpr int64_t kAccessBytes = 16;

uint64_t roundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

int64_t elementsOf(const Dims &dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}

struct Problem {
  const plan::ConvolutionCall &call;
  bool tensorCores;
  int64_t elementBytes = static_cast<int64_t>(plan::dtypeBytes(call.dtype()));

  /// Whether the channels of each group of x or y need no padding.
  bool isAligned(const Dims &dims) const { return dims[1] / call.groups() * elementBytes % kAccessBytes == 0; }
  bool isDepthwise() const { return call.w_dims(1) == 1 && call.groups() > 1; }

  /// Whether engines copy x, or y.
  bool copies(const Dims &dims) const {
    if (isDepthwise())
      return false;
    return tensorCores ? !call.channels_last() || !isAligned(dims) : call.channels_last();
  }
  /// Bytes of a copy in which the channels of each group are padded.
  uint64_t copyBytes(const Dims &dims, int64_t groups) const {
    const int64_t channels = dims[1] / groups;
    const auto padded = static_cast<int64_t>(roundUp(uint64_t(channels), uint64_t(kAccessBytes / elementBytes)));
    return roundUp(uint64_t(elementsOf(dims) / channels * padded * elementBytes), plan::kLibraryWorkspaceAlignment);
  }
  /// Bytes of x and y that engines copy at each call because of their layout.
  uint64_t reorderedBytes() const {
    int64_t elements = 0;
    for (const Dims *dims : {&call.x_dims(), &call.y_dims()})
      elements += copies(*dims) ? elementsOf(*dims) : 0;
    return uint64_t(elements * elementBytes);
  }

  uint64_t workspace(const CudaModel &model) const {
    const int64_t weights = elementsOf(call.w_dims());
    const auto all = uint64_t((elementsOf(call.x_dims()) + weights + elementsOf(call.y_dims())) * elementBytes);
    uint64_t bytes =
        copyBytes(call.w_dims(), 1) + std::clamp(all / model.slackShare, model.leastSlackBytes, model.mostSlackBytes);
    if (copies(call.x_dims()) || copies(call.y_dims())) // some engines copy both if one needs it
      bytes += copyBytes(call.x_dims(), call.groups()) + copyBytes(call.y_dims(), call.groups());
    if (call.kind() == plan::ConvolutionCall::WEIGHT_GRADIENT) {
      const int64_t pixels = elementsOf(call.y_dims()) / call.y_dims(1);
      const int64_t partPixels = isDepthwise() ? model.depthwisePartPixels : model.partPixels;
      const int64_t parts = std::clamp<int64_t>(pixels / partPixels, 1, model.mostPixelParts);
      bytes += std::min(uint64_t(weights) * sizeof(float) * uint64_t(parts), model.mostWorkspaceBytes);
    }
    return roundUp(bytes, plan::kLibraryWorkspaceAlignment);
  }
};

/// Completes a request for a convolution as a call of cuDNN. False: the library has no known engine for its types and
/// sizes, or only slow ones; a kernel is generated.
bool callCudnn(Call &request, bool tf32, const CudaModel &model) {
  plan::ConvolutionCall &call = *request.instruction.mutable_convolution();
  const plan::DType type = call.dtype();
  const bool known = type == plan::F32 || type == plan::BF16 || type == plan::F16;
  if (!known || call.result_dtype() != type) // no engine has f32 results of 16-bit operands
    return false;
  // A depthwise convolution with a bias has no engines of its own, only the slow general ones.
  if (call.finish() != plan::ConvolutionCall::SUMS && call.groups() > 1 && call.w_dims(1) == 1)
    return false;
  // Engines index with 32 bits.
  for (const Dims *dims : {&call.x_dims(), &call.w_dims(), &call.y_dims()})
    if (elementsOf(*dims) > std::numeric_limits<int32_t>::max())
      return false;
  call.set_implementation(plan::ConvolutionCall::CUDNN);
  call.set_tf32(tf32 && type == plan::F32);
  call.set_tile_batch(call.x_dims(0));
  const Problem problem{call, type != plan::F32 || call.tf32()};
  call.set_library_scratch_bytes(problem.workspace(model));
  request.scratchSlotBytes = call.library_scratch_bytes() + plan::kLibraryWorkspaceAlignment;
  request.reorderedBytes = problem.reorderedBytes();
  return true;
}

// cuDNN's engines fuse a graph of two products and a softmax, or of the five products of its gradient. The sizes that
// they support follow from NVIDIA's support matrix (cuDNN 9, "Supported Graph Patterns", scaled dot product attention)
// and from the library's answers for cards that are not installed (docs/measurements/cudnn-engines.md).
//
// Gradients of queries are sums over keys. Engines with one kernel add them atomically, in no fixed order, though no
// numerical note says so. The deterministic form stores the gradients of scores in the workspace, rounded to 16 bits,
// and multiplies them in a second kernel: memory grows with the square of the sequence. Only this form computes a
// bias's gradient, which needs no further workspace.

/// The heads that cuDNN takes.
inline const train::AttentionCalls kAttentionCalls{.library = "cuDNN", .featureStep = 8, .mostFeatures = 128};

/// False on sm_100: its deterministic gradient is a separate engine that heuristics do not list.
inline bool hasAttentionGradient(const Architecture &architecture) {
  return architecture.name != std::string_view("sm_100");
}

/// Queries and keys are padded to blocks of these sizes in the workspace.
constexpr int64_t kWorkspaceQueries = 64, kWorkspaceKeys = 128;
/// Keys beyond whole blocks for which Hopper's engines give NaN gradients with a bias, as users report
/// (github.com/pytorch/pytorch/issues/196678): the missing half of the last block of keys has a score of 0, and
/// e^(0 − logsumexp) overflows for a row whose logsumexp is below −88.
constexpr int64_t kBadKeysBeyondBlocks = 64;

uint64_t upTo(int64_t size, int64_t step) { return uint64_t((size + step - 1) / step * step); }

uint64_t attentionWorkspace(const plan::AttentionCall &call, const CudaModel &model) {
  uint64_t bytes = model.leastSlackBytes;
  if (call.kind() == plan::AttentionCall::FORWARD)
    return bytes;
  const uint64_t width = plan::dtypeBytes(call.dtype()), heads = uint64_t(call.batch() * call.heads());
  bytes += heads * upTo(call.queries(), kWorkspaceQueries) * upTo(call.keys(), kWorkspaceKeys) * width;
  if (call.heads() != call.key_heads()) // gradients of keys and values of each query head, before they are added
    bytes += heads * upTo(call.keys(), kWorkspaceKeys) * uint64_t(call.depth() + call.width()) * width;
  return bytes + plan::attentionRowBytes(call);
}

/// Completes a request for attention or its gradient as a call of cuDNN. False: for its types and sizes the library has
/// no deterministic engine on the architecture, or needs too much workspace; a kernel is generated.
bool callCudnnAttention(Call &request, const Architecture &architecture, const CudaModel &model) {
  plan::AttentionCall &call = *request.instruction.mutable_attention();
  const bool gradient = call.kind() == plan::AttentionCall::GRADIENT;
  if (call.dtype() != plan::BF16 && call.dtype() != plan::F16)
    return false;
  if (!kAttentionCalls.suits(call.depth(), call.width()))
    return false;
  if (gradient && !hasAttentionGradient(architecture))
    return false;
  const bool biased = call.bias_batch() > 0;
  if (gradient && biased && call.keys() % kWorkspaceKeys == kBadKeysBeyondBlocks)
    return false;
  // A single query has engines of its own, made for generation.
  if (call.queries() < 2 || call.keys() < 2)
    return false;
  const double scores = double(call.batch()) * double(call.heads()) * double(call.queries()) * double(call.keys());
  const auto most = double(std::numeric_limits<int32_t>::max());
  if (biased &&
      double(call.bias_batch()) * double(call.bias_heads()) * double(call.queries()) * double(call.keys()) > most)
    return false;
  if (double(call.batch()) * double(call.heads()) * double(std::max(call.queries(), call.keys())) *
              double(kAttentionCalls.mostFeatures) >
          most ||
      (gradient && scores * double(plan::dtypeBytes(call.dtype())) > double(model.mostScoreBytes)))
    return false;
  const uint64_t bytes = attentionWorkspace(call, model);
  call.set_library_scratch_bytes(upTo(int64_t(bytes), plan::kLibraryWorkspaceAlignment));
  request.scratchSlotBytes = call.library_scratch_bytes() + plan::kLibraryWorkspaceAlignment;
  request.readsInPlace = true;
  return true;
}

class CudaTarget final : public Target {
public:
  CudaTarget(const std::string &name, const Architecture &architecture, const CudaModel &model)
      : Target(name), model(model), architecture(architecture), generated(codeOf(architecture, model)) {
    able.multipliesTf32 = able.multipliesBf16 = able.multipliesF16 = true;
    able.roundsConvolutionGradients = able.sharesLaunches = true;
    able.updatesRows = false; // not measured: each warp of a scatter searches all indices
    able.collectives = true;     // NCCL, whose order of additions is its own
    able.attendsInOneOp = false; // in f32 one thread would compute a tile; products and softmax rows use warps
    able.attentionTiles = true;
    able.attentionCalls = kAttentionCalls;
    able.readsNumbersEarly = able.keepsOnHost = true;
    able.chunkBytes = model.chunkBytes;
    able.rowsToKernels = true;
    able.reductionUnits = model.reductionUnits;
    able.slots = uint32_t(model.grid.scratchThreads);
    able.execution = plan::Plan::GRIDS;
  }

  const Capabilities &capabilities() const override { return able; }
  const CostModel &costs() const override { return model.nominal; }
  double flopsPerNs(mlir::Operation *op, bool isCall) const override {
    if (isCall && attends(op))
      return model.attentionCallFlopsPerNs;
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
    if (!request.instruction.has_matmul() || request.instruction.matmul().has_four_bits())
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
    // Kernels in place of an epilogue run after the plain product, in the scratch that its workspace has left.
    const uint64_t scratch =
        std::max(product.library_scratch_bytes() + (product.has_row_kernel() ? plan::sliceBytes(product) : 0),
                 plan::callKernelScratchBytes(request.instruction));
    if (scratch)
      request.scratchSlotBytes = scratch + plan::kLibraryWorkspaceAlignment;
    request.readsInPlace = true;
    return request;
  }

  void addPasses(Stage stage, mlir::OpPassManager &passes, const Wishes &wishes) const override {
    // Once all ops are final; bits depend on it, so it does not depend on fusion.
    if (stage == Stage::Views)
      passes.addNestedPass<mlir::func::FuncOp>(train::createMarkNarrowPass());
    if (!wishes.fuse)
      return;
    switch (stage) {
    case Stage::Composites:
      // The forward call decides which statistics a generated gradient reads.
      if (wishes.libraryKernels && wishes.attentionCalls != "none") {
        const Architecture::Default &plain = architecture.attention, &biased = architecture.biasedAttention;
        passes.addPass(train::createCallAttentionPass({wishes.attentionCalls, std::string(plain.value),
                                                       std::string(plain.evidence), std::string(biased.value),
                                                       std::string(biased.evidence)}));
      }
      return;
    case Stage::Layouts:
      // Runs after all products are known.
      if (wishes.libraryKernels) {
        passes.addNestedPass<mlir::func::FuncOp>(train::createUnpackInOrderPass());
        passes.addNestedPass<mlir::func::FuncOp>(train::createAlignProductsPass({model.productRowBytes}));
        passes.addPass(mlir::createCSEPass());
      }
      return;
    case Stage::Views:
      passes.addNestedPass<mlir::func::FuncOp>(train::createSumAttentionRowsPass());
      return;
    case Stage::Kernels: // a reduction that becomes an epilogue needs no parts
    case Stage::Parts:   // an epilogue that absorbs a split reduction saves the kernel that adds the parts
      if (wishes.libraryKernels && wishes.epilogues != "none") {
        const Architecture::Default &products = architecture.epilogues,
                                    &convolutions = architecture.epiloguesOfConvolutions;
        passes.addPass(train::createFuseEpiloguesPass({wishes.epilogues, std::string(products.value),
                                                       std::string(products.evidence), std::string(convolutions.value),
                                                       std::string(convolutions.evidence)}));
      }
      return;
    case Stage::Order:
      // The buffers of kernels that share a launch live at the same time.
      if (wishes.overlap)
        passes.addNestedPass<mlir::func::FuncOp>(train::createJoinKernelsPass());
      if (wishes.libraryKernels && wishes.attentionCalls == "auto" && !wishes.budget)
        passes.addPass(train::createWeighCallsPass({model.raiseShare, model.harmlessRaiseBytes}));
      return;
    }
  }

private:
  /// True for a call of attention, or a region around one.
  static bool attends(mlir::Operation *op) {
    if (auto region = mlir::dyn_cast<train::FusedOp>(op))
      op = region.getLoopKernel().getOperation();
    return mlir::isa_and_nonnull<train::AttentionCallOp, train::AttentionGradCallOp>(op);
  }

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
        return std::make_unique<CudaTarget>(name, architecture, modelOf(architecture));
    return nullptr;
  };
  return kind;
}

} // namespace tcc::target::cuda
