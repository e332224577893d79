//===- Tokens.cpp - token files and text as windows ----------------------===//
//
// A stream of tokens is cut into windows of the model's sequence length. `tokens` is a window, `targets` the window one
// token later (or the same one, if the graph shifts). A character becomes its index in the sorted vocabulary of the
// training text, which the run keeps.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint32_t kCodePoints = 0x110000; // of Unicode

/// Window `index` is the `length` tokens from index · stride + shift on.
class WindowColumn : public Column {
public:
  WindowColumn(std::string name, plan::TensorType type, std::span<const std::byte> tokens,
               std::shared_ptr<const void> owner, uint64_t stride, uint64_t shift, uint64_t hostBytes)
      : Column(std::move(name), std::move(type)), tokens(tokens), owner(std::move(owner)), stride(stride), shift(shift),
        host(hostBytes) {}

  Status read(uint64_t index, std::byte *destination) const override {
    uint64_t width = plan::dtypeBytes(type().dtype());
    std::memcpy(destination, tokens.data() + (index * stride + shift) * width, sampleBytes());
    return Status();
  }
  uint64_t hostBytes() const override { return host; }

private:
  std::span<const std::byte> tokens;
  std::shared_ptr<const void> owner;
  uint64_t stride, shift, host;
};

/// Cuts `count` tokens into windows, after selecting the requested part.
Expected<Dataset> makeWindows(Dataset dataset, const DatasetOptions &options, plan::DType dtype,
                                    std::span<const std::byte> bytes, std::shared_ptr<const void> owner, bool owned) {
  uint64_t width = plan::dtypeBytes(dtype), count = bytes.size() / width;
  auto boundary = static_cast<uint64_t>(static_cast<double>(count) * (1 - options.evalSplit));
  if (options.part == DatasetOptions::Part::Head)
    count = boundary;
  else if (options.part == DatasetOptions::Part::Tail) {
    bytes = bytes.subspan(boundary * width);
    count -= boundary;
  }
  if (options.windowLength < 1)
    return error(
        "{}: a token file needs a model with an integer input of rank 2, [batch, sequence]: its sequence "
        "length is the window",
        dataset.path);
  if (bytes.empty())
    return error("{}: the data set is empty: {} no token", dataset.path,
                       options.part == DatasetOptions::Part::All ? "the file holds" : "data.eval_split leaves");
  uint64_t length = static_cast<uint64_t>(options.windowLength), after = options.sameWindow ? 0 : 1;
  if (count < length + after)
    return error("{}: too few tokens: one window takes {}, {} holds {}", dataset.path, length + after,
                       options.part == DatasetOptions::Part::All ? "the file" : "its part by data.eval_split", count);
  uint64_t consecutive = (count - after) / length;
  uint64_t windows = options.overlappingWindows ? count - after - length + 1 : consecutive;
  uint64_t stride = options.overlappingWindows ? 1 : length;
  if (options.overlappingWindows)
    dataset.epochSamples = consecutive;
  plan::TensorType type;
  type.set_dtype(dtype);
  type.add_dims(static_cast<int64_t>(windows));
  type.add_dims(options.windowLength);
  dataset.columns.push_back(
      std::make_unique<WindowColumn>("tokens", type, bytes, owner, stride, 0, owned ? bytes.size() : 0));
  dataset.columns.push_back(std::make_unique<WindowColumn>("targets", type, bytes, owner, stride, after, 0));
  return dataset;
}

/// Decodes one code point of strict UTF-8 and advances `at`. Nothing if the bytes are invalid.
std::optional<uint32_t> decodeUtf8(std::span<const unsigned char> text, size_t &at) {
  unsigned char lead = text[at];
  if (lead < 0x80)
    return text[at++];
  int more = lead >= 0xf0 && lead < 0xf5 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead >= 0xf5 || at + static_cast<size_t>(more) >= text.size())
    return std::nullopt;
  uint32_t value = lead & (0x3f >> more);
  for (int i = 1; i <= more; ++i) {
    unsigned char next = text[at + static_cast<size_t>(i)];
    if ((next & 0xc0) != 0x80)
      return std::nullopt;
    value = value << 6 | (next & 0x3f);
  }
  static constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (value < kLeast[more] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    return std::nullopt;
  at += static_cast<size_t>(more) + 1;
  return value;
}

/// Calls `use` with each code point and its number; false if the bytes at `at` are not UTF-8 or `use` returns false.
template <typename Use> bool forEachPoint(std::span<const unsigned char> text, size_t &at, Use use) {
  for (uint64_t number = 0; at < text.size(); ++number) {
    size_t next = at;
    auto point = decodeUtf8(text, next);
    if (!point || !use(*point, number))
      return false;
    at = next;
  }
  return true;
}

