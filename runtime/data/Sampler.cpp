//===- Sampler.cpp - the order of samples in batches ----------------------===//
#include "runtime/data/Sampler.h"
#include "runtime/data/Convert.h"
#include "support/Advice.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

/// The sample whose share of [0, sum) contains `bits` scaled to that range.
uint64_t drawn(const std::vector<double> &weights, uint64_t bits) {
  const double place = static_cast<double>(bits >> 11) * 0x1p-53 * weights.back();
  const auto found = std::upper_bound(weights.begin(), weights.end(), place);
  // If the product rounds up to the sum, take the last sample of positive weight.
  const auto last = std::lower_bound(weights.begin(), weights.end(), weights.back());
  return static_cast<uint64_t>(std::min(found, last) - weights.begin());
}

uint64_t keyOf(uint64_t seed, uint64_t epoch) { return mixBits(mixBits(seed + kGolden) + (epoch + 1) * kGolden); }
} // namespace

uint64_t tcc::runtime::mixBits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

Expected<std::vector<double>> tcc::runtime::cumulativeWeights(std::span<const double> weights) {
  std::vector<double> sums;
  sums.reserve(weights.size());
  double sum = 0;
  for (double weight : weights) {
    if (!(weight >= 0) || std::isinf(weight))
      return error("sample {} has weight {}: weights are finite and at least 0", sums.size(), weight);
    sums.push_back(sum += weight);
  }
  if (!(sum > 0) || std::isinf(sum))
    return error("the weights add up to {}: at least one must be above 0", sum);
  return sums;
}

Permutation::Permutation(uint64_t count, uint64_t key) : count(count), key(key) {
  unsigned bits = count <= 1 ? 1 : static_cast<unsigned>(std::bit_width(count - 1));
  halfBits = (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t index) const {
  uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint64_t round = 1; round <= 6; ++round) {
      uint64_t next = left ^ (mixBits(key + round * kGolden + mixBits(right)) & mask);
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= count);
  return index;
}

Sampler::Sampler(uint64_t samples, uint64_t epochSamples, uint64_t batch, SampleOrder order, uint64_t seed,
                 LastBatch last, std::vector<double> weights)
    : samples(samples), epochSamples(epochSamples), batches(0), seed(seed), last(last), order(order),
      weights(std::move(weights)) {
  setShapes({}, {batch}, {{}});
}

void Sampler::setRanks(uint64_t own, uint64_t count) {
  rank = own;
  ranks = count;
  countBatches();
}

void Sampler::setShapes(std::vector<uint8_t> ofSamples, std::vector<uint64_t> ofShapes,
                        std::vector<std::vector<uint8_t>> smallerShapes) {
  shapeBatches = std::move(ofShapes);
  for (uint64_t &samplesOfRank : shapeBatches)
    samplesOfRank = std::max<uint64_t>(samplesOfRank, 1);
  smaller = std::move(smallerShapes);
  for (std::vector<uint8_t> &others : smaller)
    std::ranges::stable_sort(others, {}, [&](uint8_t shape) { return shapeBatches[shape]; });
  shapeSamples.assign(shapeBatches.size(), 0);
  onlyShape = ofSamples.empty() ? 0 : ofSamples.front();
  shapes.reset();
  if (std::ranges::all_of(ofSamples, [&](uint8_t shape) { return shape == onlyShape; })) {
    shapeSamples[onlyShape] = epochSamples;
  } else {
    for (uint8_t shape : ofSamples)
      ++shapeSamples[shape];
    shapes = std::make_shared<const std::vector<uint8_t>>(std::move(ofSamples));
  }
  countBatches();
}

Sampler::Span Sampler::restOf(size_t shape, uint64_t left) const {
  // Every rank needs a sample of each batch.
  const uint64_t used = last == LastBatch::Exact ? left - left % ranks : left;
  const Span none{0, 0, static_cast<uint8_t>(shape)};
  if (last == LastBatch::Drop || used < ranks)
    return none;
  for (uint8_t other : smaller[shape])
    if (const uint64_t holds = shapeBatches[other] * ranks; last == LastBatch::Exact ? holds == used : holds >= used)
      return {0, used, other};
  return last == LastBatch::Pad ? Span{0, used, static_cast<uint8_t>(shape)} : none;
}

void Sampler::countBatches() {
  gatheredEpoch = ~uint64_t(0);
  batches = 0;
  for (size_t shape = 0; shape < shapeBatches.size(); ++shape) {
    const uint64_t global = shapeBatches[shape] * ranks;
    batches += shapeSamples[shape] / global + (restOf(shape, shapeSamples[shape] % global).count ? 1 : 0);
  }
}

