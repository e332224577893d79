//===- BatchReaderTest.cpp - columns become inputs -----------------------===//
#include "test/unit/data/DataFixture.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Batches : public ::testing::Test {
protected:
  template <typename T>
  void add(const std::string &name, plan::DType dtype, std::vector<int64_t> dims, std::vector<T> values) {
    data.path = "d";
    data.columns.push_back(ownedColumn<T>(name, dtype, dims, std::move(values)));
  }
  template <typename T>
  std::vector<T> fill(BatchReader &reader, std::vector<uint64_t> indices, size_t count, bool mask = false,
                      size_t input = 0, size_t inputs = 1) {
    std::vector<T> values(count);
    std::vector<std::span<std::byte>> given(inputs);
    given[input] = std::as_writable_bytes(std::span(values));
    Status status = reader.fill(indices, mask, given);
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
  Dataset data;
};
} // namespace

TEST_F(Batches, SamplesGoToTheirSlots) {
  add<float>("x", plan::F32, {3, 2}, {1, 2, 3, 4, 5, 6});
  auto reader = BatchReader::bind(entryOf(2, {{"x", plan::F32, {2, 2}, 0}}), data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(reader->samples(), 3u);
  EXPECT_EQ(fill<float>(*reader, {2, 0}, 4), (std::vector<float>{5, 6, 1, 2}));
}

TEST_F(Batches, SampleAxisNeedNotBeTheFirst) {
  add<float>("x", plan::F32, {3, 2}, {1, 2, 3, 4, 5, 6}); // samples of a sequence of 2
  auto reader = BatchReader::bind(entryOf(3, {{"x", plan::F32, {2, 3}, 1}}), data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<float>(*reader, {0, 1, 2}, 6), (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST_F(Batches, ColumnOfTheInputsShapeIsAConstant) {
  add<float>("x", plan::F32, {4}, {1, 2, 3, 4});
  add<float>("scale", plan::F32, {2}, {8, 9});
  plan::Entry entry = entryOf(2, {{"x", plan::F32, {2}, 0}, {"scale", plan::F32, {2}, 0}});
  auto reader = BatchReader::bind(entry, data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(reader->samples(), 4u);
  EXPECT_EQ(fill<float>(*reader, {3, 2}, 2, false, 1, 2), (std::vector<float>{8, 9}));
  ASSERT_EQ(reader->notes().size(), 1u);
  for (const char *text : {"'scale' f32[2]", "4 samples", "--set 'data.constant=[\"scale\"]'"})
    EXPECT_NE(shown(reader->notes()[0].text).find(text), std::string::npos) << reader->notes()[0].text;
  BindOptions meant;
  meant.constants = {"scale"};
  reader = BatchReader::bind(entry, data, meant);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_TRUE(reader->notes().empty());
  EXPECT_EQ(fill<float>(*reader, {3, 2}, 2, false, 1, 2), (std::vector<float>{8, 9}));
  entry.mutable_inputs(1)->set_sample_axis(-1);
  reader = BatchReader::bind(entry, data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_TRUE(reader->notes().empty());
}

TEST_F(Batches, TargetsOfOneBatchAreNoConstantUnasked) {
  add<float>("x", plan::F32, {6, 3}, std::vector<float>(18));
  add<int64_t>("y", plan::I64, {2}, {0, 1});
  const plan::Entry entry = entryOf(2, {{"x", plan::F32, {2, 3}, 0}, {"y", plan::I64, {2}, 0}});
  BindOptions options;
  options.target = "y";
  expectError(BatchReader::bind(entry, data, options), {"'y' i64[2]", "6 samples", "data.constant"});
  options.constants = {"y"};
  auto reader = BatchReader::bind(entry, data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<int64_t>(*reader, {4, 5}, 2, false, 1, 2), (std::vector<int64_t>{0, 1}));
}

TEST_F(Batches, OneBatchIsSampledAlongEachAxisAlike) {
  // The input holds samples along axis 1, whatever the number of time steps: rows of the column are samples.
  for (int64_t steps : {2, 3}) {
    data.columns.clear();
    std::vector<float> values(static_cast<size_t>(3 * steps)), wanted(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    for (size_t sample = 0; sample < 3; ++sample)
      for (size_t step = 0; step < static_cast<size_t>(steps); ++step)
        wanted[step * 3 + sample] = values[sample * static_cast<size_t>(steps) + step];
    add<float>("x", plan::F32, {3, steps}, values);
    const plan::Entry entry = entryOf(3, {{"x", plan::F32, {steps, 3}, 1}});
    auto reader = BatchReader::bind(entry, data, {});
    ASSERT_TRUE(reader.ok()) << reader.message();
    EXPECT_EQ(fill<float>(*reader, {0, 1, 2}, values.size()), wanted);
    // A note appears only if the batch is square, when the user may have meant the input's own layout.
    EXPECT_EQ(reader->notes().size(), steps == 3 ? 1u : 0u);
  }
  data.columns.clear();
  add<float>("x", plan::F32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const plan::Entry entry = entryOf(3, {{"x", plan::F32, {2, 3}, 1}});
  expectError(BatchReader::bind(entry, data, {}), {"'x' f32[2x3]", "axis 1", "f32[3x2]", "data.constant"});
  BindOptions options;
  options.constants = {"x"};
  auto reader = BatchReader::bind(entry, data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<float>(*reader, {0, 1, 2}, 6), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Batches, OneNumberASampleHasEachShape) {
  for (const std::vector<int64_t> &column : {std::vector<int64_t>{3}, {3, 1}, {3, 1, 1}})
    for (const std::vector<int64_t> &input : {std::vector<int64_t>{2}, {2, 1}, {2, 1, 1}}) {
      data.columns.clear();
      add<float>("x", plan::F32, column, {1, 2, 3});
      auto reader = BatchReader::bind(entryOf(2, {{"x", plan::F32, input, 0}}), data, {});
      ASSERT_TRUE(reader.ok()) << reader.message();
      EXPECT_EQ(reader->samples(), 3u);
      EXPECT_EQ(fill<float>(*reader, {2, 0}, 2), (std::vector<float>{3, 1}));
    }
}

TEST_F(Batches, NegativeIndicesOfAWeightAreRefusedUnlessMeant) {
  add<int64_t>("ids", plan::I64, {2, 2}, {0, 3, 2, -1});
  plan::Entry entry = entryOf(2, {{"ids", plan::I64, {2, 2}, 0}});
  plan::IndexRange *range = entry.mutable_inputs(0)->add_index_ranges();
  range->set_low(-4);
  range->set_high(3);
  range->set_extent(4);
  range->set_table("wte.weight");
  BindOptions options;
  expectError(BatchReader::bind(entry, data, options), {"sample 1, position 1", "value -1", "from 0 to 3", "negative"});
  options.negativeIndices = true;
  EXPECT_TRUE(BatchReader::bind(entry, data, options).ok());
  // The graph adds 2 to each index: -1 addresses row 1 of the table, -3 is out of range.
  options.negativeIndices = false;
  range->set_low(-6);
  range->set_high(1);
  data.columns.clear();
  add<int64_t>("ids", plan::I64, {2, 2}, {0, 1, -2, -1});
  EXPECT_TRUE(BatchReader::bind(entry, data, options).ok());
  data.columns.clear();
  add<int64_t>("ids", plan::I64, {2, 2}, {0, 1, -2, -3});
  expectError(BatchReader::bind(entry, data, options), {"value -3", "from -2 to 1"});
  // Indices of a tensor that is not a weight follow ONNX's rule, which allows negative ones.
  range->clear_table();
  EXPECT_TRUE(BatchReader::bind(entry, data, options).ok());
}

TEST_F(Batches, ExactlyOneBatchIsSampled) {
  add<float>("x", plan::F32, {2}, {1, 2});
  auto reader = BatchReader::bind(entryOf(2, {{"x", plan::F32, {2}, 0}}), data, {});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->samples(), 2u);
  EXPECT_EQ(fill<float>(*reader, {1, 0}, 2), (std::vector<float>{2, 1}));
}

TEST_F(Batches, IntegersConvertWhereTheyFit) {
  add<int64_t>("x", plan::I64, {2}, {3, 255});
  auto reader = BatchReader::bind(entryOf(2, {{"x", plan::U8, {2}, 0}}), data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<uint8_t>(*reader, {0, 1}, 2), (std::vector<uint8_t>{3, 255}));
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::I8, {2}, 0}}), data, {}), {"'x'", "255", "sample 1", "i8"});
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::I1, {2}, 0}}), data, {}), {"value 3", "i1"});
}

