//===- TorchvisionTest.cpp - transforms against torchvision's results ------===//
//
// torchvision.safetensors holds torchvision's results on Pillow images; make_fixtures.py made it. Each tensor's name
// states the call, which this test repeats: bytes must be equal. Results of torchvision on tensors may differ by one
// level.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Adjust.h"
#include "runtime/data/transforms/Augment.h"
#include "runtime/data/transforms/Mix.h"
#include "runtime/data/transforms/Warp.h"
#include "runtime/tensors/Safetensors.h"
#include "test/unit/data/transforms/TransformFixture.h"

#include <cstring>
#include <fmt/format.h>
#include <map>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    parts.push_back(part);
  return parts;
}

std::vector<uint32_t> integers(const std::string &text, char at) {
  std::vector<uint32_t> values;
  for (const std::string &part : split(text, at))
    values.push_back(uint32_t(std::stoul(part)));
  return values;
}

Image imageOf(const Tensor &tensor) {
  Image image;
  auto dim = [&](int axis) { return uint32_t(tensor.type.dims(axis)); };
  image.reshape(dim(0), dim(1), dim(2), tensor.type.dtype() == plan::F32);
  std::memcpy(image.floats ? static_cast<void *>(image.values.data()) : image.bytes.data(), tensor.bytes.data(),
              tensor.bytes.size());
  return image;
}

std::vector<float> floatsOf(const Tensor &tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// Greatest difference of two images, 1000 where their shapes differ.
double difference(const Image &a, const Image &b) {
  if (a.channels != b.channels || a.height != b.height || a.width != b.width || a.floats != b.floats)
    return 1000;
  double most = 0;
  for (uint64_t i = 0; i < a.elements(); ++i)
    most = std::max<double>(most, a.floats ? std::abs(a.values[i] - b.values[i]) : std::abs(a.bytes[i] - b.bytes[i]));
  return most;
}

/// The result of the call that `name` (without its first part) states; nothing if the call is unknown.
std::optional<Image> call(const Image &input, const std::vector<std::string> &name) {
  Image image = input, spare;
  const std::string &operation = name[1], argument = name.back();
  auto number = [&] { return std::stod(argument); };
  auto apply = [&](const std::string &text) { return transformed(input, text); };
  const std::vector<uint8_t> dark = {0}, rotated = {10, 20, 30}, turned = {9, 8, 7};
  auto resized = [&](bool antialias) {
    if (argument == "12,most 14")
      return apply("kind = 'resize', size = 12, max_size = 14");
    std::string size = argument;
    if (size_t x = size.find('x'); x != std::string::npos)
      size = "[" + size.substr(0, x) + ", " + size.substr(x + 1) + "]";
    return apply(fmt::format("kind = 'resize', size = {}, interpolation = '{}', antialias = {}", size, name[2], antialias));
  };
  if (operation == "resize" || operation == "tensor_resize" || operation == "no_antialias")
    return resized(operation != "no_antialias");
  if (operation == "resized_crop") {
    resample(input, {3, 2, 13, 17}, 12, 12, filterOf(name[2]), true, spare);
    return spare;
  }
  if (operation == "center_crop") {
    std::vector<uint32_t> size = integers(argument, 'x');
    return apply(fmt::format("kind = 'center_crop', size = [{}, {}]", size.front(), size.back()));
  }
  if (operation == "pad")
    return apply(fmt::format("kind = 'pad', padding = [1, 2, 3, 4], fill = 77, padding_mode = '{}'", argument));
  if (operation == "hflip")
    return apply("kind = 'horizontal_flip', p = 1");
  if (operation == "vflip")
    return apply("kind = 'vertical_flip', p = 1");
  if (operation == "rotate") {
    rotate(image, number(), filterOf(name[2]), rotated, spare);
    return image;
  }
  if (operation == "affine") {
    const double x = image.width * 0.5, y = image.height * 0.5;
    const AffineMap map = argument == "mixed"   ? affineMap(25, 3, -2, 1.2, 10, -5, x, y)
                          : argument == "shift" ? affineMap(0, 4, -3, 1, 0, 0, x, y)
                                                : affineMap(0, 0, 0, 0.7, 0, 0, x, y);
    warp(image, map, filterOf(name[2]), argument == "mixed" ? turned : dark, spare);
    return spare;
  }
  if (operation == "brightness")
    return adjust::brightness(image, number()), image;
  if (operation == "contrast")
    return adjust::contrast(image, number()), image;
  if (operation == "saturation")
    return adjust::saturation(image, number()), image;
  if (operation == "sharpness")
    return adjust::sharpness(image, number(), spare), image;
  if (operation == "hue")
    return adjust::hue(image, number()), image;
  if (operation == "grayscale")
    return adjust::grayscale(image), image;
  if (operation == "posterize")
    return adjust::posterize(image, int(number())), image;
  if (operation == "solarize")
    return adjust::solarize(image, number()), image;
  if (operation == "autocontrast")
    return adjust::autocontrast(image), image;
  if (operation == "equalize")
    return adjust::equalize(image), image;
  if (operation == "normalise")
    return apply("kind = 'normalise', mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225]");
  if (operation == "to_float")
    return apply("kind = 'to_float'");
  return std::nullopt;
}

class Torchvision : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = SafetensorsFile::open(TORCHVISION_FIXTURES);
    ASSERT_TRUE(opened.ok()) << opened.message();
    file.emplace(opened.take());
  }
  std::optional<SafetensorsFile> file;
};
} // namespace

