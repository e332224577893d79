//===- WarpShuffle.cpp - instructions of warps and blocks -----------------===//
#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace tcc::codegen {

namespace {

constexpr int64_t kAllThreads = 0xffffffff, kLastThread = 31;

Value word(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(b.getI32Type(), APInt(32, uint64_t(value))));
}

/// The instruction moves words of 32 bits.
Value shuffleWord(OpBuilder &b, Location loc, StringRef mode, Value bits, Value operand) {
  SmallVector<Value> operands{word(b, loc, kAllThreads), bits, operand, word(b, loc, kLastThread)};
  return LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.nvvm.shfl.sync." + mode + ".i32"),
                                       operands)
      .getResult(0);
}

/// Narrower values use the lower bits of a word, wider ones two words.
Value shuffle(OpBuilder &b, Location loc, StringRef mode, Value value, Value operand) {
  Type type = value.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  unsigned width = type.getIntOrFloatBitWidth();
  Type bitsType = b.getIntegerType(width);
  Value bits = type == bitsType ? value : arith::BitcastOp::create(b, loc, bitsType, value).getResult(), moved;
  if (width == 64) {
    Value half = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(32));
    Value low = arith::TruncIOp::create(b, loc, i32, bits),
          high = arith::TruncIOp::create(b, loc, i32, arith::ShRUIOp::create(b, loc, bits, half));
    low = arith::ExtUIOp::create(b, loc, i64, shuffleWord(b, loc, mode, low, operand));
    high = arith::ExtUIOp::create(b, loc, i64, shuffleWord(b, loc, mode, high, operand));
    moved = arith::OrIOp::create(b, loc, low, arith::ShLIOp::create(b, loc, high, half));
  } else if (width == 32) {
    moved = shuffleWord(b, loc, mode, bits, operand);
  } else {
    moved = shuffleWord(b, loc, mode, arith::ExtUIOp::create(b, loc, i32, bits), operand);
    moved = arith::TruncIOp::create(b, loc, bitsType, moved);
  }
  return type == bitsType ? moved : arith::BitcastOp::create(b, loc, type, moved).getResult();
}

} // namespace

Value shuffleDown(OpBuilder &b, Location loc, Value value, int64_t distance) {
  return shuffle(b, loc, "down", value, word(b, loc, distance));
}

Value shuffleFrom(OpBuilder &b, Location loc, Value value, Value thread) {
  return shuffle(b, loc, "idx", value, thread);
}

Value shuffleFromFirst(OpBuilder &b, Location loc, Value value) { return shuffleFrom(b, loc, value, word(b, loc, 0)); }

Value ballot(OpBuilder &b, Location loc, Value condition) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.nvvm.vote.ballot.sync"),
                                       ValueRange{word(b, loc, kAllThreads), condition})
      .getResult(0);
}

SmallVector<Value> multiplyTile(OpBuilder &b, Location loc, train::TileNumbers numbers, ValueRange sums,
                                ValueRange left, ValueRange right) {
  const bool ofF16 = numbers == train::TileNumbers::F16;
  SmallVector<Value> operands;
  for (ValueRange words : {left, right})
    for (Value word : words)
      operands.push_back(ofF16 ? LLVM::BitcastOp::create(b, loc, VectorType::get({2}, b.getF16Type()), word).getResult()
                               : word);
  llvm::append_range(operands, sums);
  const StringRef form = ofF16                                 ? "m16n8k16.row.col.f32.f32"
                         : numbers == train::TileNumbers::TF32 ? "m16n8k8.row.col.tf32"
                                                               : "m16n8k16.row.col.bf16";
  Type f32 = b.getF32Type();
  auto four = LLVM::LLVMStructType::getLiteral(b.getContext(), {f32, f32, f32, f32});
  Value all =
      LLVM::CallIntrinsicOp::create(b, loc, four, b.getStringAttr("llvm.nvvm.mma." + form), operands).getResult(0);
  SmallVector<Value> results;
  for (int64_t i = 0; i < 4; ++i)
    results.push_back(LLVM::ExtractValueOp::create(b, loc, all, i));
  return results;
}

