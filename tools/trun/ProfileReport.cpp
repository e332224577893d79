//===- ProfileReport.cpp - time by kernel, against the roofline ----------===//
#include "tools/trun/ProfileReport.h"
#include "runtime/plan/CallKernels.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/Roles.h"
#include "support/Json.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

using namespace tcc;
using namespace tcc::tools;
using report::percentText;
using Json = nlohmann::ordered_json;

namespace {
double medianOf(std::vector<double> values) {
  if (values.empty())
    return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2)
    return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

const plan::Instruction &instructionOf(const ProfileReport &report, const ProfiledInstruction &one) {
  return report.profile->entries[one.entry]->instructions(one.index);
}

/// "/h.3/attn/MatMul +11". A long name keeps its end, which is more specific.
std::string nodesText(const std::vector<std::string> &nodes, size_t width) {
  std::string name = nodes.empty() ? "" : nodes.front();
  std::string more = nodes.size() > 1 ? fmt::format(" +{}", nodes.size() - 1) : "";
  if (name.size() + more.size() > width)
    name = "…" + name.substr(name.size() + more.size() + 1 - width);
  return name + more;
}

std::string rate(double perSecond) { return fmt::format("{:.1f}", perSecond / 1e9); }
std::string share(double fraction) { return fmt::format("{:.1f}", 100 * fraction); }
std::string milliseconds(double seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.01 ? 3 : 1); }

std::string shapeOf(const runtime::MatmulPeak &peak) {
  return fmt::format("{} {}x{}x{} N{}", plan::dtypeName(peak.dtype), peak.m, peak.n, peak.k, peak.transB ? 'T' : 'N');
}

/// How the card was chosen.
std::string sourceOf(const report::ChosenCard &chosen) {
  return chosen.from == report::ChosenCard::From::Device ? "device"
         : chosen.from == report::ChosenCard::From::Plan ? "plan"
                                                         : "architecture";
}

std::string teraFlops(double perSecond) { return fmt::format("{:.4g} TFLOP/s", perSecond / 1e12); }

std::string machineText(const ProfileReport &report) {
  if (const report::Card *card = report.card.card) {
    const char *why = report.card.from == report::ChosenCard::From::Device ? ""
                      : report.card.from == report::ChosenCard::From::Plan
                          ? ", for which the plan was made"
                          : ", the usual card of the plan's architecture";
    return fmt::format(
        "roofline, by data sheet: {}{}\n  f32 {}, products in TF32 {}, in 16 bits {}; memory {:.0f} GB/s", card->title,
        why, teraFlops(card->f32), teraFlops(card->tf32), teraFlops(card->bf16), card->bytesPerSecond / 1e9);
  }
  if (!report.roofline)
    return "roofline: not measured";
  std::string text = "roofline, measured now: ";
  for (const runtime::MatmulPeak &peak : report.roofline->matmul)
    text += fmt::format("matmul {:.0f} GFLOP/s ({}), ", peak.flopsPerSecond / 1e9, shapeOf(peak));
  return text + fmt::format("copy {:.1f} GB/s ({})", report.roofline->bytesPerSecond / 1e9,
                            report::formatBytes(report.roofline->copiedBytes));
}

/// Kinds of state that an instruction changes: an optimizer's kernel writes "optimizer" and "parameter".
std::vector<std::string> writtenRoles(const plan::Plan &plan, const plan::Entry &entry,
                                      const plan::Instruction &instruction) {
  std::set<std::string> roles;
  for (const plan::Operand &operand : instruction.operands()) {
    int variable = entry.buffers(static_cast<int>(operand.buffer())).variable();
    if (!operand.write() || variable < 0)
      continue;
    roles.emplace(plan::roleName(plan.variables(variable).role()));
  }
  return {roles.begin(), roles.end()};
}

const char *limitOf(const ProfiledKernel &kernel) {
  return kernel.rooflineSeconds() == 0                      ? ""
         : kernel.arithmeticSeconds > kernel.trafficSeconds ? "arithmetic"
                                                            : "memory";
}
} // namespace

