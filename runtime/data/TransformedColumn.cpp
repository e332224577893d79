//===- TransformedColumn.cpp - transforms of columns -----------------------===//
//
// `[[data.transform]]` tables, in order. The transforms of a column become one column that wraps it: it reads a sample
// as an image (bytes stay bytes), runs the transforms on it and returns f32, or bytes if no transform converts them.
// The sizes of the first image after the transforms are the column's sizes.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Convert.h"
#include "runtime/data/Formats.h"
#include "runtime/data/ImageCache.h"
#include "runtime/data/Table.h"
#include "runtime/data/transforms/Transform.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;
using recipe::TransformKind;
using recipe::TransformSpec;

namespace {
/// Two scratch images of the thread; new ones if nested columns already use them.
struct ThreadImages {
  Image image = std::move(kept()[0]), spare = std::move(kept()[1]);
  ThreadImages() = default;
  ThreadImages(const ThreadImages &) = delete;
  ThreadImages &operator=(const ThreadImages &) = delete;
  ~ThreadImages() {
    kept()[0] = std::move(image);
    kept()[1] = std::move(spare);
  }
  static std::array<Image, 2> &kept() {
    thread_local std::array<Image, 2> images;
    return images;
  }
};

class TransformedColumn : public Column {
public:
  struct Step {
    TransformPointer transform;
    uint32_t number; ///< its position in the recipe; random numbers depend on seed, epoch, sample and this number
  };
  /// `flat`: a sample is a matrix, an image of one channel without a channel axis. `drawsBase`: the base has random
  /// transforms of its own.
  TransformedColumn(std::unique_ptr<Column> base, plan::TensorType type, ImageShape result, std::vector<Step> steps,
                    bool flat, bool drawsBase)
      : Column(base->name(), std::move(type)), base(std::move(base)), result(result), steps(std::move(steps)),
        flat(flat), drawsBase(drawsBase) {}

  Status read(uint64_t index, std::byte *destination) const override { return draw(index, {}, destination); }

  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override {
    ThreadImages images;
    Image &image = images.image;
    if (Status status = make(index, draw, image, images.spare); !status.ok())
      return status;
    if (image.channels != result.channels || image.height != result.height || image.width != result.width)
      return error("{}: the sample has {}x{} pixels after its transforms, the first one of the set {}x{}; bring all to "
                   "one size: with a size of two numbers, or a crop",
                   where(index), image.width, image.height, result.width, result.height);
    std::memcpy(destination, bytesOf(image), image.elements() * plan::dtypeBytes(type().dtype()));
    return Status();
  }

  bool isSized() const override { return base->isSized() && !drawsBase && (flat || type().dims_size() == 4); }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    ImageShape shape = result;
    if (std::ranges::none_of(steps, [](const Step &step) { return step.transform->fixesSize(); }))
      if (Status status = shapeOf(index, steps.size(), shape); !status.ok())
        return status;
    size_t axis = 0;
    if (!flat)
      extents[axis++] = shape.channels;
    extents[axis] = shape.height;
    extents[axis + 1] = shape.width;
    return Status();
  }
  Status drawTo(uint64_t index, const Draw &draw, const Frame &frame, std::byte *destination) const override {
    ThreadImages images;
    Image &image = images.image;
    if (Status status = make(index, draw, image, images.spare); !status.ok())
      return status;
    const std::array<uint64_t, 3> extents = {image.channels, image.height, image.width};
    writeToFrame(bytesOf(image), std::span(extents).subspan(flat ? 1 : 0), frame, destination);
    return Status();
  }

  bool mayLack() const override { return base->mayLack(); }
  bool lacks(uint64_t index) const override { return base->lacks(index); }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }
  bool isComputed() const override { return true; }