TEST_F(Batches, NothingElseConverts) {
  add<double>("x", plan::F64, {2}, {1, 2});
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {2}, 0}}), data, {}),
              {"d: ", "'x'", "f64", "f32", "convert"});
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::I64, {2}, 0}}), data, {}), {"f64", "i64"});
  data.columns.clear();
  add<int64_t>("x", plan::I64, {2}, {1, 2});
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {2}, 0}}), data, {}), {"i64", "f32"});
}

TEST_F(Batches, NumbersFromTextBecomeWhatTheModelReads) {
  data.columns.push_back(ownedColumn<double>("x", plan::F64, {2}, {1.5, 2.5}, /*text=*/true));
  auto reader = BatchReader::bind(entryOf(2, {{"x", plan::F32, {2}, 0}}), data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<float>(*reader, {1, 0}, 2), (std::vector<float>{2.5f, 1.5f}));
}

TEST_F(Batches, MissingColumnListsThoseThatAreThere) {
  add<float>("picture", plan::F32, {4, 2}, std::vector<float>(8));
  expectError(BatchReader::bind(entryOf(2, {{"image", plan::F32, {2, 2}, 0}}), data, {}),
              {"'image'", "'picture' f32[4x2]", "--set data.map.image=COLUMN"});
  BindOptions options;
  options.map["image"] = "picture";
  EXPECT_TRUE(BatchReader::bind(entryOf(2, {{"image", plan::F32, {2, 2}, 0}}), data, options).ok());
  options.map["image"] = "photo";
  expectError(BatchReader::bind(entryOf(2, {{"image", plan::F32, {2, 2}, 0}}), data, options),
              {"'photo'", "'picture'"});
}

