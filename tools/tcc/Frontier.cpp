//===- Frontier.cpp - tcc frontier ----------------------------------------===//
//
// The packed plans between least memory and no recomputation, each with a lower bound on the cost within its bytes.
//
//===----------------------------------------------------------------------===//
#include "tools/common/ExitStatus.h"
#include "tools/tcc/Commands.h"
#include "support/Json.h"
#include "tools/tcc/Report.h"

#include "mlir/IR/MLIRContext.h"
#include "runtime/plan/Shapes.h"
#include "runtime/plan/Spaces.h"
#include "tools/common/StandardStreams.h"

#include <CLI/CLI.hpp>

namespace tcc::tools {

namespace {

const char *precisionOf(const plan::Plan &plan) { return plan.precision().empty() ? "f32" : plan.precision().c_str(); }

nlohmann::ordered_json frontierJson(const plan::Plan &plan) {
  nlohmann::ordered_json document;
  document["version"] = 1;
  document["model"] = plan.model();
  document["target"] = plan.target();
  document["precision"] = precisionOf(plan);
  document["resident_bytes"] = plan::spaceBytes(plan, plan::RESIDENT);
  document["programs"] = nlohmann::ordered_json::object();
  const uint64_t stateBytes = plan::spaceBytes(plan, plan::RESIDENT) + plan::spaceBytes(plan, plan::HOST_RESIDENT);
  for (const plan::Entry &entry : plan.entries()) {
    nlohmann::ordered_json points = nlohmann::ordered_json::array(), onHost = points;
    uint64_t once = entry.frontier_size() ? entry.frontier(0).cost() : 0;
    for (const plan::FrontierPoint &point : entry.frontier()) {
      nlohmann::ordered_json row = {
          {"arena_bytes", point.transient_bytes()},
          {"total_bytes", stateBytes - point.moved_state_bytes() + point.transient_bytes()},
          {"cost", point.cost()},
          {"lower_bound_cost", point.lower_bound_cost()},
          {"extra_cost_fraction", once ? double(point.cost()) / double(once) - 1 : 0.0},
          {"gap", point.lower_bound_cost() ? double(point.cost()) / double(point.lower_bound_cost()) - 1 : 0.0}};
      if (const uint64_t bytes = point.host_bytes() + point.moved_state_bytes()) {
        row["host_bytes"] = bytes;
        onHost.push_back(std::move(row));
      } else {
        points.push_back(std::move(row));
      }
    }
    document["programs"][entry.name()] = {{"batch", entry.batch()}, {"points", points}};
    if (!onHost.empty())
      document["programs"][entry.name()]["points_with_host"] = onHost;
    for (const plan::Dim &dim : entry.dims())
      document["programs"][entry.name()]["dims"][dim.name()] = dim.value();
  }
  return document;
}

void printFrontier(const plan::Plan &plan) {
  const uint64_t stateBytes = plan::spaceBytes(plan, plan::RESIDENT) + plan::spaceBytes(plan, plan::HOST_RESIDENT);
  printResult("{} for {} in {}: {} of state, and for each program an arena of one of these sizes\n", plan.model(),
              plan.target(), precisionOf(plan), report::formatBytes(plan::spaceBytes(plan, plan::RESIDENT)));
  for (const plan::Entry &entry : plan.entries()) {
    const std::string shape = plan::shapeText(plan, entry);
    const bool anyOnHost = std::any_of(entry.frontier().begin(), entry.frontier().end(), [](const auto &point) {
      return point.host_bytes() + point.moved_state_bytes() > 0;
    });
    printResult("\n{}{}\n{:>12} {:>12} {:>14} {:>12} {:>8}{}\n", entry.name(), shape.empty() ? "" : ": " + shape,
                "arena", "in all", "extra time", "at least", "gap", anyOnHost ? "  on the host" : "");
    uint64_t once = entry.frontier_size() ? entry.frontier(0).cost() : 0;
    auto extra = [&](uint64_t cost) { return once ? 100.0 * (double(cost) / double(once) - 1) : 0.0; };
    for (const plan::FrontierPoint &point : entry.frontier()) {
      const uint64_t onHost = point.host_bytes() + point.moved_state_bytes();
      printResult("{:>12} {:>12} {:>12.2f} % {:>10.2f} % {:>6.2f} %{}\n", report::formatBytes(point.transient_bytes()),
                  report::formatBytes(stateBytes - point.moved_state_bytes() + point.transient_bytes()),
                  extra(point.cost()), extra(point.lower_bound_cost()),
                  100.0 * (double(point.cost()) / double(std::max<uint64_t>(point.lower_bound_cost(), 1)) - 1),
                  onHost ? fmt::format(" {:>12}", report::formatBytes(onHost)) : "");
    }
  }
  printResult("\nExtra time: of recomputation, and of waiting for transfers, on the nominal machine, as a share of the "
              "program's time.\n`tcc --memory-budget BYTES` takes the cheapest row that fits beside the state.\n");
}

} // namespace

int frontierCommand(int argc, char **argv) {
  CLI::App app("The time-memory frontier: real packed plans between least memory and no recomputation.",
               "tcc frontier");
  ModelArguments model;
  CompileOptions options;
  std::string entries;
  bool json = false;
  model.add(app);
  app.add_option("--target", options.target, "cpu[:v3|:v4]; default: this machine's level");
  app.add_option("--threads", options.maxWorkers,
                 "number of workers that the arenas are sized for; a plan runs with any number; default: 8")
      ->check(CLI::Range(1, 1024));
  addPrecision(app, options);
  app.add_option("--entry", entries, "train,evaluate,predict,gradients; default: the first three");
  app.add_flag("--json", json, "print JSON for programs");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  if (Status status = readEntries(entries, options); !status.ok())
    return printError(status);
  options.sizesOnly = options.ladder = options.bounds = true;
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  Expected<CompiledModel> compiled = compileModel(context, options);
  if (!compiled)
    return printError(compiled.status());
  if (json)
    printResult("{}\n", jsonText(frontierJson(compiled->plan), 1));
  else
    printFrontier(compiled->plan);
  return kExitDone;
}

} // namespace tcc::tools
