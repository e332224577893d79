//===- Convolution.cpp - convolution and its two gradients ------*- C++ -*-===//
//
// With x the input, w the weight, y the output: y = conv(x, w) is linear in both, so that each of the three ops is the
// derivative of another: ⟨conv(x, w), g⟩ = ⟨x, conv_input_grad(g, w)⟩ = ⟨w, conv_weight_grad(x, g)⟩.
//
// Here shapes and coordinates of x and y are always N, C, spatial: the coordinates of channels-last tensors are
// permuted when an operand is read or a result's coordinates are given.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/dialect/Verify.h"
#include "compiler/dialect/Window.h"

using namespace mlir;

namespace tcc::train {

namespace {
/// The three tensors of a convolution by their roles.
struct Shapes {
  llvm::SmallVector<int64_t> x, w, y;
  int64_t groups;
  Window window;
  bool channelsLast;

  llvm::ArrayRef<int64_t> inputs() const { return llvm::ArrayRef(x).drop_front(2); }
  llvm::ArrayRef<int64_t> kernel() const { return llvm::ArrayRef(w).drop_front(2); }
  llvm::ArrayRef<int64_t> outputs() const { return llvm::ArrayRef(y).drop_front(2); }
  int64_t inputsPerGroup() const { return w[1]; }
  int64_t outputsPerGroup() const { return w[0] / groups; }