/// Bytes of a rank's sources of a collective.
static uint64_t givenBytes(const plan::Entry &entry, const plan::Instruction &instruction) {
  uint64_t bytes = 0;
  for (int i = 0; i < instruction.operands_size() / 2; ++i)
    bytes += plan::tensorBytes(entry.buffers(static_cast<int>(instruction.operands(i).buffer())).type()).value_or(0);
  return bytes;
}

/// Seconds of one call of the instructions that may run beside a collective, other collectives left out.
static double besideSeconds(const ProfileReport &report, const runtime::ProfiledCollective &one) {
  const plan::Entry &entry = *report.profile->entries[one.entry];
  const int last = one.index + entry.instructions(one.index).beside();
  double seconds = 0;
  for (const ProfiledInstruction &other : report.instructions)
    if (other.entry == one.entry && other.index > one.index && other.index <= last &&
        !entry.instructions(other.index).has_collective())
      seconds += other.seconds;
  return seconds;
}

/// The collectives: their time, the time of instructions beside them, and how long this rank only waited.
static std::string collectivesText(const ProfileReport &report) {
  report::Table table("<<>>>>>", {"collective", "node", "calls", "bytes", "ms a step", "ms beside", "ms exposed"});
  double seconds = 0, exposed = 0;
  for (const runtime::ProfiledCollective &one : report.profile->collectives) {
    const plan::Entry &entry = *report.profile->entries[one.entry];
    const plan::Instruction &instruction = entry.instructions(one.index);
    seconds += one.seconds;
    exposed += one.exposedSeconds;
    table.add({fmt::format("{} {}: {}", entry.name(), one.index, report::instructionText(entry, instruction)),
               nodesText({instruction.node()}, 40), fmt::format("{:g}", one.calls),
               report::formatBytes(givenBytes(entry, instruction)), milliseconds(one.seconds),
               milliseconds(besideSeconds(report, one) * one.calls), milliseconds(one.exposedSeconds)});
  }
  return table.text() + fmt::format("collectives of rank 0 of {}: {} ms a step, {} ms of them exposed\n",
                                    report.session->worldSize(), milliseconds(seconds), milliseconds(exposed));
}

double ProfileReport::instructionSeconds() const {
  double sum = 0;
  for (const ProfiledKernel &kernel : kernels)
    sum += kernel.seconds;
  return sum;
}

double ProfileReport::secondsAtRoofline() const {
  double sum = 0;
  for (const ProfiledKernel &kernel : kernels)
    if (kernel.rooflineShare() >= atRoofline())
      sum += kernel.seconds;
  return sum;
}

double ProfileReport::leastSeconds() const {
  double sum = 0;
  for (const ProfiledKernel &kernel : kernels)
    sum += std::min(kernel.rooflineSeconds(), kernel.seconds);
  return sum;
}

