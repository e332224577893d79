//===- PlainCalls.cpp - calls of a plan by plain loops --------------------===//
#include "test/support/plain/PlainCalls.h"

#include "runtime/cpu/calls/MatmulDesigns.h"
#include "runtime/plan/DType.h"

#include <array>
#include <bit>

namespace tcc::test {

namespace {
using runtime::CallContext, runtime::LibraryCall;

float wide(uint16_t narrow) { return std::bit_cast<float>(uint32_t(narrow) << 16); }
float rounded(float value) { return wide(runtime::roundToBf16(value)); }

/// Elements of f32, f64 or bf16 in memory.
class Elements {
public:
  Elements(void *data, plan::DType dtype) : data(data), dtype(dtype) {}

  double operator[](int64_t i) const {
    return dtype == plan::BF16  ? wide(static_cast<const uint16_t *>(data)[i])
           : dtype == plan::F64 ? static_cast<const double *>(data)[i]
                                : static_cast<const float *>(data)[i];
  }
  void set(int64_t i, double value) const {
    if (dtype == plan::BF16)
      static_cast<uint16_t *>(data)[i] = runtime::roundToBf16(static_cast<float>(value));
    else if (dtype == plan::F64)
      static_cast<double *>(data)[i] = value;
    else
      static_cast<float *>(data)[i] = static_cast<float>(value);
  }

private:
  void *data;
  plan::DType dtype;
};

plan::DType resultType(plan::DType result, plan::DType operands) {
  return result == plan::DTYPE_NONE ? operands : result;
}

/// A tile is a row of C.
class PlainMatmul : public LibraryCall {
public:
  explicit PlainMatmul(const plan::MatmulCall &call) : call(call) {}

  int stages() const override { return 1; }
  int64_t tiles(int) const override { return call.batch() * call.m(); }

  bool run(int, const CallContext &context, int64_t begin, int64_t end) const override {
    // With accumulation, operand 2 is the addend and operand 3 is C, in the same memory.
    Elements c(context.pointers[call.accumulate() ? 3 : 2], resultType(call.result_dtype(), call.dtype()));
    for (int64_t row = begin; row < end; ++row)
      for (int64_t j = 0; j < call.n(); ++j) {
        double sum = element(context.pointers, row / call.m(), row % call.m(), j);
        c.set(row * call.n() + j, call.accumulate() ? c[row * call.n() + j] + sum : sum);
      }
    return true;
  }

protected:
  double element(void *const *pointers, int64_t batch, int64_t i, int64_t j) const {
    Elements a(pointers[0], call.dtype()), b(pointers[1], call.rounds_b() ? plan::F32 : call.dtype());
    int64_t fromA = batch * call.m() * call.k(), fromB = batch * call.k() * call.n();
    double sum = 0;
    for (int64_t k = 0; k < call.k(); ++k) {
      double left = a[fromA + (call.trans_a() ? k * call.m() + i : i * call.k() + k)],
             right = b[fromB + (call.trans_b() ? j * call.k() + k : k * call.n() + j)];
      sum += left * (call.rounds_b() ? rounded(static_cast<float>(right)) : right);
    }
    return sum;
  }

  plan::MatmulCall call;
};

/// A tile computes some rows of C in the worker's slot, and runs the kernel on them.
class PlainRowsToKernel final : public PlainMatmul {
public:
  PlainRowsToKernel(const plan::MatmulCall &call, const runtime::RowwiseDesign &design, plan::KernelFunction kernel)
      : PlainMatmul(call), design(design), kernel(kernel) {}

  int64_t tiles(int) const override { return design.tiles(); }

