//===- Erase.cpp - random erasing, cutout ----------------------------------===//
//
// Random erasing: Zhong et al., Random erasing data augmentation, 2017, with torchvision's distribution. Cutout:
// DeVries and Taylor, Improved regularization of convolutional neural networks with cutout, 2017: the centre is
// anywhere in the image, and what is outside is cut off.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Transform.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;
using recipe::TransformSpec;

namespace {
class RandomErasing : public Transform {
public:
  explicit RandomErasing(const TransformSpec &spec)
      : probability(spec.real("p")), scale(spec.numbers("scale")), ratio(spec.numbers("ratio")),
        noise(spec.word("value") == "random") {
    if (!noise)
      value = spec.numbers("value");
  }
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    if (!noise)
      if (Status status = perChannel("value", value.size(), shape); !status.ok())
        return status;
    ImageShape result = shape;
    result.floats = true;
    return result;
  }
  Status apply(Image &image, Image &, Random &random) const override {
    if (!image.floats)
      toFloat(image, 255);
    if (!random.chance(probability))
      return Status();
    const double area = double(image.height) * image.width, low = std::log(ratio[0]), high = std::log(ratio[1]);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double part = area * random.uniform(scale[0], scale[1]), aspect = std::exp(random.uniform(low, high));
      const auto height = uint32_t(std::nearbyint(std::sqrt(part * aspect))),
                 width = uint32_t(std::nearbyint(std::sqrt(part / aspect)));
      if (height >= image.height || width >= image.width)
        continue;
      const uint32_t top = random.below(image.height - height + 1), left = random.below(image.width - width + 1);
      for (uint32_t c = 0; c < image.channels; ++c)
        for (uint32_t y = top; y < top + height; ++y) {
          float *row = image.values.data() + c * image.plane() + size_t(y) * image.width + left;
          for (uint32_t x = 0; x < width; ++x)
            row[x] = float(noise ? random.normal() : value[value.size() == 1 ? 0 : c]);
        }
      return Status();
    }
    return Status();
  }

private:
  double probability;
  std::vector<double> scale, ratio, value;
  bool noise;
};

class Cutout : public Transform {
public:
  explicit Cutout(const TransformSpec &spec)
      : sides(spec.integers("size")), count(uint32_t(spec.integer("count"))), probability(spec.real("p")),
        value(spec.numbers("value")) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    if (Status status = perChannel("value", value.size(), shape); !status.ok())
      return status;
    return shape;
  }
  Status apply(Image &image, Image &, Random &random) const override {
    if (!random.chance(probability))
      return Status();
    const int64_t height = sides.front(), width = sides.back();
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t top = int64_t(random.below(image.height)) - height / 2,
                    left = int64_t(random.below(image.width)) - width / 2;
      auto inside = [](int64_t place, uint32_t side) { return std::clamp<int64_t>(place, 0, side); };
      const int64_t beginY = inside(top, image.height), endY = inside(top + height, image.height),
                    beginX = inside(left, image.width), endX = inside(left + width, image.width);
      withElement(image, [&](auto type) {
        using T = decltype(type);
        for (uint32_t c = 0; c < image.channels; ++c) {
          const double share = value[value.size() == 1 ? 0 : c];
          const T level = image.floats ? T(share) : T(share * 255 + 0.5);
          for (int64_t y = beginY; y < endY; ++y) {
            T *row = image.data<T>() + c * image.plane() + size_t(y) * image.width;
            std::fill(row + beginX, row + endX, level);
          }
        }
      });
    }
    return Status();
  }

private:
  std::vector<int64_t> sides;
  uint32_t count;
  double probability;
  std::vector<double> value;
};
} // namespace

TransformPointer tcc::runtime::makeErase(const TransformSpec &spec) {
  if (spec.kind->name == "random_erasing")
    return std::make_unique<RandomErasing>(spec);
  if (spec.kind->name == "cutout")
    return std::make_unique<Cutout>(spec);
  return nullptr;
}
