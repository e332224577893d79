//===- ConvolutionTest.cpp - convolutions against naive loops in f64 -----===//
#include "LibraryFixture.h"

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

/// The same elements, N, C, spatial, as N, spatial, C; or back.
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

void checkLayout(const ConvolutionShape &shape, unsigned threads, bool channelsLast, plan::DType type,
                 plan::DType resultType);

/// All three directions; bounds as in the matmul test, from the sums of absolute products.
void check(const ConvolutionShape &shape, unsigned threads = 2) {
  for (bool channelsLast : {false, true})
    checkLayout(shape, threads, channelsLast, plan::F32, plan::F32);
}

void checkLayout(const ConvolutionShape &shape, unsigned threads, bool channelsLast, plan::DType type,
                 plan::DType resultType) {
  for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT}) {
    Kind call = convolutionCall(shape, kind);
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
    std::string what = fmt::format("kind {}, x {}, w {}, groups {}{}", static_cast<int>(kind), fmt::join(shape.x, "x"),
                                   fmt::join(shape.w, "x"), shape.groups, channelsLast ? ", channels last" : "");
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
    std::string problem =
        runCall(call, kind == Kind::INPUT_GRADIENT ? y : x, kind == Kind::WEIGHT_GRADIENT ? y : w, result, threads);
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

/// More samples than tiles, and a rest: the weight gradient adds chunks of unequal size.
TEST(Convolution, BatchesWithARest) {
  ConvolutionShape shape{{33, 16, 12, 12}, {16, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  check(shape, 3);
  ASSERT_TRUE(runtime::selectLevel(test::machineLevel()).ok());
  Kind call = convolutionCall(shape, Kind::WEIGHT_GRADIENT);
  auto needs = test::query(call);
  ASSERT_TRUE(needs.ok());
  int64_t chunks = (33 + call.tile_batch() - 1) / call.tile_batch();
  EXPECT_GT(chunks, 1);
  EXPECT_EQ(needs->partialBytes, static_cast<uint64_t>(chunks) * 16 * 16 * 9 * 4);
}

/// Products of bf16 are summed in f32, and rounded once: where the library computes in bf16 and where it is widened.
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

TEST(Convolution, LayoutsAreNamed) {
  ASSERT_TRUE(runtime::selectLevel(test::machineLevel()).ok());
  Kind call = convolutionCall({{8, 64, 16, 16}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, Kind::FORWARD);
  ASSERT_TRUE(test::query(call).ok());
  EXPECT_EQ(call.layout().rfind("x:", 0), 0u) << call.layout();
  EXPECT_NE(call.layout().find(" w:"), std::string::npos) << call.layout();
}

/// What channels-last operands are for, also where they are bf16 and the library is handed widened copies of them.
TEST(Convolution, ChannelsLastActivationsAreNotReordered) {
  ASSERT_TRUE(runtime::selectLevel(test::machineLevel()).ok());
  for (plan::DType type : {plan::F32, plan::BF16})
    for (Kind::Kind kind : {Kind::FORWARD, Kind::INPUT_GRADIENT, Kind::WEIGHT_GRADIENT}) {
      Kind call = convolutionCall({{4, 64, 14, 14}, {128, 64, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1}, kind);
      call.set_dtype(type);
      auto first = test::query(call);
      call.set_channels_last(true);
      auto last = test::query(call);
      ASSERT_TRUE(first.ok() && last.ok());
      EXPECT_GT(first->reorderedBytes, 0u) << call.layout();
      EXPECT_EQ(last->reorderedBytes, 0u) << call.layout();
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
