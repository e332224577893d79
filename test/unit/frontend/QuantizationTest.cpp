//===- QuantizationTest.cpp - quantised tensors and their pairs -----------===//
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

class Quantization : public Importing {
protected:
  static frontend::ImportOptions observing() {
    frontend::ImportOptions options;
    options.model.quantize = "observe";
    return options;
  }
  std::string imported(const OnnxModel &model, const frontend::ImportOptions &options = {}) {
    auto made = import(model, options);
    EXPECT_TRUE(made) << made.message();
    if (!made)
      return {};
    warnings = made->warnings;
    quantized = made->quantized;
    return text(*made);
  }
  std::vector<std::string> warnings;
  std::vector<plan::Quantized> quantized;
};

const char *const kScales = "float s = {0.5}, uint8 z = {10}";

TEST_F(Quantization, IntegersByThemselves) {
  EXPECT_THAT(evaluate(fromText(std::string("g (float[5] x) => (uint8[5] y) <") + kScales +
                                "> { y = QuantizeLinear(x, s, z) }"),
                       {{0.25, 0.75, -0.75, 1000, -1000}}),
              ElementsAre(10, 12, 8, 255, 0));
  EXPECT_THAT(evaluate(fromText(std::string("g (uint8[3] x) => (float[3] y) <") + kScales +
                                "> { y = DequantizeLinear(x, s, z) }"),
                       {{0, 10, 255}}),
              ElementsAre(-5, 0, 122.5));
}

TEST_F(Quantization, APairIsOneRounding) {
  OnnxModel m = fromText(std::string("g (float[5] x) => (float[5] y) <") + kScales +
                         "> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }");
  EXPECT_THAT(evaluate(m, {{0.25, 0.75, -0.75, 1000, -1000}}), ElementsAre(0, 1, -1, 122.5, -5));
  EXPECT_THAT(imported(m),
              AllOf(HasSubstr("train.fake_quantize"), HasSubstr("within 0 to 255"), Not(HasSubstr("ui8"))));
}

TEST_F(Quantization, OpsThatMoveElementsStandInBetween) {
  EXPECT_THAT(
      imported(fromText(std::string("g (float[2, 3] x) => (float[6] y) <") + kScales +
                        ", int64[1] shape = {6}> { q = QuantizeLinear(x, s, z) t = Transpose(q) r = Reshape(t, shape)"
                        " y = DequantizeLinear(r, s, z) }")),
      AllOf(HasSubstr("train.fake_quantize"), Not(HasSubstr("xui8>"))));
}

TEST_F(Quantization, IntegersThatAreReadOtherwiseStay) {
  // The pair still becomes one rounding. A DequantizeLinear with another scale than its quantiser's is no pair.
  std::string both = imported(fromText(std::string("g (float[4] x) => (float[4] y, uint8[4] q) <") + kScales +
                                       "> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"));
  EXPECT_THAT(both, AllOf(HasSubstr("train.fake_quantize"), HasSubstr("tensor<4xui8>")));
  EXPECT_THAT(imported(fromText(std::string("g (float[4] x) => (float[4] y) <") + kScales +
                                ", float t = {0.25}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, t, z) }")),
              Not(HasSubstr("train.fake_quantize")));
}

TEST_F(Quantization, TorchUsesSevenBits) {
  EXPECT_THAT(
      imported(fromText(
          "g (float[4] x) => (float[4] y) <float s = {0.5}, uint8 z = {64}, uint8 most = {127}> {"
          " zero = Identity(z) q = QuantizeLinear(x, s, zero) c = Clip(q, , most) y = DequantizeLinear(c, s, z) }")),
      AllOf(HasSubstr("train.fake_quantize"), HasSubstr("within 0 to 127"), Not(HasSubstr("ui8"))));
}

const char *const kWeight =
    "g (float[2, 2] x) => (float[2, 2] y) <int8[2, 2] w = {1, -2, 3, 127}, float[2] s = {0.5, 2},"
    " int8[2] z = {0, 0}> { d = DequantizeLinear<axis = 1>(w, s, z) y = MatMul(x, d) }";

