//===- CheckInputsTest.cpp - values for the inputs of a check -------------===//
#include "tools/tcc/CheckInputs.h"
#include "runtime/plan/DType.h"
#include "runtime/tensors/Safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace tcc;
using namespace tcc::gradcheck;

namespace {

plan::TensorType typeOf(plan::DType dtype, std::vector<int64_t> dims) {
  plan::TensorType type;
  type.set_dtype(dtype);
  for (int64_t dim : dims)
    type.add_dims(dim);
  return type;
}

/// An entry with inputs x f64[4x3], ids i64[4x5], labels i64[4].
plan::Entry entry() {
  plan::Entry entry;
  auto add = [&](const std::string &name, plan::TensorType type) {
    plan::Port &port = *entry.add_inputs();
    port.set_name(name);
    port.set_buffer(uint32_t(entry.buffers_size()));
    *entry.add_buffers()->mutable_type() = type;
  };
  add("x", typeOf(plan::F64, {4, 3}));
  add("ids", typeOf(plan::I64, {4, 5}));
  add("labels", typeOf(plan::I64, {4}));
  return entry;
}

const std::map<std::string, IndexRange> kRanges = {{"ids", {7, std::nullopt}}, {"labels", {std::nullopt, 3}}};

template <typename T> std::vector<T> as(const std::vector<std::byte> &bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class DataFile : public ::testing::Test {
protected:
  void TearDown() override { std::filesystem::remove(path); }

  template <typename T>
  void add(const std::string &name, plan::DType dtype, std::vector<int64_t> dims, std::vector<T> values) {
    kept.emplace_back(values.size() * sizeof(T));
    std::memcpy(kept.back().data(), values.data(), kept.back().size());
    tensors.push_back({name, typeOf(dtype, dims), {}});
  }
  Expected<InputValues> read(std::map<std::string, std::string> columns = {}) {
    for (size_t i = 0; i < kept.size(); ++i)
      tensors[i].bytes = kept[i];
    EXPECT_TRUE(runtime::writeSafetensors(path, tensors).ok());
    return readInputs(checked, path, columns);
  }
  void addGood() {
    add<float>("x", plan::F32, {5, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 99, 99, 99}); // a sample too many
    add<int32_t>("ids", plan::I32, {4, 5}, std::vector<int32_t>(20, 6));
    add<int64_t>("classes", plan::I64, {4}, {0, 1, 2, -100});
  }

  plan::Entry checked = [] {
    plan::Entry with = entry();
    plan::IndexRange &ids = *with.mutable_inputs(1)->add_index_ranges(), &labels = *with.mutable_inputs(2)->add_index_ranges();
    ids.set_low(-7);
    ids.set_high(6);
    labels.set_high(2);
    labels.add_exceptions(-100);
    return with;
  }();
  std::string path = (std::filesystem::temp_directory_path() / ("tcc-inputs-" + std::to_string(::getpid()))).string();
  std::vector<runtime::Tensor> tensors;
  std::vector<std::vector<std::byte>> kept;
};

} // namespace

TEST(CheckInputs, IntegersStayBelowWhatTheyIndex) {
  InputValues values = drawInputs(entry(), kRanges, 3, false);
  ASSERT_EQ(values.size(), 3u);
  std::vector<int64_t> ids = as<int64_t>(values[1]), labels = as<int64_t>(values[2]);
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 7);
  EXPECT_GT(*std::max_element(ids.begin(), ids.end()), 2) << "the range is used";
  EXPECT_LT(*std::max_element(labels.begin(), labels.end()), 3);
  EXPECT_EQ(values, drawInputs(entry(), kRanges, 3, false));
  EXPECT_NE(values, drawInputs(entry(), kRanges, 4, false));
}

TEST(CheckInputs, PositiveValuesOnRequest) {
  std::vector<double> normal = as<double>(drawInputs(entry(), kRanges, 3, false)[0]);
  std::vector<double> positive = as<double>(drawInputs(entry(), kRanges, 3, true)[0]);
  EXPECT_LT(*std::min_element(normal.begin(), normal.end()), 0);
  EXPECT_GE(*std::min_element(positive.begin(), positive.end()), 0.05);
  EXPECT_LT(*std::max_element(positive.begin(), positive.end()), 0.95);
}

TEST_F(DataFile, TheFirstSamplesAreConverted) {
  addGood();
  auto values = read({{"labels", "classes"}});
  ASSERT_TRUE(values.ok()) << values.message();
  EXPECT_EQ(as<double>((*values)[0]), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(as<int64_t>((*values)[1]), std::vector<int64_t>(20, 6));
  EXPECT_EQ(as<int64_t>((*values)[2]), (std::vector<int64_t>{0, 1, 2, -100})) << "an ignored class is no row";
}

TEST_F(DataFile, AMissingTensorIsNamed) {
  addGood();
  EXPECT_NE(read().message().find("'labels' is missing"), std::string::npos);
}

TEST_F(DataFile, ARowThatIsNotThereIsRefused) {
  addGood();
  kept[1].assign(kept[1].size(), std::byte(0));
  kept[1][0] = std::byte(7); // rows are 0 to 6
  EXPECT_NE(read({{"labels", "classes"}}).message().find("value 7 is outside"), std::string::npos);
}

TEST_F(DataFile, OnlyTheElementsOfARangesBoxAreChecked) {
  addGood();
  plan::IndexRange &ids = *checked.mutable_inputs(1)->mutable_index_ranges(0);
  ids.set_low(1); // a range as for an index that the model shifts before the lookup
  ids.set_high(5);
  for (int64_t end : {4, 2}) {
    ids.add_begin(0);
    ids.add_end(end);
  }
  EXPECT_NE(read({{"labels", "classes"}}).message().find("value 6 is outside of its legal range, 1 to 5"), std::string::npos);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 2; ++column)
      kept[1][size_t(row * 5 + column) * 4] = std::byte(5);
  EXPECT_TRUE(read({{"labels", "classes"}}).ok());
}

TEST(CheckInputs, DrawnIndicesAreThoseThatTheChecksLetPass) {
  plan::Entry shifted = entry();
  plan::IndexRange &range = *shifted.mutable_inputs(1)->add_index_ranges();
  range.set_low(11);
  range.set_high(15);
  const std::vector<int64_t> ids = as<int64_t>(drawInputs(shifted, kRanges, 3, false)[1]);
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 11);
  EXPECT_LE(*std::max_element(ids.begin(), ids.end()), 15);
}

TEST_F(DataFile, TypesAndShapesAreChecked) {
  add<float>("x", plan::F32, {3, 3}, std::vector<float>(9)); // a sample too few
  EXPECT_NE(read().message().find("f32[3x3]"), std::string::npos);
  tensors[0] = {"x", typeOf(plan::I64, {4, 3}), {}};
  kept[0].assign(96, std::byte(0));
  EXPECT_NE(read().message().find("i64[4x3]"), std::string::npos);
}
