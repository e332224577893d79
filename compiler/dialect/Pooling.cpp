//===- Pooling.cpp - maximum and sum over windows ---------------*- C++ -*-===//
//
// Gradients gather: an input element reads each window that contains it. So they need no zero fill and run in parallel.
// Spatial dimensions are the last ones, or with `channelsLast` those before the last; all others are independent.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Verify.h"
#include "compiler/dialect/Window.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

template <typename OpTy> static Window windowOf(OpTy op) {
  return {op.getStrides(), op.getDilations(), op.getPadsBegin()};
}

/// The first spatial dimension of a tensor of this rank.
template <typename OpTy> static size_t firstSpatial(OpTy op, size_t rank) {
  return rank - op.getKernel().size() - op.getChannelsLast();
}
/// The elements of a list for spatial dimensions.
template <typename T, typename OpTy> static llvm::ArrayRef<T> spatialOf(OpTy op, llvm::ArrayRef<T> dims) {
  return dims.slice(firstSpatial(op, dims.size()), op.getKernel().size());
}
/// The list with other elements for the spatial dimensions.
template <typename T, typename OpTy>
static llvm::SmallVector<T> withSpatial(OpTy op, llvm::ArrayRef<T> dims, llvm::ArrayRef<T> spatial) {
  llvm::SmallVector<T> result(dims);
  llvm::copy(spatial, result.begin() + firstSpatial(op, dims.size()));
  return result;
}

/// `from` is the side with the inputs, `to` the side with the windows.
template <typename OpTy> static LogicalResult verifyPool(OpTy op, RankedTensorType from, RankedTensorType to) {
  size_t spatial = op.getKernel().size(), rank = from.getRank();
  if (spatial < 1 || rank < spatial + op.getChannelsLast() || size_t(to.getRank()) != rank ||
      op.getStrides().size() != spatial || op.getDilations().size() != spatial || op.getPadsBegin().size() != spatial)
    return op.emitOpError("needs an extent, a stride, a dilation and a pad for each spatial dimension");
  if (from.getElementType() != to.getElementType())
    return op.emitOpError("changes the element type");
  for (size_t d = 0; d < spatial; ++d) {
    if (op.getKernel()[d] < 1 || op.getStrides()[d] < 1 || op.getDilations()[d] < 1 || op.getPadsBegin()[d] < 0)
      return op.emitOpError("needs extents, strides and dilations of at least 1, and pads of at least 0");
  }
  if (withSpatial(op, from.getShape(), spatialOf(op, to.getShape())) != to.getShape())
    return op.emitOpError("changes a dimension that is not spatial");
  return success();
}
/// `windows` is the tensor with one element for each window.
template <typename OpTy> static LogicalResult verifyWinners(OpTy op, Value windows) {
  if (shapeOf(op.getWinners()) != shapeOf(windows))
    return op.emitOpError("needs one winner for each window");
  Type type = MaxPoolOp::getWinnerType(op.getContext(), op.getKernel());
  if (elementTypeOf(op.getWinners()) != type)
    return op.emitOpError("needs winners of type ") << type << " for windows of this size";
  return success();
}
LogicalResult MaxPoolOp::verify() {
  if (failed(verifyWinners(*this, getResult())))
    return failure();
  return verifyPool(*this, tensorTypeOf(getInput()), tensorTypeOf(getResult()));
}
LogicalResult MaxPoolGradOp::verify() {
  if (failed(verifyWinners(*this, getGrad())))
    return failure();
  return verifyPool(*this, tensorTypeOf(getResult()), tensorTypeOf(getGrad()));
}
LogicalResult SumPoolOp::verify() { return verifyPool(*this, tensorTypeOf(getInput()), tensorTypeOf(getResult())); }
LogicalResult SumPoolGradOp::verify() { return verifyPool(*this, tensorTypeOf(getResult()), tensorTypeOf(getGrad())); }

static double flopsOf(Value windows, llvm::ArrayRef<int64_t> kernel) {
  double flops = double(tensorTypeOf(windows).getNumElements());
  for (int64_t extent : kernel)
    flops *= double(extent);
  return flops;
}
double MaxPoolOp::getFlops() { return flopsOf(getResult(), getKernel()); }
double MaxPoolGradOp::getFlops() { return flopsOf(getGrad(), getKernel()); }
double SumPoolOp::getFlops() { return flopsOf(getResult(), getKernel()); }
double SumPoolGradOp::getFlops() { return flopsOf(getGrad(), getKernel()); }

