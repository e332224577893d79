//===- KernelEmitter.cpp - functions of fused regions, for workers or warps -===//
#include "compiler/codegen/KernelEmitter.h"

#include "compiler/codegen/LoopEmitter.h"
#include "compiler/codegen/Nest.h"
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

  /// Emits a function that a worker calls with a range of tiles. Its body is a function with one argument for each
  /// pointer, so that pointers that cannot alias outputs can be marked noalias.
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

  /// Emits a kernel of a GPU (KernelAbi.h): warps, or single threads if an op emits its own loops, process tiles in
  /// strides of the grid; after a product, from the slice's first tile on.
  LogicalResult emitForWarps(const KernelWork &work) {
    Type pointer = LLVM::LLVMPointerType::get(context, kGlobalMemory);
    SmallVector<Type> types(inputs + results, pointer);
    types.append({i64, pointer});
    const bool slices = fused.getTileElements().has_value();
    if (slices)
      types.push_back(i64);
    auto function = LLVM::LLVMFuncOp::create(b, loc, symbol, LLVM::LLVMFunctionType::get(nothing, types));
    // While the threads of a large block wait at a barrier, another resident block can work.
    const int64_t resident = work.walks ? 2 * model.grid.walkThreads : model.grid.residentThreads;
    const int64_t blocks = resident / work.gridThreads;
    setKernelAttributes(b, function, work.gridThreads,
                        work.waits && work.gridThreads > model.grid.blockThreads ? blocks : 1);
    markDistinct(function);
    for (unsigned i = 0; i < inputs + results; ++i)
      function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(alignmentOf(i)));
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
    if (slices)
      first = arith::AddIOp::create(b, loc, first, entry->getArgument(inputs + results + 2));
    if (failed(emitTiles(entry, scratch, first, tiles, stride, thread)))
      return failure();
    LLVM::ReturnOp::create(b, loc, ValueRange());
    return success();
  }

  /// Emits the same as a function to be inlined into a kernel of several programs: its arguments are the pointers, the
  /// number of the block among this program's blocks, and their count.
  FailureOr<LLVM::LLVMFuncOp> emitForBlocks(const KernelWork &work) {
    Type pointer = LLVM::LLVMPointerType::get(context, kGlobalMemory);
    SmallVector<Type> types(inputs + results, pointer);
    types.append({i64, i64});
    auto function =
        LLVM::LLVMFuncOp::create(b, loc, symbol, LLVM::LLVMFunctionType::get(nothing, types), LLVM::Linkage::Internal);
    function.setPassthroughAttr(
        b.getArrayAttr({b.getStringAttr("nounwind"), b.getStringAttr("no-builtins"), b.getStringAttr("alwaysinline")}));
    markDistinct(function);
    Block *entry = function.addEntryBlock(b);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(entry);
    Value width = constant(work.tileThreads), perBlock = constant(work.gridThreads / work.tileThreads);
    Value inBlock = specialRegister(b, loc, "tid.x");
    Value first = arith::MulIOp::create(b, loc, entry->getArgument(inputs + results), perBlock);
    first = arith::AddIOp::create(b, loc, first, arith::DivUIOp::create(b, loc, inBlock, width));
    Value stride = arith::MulIOp::create(b, loc, entry->getArgument(inputs + results + 1), perBlock);
    Value thread = arith::RemUIOp::create(b, loc, inBlock, width);
    if (failed(emitTiles(entry, Value(), first, constant(work.tiles), stride, thread)))
      return failure();
    LLVM::ReturnOp::create(b, loc, ValueRange());
    return function;
  }

  /// The alignment of an operand that code may assume. LLVM reads a whole aligned vector even if only a part is needed:
  /// so do not claim an alignment with which such a vector exceeds the operand's end, and none if an op's own loops
  /// mask vectors.
  int64_t alignmentOf(unsigned operand) {
    Type type = operand < inputs ? fused.getBody().front().getArgument(operand).getType()
                                 : yielded()[operand - inputs].getType();
    int64_t bytes = train::elementBytes(cast<RankedTensorType>(type).getElementType());
    while (!fused.getLoopKernel() && bytes < target::kAccessBytes && train::tensorBytes(type) % (2 * bytes) == 0)
      bytes *= 2;
    return bytes;
  }

  /// `residentBlocks`: blocks per multiprocessor for which the card's assembler has to leave registers.
  static void setKernelAttributes(OpBuilder &b, LLVM::LLVMFuncOp function, uint32_t threads,
                                  int64_t residentBlocks = 1) {
    function.setCConv(LLVM::CConv::PTX_Kernel);
    SmallVector<Attribute> attributes{b.getStringAttr("nounwind"), b.getStringAttr("no-builtins")};
    auto bound = [&](const char *name, int64_t value) {
      attributes.push_back(b.getArrayAttr({b.getStringAttr(name), b.getStringAttr(std::to_string(value))}));
    };
    bound("nvvm.maxntid", threads);
    if (residentBlocks > 1)
      bound("nvvm.minctasm", residentBlocks);
    function.setPassthroughAttr(b.getArrayAttr(attributes));
  }