ProfileReport tcc::tools::makeProfileReport(const runtime::Session &session, const runtime::Profile &profile,
                                            std::optional<runtime::Roofline> roofline, report::ChosenCard card) {
  ProfileReport report;
  report.plan = session.reader.path();
  report.session = &session;
  report.profile = &profile;
  report.threads = session.device->capabilities().threads;
  report.roofline = std::move(roofline);
  report.card = card;
  std::vector<double> steps;
  for (const runtime::StepTimes &step : profile.steps)
    steps.push_back(step.seconds());
  report.stepSeconds = medianOf(steps);

  const nvidia::Rates rates = nvidia::ratesOf(card.card ? card.card->architecture : "");
  const report::KernelWorks works = card.card ? report::countWork(session.reader) : report::KernelWorks();
  std::map<report::WorkClass, ProfiledClass> classes;
  std::map<std::string, size_t> known;
  for (size_t e = 0; e < profile.entries.size(); ++e) {
    const plan::Entry &entry = *profile.entries[e];
    std::vector<std::vector<double>> times(static_cast<size_t>(entry.instructions_size()));
    uint64_t runs = 0;
    for (const runtime::StepTimes &step : profile.steps)
      for (const runtime::EntryTimes &run : step.runs)
        if (run.entry == e) {
          ++runs;
          std::vector<double> seconds(times.size(), 0);
          double begin = run.begin;
          for (const runtime::EntryTimes::Piece &piece : run.pieces) {
            seconds[piece.instruction] += piece.end - begin;
            begin = piece.end;
          }
          for (size_t i = 0; i < times.size(); ++i)
            times[i].push_back(seconds[i]);
        }
    uint64_t calls = profile.steps.empty() ? 0 : runs / profile.steps.size();
    for (int i = 0; i < entry.instructions_size(); ++i) {
      const plan::Instruction &instruction = entry.instructions(i);
      auto [at, fresh] = known.try_emplace(report::instructionKey(entry, instruction), report.kernels.size());
      const bool byKernels = session.device->usesKernels(instruction);
      if (fresh) {
        report.kernels.emplace_back();
        report.kernels.back().what = report::instructionText(entry, instruction, byKernels);
        report.kernels.back().kind = byKernels && instruction.has_attention() ? report::InstructionKind::Generated
                                                                              : report::instructionKind(instruction);
        report.kernels.back().dtype = report::arithmeticType(instruction);
        report.kernels.back().writes = writtenRoles(session.plan(), entry, instruction);
      }
      ProfiledKernel &kernel = report.kernels[at->second];
      double seconds = medianOf(times[static_cast<size_t>(i)]);
      kernel.nodes.push_back(instruction.node());
      kernel.calls += calls;
      kernel.launches += calls * static_cast<uint64_t>(byKernels ? plan::launchesByKernels(instruction)
                                                                 : plan::launchesOf(instruction));
      kernel.seconds += seconds * static_cast<double>(calls);
      kernel.flops += instruction.flops() * static_cast<double>(calls);
      kernel.bytes += static_cast<double>(instruction.bytes() * calls);
      if (card.card) {
        const report::LeastTime least = report::leastTime(*card.card, instruction);
        kernel.arithmeticSeconds += least.arithmetic * static_cast<double>(calls);
        kernel.trafficSeconds += least.traffic * static_cast<double>(calls);
        report::ExpectedTime expected;
        const std::vector<report::Work> work = report::worksOf(*card.card, session.plan(), entry, instruction, works);
        expected.add(*card.card, rates, work, static_cast<double>(calls));
        kernel.expectedSeconds += expected.total();
        ProfiledClass &one = classes[work.front().kind];
        one.kind = work.front().kind;
        one.launches += calls * static_cast<uint64_t>(plan::launchesOf(instruction));
        one.seconds += seconds * static_cast<double>(calls);
        one.expectedSeconds += expected.total();
      }
      report.instructions.push_back({e, at->second, i, calls, seconds});
    }
  }
  if (report.roofline)
    for (ProfiledKernel &kernel : report.kernels) {
      kernel.arithmeticSeconds = kernel.flops / report.roofline->flopsPerSecond(kernel.dtype);
      kernel.trafficSeconds = kernel.bytes / report.roofline->bytesPerSecond;
    }
  for (const auto &[kind, one] : classes)
    if (one.launches > 0)
      report.classes.push_back(one);
  std::stable_sort(report.classes.begin(), report.classes.end(),
                   [](const ProfiledClass &a, const ProfiledClass &b) { return a.seconds > b.seconds; });
  std::vector<size_t> order(report.kernels.size()), place(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return report.kernels[a].seconds > report.kernels[b].seconds; });
  std::vector<ProfiledKernel> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.push_back(std::move(report.kernels[order[i]]));
    place[order[i]] = i;
  }
  report.kernels = std::move(sorted);
  for (ProfiledInstruction &instruction : report.instructions)
    instruction.kernel = place[instruction.kernel];
  return report;
}

