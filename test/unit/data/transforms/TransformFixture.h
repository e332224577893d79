//===- TransformFixture.h - transforms by their text in a recipe -----------===//
#ifndef TCC_TEST_UNIT_DATA_TRANSFORMS_TRANSFORMFIXTURE_H
#define TCC_TEST_UNIT_DATA_TRANSFORMS_TRANSFORMFIXTURE_H

#include "runtime/data/transforms/Transform.h"

#include <gtest/gtest.h>

namespace tcc::test {

/// The table of a recipe whose lines are `text`.
inline recipe::TransformSpec specOf(const std::string &text) {
  auto specs = recipe::parseTransforms("tables = [{ " + text + " }]");
  EXPECT_TRUE(specs.ok()) << specs.message();
  return specs ? specs->front() : recipe::TransformSpec();
}

/// Channels × height × width bytes.
inline runtime::Image bytesImage(uint32_t channels, uint32_t height, uint32_t width, std::vector<uint8_t> bytes) {
  runtime::Image image;
  image.reshape(channels, height, width, false);
  image.bytes = std::move(bytes);
  return image;
}

/// Applies the transform whose table is `text` to `image`, with the random numbers of sample `sample`.
inline runtime::Image transformed(runtime::Image image, const std::string &text, uint64_t sample = 0,
                                  const runtime::Draw &draw = {}) {
  const recipe::TransformSpec spec = specOf(text);
  runtime::Image spare;
  runtime::Random random(draw, sample, uint32_t(spec.number));
  const auto transform = runtime::makeTransform(spec);
  EXPECT_TRUE(transform) << text;
  Status status = transform->apply(image, spare, random);
  EXPECT_TRUE(status.ok()) << status.message();
  return image;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_DATA_TRANSFORMS_TRANSFORMFIXTURE_H
