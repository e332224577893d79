//===- Main.cpp - the tcc command -----------------------------------------===//
#include "compiler/Pipeline.h"
#include "frontend/Import.h"
#include "runtime/plan/Verifier.h"

#include "mlir/IR/MLIRContext.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>

using namespace tcc;

namespace {

int report(const plan::Status &status) {
  std::string text = status.message();
  fmt::print(stderr, "error: {}\n", text);
  return status.exitCode();
}

/// "NAME=VALUE" into its halves; an error names the option.
plan::Expected<std::pair<std::string, std::string>> splitAssignment(const std::string &option, const std::string &text) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return plan::Status(fmt::format("{} {}: expected NAME=VALUE", option, text), plan::kExitUsage);
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

plan::Expected<int64_t> parseExtent(const std::string &option, const std::string &text) {
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0)
    return plan::Status(fmt::format("{}: `{}` is not an extent", option, text), plan::kExitUsage);
  return value;
}

/// --dim and --shape, shared by the commands that read a model.
struct ModelArguments {
  std::string model, recipe;
  std::vector<std::string> settings, dims, shapes;

  void add(CLI::App &app) {
    app.add_option("MODEL", model, "the ONNX forward graph")->required();
    app.add_option("--recipe", recipe, "how to train it (TOML)");
    app.add_option("--set", settings, "KEY=VALUE: a recipe key")->expected(1)->allow_extra_args(false);
    app.add_option("--dim", dims, "NAME=N: the value of a symbolic dimension")->expected(1)->allow_extra_args(false);
    app.add_option("--shape", shapes, "INPUT=32x3x32x32: the shape of an input")->expected(1)->allow_extra_args(false);
  }
  plan::Status fill(CompileOptions &options) const {
    options.modelPath = model;
    options.recipePath = recipe;
    options.settings = settings;
    for (const std::string &text : dims) {
      auto pair = splitAssignment("--dim", text);
      if (!pair)
        return pair.status();
      auto value = parseExtent("--dim", pair->second);
      if (!value)
        return value.status();
      options.dims[pair->first] = *value;
    }
    for (const std::string &text : shapes) {
      auto pair = splitAssignment("--shape", text);
      if (!pair)
        return pair.status();
      std::vector<int64_t> shape;
      std::stringstream stream(pair->second);
      for (std::string part; std::getline(stream, part, 'x');) {
        auto value = parseExtent("--shape", part);
        if (!value)
          return value.status();
        shape.push_back(*value);
      }
      options.shapes[pair->first] = shape;
    }
    return plan::Status::success();
  }
};

int parse(CLI::App &app, int argc, char **argv, bool &done) {
  app.set_version_flag("--version", "tcc " TCC_VERSION);
  done = true;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &problem) {
    return app.exit(problem) == 0 ? plan::kExitDone : plan::kExitUsage;
  }
  done = false;
  return 0;
}

int compileCommand(int argc, char **argv) {
  CLI::App app("Compiles an ONNX forward graph into a training plan.\n"
               "Other commands: tcc report | gradcheck | inspect (each with --help)", "tcc");
  ModelArguments model;
  model.add(app);
  std::string output, entries, timings, precision = "f32", target;
  CompileOptions options;
  bool quiet = false;
  app.add_option("-o,--output", output, "the plan to write; default: MODEL.tplan");
  app.add_option("--target", target, "cpu[:v3|:v4]; default: this machine's level");
  app.add_option("--threads", options.maxWorkers, "largest number of workers that may run the plan; default: 8 or more")
      ->check(CLI::Range(1, 1024));
  app.add_option("--precision", precision, "f32 | auto")->check(CLI::IsMember({"f32", "auto"}));
  app.add_option("--entry", entries, "train,evaluate,predict,gradients; default: all");
  app.add_flag("--embed-weights", options.embedWeights, "copy weights beyond 64 MiB into the plan, too");
  app.add_option("--dump-phases-to", options.dumpFolder, "write the IR after each phase into this folder");
  app.add_option("--timings", timings, "write seconds per phase to this file (JSON)");
  app.add_flag("--quiet", quiet, "say nothing but errors");
  bool done = false;
  if (int status = parse(app, argc, argv, done); done)
    return status;
  options.target = target;
  if (plan::Status status = model.fill(options); !status.ok())
    return report(status);
  std::stringstream list(entries);
  for (std::string entry; std::getline(list, entry, ',');) {
    if (entry != "train" && entry != "evaluate" && entry != "predict" && entry != "gradients")
      return report(plan::Status(fmt::format("--entry {}: expected train, evaluate, predict or gradients", entry), plan::kExitUsage));
    options.entries.push_back(entry);
  }
  if (output.empty())
    output = std::filesystem::path(model.model).replace_extension(".tplan").string();
  options.planFolder = std::filesystem::path(output).parent_path().string();

  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  plan::Expected<CompiledModel> compiled = compileModel(context, options);
  if (!compiled)
    return report(compiled.status());
  if (plan::Status status = compiled->writer.write(compiled->plan, output); !status.ok())
    return report(status);
  // Read back what was written: the verifier sees what trun will see.
  plan::Expected<plan::PlanReader> written = plan::PlanReader::open(output);
  if (!written)
    return report(written.status());
  if (std::vector<std::string> problems = plan::verifyPlan(written->plan()); !problems.empty()) {
    std::filesystem::remove(output);
    return report(plan::error("internal error: the plan does not verify: {}", problems.front()));
  }
  if (!timings.empty()) {
    std::ofstream file(timings);
    file << "{";
    for (size_t i = 0; i < compiled->timings.size(); ++i)
      file << fmt::format("{}\"{}\": {:.6f}", i ? ", " : "", compiled->timings[i].first, compiled->timings[i].second);
    file << "}\n";
    if (!file.flush())
      return report(plan::error("{}: cannot be written", timings));
  }
  if (!quiet) {
    for (const std::string &warning : compiled->warnings)
      fmt::print(stderr, "warning: {}\n", warning);
    const plan::Plan &plan = compiled->plan;
    fmt::print(stderr, "{}: {:.1f} MiB resident + {:.1f} MiB transient\n", output, plan.resident_bytes() / 1048576.0,
               plan.transient_bytes() / 1048576.0);
  }
  return plan::kExitDone;
}

int inspectCommand(int argc, char **argv) {
  CLI::App app("Lists inputs, outputs, parameters, ops, and all that is unsupported.", "tcc inspect");
  ModelArguments model;
  model.add(app);
  bool done = false;
  if (int status = parse(app, argc, argv, done); done)
    return status;
  CompileOptions options;
  if (plan::Status status = model.fill(options); !status.ok())
    return report(status);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  frontend::ImportOptions import;
  import.dims = options.dims;
  import.shapes = options.shapes;
  plan::Expected<std::string> text = frontend::inspectModel(context, model.model, import);
  if (!text)
    return report(text.status());
  fmt::print("{}", *text);
  return plan::kExitDone;
}

} // namespace

int main(int argc, char **argv) {
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "inspect")
    return inspectCommand(argc - 1, argv + 1);
  return compileCommand(argc, argv);
}