  bool run(int, const CallContext &context, int64_t begin, int64_t end) const override {
    for (int64_t tile = begin; tile < end; ++tile) {
      char *slot = context.scratch + design.sharedBytes +
                   runtime::slotOf(tile, design.tiles(), context.worker, context.workers) * design.slotBytes;
      auto *c = reinterpret_cast<float *>(slot + design.offsetC);
      int64_t first = tile * design.tileM, last = std::min(first + design.tileM, call.m());
      for (int64_t i = first; i < last; ++i)
        for (int64_t j = 0; j < call.n(); ++j)
          c[(i - first) * call.n() + j] = static_cast<float>(element(context.pointers, 0, i, j));
      // The kernel gets the address that C would have if all of its rows were stored.
      std::array<void *, runtime::kMostRowOperands + 1> operands;
      operands[0] = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(c) - static_cast<uintptr_t>(first * call.n()) * 4);
      std::copy_n(context.pointers + 2, call.row_operands(), operands.begin() + 1);
      kernel(operands.data(), tile, tile + 1, nullptr);
    }
    return true;
  }

private:
  runtime::RowwiseDesign design;
  plan::KernelFunction kernel;
};

/// There are always three spatial axes; a convolution with fewer has leading axes of extent 1. A tile computes one
/// channel of one sample, or the weight gradient of one pair of channels.
class PlainConvolution final : public LibraryCall {
  using Axes = std::array<int64_t, 3>;

public:
  explicit PlainConvolution(const plan::ConvolutionCall &call) : call(call) {
    const int spatial = call.x_dims_size() - 2;
    for (int i = 0; i < spatial; ++i) {
      auto at = static_cast<size_t>(3 - spatial + i);
      x[at] = call.x_dims(i + 2);
      w[at] = call.w_dims(i + 2);
      y[at] = call.y_dims(i + 2);
      stride[at] = call.strides(i);
      dilation[at] = call.dilations(i);
      pad[at] = call.pads_begin(i);
    }
    inner = call.w_dims(1);
    perGroup = call.w_dims(0) / call.groups();
  }

  int stages() const override { return 1; }
  int64_t tiles(int) const override {
    switch (call.kind()) {
    case plan::ConvolutionCall::FORWARD:
      return call.y_dims(0) * call.y_dims(1);
    case plan::ConvolutionCall::INPUT_GRADIENT:
      return call.x_dims(0) * call.x_dims(1);
    default:
      return call.w_dims(0) * inner;
    }
  }

  bool run(int, const CallContext &context, int64_t begin, int64_t end) const override {
    Elements result(context.pointers[2], resultType(call.result_dtype(), call.dtype()));
    std::array<Elements, 2> operands{Elements(context.pointers[0], call.dtype()), Elements(context.pointers[1], call.dtype())};
    for (int64_t tile = begin; tile < end; ++tile)
      if (call.kind() == plan::ConvolutionCall::FORWARD)
        forward(operands, result, tile / call.y_dims(1), tile % call.y_dims(1));
      else if (call.kind() == plan::ConvolutionCall::INPUT_GRADIENT)
        inputGradient(operands, result, tile / call.x_dims(1), tile % call.x_dims(1));
      else
        weightGradient(operands, result, tile / inner, tile % inner);
    return true;
  }

private:
  static int64_t count(const Axes &axes) { return axes[0] * axes[1] * axes[2]; }
  static int64_t placeOf(const Axes &axes, const Axes &at) { return (at[0] * axes[1] + at[1]) * axes[2] + at[2]; }
  static Axes axesOf(const Axes &axes, int64_t place) {
    return {place / (axes[1] * axes[2]), place / axes[2] % axes[1], place % axes[2]};
  }

  int64_t activation(const Axes &axes, int64_t channels, int64_t sample, int64_t channel, int64_t place) const {
    return call.channels_last() ? (sample * count(axes) + place) * channels + channel
                                : (sample * channels + channel) * count(axes) + place;
  }
  int64_t ofX(int64_t sample, int64_t channel, int64_t place) const {
    return activation(x, call.x_dims(1), sample, channel, place);
  }
  int64_t ofY(int64_t sample, int64_t channel, int64_t place) const {
    return activation(y, call.y_dims(1), sample, channel, place);
  }
  int64_t ofW(int64_t output, int64_t channel, int64_t tap) const { return (output * inner + channel) * count(w) + tap; }

