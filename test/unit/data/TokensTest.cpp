//===- TokensTest.cpp - token files and text as windows ------------------===//
#include "test/unit/data/DataFixture.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Tokens : public FolderTest {
protected:
  std::string tokens(const std::string &name, uint16_t count) {
    std::vector<uint16_t> values(count);
    for (uint16_t i = 0; i < count; ++i)
      values[i] = i;
    return write(name, std::string(reinterpret_cast<char *>(values.data()), values.size() * 2));
  }
  static DatasetOptions windows(int64_t length) {
    DatasetOptions options;
    options.windowLength = length;
    return options;
  }
};
} // namespace

TEST_F(Tokens, ConsecutiveWindowsAndTheirTargets) {
  auto data = openDataset(tokens("d.bin", 13), windows(4));
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("tokens")->type()), "u16[3x4]");
  EXPECT_EQ(readSample<uint16_t>(*data->find("tokens"), 2), (std::vector<uint16_t>{8, 9, 10, 11}));
  EXPECT_EQ(readSample<uint16_t>(*data->find("targets"), 2), (std::vector<uint16_t>{9, 10, 11, 12}));
  // 12 tokens: the third window has no token after it.
  EXPECT_EQ(openDataset(tokens("e.bin", 12), windows(4))->find("tokens")->samples(), 2u);
}

TEST_F(Tokens, ShiftInTheGraphTakesTheSameWindow) {
  DatasetOptions options = windows(4);
  options.sameWindow = true;
  auto data = openDataset(tokens("d.bin", 12), options);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->find("targets")->samples(), 3u);
  EXPECT_EQ(readSample<uint16_t>(*data->find("targets"), 2), (std::vector<uint16_t>{8, 9, 10, 11}));
}

TEST_F(Tokens, RandomWindowsStartAnywhere) {
  DatasetOptions options = windows(4);
  options.overlappingWindows = true;
  auto data = openDataset(tokens("d.bin", 13), options);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->find("tokens")->samples(), 9u);
  EXPECT_EQ(data->epochSamples, 3u);
  EXPECT_EQ(readSample<uint16_t>(*data->find("targets"), 8), (std::vector<uint16_t>{9, 10, 11, 12}));
}

TEST_F(Tokens, EvalSplitCutsTokensNotWindows) {
  DatasetOptions options = windows(4);
  options.evalSplit = 0.5;
  options.part = DatasetOptions::Part::Head;
  auto head = openDataset(tokens("d.bin", 20), options);
  options.part = DatasetOptions::Part::Tail;
  auto tail = openDataset(at("d.bin"), options);
  ASSERT_TRUE(head.ok() && tail.ok());
  EXPECT_EQ(readSample<uint16_t>(*head->find("targets"), 1).back(), 8) << "no target from the tail";
  EXPECT_EQ(readSample<uint16_t>(*tail->find("tokens"), 0).front(), 10);
}

TEST_F(Tokens, WideTokens) {
  DatasetOptions options = windows(2);
  options.settings["tokens"] = "uint32";
  std::vector<uint32_t> values = {70000, 70001, 70002};
  auto data = openDataset(write("d.bin", std::string(reinterpret_cast<char *>(values.data()), 12)), options);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<uint32_t>(*data->find("targets"), 0), (std::vector<uint32_t>{70001, 70002}));
}

TEST_F(Tokens, Faults) {
  expectError(openDataset(tokens("d.bin", 4), windows(4)), {"d.bin", "too few tokens", "5", "4"});
  expectError(openDataset(tokens("d.bin", 40), windows(0)), {"d.bin", "[batch, sequence]"});
  expectError(openDataset(write("odd.bin", "123"), windows(1)), {"odd.bin", "3 bytes"});
  DatasetOptions options = windows(2);
  options.settings["tokens"] = "chars";
  expectError(openDataset(at("d.bin"), options), {"data.tokens", "uint16"});
  options.settings["tokens"] = "uint16";
  expectError(openDataset(write("d.txt", "abc"), options), {"data.tokens", "bytes"});
}

TEST_F(Tokens, CharactersAreRankedInTheSortedVocabulary) {
  auto data = openDataset(write("d.txt", "bäa\nb"), windows(4));
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->vocabulary, (std::vector<uint32_t>{'\n', 'a', 'b', 0xe4}));
  EXPECT_EQ(readSample<uint8_t>(*data->find("tokens"), 0), (std::vector<uint8_t>{2, 3, 1, 0}));
  EXPECT_EQ(readSample<uint8_t>(*data->find("targets"), 0), (std::vector<uint8_t>{3, 1, 0, 2}));
  EXPECT_EQ(encodeUtf8(0xe4), "ä");
}

TEST_F(Tokens, TheRunsVocabularyHoldsForOtherText) {
  DatasetOptions options = windows(2);
  options.vocabulary = std::vector<uint32_t>{'a', 'b', 'c'};
  auto data = openDataset(write("e.txt", "cac"), options);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(readSample<uint8_t>(*data->find("tokens"), 0), (std::vector<uint8_t>{2, 0}));
  expectError(openDataset(write("f.txt", "abcd"), options), {"f.txt", "character 4", "'d'", "U+0064", "vocabulary"});
}

TEST_F(Tokens, BytesAreTheirOwnTokens) {
  DatasetOptions options = windows(2);
  options.settings["tokens"] = "\"bytes\""; // with or without the quotes of a recipe's value
  auto data = openDataset(write("d.txt", "\xff"
                                         "AB"),
                          options);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_TRUE(data->vocabulary.empty());
  EXPECT_EQ(readSample<uint8_t>(*data->find("tokens"), 0), (std::vector<uint8_t>{0xff, 'A'}));
  expectError(openDataset(at("d.txt"), windows(2)), {"d.txt", "UTF-8", "byte 0", "bytes"});
}