Value roundToWord(OpBuilder &b, Location loc, Value lower, Value upper, bool toF16) {
  auto type = VectorType::get({2}, toF16 ? Type(b.getF16Type()) : Type(b.getBF16Type()));
  auto name = b.getStringAttr(toF16 ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn");
  Value pair = LLVM::CallIntrinsicOp::create(b, loc, type, name, ValueRange{upper, lower}).getResult(0);
  return LLVM::BitcastOp::create(b, loc, b.getI32Type(), pair);
}

Value roundToTf32(OpBuilder &b, Location loc, Value value) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.nvvm.f2tf32.rna"), value)
      .getResult(0);
}

Value halvesOf(OpBuilder &b, Location loc, Value first, Value second, bool upper) {
  // Selectors 0 to 3 are bytes of the first word, 4 to 7 of the second.
  return LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr("llvm.nvvm.prmt"),
                                       ValueRange{first, second, word(b, loc, upper ? 0x7632 : 0x5410)})
      .getResult(0);
}

void meetBlock(OpBuilder &b, Location loc) {
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr("llvm.nvvm.barrier.cta.sync.aligned.all"),
                                ValueRange{word(b, loc, 0)});
}

Value sharedMemory(OpBuilder &b, Location loc, int64_t bytes) {
  constexpr unsigned kShared = 3; // of LLVM's NVPTX back end
  auto kernel = b.getInsertionBlock()->getParentOp()->getParentOfType<LLVM::LLVMFuncOp>();
  if (!kernel)
    kernel = cast<LLVM::LLVMFuncOp>(b.getInsertionBlock()->getParentOp());
  auto module = kernel->getParentOfType<ModuleOp>();
  const std::string name = (kernel.getName() + "_shared").str();
  auto memory = LLVM::LLVMArrayType::get(b.getI8Type(), uint64_t(bytes));
  auto global = module.lookupSymbol<LLVM::GlobalOp>(name);
  if (!global) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(kernel);
    global = LLVM::GlobalOp::create(b, loc, memory, /*isConstant=*/false, LLVM::Linkage::Internal, name, Attribute(),
                                    /*alignment=*/uint64_t(kCopyBytes), kShared);
    Block *init = b.createBlock(&global.getInitializerRegion());
    b.setInsertionPointToStart(init);
    LLVM::ReturnOp::create(b, loc, LLVM::UndefOp::create(b, loc, memory).getResult());
  }
  return LLVM::AddressOfOp::create(b, loc, global);
}

void copyAsynchronously(OpBuilder &b, Location loc, Value to, Value from, int64_t alignment, Value bytes) {
  // Only copies of 16 bytes can bypass the first-level cache.
  const std::string name = llvm::formatv("llvm.nvvm.cp.async.{0}.shared.global.{1}{2}",
                                         alignment == kCopyBytes ? "cg" : "ca", alignment, bytes ? ".s" : "");
  auto at = [&](Value base, int64_t byte) {
    return byte
               ? LLVM::GEPOp::create(b, loc, base.getType(), b.getI8Type(), base, ArrayRef<LLVM::GEPArg>{int32_t(byte)})
                     .getResult()
               : base;
  };
  for (int64_t byte = 0; byte < kCopyBytes; byte += alignment) {
    SmallVector<Value> operands{at(to, byte), at(from, byte)};
    if (bytes) {
      Value rest =
          arith::SubIOp::create(b, loc, arith::TruncIOp::create(b, loc, b.getI32Type(), bytes), word(b, loc, byte));
      rest = arith::MaxSIOp::create(b, loc, rest, word(b, loc, 0));
      operands.push_back(arith::MinSIOp::create(b, loc, rest, word(b, loc, alignment)));
    }
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(name), operands);
  }
}

void awaitCopies(OpBuilder &b, Location loc) {
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr("llvm.nvvm.cp.async.wait.all"), ValueRange());
}

Value specialRegister(OpBuilder &b, Location loc, StringRef name) {
  Value number = LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(),
                                               b.getStringAttr("llvm.nvvm.read.ptx.sreg." + name), ValueRange())
                     .getResult(0);
  return arith::ExtUIOp::create(b, loc, b.getI64Type(), number);
}

} // namespace tcc::codegen
