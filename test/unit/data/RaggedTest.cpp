//===- RaggedTest.cpp - samples of different lengths become inputs of one -===//
#include "runtime/data/Ragged.h"
#include "test/unit/data/DataFixture.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// Three samples of two rows, none and three, each of two numbers.
Dataset ragged(const DataMap &settings = {}, std::vector<int64_t> offsets = {0, 2, 2, 5}) {
  std::vector<std::unique_ptr<Column>> columns;
  columns.push_back(ownedColumn<float>("x", plan::F32, {5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  columns.push_back(ownedColumn<int64_t>("x.offsets", plan::I64, {static_cast<int64_t>(offsets.size())}, offsets));
  columns.push_back(ownedColumn<int64_t>("label", plan::I64, {3}, {1, 0, 1}));
  DatasetOptions options;
  options.settings = settings;
  auto data = openDatasetColumns("memory", std::move(columns), options);
  EXPECT_TRUE(data.ok()) << data.message();
  return data ? data.take() : Dataset();
}
} // namespace

TEST(Ragged, OffsetsJoinARowsColumn) {
  const Dataset data = ragged();
  ASSERT_EQ(data.columns.size(), 2u) << "the offsets are no column of their own";
  const Column &x = *data.find("x");
  EXPECT_TRUE(x.isRagged());
  EXPECT_EQ(plan::typeName(x.type()), "f32[3x3x2]");
  EXPECT_EQ(x.lengthOf(0), 2u);
  EXPECT_EQ(x.lengthOf(1), 0u);
  EXPECT_EQ(x.lengthOf(2), 3u);
  EXPECT_EQ(readSample<float>(x, 0), (std::vector<float>{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(readSample<float>(x, 2), (std::vector<float>{5, 6, 7, 8, 9, 10}));
}

TEST(Ragged, SamplesArePaddedOrCut) {
  const Dataset data = ragged();
  auto padded = PaddedColumn::create(*data.find("x"), {2, 2}, -1);
  ASSERT_TRUE(padded.ok()) << padded.message();
  EXPECT_EQ(plan::typeName((*padded)->type()), "f32[3x2x2]");
  EXPECT_EQ(readSample<float>(**padded, 1), (std::vector<float>{-1, -1, -1, -1}));
  EXPECT_EQ(readSample<float>(**padded, 2), (std::vector<float>{5, 6, 7, 8}));
  auto half = ownedColumn<int32_t>("n", plan::I32, {1, 1}, {3});
  expectError(PaddedColumn::create(*half, {2}, 0.5), {"data.pad", "'n'", "i32", "0.5"});
}

TEST(Ragged, APartOfTheDataStaysRagged) {
  Dataset data = ragged();
  SliceColumn slice(std::move(data.columns[0]), 1, 3);
  EXPECT_TRUE(slice.isRagged());
  EXPECT_EQ(slice.lengthOf(1), 3u);
  std::vector<float> rows(2);
  ASSERT_TRUE(slice.readRows(1, 1, reinterpret_cast<std::byte *>(rows.data())).ok());
  EXPECT_EQ(rows, (std::vector<float>{5, 6}));
}

TEST(Ragged, OffsetsThatDoNotFitAreRefused) {
  for (const auto &[offsets, text] : {std::pair(std::vector<int64_t>{1, 2, 2, 5}, "begins with 1"),
                                      std::pair(std::vector<int64_t>{0, 3, 2, 5}, "falls"),
                                      std::pair(std::vector<int64_t>{0, 2, 2, 4}, "ends with 4"),
                                      std::pair(std::vector<int64_t>{0, -1, 2, 5}, "falls"),
                                      std::pair(std::vector<int64_t>{0}, "has 1 elements")}) {
    std::vector<std::unique_ptr<Column>> columns;
    columns.push_back(ownedColumn<float>("x", plan::F32, {5}, {1, 2, 3, 4, 5}));
    columns.push_back(ownedColumn<int64_t>("x.offsets", plan::I64, {static_cast<int64_t>(offsets.size())}, offsets));
    expectError(openDatasetColumns("memory", std::move(columns), {}), {"'x.offsets'", text, "the 5 rows of 'x'"});
  }
}

TEST(Ragged, AMaskOrAColumnTellsLengths) {
  for (const char *name : {"mask", "n"}) {
    std::vector<std::unique_ptr<Column>> columns;
    columns.push_back(ownedColumn<int64_t>("x", plan::I64, {3, 4}, {1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 0}));
    columns.push_back(ownedColumn<float>("mask", plan::F32, {3, 4}, {1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0}));
    columns.push_back(ownedColumn<int64_t>("n", plan::I64, {3}, {2, 0, 3}));
    columns.push_back(ownedColumn<float>("features", plan::F32, {3, 2}, {1, 2, 3, 4, 5, 6}));
    DatasetOptions options;
    options.settings["lengths"] = name;
    auto data = openDatasetColumns("memory", std::move(columns), options);
    ASSERT_TRUE(data.ok()) << data.message();
    const Column &x = *data->find("x");
    EXPECT_TRUE(x.isRagged()) << name;
    EXPECT_EQ(x.lengthOf(0), 2u);
    EXPECT_EQ(x.lengthOf(1), 0u);
    EXPECT_EQ(x.lengthOf(2), 3u);
    EXPECT_FALSE(data->find("features")->isRagged()) << "fewer elements than the longest sample has";
    std::vector<int64_t> rows(2);
    ASSERT_TRUE(x.readRows(2, 2, reinterpret_cast<std::byte *>(rows.data())).ok());
    EXPECT_EQ(rows, (std::vector<int64_t>{3, 4}));
  }
}
