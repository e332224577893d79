//===- Dataset.cpp - detect the format of a data set ----------------------===//
#include "runtime/data/Dataset.h"
#include "runtime/data/Formats.h"
#include "runtime/data/Ragged.h"
#include "runtime/data/Table.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;

namespace {
std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool isIdxImages(const std::string &name) {
  return name.find("images-idx") != std::string::npos || name.find("images.idx") != std::string::npos;
}

Expected<Dataset> openIdx(formats::File images, const std::string &labels, const DatasetOptions &options) {
  std::error_code code;
  if (!fs::exists(labels, code))
    return error("{}: no such file; it holds the labels of {}", labels, images->path());
  auto opened = MappedFile::open(labels);
  if (!opened)
    return opened.status();
  return formats::openIdx(std::move(images), opened.take(), options);
}

/// "…images-idx3-ubyte.gz" → "…labels-idx1-ubyte.gz", compressed or not, whichever exists.
std::string labelsOf(const std::string &images) {
  std::string labels = images;
  size_t at = labels.rfind("images");
  labels.replace(at, 6, "labels");
  if (size_t idx = labels.find("idx", at); idx != std::string::npos && idx + 3 < labels.size())
    labels[idx + 3] = '1';
  std::error_code code;
  if (fs::exists(labels, code))
    return labels;
  std::string other = labels.ends_with(".gz") ? labels.substr(0, labels.size() - 3) : labels + ".gz";
  return fs::exists(other, code) ? other : labels;
}

bool isCifarName(const std::string &name) {
  return (name.starts_with("data_batch") || name.starts_with("test_batch")) && name.ends_with(".bin");
}

Expected<Dataset> openFile(formats::File file, const DatasetOptions &options) {
  const std::string path = file->path();
  std::string name = fs::path(path).filename().string(), extension = lower(fs::path(path).extension().string());
  std::string format = settingText(options.settings, "format");
  if (format == "cifar10" || format == "cifar100")
    return formats::openCifar({file}, format == "cifar100");
  if (!format.empty())
    return error("data.format = \"{}\" is unknown; it is only needed for cifar10 and cifar100", format);
  if (isIdxImages(name))
    return openIdx(file, labelsOf(path), options);
  if (isCifarName(name))
    return formats::openCifar({file}, false);
  if (extension == ".safetensors")
    return formats::openSafetensors(file);
  if (extension == ".npz")
    return formats::openNpz(file, options);
  if (extension == ".npy")
    return formats::openNpy(file);
  if (extension == ".bin")
    return formats::openTokens(file, options);
  if (extension == ".txt")
    return formats::openText(file, options);
  if (extension == ".csv" || extension == ".tsv")
    return formats::openCsv(file, options);
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json")
    return formats::openJsonLines(file, options);
  if (extension == ".parquet" || extension == ".pq" || extension == ".arrow" || extension == ".feather" ||
      extension == ".arrows" || extension == ".ipc")
    return formats::openArrow(file, options);
  if (extension == ".tar" || extension == ".tgz" || name.ends_with(".tar.gz"))
    return formats::openImageTars(path, {file}, options);
  if (formats::isImageName(name))
    return formats::openImages(path, {path}, options);
  if (extension == ".gz" || extension == ".zst" || extension == ".bz2" || extension == ".xz")
    return error("{}: of compressed files only .tar.gz and those of IDX are read; unpack it first{}", path,
                 extension == ".gz" ? ": gunzip -k FILE" : "");
  return error(
      "{}: unknown kind of data; known are .safetensors, .npz, .npy, .csv, .tsv, .jsonl, .json, .parquet, .arrow, "
      ".feather, .bin, .txt, .tar, .jpg, .png, IDX and CIFAR files, and folders; write other data from Python: "
      "numpy.savez(\"data.npz\", x=x, labels=labels)",
      path);
}

bool isTarName(const std::string &path) {
  const std::string name = lower(path);
  return name.ends_with(".tar") || name.ends_with(".tgz") || name.ends_with(".tar.gz");
}

/// Several files as one data set, in the order of their names.
Expected<Dataset> openFiles(const std::string &path, const std::vector<std::string> &names,
                            const DatasetOptions &options) {
  std::vector<formats::File> files;
  for (const std::string &name : names) {
    auto file = MappedFile::open(name);
    if (!file)
      return file.status();
    files.push_back(file.take());
  }
  if (std::all_of(names.begin(), names.end(), isTarName))
    return formats::openImageTars(path, files, options);
  std::vector<Dataset> parts;
  for (size_t i = 0; i < files.size(); ++i) {
    if (options.scanning)
      options.scanning(i, files.size(), 0);
    auto part = openFile(files[i], options);
    if (!part)
      return part.status();
    part->path = names[i];
    parts.push_back(part.take());
  }
  return formats::joinDatasets(path, std::move(parts));
}

Expected<Dataset> openPath(const std::string &path, const DatasetOptions &options) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  return openFile(file.take(), options);
}

