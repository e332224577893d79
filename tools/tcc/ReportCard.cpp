//===- ReportCard.cpp - what a CUDA card would take at best ---------------===//
//
// Roofline (Williams, Waterman, Patterson, 2009): an instruction takes at least its bytes over the card's bandwidth, and
// its operations over the card's rate, whichever is longer; instructions run one after another. Rates are those of data
// sheets, each operand is moved once, launches take no time: no kernel is faster, most are slower.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportCard.h"

#include "compiler/target/cuda/Cards.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/PlanNames.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace tcc::report {

using Json = nlohmann::ordered_json;

namespace {
constexpr std::string_view kCuda = "cuda:";
constexpr size_t kFloorShown = 8;

/// A kernel whose tiles are single threads.
struct FloorKernel {
  std::string name, loops, node;
  uint64_t count = 0;
  double flops = 0;
};

struct Estimate {
  const target::cuda::Card *card = nullptr;
  bool named = false;
  uint64_t launches = 0;
  double seconds = 0;       ///< products of the library, and of kernels that say so, at the rate of their type; all else at f32's
  double tensorSeconds = 0; ///< at the rate of the plan's products on tensor cores
  double memorySeconds = 0; ///< of `seconds`, where bytes decide
  std::vector<FloorKernel> floor;
};

/// How often a program runs in what the report counts.
uint64_t callsOf(const Report &report, const plan::Entry &entry) {
  if (report.counted == "one update")
    return entries::isOfUpdate(entry.name())
               ? entries::runsPerUpdate(entry.name(), report.plan->training().accumulate(),
                                        plan::mostVirtualRanks(report.plan->training()))
               : 0;
  return report.counted == "one call of " + entry.name();
}

std::optional<Estimate> estimate(const Report &report) {
  const plan::Plan &plan = *report.plan;
  if (!plan.target().starts_with(kCuda))
    return std::nullopt;
  Estimate result;
  result.card = target::cuda::findCard(plan.card());
  result.named = result.card != nullptr;
  if (!result.named)
    result.card = target::cuda::usualCard(std::string_view(plan.target()).substr(kCuda.size()));
  if (!result.card)
    return std::nullopt;
  const plan::DType products = plan.precision() == "bf16" ? plan::BF16 : plan.precision() == "f16" ? plan::F16 : plan::F32;
  const double tensorRate =
      plan.precision() == "tf32" ? result.card->tf32 : target::cuda::productRate(*result.card, products);
  std::set<std::string> single; // kernels of which a thread takes a tile; of generated convolutions it takes an element
  for (const plan::CodeObject &code : plan.code_objects())
    for (const plan::KernelSignature &kernel : code.kernels())
      if (kernel.tile_threads() == 1)
        single.insert(kernel.symbol());
  std::map<std::string, size_t> index;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      const uint64_t calls = callsOf(report, *program.planned);
      if (!calls)
        continue;
      for (const plan::Instruction &instruction : program.planned->instructions()) {
        double bytes = double(instruction.bytes()) / result.card->bytesPerSecond;
        // Other instructions have empty calls: f32's rate.
        const plan::MatmulCall &product = instruction.matmul();
        const plan::ConvolutionCall &convolution = instruction.convolution();
        const plan::DType type = instruction.has_convolution()          ? convolution.dtype()
                                 : instruction.has_attention()          ? instruction.attention().dtype()
                                 : instruction.kernel().loops().empty() ? product.dtype()
                                                                        : instruction.kernel().dtype();
        double rate =
            product.tf32() || convolution.tf32() ? result.card->tf32 : target::cuda::productRate(*result.card, type);
        double flops = instruction.flops() / rate, tensor = instruction.flops() / tensorRate;
        result.launches += calls;
        result.seconds += double(calls) * std::max(bytes, flops);
        result.tensorSeconds += double(calls) * std::max(bytes, tensor);
        result.memorySeconds += bytes >= flops ? double(calls) * bytes : 0;
        if (!single.contains(instruction.kernel().symbol()) && !instruction.kernel().loops().starts_with("conv"))
          continue;
        auto [at, fresh] = index.try_emplace(instruction.kernel().symbol(), result.floor.size());
        if (fresh)
          result.floor.push_back({instructionName(instruction), instruction.kernel().loops(), instruction.node()});
        result.floor[at->second].count += calls;
        result.floor[at->second].flops += double(calls) * instruction.flops();
      }
    }
  std::stable_sort(result.floor.begin(), result.floor.end(),
                   [](const FloorKernel &a, const FloorKernel &b) { return a.flops > b.flops; });
  return result;
}
} // namespace

Json cardJson(const Report &report) {
  std::optional<Estimate> found = estimate(report);
  if (!found)
    return nullptr;
  Json floor = Json::array();
  for (const FloorKernel &kernel : found->floor)
    floor.push_back({{"name", kernel.name},
                     {"loops", kernel.loops},
                     {"node", kernel.node},
                     {"count", kernel.count},
                     {"flops", kernel.flops}});
  Json machineCode = Json::array();
  for (const plan::CodeObject &code : report.plan->code_objects())
    for (const plan::CodeObject::Assembled &one : code.assembled())
      machineCode.push_back({{"architecture", one.architecture()}, {"assembler", one.assembler()}});
  return {{"name", found->card->name},
          {"title", found->card->title},
          {"architecture", found->card->architecture},
          {"source", found->card->source},
          {"named", found->named},
          {"launches", found->launches},
          {"best_seconds", found->seconds},
          {"best_seconds_on_tensor_cores", found->tensorSeconds},
          {"memory_bound_share", found->seconds > 0 ? found->memorySeconds / found->seconds : 0},
          {"machine_code", machineCode},
          {"floor", floor}};
}

std::string cardText(const Report &report) {
  std::optional<Estimate> found = estimate(report);
  if (!found)
    return "";
  std::string text = fmt::format(
      "\ncard: {} ({}){}: {} takes at least {:.3g} ms in {} launches, {:.0f} % of it bound by memory; with every product on "
      "tensor cores {:.3g} ms\n  by the rates of its data sheet ({}); a bound, not a measurement. Products run on cuBLASLt, "
      "convolutions on cuDNN; of generated kernels only attention of bf16 uses tensor cores\n",
      found->card->title, found->card->architecture,
      found->named ? "" : ", of its architecture the usual one (tcc --device-memory names another)", report.counted,
      1e3 * found->seconds, found->launches, found->seconds > 0 ? 100 * found->memorySeconds / found->seconds : 0,
      1e3 * found->tensorSeconds, found->card->source);
  for (const plan::CodeObject &code : report.plan->code_objects())
    if (code.assembled().empty())
      text += "  the plan holds PTX alone: the card's driver compiles it when it first loads the plan\n";
    else
      for (const plan::CodeObject::Assembled &one : code.assembled())
        text += fmt::format("  machine code for {} by {}\n", one.architecture(), one.assembler());
  if (found->floor.empty())
    return text;
  text += "  kernels on the floor, one thread a tile, or an element of a convolution: correct, and slow\n";
  Table rows("><<<", {"calls", "loops", "kernel", "node"});
  for (size_t i = 0; i < std::min(found->floor.size(), kFloorShown); ++i) {
    const FloorKernel &kernel = found->floor[i];
    rows.add({std::to_string(kernel.count), kernel.loops, kernel.name.substr(0, 12), kernel.node});
  }
  if (found->floor.size() > kFloorShown)
    rows.add({"", "", fmt::format("{} more", found->floor.size() - kFloorShown), ""});
  return text + rows.text();
}

} // namespace tcc::report
