//===- Shards.cpp - several files as one data set --------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Table.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <charconv>
#include <glob.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The most files that one pattern may name: a typing error such as {0..9999999999} must not exhaust memory.
constexpr size_t kMostFiles = 1'000'000;

/// The numbers of "000..146", with leading zeros if an end has some. Nothing if the text is not a range.
std::optional<std::vector<std::string>> rangeOf(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos)
    return std::nullopt;
  const std::string_view first = text.substr(0, dots), last = text.substr(dots + 2);
  uint64_t from = 0, to = 0;
  for (auto [word, number] : {std::pair(first, &from), std::pair(last, &to)}) {
    auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), *number);
    if (word.empty() || problem != std::errc() || end != word.data() + word.size())
      return std::nullopt;
  }
  if (to < from || to - from >= kMostFiles)
    return std::nullopt;
  const bool padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  const size_t width = padded ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> numbers;
  for (uint64_t number = from; number <= to; ++number)
    numbers.push_back(fmt::format("{:0{}}", number, width));
  return numbers;
}

/// Expands the first braces into each of their alternatives, then the next ones. False if there would be too many.
bool expandBraces(const std::string &text, std::vector<std::string> &out) {
  const size_t open = text.find('{'), close = open == std::string::npos ? open : text.find('}', open);
  if (close == std::string::npos) {
    out.push_back(text);
    return out.size() <= kMostFiles;
  }
  const std::string inner = text.substr(open + 1, close - open - 1);
  std::vector<std::string> words;
  if (auto range = rangeOf(inner)) {
    words = std::move(*range);
  } else {
    for (size_t begin = 0; begin <= inner.size();) {
      const size_t end = std::min(inner.find(',', begin), inner.size());
      words.push_back(inner.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  for (const std::string &word : words)
    if (!expandBraces(text.substr(0, open) + word + text.substr(close + 1), out))
      return false;
  return true;
}

/// The samples of several columns of the same name and type, one after the other.
class JoinedColumn : public Column {
public:
  JoinedColumn(plan::TensorType type, std::vector<std::unique_ptr<Column>> given)
      : Column(given.front()->name(), std::move(type)), parts(std::move(given)) {
    uint64_t end = 0;
    for (const auto &part : parts)
      ends.push_back(end += part->samples());
  }
  bool isText() const override { return parts.front()->isText(); }
  Status usable() const override {
    for (const auto &part : parts)
      if (Status status = part->usable(); !status.ok())
        return status;
    return Status();
  }
  bool holdsTexts() const override { return parts.front()->holdsTexts(); }
  std::string_view textOf(uint64_t index) const override {
    const auto [part, own] = at(index);
    return part->textOf(own);
  }
  bool mayLack() const override {
    return std::any_of(parts.begin(), parts.end(), [](const auto &part) { return part->mayLack(); });
  }
  bool lacks(uint64_t index) const override {
    const auto [part, own] = at(index);
    return part->lacks(own);
  }
  Status readPresent(uint64_t index, std::byte *destination, std::vector<uint64_t> &missing) const override {
    const auto [part, own] = at(index);
    return part->readPresent(own, destination, missing);
  }
  Status read(uint64_t index, std::byte *destination) const override {
    const auto [part, own] = at(index);
    if (!std::equal(part->type().dims().begin() + 1, part->type().dims().end(), type().dims().begin() + 1))
      return error("{}: the sample is {}, the first one of the set {}; bring all images to one size, with "
                   "[[data.transform]] kind = \"resize\" or a crop",
                   part->place(own), plan::typeName(part->type()), plan::typeName(parts.front()->type()));
    return part->read(own, destination);
  }
  bool isSized() const override {
    return std::all_of(parts.begin(), parts.end(), [](const auto &part) { return part->isSized(); });
  }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    const auto [part, own] = at(index);
    return part->extentsOf(own, extents);
  }
  Status drawTo(uint64_t index, const Draw &draw, const Frame &frame, std::byte *destination) const override {
    const auto [part, own] = at(index);
    return part->drawTo(own, draw, frame, destination);
  }
  ImageShape imageShape() const override { return parts.front()->imageShape(); }
  Status readImage(uint64_t index, Image &image) const override {
    const auto [part, own] = at(index);
    return part->readImage(own, image);
  }
  std::string place(uint64_t index) const override {
    const auto [part, own] = at(index);
    return part->place(own);
  }
  Expected<std::optional<uint64_t>> contentHash() const override {
    std::vector<uint64_t> hashes;
    for (const auto &part : parts) {
      auto hash = part->contentHash();
      if (!hash || !*hash)
        return hash;
      hashes.push_back(**hash);
    }
    return std::optional(plan::hashBytes(hashes.data(), hashes.size() * sizeof(uint64_t)));
  }
  bool isComputed() const override { return parts.front()->isComputed(); }
  uint64_t hostBytes() const override {
    uint64_t bytes = 0;
    for (const auto &part : parts)
      bytes += part->hostBytes();
    return bytes;
  }

private:
  /// The part that contains sample `index`, and the sample's index in it.
  std::pair<const Column *, uint64_t> at(uint64_t index) const {
    const auto part = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), index) - ends.begin());
    return {parts[part].get(), index - (part ? ends[part - 1] : 0)};
  }

  std::vector<std::unique_ptr<Column>> parts;
  std::vector<uint64_t> ends; ///< of the parts' samples
};