std::vector<uint64_t> Sampler::unheld() const {
  std::vector<uint64_t> left;
  for (size_t shape = 0; shape < shapeBatches.size(); ++shape) {
    const uint64_t rest = shapeSamples[shape] % (shapeBatches[shape] * ranks);
    left.push_back(restOf(shape, rest).count ? 0 : rest / ranks);
  }
  return left;
}

void Sampler::gather(uint64_t epoch) const {
  if (gatheredEpoch == epoch)
    return;
  gatheredEpoch = epoch;
  gathered.clear();
  spans.clear();
  const uint64_t key = keyOf(seed, epoch);
  const Permutation permutation(samples, key);
  std::vector<std::vector<uint64_t>> open(shapeBatches.size());
  auto close = [&](size_t shape, uint64_t count, uint8_t into) {
    spans.push_back({gathered.size(), count, into});
    gathered.insert(gathered.end(), open[shape].begin(), open[shape].begin() + static_cast<std::ptrdiff_t>(count));
    open[shape].clear();
  };
  for (uint64_t place = 0; place < epochSamples; ++place) {
    const uint64_t sample = sampleAt(epoch, key, permutation, place);
    const uint8_t shape = (*shapes)[sample];
    open[shape].push_back(sample);
    if (open[shape].size() == shapeBatches[shape] * ranks)
      close(shape, open[shape].size(), shape);
  }
  for (size_t shape = 0; shape < open.size(); ++shape)
    if (const Span rest = restOf(shape, open[shape].size()); rest.count)
      close(shape, rest.count, rest.shape);
}

Sampler::Span Sampler::spanOf(uint64_t epoch, uint64_t number) const {
  if (shapes) {
    gather(epoch);
    return number < spans.size() ? spans[number] : Span{};
  }
  const uint64_t global = shapeBatches[onlyShape] * ranks, first = std::min(number * global, epochSamples);
  if (first + global <= epochSamples)
    return {first, global, onlyShape};
  const Span rest = restOf(onlyShape, epochSamples - first);
  return {first, rest.count, rest.shape};
}

size_t Sampler::shapeOf(uint64_t epoch, uint64_t read) const { return spanOf(epoch, partOf(epoch, read).number).shape; }

void Sampler::setShare(uint64_t wanted, uint64_t batchesOfWindow) {
  count = std::max<uint64_t>(wanted, 1);
  readWindow = std::max<uint64_t>(batchesOfWindow, 1);
}

void Sampler::beginAt(uint64_t epoch, uint64_t number) {
  firstEpoch = epoch;
  firstBatch = number;
}

Sampler::Part Sampler::partOf(uint64_t epoch, uint64_t read) const {
  const uint64_t origin = epoch == firstEpoch ? std::min(firstBatch, read / count) : 0, from = read - origin * count;
  const uint64_t begin = origin + from / (readWindow * count) * readWindow;
  const uint64_t size = std::min(readWindow, batches - std::min(begin, batches - 1)),
                 within = from % (readWindow * count);
  return {begin + within % size, rank + within / size};
}

uint64_t Sampler::drawNumber(uint64_t epoch, uint64_t read) const {
  const Part part = partOf(epoch, read);
  return part.number * ranks + part.rank;
}

uint64_t Sampler::globalSamples(uint64_t epoch, uint64_t number) const { return spanOf(epoch, number).count; }

uint64_t Sampler::dropped() const {
  uint64_t dropped = 0;
  for (size_t shape = 0; shape < shapeBatches.size(); ++shape) {
    const uint64_t left = shapeSamples[shape] % (shapeBatches[shape] * ranks);
    dropped += left - restOf(shape, left).count;
  }
  return dropped;
}

void Sampler::setWindow(std::vector<uint64_t> shards, uint64_t wanted) {
  window = std::max<uint64_t>(wanted, 1);
  if (shards.empty())
    shards = {samples};
  shardBegins.assign(1, 0);
  for (uint64_t shard : shards)
    shardBegins.push_back(shardBegins.back() + shard);
  fileAt.resize(shards.size());
  placeOf.resize(shards.size() + 1);
  placedEpoch = ~uint64_t(0);
}

