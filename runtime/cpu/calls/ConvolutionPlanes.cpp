//===- ConvolutionPlanes.cpp - the strip of a convolution by planes ------===//
//
// Computes the sizes of the planes, the offset at which each tap reads them, and the layout of a worker's slot
// (Planes in ConvolutionDesign.h).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "runtime/cpu/calls/Needs.h"

#include <algorithm>

namespace tcc::runtime {

namespace {
constexpr double kMostPlaces = 1 << 22;      ///< taps times words: loading a plan lists them all
constexpr double kMostPlaneWords = 1LL << 38; ///< of a strip
constexpr int64_t kSlackBytes = 64; ///< after the last plane, because the last register of a tap may reach beyond it

int64_t roundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t bytes(int64_t count, int64_t size) { return alignScratch(static_cast<uint64_t>(count * size)); }
} // namespace

int64_t Planes::run(int64_t samples, const Sizes &results) const {
  return (samples - 1) * sample + ((results[0] - 1) * extent[1] + results[1] - 1) * extent[2] + results[2];
}

Status ConvolutionDesign::makePlanes() {
  const bool toWeights = kind == plan::ConvolutionCall::WEIGHT_GRADIENT;
  const int64_t perWord = packed::elementsOfWord(elements);
  planes.wordBytes = toWeights && perWord == 2 ? 2 : 4;
  planes.words = toWeights ? sourceChannels : stripChannels / perWord;
  // Planes of f32 whose taps stay inside are read in place.
  inPlace = !toWeights && !channelsLast && elements == packed::Elements::F32 && !narrowOperands;
  Sizes most{}; // results along each axis
  for (const Phase &phase : phases)
    for (size_t axis = 0; axis < kAxes; ++axis)
      most[axis] = std::max(most[axis], phase.axes[axis].count);
  for (size_t axis = 0; axis < kAxes; ++axis)
    inPlace &= sourceStep[axis] == 1 && low[axis] >= 0 && low[axis] + most[axis] - 1 + span[axis] <= source[axis];
  most[static_cast<size_t>(cut)] = stripLines;
  // (double, because a descriptor's numbers may be arbitrarily large)
  double elementsOfAll = static_cast<double>(std::max(planes.words, resultChannels)) *
                         static_cast<double>(stripSamples) * static_cast<double>(groups);
  for (size_t axis = 0; axis < kAxes; ++axis) {
    stripExtent[axis] = (most[axis] - 1) * sourceStep[axis] + span[axis];
    planes.classes[axis] = std::min(sourceStep[axis], span[axis]);
    planes.extent[axis] = inPlace ? source[axis] : ceilDiv(stripExtent[axis], sourceStep[axis]);
    elementsOfAll *= static_cast<double>(planes.classes[axis]) * static_cast<double>(planes.extent[axis]);
  }
  if (elementsOfAll > kMostPlaneWords ||
      static_cast<double>(tapCount) * static_cast<double>(planes.words) > kMostPlaces)
    return error("a convolution by planes of {} channels, {} taps: too large", sourceChannels, tapCount);

  const Sizes &extent = planes.extent, &classes = planes.classes;
  const int64_t area = extent[0] * extent[1] * extent[2];
  planes.sample = inPlace ? groups * sourceChannels * area : area;
  planes.classPitch = stripSamples * planes.sample;
  planes.pitch = inPlace ? area : classes[0] * classes[1] * classes[2] * planes.classPitch;
  const int64_t toVectors = packed::kVector * (planes.wordBytes == 2 ? 2 : 1);
  planes.pixels = inPlace ? stripSamples * roundUp(planes.run(1, most), toVectors)
                          : roundUp(planes.run(stripSamples, most), toVectors);
  for (const Phase &phase : phases) {
    std::vector<int64_t> places;
    for (const Tap &i : phase.axes[0].taps)
      for (const Tap &j : phase.axes[1].taps)
        for (const Tap &k : phase.axes[2].taps) {
          int64_t ofClass = 0, at = 0;
          for (auto [axis, tap] : {std::pair(0, i.at), {1, j.at}, {2, k.at}}) {
            auto a = static_cast<size_t>(axis);
            ofClass = ofClass * classes[a] + tap % sourceStep[a];
            at = at * extent[a] + tap / sourceStep[a];
          }
          for (int64_t word = 0; word < planes.words; ++word)
            places.push_back((word * planes.pitch + ofClass * planes.classPitch + at) * planes.wordBytes);
        }
    planes.places.push_back(std::move(places));
  }
  return Status::success();
}

/// A slot has the strip; then the sums of each channel, or the result's gradient by channel and its mask; then scratch
/// for transposing pixels into planes.
void ConvolutionDesign::layOutPlanes() {
  const int64_t channels = std::min(tileColumns, resultChannels);
  uint64_t strip = inPlace ? 0 : bytes(planes.words * planes.pitch * planes.wordBytes + kSlackBytes, 1);
  offsetRows = offsetSums = strip;
  uint64_t turned = bytes(packed::kVector * std::max({sourceChannels, resultChannels, packed::kVector}), 4);
  if (kind == plan::ConvolutionCall::WEIGHT_GRADIENT) {
    planes.offsetValid = offsetRows + bytes(resultChannels * planes.pixels, planes.wordBytes);
    offsetPanel = planes.offsetValid + bytes(planes.pixels, planes.wordBytes);
    slotBytes = offsetPanel + turned;
    partialBytes = keepsPartials ? static_cast<uint64_t>(groups * resultChannels * tapCount * sourceChannels) * 4 : 0;
    return;
  }
  offsetPanel = offsetSums + bytes(channels * planes.pixels, 4);
  slotBytes = std::max(offsetPanel + turned, bytes(chunkChannels * tapCount * packed::kColumns, 4));
  sharedBytes = panelBytes() * static_cast<uint64_t>(groupTiles());
}

} // namespace tcc::runtime