namespace {
/// Kernels that the text does not list: those that take less than a two-hundredth of the step.
struct Hidden {
  size_t kernels = 0;
  double seconds = 0;
  std::string text() const { return fmt::format("{} (--all lists them)", report::counted(kernels, "further kernel")); }
};

constexpr const char *kBetween = "between instructions, reading the batch";

/// Calls `add` for each kernel that the text lists.
template <typename Add> Hidden listKernels(const ProfileReport &report, bool all, Add add) {
  Hidden hidden;
  for (const ProfiledKernel &kernel : report.kernels) {
    if (all || kernel.seconds >= 0.005 * report.stepSeconds) {
      add(kernel);
      continue;
    }
    ++hidden.kernels;
    hidden.seconds += kernel.seconds;
  }
  return hidden;
}

std::string hostTable(const ProfileReport &report, bool all) {
  const double step = report.stepSeconds, rest = std::max(0.0, step - report.instructionSeconds());
  report::Table table("<<>>>>>>><", {"what", "node", "calls", "ms a step", "% of step", "GFLOP/s", "% of peak", "GB/s",
                                     "% of copy", "limited by"});
  const Hidden hidden = listKernels(report, all, [&](const ProfiledKernel &kernel) {
    auto perSecond = [&](double amount) {
      return kernel.seconds > 0 && amount > 0 ? rate(amount / kernel.seconds) : "";
    };
    auto ofPeak = [&](double least) { return kernel.seconds > 0 && least > 0 ? share(least / kernel.seconds) : ""; };
    table.add({kernel.what, nodesText(kernel.nodes, 40), std::to_string(kernel.calls), milliseconds(kernel.seconds),
               share(step > 0 ? kernel.seconds / step : 0), perSecond(kernel.flops), ofPeak(kernel.arithmeticSeconds),
               perSecond(kernel.bytes), ofPeak(kernel.trafficSeconds), limitOf(kernel)});
  });
  if (hidden.kernels)
    table.add({hidden.text(), "", "", milliseconds(hidden.seconds), share(hidden.seconds / step), "", "", "", "", ""});
  table.add({kBetween, "", "", milliseconds(rest), share(rest / step), "", "", "", "", ""});
  return table.text();
}

/// Launches and least times beside measured ones, in lines of at most report::kLineWidth characters.
std::string cardTable(const ProfileReport &report, bool all) {
  constexpr size_t kWhat = 39, kNode = 14;
  const double step = report.stepSeconds, rest = std::max(0.0, step - report.instructionSeconds());
  report::Table table("<<>>>>><", {"what", "node", "launches", "ms", "% step", "least ms", "reached", "bound"});
  auto start = [](const std::string &text) { return text.size() > kWhat ? text.substr(0, kWhat - 1) + "…" : text; };
  const Hidden hidden = listKernels(report, all, [&](const ProfiledKernel &kernel) {
    const bool reaches = kernel.seconds > 0 && kernel.rooflineSeconds() > 0;
    const char *limit = kernel.rooflineSeconds() == 0                      ? ""
                        : kernel.arithmeticSeconds > kernel.trafficSeconds ? "flops"
                                                                           : "bytes";
    table.add({start(kernel.what), nodesText(kernel.nodes, kNode), std::to_string(kernel.launches),
               milliseconds(kernel.seconds), share(step > 0 ? kernel.seconds / step : 0),
               milliseconds(kernel.rooflineSeconds()), reaches ? share(kernel.rooflineShare()) + " %" : "", limit});
  });
  if (hidden.kernels)
    table.add({hidden.text(), "", "", milliseconds(hidden.seconds), share(hidden.seconds / step), "", "", ""});
  table.add({kBetween, "", "", milliseconds(rest), share(rest / step), "", "", ""});
  return table.text();
}

/// Measured beside expected times, by class.
std::string classTable(const ProfileReport &report) {
  report::Table table("<>>>>", {"kind", "launches", "ms", "expected ms", "ms ÷ expected"});
  double seconds = 0, expected = 0;
  uint64_t launches = 0;
  auto row = [&](const std::string &name, uint64_t count, double measured, double foreseen) {
    table.add({name, std::to_string(count), milliseconds(measured), milliseconds(foreseen),
               foreseen > 0 ? fmt::format("{:.2f}", measured / foreseen) : ""});
  };
  for (const ProfiledClass &one : report.classes) {
    row(report::className(one.kind), one.launches, one.seconds, one.expectedSeconds);
    seconds += one.seconds;
    expected += one.expectedSeconds;
    launches += one.launches;
  }
  row("all", launches, seconds, expected);
  const bool measured = nvidia::ratesOf(report.card.card->architecture).measured;
  return table.text() +
         fmt::format("expected: {}\n",
                     measured
                         ? "by rates that an H100 and an H200 have shown, each launch with its beginning and end"
                         : fmt::format("by shares of the data sheet that an H100 and an H200 have shown, as no card "
                                       "of {} was measured",
                                       report.card.card->architecture));
}

/// How near the step is to the roofline, and which kernels are far from it.
std::string rooflineText(const ProfileReport &report) {
  const double step = report.stepSeconds, least = report.leastSeconds(), at = report.atRoofline();
  std::string text;
  if (report.card.card) {
    uint64_t launches = 0;
    double sum = 0;
    for (const ProfiledKernel &kernel : report.kernels) {
      launches += kernel.launches;
      sum += kernel.rooflineSeconds();
    }
    text = fmt::format("{} launches; by the data sheet they take at least {} ms, {} of the step\n"
                       "{} of the step in kernels that take at most {:.2g} times their least time\n",
                       launches, milliseconds(sum), percentText(sum / step),
                       percentText(report.secondsAtRoofline() / step), 1 / at);
  } else {
    text = fmt::format(
        "{} of it in kernels at {:.0f} % of their roofline or more; all kernels at their roofline would take "
        "{} ms, {} of it\n",
        percentText(report.secondsAtRoofline() / step), 100 * at, milliseconds(least), percentText(least / step));
  }
  const size_t width = report.card.card ? 30 : 60;
  std::string named;
  for (const ProfiledKernel &kernel : report.kernels)
    if (kernel.seconds > kWorthNaming * step && kernel.rooflineShare() < at)
      named += fmt::format("  {} ({}): {} of the step at {} of what {} allows\n", kernel.what,
                           nodesText(kernel.nodes, width), percentText(kernel.seconds / step),
                           percentText(kernel.rooflineShare()), limitOf(kernel));
  return text + (named.empty()
                     ? fmt::format("nothing above {:.0f} % of the step runs below that\n", 100 * kWorthNaming)
                     : fmt::format("above {:.0f} % of the step and below that:\n{}", 100 * kWorthNaming, named));
}
} // namespace

