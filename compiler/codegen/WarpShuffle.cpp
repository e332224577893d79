//===- WarpShuffle.cpp - values of other threads of a warp ----------------===//
#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

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

/// Narrower values travel in the lower bits of a word, wider ones as two.
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

Value specialRegister(OpBuilder &b, Location loc, StringRef name) {
  Value number = LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(),
                                               b.getStringAttr("llvm.nvvm.read.ptx.sreg." + name), ValueRange())
                     .getResult(0);
  return arith::ExtUIOp::create(b, loc, b.getI64Type(), number);
}

} // namespace tcc::codegen
