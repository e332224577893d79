//===- Geometry.cpp - resize, crops, flips, rotation, affine maps ----------===//
//
// torchvision's transforms on Pillow images, with its distributions. Crops and flips also work on f32.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Transform.h"
#include "runtime/data/transforms/Warp.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;
using recipe::TransformSpec;

namespace {
struct Size {
  uint32_t height, width;
};
/// A single number is the side of a square.
Size sizeOf(const TransformSpec &spec) {
  std::vector<int64_t> sides = spec.integers("size");
  return {uint32_t(sides.front()), uint32_t(sides.back())};
}

std::vector<uint8_t> levelsOf(const TransformSpec &spec) {
  std::vector<uint8_t> levels;
  for (double level : spec.numbers("fill"))
    levels.push_back(uint8_t(level));
  return levels;
}

ImageShape withSize(ImageShape shape, uint32_t height, uint32_t width) {
  shape.height = height;
  shape.width = width;
  return shape;
}

class Resize : public Transform {
public:
  explicit Resize(const TransformSpec &spec)
      : sides(spec.integers("size")), most(spec.has("max_size") ? spec.integer("max_size") : 0),
        filter(filterOf(spec.word("interpolation"))), antialias(spec.flag("antialias")) {}

  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsBytes(shape); !status.ok())
      return status;
    const Size size = sizeFor(shape.height, shape.width);
    return withSize(shape, size.height, size.width);
  }
  bool fixesSize() const override { return sides.size() == 2; }
  Status apply(Image &image, Image &spare, Random &) const override {
    const Size size = sizeFor(image.height, image.width);
    if (size.height == 0 || size.width == 0)
      return error("an image of {}x{} would become {}x{}, which has no pixels", image.width, image.height, size.width,
                   size.height);
    resample(image, {0, 0, image.height, image.width}, size.height, size.width, filter, antialias, spare);
    std::swap(image, spare);
    return Status();
  }
  bool narrow(Cut &cut, Random &) const override {
    const Size size = sizeFor(cut.window.height, cut.window.width);
    if (cut.isScaled() || size.height == 0 || size.width == 0)
      return false;
    cut.scale(size.height, size.width, filter, antialias);
    return true;
  }

private:
  Size sizeFor(uint32_t height, uint32_t width) const {
    if (sides.size() == 2)
      return {uint32_t(sides[0]), uint32_t(sides[1])};
    const uint32_t least = std::min(height, width), greatest = std::max(height, width);
    // As torchvision: quotients of doubles, truncated.
    auto shorter = double(sides[0]), longer = double(int64_t(shorter * greatest / least));
    if (most != 0 && longer > double(most)) {
      shorter = double(int64_t(double(most) * shorter / longer));
      longer = double(most);
    }
    constexpr double kMost = 65535;
    const auto few = uint32_t(std::min(shorter, kMost)), many = uint32_t(std::min(longer, kMost));
    return width <= height ? Size{many, few} : Size{few, many};
  }
  std::vector<int64_t> sides;
  int64_t most;
  Filter filter;
  bool antialias;
};

enum class PaddingMode { Constant, Edge, Reflect, Symmetric };

/// The pixels that padding adds on each side, and their values.
struct Padding {
  uint32_t left = 0, top = 0, right = 0, bottom = 0;
  PaddingMode mode = PaddingMode::Constant;
  std::vector<uint8_t> levels = {0};

  static Padding of(const TransformSpec &spec) {
    std::vector<int64_t> sides = spec.integers("padding");
    if (sides.size() == 1)
      sides.resize(2, sides.front());
    if (sides.size() == 2)
      sides = {sides[0], sides[1], sides[0], sides[1]};
    const std::string mode = spec.word("padding_mode");
    return {uint32_t(sides[0]),
            uint32_t(sides[1]),
            uint32_t(sides[2]),
            uint32_t(sides[3]),
            mode == "edge"        ? PaddingMode::Edge
            : mode == "reflect"   ? PaddingMode::Reflect
            : mode == "symmetric" ? PaddingMode::Symmetric
                                  : PaddingMode::Constant,
            levelsOf(spec)};
  }

