//===- ElementEmitter.cpp - loads, stores and masks of elements -----------===//
#include "compiler/codegen/ElementEmitter.h"

#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// value = root·scale + offset, by looking through additions and multiplications of constants.
struct LinearForm {
  const void *root = nullptr;
  int64_t scale = 0, offset = 0;
};

LinearForm linearForm(Value value) {
  if (!value)
    return {};
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return {nullptr, 0, constant.getSExtValue()};
  APInt factor;
  if (auto add = value.getDefiningOp<arith::AddIOp>()) {
    if (matchPattern(add.getRhs(), m_ConstantInt(&factor))) {
      LinearForm form = linearForm(add.getLhs());
      form.offset += factor.getSExtValue();
      return form;
    }
    if (matchPattern(add.getLhs(), m_ConstantInt(&factor))) {
      LinearForm form = linearForm(add.getRhs());
      form.offset += factor.getSExtValue();
      return form;
    }
  }
  if (auto mul = value.getDefiningOp<arith::MulIOp>())
    if (matchPattern(mul.getRhs(), m_ConstantInt(&factor))) {
      LinearForm form = linearForm(mul.getLhs());
      form.scale *= factor.getSExtValue();
      form.offset *= factor.getSExtValue();
      return form;
    }
  return {value.getAsOpaquePointer(), 1, 0};
}

/// Up to this many operands a thread reads all and selects; with more it branches and reads one.
constexpr unsigned kFewOperands = 4;

Type withLanes(Type element, int64_t lanes) { return lanes == 1 ? element : Type(VectorType::get({lanes}, element)); }

} // namespace

Type storedType(Type element) {
  // LLVM widens some bf16 vectors by library calls, so store the bits as integers.
  if (element.isBF16())
    return IntegerType::get(element.getContext(), 16);
  auto integer = dyn_cast<IntegerType>(element);
  if (!integer)
    return element;
  return IntegerType::get(element.getContext(), std::max(8u, integer.getWidth()));
}

Value roundToBf16Bits(OpBuilder &b, Location loc, Value value) {
  int64_t lanes = 1;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    lanes = vector.getNumElements();
  auto constant = [&](int64_t bits) {
    Type type = withLanes(b.getI32Type(), lanes);
    TypedAttr attr = b.getI32IntegerAttr(bits);
    if (lanes > 1)
      attr = DenseElementsAttr::get(cast<ShapedType>(type), Attribute(attr));
    return arith::ConstantOp::create(b, loc, attr).getResult();
  };
  Value bits = arith::BitcastOp::create(b, loc, withLanes(b.getI32Type(), lanes), value);
  Value lsb = arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, bits, constant(16)), constant(1));
  Value rounded = arith::AddIOp::create(b, loc, bits, arith::AddIOp::create(b, loc, lsb, constant(0x7fff)));
  Value isNan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, value, value);
  Value quiet = arith::OrIOp::create(b, loc, bits, constant(0x400000));
  Value top = arith::ShRUIOp::create(b, loc, arith::SelectOp::create(b, loc, isNan, quiet, rounded), constant(16));
  return arith::TruncIOp::create(b, loc, withLanes(b.getI16Type(), lanes), top);
}

Value ElementEmitter::i64(int64_t value) {
  return arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(value));
}

ElementEmitter::CoordKey ElementEmitter::coordKey(const Coord &coord) {
  LinearForm form = linearForm(coord.base);
  return {form.root, form.scale, form.offset, coord.laneStride,
          coord.lanes ? coord.lanes.getAsOpaquePointer() : nullptr};
}

bool ElementEmitter::atRow(ArrayRef<Coord> coords) const {
  if (coords.size() != rowCoords.size())
    return false;
  for (unsigned dim = 0; dim < coords.size(); ++dim)
    if (!reducedDims[dim] && coordKey(coords[dim]) != coordKey(rowCoords[dim]))
      return false;
  return true;
}

