//===- ArrowTest.cpp - Parquet and Arrow files -------------------------------===//
//
// The files are those of tables/make_tables.py. Skipped where trun was built without Arrow.
//
//===----------------------------------------------------------------------===//
#include "test/unit/data/DataFixture.h"

#include "runtime/data/Dataset.h"
#include "runtime/data/Table.h"
#include "support/MappedFile.h"
#include "support/Plugins.h"

#include <random>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Arrow : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!std::filesystem::exists(pluginPath("trun-arrow.so")))
      GTEST_SKIP() << "no trun-arrow.so";
  }
  static std::string path() { return std::string(ARROW_TABLES) + "/" + GetParam(); }
};
} // namespace

INSTANTIATE_TEST_SUITE_P(Files, Arrow, ::testing::Values("table.parquet", "table.feather", "table.arrows"),
                         [](const auto &given) {
                           std::string name = given.param;
                           return name.substr(name.find('.') + 1);
                         });

TEST_P(Arrow, ColumnsKeepTheirTypes) {
  DatasetOptions options;
  options.learnsFacts = true;
  options.settings = {{"categories.species", "\"sorted\""},
                      {"categories.colour", "[\"red\", \"blue\"]"},
                      {"missing.species", "\"none\""},
                      {"missing.count", "-1"}};
  auto data = openDataset(path(), options);
  ASSERT_TRUE(data.ok()) << data.message();
  auto typeOf = [&](const char *name) { return columnTypeName(*data->find(name)); };
  EXPECT_EQ(typeOf("x"), "f32[3x2]");
  EXPECT_EQ(readSample<float>(*data->find("x"), 2), (std::vector<float>{0.25, 6}));
  EXPECT_EQ(typeOf("fixed"), "i16[3x2x2]");
  EXPECT_EQ(readSample<int16_t>(*data->find("fixed"), 1), (std::vector<int16_t>{5, 6, 7, 8}));
  EXPECT_EQ(typeOf("age"), "f64[3]");
  EXPECT_FALSE(data->find("age")->isText()) << "f64 is its type";
  EXPECT_FALSE(data->find("age")->lacks(0));
  EXPECT_TRUE(data->find("age")->lacks(1));
  EXPECT_EQ(readSample<double>(*data->find("age"), 2), std::vector<double>{40.5});
  EXPECT_EQ(readSample<int64_t>(*data->find("count"), 2), std::vector<int64_t>{-1});
  EXPECT_EQ(typeOf("label"), "u8[3]");
  EXPECT_EQ(readSample<uint8_t>(*data->find("label"), 2), std::vector<uint8_t>{2});
  EXPECT_EQ(typeOf("flag"), "i1[3]");
  EXPECT_EQ(readSample<uint8_t>(*data->find("flag"), 1), std::vector<uint8_t>{0});
  EXPECT_EQ(typeOf("half"), "f16[3]");
  EXPECT_EQ(data->facts.categories.at("species"),
            (std::vector<std::string>{"a name of more than twelve bytes", "none", "setosa"}));
  EXPECT_EQ(readSample<int64_t>(*data->find("species"), 1), std::vector<int64_t>{1});
  EXPECT_EQ(readSample<int64_t>(*data->find("colour"), 1), std::vector<int64_t>{1});
  const Column &view = *data->find("view");
  ASSERT_TRUE(view.holdsTexts()) << view.usable().message();
  EXPECT_EQ(view.textOf(0), "short");
  EXPECT_EQ(view.textOf(1), "a text of more than twelve bytes");
  EXPECT_TRUE(view.lacks(2));
  expectError(data->find("when")->usable(), {"'when'", "timestamps"});
  const Column &ragged = *data->find("ragged");
  EXPECT_TRUE(ragged.isRagged());
  EXPECT_EQ(ragged.lengthOf(1), 2u);
  EXPECT_EQ(readSample<int64_t>(ragged, 1), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(data->find("nothing")->lacks(2));
}

/// Damaged files are errors, or tables; never a crash. The seed is fixed.
TEST_P(Arrow, DamagedFiles) {
  auto whole = readFile(path());
  ASSERT_TRUE(whole.ok());
  const std::string name = GetParam();
  for (size_t length = 0; length < whole->size(); length += 97) {
    auto data = openDatasetBytes(name, whole->substr(0, length), {});
    EXPECT_TRUE(data.ok() || !data.message().empty());
  }
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = *whole;
    for (int change = 0; change < 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    auto data = openDatasetBytes(name, std::move(bytes), {});
    refused += !data.ok();
    for (size_t i = 0; data.ok() && i < data->columns.size(); ++i) {
      const Column &column = *data->columns[i];
      std::vector<std::byte> sample(column.sampleBytes());
      for (uint64_t row = 0; row < column.samples(); ++row) {
        (void)column.read(row, sample.data());
        (void)column.lacks(row);
      }
    }
  }
  EXPECT_GT(refused, 10) << "seed " << kSeed;
}

TEST_P(Arrow, MemoryIsBounded) {
  DatasetOptions little;
  little.memoryBytes = 64;
  expectError(openDataset(path(), little), {GetParam()});
}