//===----------------------------------------------------------------------===//
// Evaluators
//===----------------------------------------------------------------------===//

/// Calls `element(input, output, offset)` with linear indices for each input in each window, windows in order;
/// `offset`: of the input in the window.
template <typename OpTy>
static void forEachElement(OpTy op, llvm::ArrayRef<int64_t> inputs, llvm::ArrayRef<int64_t> outputs,
                           llvm::function_ref<void(int64_t input, int64_t output, int64_t offset)> element) {
  Window window = windowOf(op);
  int64_t count = 1, offsets = 1;
  for (int64_t extent : outputs)
    count *= extent;
  for (int64_t extent : op.getKernel())
    offsets *= extent;
  llvm::SmallVector<int64_t> in;
  for (int64_t output = 0; output < count; ++output) {
    llvm::SmallVector<int64_t> at = unravel(output, outputs);
    for (int64_t k = 0; k < offsets; ++k) {
      if (window.input(spatialOf(op, llvm::ArrayRef<int64_t>(at)), unravel(k, op.getKernel()), spatialOf(op, inputs),
                       in))
        element(ravel(withSpatial(op, llvm::ArrayRef<int64_t>(at), llvm::ArrayRef<int64_t>(in)), inputs), output, k);
    }
  }
}

template <typename OpTy> static int64_t spatialSize(OpTy op, llvm::ArrayRef<int64_t> shape) {
  int64_t size = 1;
  for (int64_t extent : spatialOf(op, shape))
    size *= extent;
  return size;
}
/// Most elements of a window whose winners are bytes. Two values are reserved: "no winner", and one that never occurs.
static constexpr int64_t kMostByteOffsets = 254, kNoByteOffset = 255;

Type MaxPoolOp::getWinnerType(MLIRContext *context, llvm::ArrayRef<int64_t> kernel) {
  int64_t offsets = 1;
  for (int64_t extent : kernel)
    offsets *= extent;
  return offsets <= kMostByteOffsets ? IntegerType::get(context, 8, IntegerType::Unsigned)
                                     : IntegerType::get(context, 32);
}

/// The winner of a window of nothing but padding.
static int64_t noWinner(Type type) { return type.isUnsignedInteger(8) ? kNoByteOffset : -1; }
/// A value that is the winner of no window.
static int64_t neverWinner(Type type) { return type.isUnsignedInteger(8) ? kMostByteOffsets : -2; }

void MaxPoolOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &in = operands[0];
  HostTensor &best = results[0], &winners = results[1];
  bool isUnsigned = in.elementType().isUnsignedInteger();
  const int64_t none = noWinner(elementTypeOf(getWinners()));
  for (int64_t i = 0; i < best.size(); ++i) {
    winners.setInt(i, none);
    if (in.isFloat())
      best.setDouble(i, -HUGE_VAL);
  }
  forEachElement(*this, in.shape(), best.shape(), [&](int64_t input, int64_t output, int64_t offset) {
    bool wins = winners.getInt(output) == none;
    if (in.isFloat()) {
      double x = in.getDouble(input), y = best.getDouble(output);
      wins |= x > y || (std::isnan(x) && !std::isnan(y));
      if (wins)
        best.setDouble(output, x);
    } else {
      int64_t x = in.getInt(input), y = best.getInt(output);
      wins |= isUnsigned ? uint64_t(x) > uint64_t(y) : x > y;
      if (wins)
        best.setInt(output, x);
    }
    if (wins)
      winners.setInt(output, offset);
  });
}

/// Sums over windows: from inputs to windows, or back.
template <typename Add> static void accumulate(HostTensor &result, Add add) {
  std::vector<double> floats(result.size());
  std::vector<uint64_t> integers(result.size());
  add(floats, integers);
  for (int64_t i = 0; i < result.size(); ++i)
    if (result.isFloat())
      result.setDouble(i, floats[i]);
    else
      result.setInt(i, int64_t(integers[i]));
}

void MaxPoolGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  accumulate(results[0], [&](auto &floats, auto &integers) {
    forEachElement(*this, results[0].shape(), operands[0].shape(), [&](int64_t input, int64_t output, int64_t offset) {
      if (operands[1].getInt(output) != offset)
        return;
      if (operands[0].isFloat())
        floats[input] += operands[0].getDouble(output);
      else
        integers[input] += operands[0].getInt(output);
    });
  });
}
void SumPoolOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  accumulate(results[0], [&](auto &floats, auto &integers) {
    forEachElement(*this, operands[0].shape(), results[0].shape(), [&](int64_t input, int64_t output, int64_t) {
      if (operands[0].isFloat())
        floats[output] += operands[0].getDouble(input);
      else
        integers[output] += operands[0].getInt(input);
    });
  });
}
void SumPoolGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  accumulate(results[0], [&](auto &floats, auto &integers) {
    forEachElement(*this, results[0].shape(), operands[0].shape(), [&](int64_t input, int64_t output, int64_t) {
      if (operands[0].isFloat())
        floats[input] += operands[0].getDouble(output);
      else
        integers[input] += operands[0].getInt(output);
    });
  });
}

//===----------------------------------------------------------------------===//
// Scalar programs
//===----------------------------------------------------------------------===//
AffineMap MaxPoolOp::getOperandMap(unsigned) { return {}; }
AffineMap MaxPoolGradOp::getOperandMap(unsigned) { return {}; }
AffineMap SumPoolOp::getOperandMap(unsigned) { return {}; }
AffineMap SumPoolGradOp::getOperandMap(unsigned) { return {}; }

/// True if clamping a window's offsets to the input always gives inputs of the same window.
static bool coversInputs(const Window &window, llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> inputs,
                         llvm::ArrayRef<int64_t> outputs) {
  for (size_t d = 0; d < window.rank(); ++d)
    if (window.dilations[d] != 1 || window.input(d, 0, kernel[d] - 1) < 0 ||
        window.input(d, outputs[d] - 1, 0) >= inputs[d])
      return false;
  return true;
}

static Lane isGreater(Lane x, Lane best, Type element) {
  if (!x.isFloat())
    return x.compare(element.isUnsignedInteger() ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt, best);
  return x.compare(arith::CmpFPredicate::UGT, best) &
         best.compare(arith::CmpFPredicate::ORD, best); // the first NaN stays
}

Value MaxPoolOp::emitElement(ElementBuilder &builder, unsigned result, llvm::ArrayRef<Coord> coords) {
  Type element = elementTypeOf(getInput());
  llvm::ArrayRef<int64_t> inputs = spatialOf(*this, shapeOf(getInput())),
                          outputs = spatialOf(*this, shapeOf(getResult()));
  Window window = windowOf(*this);
  llvm::ArrayRef<Coord> starts = spatialOf(*this, coords);
  Value found;
  if (coversInputs(window, getKernel(), inputs, outputs)) {
    // Clamp instead of masking: an offset outside reads the nearest input, which is in the window, too, so the maximum
    // and the order of first occurrences stay the same.
    auto at = [&](ValueRange k) {
      llvm::SmallVector<Coord> in, offsets;
      for (size_t d = 0; d < window.rank(); ++d) {
        Coord start = builder.affine(starts[d], window.strides[d], -window.pads[d]), offset = builder.uniform(k[d]);
        in.push_back(builder.add(start, offset));
        if (window.input(d, 0, 0) < 0 || window.input(d, outputs[d] - 1, getKernel()[d] - 1) >= inputs[d]) {
          in.back() = clampCoord(builder, in.back(), inputs[d]);
          offset = builder.add(in.back(), builder.affine(start, -1, 0));
        }
        offsets.push_back(offset);
      }
      Value x = builder.operand(0, withSpatial<Coord>(*this, coords, in));
      return std::pair(Lane(builder, x), Lane(builder, offsetInWindow(builder, offsets, getKernel())));
    };
    llvm::SmallVector<Value> first(window.rank(), builder.uniform(int64_t(0)).base);
    auto [x, winner] = at(first);
    found = unrolledNest(builder, getKernel(), {x.value, winner.value},
                         [&](ValueRange k, ValueRange carried) -> llvm::SmallVector<Value> {
                           auto [x, here] = at(k);
                           Lane best(builder, carried[0]), wins = isGreater(x, best, element);
                           return {wins.select(x, best).value, wins.select(here, Lane(builder, carried[1])).value};
                         })[result];
  } else {
    Value lowest =
        isa<FloatType>(element) ? builder.floatConstant(element, -HUGE_VAL) : builder.intConstant(element, 0);
    Value none = builder.intConstant(builder.builder.getI32Type(), -1);
    found = unrolledNest(
        builder, getKernel(), {lowest, none}, [&](ValueRange k, ValueRange carried) -> llvm::SmallVector<Value> {
          WindowElement in = inputsOf(builder, window, starts, k, getKernel(), inputs, outputs);
          Lane best(builder, carried[0]), winner(builder, carried[1]);
          Lane x(builder, operandInside(builder, 0, withSpatial<Coord>(*this, coords, in.coords), in.inside, lowest));
          Lane wins = less(winner, winner.likeInt(0)) | isGreater(x, best, element);
          if (in.inside)
            wins = wins & x.with(in.inside);
          llvm::SmallVector<Coord> offsets;
          for (Value counter : k)
            offsets.push_back(builder.uniform(counter));
          Lane here(builder, offsetInWindow(builder, offsets, getKernel()));
          return {wins.select(x, best).value, wins.select(here, winner).value};
        })[result];
  }
  Type narrow = builder.laneType(elementTypeOf(getWinners()));
  if (result == 0 || found.getType() == narrow)
    return found;
  return arith::TruncIOp::create(builder.builder, builder.loc, narrow, found);
}

