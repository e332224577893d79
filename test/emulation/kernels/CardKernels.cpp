//===- CardKernels.cpp - recorded launches of kernels, on a card ---------===//
//
// `card-kernels FOLDER` repeats the launches of a record (KernelRecord.h) on the first card, or on the stand-in, and
// compares each result with the recorded one: to the last bit, or where PTX leaves bits open within a hundredth of the
// largest element. Operands lie between guards that no launch may change. The last line of standard output is a summary
// as JSON. Exit status: 0 all agree, 1 some do not, 2 no card or no record.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/Card.h"
#include "runtime/plan/DType.h"
#include "support/MappedFile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

using namespace tcc;
namespace api = tcc::cuda::api;
using json = nlohmann::json;

namespace {
constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xff}; ///< a NaN in every floating-point type
constexpr double kOpenTolerance = 1e-2;

/// An element as a number; integers are compared as bits alone.
std::optional<double> numberAt(const std::byte *bytes, plan::DType type, uint64_t index) {
  if (!plan::isFloatingPoint(type))
    return std::nullopt;
  return plan::floatElement(bytes, type, index);
}

/// A result as a card computed it and as it is recorded.
struct Pair {
  const std::byte *got, *wanted;
};

/// How a result differs from the recorded one; empty where it does not. If the result is the rounding error of another
/// result, `whole` is that one, and the sums of both are compared.
std::string differenceOf(Pair result, std::optional<Pair> whole, uint64_t bytes, plan::DType type, bool open) {
  const auto [got, wanted] = result;
  const uint64_t width = std::max<uint64_t>(plan::dtypeBytes(type), 1), count = bytes / width;
  double largest = 0;
  for (uint64_t i = 0; open && i < count; ++i)
    if (std::optional<double> value = numberAt(whole ? whole->wanted : wanted, type, i); value && std::isfinite(*value))
      largest = std::max(largest, std::abs(*value));
  uint64_t differing = 0, first = 0;
  double worst = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (std::memcmp(got + i * width, wanted + i * width, width) == 0)
      continue;
    std::optional<double> a = numberAt(got, type, i), b = numberAt(wanted, type, i);
    if (a && b && std::isnan(*a) && std::isnan(*b)) // no specification fixes the sign and payload of a NaN
      continue;
    double distance = a && b ? std::abs(*a - *b) : HUGE_VAL;
    if (a && b && whole)
      distance = std::abs(*a - *b + *numberAt(whole->got, type, i) - *numberAt(whole->wanted, type, i));
    if (open && distance <= kOpenTolerance * largest)
      continue;
    if (differing++ == 0)
      first = i;
    worst = std::max(worst, std::isnan(distance) ? HUGE_VAL : distance);
  }
  if (differing == 0)
    return "";
  auto text = [&](const std::byte *from) {
    std::optional<double> value = numberAt(from, type, first);
    return value ? fmt::format("{:.9g}", *value) : "another integer";
  };
  return fmt::format("{} of {} elements differ, by up to {:.3g}; the first is number {}: {} in place of {}", differing,
                     count, worst, first, text(got), text(wanted));
}

plan::DType typeNamed(const std::string &name) {
  static const std::map<std::string, plan::DType> types = {
      {"f64", plan::F64}, {"f32", plan::F32}, {"bf16", plan::BF16}, {"f16", plan::F16}, {"i64", plan::I64},
      {"i32", plan::I32}, {"i16", plan::I16}, {"i8", plan::I8},     {"u64", plan::U64}, {"u32", plan::U32},
      {"u16", plan::U16}, {"u8", plan::U8},   {"i1", plan::I1}};
  auto found = types.find(name);
  return found == types.end() ? plan::I8 : found->second;
}

class Replay {
public:
  Replay(const cuda::DriverLibrary &driver, std::string data) : driver(driver), data(std::move(data)) {}
  ~Replay() {
    if (module)
      (void)driver->moduleUnload(module);
    if (stream)
      (void)driver->streamDestroy(stream);
  }

  Status open() { return driver.check(driver->streamCreate(&stream, api::CU_STREAM_NON_BLOCKING), "making a stream"); }

