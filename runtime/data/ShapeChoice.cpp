//===- ShapeChoice.cpp - the shape that each sample goes to ----------------===//
#include "runtime/data/ShapeChoice.h"

#include <algorithm>
#include <numeric>

using namespace tcc;
using namespace tcc::runtime;

std::vector<size_t> tcc::runtime::shapesBySize(ShapeReaders shapes) {
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t shape) { return shapes[shape]->batch(); });
  std::ranges::stable_sort(order, {}, [&](size_t shape) { return shapes[shape]->sampleBytes(); });
  return order;
}

std::vector<uint8_t> tcc::runtime::shapesOfSamples(ShapeReaders shapes) {
  const std::vector<size_t> order = shapesBySize(shapes);
  std::vector<uint8_t> chosen(shapes.front()->samples());
  for (uint64_t sample = 0; sample < chosen.size(); ++sample) {
    auto found = std::ranges::find_if(order, [&](size_t shape) { return shapes[shape]->holds(sample); });
    if (found == order.end())
      found = std::ranges::max_element(order, {}, [&](size_t shape) { return shapes[shape]->keptBytes(sample); });
    chosen[sample] = static_cast<uint8_t>(*found);
  }
  return chosen;
}

std::vector<std::vector<uint8_t>> tcc::runtime::smallerBatches(ShapeReaders shapes) {
  std::vector<std::vector<uint8_t>> smaller(shapes.size());
  for (size_t shape = 0; shape < shapes.size(); ++shape)
    for (size_t other = 0; other < shapes.size(); ++other)
      if (shapes[other]->batch() < shapes[shape]->batch() && shapes[other]->takesSamplesOf(*shapes[shape]))
        smaller[shape].push_back(static_cast<uint8_t>(other));
  return smaller;
}
