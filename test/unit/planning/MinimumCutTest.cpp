//===- MinimumCutTest.cpp - minimum cuts against all cuts ------------------===//
#include "compiler/planning/MinimumCut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace tcc::planning;

namespace {

struct TestEdge {
  int from, to;
  FlowNetwork::Capacity capacity;
};

FlowNetwork networkOf(int nodes, const std::vector<TestEdge> &edges) {
  FlowNetwork network;
  for (int i = 0; i < nodes; ++i)
    network.addNode();
  for (const TestEdge &edge : edges)
    network.addEdge(edge.from, edge.to, edge.capacity);
  return network;
}

/// The total capacity of the edges that lead into the sink side from outside.
FlowNetwork::Capacity priceOf(const std::vector<bool> &sinkSide, const std::vector<TestEdge> &edges) {
  FlowNetwork::Capacity price = 0;
  for (const TestEdge &edge : edges)
    if (!sinkSide[size_t(edge.from)] && sinkSide[size_t(edge.to)])
      price += edge.capacity;
  return price;
}

TEST(MinimumCut, ChoosesTheCheaperOfTwoSeries) {
  // 0 →5→ 1 →3→ 2 →4→ 3: the middle edge.
  FlowNetwork::Capacity price = 0;
  std::vector<bool> side = networkOf(4, {{0, 1, 5}, {1, 2, 3}, {2, 3, 4}}).cut(0, 3, &price);
  EXPECT_EQ(price, 3);
  EXPECT_EQ(side, (std::vector<bool>{false, false, true, true}));
}

TEST(MinimumCut, LiesNearestToTheSink) {
  std::vector<bool> side = networkOf(4, {{0, 1, 2}, {1, 2, 2}, {2, 3, 2}}).cut(0, 3);
  EXPECT_EQ(side, (std::vector<bool>{false, false, false, true}));
}

TEST(MinimumCut, SaysWhereNothingCanBeCut) {
  FlowNetwork::Capacity price = 0;
  networkOf(2, {{0, 1, FlowNetwork::kUnlimited}}).cut(0, 1, &price);
  EXPECT_GE(price, FlowNetwork::kUnlimited);
}

TEST(MinimumCut, NothingToCutCostsNothing) {
  FlowNetwork::Capacity price = 7;
  std::vector<bool> side = networkOf(3, {{0, 1, 4}}).cut(0, 2, &price);
  EXPECT_EQ(price, 0);
  EXPECT_EQ(side, (std::vector<bool>{false, false, true}));
}

TEST(MinimumCut, AgreesWithAllCutsOfSmallNetworks) {
  std::mt19937 random(20241); // NOLINT: a fixed seed, so that a failure can be repeated
  for (int trial = 0; trial < 2000; ++trial) {
    int nodes = 2 + int(random() % 8);
    std::vector<TestEdge> edges;
    for (int count = int(random() % 24); count > 0; --count)
      edges.push_back({int(random() % unsigned(nodes)), int(random() % unsigned(nodes)), int64_t(random() % 9)});
    FlowNetwork::Capacity best = INT64_MAX, found = 0;
    std::vector<bool> smallest; // the sink's side with the fewest nodes
    for (unsigned subset = 0; subset < 1u << nodes; ++subset) {
      std::vector<bool> side;
      for (int node = 0; node < nodes; ++node)
        side.push_back(subset >> node & 1);
      if (side[0] || !side[size_t(nodes) - 1])
        continue;
      FlowNetwork::Capacity price = priceOf(side, edges);
      bool fewer = std::count(side.begin(), side.end(), true) < std::count(smallest.begin(), smallest.end(), true);
      if (price < best || (price == best && fewer)) {
        best = price;
        smallest = side;
      }
    }
    std::vector<bool> side = networkOf(nodes, edges).cut(0, nodes - 1, &found);
    EXPECT_EQ(found, best) << "trial " << trial;
    EXPECT_EQ(priceOf(side, edges), best) << "trial " << trial;
    EXPECT_EQ(side, smallest) << "trial " << trial;
  }
}

TEST(MinimumCut, ANetworkCanBeUsedAgain) {
  FlowNetwork network;
  for (int64_t capacity : {5, 3, 7}) {
    network.clear();
    for (int node = 0; node < 3; ++node)
      network.addNode();
    network.addEdge(0, 1, capacity);
    network.addEdge(1, 2, 4);
    uint64_t work = 0;
    EXPECT_EQ(network.solve(0, 2, &work), std::min<int64_t>(capacity, 4));
    EXPECT_EQ(network.reachedFromSource(1), capacity > 4);
    EXPECT_LT(work, 20u) << "what was looked at before is not counted again";
  }
}

TEST(MinimumCut, DeepNetworksNeedNoStack) {
  FlowNetwork network;
  constexpr int kNodes = 300000;
  for (int i = 0; i < kNodes; ++i)
    network.addNode();
  for (int i = 0; i + 1 < kNodes; ++i)
    network.addEdge(i, i + 1, i == kNodes / 2 ? 1 : 2);
  FlowNetwork::Capacity price = 0;
  std::vector<bool> side = network.cut(0, kNodes - 1, &price);
  EXPECT_EQ(price, 1);
  EXPECT_EQ(std::count(side.begin(), side.end(), true), kNodes - kNodes / 2 - 1);
}

} // namespace