/// True if both are numbers from text, which may be integers in one file and fractions in the other.
bool areNumbersOfText(const Column &a, const Column &b) {
  auto isNumber = [](const Column &column) {
    return column.isText() && (column.type().dtype() == plan::I64 || column.type().dtype() == plan::F64);
  };
  return isNumber(a) && isNumber(b);
}

/// True if samples of both have the same type: element type, and all dimensions but the first; sizes of images may
/// differ.
bool alike(const Column &a, const Column &b) {
  if ((a.type().dtype() != b.type().dtype() && !areNumbersOfText(a, b)) ||
      a.type().dims_size() != b.type().dims_size() || a.type().dims_size() == 0)
    return false;
  for (int i = 1; i < a.type().dims_size(); ++i)
    if (a.type().dims(i) != b.type().dims(i) && !(a.isSized() && b.isSized()))
      return false;
  return a.isText() == b.isText() && a.holdsTexts() == b.holdsTexts();
}
} // namespace

bool formats::isPattern(const std::string &path) { return path.find_first_of("*?[{") != std::string::npos; }

Expected<std::vector<std::string>> formats::expandPattern(const std::string &pattern) {
  std::vector<std::string> patterns, files;
  if (!expandBraces(pattern, patterns))
    return error("{}: the braces give more than {} names", pattern, kMostFiles);
  for (const std::string &one : patterns) {
    glob_t found{};
    const int result = ::glob(one.c_str(), GLOB_ERR, nullptr, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
      files.push_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result == GLOB_NOMATCH)
      return patterns.size() == 1 ? error("{}: no file has such a name", pattern)
                                  : error("{}: no file has such a name; {} asks for it", one, pattern);
    if (result != 0)
      return error("{}: a folder of it cannot be read", one);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

Expected<Dataset> formats::joinDatasets(const std::string &path, std::vector<Dataset> parts) {
  Dataset joined{.path = path, .format = parts.front().format};
  for (const Dataset &part : parts) {
    if (!part.vocabulary.empty() || !part.classes.empty())
      return error(
          "{}: files of this kind have a meaning of numbers of their own (characters, classes); join them into "
          "one file",
          part.path);
    if (part.columns.size() != parts.front().columns.size())
      return error("{}: its columns are {}, those of {} are {}; files of one data set have the same columns", part.path,
                   part.describeColumns(), parts.front().path, parts.front().describeColumns());
    joined.epochSamples += part.epochSamples;
    joined.shards.push_back(part.columns.empty() ? 0 : part.columns.front()->samples());
  }
  for (const auto &first : parts.front().columns)
    for (const Dataset &part : parts) {
      const Column *own = part.find(first->name());
      if (!own || !alike(*first, *own))
        return error("{}: column '{}' is {}, that of {} is {}; files of one data set have the same columns", part.path,
                     first->name(), own ? columnTypeName(*own) : "missing", parts.front().path,
                     columnTypeName(*first));
    }
  std::vector<std::string> names;
  for (const auto &column : parts.front().columns)
    names.push_back(column->name());
  for (const std::string &name : names) {
    std::vector<std::unique_ptr<Column>> own;
    int64_t samples = 0;
    for (Dataset &part : parts)
      for (auto &column : part.columns)
        if (column && column->name() == name) {
          samples += column->type().dims(0);
          own.push_back(std::move(column));
          break;
        }
    if (std::any_of(own.begin(), own.end(), [&](auto &one) { return one->type().dtype() != own[0]->type().dtype(); }))
      for (auto &one : own)
        one = convertedColumn(std::move(one), plan::F64);
    plan::TensorType type = own.front()->type();
    type.set_dims(0, samples);
    joined.columns.push_back(std::make_unique<JoinedColumn>(std::move(type), std::move(own)));
  }
  return joined;
}