Value ElementEmitter::get(Value value, ArrayRef<Coord> coords) {
  Key key{value.getAsOpaquePointer(), mask ? mask.getAsOpaquePointer() : nullptr, laneCount, {}};
  for (const Coord &coord : coords)
    key.coords.push_back(coordKey(coord));
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
    if (auto found = scope->find(key); found != scope->end())
      return found->second;
  Value element;
  if (auto memory = memories.find(value); memory != memories.end()) {
    element = load(memory->second, coords);
  } else {
    Operation *op = value.getDefiningOp();
    if (auto row = rowValues.find(op); row != rowValues.end() && atRow(coords)) {
      element = row->second;
      if (laneCount > 1 && !isa<VectorType>(element.getType()))
        element = splat(element);
    } else {
      element = compute(op, cast<OpResult>(value).getResultNumber(), coords);
    }
  }
  scopes.back()[key] = element;
  return element;
}

Value ElementEmitter::compute(Operation *op, unsigned result, ArrayRef<Coord> coords) {
  Type element = cast<RankedTensorType>(op->getResult(result).getType()).getElementType();
  auto fusible = dyn_cast<train::Fusible>(op);
  if (!fusible) {
    if (!failed)
      failed = op;
    return constant(element, 0);
  }
  Operation *outer = current;
  current = op;
  Value value = fusible.emitElement(*this, result, coords);
  current = outer;
  if (!value) {
    if (!failed)
      failed = op;
    return constant(element, 0);
  }
  return rounded(value, element);
}

Value ElementEmitter::rounded(Value value, Type element) {
  return element.isBF16() || element.isF16() ? fromStored(toStored(value, element), element) : value;
}

Value ElementEmitter::narrowed(Value value) {
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    Value yes = narrowed(select.getTrueValue()), no = narrowed(select.getFalseValue());
    return yes && no ? arith::SelectOp::create(builder, loc, select.getCondition(), yes, no).getResult() : Value();
  }
  APFloat number(0.0);
  if (matchPattern(value, m_ConstantFloat(&number))) {
    bool loses = false;
    number.convert(APFloat::BFloat(), APFloat::rmNearestTiesToEven, &loses);
    const TypedAttr bits = builder.getIntegerAttr(builder.getI16Type(), number.bitcastToAPInt());
    return loses ? Value() : arith::ConstantOp::create(builder, loc, bits).getResult();
  }
  auto wide = value.getDefiningOp<arith::BitcastOp>();
  auto shifted = wide ? wide.getIn().getDefiningOp<arith::ShLIOp>() : arith::ShLIOp();
  auto bits = shifted ? shifted.getLhs().getDefiningOp<arith::ExtUIOp>() : arith::ExtUIOp();
  return bits && bits.getIn().getType().isInteger(16) ? bits.getIn() : Value();
}

static Value approximate(OpBuilder &b, Location loc, StringRef intrinsic, Value x) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), b.getStringAttr(intrinsic), ValueRange{x}).getResult(0);
}
Value ElementEmitter::approximatePowerOfTwo(Value x) {
  return approximate(builder, loc, "llvm.nvvm.ex2.approx.ftz.f32", x);
}
Value ElementEmitter::approximateReciprocal(Value x) {
  return approximate(builder, loc, "llvm.nvvm.rcp.approx.ftz.f", x);
}

Value ElementEmitter::operand(unsigned operand, ArrayRef<Coord> coords) {
  return get(current->getOperand(operand), coords);
}

Value ElementEmitter::operandIf(unsigned operand, ArrayRef<Coord> coords, Value predicate, Value otherwise) {
  // With many operands, a card's thread branches and reads only one of them.
  if (onCard && laneCount == 1 && !mask && current->getNumOperands() > kFewOperands) {
    auto branch = scf::IfOp::create(builder, loc, otherwise.getType(), predicate, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    Value inside;
    withLanes(1, nullptr, [&] { inside = get(current->getOperand(operand), coords); });
    scf::YieldOp::create(builder, loc, inside);
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, loc, otherwise);
    return branch.getResult(0);
  }
  predicate = splat(predicate);
  Value outerMask = mask;
  bool outerPredicated = predicated;
  mask = mask ? arith::AndIOp::create(builder, loc, mask, predicate).getResult() : predicate;
  predicated = true;
  Value value = get(current->getOperand(operand), coords);
  mask = outerMask;
  predicated = outerPredicated;
  return arith::SelectOp::create(builder, loc, predicate, value, splat(otherwise));
}

