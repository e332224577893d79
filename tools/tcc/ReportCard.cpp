//===- ReportCard.cpp - the time of a step on a CUDA card -----------------===//
//
// Sums the roofline times (Cards.h) and the expected times (ExpectedTime.h) of all instructions, which run one after
// another.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/PlanNames.h"
#include "tools/common/Cards.h"
#include "tools/common/ExpectedTime.h"
#include "tools/common/InstructionText.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace tcc::report {

using Json = nlohmann::ordered_json;

namespace {
constexpr size_t kFloorShown = 8;

/// A kernel whose tiles are single threads.
struct FloorKernel {
  std::string name, loops, node;
  uint64_t count = 0;
  double flops = 0;
};

struct Estimate {
  const Card *card = nullptr;
  bool named = false;
  uint64_t launches = 0;
  /// Products whose rows go to a kernel in slices, and their part of `launches`.
  uint64_t sliced = 0, sliceLaunches = 0;
  uint64_t slicedBytes = 0;   ///< bytes that their results would take if they were stored whole
  double seconds =
      0; ///< products of the library, and of kernels that say so, at the rate of their type; all else at f32's
  double tensorSeconds = 0; ///< at the rate of the plan's products on tensor cores
  double memorySeconds = 0; ///< of `seconds`, where bytes decide
  double librarySeconds = 0; ///< of `seconds`, calls of libraries
  ExpectedTime expected;
  bool measured = false; ///< the rates of the expected time, on cards of the architecture
  std::vector<FloorKernel> floor;
};

std::optional<Estimate> estimate(const Report &report) {
  const plan::Plan &plan = *report.plan;
  const ChosenCard chosen = chooseCard(plan);
  if (!chosen.card)
    return std::nullopt;
  Estimate result;
  result.card = chosen.card;
  result.named = chosen.from == ChosenCard::From::Plan;
  const nvidia::Rates rates = nvidia::ratesOf(result.card->architecture);
  result.measured = rates.measured;
  const plan::DType products = plan.precision() == "bf16"  ? plan::BF16
                               : plan.precision() == "f16" ? plan::F16
                                                           : plan::F32;
  const double tensorRate = plan.precision() == "tf32" ? result.card->tf32 : productRate(*result.card, products);
  std::set<std::string> single; // kernels in which one thread computes a tile, or an element of a generated convolution
  for (const plan::CodeObject &code : plan.code_objects())
    for (const plan::KernelSignature &kernel : code.kernels())
      if (kernel.tile_threads() == 1)
        single.insert(kernel.symbol());
  std::map<std::string, size_t> index;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      const auto counted = report.calls.find(program.name);
      const uint64_t calls = counted == report.calls.end() ? 0 : counted->second;
      if (!calls)
        continue;
      for (const plan::Instruction &instruction : program.planned->instructions()) {
        const LeastTime least = leastTime(*result.card, instruction);
        const double seconds = double(calls) * least.seconds();
        const uint64_t launches = calls * uint64_t(plan::launchesOf(instruction));
        result.expected.add(*result.card, rates,
                            worksOf(*result.card, plan, *program.planned, instruction, report.kernelWorks),
                            double(calls));
        result.launches += launches;
        if (const plan::MatmulCall &product = instruction.matmul(); plan::hasSlices(product)) {
          result.sliced += calls;
          result.sliceLaunches += launches;
          result.slicedBytes += calls * uint64_t(product.m()) * plan::sliceRowBytes(product);
        }
        result.seconds += seconds;
        result.tensorSeconds += double(calls) * std::max(least.traffic, instruction.flops() / tensorRate);
        result.memorySeconds += least.traffic >= least.arithmetic ? seconds : 0;
        result.librarySeconds += instructionKind(instruction) == InstructionKind::Library ? seconds : 0;
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
  Json classes = Json::object();
  for (size_t one = 0; one < kWorkClasses; ++one)
    if (found->expected.seconds[one] > 0)
      classes[className(static_cast<WorkClass>(one))] = found->expected.seconds[one];
  return {{"name", found->card->name},
          {"title", found->card->title},
          {"architecture", found->card->architecture},
          {"source", found->card->source},
          {"named", found->named},
          {"launches", found->launches},
          {"sliced_gradients", found->sliced},
          {"slice_launches", found->sliceLaunches},
          {"best_seconds", found->seconds},
          {"best_seconds_on_tensor_cores", found->tensorSeconds},
          {"expected_seconds", found->expected.total()},
          {"expected_classes", classes},
          {"rates_measured", found->measured},
          {"library_share", found->seconds > 0 ? found->librarySeconds / found->seconds : 0},
          {"memory_bound_share", found->seconds > 0 ? found->memorySeconds / found->seconds : 0},
          {"machine_code", machineCode},
          {"floor", floor}};
}

std::string cardText(const Report &report) {
  std::optional<Estimate> found = estimate(report);
  if (!found)
    return "";
  std::string text = fmt::format(
      "\ncard: {} ({}){}: {} takes at least {:.3g} ms in {} launches, {:.0f} % of it in calls of libraries, {:.0f} % "
      "bound by "
      "memory; with every product on tensor cores {:.3g} ms\n  by the rates of its data sheet ({}); a bound, not a "
      "measurement. Products run on cuBLASLt, "
      "convolutions on cuDNN; of generated kernels only attention of bf16 uses tensor cores\n",
      found->card->title, found->card->architecture,
      found->named ? "" : ", of its architecture the usual one (tcc --device-memory names another)", report.counted,
      1e3 * found->seconds, found->launches, found->seconds > 0 ? 100 * found->librarySeconds / found->seconds : 0,
      found->seconds > 0 ? 100 * found->memorySeconds / found->seconds : 0, 1e3 * found->tensorSeconds,
      found->card->source);
  text +=
      fmt::format("  expected: {:.3g} ms {}\n    by kind, in ms: {}\n", 1e3 * found->expected.total(),
                  found->measured ? "by rates that an H100 and an H200 have shown, collectives and transfers left out"
                                  : fmt::format("if it reaches the shares of its data sheet that an H100 and an H200 "
                                                "have shown: no card of {} has been measured",
                                                found->card->architecture),
                  classesText(found->expected));
  if (found->sliced)
    text += fmt::format("  {} in slices, {} never stored whole: {} launches, where whole ones would take {} "
                        "(compiler.slice_bytes)\n",
                        counted(found->sliced, "weight gradient"), formatBytes(found->slicedBytes),
                        found->sliceLaunches, 2 * found->sliced);
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