  /// The position in [0, count) whose pixel is shown at `place`, which may be outside; −1: the fill.
  int64_t source(int64_t place, int64_t count) const {
    if (place >= 0 && place < count)
      return place;
    if (mode == PaddingMode::Constant)
      return -1;
    if (mode == PaddingMode::Edge || count == 1)
      return std::clamp<int64_t>(place, 0, count - 1);
    const int64_t period = mode == PaddingMode::Reflect ? 2 * (count - 1) : 2 * count;
    place = ((place % period) + period) % period;
    if (place < count)
      return place;
    return mode == PaddingMode::Reflect ? period - place : period - 1 - place;
  }

  /// Pads `image` and crops it to the height × width pixels from (top, left) on.
  void cut(Image &image, Image &spare, int64_t fromTop, int64_t fromLeft, Size size) const {
    const int64_t height = image.height, width = image.width;
    spare.reshape(image.channels, size.height, size.width, image.floats);
    const int64_t firstX = fromLeft - left, firstY = fromTop - top;
    withElement(image, [&](auto type) {
      using T = decltype(type);
      for (uint32_t c = 0; c < image.channels; ++c) {
        const uint8_t level = levels[levels.size() == 1 ? 0 : c];
        const T fill = image.floats ? T(float(level) / 255.0f) : T(level);
        const T *plane = image.data<T>() + c * image.plane();
        for (uint32_t y = 0; y < size.height; ++y) {
          T *out = spare.data<T>() + c * spare.plane() + size_t(y) * size.width;
          const int64_t sourceY = source(firstY + y, height);
          if (sourceY < 0) {
            std::fill_n(out, size.width, fill);
            continue;
          }
          const T *row = plane + sourceY * width;
          // The part inside the image is a copy.
          const int64_t begin = std::clamp<int64_t>(-firstX, 0, size.width),
                        end = std::clamp<int64_t>(width - firstX, begin, size.width);
          auto outside = [&](int64_t x) {
            const int64_t sourceX = source(firstX + x, width);
            out[x] = sourceX < 0 ? fill : row[sourceX];
          };
          for (int64_t x = 0; x < begin; ++x)
            outside(x);
          if (end > begin)
            std::memcpy(out + begin, row + firstX + begin, size_t(end - begin) * sizeof(T));
          for (int64_t x = end; x < size.width; ++x)
            outside(x);
        }
      }
    });
    std::swap(image, spare);
  }
};

/// Half a number of pixels; for an odd number rounded as by Python's round, half to even.
int64_t halfRounded(int64_t count) {
  const int64_t half = count >> 1;
  return count % 2 == 0 ? half : half + (half & 1);
}

class CenterCrop : public Transform {
public:
  explicit CenterCrop(const TransformSpec &spec) : size(sizeOf(spec)) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    return withSize(shape, size.height, size.width);
  }
  bool fixesSize() const override { return true; }
  Status apply(Image &image, Image &spare, Random &) const override {
    Padding padding;
    auto beside = [](uint32_t wanted, uint32_t have) { return wanted > have ? wanted - have : 0; };
    const uint32_t downwards = beside(size.height, image.height), across = beside(size.width, image.width);
    padding.top = downwards / 2;
    padding.bottom = (downwards + 1) / 2;
    padding.left = across / 2;
    padding.right = (across + 1) / 2;
    const int64_t height = int64_t(image.height) + downwards, width = int64_t(image.width) + across;
    padding.cut(image, spare, halfRounded(height - size.height), halfRounded(width - size.width), size);
    return Status();
  }
  bool narrow(Cut &cut, Random &) const override {
    if (size.height > cut.window.height || size.width > cut.window.width)
      return false; // the crop needs padding
    cut.narrow({uint32_t(halfRounded(cut.window.height - size.height)),
                uint32_t(halfRounded(cut.window.width - size.width)), size.height, size.width});
    return true;
  }

private:
  Size size;
};

