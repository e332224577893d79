//===- SampleChecksTest.cpp - indices, NaN, damaged samples --------------===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include "runtime/data/Convert.h"
#include "runtime/data/Inspect.h"

#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class SampleChecks : public FolderTest {
protected:
  /// An entry with the input `ids` i64[2 x 4], whose values index a table of 50 rows.
  static plan::Entry entryOfIds(std::vector<int64_t> begin = {}, std::vector<int64_t> end = {}) {
    plan::Entry entry = entryOf(2, {{"ids", plan::I64, {2, 4}, 0}});
    plan::IndexRange *range = entry.mutable_inputs(0)->add_index_ranges();
    range->set_low(-50);
    range->set_high(49);
    range->set_extent(50);
    range->set_table("wte.weight");
    range->mutable_begin()->Add(begin.begin(), begin.end());
    range->mutable_end()->Add(end.begin(), end.end());
    return entry;
  }
  template <typename T> std::string ids(const std::string &name, const char *descriptor, std::vector<T> values) {
    return write(name + "/ids.npy", npy(descriptor, "(" + std::to_string(values.size() / 4) + ", 4)", bytesOf(values)));
  }
  Expected<BatchReader> bindAll(const plan::Entry &entry, const std::string &name, uint64_t maxBad = 0) {
    BindOptions options;
    options.maxBad = maxBad;
    options.negativeIndices = true;
    auto opened = openDataset(at(name), {});
    EXPECT_TRUE(opened.ok()) << opened.message();
    kept.push_back(std::make_unique<Dataset>(opened.take()));
    return BatchReader::bind(entry, *kept.back(), options);
  }
  /// Fills one batch of ids.
  Status fill(BatchReader &reader, std::vector<uint64_t> indices) {
    batch.assign(8, 0);
    std::span<std::byte> buffer = std::as_writable_bytes(std::span(batch));
    return reader.fill(indices, false, {&buffer, 1});
  }
  std::vector<std::unique_ptr<Dataset>> kept;
  std::vector<int64_t> batch;
};
} // namespace

TEST_F(SampleChecks, IndexOutsideItsTable) {
  ids<int64_t>("good", "<i8", {0, 49, -1, -50, 1, 2, 3, 4});
  EXPECT_TRUE(bindAll(entryOfIds(), "good").ok());
  ids<int64_t>("high", "<i8", {0, 1, 2, 3, 4, 5, 50, 7});
  expectError(bindAll(entryOfIds(), "high"), {"high: column 'ids', sample 1, position 2",
                                              "value 50 is no index of wte.weight's 50 rows", "'ids'", "-50 to 49"});
  ids<int64_t>("low", "<i8", {0, 1, 2, 3, 4, 5, 6, -51});
  expectError(bindAll(entryOfIds(), "low"), {"sample 1, position 3", "value -51"});
  ids<uint16_t>("narrow", "<u2", {0, 1, 2, 3, 65535, 5, 6, 7});
  expectError(bindAll(entryOfIds(), "narrow"), {"sample 1, position 0", "value 65535"});
  ids<uint64_t>("wide", "<u8", {0, 1, 2, 3, 4, 5, 1ull << 40, 7});
  expectError(bindAll(entryOfIds(), "wide"), {"sample 1, position 2"});
}

TEST_F(SampleChecks, OnlyElementsThatIndexAreChecked) {
  // The last position is only a target: the graph embeds ids[:, :3].
  ids<int64_t>("d", "<i8", {0, 1, 2, 99, 4, 5, 6, -100});
  EXPECT_TRUE(bindAll(entryOfIds({0, 0}, {2, 3}), "d").ok());
  expectError(bindAll(entryOfIds({0, 1}, {2, 4}), "d"), {"sample 0, position 3", "99"});
}

TEST_F(SampleChecks, WindowsOfTokenFilesAreCheckedAsTheyAreRead) {
  std::vector<uint16_t> tokens(41, 7);
  tokens[30] = 50;
  std::string path = write("d.bin", bytesOf(tokens));
  DatasetOptions options;
  options.windowLength = 4;
  auto data = openDataset(path, options);
  ASSERT_TRUE(data.ok()) << data.message();
  plan::Entry entry = entryOfIds();
  BindOptions bind;
  bind.map = {{"ids", "tokens"}};
  auto reader = BatchReader::bind(entry, *data, bind);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_TRUE(fill(*reader, {0, 1}).ok());
  expectError(fill(*reader, {0, 7}), {"column 'tokens', sample 7, position 2", "value 50"});
}