/// Windows of characters as indices into the vocabulary; the text has `characters` characters.
template <typename Token>
Expected<Dataset> windowsOf(Dataset dataset, const DatasetOptions &options, plan::DType dtype,
                                  std::span<const unsigned char> text, uint64_t characters) {
  limits::MemoryAllowance memory(options.memoryBytes);
  if (Status status = memory.take(dataset.path, characters * sizeof(Token)); !status.ok())
    return status;
  auto greatest = std::max_element(dataset.vocabulary.begin(), dataset.vocabulary.end());
  std::vector<Token> rankOf(greatest == dataset.vocabulary.end() ? 0 : *greatest + 1);
  for (size_t rank = 0; rank < dataset.vocabulary.size(); ++rank)
    rankOf[dataset.vocabulary[rank]] = static_cast<Token>(rank);
  auto tokens = std::make_shared<std::vector<Token>>();
  tokens->reserve(characters);
  size_t at = 0;
  forEachPoint(text, at, [&](uint32_t point, uint64_t) {
    tokens->push_back(rankOf[point]);
    return true;
  });
  std::span<const std::byte> bytes = std::as_bytes(std::span<const Token>(*tokens));
  return makeWindows(std::move(dataset), options, dtype, bytes, tokens, true);
}
} // namespace

std::string tcc::runtime::encodeUtf8(uint32_t point) {
  auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (point < 0x80)
    return {byte(point)};
  if (point < 0x800)
    return {byte(0xc0 | point >> 6), byte(0x80 | (point & 0x3f))};
  if (point < 0x10000)
    return {byte(0xe0 | point >> 12), byte(0x80 | (point >> 6 & 0x3f)), byte(0x80 | (point & 0x3f))};
  return {byte(0xf0 | point >> 18), byte(0x80 | (point >> 12 & 0x3f)), byte(0x80 | (point >> 6 & 0x3f)),
          byte(0x80 | (point & 0x3f))};
}

Expected<Dataset> formats::openTokens(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  std::string kind = settingText(options.settings, "tokens");
  if (kind.empty())
    kind = "uint16";
  if (kind != "uint16" && kind != "uint32")
    return error("{}: data.tokens = \"{}\" does not fit a .bin file; use \"uint16\" or \"uint32\"", path, kind);
  plan::DType dtype = kind == "uint16" ? plan::U16 : plan::U32;
  std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() % plan::dtypeBytes(dtype) != 0)
    return error("{}: truncated, or not of {} tokens: {} bytes", path, kind, bytes.size());
  return makeWindows(Dataset{.path = path, .format = "token"}, options, dtype, bytes, file, false);
}

Expected<Dataset> formats::openText(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  std::string kind = settingText(options.settings, "tokens");
  if (kind.empty())
    kind = "chars";
  if (kind != "chars" && kind != "bytes")
    return error("{}: data.tokens = \"{}\" does not fit a .txt file; use \"chars\" or \"bytes\"", path, kind);
  Dataset dataset{.path = path, .format = "text"};
  std::span<const std::byte> bytes = file->bytes();
  if (kind == "bytes")
    return makeWindows(std::move(dataset), options, plan::U8, bytes, file, false);
  std::span<const unsigned char> text(reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size());
  // Two passes over the file, instead of keeping its characters in memory.
  std::vector<bool> known(kCodePoints, false);
  for (uint32_t point : options.vocabulary.value_or(std::vector<uint32_t>()))
    if (point < kCodePoints)
      known[point] = true;
  uint64_t characters = 0;
  uint32_t last = 0; // after the greatest code point
  std::optional<uint32_t> unknown;
  size_t at = 0;
  bool good = forEachPoint(text, at, [&](uint32_t point, uint64_t number) {
    characters = number + 1;
    if (options.vocabulary && !known[point])
      unknown = point;
    known[point] = true;
    last = std::max(last, point + 1);
    return !unknown;
  });
  if (unknown)
    return error("{}: character {} ('{}', U+{:04X}) is not in the training text's vocabulary; remove it, train on a "
                 "text that has it, or read both as bytes with data.tokens = \"bytes\" (a vocabulary of 256)",
                 path, characters, encodeUtf8(*unknown), *unknown);
  if (!good)
    return error("{}: not UTF-8 at byte {}; convert the file, or read it with data.tokens = \"bytes\"", path, at);
  if (options.vocabulary)
    dataset.vocabulary = *options.vocabulary;
  else
    for (uint32_t point = 0; point < last; ++point)
      if (known[point])
        dataset.vocabulary.push_back(point);
  std::erase_if(dataset.vocabulary, [](uint32_t point) { return point >= kCodePoints; });
  if (dataset.vocabulary.size() <= 256)
    return windowsOf<uint8_t>(std::move(dataset), options, plan::U8, text, characters);
  return windowsOf<uint32_t>(std::move(dataset), options, plan::U32, text, characters);
}
