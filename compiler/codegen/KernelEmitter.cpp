//===- KernelEmitter.cpp - functions of fused regions, for workers or warps -===//
#include "compiler/codegen/KernelEmitter.h"

#include "compiler/codegen/LoopEmitter.h"
#include "compiler/codegen/LoopNest.h"
#include "compiler/codegen/WarpShuffle.h"
#include "compiler/dialect/StridedLayout.h"
#include "runtime/plan/KernelAbi.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tcc::codegen {

namespace {

/// A copy of the region that may be rewritten, freed at the end of the scope.
struct Scratch {
  explicit Scratch(train::FusedOp fused) : copy(cast<train::FusedOp>(fused->clone())) { mergeDims(copy); }
  ~Scratch() { copy->destroy(); }
  train::FusedOp copy;
};

/// Memory of global addresses, in the numbering of LLVM's NVPTX back end.
constexpr unsigned kGlobalMemory = 1;

class KernelBuilder {
public:
  KernelBuilder(train::FusedOp original, train::FusedOp fused, StringRef symbol, ModuleOp module,
                const target::CodeModel &model)
      : original(original), fused(fused), symbol(symbol), model(model), context(module.getContext()),
        loc(UnknownLoc::get(context)), b(OpBuilder::atBlockEnd(module.getBody())), i64(b.getI64Type()),
        nothing(LLVM::LLVMVoidType::get(context)), inputs(fused.getInputs().size()),
        results(fused.getResults().size()) {}

  /// A function that a worker calls with a range of tiles. Its body takes each pointer as an argument of its own: what
  /// cannot overlap the outputs says so.
  LogicalResult emitForWorkers() {
    Type pointer = LLVM::LLVMPointerType::get(context);
    SmallVector<Type> bodyTypes(inputs + results, pointer);
    bodyTypes.append({i64, i64, pointer});
    auto body = LLVM::LLVMFuncOp::create(b, loc, (symbol + "_body").str(),
                                         LLVM::LLVMFunctionType::get(nothing, bodyTypes), LLVM::Linkage::Internal);
    setWorkerAttributes(body, true);
    markDistinct(body);
    Block *entry = body.addEntryBlock(b);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(entry);
      Value begin = entry->getArgument(inputs + results), end = entry->getArgument(inputs + results + 1);
      if (failed(emitTiles(entry, entry->getArgument(inputs + results + 2), begin, end, constant(1), nullptr)))
        return failure();
      LLVM::ReturnOp::create(b, loc, ValueRange());
    }
    auto function =
        LLVM::LLVMFuncOp::create(b, loc, symbol, LLVM::LLVMFunctionType::get(nothing, {pointer, i64, i64, pointer}));
    setWorkerAttributes(function, false);
    Block *block = function.addEntryBlock(b);
    b.setInsertionPointToStart(block);
    SmallVector<Value> arguments;
    for (unsigned i = 0; i < inputs + results; ++i) {
      Value index = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(i));
      Value slot = LLVM::GEPOp::create(b, loc, pointer, pointer, block->getArgument(0), ValueRange{index});
      arguments.push_back(LLVM::LoadOp::create(b, loc, pointer, slot));
    }
    arguments.append({block->getArgument(1), block->getArgument(2), block->getArgument(3)});
    LLVM::CallOp::create(b, loc, body, arguments);
    LLVM::ReturnOp::create(b, loc, ValueRange());
    return success();
  }

  /// A kernel of a GPU (KernelAbi.h): warps, or single threads where the loops are the op's own, take tiles in strides
  /// of the grid.
  LogicalResult emitForWarps(const KernelWork &work) {
    Type pointer = LLVM::LLVMPointerType::get(context, kGlobalMemory);
    SmallVector<Type> types(inputs + results, pointer);
    types.append({i64, pointer});
    auto function = LLVM::LLVMFuncOp::create(b, loc, symbol, LLVM::LLVMFunctionType::get(nothing, types));
    function.setCConv(LLVM::CConv::PTX_Kernel);
    SmallVector<Attribute> attributes{b.getStringAttr("nounwind"), b.getStringAttr("no-builtins")};
    auto bound = [&](const char *name, int64_t value) {
      attributes.push_back(b.getArrayAttr({b.getStringAttr(name), b.getStringAttr(std::to_string(value))}));
    };
    bound("nvvm.maxntid", work.gridThreads);
    // While the threads of a large block wait for each other, those of another one have to work.
    if (const int64_t blocks = model.grid.residentThreads / work.gridThreads;
        work.waits && blocks > 1 && work.gridThreads > model.grid.blockThreads)
      bound("nvvm.minctasm", blocks);
    function.setPassthroughAttr(b.getArrayAttr(attributes));
    markDistinct(function);
    // LLVM reads a whole vector of known alignment where a part of it is wanted: so none is known that reaches over an
    // operand's end, and none where loops of an op's own mask vectors.
    for (unsigned i = 0; i < inputs + results; ++i) {
      Type type = i < inputs ? fused.getBody().front().getArgument(i).getType() : yielded()[i - inputs].getType();
      int64_t bytes = train::elementBytes(cast<RankedTensorType>(type).getElementType());
      while (!fused.getLoopKernel() && bytes < target::kAccessBytes && train::tensorBytes(type) % (2 * bytes) == 0)
        bytes *= 2;
      function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(bytes));
    }
    function.setArgAttr(inputs + results + 1, LLVM::LLVMDialect::getAlignAttrName(),
                        b.getI64IntegerAttr(plan::kAlignmentBytes));
    Block *entry = function.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    Value inBlock = specialRegister(b, loc, "tid.x"), size = specialRegister(b, loc, "ntid.x");
    Value number = arith::MulIOp::create(b, loc, specialRegister(b, loc, "ctaid.x"), size);
    number = arith::AddIOp::create(b, loc, number, inBlock);
    Value threads = arith::MulIOp::create(b, loc, specialRegister(b, loc, "nctaid.x"), size);
    Value tiles = entry->getArgument(inputs + results), scratch = entry->getArgument(inputs + results + 1);
    Value first = number, stride = threads, thread;
    if (work.tileThreads > 1) {
      Value width = constant(work.tileThreads);
      first = arith::DivUIOp::create(b, loc, number, width);
      stride = arith::DivUIOp::create(b, loc, threads, width);
      thread = arith::RemUIOp::create(b, loc, inBlock, width);
    } else if (int64_t bytes = fused.getLoopKernel() ? fused.getLoopKernel().getScratchBytes() : 0) {
      Value offset = arith::MulIOp::create(b, loc, number, constant(bytes));
      scratch = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), scratch, ValueRange{offset});
    }
    if (failed(emitTiles(entry, scratch, first, tiles, stride, thread)))
      return failure();
    LLVM::ReturnOp::create(b, loc, ValueRange());
    return success();
  }