TEST_F(Quantization, StoredIntegersAreTrained) {
  OnnxModel m = fromText(kWeight);
  EXPECT_THAT(imported(m), AllOf(HasSubstr("train.variable @w : tensor<2x2xf32> {role = \"parameter\""),
                                 HasSubstr("within -128 to 127"), Not(HasSubstr("@s"))));
  ASSERT_EQ(quantized.size(), 1u);
  EXPECT_EQ(quantized[0].type().dtype(), plan::I8);
  EXPECT_EQ(quantized[0].axis(), 1);
  EXPECT_FALSE(quantized[0].observed());
  EXPECT_THAT(evaluate(m, {{1, 0, 0, 1}}), ElementsAre(0.5, -4, 1.5, 254));
}

TEST_F(Quantization, WeightsReadInDifferentStepsAreNot) {
  imported(fromText("g (float[2] x) => (float[2] y) <int8[2] w = {1, -2}, float s = {0.5}, float t = {2}> {"
                    " a = DequantizeLinear(w, s) b = DequantizeLinear(w, t) c = Add(a, b) y = Add(x, c) }"));
  EXPECT_THAT(warnings, Contains(HasSubstr("w is not trained")));
}

TEST_F(Quantization, ObservedScales) {
  EXPECT_THAT(imported(fromText(kWeight), observing()),
              AllOf(HasSubstr("train.reduce max"), HasSubstr("train.fake_quantize"), HasSubstr("model.quantize")));
  ASSERT_EQ(quantized.size(), 1u);
  EXPECT_TRUE(quantized[0].observed());
  EXPECT_EQ(quantized[0].level(), 127);
  std::string range = imported(fromText(std::string("g (float[4] x) => (float[4] y) <") + kScales +
                                        "> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"),
                               observing());
  EXPECT_THAT(range, AllOf(HasSubstr("train.variable @\"s/low\" : tensor<f32> {role = \"frozen\""),
                           HasSubstr("train.observed_range"), HasSubstr("train.write @\"s/high\"")));
  // Only the upper end moves if a range starts at 0.
  std::string relu = imported(fromText("g (float[4] x) => (float[4] y) <float s = {0.5}, uint8 z = {0}> {"
                                       " q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"),
                              observing());
  EXPECT_THAT(relu, AllOf(HasSubstr("train.write @\"s/high\""), Not(HasSubstr("s/low"))));
  EXPECT_THAT(problem(fromText("g (float[4] x) => (float[4] y) { y = Neg(x) }"), observing()),
              HasSubstr("no pair of QuantizeLinear and DequantizeLinear"));
}

TEST_F(Quantization, ScalesThatANodeMakesStayFixed) {
  // An export can write new scales only into initializers.
  EXPECT_THAT(imported(fromText("g (float[4] x) => (float[4] y) <uint8[1] z = {10}> { s = Constant<value = float[1] {0.5}>()"
                                " q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"),
                       observing()),
              AllOf(HasSubstr("train.fake_quantize"), Not(HasSubstr("train.observed_range"))));
  EXPECT_THAT(warnings, Contains(HasSubstr("is no initializer and stays fixed")));
}

TEST_F(Quantization, DequantizedFiles) {
  frontend::ImportOptions options;
  options.dequantize = true;
  EXPECT_THAT(
      imported(fromText(kWeight), options),
      AllOf(HasSubstr("train.variable @w : tensor<2x2xf32> {role = \"parameter\""), Not(HasSubstr("fake_quantize"))));
  EXPECT_THAT(quantized, IsEmpty());
  imported(fromText("g (float[4] x) => (float[4] y) { y = Neg(x) }"), options);
  EXPECT_THAT(warnings, Contains(HasSubstr("no node of the model is quantised")));
  EXPECT_THAT(problem(fromText("g (float[4, 4] x) => (int32[4, 4] p) <uint8[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "
                               "11, 12, 13, 14, 15, 16}>"
                               " { q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, w, z) }"),
                      options),
              HasSubstr("--dequantize"));
}