std::string tcc::tools::profileText(const ProfileReport &report, bool all) {
  const runtime::Profile &profile = *report.profile;
  const double step = report.stepSeconds;
  std::string entries;
  for (const plan::Entry *entry : profile.entries)
    entries += (entries.empty() ? "" : ", ") + entry->name();
  const std::string &card = report.session->device->capabilities().machine;
  std::string text = fmt::format("{}: {}, {}; median of {} steps on {}\n{}\n\n", report.plan,
                                 report.session->plan().target(), entries, profile.steps.size(),
                                 card.empty() ? report::counted(report.threads, "thread") : card, machineText(report));
  text += (report.card.card ? cardTable(report, all) : hostTable(report, all)) + "\n";
  if (report.card.card)
    text += classTable(report) + "\n";
  if (!profile.collectives.empty())
    text += collectivesText(report) + "\n";

  std::map<report::InstructionKind, double> kinds;
  double flops = 0;
  for (const ProfiledKernel &kernel : report.kernels) {
    kinds[kernel.kind] += kernel.seconds;
    flops += kernel.flops;
  }
  text += fmt::format("a step takes {} s: {:.1f} GFLOP at {} GFLOP/s", fmt::format("{:.6g}", step), flops / 1e9,
                      rate(flops / step));
  if (profile.tokens)
    text += fmt::format(", {:.0f} tokens/s", static_cast<double>(profile.tokens) / step);
  else if (profile.samples)
    text += fmt::format(", {:.1f} samples/s", static_cast<double>(profile.samples) / step);
  text += "\n";
  for (const auto &[kind, seconds] : kinds)
    text += fmt::format("  {:<10} {:>10} ms  {}\n", kindName(kind), milliseconds(seconds), percentText(seconds / step));
  if (report.hasRoofline())
    text += rooflineText(report);
  if (!profile.finite)
    text += "note: the loss is not finite, so updates were not applied: their kernels may run at another speed\n";
  return text;
}

