//===- ExpectedTime.cpp - the time that a card is expected to take --------===//
#include "tools/common/ExpectedTime.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/ProductSlices.h"
#include "tools/common/InstructionText.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <numeric>

namespace tcc::report {

const char *className(WorkClass one) {
  static constexpr const char *names[kWorkClasses] = {"products",  "convolutions", "attention",   "attention gradient",
                                                      "loss",      "rows",         "elementwise", "sums",
                                                      "optimizer", "lookups",      "copies",      "links",
                                                      "launches"};
  return names[static_cast<size_t>(one)];
}

namespace {
const plan::KernelSignature *signatureOf(const plan::Plan &plan, const plan::KernelCall &call) {
  if (call.code() < static_cast<uint32_t>(plan.code_objects_size()))
    for (const plan::KernelSignature &kernel : plan.code_objects(static_cast<int>(call.code())).kernels())
      if (kernel.symbol() == call.symbol())
        return &kernel;
  return nullptr;
}

/// The input that the loss compares with.
bool isTarget(const plan::Plan &plan, const plan::Entry &entry, uint32_t buffer) {
  return std::any_of(entry.inputs().begin(), entry.inputs().end(), [&](const plan::Port &input) {
    return input.buffer() == buffer && input.name() == plan.training().target();
  });
}

WorkClass classOf(const plan::Plan &plan, const plan::Entry &entry, const plan::Instruction &instruction,
                  const KernelWork *kernel) {
  double read = 0, written = 0, table = 0;
  for (const plan::Operand &operand : instruction.operands()) {
    if (operand.buffer() >= static_cast<uint32_t>(entry.buffers_size()))
      continue;
    const plan::Buffer &buffer = entry.buffers(static_cast<int>(operand.buffer()));
    const double bytes = static_cast<double>(plan::tensorBytes(buffer.type()).value_or(0));
    (operand.write() ? written : read) += bytes;
    table = std::max(table, bytes);
    if (operand.write() && buffer.variable() >= 0 && buffer.variable() < plan.variables_size()) {
      const plan::VariableRole role = plan.variables(buffer.variable()).role();
      if (role == plan::OPTIMIZER || role == plan::PARAMETER || role == plan::EMA)
        return WorkClass::Optimizer;
    }
  }
  for (const plan::Operand &operand : instruction.operands())
    if (isTarget(plan, entry, operand.buffer()))
      return WorkClass::Loss;
  // Of a table, only rows that are looked up count.
  if (instruction.kernel().loops().starts_with("scatter") || table > static_cast<double>(instruction.bytes()))
    return WorkClass::Lookups;
  constexpr double kFew = 1.0 / 16;
  if (written <= kFew * read)
    return WorkClass::Sums;
  return kernel && kernel->shuffles ? WorkClass::Rows : WorkClass::Elementwise;
}

Work kernelWork(const plan::Plan &plan, const plan::KernelCall &call, const KernelWorks &kernels, double bytes,
                const KernelWork **found) {
  Work work;
  work.bytes = bytes;
  const plan::KernelSignature *signature = signatureOf(plan, call);
  auto kernel = kernels.find(call.symbol());
  *found = kernel == kernels.end() ? nullptr : &kernel->second;
  if (*found && signature && !plan::isJoined(call.symbol())) {
    const ThreadWork sum = launchWork(kernel->second, static_cast<double>(call.tiles()),
                                      static_cast<double>(signature->tile_threads()), bytes);
    work.instructions = sum.instructions;
    work.approximations = sum.approximations;
    work.passes = kernel->second.shuffles && !kernel->second.loops.empty();
  }
  return work;
}

/// As cuDNN computes it, with channels padded to an access of tensor cores: forward a row for each pixel of the result,
/// a column for each of its channels; the gradients likewise.
void setConvolution(Work &work, const plan::ConvolutionCall &call) {
  work.kind = WorkClass::Convolutions;
  work.library = call.implementation() == plan::ConvolutionCall::CUDNN;
  if (call.x_dims_size() < 2 || call.w_dims_size() < 2 || call.y_dims_size() < 2)
    return;
  constexpr double kAccessBytes = 16;
  const auto element = static_cast<double>(plan::dtypeBytes(call.dtype()));
  const double access = element > 0 ? std::max(1.0, kAccessBytes / element) : 1;
  auto product = [](const auto &dims, int first) {
    return std::accumulate(dims.begin() + first, dims.end(), 1.0, std::multiplies<>());
  };
  const auto groups = static_cast<double>(std::max<int64_t>(1, call.groups()));
  auto channels = [&](int64_t count) { return std::ceil(static_cast<double>(count) / groups / access) * access; };
  const double pixels = static_cast<double>(call.y_dims(0)) * product(call.y_dims(), 2);
  const double taps = product(call.w_dims(), 2), in = channels(call.x_dims(1)), out = channels(call.y_dims(1));
  work.batch = groups;
  switch (call.kind()) {
  case plan::ConvolutionCall::INPUT_GRADIENT:
    work.m = pixels, work.n = in, work.k = out * taps;
    break;
  case plan::ConvolutionCall::WEIGHT_GRADIENT:
    work.m = out, work.n = in * taps, work.k = pixels;
    break;
  default:
    work.m = pixels, work.n = out, work.k = in * taps;
  }
}

/// Heads of all samples and queries of attention in a kernel, from its statistics of rows: f32, [samples, heads,
/// queries, 1]. Keys are taken to be as many as queries.
void setAttention(Work &work, const plan::Entry &entry, const plan::Instruction &instruction) {
  for (const plan::Operand &operand : instruction.operands()) {
    if (operand.buffer() >= static_cast<uint32_t>(entry.buffers_size()))
      continue;
    const plan::TensorType &type = entry.buffers(static_cast<int>(operand.buffer())).type();
    if (type.dtype() != plan::F32 || type.dims_size() != 4 || type.dims(3) != 1)
      continue;
    work.batch = static_cast<double>(type.dims(0)) * static_cast<double>(type.dims(1));
    work.m = work.n = static_cast<double>(type.dims(2));
  }
}

/// The rate of products of a type divided by that of bf16.
double shareOf(const Card &card, plan::DType type, bool tf32) {
  return (tf32 ? card.tf32 : productRate(card, type)) / card.bf16;
}
} // namespace

std::vector<Work> worksOf(const Card &card, const plan::Plan &plan, const plan::Entry &entry,
                          const plan::Instruction &instruction, const KernelWorks &kernels) {
  Work work;
  work.bytes = static_cast<double>(instruction.bytes());
  work.flops = instruction.flops();
  work.flopsShare =
      shareOf(card, arithmeticType(instruction), instruction.matmul().tf32() || instruction.convolution().tf32());
  const KernelWork *kernel = nullptr;
  switch (instruction.call_case()) {
  case plan::Instruction::kMatmul: {
    const plan::MatmulCall &call = instruction.matmul();
    work.kind = WorkClass::Products;
    work.library = true;
    work.geluGradient = call.epilogue().kind() == plan::Epilogue::GELU_GRADIENT;
    work.batch = static_cast<double>(call.batch()), work.m = static_cast<double>(call.m());
    work.n = static_cast<double>(call.n()), work.k = static_cast<double>(call.k());
    if (!plan::hasSlices(call))
      return {work};
    // The instruction's bytes are those of the factors, and those that the kernel reads and writes beside the slices,
    // which it finds in the second cache.
    const double factors =
        std::min(work.bytes, static_cast<double>(plan::dtypeBytes(call.dtype())) * (work.m + work.n) * work.k);
    Work update = kernelWork(plan, call.row_kernel(), kernels, work.bytes - factors, &kernel);
    update.kind = WorkClass::Optimizer;
    work.launches = update.launches = std::max<int64_t>(1, plan::sliceCount(call));
    work.m = static_cast<double>(call.tile_m());
    work.bytes = factors + static_cast<double>(call.m()) * static_cast<double>(plan::sliceRowBytes(call));
    return {work, update};
  }
  case plan::Instruction::kConvolution:
    setConvolution(work, instruction.convolution());
    return {work};
  case plan::Instruction::kAttention: {
    const plan::AttentionCall &call = instruction.attention();
    work.kind =
        call.kind() == plan::AttentionCall::GRADIENT ? WorkClass::AttentionGradient : WorkClass::AttentionForward;
    work.batch = static_cast<double>(call.batch()) * static_cast<double>(call.heads());
    work.m = static_cast<double>(call.queries()), work.n = static_cast<double>(call.keys());
    work.k = static_cast<double>(call.depth()), work.width = static_cast<double>(call.width());
    work.library = true;
    work.causal = call.causal();
    return {work};
  }
  case plan::Instruction::kKernel:
    break;
  case plan::Instruction::kCollective:
  case plan::Instruction::kTransfer:
    work.kind = WorkClass::Links;
    return {work};
  default:
    work.kind = WorkClass::Copies;
    return {work};
  }
  const plan::KernelCall &call = instruction.kernel();
  Work counted = kernelWork(plan, call, kernels, work.bytes, &kernel);
  counted.flops = work.flops;
  counted.flopsShare = work.flopsShare;
  if (call.loops().starts_with("attention")) {
    counted.kind = call.loops() == "attention" ? WorkClass::AttentionForward : WorkClass::AttentionGradient;
    setAttention(counted, entry, instruction);
    // Three products of TF32 for one of f32 (CudaTarget::flopsPerNs).
    if (arithmeticType(instruction) == plan::F32)
      counted.tilesShare = plan.precision() == "tf32" ? 1.0 / 2 : 1.0 / 6;
    return {counted};
  }
  counted.kind = call.loops().starts_with("conv") ? WorkClass::Convolutions : classOf(plan, entry, instruction, kernel);
  return {counted};
}

namespace {
/// Of work of two kinds of which each partly hides the other.
double together(double a, double b) { return std::hypot(a, b); }

/// A product in tiles, of the shape and the number of parts of K that take least. Each processor computes a tile at a
/// time, so the tiles are computed in waves.
double productSeconds(const Card &card, const nvidia::Rates &rates, const Work &work, double tileShare,
                      double sustainedShare) {
  struct Tile {
    double m, n, share; ///< share: of the rate of the largest
  };
  static constexpr Tile kTiles[] = {{256, 128, 1},    {128, 256, 1},   {192, 128, 0.97}, {128, 192, 0.97},
                                    {128, 128, 0.85}, {256, 64, 0.85}, {64, 256, 0.85},  {128, 64, 0.6},
                                    {64, 128, 0.6},   {64, 64, 0.4}};
  constexpr double kMostParts = 16, kLeastPart = 256;
  const double rate = card.bf16 * work.flopsShare, processors = card.processors;
  const double resultBytes = work.batch * work.m * work.n * sizeof(float);
  const double memory = rates.memoryShare * card.bytesPerSecond;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile &tile : kTiles)
    for (double parts = 1; parts <= kMostParts && (parts == 1 || work.k >= parts * kLeastPart); ++parts) {
      const double tiles = work.batch * std::ceil(work.m / tile.m) * std::ceil(work.n / tile.n) * parts;
      const double one =
          2 * tile.m * tile.n * (work.k / parts + rates.tileOverheadK) / (rate / processors * tileShare * tile.share);
      const double sums = parts > 1 ? (parts + 1) * resultBytes / memory + rates.launchSeconds : 0;
      best = std::min(best, std::ceil(tiles / processors) * one + sums);
    }
  const double sustained = 2 * work.batch * work.m * work.n * work.k / (rate * sustainedShare);
  const double traffic = work.bytes / static_cast<double>(work.launches) / memory;
  return std::max({best, sustained, traffic}); // the next factors are copied while a tile is multiplied
}

/// Rounded up to whole tiles of queries or keys.
double whole(const nvidia::Rates &rates, double count) {
  return std::ceil(count / rates.attentionTile) * rates.attentionTile;
}

/// Operations of attention in a kernel, in whole tiles.
double wholeFlops(const nvidia::Rates &rates, const Work &work) {
  const double queries = work.m > 0 ? whole(rates, work.m) / work.m : 1;
  const double keys = work.n > 0 ? whole(rates, work.n) / work.n : 1;
  return work.flops * queries * keys;
}

/// Operations of a library's attention in whole tiles, with so many products over features of keys and of values.
double attentionFlops(const nvidia::Rates &rates, const Work &work, double depthProducts, double widthProducts) {
  const double tiles = whole(rates, work.n) / rates.attentionTile, share = work.causal ? (tiles + 1) / (2 * tiles) : 1;
  return 2 * work.batch * whole(rates, work.m) * whole(rates, work.n) * share *
         (depthProducts * work.k + widthProducts * work.width);
}

double modelSeconds(const Card &card, const nvidia::Rates &rates, const Work &work) {
  const auto launches = static_cast<double>(work.launches);
  const double traffic = work.bytes / (rates.memoryShare * card.bytesPerSecond);
  switch (work.kind) {
  case WorkClass::Products:
    if (work.geluGradient)
      return launches * productSeconds(card, rates, work, rates.geluGradientShare, rates.geluGradientShare);
    return launches * productSeconds(card, rates, work, rates.tileShare, rates.sustainedShare);
  case WorkClass::Convolutions:
    if (work.library && work.m > 0)
      return productSeconds(card, rates, work, rates.convolutionShare, rates.convolutionShare);
    break;
  case WorkClass::AttentionForward:
    if (!work.library)
      return wholeFlops(rates, work) / (rates.attentionShare * work.tilesShare * card.bf16);
    return together(attentionFlops(rates, work, 1, 1) / (rates.attentionCallShare * card.bf16), traffic);
  case WorkClass::AttentionGradient:
    if (!work.library)
      return wholeFlops(rates, work) / (rates.attentionGradientShare * work.tilesShare * card.bf16);
    return together(attentionFlops(rates, work, 3, 2) / (rates.attentionGradientCallShare * card.bf16), traffic) +
           rates.attentionGradientCallSeconds;
  case WorkClass::Links:
  case WorkClass::Launches:
    return 0;
  default:
    break;
  }
  const double clock = card.f32 / (rates.operationsPerCycle * card.processors), slots = 4 * card.processors * clock;
  const double issue = std::max(work.instructions / (rates.issueShare * slots),
                                rates.approximationCycles * work.approximations / (card.processors * clock));
  return work.passes ? traffic + issue : together(traffic, issue);
}
} // namespace

