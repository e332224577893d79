//===- FactsFileTest.cpp - a run's columns.json -----------------------------===//
#include "runtime/train/RunFolder.h"

#include <gtest/gtest.h>
#include <random>

using namespace tcc;
using namespace tcc::runtime;

TEST(FactsFile, ReadsBackTheSameBits) {
  ColumnFacts facts;
  facts.categories["a \"name\" é"] = {"", "b\n", "c"};
  constexpr unsigned kSeed = 3;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> numbers(0, 1e-3);
  for (int i = 0; i < 1000; ++i) {
    facts.fills["x"].push_back(numbers(random) * 1e6);
    facts.standards["x"].mean.push_back(numbers(random));
    facts.standards["x"].deviation.push_back(std::abs(numbers(random)) + 1e-9);
  }
  facts.standards["x#2"] = {{1.0 / 3}, {5e-324}};
  auto read = parseFacts(factsText(facts));
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, facts) << "seed " << kSeed;
  EXPECT_TRUE(parseFacts(factsText({}))->empty());
}

TEST(FactsFile, DamagedTextsAreRefused) {
  for (const char *text :
       {"", "[]", "{\"categories\": []}", "{\"categories\": {\"x\": [1]}}", "{\"missing\": {\"x\": 1}}",
        "{\"missing\": {\"x\": [\"1\"]}}", "{\"missing\": {\"x\": [1e999]}}", "{\"standardise\": {\"x\": 1}}",
        "{\"standardise\": {\"x\": {\"mean\": [1], \"std\": []}}}",
        "{\"standardise\": {\"x\": {\"mean\": [1], \"std\": [0]}}}", "{\"standardise\": {\"x\": {\"mean\": [1]}}}"})
    EXPECT_FALSE(parseFacts(text).ok()) << text;
}