std::string tcc::tools::profileJson(const ProfileReport &report) {
  const runtime::Profile &profile = *report.profile;
  Json json;
  json["version"] = 1;
  json["plan"] = report.plan;
  json["model"] = report.session->plan().model();
  json["target"] = report.session->plan().target();
  json["threads"] = report.threads;
  json["device"] = report.session->device->capabilities().machine;
  json["steps"] = profile.steps.size();
  json["entries"] = Json::array();
  for (const plan::Entry *entry : profile.entries)
    json["entries"].push_back(entry->name());
  json["finite"] = profile.finite;
  json["step_seconds"] = report.stepSeconds;
  json["instruction_seconds"] = report.instructionSeconds();
  json["samples"] = profile.samples;
  json["tokens"] = profile.tokens;
  uint64_t parameters = 0;
  for (const plan::Variable &variable : report.session->plan().variables())
    if (variable.role() == plan::PARAMETER)
      parameters += plan::elementCount(variable.type()).value_or(0);
  json["trained_elements"] = parameters;
  json["roofline"] = nullptr;
  if (report.roofline) {
    Json &machine = json["roofline"] = Json::object();
    for (const runtime::MatmulPeak &peak : report.roofline->matmul)
      machine["matmul"].push_back({{"dtype", std::string(plan::dtypeName(peak.dtype))},
                                   {"flops_per_s", peak.flopsPerSecond},
                                   {"m", peak.m},
                                   {"n", peak.n},
                                   {"k", peak.k},
                                   {"trans_b", peak.transB}});
    machine["copy_bytes_per_s"] = report.roofline->bytesPerSecond;
    machine["copied_bytes"] = report.roofline->copiedBytes;
  } else if (const report::Card *card = report.card.card) {
    json["roofline"] = {{"card", card->name},
                        {"title", card->title},
                        {"from", sourceOf(report.card)},
                        {"source", card->source},
                        {"f32_flops_per_s", card->f32},
                        {"tf32_flops_per_s", card->tf32},
                        {"bf16_flops_per_s", card->bf16},
                        {"bytes_per_s", card->bytesPerSecond}};
  }
  if (report.hasRoofline()) {
    json["roofline_seconds"] = report.leastSeconds();
    json["at_roofline"] = report.atRoofline();
    json["at_roofline_share"] = report.stepSeconds > 0 ? report.secondsAtRoofline() / report.stepSeconds : 0;
  }
  json["kernels"] = Json::array();
  for (const ProfiledKernel &kernel : report.kernels) {
    Json one = {{"what", kernel.what},
                {"kind", report::kindName(kernel.kind)},
                {"dtype", std::string(plan::dtypeName(kernel.dtype))},
                {"nodes", kernel.nodes},
                {"writes", kernel.writes},
                {"calls", kernel.calls},
                {"launches", kernel.launches},
                {"seconds", kernel.seconds},
                {"share", report.stepSeconds > 0 ? kernel.seconds / report.stepSeconds : 0},
                {"flops", kernel.flops},
                {"bytes", kernel.bytes}};
    if (report.hasRoofline()) {
      one["limit"] = limitOf(kernel);
      one["roofline_seconds"] = kernel.rooflineSeconds();
      one["roofline_share"] = kernel.rooflineShare();
    }
    if (report.card.card)
      one["expected_seconds"] = kernel.expectedSeconds;
    json["kernels"].push_back(std::move(one));
  }
  if (report.card.card) {
    json["rates_measured"] = nvidia::ratesOf(report.card.card->architecture).measured;
    json["classes"] = Json::array();
    for (const ProfiledClass &one : report.classes)
      json["classes"].push_back({{"class", report::className(one.kind)},
                                 {"launches", one.launches},
                                 {"seconds", one.seconds},
                                 {"expected_seconds", one.expectedSeconds}});
  }
  json["collectives"] = Json::array();
  for (const runtime::ProfiledCollective &one : profile.collectives) {
    const plan::Entry &entry = *profile.entries[one.entry];
    json["collectives"].push_back({{"entry", entry.name()},
                                   {"index", one.index},
                                   {"node", entry.instructions(one.index).node()},
                                   {"bytes", givenBytes(entry, entry.instructions(one.index))},
                                   {"calls", one.calls},
                                   {"seconds", one.seconds},
                                   {"beside_instructions", entry.instructions(one.index).beside()},
                                   {"beside_seconds", besideSeconds(report, one) * one.calls},
                                   {"exposed_seconds", one.exposedSeconds}});
  }
  json["instructions"] = Json::array();
  for (const ProfiledInstruction &one : report.instructions)
    json["instructions"].push_back({{"entry", profile.entries[one.entry]->name()},
                                    {"index", one.index},
                                    {"kernel", one.kernel},
                                    {"node", instructionOf(report, one).node()},
                                    {"calls", one.calls},
                                    {"seconds", one.seconds}});
  return jsonText(json) + "\n";
}