uint64_t Sampler::windowed(uint64_t epoch, uint64_t key, uint64_t place) const {
  if (placedEpoch != epoch) {
    const Permutation files(fileAt.size(), mixBits(key + kGolden));
    for (uint64_t rank = 0; rank < fileAt.size(); ++rank) {
      fileAt[rank] = files(rank);
      placeOf[rank + 1] = placeOf[rank] + shardBegins[fileAt[rank] + 1] - shardBegins[fileAt[rank]];
    }
    placedEpoch = epoch;
  }
  const uint64_t number = place / window, begin = number * window, size = std::min(window, samples - begin);
  const uint64_t there = begin + Permutation(size, mixBits(key + (number + 2) * kGolden))(place - begin);
  const auto rank =
      static_cast<uint64_t>(std::upper_bound(placeOf.begin(), placeOf.end(), there) - placeOf.begin() - 1);
  return shardBegins[fileAt[rank]] + there - placeOf[rank];
}

uint64_t Sampler::sampleAt(uint64_t epoch, uint64_t key, const Permutation &permutation, uint64_t place) const {
  if (order == SampleOrder::Shuffled)
    return permutation(place);
  if (order == SampleOrder::Windowed)
    return windowed(epoch, key, place);
  if (order == SampleOrder::Ordered)
    return place;
  if (!weights.empty())
    return drawn(weights, mixBits(key + place * kGolden));
  return static_cast<uint64_t>(static_cast<unsigned __int128>(mixBits(key + place * kGolden)) * samples >> 64);
}

void Sampler::append(uint64_t epoch, uint64_t begin, uint64_t end, std::vector<uint64_t> &indices) const {
  if (shapes) {
    indices.insert(indices.end(), gathered.begin() + static_cast<std::ptrdiff_t>(begin),
                   gathered.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  const uint64_t key = keyOf(seed, epoch);
  const Permutation permutation(samples, key);
  for (uint64_t place = begin; place < end; ++place)
    indices.push_back(sampleAt(epoch, key, permutation, place));
}

void Sampler::batchOf(uint64_t epoch, uint64_t read, std::vector<uint64_t> &indices) const {
  const auto [number, whose] = partOf(epoch, read);
  const auto [first, all, shape] = spanOf(epoch, number);
  indices.clear();
  append(epoch, first + all * whose / ranks, first + all * (whose + 1) / ranks, indices);
}

void Sampler::globalBatchOf(uint64_t epoch, uint64_t number, std::vector<uint64_t> &indices) const {
  const auto [first, all, shape] = spanOf(epoch, number);
  indices.clear();
  append(epoch, first, first + all, indices);
}

Expected<std::vector<double>> tcc::runtime::sampleWeights(const Dataset &dataset, bool balanced, std::string name) {
  if (name.empty())
    name = balanced ? "label" : "weight";
  const Column *column = dataset.find(name);
  if (!column)
    return error("{}: data.sampler = \"{}\" reads the column '{}', but the data has {}; name the right one with {}",
                 dataset.path, balanced ? "balanced" : "weighted", name, dataset.describeColumns(),
                 advice::set("data.weights", "COLUMN"));
  const plan::TensorType &type = column->type();
  const bool floating = plan::isFloatingPoint(type.dtype()), rows = balanced && floating && type.dims_size() == 2;
  if (!rows && (type.dims_size() != 1 || (balanced && floating)))
    return error("{}: column '{}' is {}; data.sampler = \"{}\" needs one {} a sample", dataset.path, name,
                 plan::typeName(type), balanced ? "balanced" : "weighted", balanced ? "class, an integer" : "number");
  std::vector<double> values(column->samples());
  std::vector<std::byte> sample(column->sampleBytes());
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (Status status = column->read(i, sample.data()); !status.ok())
      return status;
    if (!rows) {
      values[i] = floating ? floatElement(sample.data(), type.dtype(), 0)
                           : static_cast<double>(integerElement(sample.data(), type.dtype(), 0));
      continue;
    }
    uint64_t best = 0;
    for (uint64_t k = 1; k < static_cast<uint64_t>(type.dims(1)); ++k)
      if (floatElement(sample.data(), type.dtype(), k) > floatElement(sample.data(), type.dtype(), best))
        best = k;
    values[i] = static_cast<double>(best);
  }
  if (balanced) {
    std::map<double, double> counts;
    for (double value : values)
      ++counts[value];
    for (double &value : values)
      value = 1 / counts[value];
  }
  auto sums = cumulativeWeights(values);
  return sums ? sums : sums.status().withContext(fmt::format("{}: column '{}'", dataset.path, name));
}