private:
  /// The shape of sample `index` after the first `count` steps. Error: its size cannot be read, or a step refuses it.
  Status shapeOf(uint64_t index, size_t count, ImageShape &shape) const {
    std::array<uint32_t, 3> extents = {1, 1, 1};
    const auto rank = static_cast<size_t>(base->type().dims_size()) - 1;
    if (Status status = base->extentsOf(index, std::span(extents).first(rank)); !status.ok())
      return status;
    if (std::ranges::find(extents, 0u) != extents.end())
      return error("{}: the sample has no pixels", where(index));
    shape = base->imageShapeWith(std::span(extents).first(rank));
    if (flat)
      shape = {1, extents[0], extents[1], shape.floats, true};
    for (const Step &step : std::span(steps).first(count)) {
      Expected<ImageShape> after = step.transform->shapeAfter(shape);
      if (!after)
        return after.status().withContext(where(index));
      shape = *after;
    }
    return Status();
  }

  /// Reads a sample and applies the transforms; the result has the column's element type.
  Status make(uint64_t index, const Draw &draw, Image &image, Image &spare) const {
    size_t done = 0;
    if (Status status = drawsBase            ? drawBase(index, draw, image)
                        : base->readsParts() ? readCut(index, draw, image, spare, done)
                                             : base->readImage(index, image);
        !status.ok())
      return status;
    if (flat) {
      image.width = image.height;
      image.height = std::exchange(image.channels, 1);
    }
    for (const Step &step : std::span(steps).subspan(done)) {
      Random random(draw, index, step.number);
      if (Status status = step.transform->apply(image, spare, random); !status.ok())
        return status.withContext(where(index));
    }
    if (type().dtype() == plan::F32 && !image.floats)
      toFloat(image, 255);
    return Status();
  }

  static const std::byte *bytesOf(const Image &image) {
    return image.floats ? reinterpret_cast<const std::byte *>(image.values.data())
                        : reinterpret_cast<const std::byte *>(image.bytes.data());
  }

  Status drawBase(uint64_t index, const Draw &draw, Image &image) const {
    const ImageShape shape = base->imageShape();
    image.reshape(shape.channels, shape.height, shape.width, /*newFloats=*/true);
    return base->draw(index, draw, reinterpret_cast<std::byte *>(image.values.data()));
  }

  /// Reads only the part of the image that the first transforms crop and scale, and applies them; `done` is set to
  /// their number.
  Status readCut(uint64_t index, const Draw &draw, Image &image, Image &spare, size_t &done) const {
    Cut cut;
    auto choose = [&](uint32_t height, uint32_t width) {
      cut = Cut::of(height, width);
      for (; done < steps.size(); ++done) {
        Random random(draw, index, steps[done].number);
        if (!steps[done].transform->narrow(cut, random))
          break;
      }
      return Expected(cut.source());
    };
    if (Status status = base->readPart(index, choose, image); !status.ok())
      return status;
    if (cut.isScaled()) {
      cut.make(image, spare);
      std::swap(image, spare);
    }
    return Status();
  }

  std::string where(uint64_t index) const {
    const std::string file = base->place(index);
    return file.empty() ? fmt::format("column '{}', sample {}", name(), index) : file;
  }

  std::unique_ptr<Column> base;
  ImageShape result;
  std::vector<Step> steps;
  bool flat, drawsBase;
};

/// Class probabilities of integer labels.
class OneHotColumn : public Column {
public:
  OneHotColumn(std::unique_ptr<Column> base, plan::TensorType type, double smoothing)
      : Column(base->name(), std::move(type)), base(std::move(base)), smoothing(smoothing) {}

  Status read(uint64_t index, std::byte *destination) const override {
    std::byte stored[8];
    if (Status status = base->read(index, stored); !status.ok())
      return status;
    const int64_t label = integerElement(stored, base->type().dtype(), 0), classes = type().dims(1);
    if (label < 0 || label >= classes)
      return error("column '{}', sample {}: label {} is no class: one_hot has classes = {}, from 0 to {}", name(),
                   index, label, classes, classes - 1);
    auto *values = reinterpret_cast<float *>(destination);
    std::fill_n(values, classes, static_cast<float>(smoothing / static_cast<double>(classes)));
    values[label] = static_cast<float>(1 - smoothing + smoothing / static_cast<double>(classes));
    return Status();
  }
  bool mayLack() const override { return base->mayLack(); }
  bool lacks(uint64_t index) const override { return base->lacks(index); }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }

private:
  std::unique_ptr<Column> base;
  double smoothing;
};

