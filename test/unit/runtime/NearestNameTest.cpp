//===- NearestNameTest.cpp - which names are offered ----------------------===//
#include "support/NearestName.h"

#include <gtest/gtest.h>

using namespace tcc;

TEST(NearestName, CaseUnderscoresAndStarsDoNotCount) {
  EXPECT_EQ(nameDistance("adamW", "adamw"), 0u);
  EXPECT_EQ(nameDistance("weight-decay", "WeightDecay"), 0u);
  EXPECT_EQ(nameDistance("head.*", "head."), 0u);
}

TEST(NearestName, NeighboursSwappedCountOnce) {
  EXPECT_EQ(nameDistance("trian", "train"), 1u);
  EXPECT_EQ(nameDistance("reprot", "report"), 1u);
}

TEST(NearestName, NamesThatDifferInMoreThanAThirdAreNotOffered) {
  EXPECT_EQ(nameDistance("learning_rate", "amsgrad"), std::nullopt);
  EXPECT_EQ(nameDistance("adam", "lamb"), std::nullopt);
  EXPECT_EQ(nameDistance("z", "y"), std::nullopt);
  EXPECT_EQ(nameDistance("*", "weight"), std::nullopt);
  EXPECT_EQ(nearestName("shampoo", std::vector<std::string>{"sgd", "adam", "lamb"}), "");
}

TEST(NearestName, TheNearestComesFirst) {
  const std::vector<std::string> known{"layers.10.weight", "layers.1.weight", "layers.1.bias", "head"};
  EXPECT_EQ(nearNames("layer.1.weight", known), (std::vector<std::string>{"layers.1.weight", "layers.10.weight"}));
  EXPECT_EQ(nearestName("layer.1.weight", known), "layers.1.weight");
  EXPECT_EQ(nearestOrSome("haed", known), "the nearest is head");
}

TEST(NearestName, WithoutANearOneTheFirstOnesAreShown) {
  EXPECT_EQ(nearestOrSome("encoder.*", std::vector<std::string>{"a", "b", "c", "d"}), "there are a, b, c and 1 more");
  EXPECT_EQ(nearestOrSome("encoder.*", std::vector<std::string>{"a"}), "there is a");
  EXPECT_EQ(nearestOrSome("encoder.*", {}), "there are none");
}