TEST_F(Batches, ShapesAndLengthsMustAgree) {
  add<float>("x", plan::F32, {4, 3}, std::vector<float>(12));
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {2, 5}, 0}}), data, {}), {"f32[4x3]", "f32[5]", "'x'"});
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {7}, -1}}), data, {}), {"constant", "f32[7]"});
  add<float>("y", plan::F32, {6}, std::vector<float>(6));
  expectError(BatchReader::bind(entryOf(2, {{"x", plan::F32, {2, 3}, 0}, {"y", plan::F32, {2}, 0}}), data, {}),
              {"'x' has 4 samples", "'y' has 6"});
}

TEST_F(Batches, PaddedTargetsAreLeftOut) {
  add<float>("x", plan::F32, {3}, {1, 2, 3});
  add<int32_t>("y", plan::I32, {3}, {4, 5, 6});
  BindOptions options;
  options.target = "y";
  options.ignoreIndex = -100;
  auto reader = BatchReader::bind(entryOf(2, {{"x", plan::F32, {2}, 0}, {"y", plan::I64, {2}, 0}}), data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_TRUE(reader->maskable());
  EXPECT_EQ(fill<int64_t>(*reader, {2}, 2, true, 1, 2), (std::vector<int64_t>{6, -100}));
  EXPECT_EQ(fill<int64_t>(*reader, {2}, 2, false, 1, 2), (std::vector<int64_t>{6, 6}));
  EXPECT_EQ(fill<float>(*reader, {2}, 2, true, 0, 2), (std::vector<float>{3, 3}));
}

TEST_F(Batches, TargetsMustNameAClass) {
  add<int64_t>("y", plan::I64, {2, 2}, {0, 1, -100, 3});
  BindOptions options;
  options.target = "y";
  options.ignoreIndex = -100;
  options.classes = 4;
  EXPECT_TRUE(BatchReader::bind(entryOf(2, {{"y", plan::I64, {2, 2}, 0}}), data, options).ok());
  options.classes = 3;
  expectError(BatchReader::bind(entryOf(2, {{"y", plan::I64, {2, 2}, 0}}), data, options),
              {"'y'", "value 3", "sample 1", "0 to 2"});
}

TEST_F(Batches, TokenWindowsGoByTheirRole) {
  data.format = "token";
  add<int64_t>("tokens", plan::I64, {2, 2}, {1, 2, 3, 4});
  add<int64_t>("targets", plan::I64, {2, 2}, {2, 3, 4, 5});
  BindOptions options;
  options.target = "labels";
  plan::Entry entry = entryOf(1, {{"ids", plan::I64, {1, 2}, 0}, {"labels", plan::I64, {1, 2}, 0}});
  auto reader = BatchReader::bind(entry, data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(fill<int64_t>(*reader, {1}, 2, false, 0, 2), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(fill<int64_t>(*reader, {1}, 2, false, 1, 2), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(reader->tokensPerSample(), 2u);
  entry = entryOf(1, {{"ids", plan::I64, {1, 2}, 0}, {"attention_mask", plan::I64, {1, 2}, 0}});
  expectError(BatchReader::bind(entry, data, options), {"'ids'", "'tokens'"});
}