SmallVector<Value> ElementEmitter::loop(Value lower, Value upper, int64_t step, ValueRange inits,
                                        function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto loopOp = scf::ForOp::create(builder, loc, lower, upper, i64(step), inits);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loopOp.getBody());
  scopes.emplace_back();
  Operation *op = current;
  SmallVector<Value> next = body(loopOp.getInductionVar(), loopOp.getRegionIterArgs());
  current = op;
  scopes.pop_back();
  if (!inits.empty())
    scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(loopOp.getResults());
}

SmallVector<Value> ElementEmitter::loop(int64_t lower, int64_t upper, ValueRange inits,
                                        function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  return loop(i64(lower), i64(upper), 1, inits, body);
}

void ElementEmitter::withLanes(int64_t lanes, Value newMask, function_ref<void()> body) {
  int64_t outerLanes = laneCount;
  Value outerMask = mask;
  laneCount = lanes;
  mask = newMask;
  scopes.emplace_back();
  body();
  scopes.pop_back();
  laneCount = outerLanes;
  mask = outerMask;
}

Value ElementEmitter::laneMask(Value count) {
  auto type = VectorType::get({laneCount}, builder.getI64Type());
  SmallVector<int64_t> numbers(laneCount);
  for (int64_t lane = 0; lane < laneCount; ++lane)
    numbers[lane] = lane;
  Value iota = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, ArrayRef<int64_t>(numbers)));
  Value bound = vector::BroadcastOp::create(builder, loc, type, count);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, iota, bound);
}

Coord ElementEmitter::offsetOf(RankedTensorType type, ArrayRef<Coord> coords) {
  Coord offset = uniform(0);
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    // A dimension of extent 1 is broadcast: ignore the coordinate.
    if (type.getDimSize(dim) != 1)
      offset = add(offset, affine(coords[dim], stride, 0));
    stride *= type.getDimSize(dim);
  }
  return offset;
}

Value ElementEmitter::pointerTo(const Memory &memory, Value offset) {
  return LLVM::GEPOp::create(builder, loc, memory.pointer.getType(), storedType(memory.type.getElementType()),
                             memory.pointer, ValueRange{offset});
}

void prefetchLine(OpBuilder &b, Location loc, Value address, bool forWriting) {
  constexpr uint32_t kSecondCache = 2, kData = 1;
  LLVM::Prefetch::create(b, loc, address, uint32_t(forWriting), kSecondCache, kData);
}

void ElementEmitter::prefetchAhead(const Memory &memory, ArrayRef<Coord> coords, bool forWriting) {
  constexpr int64_t kRounds = 8, kLineBytes = 64;
  if (!jumpingCounter || predicated || laneCount == 1)
    return;
  Coords later(coords);
  bool moves = false;
  for (auto [dim, coord] : llvm::enumerate(later))
    if (coord.base == jumpingCounter && memory.type.getDimSize(dim) != 1) {
      coord = affine(coord, 1, kRounds);
      moves = true;
    }
  if (!moves)
    return;
  Value first = offsetOf(memory.type, later).base;
  int64_t line = kLineBytes / train::elementBytes(memory.type.getElementType());
  for (int64_t lane = 0; lane < laneCount; lane += line)
    prefetchLine(builder, loc, pointerTo(memory, affine(uniform(first), 1, lane).base), forWriting);
}

Value ElementEmitter::fromStored(Value stored, Type element) {
  if (element.isInteger(1)) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(stored.getType()));
    return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, stored, zero);
  }
  if (element.isBF16() || element.isF16()) {
    int64_t lanes = isa<VectorType>(stored.getType()) ? cast<VectorType>(stored.getType()).getNumElements() : 1;
    if (element.isF16())
      return arith::ExtFOp::create(builder, loc, codegen::withLanes(builder.getF32Type(), lanes), stored);
    Value wide = arith::ExtUIOp::create(builder, loc, codegen::withLanes(builder.getI32Type(), lanes), stored);
    TypedAttr sixteen = builder.getI32IntegerAttr(16);
    if (lanes > 1)
      sixteen = DenseElementsAttr::get(cast<ShapedType>(wide.getType()), Attribute(sixteen));
    Value shifted = arith::ShLIOp::create(builder, loc, wide, arith::ConstantOp::create(builder, loc, sixteen));
    return arith::BitcastOp::create(builder, loc, codegen::withLanes(builder.getF32Type(), lanes), shifted);
  }
  return stored;
}