class RandomCrop : public Transform {
public:
  explicit RandomCrop(const TransformSpec &spec)
      : size(sizeOf(spec)), padding(Padding::of(spec)), ifNeeded(spec.flag("pad_if_needed")) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    if (Status status = perChannel("fill", padding.levels.size(), shape); !status.ok())
      return status;
    return withSize(shape, size.height, size.width);
  }
  bool fixesSize() const override { return true; }
  Status apply(Image &image, Image &spare, Random &random) const override {
    Padding all = padding;
    auto widen = [&](uint32_t &before, uint32_t &after, uint32_t have, uint32_t wanted) {
      if (ifNeeded && have + before + after < wanted) {
        const uint32_t missing = wanted - (have + before + after);
        before += missing; // torchvision pads both sides by all missing pixels
        after += missing;
      }
    };
    widen(all.left, all.right, image.width, size.width);
    widen(all.top, all.bottom, image.height, size.height);
    const int64_t height = int64_t(image.height) + all.top + all.bottom,
                  width = int64_t(image.width) + all.left + all.right;
    if (height < size.height || width < size.width)
      return error("random_crop: the image has {}x{} pixels with its padding, the crop {}x{}; set `padding`, or "
                   "`pad_if_needed = true`",
                   width, height, size.width, size.height);
    const uint32_t top = random.below(uint32_t(height - size.height + 1)),
                   left = random.below(uint32_t(width - size.width + 1));
    all.cut(image, spare, top, left, size);
    return Status();
  }
  bool narrow(Cut &cut, Random &random) const override {
    if (padding.left + padding.top + padding.right + padding.bottom != 0 || cut.window.height < size.height ||
        cut.window.width < size.width)
      return false;
    const uint32_t top = random.below(cut.window.height - size.height + 1);
    cut.narrow({top, random.below(cut.window.width - size.width + 1), size.height, size.width});
    return true;
  }

private:
  Size size;
  Padding padding;
  bool ifNeeded;
};

class Pad : public Transform {
public:
  explicit Pad(const TransformSpec &spec) : padding(Padding::of(spec)) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    if (Status status = perChannel("fill", padding.levels.size(), shape); !status.ok())
      return status;
    return withSize(shape, shape.height + padding.top + padding.bottom, shape.width + padding.left + padding.right);
  }
  Status apply(Image &image, Image &spare, Random &) const override {
    padding.cut(image, spare, 0, 0,
                {image.height + padding.top + padding.bottom, image.width + padding.left + padding.right});
    return Status();
  }

private:
  Padding padding;
};

class RandomResizedCrop : public Transform {
public:
  explicit RandomResizedCrop(const TransformSpec &spec)
      : size(sizeOf(spec)), scale(spec.numbers("scale")), ratio(spec.numbers("ratio")),
        filter(filterOf(spec.word("interpolation"))), antialias(spec.flag("antialias")) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsBytes(shape); !status.ok())
      return status;
    return withSize(shape, size.height, size.width);
  }
  bool fixesSize() const override { return true; }
  Status apply(Image &image, Image &spare, Random &random) const override {
    resample(image, choose(image.height, image.width, random), size.height, size.width, filter, antialias, spare);
    std::swap(image, spare);
    return Status();
  }
  bool narrow(Cut &cut, Random &random) const override {
    if (cut.isScaled())
      return false;
    cut.narrow(choose(cut.window.height, cut.window.width, random));
    cut.scale(size.height, size.width, filter, antialias);
    return true;
  }

private:
  Box choose(uint32_t height, uint32_t width, Random &random) const {
    const double area = double(height) * width, low = std::log(ratio[0]), high = std::log(ratio[1]);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double part = area * random.uniform(scale[0], scale[1]), aspect = std::exp(random.uniform(low, high));
      const auto w = uint32_t(std::nearbyint(std::sqrt(part * aspect))),
                 h = uint32_t(std::nearbyint(std::sqrt(part / aspect)));
      if (w > 0 && w <= width && h > 0 && h <= height) {
        const uint32_t top = random.below(height - h + 1);
        return {top, random.below(width - w + 1), h, w};
      }
    }
    const double aspect = double(width) / height;
    uint32_t h = height, w = width;
    if (aspect < ratio[0])
      h = uint32_t(std::nearbyint(w / ratio[0]));
    else if (aspect > ratio[1])
      w = uint32_t(std::nearbyint(h * ratio[1]));
    h = std::clamp<uint32_t>(h, 1, height);
    w = std::clamp<uint32_t>(w, 1, width);
    return {(height - h) / 2, (width - w) / 2, h, w};
  }
  Size size;
  std::vector<double> scale, ratio;
  Filter filter;
  bool antialias;
};