Value MaxPoolGradOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> outputs = spatialOf(*this, shapeOf(getGrad()));
  Type type = elementTypeOf(getWinners());
  Window window = windowOf(*this);
  Value zero = builder.constant(elementTypeOf(getGrad()), 0), never = builder.intConstant(type, neverWinner(type));
  if (llvm::is_contained(outputs, 0))
    return zero;
  auto add = [&](ValueRange number, ValueRange carried) -> llvm::SmallVector<Value> {
    HoldingWindow out = windowOfInput(builder, window, spatialOf(*this, coords), number, getKernel(), outputs);
    llvm::SmallVector<Coord> at = withSpatial<Coord>(*this, coords, out.coords);
    Value offset = offsetInWindow(builder, out.offsets, getKernel());
    if (offset.getType() != never.getType())
      offset = arith::TruncIOp::create(builder.builder, builder.loc, never.getType(), offset);
    // If all lanes read one window, its clamped coordinates exist; else mask lanes without a window.
    Lane winner(builder, out.uniform ? builder.operand(1, at) : builder.operandIf(1, at, out.inside, never));
    Lane g(builder, out.uniform ? builder.operand(0, at) : builder.operandIf(0, at, out.inside, zero));
    Lane here = winner.make<arith::SelectOp>(out.inside, offset, never);
    Lane wins = equal(winner, here);
    if (!out.uniform)
      wins = wins & wins.with(out.inside);
    return {(Lane(builder, carried[0]) + wins.select(g, g.with(zero))).value};
  };
  return unrolledNest(builder, mostWindowsOfInput(window, getKernel()), zero, add)[0];
}

Value SumPoolOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> inputs = spatialOf(*this, shapeOf(getInput())),
                          outputs = spatialOf(*this, shapeOf(getResult()));
  Value zero = builder.constant(elementTypeOf(getInput()), 0);
  return unrolledNest(builder, getKernel(), zero, [&](ValueRange k, ValueRange carried) -> llvm::SmallVector<Value> {
    WindowElement in = inputsOf(builder, windowOf(*this), spatialOf(*this, coords), k, getKernel(), inputs, outputs);
    Lane x(builder, operandInside(builder, 0, withSpatial<Coord>(*this, coords, in.coords), in.inside, zero));
    return {(Lane(builder, carried[0]) + x).value};
  })[0];
}