  /// Coordinates or extents of x or y in memory order, from N, C, spatial; and back.
  template <typename T> llvm::SmallVector<T> stored(llvm::ArrayRef<T> dims) const {
    return channelsLast ? toChannelsLast(dims) : llvm::SmallVector<T>(dims);
  }
  template <typename T> llvm::SmallVector<T> logical(llvm::ArrayRef<T> dims) const {
    return channelsLast ? toChannelsFirst(dims) : llvm::SmallVector<T>(dims);
  }
};
} // namespace

template <typename OpTy> static Shapes shapesOf(OpTy op, Value x, Value w, Value y) {
  Shapes shapes{{},
                llvm::SmallVector<int64_t>(shapeOf(w)),
                {},
                int64_t(op.getGroups()),
                {op.getStrides(), op.getDilations(), op.getPadsBegin()},
                op.getChannelsLast()};
  // Verifiers call this before they know that there are channels.
  auto turn = [&](Value value) {
    return shapeOf(value).size() < 3 ? llvm::SmallVector<int64_t>(shapeOf(value)) : shapes.logical(shapeOf(value));
  };
  shapes.x = turn(x);
  shapes.y = turn(y);
  return shapes;
}
static Shapes shapesOf(ConvOp op) { return shapesOf(op, op.getInput(), op.getWeight(), op.getResult()); }
static Shapes shapesOf(ConvEpilogueOp op) { return shapesOf(op, op.getInput(), op.getWeight(), op.getResult()); }
static Shapes shapesOf(ConvInputGradOp op) { return shapesOf(op, op.getResult(), op.getWeight(), op.getGrad()); }
static Shapes shapesOf(ConvWeightGradOp op) { return shapesOf(op, op.getInput(), op.getResult(), op.getGrad()); }

template <typename OpTy> static LogicalResult verifyConvolution(OpTy op) {
  Shapes s = shapesOf(op);
  size_t spatial = op.getStrides().size();
  if (spatial < 1 || spatial > 3 || s.x.size() != spatial + 2 || s.w.size() != spatial + 2 ||
      s.y.size() != spatial + 2 || op.getDilations().size() != spatial || op.getPadsBegin().size() != spatial ||
      op.getPadsEnd().size() != spatial)
    return op.emitOpError("needs 1 to 3 spatial dimensions, with a stride, a dilation and two pads for each");
  Type element = elementTypeOf(op->getOperand(0)), result = elementTypeOf(op.getResult());
  bool widens = isa<ConvWeightGradOp>(op.getOperation()) && element.getIntOrFloatBitWidth() == 16 && result.isF32();
  if (elementTypeOf(op->getOperand(1)) != element || (result != element && !widens))
    return op.emitOpError(
        "needs one element type; the gradient of a weight may be f32 where its operands have 16 bits");
  if (s.groups < 1 || s.w[0] % s.groups != 0 || s.x[1] != s.w[1] * s.groups || s.y[1] != s.w[0] || s.x[0] != s.y[0])
    return op.emitOpError("has batch, channels and groups that do not fit together");
  for (size_t d = 0; d < spatial; ++d) {
    if (op.getStrides()[d] < 1 || op.getDilations()[d] < 1)
      return op.emitOpError("needs strides and dilations of at least 1");
    int64_t room =
        s.inputs()[d] + op.getPadsBegin()[d] + op.getPadsEnd()[d] - (s.kernel()[d] - 1) * op.getDilations()[d] - 1;
    if (room < 0 || room / op.getStrides()[d] + 1 != s.outputs()[d])
      return op.emitOpError("has ") << s.outputs()[d] << " outputs in spatial dimension " << d
                                    << " where the window fits " << (room < 0 ? 0 : room / op.getStrides()[d] + 1)
                                    << " times";
  }
  return success();
}
LogicalResult ConvOp::verify() { return verifyConvolution(*this); }
LogicalResult ConvEpilogueOp::verify() {
  if (failed(verifyConvolution(*this)))
    return failure();
  auto expected = RankedTensorType::get({shapesOf(*this).y[1]}, elementTypeOf(getResult()));
  if (getBias().getType() != expected)
    return emitOpError("needs a bias of type ") << expected;
  auto exact = expected.clone(Float32Type::get(getContext()));
  if (getExactBias() && getExactBias().getType() != exact)
    return emitOpError("needs a bias for kernels of type ") << exact;
  return success();
}
LogicalResult ConvInputGradOp::verify() { return verifyConvolution(*this); }
LogicalResult ConvWeightGradOp::verify() { return verifyConvolution(*this); }

static double flopsOf(const Shapes &s) {
  double flops = 2.0 * double(s.inputsPerGroup());
  for (int64_t extent : s.y)
    flops *= double(extent);
  for (int64_t extent : s.kernel())
    flops *= double(extent);
  return flops;
}
double ConvOp::getFlops() { return flopsOf(shapesOf(*this)); }
double ConvEpilogueOp::getFlops() { return flopsOf(shapesOf(*this)); }
double ConvInputGradOp::getFlops() { return flopsOf(shapesOf(*this)); }
double ConvWeightGradOp::getFlops() { return flopsOf(shapesOf(*this)); }

//===----------------------------------------------------------------------===//
// Evaluators: one walk over all products
//===----------------------------------------------------------------------===//

/// Calls `product` with the linear indices of each x·w that contributes to a y.
static void forEachProduct(const Shapes &s, llvm::function_ref<void(int64_t x, int64_t w, int64_t y)> product) {
  int64_t outputs = 1, offsets = 1;
  for (int64_t extent : s.y)
    outputs *= extent;
  for (int64_t extent : s.kernel())
    offsets *= extent;
  llvm::SmallVector<int64_t> in;
  for (int64_t y = 0; y < outputs; ++y) {
    llvm::SmallVector<int64_t> at = s.logical<int64_t>(unravel(y, s.stored<int64_t>(s.y)));
    int64_t group = at[1] / s.outputsPerGroup();
    for (int64_t k = 0; k < offsets; ++k) {
      if (!s.window.input(llvm::ArrayRef(at).drop_front(2), unravel(k, s.kernel()), s.inputs(), in))
        continue;
      for (int64_t c = 0; c < s.inputsPerGroup(); ++c) {
        llvm::SmallVector<int64_t> source = {at[0], group * s.inputsPerGroup() + c};
        llvm::append_range(source, in);
        product(ravel(s.stored<int64_t>(source), s.stored<int64_t>(s.x)),
                (at[1] * s.inputsPerGroup() + c) * offsets + k, y);
      }
    }
  }
}

static void storeAll(const std::vector<double> &sums, HostTensor &result) {
  for (int64_t i = 0; i < result.size(); ++i)
    result.setDouble(i, sums[i]);
}
void ConvOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachProduct(shapesOf(*this), [&](int64_t x, int64_t w, int64_t y) {
    sums[y] += operands[0].getDouble(x) * operands[1].getDouble(w);
  });
  storeAll(sums, results[0]);
}
void ConvInputGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachProduct(shapesOf(*this), [&](int64_t x, int64_t w, int64_t y) {
    sums[x] += operands[0].getDouble(y) * operands[1].getDouble(w);
  });
  storeAll(sums, results[0]);
}
void ConvWeightGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachProduct(shapesOf(*this), [&](int64_t x, int64_t w, int64_t y) {
    sums[w] += operands[0].getDouble(x) * operands[1].getDouble(y);
  });
  storeAll(sums, results[0]);
}

//===----------------------------------------------------------------------===//
// Scalar programs
//===----------------------------------------------------------------------===//
AffineMap ConvOp::getOperandMap(unsigned) { return {}; }
AffineMap ConvInputGradOp::getOperandMap(unsigned) { return {}; }
AffineMap ConvWeightGradOp::getOperandMap(unsigned) { return {}; }

template <typename Range> static llvm::SmallVector<Coord> join(Coord first, Coord second, const Range &rest) {
  llvm::SmallVector<Coord> coords = {first, second};
  llvm::append_range(coords, rest);
  return coords;
}
static llvm::SmallVector<Coord> uniform(ElementBuilder &builder, ValueRange counters) {
  llvm::SmallVector<Coord> coords;
  for (Value counter : counters)
    coords.push_back(builder.uniform(counter));
  return coords;
}