private:
  OperandRange yielded() { return cast<train::YieldOp>(fused.getBody().front().getTerminator()).getValues(); }
  Value constant(int64_t value) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value)); }

  void setWorkerAttributes(LLVM::LLVMFuncOp function, bool inlined) {
    SmallVector<Attribute> attributes{
        b.getStringAttr("nounwind"), b.getStringAttr("no-builtins"),
        // Without a frame pointer the stack cannot be realigned, and every spilled vector would cross a cache line.
        b.getArrayAttr({b.getStringAttr("frame-pointer"), b.getStringAttr("all")}),
        b.getArrayAttr({b.getStringAttr("prefer-vector-width"), b.getStringAttr("512")}),
        b.getArrayAttr({b.getStringAttr("min-legal-vector-width"), b.getStringAttr("512")})};
    if (inlined)
      attributes.push_back(b.getStringAttr("alwaysinline"));
    function.setPassthroughAttr(b.getArrayAttr(attributes));
  }

  /// Marks operands that no result may overwrite as noalias.
  void markDistinct(LLVM::LLVMFuncOp function) {
    SmallVector<bool> mayOverlap(inputs, false);
    for (auto [operand, result] : original.getInPlacePairs())
      mayOverlap[operand] = true;
    for (unsigned i = 0; i < inputs; ++i)
      if (!mayOverlap[i] && !fused.getLoopKernel())
        function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  }

  /// Emits the loop over tiles [begin, end) in steps of `step`. The first arguments of `entry` are the pointers.
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
        if (kernel->getOperand(i).getDefiningOp() &&
            !follows(kernel, false, i, kernel->getOperand(i), place->layout, type))
          return kernel->emitError("its loops cannot read operand ") << i << " where the movements before it have it";
        operands.push_back({{entry->getArgument(place->number), type}, std::move(place->layout)});
      }
      for (unsigned i = 0; i < kernel->getNumResults(); ++i) {
        if (kernel->getResult(i).use_empty()) { // the loops do not write it
          written.emplace_back();
          continue;
        }
        std::optional<train::PlacedTensor> place = train::placeOfResult(kernel, i);
        if (!place)
          return kernel->emitError("is fused with a consumer, but its loops are its own");
        Value result = kernel->getResult(i);
        if (!isa<train::YieldOp>(*result.user_begin()) &&
            !follows(kernel, true, i, result, place->layout, outputs[place->number].type))
          return kernel->emitError("its loops cannot write result ") << i << " where the movements behind it have it";
        written.push_back({outputs[place->number], std::move(place->layout)});
      }
      LoopEmitter emitter(b, loc, operands, written, scratch, model, thread);
      forTiles(begin, end, step, [&](Value tile) {
        if (thread)
          kernel.emitGroupTile(emitter, tile);
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

  /// Can the op's loops address a tensor by this layout, and is it inside the memory that the kernel declares?
  static bool follows(train::LoopKernel kernel, bool isResult, unsigned number, Value tensor,
                      const train::StridedLayout &layout, RankedTensorType memory) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
    const bool isDense = layout.offset == 0 && layout.strides == train::denseLayout(shape).strides;
    return (isDense || kernel.acceptsLayout(isResult, number, layout)) &&
           train::isInside(layout, shape, memory.getNumElements());
  }

  void forTiles(Value begin, Value end, Value step, function_ref<void(Value)> body) {
    auto loop = scf::ForOp::create(b, loc, begin, end, step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  train::FusedOp original, fused; ///< as requested, and with merged dimensions
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
  int64_t lanes = model.vectorLanes, sliceTiles = 0;
  if (loops) {
    work.tiles = loops.getTileCount();
  } else {
    Scratch scratch(fused);
    IterationSpace space = analyzeIterationSpace(scratch.copy, model);
    work.tiles = space.tiles();
    sliceTiles = space.sliceTiles;
    work.groupElements = space.groupElements;
    lanes = std::max(lanes, space.threads());
    work.waits = space.levels.size() > 1 || space.walks();
    work.walks = space.walks();
  }
  if (!model.threaded())
    return work;
  const target::GridModel &grid = model.grid;
  int64_t warpTiles = loops ? loops.getGroupTileCount() : work.tiles;
  bool alone = warpTiles == 0 && loops; // one thread takes a tile
  if (!alone)
    work.tiles = warpTiles;
  if (!alone && loops)
    lanes = model.vectorLanes * loops.getTileGroups();
  work.tileThreads = alone ? 1 : uint32_t(lanes);
  // Several warps that share a tile form a block, whose barriers synchronise them.
  work.gridThreads = alone                       ? uint32_t(grid.loopBlockThreads)
                     : lanes > model.vectorLanes ? work.tileThreads
                                                 : uint32_t(grid.blockThreads);
  int64_t most = alone && loops.getScratchBytes() ? grid.scratchThreads / grid.loopBlockThreads : grid.mostBlocks;
  int64_t needed = llvm::divideCeil((sliceTiles ? sliceTiles : work.tiles) * work.tileThreads, work.gridThreads);
  work.gridBlocks = uint32_t(std::clamp<int64_t>(needed, 1, most));
  return work;
}

KernelWork workOf(train::FusedOp fused, const target::CodeModel &model, uint32_t blockThreads) {
  KernelWork work = workOf(fused, model);
  const int64_t needed = llvm::divideCeil(work.tiles * work.tileThreads, blockThreads);
  work.gridThreads = blockThreads;
  work.gridBlocks = uint32_t(std::clamp<int64_t>(needed, 1, model.grid.mostBlocks));
  return work;
}

KernelWork workOf(ArrayRef<JoinedProgram> programs, const target::CodeModel &model) {
  KernelWork all;
  for (const JoinedProgram &program : programs) {
    KernelWork work = workOf(program.fused, model);
    all.gridThreads = std::max(all.gridThreads, work.tileThreads > plan::kWarpThreads ? work.gridThreads : 0);
  }
  if (all.gridThreads == 0)
    all.gridThreads = uint32_t(model.grid.blockThreads);
  for (const JoinedProgram &program : programs)
    all.gridBlocks += uint32_t(program.count) * workOf(program.fused, model, all.gridThreads).gridBlocks;
  all.tiles = all.gridBlocks;
  all.tileThreads = all.gridThreads;
  return all;
}

LogicalResult emitJoined(ArrayRef<JoinedProgram> programs, StringRef symbol, ModuleOp module,
                         const target::CodeModel &model) {
  MLIRContext *context = module.getContext();
  Location loc = UnknownLoc::get(context);
  const KernelWork all = workOf(programs, model);
  struct Part {
    LLVM::LLVMFuncOp function;
    SmallVector<int64_t> alignments; ///< of the operands
    int64_t count = 0, blocks = 0;
  };
  SmallVector<Part> parts;
  int64_t pointers = 0;
  for (auto [number, program] : llvm::enumerate(programs)) {
    train::FusedOp fused = program.fused;
    Scratch scratch(fused);
    const std::string name = (symbol + "_" + Twine(number)).str();
    KernelBuilder builder(fused, scratch.copy, name, module, model);
    const KernelWork work = workOf(fused, model, all.gridThreads);
    // Threads that share a tile use the barriers of the block.
    if (work.tileThreads > plan::kWarpThreads && work.tileThreads != all.gridThreads)
      return fused->emitError("shares a launch of blocks of ") << all.gridThreads << " threads";
    FailureOr<LLVM::LLVMFuncOp> function = builder.emitForBlocks(work);
    if (failed(function))
      return failure();
    Part part{*function, {}, program.count, work.gridBlocks};
    for (unsigned i = 0; i < fused->getNumOperands() + fused->getNumResults(); ++i)
      part.alignments.push_back(builder.alignmentOf(i));
    pointers += part.count * int64_t(part.alignments.size());
    parts.push_back(std::move(part));
  }
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  Type i64 = b.getI64Type(), generic = LLVM::LLVMPointerType::get(context),
       global = LLVM::LLVMPointerType::get(context, kGlobalMemory);
  auto kernel = LLVM::LLVMFuncOp::create(
      b, loc, symbol, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {generic, i64, global}));
  KernelBuilder::setKernelAttributes(b, kernel, all.gridThreads);
  kernel.setArgAttr(0, LLVM::LLVMDialect::getByValAttrName(),
                    TypeAttr::get(LLVM::LLVMArrayType::get(i64, uint64_t(pointers))));
  kernel.setArgAttr(0, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(8));
  kernel.setArgAttr(0, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
  kernel.setArgAttr(0, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  b.setInsertionPointToStart(kernel.addEntryBlock(b));
  auto constant = [&](int64_t value) -> Value { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value)); };
  Value table = kernel.getArgument(0), block = specialRegister(b, loc, "ctaid.x");
  int64_t firstBlock = 0, firstPointer = 0;
  for (Part &part : parts) {
    const int64_t blocks = part.count * part.blocks, operands = int64_t(part.alignments.size());
    Value own = arith::SubIOp::create(b, loc, block, constant(firstBlock));
    // One unsigned comparison suffices: blocks of earlier programs wrap to large numbers.
    Value isOwn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, own, constant(blocks));
    auto branch = scf::IfOp::create(b, loc, isOwn, /*withElse=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value member = arith::DivUIOp::create(b, loc, own, constant(part.blocks));
    Value number = arith::RemUIOp::create(b, loc, own, constant(part.blocks));
    Value first = arith::MulIOp::create(b, loc, member, constant(operands));
    SmallVector<Value> arguments;
    for (auto [operand, alignment] : llvm::enumerate(part.alignments)) {
      Value at = arith::AddIOp::create(b, loc, first, constant(firstPointer + int64_t(operand)));
      Value slot = LLVM::GEPOp::create(b, loc, generic, i64, table, ValueRange{at});
      Value address = LLVM::LoadOp::create(b, loc, i64, slot);
      // Make the alignment of the loaded pointer visible: LLVM joins accesses only if it knows their alignment.
      address = arith::AndIOp::create(b, loc, address, constant(-alignment));
      arguments.push_back(LLVM::IntToPtrOp::create(b, loc, global, address));
    }
    arguments.append({number, constant(part.blocks)});
    LLVM::CallOp::create(b, loc, part.function, arguments);
    firstBlock += blocks;
    firstPointer += part.count * operands;
  }
  LLVM::ReturnOp::create(b, loc, ValueRange());
  return success();
}

LogicalResult emitKernel(train::FusedOp original, StringRef symbol, ModuleOp module, const target::CodeModel &model) {
  Scratch scratch(original);
  KernelBuilder builder(original, scratch.copy, symbol, module, model);
  return model.threaded() ? builder.emitForWarps(workOf(original, model)) : builder.emitForWorkers();
}

} // namespace tcc::codegen