TEST_F(SampleChecks, LabelsThatDoNotCountAreLegal) {
  plan::Entry entry = entryOfIds();
  entry.mutable_inputs(0)->mutable_index_ranges(0)->set_low(0);
  entry.mutable_inputs(0)->mutable_index_ranges(0)->add_exceptions(-100);
  ids<int64_t>("d", "<i8", {0, -100, 2, 3, -100, 5, 6, 7});
  EXPECT_TRUE(bindAll(entry, "d").ok());
  ids<int64_t>("e", "<i8", {0, -100, 2, 3, -100, 5, -1, 7});
  expectError(bindAll(entry, "e"), {"sample 1, position 2", "value -1", "-100 does not count"});
}

TEST_F(SampleChecks, EmptyDataIsCalledEmpty) {
  write("d/ids.npy", npy("<i8", "(0, 4)", ""));
  expectError(bindAll(entryOfIds(), "d"), {"the data set is empty", "'ids'", "i64[0x4]"});
}

TEST_F(SampleChecks, DamagedSamplesGiveWayToTheNext) {
  for (const char *name : {"0", "1", "2", "3"})
    write("d/a/" + std::string(name) + ".png", png(2, 2));
  write("d/a/1.png", png(2, 2).substr(0, 50));
  write("d/a/3.png", "no picture");
  plan::Entry entry = entryOf(2, {{"image", plan::F32, {2, 3, 2, 2}, 0}});
  std::vector<float> values(24);
  std::span<std::byte> buffer = std::as_writable_bytes(std::span(values));
  std::span<const std::span<std::byte>> buffers(&buffer, 1);
  auto strict = bindAll(entry, "d");
  ASSERT_TRUE(strict.ok()) << strict.message();
  std::vector<uint64_t> indices = {0, 1};
  expectError(strict->fillSound(indices, BatchReader::Damaged::Replace, false, buffers), {"1.png", "data.max_bad"});

  auto lenient = bindAll(entry, "d", 2);
  ASSERT_TRUE(lenient.ok()) << lenient.message();
  EXPECT_TRUE(lenient->fillSound(indices, BatchReader::Damaged::Replace, false, buffers).ok());
  EXPECT_EQ(indices, (std::vector<uint64_t>{0, 2})) << "2 stands in for 1";
  indices = {2, 3};
  EXPECT_TRUE(lenient->fillSound(indices, BatchReader::Damaged::Replace, false, buffers).ok());
  EXPECT_EQ(indices, (std::vector<uint64_t>{2, 0})) << "after the last comes the first";
  EXPECT_EQ(lenient->damagedSamples().size(), 2u);
  indices = {1, 2};
  EXPECT_TRUE(lenient->fillSound(indices, BatchReader::Damaged::Drop, false, buffers).ok());
  EXPECT_EQ(indices, std::vector<uint64_t>{2});

  auto one = bindAll(entry, "d", 1);
  ASSERT_TRUE(one.ok());
  const uint64_t known[] = {1};
  one->knowDamaged(known); // a resumed run continues the count of damaged samples
  indices = {3, 0};
  expectError(one->fillSound(indices, BatchReader::Damaged::Replace, false, buffers),
              {"3.png", "1 damaged sample was", "data.max_bad"});
}

TEST_F(SampleChecks, NanIsNamedByColumnSampleAndPosition) {
  float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  write("d/x.npy", npy("<f4", "(3, 2)", bytesOf<float>({1, 2, 3, -infinity, 5, nan})));
  plan::Entry entry = entryOf(1, {{"x", plan::F32, {1, 2}, 0}});
  auto reader = bindAll(entry, "d");
  ASSERT_TRUE(reader.ok()) << reader.message();
  const uint64_t good[] = {0}, all[] = {0, 1, 2};
  EXPECT_EQ(reader->describeNonFinite(good, true), "");
  EXPECT_EQ(reader->describeNonFinite(all, true), "column 'x', sample 1, position 1: -inf");
  EXPECT_EQ(reader->describeNonFinite(all, false), "column 'x', sample 2, position 1: NaN");
  expectError(reader->check(2), {"column 'x', sample 2, position 1: NaN"});
  EXPECT_TRUE(reader->check(1).ok()) << "an infinity may be a mask";
}