/// The type of the column after its images get the shape `shape`.
plan::TensorType typeAfter(const plan::TensorType &type, const ImageShape &shape) {
  plan::TensorType after = type;
  after.set_dtype(type.dtype() == plan::F32 || shape.floats ? plan::F32 : plan::U8);
  if (type.dims_size() == 3 && shape.planes) {
    after.set_dims(1, shape.height);
    after.set_dims(2, shape.width);
  } else if (shape.planes) {
    after.set_dims(1, shape.channels);
    after.set_dims(2, shape.height);
    after.set_dims(3, shape.width);
  }
  return after;
}

/// The kind with all arguments, on which a cached sample depends.
std::string textOf(const TransformSpec &spec) {
  std::ostringstream text;
  text << spec.kind->name << ' ' << toml::json_formatter(spec.arguments, toml::format_flags::none) << ';';
  return text.str();
}

/// True if the first transform is arithmetic that applies to any numbers.
bool worksOnNumbers(std::span<const TransformSpec> specs) {
  return specs.front().kind->name == "scale" || specs.front().kind->name == "normalise";
}

/// Wraps `column` in transforms of images. `cache`: the folder of data.cache, or empty. `shared` maps the number of a
/// transform that also moves a mask to the shape of its input, as set by the column or the mask, whichever was wrapped
/// first.
Status wrap(std::unique_ptr<Column> &column, std::span<const TransformSpec> specs, const std::string &cache,
            const DatasetOptions &options, std::map<size_t, ImageShape> &shared, bool casts,
            bool drawsBase) {
  if (!specs.empty() && specs.front().ofMasks && !column->holdsImages())
    return error(
        "{}: mask = '{}' is {}; store class numbers as u8, or shares as f32: [samples, height, width] or [samples, "
        "channels, height, width]",
        specs.front().place(), column->name(), plan::typeName(column->type()));
  // Numbers become f32, f64 only if they come from text or by data.cast.
  if (!specs.empty() && worksOnNumbers(specs) && column->usable().ok() && !column->holdsImages() &&
      mayConvert(column->type().dtype(), plan::F32, column->isText() || casts ||
                                                        !plan::isFloatingPoint(column->type().dtype())))
    column = convertedColumn(std::move(column), plan::F32);
  if (!specs.empty() && !column->usable().ok())
    return column->usable().withContext(specs.front().place());
  if (!specs.empty() && (!column->holdsImages() || column->type().dims_size() < 1))
    return error("{}: column '{}' is {}; f32 and u8 columns can be transformed", specs.front().place(), column->name(),
                 plan::typeName(column->type()));
  ImageShape shape = column->imageShape();
  const bool flat = !specs.empty() && specs.front().ofMasks && column->type().dims_size() == 3;
  if (flat)
    shape = {1, shape.channels, shape.height, shape.floats, true};
  std::vector<TransformedColumn::Step> steps;
  // The cache includes the transforms up to the first that is random or returns floats.
  CachedPart cached;
  cached.shape = shape;
  bool caching = !cache.empty();
  for (const TransformSpec &spec : specs) {
    if (!spec.mask.empty() || spec.ofMasks)
      if (auto [found, isNew] = shared.try_emplace(spec.number, shape);
          !isNew && (found->second.height != shape.height || found->second.width != shape.width))
        return error("{}: image and mask must have one size here, and have {}x{} and {}x{}", spec.place(),
                     found->second.width, found->second.height, shape.width, shape.height);
    TransformPointer transform = makeTransform(spec);
    if (!transform)
      return error("{}: this version has no such transform", spec.place());
    Expected<ImageShape> after = transform->shapeAfter(shape);
    if (!after)
      return after.status().withContext(fmt::format("{}: column '{}' {}", spec.place(), column->name(),
                                                    plan::typeName(typeAfter(column->type(), shape))));
    shape = *after;
    caching = caching && !spec.kind->random && !shape.floats;
    if (caching) {
      cached.shape = shape;
      cached.text += textOf(spec);
      cached.transforms.push_back(std::move(transform));
      continue;
    }
    steps.push_back({std::move(transform), static_cast<uint32_t>(spec.number)});
  }
  plan::TensorType type = typeAfter(column->type(), shape);
  if (!cache.empty()) {
    cached.base = std::move(column);
    auto made = cacheImages(std::move(cached), cache, options);
    if (!made)
      return made.status();
    column = made.take();
  }
  column =
      std::make_unique<TransformedColumn>(std::move(column), std::move(type), shape, std::move(steps), flat, drawsBase);
  return Status();
}