Value SumPoolGradOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> outputs = spatialOf(*this, shapeOf(getGrad()));
  Window window = windowOf(*this);
  Value zero = builder.constant(elementTypeOf(getGrad()), 0);
  if (llvm::is_contained(outputs, 0))
    return zero;
  auto add = [&](ValueRange number, ValueRange carried) -> llvm::SmallVector<Value> {
    HoldingWindow out = windowOfInput(builder, window, spatialOf(*this, coords), number, getKernel(), outputs);
    llvm::SmallVector<Coord> at = withSpatial<Coord>(*this, coords, out.coords);
    Lane g(builder, out.uniform ? builder.operand(0, at) : builder.operandIf(0, at, out.inside, zero));
    if (out.uniform)
      g = g.make<arith::SelectOp>(out.inside, g.value, zero);
    return {(Lane(builder, carried[0]) + g).value};
  };
  return unrolledNest(builder, mostWindowsOfInput(window, getKernel()), zero, add)[0];
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// g of each window at its winner.
void MaxPoolOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] =
        MaxPoolGradOp::create(builder, getLoc(), getInput().getType(), resultGradients[0], getWinners(), getKernel(),
                              getStrides(), getDilations(), getPadsBegin(), getChannelsLast());
}

/// i64: the flat spatial index of each winner in an input of these extents, from its offset in the window.
template <typename OpTy> static Expr winnerIndices(OpTy op, OpBuilder &builder, llvm::ArrayRef<int64_t> inputs) {
  Window window = windowOf(op);
  Type type = elementTypeOf(op.getWinners());
  llvm::ArrayRef<int64_t> windows = shapeOf(op.getWinners());
  Expr rest = Expr(builder, op.getLoc(), op.getWinners()).cast(builder.getI64Type()), index = rest.like(0);
  Expr isThere = rest.compare(CompareKind::ne, double(noWinner(type)));
  int64_t area = 1;
  for (size_t d = window.rank(); d-- > 0;) {
    llvm::SmallVector<int64_t> starts, along(windows.size(), 1);
    size_t dim = firstSpatial(op, windows.size()) + d;
    along[dim] = windows[dim];
    for (int64_t q = 0; q < windows[dim]; ++q)
      starts.push_back(window.input(d, q, 0));
    Expr above = rest / double(op.getKernel()[d]);
    Expr start = rest.with(vectorOf(builder, op.getLoc(), starts)).reshape(along);
    index = index + (start + (rest - above * double(op.getKernel()[d])) * double(window.dilations[d])) * double(area);
    area *= inputs[d];
    rest = above;
  }
  return isThere.select(index, index.like(-1));
}

Value MaxPoolOp::buildIndices(OpBuilder &builder) {
  return winnerIndices(*this, builder, spatialOf(*this, shapeOf(getInput())));
}

/// Each window reads the gradient at its winner: a pick from the flattened plane.
void MaxPoolGradOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                  llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0] || !isFloatTensor(getGrad()))
    return;
  int64_t area = spatialSize(*this, shapeOf(getResult())), windows = spatialSize(*this, shapeOf(getGrad()));
  int64_t channels = getChannelsLast() ? shapeOf(getGrad()).back() : 1;
  int64_t planes = windows && channels ? tensorTypeOf(getGrad()).getNumElements() / windows / channels : 0;
  Expr g(builder, getLoc(), resultGradients[0]);
  Expr rows = g.reshape({planes, area, 1, channels}).broadcast({planes, area, windows, channels});
  Expr winners =
      winnerIndices(*this, builder, spatialOf(*this, shapeOf(getResult()))).reshape({planes, 1, windows, channels});
  auto type = RankedTensorType::get({planes, 1, windows, channels}, elementTypeOf(getGrad()));
  operandGradients[0] = g.with(PickOp::create(builder, getLoc(), type, rows, winners, 1)).reshape(shapeOf(getGrad()));
}

void SumPoolOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] =
        SumPoolGradOp::create(builder, getLoc(), getInput().getType(), resultGradients[0], getKernel(), getStrides(),
                              getDilations(), getPadsBegin(), getChannelsLast());
}

void SumPoolGradOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                  llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getGrad()))
    operandGradients[0] = SumPoolOp::create(builder, getLoc(), getGrad().getType(), resultGradients[0], getKernel(),
                                            getStrides(), getDilations(), getPadsBegin(), getChannelsLast());
}

} // namespace tcc::train
