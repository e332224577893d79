//===- ConvolutionTest.cpp - convolutions against naive loops in f64 -----===//
#include "LibraryFixture.h"

#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "runtime/plan/DType.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;
using Kind = plan::ConvolutionCall;

namespace {
/// Calls visit(x index, w index, y index) for each product of a convolution of 1 to 3 spatial dimensions.
void forEachProduct(const Kind &call, const std::function<void(size_t, size_t, size_t)> &visit) {
  int spatial = call.x_dims_size() - 2;
  int64_t xs[3] = {1, 1, 1}, ws[3] = {1, 1, 1}, ys[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1},
          pad[3] = {0, 0, 0};
  for (int i = 0; i < spatial; ++i) {
    int at = 3 - spatial + i;
    xs[at] = call.x_dims(i + 2);
    ws[at] = call.w_dims(i + 2);
    ys[at] = call.y_dims(i + 2);
    stride[at] = call.strides(i);
    dilation[at] = call.dilations(i);
    pad[at] = call.pads_begin(i);
  }
  int64_t channels = call.x_dims(1), outputs = call.w_dims(0), inner = call.w_dims(1),
          perGroup = outputs / call.groups();
  for (int64_t n = 0; n < call.x_dims(0); ++n)
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t y = 0; y < ys[0] * ys[1] * ys[2]; ++y)
        for (int64_t c = 0; c < inner; ++c)
          for (int64_t w = 0; w < ws[0] * ws[1] * ws[2]; ++w) {
            int64_t yAt[3] = {y / (ys[1] * ys[2]), y / ys[2] % ys[1], y % ys[2]};
            int64_t wAt[3] = {w / (ws[1] * ws[2]), w / ws[2] % ws[1], w % ws[2]};
            int64_t x = 0;
            bool inside = true;
            for (int i = 0; i < 3; ++i) {
              int64_t at = yAt[i] * stride[i] + wAt[i] * dilation[i] - pad[i];
              inside &= at >= 0 && at < xs[i];
              x = x * xs[i] + at;
            }
            if (inside)
              visit(static_cast<size_t>((n * channels + o / perGroup * inner + c) * xs[0] * xs[1] * xs[2] + x),
                    static_cast<size_t>((o * inner + c) * ws[0] * ws[1] * ws[2] + w),
                    static_cast<size_t>((n * outputs + o) * ys[0] * ys[1] * ys[2] + y));
          }
}

/// Transposes from N, C, spatial to N, spatial, C; or back.
Floats turn(const Floats &from, const google::protobuf::RepeatedField<int64_t> &dims, bool back) {
  size_t channels = static_cast<size_t>(dims[1]), samples = static_cast<size_t>(dims[0]),
         area = from.size() / samples / channels;
  Floats to(from.size());
  for (size_t n = 0; n < samples; ++n)
    for (size_t c = 0; c < channels; ++c)
      for (size_t i = 0; i < area; ++i) {
        size_t first = (n * channels + c) * area + i, last = (n * area + i) * channels + c;
        to[back ? first : last] = from[back ? last : first];
      }
  return to;
}

/// Values as bf16, two in the place of a float, rounded to nearest even; and back.
Floats narrow(const Floats &from) {
  Floats to((from.size() + 1) / 2);
  for (size_t i = 0; i < from.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, from.get() + i, 4);
    auto half = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(reinterpret_cast<char *>(to.get()) + 2 * i, &half, 2);
  }
  return to;
}
Floats widen(const Floats &from, size_t count) {
  Floats to(count);
  for (size_t i = 0; i < count; ++i)
    std::memcpy(reinterpret_cast<char *>(to.get() + i) + 2, reinterpret_cast<const char *>(from.get()) + 2 * i, 2);
  return to;
}

/// Changes the form of a call and keeps its tiles. False if the form cannot compute the call.
bool setForm(Kind &call, Kind::Form form) {
  Kind other = call;
  other.set_form(form);
  other.set_numerics(runtime::numericsOf(form));
  if (!runtime::ConvolutionDesign::shapeOf(other))
    return false;
  call = other;
  auto design = runtime::ConvolutionDesign::create(call);
  EXPECT_TRUE(design.ok()) << design.message();
  if (design)
    call.set_partial_bytes(design->partialBytes);
  return design.ok();
}