std::string tcc::tools::profileTrace(const ProfileReport &report) {
  const runtime::Profile &profile = *report.profile;
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"args", {{"name", "trun " + report.plan}}}});
  events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "compute"}}}});
  // The measured step that is nearest to the median.
  auto chosen = std::min_element(profile.steps.begin(), profile.steps.end(), [&](const auto &a, const auto &b) {
    return std::abs(a.seconds() - report.stepSeconds) < std::abs(b.seconds() - report.stepSeconds);
  });
  if (chosen != profile.steps.end()) {
    auto event = [&](const std::string &name, const char *category, double begin, double end, Json arguments) {
      events.push_back({{"ph", "X"},
                        {"name", name},
                        {"cat", category},
                        {"pid", 1},
                        {"tid", 1},
                        {"ts", (begin - chosen->begin) * 1e6},
                        {"dur", (end - begin) * 1e6},
                        {"args", std::move(arguments)}});
    };
    event("step", "step", chosen->begin, chosen->end, {{"samples", profile.samples}});
    std::map<std::pair<size_t, int>, const ProfiledKernel *> kernels;
    for (const ProfiledInstruction &one : report.instructions)
      kernels[{one.entry, one.index}] = &report.kernels[one.kernel];
    for (const runtime::EntryTimes &run : chosen->runs) {
      const plan::Entry &entry = *profile.entries[run.entry];
      if (run.pieces.empty())
        continue;
      event(entry.name(), "entry", run.begin, run.pieces.back().end, Json::object());
      double end = run.begin;
      for (const runtime::EntryTimes::Piece &piece : run.pieces) {
        int i = static_cast<int>(piece.instruction);
        const plan::Instruction &instruction = entry.instructions(i);
        const ProfiledKernel &kernel = *kernels[{run.entry, i}];
        double begin = end, seconds = piece.end - begin;
        end = piece.end;
        Json arguments = {{"instruction", i},
                          {"node", instruction.node()},
                          {"nodes", std::vector<std::string>(instruction.nodes().begin(), instruction.nodes().end())},
                          {"flops", instruction.flops()},
                          {"bytes", instruction.bytes()}};
        if (seconds > 0) {
          arguments["gflops_per_s"] = instruction.flops() / seconds / 1e9;
          arguments["gbytes_per_s"] = static_cast<double>(instruction.bytes()) / seconds / 1e9;
        }
        event(kernel.what, report::kindName(kernel.kind), begin, end, std::move(arguments));
      }
    }
  }
  Json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return jsonText(trace) + "\n";
}