TEST_F(Torchvision, EveryResult) {
  std::map<std::string, int> checked;
  for (const Tensor &tensor : file->tensors()) {
    const std::vector<std::string> name = split(tensor.name, '/');
    if (name.size() < 2 || name[0] == "mix" || name[0] == "magnitudes")
      continue;
    std::optional<Image> result = call(imageOf(*file->find(name[0])), name);
    ASSERT_TRUE(result) << tensor.name << ": no such call";
    const bool ofTensors = name[1] == "tensor_resize" || name[1] == "no_antialias";
    EXPECT_LE(difference(*result, imageOf(tensor)), ofTensors ? 1 : 0) << tensor.name;
    ++checked[name[1]];
  }
  EXPECT_EQ(checked.size(), 22u) << "operations";
}

TEST_F(Torchvision, Magnitudes) {
  const std::vector<std::string> names = {"Identity",   "ShearX", "ShearY",   "TranslateX", "TranslateY",
                                          "Rotate",     "Brightness", "Color",    "Contrast",   "Sharpness",
                                          "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  for (bool trivial : {false, true})
    for (uint32_t operation = 0; operation < kAugmentations; ++operation) {
      const std::string name = fmt::format("magnitudes/{}/{}", trivial ? "trivial" : "rand", names[operation]);
      const Tensor *tensor = file->find(name);
      ASSERT_TRUE(tensor) << name;
      const std::vector<float> expected = floatsOf(*tensor);
      for (uint32_t bin = 0; bin < 31; ++bin)
        EXPECT_FLOAT_EQ(float(magnitudeOf(Augmentation(operation), trivial, bin, 31, 23, 31)), expected[bin])
            << name << ", bin " << bin;
    }
}

TEST_F(Torchvision, Mixes) {
  const std::vector<float> batch = floatsOf(*file->find("mix/batch"));
  std::vector<float> mixed = batch, cut = batch, spare;
  blendSamples(mixed, 4, 0.3, spare);
  EXPECT_EQ(mixed, floatsOf(*file->find("mix/mixup")));
  moveBoxes(cut, 4, 3, 4, {1, 0, 2, 2}, spare);
  EXPECT_EQ(cut, floatsOf(*file->find("mix/cutmix")));
}
