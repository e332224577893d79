//===- Values.cpp - bytes to floats, scale, normalise ----------------------===//
#include "runtime/data/transforms/Transform.h"

#include <algorithm>
#include <array>

using namespace tcc;
using namespace tcc::runtime;
using recipe::TransformSpec;

namespace {
Expected<ImageShape> asFloats(ImageShape shape) {
  shape.floats = true;
  return shape;
}

/// Replaces bytes by `of(byte)`, computed once for each of the 256.
template <typename Of> void mapBytes(Image &image, uint32_t channel, Of of) {
  std::array<float, 256> table;
  for (int level = 0; level < 256; ++level)
    table[size_t(level)] = of(uint8_t(level));
  const uint8_t *bytes = image.bytes.data() + channel * image.plane();
  float *values = image.values.data() + channel * image.plane();
  for (uint64_t i = 0, count = image.plane(); i < count; ++i)
    values[i] = table[bytes[i]];
}

/// value ÷ divisor
class ToFloat : public Transform {
public:
  explicit ToFloat(const TransformSpec &spec) : divisor(float(spec.real("divide"))) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (shape.floats)
      return error("the column is f32 here; leave it out, or put it earlier");
    return asFloats(shape);
  }
  Status apply(Image &image, Image &, Random &) const override {
    toFloat(image, divisor);
    return Status();
  }

private:
  float divisor;
};

/// value · factor + offset
class Scale : public Transform {
public:
  explicit Scale(const TransformSpec &spec) : factor(float(spec.real("factor"))), offset(float(spec.real("offset"))) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override { return asFloats(shape); }
  Status apply(Image &image, Image &, Random &) const override {
    if (!image.floats)
      toFloat(image, 255);
    for (float &value : image.values)
      value = value * factor + offset;
    return Status();
  }

private:
  float factor, offset;
};

/// (value − mean) ÷ std, each f32 operation rounded as torch's are.
class Normalise : public Transform {
public:
  explicit Normalise(const TransformSpec &spec) {
    for (double value : spec.numbers("mean"))
      mean.push_back(float(value));
    for (double value : spec.numbers("std"))
      deviation.push_back(float(value));
  }
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    for (auto [name, list] : {std::pair("mean", &mean), std::pair("std", &deviation)})
      if (Status status = perChannel(name, list->size(), shape); !status.ok())
        return status;
    for (float value : deviation)
      if (!(value > 0))
        return error("std: it divides by {} (in f32)", value);
    return asFloats(shape);
  }
  Status apply(Image &image, Image &, Random &) const override {
    const bool bytes = !image.floats;
    if (bytes)
      image.reshape(image.channels, image.height, image.width, true);
    for (uint32_t c = 0; c < image.channels; ++c) {
      const float m = mean[mean.size() == 1 ? 0 : c], d = deviation[deviation.size() == 1 ? 0 : c];
      if (bytes) {
        mapBytes(image, c, [&](uint8_t level) { return (float(level) / 255.0f - m) / d; });
        continue;
      }
      float *values = image.values.data() + c * image.plane();
      for (uint64_t i = 0, count = image.plane(); i < count; ++i)
        values[i] = (values[i] - m) / d;
    }
    return Status();
  }

private:
  std::vector<float> mean, deviation;
};
} // namespace

void tcc::runtime::toFloat(Image &image, float divisor) {
  image.reshape(image.channels, image.height, image.width, true);
  for (uint32_t c = 0; c < image.channels; ++c)
    mapBytes(image, c, [&](uint8_t level) { return float(level) / divisor; });
}

TransformPointer tcc::runtime::makeValues(const TransformSpec &spec) {
  const std::string &kind = spec.kind->name;
  if (kind == "to_float")
    return std::make_unique<ToFloat>(spec);
  if (kind == "scale")
    return std::make_unique<Scale>(spec);
  if (kind == "normalise")
    return std::make_unique<Normalise>(spec);
  return nullptr;
}