private:
  OperandRange yielded() { return cast<train::YieldOp>(fused.getBody().front().getTerminator()).getValues(); }
  Value constant(int64_t value) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value)); }

  void setWorkerAttributes(LLVM::LLVMFuncOp function, bool inlined) {
    SmallVector<Attribute> attributes{
        b.getStringAttr("nounwind"), b.getStringAttr("no-builtins"),
        // Without one the stack cannot be aligned for spills, and every spilled vector crosses a cache line.
        b.getArrayAttr({b.getStringAttr("frame-pointer"), b.getStringAttr("all")}),
        b.getArrayAttr({b.getStringAttr("prefer-vector-width"), b.getStringAttr("512")}),
        b.getArrayAttr({b.getStringAttr("min-legal-vector-width"), b.getStringAttr("512")})};
    if (inlined)
      attributes.push_back(b.getStringAttr("alwaysinline"));
    function.setPassthroughAttr(b.getArrayAttr(attributes));
  }

  /// Operands that no result may overwrite.
  void markDistinct(LLVM::LLVMFuncOp function) {
    SmallVector<bool> mayOverlap(inputs, false);
    for (auto [operand, result] : original.getInPlacePairs())
      mayOverlap[operand] = true;
    for (unsigned i = 0; i < inputs; ++i)
      if (!mayOverlap[i] && !fused.getLoopKernel())
        function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  }

  /// Tiles [begin, end) in steps of `step`. The first arguments of `entry` are the pointers.
  LogicalResult emitTiles(Block *entry, Value scratch, Value begin, Value end, Value step, Value thread) {
    Block &region = fused.getBody().front();
    SmallVector<Memory> outputs;
    for (auto [index, value] : llvm::enumerate(yielded()))
      outputs.push_back({entry->getArgument(inputs + index), cast<RankedTensorType>(value.getType())});
    if (train::LoopKernel kernel = fused.getLoopKernel()) {
      SmallVector<PlacedMemory> operands, written; // of the kernel's own operands and results
      for (unsigned i = 0; i < kernel->getNumOperands(); ++i) {
        std::optional<train::PlacedTensor> place = train::placeOfOperand(kernel, i);
        if (!place)
          return kernel->emitError("is fused with a producer, but its loops are its own");
        auto type = cast<RankedTensorType>(region.getArgument(place->number).getType());
        operands.push_back({{entry->getArgument(place->number), type}, std::move(place->layout)});
      }
      for (unsigned i = 0; i < kernel->getNumResults(); ++i) {
        std::optional<train::PlacedTensor> place = train::placeOfResult(kernel, i);
        if (!place)
          return kernel->emitError("is fused with a consumer, but its loops are its own");
        written.push_back({outputs[place->number], std::move(place->layout)});
      }
      LoopEmitter emitter(b, loc, operands, written, scratch, model, thread);
      forTiles(begin, end, step, [&](Value tile) {
        if (thread)
          kernel.emitWarpTile(emitter, tile);
        else
          kernel.emitTile(emitter, tile);
      });
      return success();
    }
    IterationSpace space = analyzeIterationSpace(fused, model);
    ElementEmitter emitter(b, loc);
    for (BlockArgument argument : region.getArguments())
      emitter.memories[argument] = {entry->getArgument(argument.getArgNumber()),
                                    cast<RankedTensorType>(argument.getType())};
    emitter.onCard = bool(thread);
    emitter.reducedDims.assign(space.reduced.begin(), space.reduced.end());
    forTiles(begin, end, step, [&](Value tile) {
      emitter.withLanes(1, nullptr, [&] { emitTile(fused, space, emitter, outputs, tile, thread); });
    });
    if (emitter.failed)
      return original->emitError("no kernel can be generated for ") << emitter.failed->getName();
    return success();
  }

  void forTiles(Value begin, Value end, Value step, function_ref<void(Value)> body) {
    auto loop = scf::ForOp::create(b, loc, begin, end, step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  train::FusedOp original, fused; ///< as asked for, and with merged dimensions
  StringRef symbol;
  const target::CodeModel &model;
  MLIRContext *context;
  Location loc;
  OpBuilder b;
  Type i64, nothing;
  unsigned inputs, results;
};

} // namespace