void checkCall(Kind call, unsigned threads, bool channelsLast, Kind::Form form, plan::DType type, plan::DType resultType);

void checkLayout(const ConvolutionShape &shape, unsigned threads, bool channelsLast, plan::DType type,
                 plan::DType resultType);

/// Checks all three directions in both layouts; bounds as in the matmul test, from the sums of absolute products.
void check(const ConvolutionShape &shape, unsigned threads = 2) {
  for (bool channelsLast : {false, true})
    checkLayout(shape, threads, channelsLast, plan::F32, plan::F32);
}

void checkLayout(const ConvolutionShape &shape, unsigned threads, bool channelsLast, plan::DType type,
                 plan::DType resultType) {
  for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT})
    for (Kind::Form form : {Kind::CHANNELS, Kind::PLANES, Kind::PIXELS})
      checkCall(convolutionCall(shape, kind), threads, channelsLast, form, type, resultType);
}

void checkCall(Kind call, unsigned threads, bool channelsLast, Kind::Form form, plan::DType type, plan::DType resultType) {
  const Kind::Kind kind = call.kind();
  call.set_channels_last(channelsLast);
  call.set_dtype(type);
  bool wide = kind == Kind::WEIGHT_GRADIENT ? resultType == plan::F32 : type == plan::F32;
  call.set_result_dtype(wide ? plan::F32 : type);
  Floats x = randomFloats(elements(call.x_dims()), 1), w = randomFloats(elements(call.w_dims()), 2),
         y = randomFloats(elements(call.y_dims()), 3);
  if (type == plan::BF16)
    for (Floats *operand : {&x, &w, &y})
      *operand = widen(narrow(*operand), operand->size());
  Floats &result = kind == Kind::FORWARD ? y : kind == Kind::INPUT_GRADIENT ? x : w;
  std::vector<double> sum(result.size()), size(result.size());
  std::vector<int64_t> terms(result.size());
  auto add = [&](size_t at, double product) {
    sum[at] += product;
    size[at] += std::fabs(product);
    ++terms[at];
  };
  forEachProduct(call, [&](size_t xi, size_t wi, size_t yi) {
    if (kind == Kind::FORWARD)
      add(yi, double(x[xi]) * w[wi]);
    else if (kind == Kind::INPUT_GRADIENT)
      add(xi, double(y[yi]) * w[wi]);
    else
      add(wi, double(x[xi]) * y[yi]);
  });
  std::string what = fmt::format("kind {}, x {}, w {}, groups {}{}", static_cast<int>(kind), fmt::join(call.x_dims(), "x"),
                                 fmt::join(call.w_dims(), "x"), call.groups(), channelsLast ? ", channels last" : "");
  if (channelsLast) {
    x = turn(x, call.x_dims(), false);
    y = turn(y, call.y_dims(), false);
  }
  if (type == plan::BF16) {
    for (Floats *operand : {&x, &w, &y})
      if (operand != &result || !wide)
        *operand = narrow(*operand);
    what += wide ? ", bf16 to f32" : ", bf16";
  }
  ASSERT_TRUE(test::query(call).ok());
  if (!setForm(call, form))
    return;
  what += form == Kind::CHANNELS ? "" : ", by " + Kind::Form_Name(form);
  std::string problem = runCompleted(call, kind == Kind::INPUT_GRADIENT ? y : x,
                                     kind == Kind::WEIGHT_GRADIENT ? y : w, result, threads);
  ASSERT_EQ(problem, "") << what;
  if (!wide)
    result = widen(result, sum.size());
  if (channelsLast && kind != Kind::WEIGHT_GRADIENT)
    result = turn(result, kind == Kind::FORWARD ? call.y_dims() : call.x_dims(), true);
  for (size_t i = 0; i < sum.size(); ++i)
    ASSERT_NEAR(result[i], sum[i],
                (std::sqrt(double(terms[i])) + 2) * 0x1p-23 * size[i] + (wide ? 0 : 0x1p-8 * std::fabs(sum[i])) +
                    1e-30)
        << what << " at " << i;
}
} // namespace