TEST_F(SampleChecks, InspectFindsAllDamage) {
  write("d/x.npy", npy("<f4", "(3, 2)", bytesOf<float>({1, 2, 3, std::nanf(""), 5, -6})));
  ids<int64_t>("d", "<i8", {0, 1, 2, 3, 0, 0, 0, 0, 50, 1, 2, 3});
  plan::Entry entry = entryOfIds();
  auto reader = bindAll(entry, "d", 1);
  ASSERT_TRUE(reader.ok()) << reader.message();
  std::vector<DamagedSample> found;
  BatchReader *const readers[] = {&*reader};
  DataSummary summary = inspectData(*kept.back(), readers, [&](const DamagedSample &bad) { found.push_back(bad); });
  EXPECT_EQ(summary.samples, 3u);
  ASSERT_EQ(summary.damaged, 2u);
  EXPECT_EQ(found[0].sample, 1u);
  EXPECT_NE(found[0].problem.find("NaN"), std::string::npos);
  EXPECT_EQ(found[1].sample, 2u);
  EXPECT_NE(found[1].problem.find("value 50"), std::string::npos);
  for (const ColumnSummary &column : summary.columns)
    if (column.name == "x") {
      EXPECT_EQ(column.nans, 1u);
      EXPECT_EQ(column.least, -6);
      EXPECT_EQ(column.greatest, 5);
    }
}

TEST(ElementChecks, EveryIntegerType) {
  auto first = [](auto value, plan::DType dtype, int64_t low, int64_t high) {
    std::vector<decltype(value)> values(5000, decltype(value)(1));
    values[4500] = value;
    return firstOutside(reinterpret_cast<const std::byte *>(values.data()), dtype, values.size(), low, high);
  };
  EXPECT_EQ(first(int8_t(-3), plan::I8, -2, 100), 4500u);
  EXPECT_EQ(first(int8_t(-3), plan::I8, -3, 1000), std::nullopt);
  EXPECT_EQ(first(uint8_t(200), plan::U8, -5, 199), 4500u);
  EXPECT_EQ(first(int16_t(-30000), plan::I16, 0, 5), 4500u);
  EXPECT_EQ(first(uint16_t(50257), plan::U16, -50257, 50256), 4500u);
  EXPECT_EQ(first(int32_t(1 << 30), plan::I32, 0, (1 << 30) - 1), 4500u);
  EXPECT_EQ(first(uint32_t(1u << 31), plan::U32, 0, 1u << 31), std::nullopt);
  EXPECT_EQ(first(std::numeric_limits<int64_t>::min(), plan::I64, std::numeric_limits<int64_t>::min() + 1, 9), 4500u);
  EXPECT_EQ(first(~uint64_t(0), plan::U64, 0, std::numeric_limits<int64_t>::max()), 4500u);
  EXPECT_EQ(first(uint8_t(1), plan::U8, 5, 9), 0u);
  EXPECT_EQ(first(uint8_t(1), plan::U8, -9, -5), 0u);
}

TEST(ElementChecks, EveryFloatingPointType) {
  auto first = [](auto value, plan::DType dtype, bool infinities) {
    std::vector<decltype(value)> values(5000, decltype(value)(0));
    values[4999] = value;
    return firstNonFinite(reinterpret_cast<const std::byte *>(values.data()), dtype, values.size(), infinities);
  };
  for (bool infinities : {false, true}) {
    auto expected = infinities ? std::optional<uint64_t>(4999) : std::nullopt;
    EXPECT_EQ(first(HUGE_VAL, plan::F64, infinities), expected);
    EXPECT_EQ(first(-HUGE_VALF, plan::F32, infinities), expected);
    EXPECT_EQ(first(uint16_t(0xff80), plan::BF16, infinities), expected);
    EXPECT_EQ(first(uint16_t(0x7c00), plan::F16, infinities), expected);
    EXPECT_EQ(first(-std::nan(""), plan::F64, infinities), 4999u);
    EXPECT_EQ(first(std::nanf(""), plan::F32, infinities), 4999u);
    EXPECT_EQ(first(uint16_t(0x7fc0), plan::BF16, infinities), 4999u);
    EXPECT_EQ(first(uint16_t(0x7c01), plan::F16, infinities), 4999u);
    EXPECT_EQ(first(std::numeric_limits<float>::max(), plan::F32, infinities), std::nullopt);
    EXPECT_EQ(first(uint16_t(0x7bff), plan::F16, infinities), std::nullopt);
  }
  uint16_t half = 0x3c00, small = 0x8001, brain = 0xc040;
  auto value = [](const uint16_t &bits, plan::DType dtype) {
    return floatElement(reinterpret_cast<const std::byte *>(&bits), dtype, 0);
  };
  EXPECT_EQ(value(half, plan::F16), 1.0);
  EXPECT_EQ(value(small, plan::F16), -0x1p-24);
  EXPECT_EQ(value(brain, plan::BF16), -3.0);
}
