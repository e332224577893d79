//===- loader.cpp - images a second of the loader --------------------------===//
//
//   loader-bench PATH TABLES WORKERS BATCH SECONDS [CACHE]
//
// Opens the data set with the transforms TABLES (`[{ kind = … }, …]`), takes batches for SECONDS and prints JSON: images a
// second, and images for each second of processor time. CACHE is the folder of data.cache; writing it is not counted. loader.py runs it beside torchvision.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Loader.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>

using namespace tcc;
using namespace tcc::runtime;

static int fail(const std::string &message) {
  fmt::print(stderr, "{}\n", message);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 6 && argc != 7)
    return fail("loader-bench PATH TABLES WORKERS BATCH SECONDS [CACHE]");
  DatasetOptions options;
  options.training = true;
  options.settings["transform"] = std::string("tables = ") + argv[2];
  if (argc == 7)
    options.settings["cache"] = argv[6];
  auto data = openDataset(argv[1], options);
  if (!data)
    return fail(data.message());
  const int64_t batch = std::atoll(argv[4]);
  const Column *image = data->find("image");
  plan::Entry entry;
  entry.set_batch(batch);
  for (const char *name : {"image", "label"}) {
    plan::Port *port = entry.add_inputs();
    port->set_name(name);
    port->set_buffer(static_cast<uint32_t>(entry.buffers_size()));
    plan::TensorType type = data->find(name)->type();
    type.set_dims(0, batch);
    *entry.add_buffers()->mutable_type() = type;
  }
  auto reader = BatchReader::bind(entry, *data, {});
  if (!reader)
    return fail(reader.message());
  const uint64_t samples = image->samples();
  const Sampler sampler(samples, samples, static_cast<uint64_t>(batch), SampleOrder::Shuffled, 1, LastBatch::Drop);
  std::vector<std::vector<std::byte>> memory;
  for (uint64_t bytes : reader->inputBytes())
    memory.emplace_back(bytes);
  const std::vector<std::span<std::byte>> given(memory.begin(), memory.end());
  std::vector<uint64_t> indices;
  Loader loader({&*reader}, sampler, 1, 0, 0, static_cast<unsigned>(std::atoi(argv[3])));
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const double limit = std::atof(argv[5]);
  uint64_t images = 0;
  const auto begin = Clock::now();
  const std::clock_t processor = std::clock();
  for (; seconds(begin) < limit; images += indices.size())
    if (Status status = loader.take(indices, given); !status.ok())
      return fail(status.message());
  const double wall = seconds(begin), used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  fmt::print("{{\"images_per_s\": {:.1f}, \"images_per_core_s\": {:.1f}, \"cores\": {:.2f}}}\n",
             static_cast<double>(images) / wall, static_cast<double>(images) / used, used / wall);
  return 0;
}
