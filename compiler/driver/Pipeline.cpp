//===- Pipeline.cpp - the order of passes, and why ------------------------===//
//
// A comment beside each phase says what holds after it.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Pipeline.h"

#include "compiler/driver/CompileModel.h"
#include "compiler/recipe/Recipe.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/Passes.h"
#include "support/PlanNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <utility>

using namespace mlir;

namespace tcc {

std::vector<Pipeline::Step> Pipeline::steps() const {
  std::vector<Step> list;
  bool inParts = severalShapes; // the module holds one for each shape, and later for each phase of the recipe
  auto add = [&](Phase phase, auto build) {
    OpPassManager whole(ModuleOp::getOperationName());
    build(inParts ? whole.nest<ModuleOp>() : whole);
    std::string text;
    llvm::raw_string_ostream stream(text);
    whole.printAsTextualPipeline(stream);
    list.push_back({phase, std::move(text)});
  };
  auto verify = [](OpPassManager &passes, Phase phase) {
    passes.addNestedPass<func::FuncOp>(train::createVerifyPhasePass({nameOf(phase).str()}));
  };
  // Shape arithmetic of exporters is constant by now: evaluate it, so that later phases see only the mathematics.
  add(Phase::Fold, [&](OpPassManager &passes) {
    if (!wantsGradients())
      passes.addPass(train::createElideStopsPass());
    passes.addPass(train::createFoldConstantsPass());
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
    // Before the loss: its lookups also take ignored labels, which are outside the legal range.
    passes.addPass(train::createDeriveIndexRangesPass());
  });
  // Before the loss, which copies the graph; after constants are folded, so that products read their matrices directly.
  if (!recipe.adapter.targets.empty())
    add(Phase::AddAdapters, [&](OpPassManager &passes) { passes.addPass(train::createAddAdaptersPass()); });
  // Until entries are built, each [[phase]] or [[stage]] has a module of its own. A phase may train adapters, so they
  // have to exist before parameters are matched.
  if (splits()) {
    inParts = false;
    add(Phase::SplitPhases, [](OpPassManager &passes) { passes.addPass(train::createSplitPhasesPass()); });
    inParts = true;
  }
  // The loss belongs to the graph that is differentiated; unread outputs are removed, so that no gradients are derived
  // for them. Stops without effect are removed before attention is matched, the others once gradients are derived.
  if (wantsLoss())
    add(Phase::AttachLoss, [&](OpPassManager &passes) {
      passes.addPass(train::createAttachLossPass());
      passes.addPass(train::createElideUnusedPass());
      passes.addPass(train::createPruneStopsPass());
      if (options.forceF64)
        passes.addPass(train::createHoldStopsPass());
      if (inParts && !recipe.phases.empty())
        passes.addPass(train::createDropForeignWritesPass());
    });
  // Before gradients: the gradient of fused attention stores no scores. After unread values are removed, since
  // attention whose weights are read is not fused; before casts, so that autocast sees one op.
  const target::Capabilities &able = target.capabilities();
  // In f32, two products and a softmax with stored scores are faster than tiles: fused kernels only on request.
  const bool byTiles = able.attentionTiles && recipe.train.precision != "f32";
  const bool byCalls = bool(able.attentionCalls) && recipe.attentionCalls == "both" && options.libraryKernels &&
                       (recipe.train.precision == "bf16" || recipe.train.precision == "f16");
  if (recipe.attention == "fused" || (recipe.attention == "auto" && (able.attendsInOneOp || byTiles || byCalls)))
    add(Phase::FuseAttention, [&](OpPassManager &passes) {
      train::FuseAttentionPassOptions fuse;
      fuse.required = recipe.attention == "fused";
      if (target.capabilities().attentionTiles)
        fuse.tiles = recipe.train.precision;
      fuse.tilesOnly = !fuse.required && !target.capabilities().attendsInOneOp && byTiles;
      fuse.callsOnly = !fuse.required && !target.capabilities().attendsInOneOp && byCalls;
      passes.addPass(train::createFuseAttentionPass(fuse));
    });
  // The gradient of a cast is a cast, so casts come before gradients are derived; pairs that meet are settled after.
  bool mixed = recipe.train.precision != "f32" && recipe.train.precision != "tf32";
  if (mixed)
    add(Phase::Autocast, [&](OpPassManager &passes) {
      train::AutocastPassOptions cast;
      cast.precision = recipe.train.precision;
      passes.addPass(train::createAutocastPass(cast));
    });
  // After attention and casts, which match single ops; before gradients, since the gradient of a loop is a loop.
  if (target.capabilities().runsLoops)
    add(Phase::FindLoops, [](OpPassManager &passes) { passes.addPass(train::createFindLoopsPass()); });
  if (wantsGradients())
    add(Phase::Differentiate, [&](OpPassManager &passes) {
      train::DifferentiatePassOptions differentiate;
      differentiate.lossScale = recipe.train.scalesLoss();
      passes.addPass(train::createDifferentiatePass(differentiate));
      passes.addPass(train::createElideStopsPass());
      if (mixed) {
        train::SettleCastsPassOptions settle;
        settle.roundConvolutions = recipe.convolutions == "auto" && target.capabilities().roundsConvolutionGradients;
        passes.addPass(train::createSettleCastsPass(settle));
      }
      passes.addPass(createCanonicalizerPass());
      passes.addPass(createCSEPass());
    });
  // Once casts are settled, which needs to see which products are narrow; before layouts and calls are chosen for them.
  if (recipe.train.precision == "f16" && !target.capabilities().multipliesF16)
    add(Phase::WidenProducts, [](OpPassManager &passes) { passes.addPass(train::createWidenProductsPass()); });
  add(Phase::BuildUpdate, [&](OpPassManager &passes) {
    train::BuildUpdatePassOptions update;
    update.predictAsExported = asExported;
    passes.addPass(train::createBuildUpdatePass(update));
  });
  if (std::exchange(inParts, false))
    add(Phase::MergeParts, [](OpPassManager &passes) { passes.addPass(train::createMergePartsPass()); });
  // Over the entries of all phases, after updates are built and before anything is fused: a sum over ranks separates
  // the gradient from its update.
  if (recipe.parallel.distributed())
    add(Phase::Distribute, [&](OpPassManager &passes) {
      train::DistributePassOptions distribute;
      distribute.bucketBytes = recipe.parallel.bucketBytes;
      passes.addPass(train::createDistributePass(distribute));
    });
  // Composites are decomposed after their own gradients were built, since fusion needs core ops. Zero fills appear once
  // gradients are summed. Large products are cut into rows once all their readers, gradients included, are core ops;
  // after that, the pass that adds products to accumulators finds the products that are still separate.
  add(Phase::Decompose, [&](OpPassManager &passes) {
    passes.addPass(train::createDecomposeCompositesPass());
    target.addPasses(target::Stage::Composites, passes, wishes());
    passes.addPass(train::createElideZeroFillPass());
    if (target.capabilities().updatesRows)
      passes.addNestedPass<func::FuncOp>(train::createUpdateRowsPass());
    passes.addPass(train::createFoldConstantsPass());
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
    if (recipe.fuse) {
      train::ChunkRowsPassOptions chunk;
      chunk.maxBytes = recipe.chunkBytes.value_or(target.capabilities().chunkBytes);
      passes.addPass(train::createChunkRowsPass(chunk));
    }
    // Once dead and equal ops are gone, and before anything is decided about kernels: the target may
    // compute a convolution in another way, also as a product, which may then be added to
    // accumulators.
    if (options.libraryKernels)
      passes.addNestedPass<func::FuncOp>(train::createAssignLayoutsPass());
    target.addPasses(target::Stage::Layouts, passes, wishes());
    if (recipe.fuse)
      passes.addNestedPass<func::FuncOp>(train::createAddProductsPass());
    verify(passes, Phase::Decompose);
  });
  // Library calls come first: an op that becomes a call is no candidate for fusion. Then views that loop kernels read
  // and write in place, which the backward pass keeps instead of copies; then the side of views on which casts stand,
  // since sizes are compared after that; then the values kept for the backward pass, whose kernels recompute the rest.
  // Kernels precede buffers, buffers the order, and the order offsets.
  add(Phase::Kernels, [&](OpPassManager &passes) {
    train::SelectKernelsPassOptions select;
    select.library = options.libraryKernels;
    passes.addNestedPass<func::FuncOp>(train::createSelectKernelsPass(select));
    if (recipe.fuse) {
      passes.addNestedPass<func::FuncOp>(train::createFoldStridesPass());
      passes.addNestedPass<func::FuncOp>(train::createPlaceCallsPass());
    }
    target.addPasses(target::Stage::Views, passes, wishes());
    if (recipe.fuse) {
      passes.addNestedPass<func::FuncOp>(train::createNarrowValuesPass());
      passes.addNestedPass<func::FuncOp>(train::createMinimizeSavedPass());
    }
    train::FuseKernelsPassOptions fuse;
    fuse.fuse = recipe.fuse;
    passes.addNestedPass<func::FuncOp>(train::createFuseKernelsPass(fuse));
    // Before the target's passes on kernels: fusing an update saves the memory of a large gradient,
    // which is worth more than a launch.
    if (recipe.fuse && recipe.fuseUpdates && options.libraryKernels && target.capabilities().rowsToKernels)
      passes.addNestedPass<func::FuncOp>(train::createFuseUpdatesPass());
    target.addPasses(target::Stage::Kernels, passes, wishes());
    if (recipe.fuse && target.capabilities().reductionUnits) {
      passes.addNestedPass<func::FuncOp>(train::createFuseColumnSumsPass());
      passes.addNestedPass<func::FuncOp>(train::createSplitReductionsPass());
    }
    target.addPasses(target::Stage::Parts, passes, wishes());
    verify(passes, Phase::Kernels);
  });
  add(Phase::Order, [&](OpPassManager &passes) {
    if (joinsKernels())
      passes.addNestedPass<func::FuncOp>(train::createMarkTileThreadsPass());
    passes.addPass(train::createMaterializeBuffersPass());
    passes.addNestedPass<func::FuncOp>(train::createSchedulePass());
    target.addPasses(target::Stage::Order, passes, wishes());
    passes.addPass(train::createWeighScratchPass());
  });
  add(Phase::Memory, [&](OpPassManager &passes) {
    // Recomputation starts from the order just found; the ladder also tries orders of its own.
    const double extraTime = options.ladder || options.forceF64 ? 0 : extraTimeOf();
    const bool keepsOnHost = target.capabilities().keepsOnHost && !options.forceF64;
    if (options.budgetBytes || options.ladder || options.variants > 1 || extraTime > 0 ||
        (keepsOnHost && recipe.offload == "state")) {
      train::RematerializePassOptions remat;
      remat.budgetBytes = options.budgetBytes;
      remat.extraTime = extraTime;
      remat.variants = options.variants;
      remat.bounds = options.bounds;
      remat.offload = keepsOnHost ? recipe.offload : "none";
      remat.hostBytes = options.hostBytes;
      passes.addPass(train::createRematerializePass(remat));
    }
    passes.addNestedPass<func::FuncOp>(train::createPlanMemoryPass());
    // After packing: live ranges grow only as far as the arena allows.
    if (options.libraryKernels && recipe.overlap && target.capabilities().runsBeside)
      passes.addNestedPass<func::FuncOp>(train::createOverlapMemoryPass());
    if (keepsOnHost)
      passes.addNestedPass<func::FuncOp>(train::createBeginTransfersPass());
    verify(passes, Phase::Memory);
  });
  return list;
}

double Pipeline::extraTimeOf() const {
  const bool ranks = recipe.parallel.distributed() || options.describeOnly;
  return recipe.recomputeTime.value_or(ranks ? 0 : target.costs().recomputeTime);
}

bool Pipeline::wants(llvm::StringRef entry) const { return llvm::is_contained(entries, entry); }
bool Pipeline::wantsLoss() const {
  return wants(entries::kTrain) || wants(entries::kEvaluate) || wants(entries::kGradients);
}
bool Pipeline::wantsGradients() const { return wants(entries::kTrain) || wants(entries::kGradients); }
bool Pipeline::joinsKernels() const { return recipe.fuse && recipe.overlap && target.capabilities().sharesLaunches; }
bool Pipeline::splits() const { return !(recipe.phases.empty() && recipe.stages.empty()) && wants(entries::kTrain); }
target::Wishes Pipeline::wishes() const {
  return {recipe.fuse,      options.libraryKernels, recipe.overlap, recipe.winograd, recipe.pointwiseConvolutions,
          recipe.epilogues, recipe.attentionCalls, options.budgetBytes || options.variants > 1 || options.ladder};
}

void registerPipelinePasses() {
  train::registerTccPasses();
  train::registerTccLoweringPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
}

} // namespace tcc