class Flip : public Transform {
public:
  Flip(const TransformSpec &spec, bool horizontal) : probability(spec.real("p")), horizontal(horizontal) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsPlanes(shape); !status.ok())
      return status;
    return shape;
  }
  Status apply(Image &image, Image &, Random &random) const override {
    if (!random.chance(probability))
      return Status();
    withElement(image, [&](auto type) {
      using T = decltype(type);
      for (uint32_t c = 0; c < image.channels; ++c) {
        T *plane = image.data<T>() + c * image.plane();
        for (uint32_t y = 0; horizontal && y < image.height; ++y)
          std::reverse(plane + size_t(y) * image.width, plane + size_t(y + 1) * image.width);
        for (uint32_t y = 0; !horizontal && y < image.height / 2; ++y)
          std::swap_ranges(plane + size_t(y) * image.width, plane + size_t(y + 1) * image.width,
                           plane + size_t(image.height - 1 - y) * image.width);
      }
    });
    return Status();
  }

private:
  double probability;
  bool horizontal;
};

/// [−v, v] of one number.
std::vector<double> symmetric(std::vector<double> range) {
  if (range.size() == 1)
    range = {-std::fabs(range[0]), std::fabs(range[0])};
  return range;
}

/// Warps of bytes with a filter and a fill.
class Warping : public Transform {
public:
  explicit Warping(const TransformSpec &spec)
      : degrees(symmetric(spec.numbers("degrees"))), filter(filterOf(spec.word("interpolation"))),
        levels(levelsOf(spec)) {}
  Expected<ImageShape> shapeAfter(const ImageShape &shape) const override {
    if (Status status = needsBytes(shape); !status.ok())
      return status;
    if (Status status = perChannel("fill", levels.size(), shape); !status.ok())
      return status;
    return shape;
  }

protected:
  std::vector<double> degrees;
  Filter filter;
  std::vector<uint8_t> levels;
};

class Rotation : public Warping {
public:
  using Warping::Warping;
  Status apply(Image &image, Image &spare, Random &random) const override {
    rotate(image, random.uniform(degrees[0], degrees[1]), filter, levels, spare);
    return Status();
  }
};

class Affine : public Warping {
public:
  explicit Affine(const TransformSpec &spec)
      : Warping(spec), translate(spec.numbers("translate")), scale(spec.numbers("scale")),
        shear(symmetric(spec.numbers("shear"))) {}
  Status apply(Image &image, Image &spare, Random &random) const override {
    const double turn = random.uniform(degrees[0], degrees[1]);
    double shiftX = 0, shiftY = 0;
    if (!translate.empty()) {
      const double mostX = translate[0] * image.width, mostY = translate[1] * image.height;
      shiftX = std::nearbyint(random.uniform(-mostX, mostX));
      shiftY = std::nearbyint(random.uniform(-mostY, mostY));
    }
    const double factor = scale.empty() ? 1 : random.uniform(scale[0], scale[1]);
    const double shearX = shear.empty() ? 0 : random.uniform(shear[0], shear[1]);
    const double shearY = shear.size() < 4 ? 0 : random.uniform(shear[2], shear[3]);
    warp(image, affineMap(turn, shiftX, shiftY, factor, shearX, shearY, image.width * 0.5, image.height * 0.5), filter,
         levels, spare);
    std::swap(image, spare);
    return Status();
  }

private:
  std::vector<double> translate, scale, shear;
};
} // namespace

TransformPointer tcc::runtime::makeGeometry(const TransformSpec &spec) {
  const std::string &kind = spec.kind->name;
  if (kind == "resize")
    return std::make_unique<Resize>(spec);
  if (kind == "center_crop")
    return std::make_unique<CenterCrop>(spec);
  if (kind == "random_crop")
    return std::make_unique<RandomCrop>(spec);
  if (kind == "random_resized_crop")
    return std::make_unique<RandomResizedCrop>(spec);
  if (kind == "pad")
    return std::make_unique<Pad>(spec);
  if (kind == "horizontal_flip" || kind == "vertical_flip")
    return std::make_unique<Flip>(spec, kind == "horizontal_flip");
  if (kind == "rotation")
    return std::make_unique<Rotation>(spec);
  if (kind == "affine")
    return std::make_unique<Affine>(spec);
  return nullptr;
}