double expectedSeconds(const Card &card, const nvidia::Rates &rates, const Work &work) {
  if (work.kind == WorkClass::Links)
    return 0;
  const double least = std::max(work.bytes / card.bytesPerSecond, work.flops / (card.bf16 * work.flopsShare));
  return std::max(modelSeconds(card, rates, work), least);
}

void ExpectedTime::add(const Card &card, const nvidia::Rates &rates, const std::vector<Work> &works, double calls) {
  for (const Work &work : works) {
    seconds[static_cast<size_t>(work.kind)] += calls * expectedSeconds(card, rates, work);
    if (work.kind != WorkClass::Links)
      seconds[static_cast<size_t>(WorkClass::Launches)] +=
          calls * static_cast<double>(work.launches) * rates.launchSeconds;
  }
}

double ExpectedTime::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

std::string classesText(const ExpectedTime &time) {
  std::vector<size_t> order(kWorkClasses);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return time.seconds[a] > time.seconds[b]; });
  constexpr double kFew = 0.005;
  std::string text;
  double others = 0;
  for (size_t one : order)
    if (time.seconds[one] > kFew * time.total())
      text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", className(static_cast<WorkClass>(one)),
                          1e3 * time.seconds[one]);
    else
      others += time.seconds[one];
  return text + (others > 0 ? fmt::format("{}others {:.2g}", text.empty() ? "" : ", ", 1e3 * others) : "");
}

} // namespace tcc::report