KernelWork workOf(train::FusedOp fused, const target::CodeModel &model) {
  KernelWork work;
  train::LoopKernel loops = fused.getLoopKernel();
  int64_t lanes = model.vectorLanes;
  if (loops) {
    work.tiles = loops.getTileCount();
  } else {
    Scratch scratch(fused);
    IterationSpace space = analyzeIterationSpace(scratch.copy, model);
    work.tiles = space.tiles();
    lanes = std::max(lanes, space.threads());
    work.waits = space.levels.size() > 1;
  }
  if (!model.warps())
    return work;
  const target::GridModel &grid = model.grid;
  int64_t warpTiles = loops ? loops.getWarpTileCount() : work.tiles;
  bool alone = warpTiles == 0 && loops; // one thread takes a tile
  if (!alone)
    work.tiles = warpTiles;
  if (!alone && loops)
    lanes = plan::kWarpThreads * loops.getTileWarps();
  work.tileThreads = alone ? 1 : uint32_t(lanes);
  // Several warps that share a tile are a block, whose barriers they meet at.
  work.gridThreads = alone                        ? uint32_t(grid.loopBlockThreads)
                     : lanes > plan::kWarpThreads ? work.tileThreads
                                                  : uint32_t(grid.blockThreads);
  int64_t most = alone && loops.getScratchBytes() ? grid.scratchThreads / grid.loopBlockThreads : grid.mostBlocks;
  int64_t needed = llvm::divideCeil(work.tiles * work.tileThreads, work.gridThreads);
  work.gridBlocks = uint32_t(std::clamp<int64_t>(needed, 1, most));
  return work;
}

LogicalResult emitKernel(train::FusedOp original, StringRef symbol, ModuleOp module, const target::CodeModel &model) {
  Scratch scratch(original);
  KernelBuilder builder(original, scratch.copy, symbol, module, model);
  return model.warps() ? builder.emitForWarps(workOf(original, model)) : builder.emitForWorkers();
}

} // namespace tcc::codegen
