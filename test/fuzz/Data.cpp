//===- Data.cpp - fuzz target: every format of data sets -----------------===//
//
// The first byte chooses the format, by the file's name as users choose it; the rest is the file.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Dataset.h"
#include "test/fuzz/InputFolder.h"

#include <algorithm>

namespace {
struct Kind {
  const char *file;   ///< where the input is written
  const char *opened; ///< what is opened: the file, or a folder above it
  std::pair<const char *, const char *> setting;
};
/// Inputs of the corpus name kinds by their index, so that new kinds go to the end.
constexpr Kind kKinds[] = {
    {"d.safetensors", "d.safetensors", {}},
    {"d.npz", "d.npz", {}},
    {"d.npy", "d.npy", {}},
    {"columns/x.npy", "columns", {}},
    {"d.tar", "d.tar", {}},
    {"d.tgz", "d.tgz", {}},
    {"train-images-idx3-ubyte", "train-images-idx3-ubyte", {}},
    {"train-images-idx3-ubyte.gz", "train", {}},
    {"data_batch_1.bin", "data_batch_1.bin", {}},
    {"c.bin", "c.bin", {"format", "cifar100"}},
    {"d.csv", "d.csv", {}},
    {"d.txt", "d.txt", {"tokens", "chars"}},
    {"d.txt", "d.txt", {"tokens", "bytes"}},
    {"d.bin", "d.bin", {}},
    {"d.bin", "d.bin", {"tokens", "uint32"}},
    {"images/a/1.jpg", "images", {}},
    {"images/a/1.png", "images", {}},
    {"d.jsonl", "d.jsonl", {}},
    {"d.json", "d.json", {"missing.*", "\"mean\""}},
    {"d.csv", "d.csv", {"categories.c", "\"sorted\""}},
    {"d.csv", "d.csv", {"transform", "tables = [ { kind = 'standardise', column = 'x' } ]"}},
    {"d.parquet", "d.parquet", {}},
    {"d.arrow", "d.arrow", {"categories.c", "\"sorted\""}},
};
/// The first kSamples samples of each column and its last one are read, unless a sample is larger than kSampleBytes.
constexpr uint64_t kSamples = 16, kSampleBytes = 1 << 24;
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tcc::fuzz::InputFolder folder;
  if (size == 0)
    return 0;
  const Kind &kind = kKinds[data[0] % std::size(kKinds)];
  folder.clear();
  folder.write(kind.file, {data + 1, size - 1});
  tcc::runtime::DatasetOptions options;
  options.windowLength = 8;
  options.learnsFacts = true;
  options.memoryBytes = uint64_t(1) << 30; // larger sizes in a header are refused, not allocated
  if (kind.setting.first)
    options.settings[kind.setting.first] = kind.setting.second;
  auto dataset = tcc::runtime::openDataset(folder.path + "/" + kind.opened, options);
  if (!dataset)
    return 0;
  for (const auto &column : dataset->columns) {
    const uint64_t bytes = column->sampleBytes();
    if (bytes > kSampleBytes)
      continue;
    size_t characters = 0;
    for (uint64_t i = 0; column->holdsTexts() && i < column->samples(); ++i)
      for (char c : column->textOf(i))
        characters += static_cast<unsigned char>(c);
    (void)(characters + column->usable().message().size());
    std::vector<std::byte> sample(bytes);
    for (uint64_t i = 0; i < std::min(column->samples(), kSamples); ++i)
      (void)column->read(i, sample.data());
    if (column->samples() > kSamples)
      (void)column->read(column->samples() - 1, sample.data());
  }
  return 0;
}