Expected<Dataset> openFolder(const std::string &path, const DatasetOptions &options) {
  std::vector<std::string> npy, idx, cifar, tars, images;
  bool folders = false;
  std::error_code code, ignored;
  for (fs::directory_iterator entry(path, code), end; !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string(), file = entry->path().string();
    folders |= entry->is_directory(ignored);
    if (name.ends_with(".npy"))
      npy.push_back(file);
    else if (isIdxImages(name))
      idx.push_back(file);
    else if (name.starts_with("data_batch") && name.ends_with(".bin"))
      cifar.push_back(file);
    else if (isTarName(name))
      tars.push_back(file);
    else if (formats::isImageName(name))
      images.push_back(file);
  }
  if (code)
    return error("{}: cannot read the folder: {}", path, code.message());
  for (auto *files : {&npy, &idx, &cifar, &tars, &images})
    std::sort(files->begin(), files->end());
  if (!npy.empty())
    return formats::openNpyFolder(path, npy);
  if (idx.size() > 1)
    return error("{}: several IDX image files; name one of them, e.g. {}", path, idx.back());
  if (idx.size() == 1)
    return openPath(idx.front(), options);
  if (!cifar.empty()) {
    std::vector<formats::File> files;
    for (const std::string &name : cifar) {
      auto file = MappedFile::open(name);
      if (!file)
        return file.status();
      files.push_back(file.take());
    }
    return formats::openCifar(files, settingText(options.settings, "format") == "cifar100");
  }
  if (!tars.empty() && !folders)
    return openFiles(path, tars, options);
  if (folders)
    return formats::openImageFolder(path, options);
  if (!images.empty())
    return formats::openImages(path, images, options);
  return error("{}: the folder holds no known kind of data: .npy files, IDX files, data_batch*.bin, tars, or "
               "class folders of images",
                     path);
}

/// A path that names no file may be the common prefix of an IDX pair's names: "mnist/train".
std::optional<std::string> idxByPrefix(const std::string &path) {
  std::error_code code;
  for (const char *suffix :
       {"-images-idx3-ubyte", "-images-idx3-ubyte.gz", "-images.idx3-ubyte", "-images.idx3-ubyte.gz"})
    if (fs::exists(path + suffix, code))
      return path + suffix;
  return std::nullopt;
}

Status takePart(Dataset &dataset, const DatasetOptions &options) {
  uint64_t samples = 0;
  for (const auto &column : dataset.columns)
    samples = std::max(samples, column->samples());
  if (samples == 0)
    return error("{}: the data set is empty: it holds no sample", dataset.path);
  auto boundary = static_cast<uint64_t>(static_cast<double>(samples) * (1 - options.evalSplit));
  bool tail = options.part == DatasetOptions::Part::Tail;
  if (boundary == 0 || boundary == samples)
    return error("{}: data.eval_split = {} leaves no sample for {}", dataset.path, options.evalSplit,
                       boundary == 0 ? "training" : "evaluation");
  // The tail of class folders would contain only the last classes.
  const bool byClass = !dataset.classes.empty();
  for (auto &column : dataset.columns)
    if (column->samples() == samples && byClass)
      column = std::make_unique<SliceColumn>(std::move(column), samples - boundary,
                                             tail ? SliceColumn::Take::HeldBack : SliceColumn::Take::Rest);
    else if (column->samples() == samples)
      column = std::make_unique<SliceColumn>(std::move(column), tail ? boundary : 0, tail ? samples : boundary);
  if (byClass) {
    dataset.shards.clear();
    return Status();
  }
  uint64_t begin = 0;
  for (uint64_t &shard : dataset.shards) {
    const uint64_t end = begin + shard, first = std::max(begin, tail ? boundary : 0),
                   last = std::min(end, tail ? samples : boundary);
    shard = last > first ? last - first : 0;
    begin = end;
  }
  return Status();
}