Value ConvOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> stored) {
  Shapes s = shapesOf(*this);
  llvm::SmallVector<Coord> coords = s.logical(stored);
  Value zero = builder.constant(elementTypeOf(getResult()), 0);
  Coord firstChannel = s.groups == 1
                           ? builder.uniform(int64_t(0))
                           : builder.affine(digitOf(builder, coords[1], s.outputsPerGroup(), 0), s.inputsPerGroup(), 0);
  llvm::SmallVector<int64_t> extents = {s.inputsPerGroup()};
  llvm::append_range(extents, s.kernel());
  return loopNest(builder, extents, zero, [&](ValueRange counters, ValueRange carried) -> llvm::SmallVector<Value> {
    ValueRange k = counters.drop_front();
    Coord channel = builder.uniform(counters[0]);
    WindowElement in =
        inputsOf(builder, s.window, llvm::ArrayRef(coords).drop_front(2), k, s.kernel(), s.inputs(), s.outputs());
    Value x = operandInside(builder, 0, s.stored<Coord>(join(coords[0], builder.add(firstChannel, channel), in.coords)),
                            in.inside, zero);
    Value w = builder.operand(1, join(coords[1], channel, uniform(builder, k)));
    return {multiplyAddInside(builder, x, w, carried[0], in.inside)};
  })[0];
}

Value ConvInputGradOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> stored) {
  Shapes s = shapesOf(*this);
  llvm::SmallVector<Coord> coords = s.logical(stored);
  Value zero = builder.constant(elementTypeOf(getResult()), 0);
  Coord firstOutput = builder.uniform(int64_t(0)), channel = coords[1];
  if (s.groups > 1) {
    firstOutput = builder.affine(digitOf(builder, coords[1], s.inputsPerGroup(), 0), s.outputsPerGroup(), 0);
    channel = digitOf(builder, coords[1], 1, s.inputsPerGroup());
  }
  llvm::SmallVector<int64_t> extents = {s.outputsPerGroup()};
  llvm::append_range(extents, s.kernel());
  return loopNest(builder, extents, zero, [&](ValueRange counters, ValueRange carried) -> llvm::SmallVector<Value> {
    ValueRange k = counters.drop_front();
    Coord output = builder.add(firstOutput, builder.uniform(counters[0]));
    WindowElement out = outputsOf(builder, s.window, llvm::ArrayRef(coords).drop_front(2), k, s.outputs());
    Value g = operandInside(builder, 0, s.stored<Coord>(join(coords[0], output, out.coords)), out.inside, zero);
    Value w = builder.operand(1, join(output, channel, uniform(builder, k)));
    return {multiplyAddInside(builder, g, w, carried[0], out.inside)};
  })[0];
}

Value ConvWeightGradOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Shapes s = shapesOf(*this);
  Value zero = builder.constant(elementTypeOf(getResult()), 0);
  Coord channel = coords[1];
  if (s.groups > 1)
    channel = builder.add(channel,
                          builder.affine(digitOf(builder, coords[0], s.outputsPerGroup(), 0), s.inputsPerGroup(), 0));
  llvm::SmallVector<int64_t> extents = {s.x[0]};
  llvm::append_range(extents, s.outputs());
  return loopNest(builder, extents, zero, [&](ValueRange counters, ValueRange carried) -> llvm::SmallVector<Value> {
    Coord sample = builder.uniform(counters[0]);
    llvm::SmallVector<Coord> q = uniform(builder, counters.drop_front());
    // Unlike in inputsOf(), the window's offset is the coordinate and the output is the loop counter.
    WindowElement in;
    for (size_t d = 0; d < q.size(); ++d) {
      Coord at = builder.add(builder.affine(q[d], s.window.strides[d], -s.window.pads[d]),
                             builder.affine(coords[d + 2], s.window.dilations[d], 0));
      Value inside = builder.inBounds(at, s.inputs()[d]);
      in.inside =
          in.inside ? arith::AndIOp::create(builder.builder, builder.loc, in.inside, inside).getResult() : inside;
      in.coords.push_back(at);
    }
    Value x = operandInside(builder, 0, s.stored<Coord>(join(sample, channel, in.coords)), in.inside, zero);
    Value g = builder.operand(1, s.stored<Coord>(join(sample, coords[0], q)));
    return {multiplyAddInside(builder, x, g, carried[0], in.inside)};
  })[0];
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//
namespace {
/// Builds the three ops with the window of a given op.
template <typename OpTy> struct Convolver {
  OpTy op;
  OpBuilder &builder;

  template <typename ResultOp> Value make(Value like, Value first, Value second) {
    return ResultOp::create(builder, op.getLoc(), like.getType(), first, second, op.getStrides(), op.getDilations(),
                            op.getPadsBegin(), op.getPadsEnd(), op.getGroups(), op.getChannelsLast());
  }
};
} // namespace