Value ElementEmitter::toStored(Value value, Type element) {
  int64_t lanes = isa<VectorType>(value.getType()) ? cast<VectorType>(value.getType()).getNumElements() : 1;
  if (element.isInteger(1))
    return arith::ExtUIOp::create(builder, loc, codegen::withLanes(builder.getI8Type(), lanes), value);
  if (element.isBF16() && onCard && lanes == 1) {
    if (Value bits = narrowed(value))
      return bits;
    Value none = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0));
    return arith::TruncIOp::create(builder, loc, builder.getI16Type(), roundToWord(builder, loc, value, none));
  }
  if (element.isBF16())
    return roundToBf16Bits(builder, loc, value);
  if (element.isF16())
    return arith::TruncFOp::create(builder, loc, codegen::withLanes(element, lanes), value);
  return value;
}

Value ElementEmitter::insideIfAny(Value index) {
  if (!predicated)
    return index;
  Value any = mask;
  if (laneCount > 1)
    any = LLVM::vector_reduce_or::create(builder, loc, builder.getI1Type(), mask);
  return arith::SelectOp::create(builder, loc, any, index, i64(0));
}

Value ElementEmitter::load(const Memory &memory, ArrayRef<Coord> coords) {
  Type element = memory.type.getElementType(), stored = storedType(element);
  auto alignment = builder.getI32IntegerAttr(train::elementBytes(element));
  Coord offset = offsetOf(memory.type, coords);
  if (!offset.lanes && (laneCount == 1 || offset.laneStride == 0)) {
    Value pointer = pointerTo(memory, insideIfAny(offset.base));
    return splat(fromStored(LLVM::LoadOp::create(builder, loc, stored, pointer, alignment.getInt()), element));
  }
  auto vector = VectorType::get({laneCount}, stored);
  if (!offset.lanes && offset.laneStride == 1) {
    prefetchAhead(memory, coords, /*forWriting=*/false);
    // A masked load without active lanes reads nothing, but on an unmapped page takes a processor a thousand cycles.
    Value pointer = pointerTo(memory, insideIfAny(offset.base));
    if (!mask)
      return fromStored(LLVM::LoadOp::create(builder, loc, vector, pointer, alignment.getInt()), element);
    Value zero = LLVM::ZeroOp::create(builder, loc, vector);
    return fromStored(LLVM::MaskedLoadOp::create(builder, loc, vector, pointer, mask, zero, alignment), element);
  }
  Value offsets = coordValue(offset);
  auto pointers = VectorType::get({laneCount}, memory.pointer.getType());
  Value addresses = LLVM::GEPOp::create(builder, loc, pointers, stored, memory.pointer, ValueRange{offsets});
  Value all = mask;
  if (!all)
    all = arith::ConstantOp::create(builder, loc,
                                    DenseElementsAttr::get(VectorType::get({laneCount}, builder.getI1Type()), true));
  Value zero = LLVM::ZeroOp::create(builder, loc, vector);
  return fromStored(LLVM::masked_gather::create(builder, loc, vector, addresses, all, ValueRange{zero}, alignment),
                    element);
}

void ElementEmitter::store(const Memory &memory, ArrayRef<Coord> coords, Value value) {
  Type element = memory.type.getElementType();
  auto alignment = builder.getI32IntegerAttr(train::elementBytes(element));
  Coord offset = offsetOf(memory.type, coords);
  Value stored = toStored(laneCount == 1 ? value : splat(value), element);
  if (stored.getType() != codegen::withLanes(storedType(element), laneCount))
    stored = arith::BitcastOp::create(builder, loc, codegen::withLanes(storedType(element), laneCount), stored);
  Value pointer = pointerTo(memory, offset.base);
  prefetchAhead(memory, coords, /*forWriting=*/true);
  if (laneCount > 1 && mask)
    LLVM::MaskedStoreOp::create(builder, loc, stored, pointer, mask, alignment);
  else
    LLVM::StoreOp::create(builder, loc, stored, pointer, alignment.getInt());
}

} // namespace tcc::codegen