void takeFew(Dataset &dataset, uint64_t limit) {
  uint64_t samples = 0;
  for (const auto &column : dataset.columns)
    samples = std::max(samples, column->samples());
  if (limit >= samples)
    return;
  for (auto &column : dataset.columns)
    if (column->samples() == samples)
      column = std::make_unique<SliceColumn>(std::move(column), limit);
  dataset.epochSamples = std::min(dataset.epochSamples, limit);
  dataset.shards.clear();
}

/// The steps common to all formats: the requested part, and transforms.
Expected<Dataset> finish(Expected<Dataset> dataset, const std::string &path,
                               const DatasetOptions &options) {
  if (!dataset)
    return dataset;
  dataset->path = path;
  bool tokens = dataset->format == "token" || dataset->format == "text";
  if (Status status = joinRagged(*dataset, options); !status.ok())
    return status;
  if (options.part != DatasetOptions::Part::All && !tokens)
    if (Status status = takePart(*dataset, options); !status.ok())
      return status;
  if (options.limit != 0)
    takeFew(*dataset, options.limit);
  if (Status status = applyColumnRules(*dataset, options); !status.ok())
    return status;
  dataset->castsToF32 = settingText(options.settings, "cast") == "f32";
  if (const std::string end = settingText(options.settings, "document_end"); !end.empty())
    if (Status status = addDocuments(*dataset, std::strtoll(end.c_str(), nullptr, 10)); !status.ok())
      return status;
  const std::string transforms = settingText(options.settings, "transform");
  if (!transforms.empty() || !settingText(options.settings, "cache").empty())
    if (Status status = formats::applyTransforms(*dataset, transforms, options); !status.ok())
      return status;
  return dataset;
}
} // namespace

const Column *Dataset::find(const std::string &name) const {
  for (const auto &column : columns)
    if (column->name() == name)
      return column.get();
  return nullptr;
}

std::string Dataset::describeColumns() const {
  if (columns.empty())
    return "no columns";
  std::string text;
  constexpr size_t kMost = 20;
  for (size_t i = 0; i < std::min(columns.size(), kMost); ++i)
    text += fmt::format("{}'{}' {}", i ? ", " : "", columns[i]->name(), columnTypeName(*columns[i]));
  if (columns.size() > kMost)
    text += fmt::format(" and {} more", columns.size() - kMost);
  return text;
}

uint64_t Dataset::hostBytes() const {
  uint64_t bytes = 0;
  for (const auto &column : columns)
    bytes += column->hostBytes() + column->sizesBytes();
  return bytes;
}

std::string tcc::runtime::settingText(const DataMap &settings, const std::string &key) {
  auto found = settings.find(key);
  if (found == settings.end())
    return "";
  const std::string &text = found->second;
  bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

/// Transforms of tokens derive targets from the window itself, and may need longer windows than the model's input.
static DatasetOptions withWindows(const DatasetOptions &given) {
  DatasetOptions options = given;
  if (options.windowLength > 0)
    options.windowLength = static_cast<int64_t>(windowLengthOf(given, static_cast<uint64_t>(given.windowLength)));
  options.sameWindow |= makesOwnTargets(given);
  return options;
}

Expected<Dataset> tcc::runtime::openDataset(const std::string &path, const DatasetOptions &given) {
  const DatasetOptions options = withWindows(given);
  std::error_code code;
  if (fs::is_directory(path, code))
    return finish(openFolder(path, options), path, options);
  if (fs::exists(path, code))
    return finish(openPath(path, options), path, options);
  if (auto images = idxByPrefix(path))
    return finish(openPath(*images, options), path, options);
  if (formats::isPattern(path)) {
    auto names = formats::expandPattern(path);
    if (!names)
      return names.status();
    return finish(names->size() == 1 ? openPath(names->front(), options) : openFiles(path, *names, options), path,
                  options);
  }
  return error("{}: no such file or folder", path);
}

Expected<Dataset> tcc::runtime::openDatasetBytes(const std::string &name, std::string bytes,
                                                       const DatasetOptions &given) {
  const DatasetOptions options = withWindows(given);
  return finish(openFile(MappedFile::fromBytes(name, std::move(bytes)), options), name, options);
}

Expected<Dataset> tcc::runtime::openDatasetColumns(const std::string &name,
                                                   std::vector<std::unique_ptr<Column>> columns,
                                                   const DatasetOptions &given) {
  Dataset dataset{.path = name, .format = "columns in memory"};
  for (std::unique_ptr<Column> &column : columns) {
    if (dataset.find(column->name()))
      return error("{}: two columns have the name '{}'", name, column->name());
    dataset.columns.push_back(std::move(column));
  }
  return finish(std::move(dataset), name, withWindows(given));
}