  /// The index in x that a result reads through a tap; -1 if it is in the padding.
  int64_t read(int64_t placeOfY, int64_t tap) const {
    Axes atY = axesOf(y, placeOfY), atW = axesOf(w, tap), at;
    for (size_t i = 0; i < 3; ++i) {
      at[i] = atY[i] * stride[i] + atW[i] * dilation[i] - pad[i];
      if (at[i] < 0 || at[i] >= x[i])
        return -1;
    }
    return placeOf(x, at);
  }

  /// The result that reads an element of x through a tap; -1 if there is none.
  int64_t reader(int64_t placeOfX, int64_t tap) const {
    Axes atX = axesOf(x, placeOfX), atW = axesOf(w, tap), at;
    for (size_t i = 0; i < 3; ++i) {
      int64_t distance = atX[i] + pad[i] - atW[i] * dilation[i];
      at[i] = distance / stride[i];
      if (distance < 0 || distance % stride[i] != 0 || at[i] >= y[i])
        return -1;
    }
    return placeOf(y, at);
  }

  void forward(const std::array<Elements, 2> &operands, const Elements &result, int64_t sample, int64_t output) const {
    const int64_t firstChannel = output / perGroup * inner;
    for (int64_t place = 0; place < count(y); ++place) {
      double sum = 0;
      for (int64_t tap = 0; tap < count(w); ++tap)
        if (int64_t from = read(place, tap); from >= 0)
          for (int64_t c = 0; c < inner; ++c)
            sum += operands[0][ofX(sample, firstChannel + c, from)] * operands[1][ofW(output, c, tap)];
      result.set(ofY(sample, output, place), sum);
    }
  }

  void inputGradient(const std::array<Elements, 2> &operands, const Elements &result, int64_t sample, int64_t channel) const {
    const int64_t firstOutput = channel / inner * perGroup;
    for (int64_t place = 0; place < count(x); ++place) {
      double sum = 0;
      for (int64_t tap = 0; tap < count(w); ++tap)
        if (int64_t from = reader(place, tap); from >= 0)
          for (int64_t o = firstOutput; o < firstOutput + perGroup; ++o)
            sum += operands[0][ofY(sample, o, from)] * operands[1][ofW(o, channel % inner, tap)];
      result.set(ofX(sample, channel, place), sum);
    }
  }

  void weightGradient(const std::array<Elements, 2> &operands, const Elements &result, int64_t output, int64_t channel) const {
    const int64_t inX = output / perGroup * inner + channel;
    for (int64_t tap = 0; tap < count(w); ++tap) {
      double sum = 0;
      for (int64_t place = 0; place < count(y); ++place)
        if (int64_t from = read(place, tap); from >= 0)
          for (int64_t sample = 0; sample < call.x_dims(0); ++sample)
            sum += operands[0][ofX(sample, inX, from)] * operands[1][ofY(sample, output, place)];
      result.set(ofW(output, channel, tap), sum);
    }
  }

  plan::ConvolutionCall call;
  Axes x{1, 1, 1}, w{1, 1, 1}, y{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};
  int64_t inner, perGroup;
};
} // namespace

PlainCalls::Made PlainCalls::make(const plan::MatmulCall &call, runtime::CpuLevel level, const runtime::Scratch &scratch,
                                  unsigned workers, plan::KernelFunction rowKernel) const {
  if (Status status = runtime::checkCall(call, level, scratch, workers); !status.ok())
    return status;
  if (call.implementation() != plan::MatmulCall::ROWS_TO_KERNEL)
    return std::unique_ptr<LibraryCall>(std::make_unique<PlainMatmul>(call));
  auto shape = runtime::shapeOf(call);
  auto tiling = runtime::tilingOf(call, *shape);
  return std::unique_ptr<LibraryCall>(std::make_unique<PlainRowsToKernel>(
      call, runtime::RowwiseDesign(*shape, tiling->tileM, tiling->blockK), rowKernel));
}

PlainCalls::Made PlainCalls::make(const plan::ConvolutionCall &call, runtime::CpuLevel level, const runtime::Scratch &scratch,
                                  unsigned workers) const {
  if (Status status = runtime::checkCall(call, level, scratch, workers); !status.ok())
    return status;
  return std::unique_ptr<LibraryCall>(std::make_unique<PlainConvolution>(call));
}

} // namespace tcc::test
