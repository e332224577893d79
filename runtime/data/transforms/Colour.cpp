//===- Colour.cpp - jitter, RandAugment, TrivialAugment --------------------===//
//
// torchvision's transforms, magnitudes and distributions. RandAugment: Cubuk et al., RandAugment: practical automated
// data augmentation with a reduced search space, 2019; TrivialAugment: Müller and Hutter, 2021.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Adjust.h"
#include "runtime/data/transforms/Augment.h"
#include "runtime/data/transforms/Transform.h"
#include "runtime/data/transforms/Warp.h"

#include <algorithm>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;
using recipe::TransformSpec;

namespace {
/// Adjustments of colour need 1 or 3 channels.
Expected<ImageShape> colourShape(const ImageShape &shape) {
  if (Status status = needsBytes(shape); !status.ok())
    return status;
  if (shape.channels != 1 && shape.channels != 3)
    return error("it needs images of 1 or 3 channels, these have {}", shape.channels);
  return shape;
}

class ColourJitter : public Transform {
public:
  explicit ColourJitter(const TransformSpec &spec)
      : brightness(around(spec, "brightness", 1)), contrast(around(spec, "contrast", 1)),
        saturation(around(spec, "saturation", 1)), hue(around(spec, "hue", 0)) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override { return colourShape(shape); }
  Status apply(Image &image, Image &, Random &random) const override {
    unsigned order[] = {0, 1, 2, 3};
    for (unsigned i = 3; i > 0; --i)
      std::swap(order[i], order[random.below(i + 1)]);
    const double factors[] = {draw(brightness, random), draw(contrast, random), draw(saturation, random),
                              draw(hue, random)};
    for (unsigned which : order) {
      if (which == 0)
        adjust::brightness(image, factors[0]);
      else if (which == 1)
        adjust::contrast(image, factors[1]);
      else if (which == 2)
        adjust::saturation(image, factors[2]);
      else if (hue != Interval(0, 0))
        adjust::hue(image, factors[3]);
    }
    return Status();
  }

private:
  using Interval = std::pair<double, double>;
  static Interval around(const TransformSpec &spec, const char *name, double centre) {
    const std::vector<double> given = spec.numbers(name);
    if (given.size() == 2)
      return {given[0], given[1]};
    return {centre == 1 ? std::max(0.0, 1 - given[0]) : -given[0], centre + given[0]};
  }
  static double draw(const Interval &range, Random &random) { return random.uniform(range.first, range.second); }
  Interval brightness, contrast, saturation, hue;
};

class Grayscale : public Transform {
public:
  explicit Grayscale(const TransformSpec &spec) : probability(spec.real("p")) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override { return colourShape(shape); }
  Status apply(Image &image, Image &, Random &random) const override {
    if (random.chance(probability))
      adjust::grayscale(image);
    return Status();
  }

private:
  double probability;
};

bool isSigned(Augmentation operation) {
  return operation >= Augmentation::ShearX && operation <= Augmentation::Sharpness;
}

class Augment : public Transform {
public:
  explicit Augment(const TransformSpec &spec)
      : trivial(spec.kind->name == "trivial_augment"), bins(uint32_t(spec.integer("num_magnitude_bins"))),
        filter(filterOf(spec.word("interpolation"))) {
    if (!trivial) {
      operations = uint32_t(spec.integer("num_ops"));
      magnitude = uint32_t(spec.integer("magnitude"));
    }
    for (double level : spec.numbers("fill"))
      levels.push_back(uint8_t(level));
  }
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = perChannel("fill", levels.size(), shape); !status.ok())
      return status;
    return colourShape(shape);
  }
  Status apply(Image &image, Image &spare, Random &random) const override {
    for (uint32_t i = 0; i < operations; ++i) {
      const auto operation = Augmentation(random.below(kAugmentations));
      const uint32_t bin = trivial ? random.below(bins) : magnitude;
      double strength = magnitudeOf(operation, trivial, bin, bins, image.height, image.width);
      if (random.below(2) == 1 && isSigned(operation))
        strength = -strength;
      carryOut(operation, strength, image, spare);
    }
    return Status();
  }

private:
  void carryOut(Augmentation operation, double strength, Image &image, Image &spare) const {
    const double centreX = image.width * 0.5, centreY = image.height * 0.5;
    auto warpBy = [&](const AffineMap &map) {
      warp(image, map, filter, levels, spare);
      std::swap(image, spare);
    };
    auto degreesOf = [](double slope) { return std::atan(slope) * (180 / M_PI); };
    switch (operation) {
    case Augmentation::ShearX:
      return warpBy(affineMap(0, 0, 0, 1, degreesOf(strength), 0, 0, 0));
    case Augmentation::ShearY:
      return warpBy(affineMap(0, 0, 0, 1, 0, degreesOf(strength), 0, 0));
    case Augmentation::TranslateX:
      return warpBy(affineMap(0, std::trunc(strength), 0, 1, 0, 0, centreX, centreY));
    case Augmentation::TranslateY:
      return warpBy(affineMap(0, 0, std::trunc(strength), 1, 0, 0, centreX, centreY));
    case Augmentation::Rotate:
      return rotate(image, strength, filter, levels, spare);
    case Augmentation::Brightness:
      return adjust::brightness(image, 1 + strength);
    case Augmentation::Color:
      return adjust::saturation(image, 1 + strength);
    case Augmentation::Contrast:
      return adjust::contrast(image, 1 + strength);
    case Augmentation::Sharpness:
      return adjust::sharpness(image, 1 + strength, spare);
    case Augmentation::Posterize:
      return adjust::posterize(image, int(strength));
    case Augmentation::Solarize:
      return adjust::solarize(image, strength);
    case Augmentation::AutoContrast:
      return adjust::autocontrast(image);
    case Augmentation::Equalize:
      return adjust::equalize(image);
    default:
      return;
    }
  }
  bool trivial;
  uint32_t operations = 1, magnitude = 0, bins;
  Filter filter;
  std::vector<uint8_t> levels;
};
} // namespace

double tcc::runtime::magnitudeOf(Augmentation operation, bool trivial, uint32_t bin, uint32_t bins, uint32_t height,
                                 uint32_t width) {
  // torch.linspace, which computes from both ends towards the middle, in f32.
  auto between = [&](float begin, float end) {
    const float step = (end - begin) / float(bins - 1);
    return double(bin < bins / 2 ? begin + step * float(bin) : end - step * float(bins - bin - 1));
  };
  using enum Augmentation;
  switch (operation) {
  case ShearX:
  case ShearY:
    return between(0, trivial ? 0.99f : 0.3f);
  case TranslateX:
  case TranslateY:
    return between(0, trivial ? 32.0f : float(150.0 / 331.0 * (operation == TranslateX ? width : height)));
  case Rotate:
    return between(0, trivial ? 135.0f : 30.0f);
  case Brightness:
  case Color:
  case Contrast:
  case Sharpness:
    return between(0, trivial ? 0.99f : 0.9f);
  case Posterize:
    return 8 - std::nearbyint(double(float(bin) / float((bins - 1) / (trivial ? 6.0 : 4.0))));
  case Solarize:
    return between(255, 0);
  default:
    return 0;
  }
}

TransformPointer tcc::runtime::makeColour(const TransformSpec &spec) {
  const std::string &kind = spec.kind->name;
  if (kind == "color_jitter")
    return std::make_unique<ColourJitter>(spec);
  if (kind == "grayscale")
    return std::make_unique<Grayscale>(spec);
  if (kind == "rand_augment" || kind == "trivial_augment")
    return std::make_unique<Augment>(spec);
  return nullptr;
}