TEST_F(Quantization, DamagedQuantisersAreRefused) {
  frontend::ImportOptions options;
  options.dequantize = true;
  // A weight of 4 channels, and an activation, both quantised by what is replaced below.
  const std::string weight =
      "g (float[2, 4] x) => (float[2, 4] y) <uint8[4, 4] q = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,"
      " 13, 14, 15, 16}, SCALE, ZERO> { w = DequantizeLinear<axis = AXIS>(q, s, z)"
      " y = MatMul(x, w) }";
  auto refusal = [&](std::string scale, std::string zero, const std::string &axis) {
    std::string text = weight;
    for (const auto &[what, by] : {std::pair<std::string, std::string>{"SCALE", scale}, {"ZERO", zero}, {"AXIS", axis}})
      text.replace(text.find(what), what.size(), by);
    return problem(fromText(text), options);
  };
  const std::string scales = "float[4] s = {1, 2, 3, 4}", zeros = "uint8[4] z = {1, 2, 3, 4}";
  EXPECT_EQ(refusal(scales, zeros, "1"), "accepted");
  EXPECT_EQ(refusal(scales, zeros, "-2"), "accepted");
  EXPECT_THAT(refusal(scales, zeros, "2"), HasSubstr("its 4 scales do not fit axis 2 of \"q\""));
  EXPECT_THAT(refusal("float[3] s = {1, 2, 3}", "uint8[3] z = {1, 2, 3}", "0"),
              HasSubstr("its 3 scales do not fit axis 0"));
  EXPECT_THAT(refusal("float[3] s = {1, 1, 1}", "uint8 z = {1}", "0"), HasSubstr("its 3 scales do not fit axis 0"))
      << "equal ones are as wrong";
  EXPECT_THAT(refusal("float[2, 2] s = {1, 2, 3, 4}", "uint8 z = {1}", "0"),
              HasSubstr("its scale \"s\" has the shape [2, 2]"));
  EXPECT_THAT(refusal(scales, "uint8[2, 2] z = {1, 2, 3, 4}", "0"),
              HasSubstr("its zero point \"z\" has the shape [2, 2]"));
  EXPECT_THAT(refusal(scales, "uint8[3] z = {1, 2, 3}", "0"), HasSubstr("4 scales (\"s\") and 3 zero points"));
  EXPECT_THAT(refusal("float[0] s = {}", "uint8[0] z = {}", "0"), HasSubstr("0 scales"));
  EXPECT_THAT(refusal("float s = {0}", "uint8 z = {1}", "0"), HasSubstr("holds 0; scales are finite and above 0"));
  EXPECT_THAT(refusal("float s = {-1}", "uint8 z = {1}", "0"), HasSubstr("holds -1"));
  EXPECT_THAT(refusal("int32 s = {1}", "uint8 z = {1}", "0"), HasSubstr("its scale \"s\" is of type INT32"));
  EXPECT_THAT(refusal("float s = {1}", "int8 z = {1}", "0"), HasSubstr("its \"q\" is of type UINT8"));
  EXPECT_THAT(refusal("float s = {1}", "float z = {1}", "0"), HasSubstr("its zero point \"z\" is of type FLOAT"));
  EXPECT_THAT(refusal("float s = {1}", "uint8 z = {1}", "0, alpha = 2"), HasSubstr("it has no attribute alpha"));
  EXPECT_THAT(refusal("float s = {1}", "uint8 z = {1}", "0.0"),
              HasSubstr("its attribute axis is of type FLOAT, not INT"));
}

TEST_F(Quantization, DequantizedProductsKeepTheirZeroPoints) {
  frontend::ImportOptions options;
  options.dequantize = true;
  const std::string head =
      "g (float[4] x) => (float[4] y) <float s = {0.5}, uint8 z = {10}, uint8 other = {11}, uint8[4, 4] w"
      " = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float both = {0.25}> {";
  const std::string tail = " f = Cast<to = 1>(p) y = Mul(f, both) }";
  EXPECT_EQ(problem(fromText(head + " q = QuantizeLinear(x, s, z) p = MatMulInteger(q, w, z, z)" + tail), options),
            "accepted");
  for (const char *point : {"other", ""})
    EXPECT_THAT(
        problem(fromText(head + " q = QuantizeLinear(x, s, z) p = MatMulInteger(q, w, " + point + ", z)" + tail),
                options),
        HasSubstr("it reads \"q\" with another zero point than it was quantised by"));
  // A floating-point tensor cannot be dequantised, and a quantised one cannot be quantised again.
  EXPECT_THAT(problem(fromText(head + " q = QuantizeLinear(x, s, z) r = QuantizeLinear(q, s, z)"
                                      " y = DequantizeLinear(r, s, z) }"),
                      options),
              HasSubstr("it quantises \"q\", which is quantised already"));
  EXPECT_THAT(problem(fromText(head + " q = QuantizeLinear(x, s, z) r = DequantizeLinear(q, s, z)"
                                      " y = DequantizeLinear(r, s, z) }"),
                      options),
              HasSubstr("it reads \"r\", which is floating-point, as a quantised tensor"));
}

} // namespace