Status makeOneHot(std::unique_ptr<Column> &column, const TransformSpec &spec) {
  if (Status status = column->usable(); !status.ok())
    return status.withContext(spec.place());
  plan::TensorType type = column->type();
  if (plan::isFloatingPoint(type.dtype()) || type.dtype() == plan::I1 || type.dims_size() != 1)
    return error("{}: column '{}' is {}; it needs one integer a sample", spec.place(), column->name(),
                 plan::typeName(type));
  type.set_dtype(plan::F32);
  type.add_dims(spec.integer("classes"));
  column = std::make_unique<OneHotColumn>(std::move(column), std::move(type), spec.real("smoothing"));
  return Status();
}
} // namespace

/// Decoded from JPEG or PNG: worth a cache.
static bool isCompressed(const Column &column) {
  return column.isComputed() && column.holdsImages() && column.type().dims_size() == 4;
}

Status formats::applyTransforms(Dataset &dataset, const std::string &transforms, const DatasetOptions &options) {
  Expected<std::vector<TransformSpec>> read = std::vector<TransformSpec>();
  if (!transforms.empty())
    read = recipe::parseTransforms(transforms);
  if (!read)
    return read.status();
  std::string cache = settingText(options.settings, "cache");
  if (!cache.empty() && std::none_of(dataset.columns.begin(), dataset.columns.end(),
                                     [](const auto &column) { return isCompressed(*column); })) {
    cache.clear();
    if (options.note)
      options.note(Message::note("data.cache: {} holds no JPEG or PNG images; nothing is cached", dataset.path));
  }
  std::vector<TransformSpec> specs;
  const TransformSpec *ofTokens = nullptr;
  for (TransformSpec &spec : *read) {
    if (!(options.training ? spec.inTraining : spec.inEvaluation))
      continue;
    if (!dataset.find(spec.column) && options.predicting)
      continue; // a target that no input reads
    if (!dataset.find(spec.column) && spec.kind->works != TransformKind::Works::OnTokens)
      return error("{}: {} has no column '{}'; it has {}", spec.place(), dataset.path, spec.column,
                   dataset.describeColumns());
    if (spec.kind->works == TransformKind::Works::OnTokens) {
      if (options.predicting)
        continue;
      if (ofTokens)
        return error("{}: {} changes the windows already; give one of them", spec.place(), ofTokens->place());
      if (Status status = transformTokens(dataset, spec); !status.ok())
        return status;
      ofTokens = &spec;
      continue;
    }
    if (!spec.mask.empty() && !dataset.find(spec.mask))
      return error("{}: mask: {} has no column '{}'; it has {}", spec.place(), dataset.path, spec.mask,
                   dataset.describeColumns());
    if (spec.kind->works == TransformKind::Works::OnBatches)
      dataset.batchTransforms.push_back(std::move(spec));
    else
      specs.push_back(std::move(spec));
    if (!specs.empty() && !specs.back().mask.empty())
      specs.push_back(specs.back().ofMask());
  }
  std::map<size_t, ImageShape> shared;
  for (std::unique_ptr<Column> &column : dataset.columns) {
    std::vector<TransformSpec> own;
    for (TransformSpec &spec : specs)
      if (spec.column == column->name())
        own.push_back(std::move(spec));
    std::string folder = isCompressed(*column) ? cache : "";
    if (!folder.empty() && (own.empty() || own.front().kind->works != TransformKind::Works::OnImages)) {
      if (Status status = wrap(column, {}, folder, options, shared, false, false); !status.ok())
        return status;
      folder.clear();
    }
    int standards = 0;
    for (size_t begin = 0; begin < own.size();) {
      if (own[begin].kind->works == TransformKind::Works::OnNumbers) {
        if (Status status = standardise(column, own[begin], ++standards, dataset, options); !status.ok())
          return status;
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < own.size() && own[end].kind->works == TransformKind::Works::OnImages)
        ++end;
      Status status = end > begin ? wrap(column, std::span(own).subspan(begin, end - begin), std::exchange(folder, ""),
                                         options, shared, dataset.castsToF32, standards > 0)
                                  : makeOneHot(column, own[end++]);
      if (!status.ok())
        return status;
      begin = end;
    }
  }
  return Status();
}