/// dx = conv_input_grad(g, w), dw = conv_weight_grad(x, g)
void ConvOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  Value x = getInput(), w = getWeight(), g = resultGradients[0];
  if (!g)
    return;
  Convolver<ConvOp> convolver{*this, builder};
  operandGradients[0] = convolver.make<ConvInputGradOp>(x, g, w);
  operandGradients[1] = convolver.make<ConvWeightGradOp>(w, x, g);
}

/// Of conv_input_grad(y, w) with gradient g (shaped as x): dy = conv(g, w), dw = conv_weight_grad(g, y)
void ConvInputGradOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                    llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  Value y = getGrad(), w = getWeight(), g = resultGradients[0];
  if (!g)
    return;
  Convolver<ConvInputGradOp> convolver{*this, builder};
  operandGradients[0] = convolver.make<ConvOp>(y, g, w);
  operandGradients[1] = convolver.make<ConvWeightGradOp>(w, g, y);
}

/// Of conv_weight_grad(x, y) with gradient g (shaped as w): dx = conv_input_grad(y, g), dy = conv(x, g)
void ConvWeightGradOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                     llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  Value x = getInput(), y = getGrad(), g = resultGradients[0];
  if (!g)
    return;
  Convolver<ConvWeightGradOp> convolver{*this, builder};
  operandGradients[0] = convolver.make<ConvInputGradOp>(x, y, g);
  operandGradients[1] = convolver.make<ConvOp>(y, x, g);
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//
template <typename OpTy>
static void fillCall(OpTy op, plan::ConvolutionCall::Kind kind, plan::Instruction &instruction) {
  Shapes s = shapesOf(op);
  plan::ConvolutionCall &call = *instruction.mutable_convolution();
  call.set_kind(kind);
  call.set_dtype(toPlan(elementTypeOf(op->getOperand(0))));
  call.set_result_dtype(toPlan(elementTypeOf(op.getResult())));
  call.mutable_x_dims()->Assign(s.x.begin(), s.x.end());
  call.mutable_w_dims()->Assign(s.w.begin(), s.w.end());
  call.mutable_y_dims()->Assign(s.y.begin(), s.y.end());
  call.mutable_strides()->Assign(op.getStrides().begin(), op.getStrides().end());
  call.mutable_dilations()->Assign(op.getDilations().begin(), op.getDilations().end());
  call.mutable_pads_begin()->Assign(op.getPadsBegin().begin(), op.getPadsBegin().end());
  call.mutable_pads_end()->Assign(op.getPadsEnd().begin(), op.getPadsEnd().end());
  call.set_groups(op.getGroups());
  call.set_channels_last(op.getChannelsLast());
}
void ConvOp::buildCall(plan::Instruction &instruction) { fillCall(*this, plan::ConvolutionCall::FORWARD, instruction); }
void ConvEpilogueOp::buildCall(plan::Instruction &instruction) {
  fillCall(*this, plan::ConvolutionCall::FORWARD, instruction);
  instruction.mutable_convolution()->set_finish(plan::ConvolutionCall::BIAS);
  instruction.mutable_convolution()->set_exact_bias(bool(getExactBias()));
}
/// One kernel adds the bias to the sums (CallKernels.h).
void ConvEpilogueOp::buildKernels(Block &holder) {
  Location loc = getLoc();
  Type type = getResult().getType(), wide = Float32Type::get(getContext());
  Value bias = getExactBias() ? getExactBias() : getBias();
  llvm::SmallVector<int64_t> row(size_t(tensorTypeOf(getResult()).getRank()), 1);
  row[getChannelsLast() ? row.size() - 1 : 1] = tensorTypeOf(bias).getNumElements();
  FusedOp region = appendRegion(holder, loc, {type, RankedTensorType::get(row, elementTypeOf(bias))}, type);
  OpBuilder builder = OpBuilder::atBlockEnd(&region.getBody().front());
  Value sums = cast(builder, loc, region.getBody().getArgument(0), wide),
        added = broadcastTo(builder, loc, cast(builder, loc, region.getBody().getArgument(1), wide), shapeOf(sums));
  Value result = AddOp::create(builder, loc, sums, added);
  YieldOp::create(builder, loc, cast(builder, loc, result, elementTypeOf(getResult())));
}
void ConvInputGradOp::buildCall(plan::Instruction &instruction) {
  fillCall(*this, plan::ConvolutionCall::INPUT_GRADIENT, instruction);
}
void ConvWeightGradOp::buildCall(plan::Instruction &instruction) {
  fillCall(*this, plan::ConvolutionCall::WEIGHT_GRADIENT, instruction);
}

} // namespace tcc::train