TEST(Convolution, Plain2d) {
  check({{5, 3, 9, 8}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1});
  check({{2, 16, 7, 7}, {32, 16, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1});
}

TEST(Convolution, SizeOne) {
  check({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1});
  check({{1, 1, 4, 4}, {1, 1, 4, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1});
}

TEST(Convolution, StridesDilationsAsymmetricPads) {
  check({{3, 4, 11, 13}, {6, 4, 3, 2}, {2, 3}, {1, 1}, {1, 0}, {1, 0}, 1});
  check({{2, 5, 12, 10}, {7, 5, 3, 3}, {1, 1}, {2, 3}, {2, 3}, {1, 4}, 1});
  check({{2, 17, 10, 9}, {19, 17, 3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 2}, 1});
}

TEST(Convolution, Groups) {
  check({{3, 6, 7, 9}, {10, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2});
  check({{2, 16, 8, 8}, {32, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2});
  check({{3, 15, 8, 6}, {15, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 15}); // depth-wise
  check({{2, 6, 8, 6}, {12, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 6});   // with a multiplier
}

TEST(Convolution, OneAndThreeDimensions) {
  check({{3, 5, 31}, {8, 5, 4}, {2}, {3}, {4}, {1}, 1});
  check({{4, 8, 16}, {8, 4, 3}, {1}, {1}, {1}, {1}, 2});
  check({{2, 3, 5, 6, 7}, {4, 3, 2, 3, 3}, {1, 2, 1}, {1, 1, 2}, {0, 1, 2}, {1, 1, 2}, 1});
}

/// A batch that does not divide evenly: the weight gradient adds chunks of unequal size.
TEST(Convolution, BatchesWithARest) {
  ConvolutionShape shape{{33, 16, 12, 12}, {16, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  check(shape, 3);
  Kind call = convolutionCall(shape, Kind::WEIGHT_GRADIENT);
  auto needs = test::query(call);
  ASSERT_TRUE(needs.ok());
  int64_t chunks = (33 + call.tile_batch() - 1) / call.tile_batch();
  EXPECT_GT(chunks, 1);
  EXPECT_EQ(needs->partialBytes, static_cast<uint64_t>(chunks) * 16 * 16 * 9 * 4);
}

/// Products of bf16 are summed in f32 and rounded once, whether the level multiplies bf16 or widens it.
TEST(NarrowConvolution, AllDirections) {
  for (bool channelsLast : {false, true})
    for (plan::DType result : {plan::BF16, plan::F32}) {
      checkLayout({{5, 16, 9, 8}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, 2, channelsLast, plan::BF16,
                  result);
      checkLayout({{3, 5, 11, 13}, {7, 5, 3, 2}, {2, 1}, {1, 2}, {1, 0}, {1, 0}, 1}, 2, channelsLast, plan::BF16,
                  result);
      checkLayout({{9, 16, 12, 12}, {32, 8, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 2}, 3, channelsLast, plan::BF16,
                  result);
    }
}

/// In planes, positions between two lines are summed as well, with weight 0: an infinity there must not make a NaN.
TEST(Convolution, AnInfinityReachesItsOwnWeightsAlone) {
  for (bool channelsLast : {false, true})
    for (Kind::Form form : {Kind::CHANNELS, Kind::PLANES, Kind::PIXELS}) {
      Kind call = convolutionCall({{2, 2, 6, 7}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}, Kind::WEIGHT_GRADIENT);
      call.set_channels_last(channelsLast);
      Floats x = randomFloats(2 * 2 * 6 * 7, 1), y = randomFloats(2 * 3 * 4 * 5, 2), w(3 * 2 * 3 * 3);
      x[7] = INFINITY; // the start of the second line of the first channel, which only the first tap of a line reads
      if (channelsLast) {
        x = turn(x, call.x_dims(), false);
        y = turn(y, call.y_dims(), false);
      }
      ASSERT_TRUE(test::query(call).ok());
      if (!setForm(call, form))
        continue;
      ASSERT_EQ(runCompleted(call, x, y, w, 2), "");
      for (size_t i = 0; i < w.size(); ++i) {
        size_t channel = i / 9 % 2, line = i % 9 / 3, tap = i % 3;
        EXPECT_EQ(std::isfinite(w[i]), channel != 0 || line > 1 || tap != 0) << Kind::Form_Name(form) << " at " << i;
      }
    }
}

/// With few channels, registers hold pixels: the form PLANES for both layouts, PIXELS for weight gradients
/// channels-last.
TEST(Convolution, FewChannelsLieSideBySideByPixels) {
  auto formOf = [](int64_t in, int64_t out, Kind::Kind kind, bool channelsLast) {
    Kind call = convolutionCall({{4, in, 24, 24}, {out, in, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, kind);
    call.set_channels_last(channelsLast);
    EXPECT_TRUE(test::query(call).ok());
    return call.form();
  };
  EXPECT_EQ(formOf(1, 8, Kind::FORWARD, false), Kind::PLANES);
  EXPECT_EQ(formOf(16, 3, Kind::FORWARD, true), Kind::PLANES);
  EXPECT_EQ(formOf(8, 8, Kind::INPUT_GRADIENT, false), Kind::PLANES);
  EXPECT_EQ(formOf(1, 8, Kind::WEIGHT_GRADIENT, false), Kind::PLANES);
  EXPECT_EQ(formOf(3, 16, Kind::WEIGHT_GRADIENT, true), Kind::PIXELS);
  for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT})
    EXPECT_EQ(formOf(64, 64, kind, true), Kind::CHANNELS);
}

/// The purpose of channels-last operands.
TEST(Convolution, ChannelsLastActivationsAreNotReordered) {
  for (plan::DType type : {plan::F32, plan::BF16})
    for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT}) {
      Kind call = convolutionCall({{4, 64, 14, 14}, {128, 64, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1}, kind);
      call.set_dtype(type);
      auto first = test::query(call);
      call.set_channels_last(true);
      auto last = test::query(call);
      ASSERT_TRUE(first.ok() && last.ok());
      EXPECT_GT(first->reorderedBytes, 0u);
      EXPECT_EQ(last->reorderedBytes, 0u);
    }
}

TEST(Convolution, ShapesThatDoNotFitAreErrors) {
  Kind call = convolutionCall({{2, 4, 8, 8}, {4, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, Kind::FORWARD);
  Kind wrong = call;
  wrong.set_groups(3);
  EXPECT_NE(test::query(wrong).message().find("channels do not fit"), std::string::npos);
  wrong = call;
  wrong.mutable_pads_end()->RemoveLast();
  EXPECT_FALSE(test::query(wrong).ok());
  wrong = call;
  wrong.set_strides(0, 0);
  EXPECT_NE(test::query(wrong).message().find("spatial axis 0"), std::string::npos);
  wrong = call;
  wrong.set_dtype(plan::F16);
  EXPECT_NE(test::query(wrong).message().find("must be compiled"), std::string::npos);
}

namespace {
/// Shapes of every kind: dimensions, channels, groups, strides, dilations and pads from a fixed sequence.
class Shapes {
public:
  ConvolutionShape next() {
    for (;;) {
      ConvolutionShape shape;
      int64_t spatial = pick({1, 2, 2, 2, 3}), in = pick({1, 2, 3, 5, 8, 16, 17, 33, 50}), out = pick({1, 3, 4, 8, 16, 20, 49, 64}),
              kind = pick({0, 0, 0, 1, 2}), groups = 1;
      if (kind == 1) {
        groups = pick({2, 3, 4});
        in *= groups;
        out *= groups;
      } else if (kind == 2) {
        groups = in = out = pick({5, 16, 23, 40});
      }
      shape.groups = groups;
      shape.x = {pick({1, 2, 3}), in};
      shape.w = {out, in / groups};
      bool fits = true;
      for (int64_t axis = 0; axis < spatial; ++axis) {
        int64_t size = pick({1, 2, 4, 7, 9, 12}), kernel = pick({1, 1, 2, 3, 3, 5}), stride = pick({1, 1, 2, 3}),
                dilation = pick({1, 1, 1, 2}), begin = pick({0, 0, 1, 2}), end = pick({0, 0, 1, 2});
        shape.x.push_back(spatial == 1 ? size * 3 : spatial == 3 ? (size + 1) / 2 : size);
        shape.w.push_back(kernel);
        shape.strides.push_back(stride);
        shape.dilations.push_back(dilation);
        shape.begin.push_back(begin);
        shape.end.push_back(end);
        fits &= shape.x.back() + begin + end >= dilation * (kernel - 1) + 1;
      }
      if (fits)
        return shape;
    }
  }

private:
  int64_t pick(std::vector<int64_t> from) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from[(state >> 33) % from.size()];
  }
  uint64_t state = 7;
};

/// The result of a call; `problem` gets the error's text if the call fails.
std::vector<float> resultOf(const Kind &call, std::string &problem) {
  bool forward = call.kind() == Kind::FORWARD, toInput = call.kind() == Kind::INPUT_GRADIENT;
  size_t x = elements(call.x_dims()), w = elements(call.w_dims()), y = elements(call.y_dims());
  Floats first = randomFloats(toInput ? y : x, 1), second = randomFloats(forward || toInput ? w : y, 2),
         result(forward ? y : toInput ? x : w);
  if (call.dtype() == plan::BF16) {
    first = narrow(first);
    second = narrow(second);
  }
  std::memset(result.get(), 0, result.size() * 4);
  auto needs = runtime::needsOf(call);
  if (!needs) {
    problem = needs.message();
    return {};
  }
  auto runner = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 2), 2);
  if (!runner) {
    problem = runner.message();
    return {};
  }
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(2);
  Floats scratch(needs->scratchBytes(2) / 4), partials(needs->partialBytes / 4);
  std::memset(scratch.get(), 0xff, scratch.size() * 4);
  std::memset(partials.get(), 0xff, partials.size() * 4);
  void *pointers[] = {first.get(), second.get(), result.get(), partials.get()};
  if (!runtime::runCall(**runner, pool, pointers, reinterpret_cast<char *>(scratch.get())))
    problem = "it failed";
  if (!scratch.intact() || !partials.intact() || !result.intact())
    problem = "it wrote behind the end of a buffer";
  return {result.get(), result.get() + result.size()};
}

/// Visits the completed calls of a shape in all directions, layouts, types and forms that the test's level supports.
template <typename Visit> void forEachCall(const ConvolutionShape &shape, Visit visit) {
  for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT})
    for (bool last : {false, true})
      for (plan::DType type : {plan::F32, plan::BF16}) {
        Kind call = convolutionCall(shape, kind);
        call.set_channels_last(last);
        call.set_dtype(type);
        call.set_result_dtype(type);
        ASSERT_TRUE(test::query(call).ok());
        for (Kind::Form form : {Kind::CHANNELS, Kind::PLANES, Kind::PIXELS}) {
          if (!setForm(call, form))
            continue;
          visit(call, fmt::format("kind {}, x {}, w {}, groups {}, strides {}, dilations {}, pads {} {}, {}{}{}",
                                  static_cast<int>(kind), fmt::join(shape.x, "x"), fmt::join(shape.w, "x"), shape.groups,
                                  fmt::join(shape.strides, "x"), fmt::join(shape.dilations, "x"),
                                  fmt::join(shape.begin, "x"), fmt::join(shape.end, "x"), last ? "last " : "",
                                  plan::dtypeName(type), " by " + Kind::Form_Name(form)));
        }
      }
}
} // namespace

TEST(Convolution, ManyShapes) {
  Shapes shapes;
  for (int i = 0; i < 60; ++i)
    check(shapes.next());
}

TEST(NarrowConvolution, ManyShapes) {
  Shapes shapes;
  for (int i = 0; i < 40; ++i) {
    ConvolutionShape shape = shapes.next();
    for (bool channelsLast : {false, true})
      checkLayout(shape, 2, channelsLast, plan::BF16, i % 2 ? plan::BF16 : plan::F32);
  }
}

/// Every instruction set sums in the same order, so that machines agree in every bit unless bf16 is multiplied in
/// pairs.
TEST(Convolution, HasTheSameBitsWithAvx2) {
  if (!runtime::cpuFeatures().avx512)
    return; // only one instruction set is available
  runtime::CpuFeatures avx2 = runtime::cpuFeatures();
  avx2.avx512 = avx2.bf16 = avx2.amx = false;
  Shapes shapes;
  for (int i = 0; i < 40; ++i)
    forEachCall(shapes.next(), [&](Kind call, const std::string &what) {
      if (call.dtype() == plan::BF16 && !call.widened())
        return; // multiplied in pairs, which AVX2 does not have
      std::string problem;
      std::vector<float> more = resultOf(call, problem), less;
      {
        runtime::ScopedFeatures scope(avx2);
        less = resultOf(call, problem);
      }
      ASSERT_EQ(problem, "") << what;
      ASSERT_EQ(std::memcmp(more.data(), less.data(), more.size() * 4), 0) << what;
    });
}

/// Tiles and chunks of the batch do not change a result's bits; for the weight gradient, chunks do.
TEST(Convolution, TilesChangeNoBit) {
  Shapes shapes;
  for (int i = 0; i < 40; ++i)
    forEachCall(shapes.next(), [&](Kind call, const std::string &what) {
      std::string problem;
      std::vector<float> chosen = resultOf(call, problem);
      auto shape = runtime::ConvolutionDesign::shapeOf(call);
      ASSERT_TRUE(shape.ok());
      bool toWeights = call.kind() == Kind::WEIGHT_GRADIENT;
      for (int64_t parts : {1, 2, 3}) {
        Kind other = call;
        auto part = [&](int64_t whole) { return (whole + parts - 1) / parts; };
        if (!toWeights) {
          other.set_tile_batch(part(shape->samples));
          other.set_tile_lines(part(shape->lines));
          // The form changes no bits either, except in the weight gradient by planes, whose sums have another order.
          setForm(other, parts % 2 == 1 ? Kind::PLANES : Kind::CHANNELS);
        } else if (call.form() != Kind::PLANES) {
          setForm(other, parts % 2 == 1 ? Kind::PIXELS : Kind::CHANNELS);
        }
        other.set_tile_columns(std::min(shape->columns(), (part(shape->columns()) + 15) / 16 * 16));
        auto design = runtime::ConvolutionDesign::create(other);
        ASSERT_TRUE(design.ok()) << design.message();
        other.set_partial_bytes(design->partialBytes);
        std::vector<float> result = resultOf(other, problem);
        ASSERT_EQ(problem, "") << what;
        ASSERT_EQ(std::memcmp(chosen.data(), result.data(), chosen.size() * 4), 0) << what << " in " << parts;
      }
    });
}

TEST(Convolution, DescriptorsThatFitNothingAreRefused) {
  Kind call = convolutionCall({{4, 64, 14, 14}, {128, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, Kind::WEIGHT_GRADIENT);
  ASSERT_TRUE(test::query(call).ok());
  auto refused = [](Kind changed, const std::string &word) {
    auto needs = runtime::needsOf(changed);
    EXPECT_FALSE(needs.ok());
    EXPECT_NE(needs.message().find(word), std::string::npos) << needs.message();
  };
  Kind wrong = call;
  wrong.set_tile_batch(5);
  refused(wrong, "tiles");
  wrong = call;
  wrong.set_tile_columns(100); // not whole vectors
  refused(wrong, "tiles");
  wrong = call;
  wrong.set_block_words(0);
  refused(wrong, "blocks");
  wrong = call;
  wrong.set_partial_bytes(call.partial_bytes() + 64);
  refused(wrong, "partial sums");
  // Forms that cannot compute the call: an unknown one, PIXELS with channels first, PLANES if each channel is a group.
  wrong = call;
  wrong.set_form(static_cast<Kind::Form>(7));
  refused(wrong, "form 7");
  wrong.set_form(Kind::PIXELS);
  refused(wrong, "form 2");
  wrong = convolutionCall({{1, 8, 9, 9}, {8, 1, 3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 8}, Kind::FORWARD);
  wrong.set_form(Kind::PLANES);
  refused(wrong, "form 1");
  wrong = convolutionCall({{1, 1, 1 << 30, 1 << 30}, {1, 1, 3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}, Kind::FORWARD);
  wrong.set_form(Kind::PLANES);
  wrong.set_tile_batch(1);
  wrong.set_tile_lines(8);
  wrong.set_tile_columns(1);
  wrong.set_block_words(16);
  refused(wrong, "too large");
  // Each result has a phase of its own, which makes a million phases.
  wrong = convolutionCall({{1, 1, 1024, 1024}, {1, 1, 1, 1}, {1024, 1024}, {1, 1}, {0, 0}, {0, 0}, 1}, Kind::INPUT_GRADIENT);
  refused(wrong, "must be compiled");
}
