//===- Mix.cpp - mixup and cutmix of a batch -------------------------------===//
#include "runtime/data/transforms/Mix.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

std::optional<Mixture> tcc::runtime::chooseMixture(const recipe::TransformSpec &spec, uint32_t height, uint32_t width,
                                                   Random &random) {
  if (!random.chance(spec.real("p")))
    return std::nullopt;
  const std::string &kind = spec.kind->name;
  const bool either = kind == "mixup_or_cutmix", cut = either ? random.chance(spec.real("switch")) : kind == "cutmix";
  Mixture mixture;
  mixture.share = random.beta(spec.real(either ? (cut ? "cutmix_alpha" : "mixup_alpha") : "alpha"));
  if (!cut)
    return mixture;
  const int64_t x = random.below(width), y = random.below(height);
  const double half = 0.5 * std::sqrt(1 - mixture.share);
  const auto halfWidth = int64_t(half * width), halfHeight = int64_t(half * height);
  const auto left = uint32_t(std::max<int64_t>(x - halfWidth, 0)), top = uint32_t(std::max<int64_t>(y - halfHeight, 0));
  const auto right = uint32_t(std::min<int64_t>(x + halfWidth, width)),
             bottom = uint32_t(std::min<int64_t>(y + halfHeight, height));
  mixture.box = Box{top, left, bottom - top, right - left};
  mixture.share = 1 - double(mixture.box->width) * mixture.box->height / (double(width) * height);
  return mixture;
}

void tcc::runtime::blendSamples(std::span<float> values, uint64_t count, double share, std::vector<float> &spare) {
  if (count == 0)
    return;
  const uint64_t elements = values.size() / count;
  const auto own = float(share), other = float(1 - share);
  // From the last sample to the first, so that the previous sample is still unmixed; the last one is saved for the
  // first.
  spare.assign(values.end() - int64_t(elements), values.end());
  for (uint64_t i = count; i-- > 0;) {
    float *sample = values.data() + i * elements;
    const float *before = i > 0 ? sample - elements : spare.data();
    for (uint64_t k = 0; k < elements; ++k)
      sample[k] = before[k] * other + sample[k] * own;
  }
}

void tcc::runtime::moveBoxes(std::span<float> values, uint64_t count, uint32_t height, uint32_t width, const Box &box,
                             std::vector<float> &spare) {
  if (count == 0)
    return;
  const uint64_t elements = values.size() / count, plane = uint64_t(height) * width;
  spare.assign(values.end() - int64_t(elements), values.end());
  for (uint64_t i = count; i-- > 0;) {
    float *sample = values.data() + i * elements;
    const float *before = i > 0 ? sample - elements : spare.data();
    for (uint64_t start = 0; start + plane <= elements; start += plane)
      for (uint32_t y = box.top; y < box.top + box.height; ++y)
        std::copy_n(before + start + uint64_t(y) * width + box.left, box.width,
                    sample + start + uint64_t(y) * width + box.left);
  }
}