  /// Repeats a launch. Returns what is wrong with its results, if anything. Error: the card is unusable from now on.
  Expected<std::string> repeat(const json &launch) {
    if (std::string problem = load(launch); !problem.empty())
      return problem;
    api::CUfunction kernel = nullptr;
    if (api::CUresult result =
            driver->moduleGetFunction(&kernel, module, launch.at("kernel").get<std::string>().c_str());
        result != api::CUDA_SUCCESS)
      return "no such kernel: " + driver.textOf(result);
    struct Operand {
      uint64_t offset, bytes, at;
      bool result;
      plan::DType type;
      std::optional<size_t> restOf;
    };
    std::vector<Operand> operands;
    uint64_t end = kGuardBytes;
    auto reserve = [&](uint64_t bytes) {
      const uint64_t offset = end;
      end += (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes;
      return offset;
    };
    for (const json &one : launch.at("operands")) {
      const uint64_t offset =
          one.contains("shares") ? operands.at(one.at("shares").get<size_t>()).offset : reserve(one.at("bytes"));
      operands.push_back({offset, one.at("bytes"), one.at("at"), one.at("result"), typeNamed(one.at("type")),
                          one.contains("rest_of") ? std::optional<size_t>(one.at("rest_of")) : std::nullopt});
    }
    const uint64_t scratchBytes = launch.at("scratch"), scratch = reserve(scratchBytes);
    std::vector<std::byte> before(end, kGuard), after(end);
    for (const Operand &one : operands)
      if (!one.result)
        std::memcpy(before.data() + one.offset, data.data() + one.at, one.bytes);
    api::CUdeviceptr arena = 0;
    Status status = driver.check(driver->memAlloc(&arena, end), "allocating memory");
    if (status.ok())
      status = driver.check(driver->memcpyHtoDAsync(arena, before.data(), end, stream), "copying to the card");
    std::vector<uint64_t> values;
    for (const Operand &one : operands)
      values.push_back(arena + one.offset);
    values.push_back(launch.at("tiles"));
    values.push_back(scratchBytes ? arena + scratch : 0);
    std::vector<void *> parameters;
    for (uint64_t &value : values)
      parameters.push_back(&value);
    if (status.ok())
      status = driver.check(driver->launchKernel(kernel, launch.at("blocks"), 1, 1, launch.at("threads"), 1, 1, 0,
                                                 stream, parameters.data(), nullptr),
                            "launching the kernel");
    if (status.ok())
      status = driver.check(driver->memcpyDtoHAsync(after.data(), arena, end, stream), "copying from the card");
    if (status.ok())
      status = driver.check(driver->streamSynchronize(stream), "waiting for the card");
    if (arena)
      (void)driver->memFree(arena);
    if (!status.ok())
      return status;
    auto pair = [&](const Operand &one) {
      return Pair{after.data() + one.offset, reinterpret_cast<const std::byte *>(data.data()) + one.at};
    };
    std::string problem;
    for (size_t i = 0; i < operands.size() && problem.empty(); ++i)
      if (const Operand &one = operands[i]; one.result) {
        problem = differenceOf(pair(one), one.restOf ? std::optional(pair(operands[*one.restOf])) : std::nullopt,
                               one.bytes, one.type, launch.at("open"));
        if (!problem.empty())
          problem = fmt::format("result {}: {}", i, problem);
      }
    for (const Operand &one : operands)
      if (one.result)
        std::memcpy(after.data() + one.offset, before.data() + one.offset, one.bytes);
    std::memcpy(after.data() + scratch, before.data() + scratch, scratchBytes);
    if (problem.empty() && after != before)
      problem = "bytes outside of the results have changed";
    return problem;
  }

private:
  /// Loads the module of a launch; it stays loaded until a launch needs another one.
  std::string load(const json &launch) {
    const uint64_t at = launch.at("code").at(0), bytes = launch.at("code").at(1);
    if (module && at == loaded)
      return "";
    if (module)
      (void)driver->moduleUnload(module);
    module = nullptr;
    const std::string text = data.substr(at, bytes);
    if (api::CUresult result = driver->moduleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr);
        result != api::CUDA_SUCCESS)
      return "the driver does not take its code: " + driver.textOf(result);
    loaded = at;
    return "";
  }

  const cuda::DriverLibrary &driver;
  const std::string data;
  api::CUstream stream = nullptr;
  api::CUmodule module = nullptr;
  uint64_t loaded = 0;
};
} // namespace

int main(int argc, char **argv) {
  const std::string folder = argc == 2 ? argv[1] : "";
  std::ifstream launches(folder + "/launches.jsonl");
  Expected<std::string> data = readFile(folder + "/data.bin");
  if (!launches || !data) {
    fmt::print(stderr,
               "card-kernels: {} is no record of kernels; make one with TCC_KERNEL_RECORD=FOLDER "
               "emulated-kernel-tests\n",
               folder.empty() ? "nothing" : folder);
    return 2;
  }
  Expected<cuda::DriverLibrary> driver = cuda::DriverLibrary::open();
  Expected<cuda::Card> card = driver ? cuda::Card::open(*driver) : Expected<cuda::Card>(driver.status());
  if (!card) {
    fmt::print(stderr, "card-kernels: {}\n", card.message());
    return 2;
  }
  uint64_t agree = 0, open = 0;
  std::vector<std::string> wrong;
  {
    Replay replay(*driver, data.take());
    Status status = replay.open();
    for (std::string line; status.ok() && std::getline(launches, line);) {
      const json launch = json::parse(line);
      const std::string name =
          fmt::format("{}, kernel {}", launch.at("case").get<std::string>(), launch.at("kernel").get<std::string>());
      Expected<std::string> problem = replay.repeat(launch);
      if (problem && problem->empty()) {
        ++agree;
        open += launch.at("open").get<bool>();
        continue;
      }
      wrong.push_back(name + ": " + (problem ? *problem : problem.message() + "; the launches after it did not run"));
      fmt::print("FAIL {}\n", wrong.back());
      status = problem.status();
    }
  }
  json summary = {{"card", card->name()}, {"agree", agree}, {"within_a_hundredth", open}, {"wrong", wrong}};
  fmt::print("{}\n", summary.dump());
  return wrong.empty() ? 0 : 1;
}
