//===- ModelArguments.cpp - options that commands share -------------------===//
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include <CLI/CLI.hpp>
#include <climits>

#include <charconv>
#include <sstream>

namespace tcc::tools {

namespace {

/// "NAME=VALUE" into its halves; an error names the option.
Expected<std::pair<std::string, std::string>> splitAssignment(const std::string &option, const std::string &text) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return Status(fmt::format("{} {}: expected NAME=VALUE", option, text), StatusCode::Usage);
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

/// The extents of "--dim NAME=N,M" or "--shape INPUT=NxM".
Expected<std::vector<int64_t>> parseExtents(const std::string &option, const std::string &name, const std::string &text,
                                            char separator) {
  std::vector<int64_t> extents;
  std::stringstream stream(text + separator);
  for (std::string part; std::getline(stream, part, separator);) {
    const char *const partEnd = part.data() + part.size();
    const auto [end, code] = std::from_chars(part.data(), partEnd, extents.emplace_back());
    if (code != std::errc() || end != partEnd || extents.back() < 0)
      return Status(fmt::format("{} {}={}: \"{}\" is no extent; give integers, as in {} {}={}{}", option, name, text,
                                part, option, name, separator == ',' ? "128,256" : "32x128",
                                separator == ',' && part.find('/') != part.npos
                                    ? "; a quotient is a value of model.dims in the recipe"
                                    : ""),
                    StatusCode::Usage);
  }
  return extents;
}

} // namespace

void ModelArguments::add(CLI::App &app, bool several) {
  app.add_option("MODEL", models,
                 several ? "the ONNX forward graph; several are processed in turn" : "the ONNX forward graph")
      ->required()
      ->expected(1, several ? INT_MAX : 1);
  app.add_option("--recipe", recipe, "loss, optimizer and other settings of the training (TOML)");
  app.add_option("--set", settings, "KEY=VALUE: set a recipe key")->allow_extra_args(false);
  app.add_option("--dim", dims, "NAME=N: the value of a symbolic dimension; NAME=N,M,…: a shape for each")
      ->allow_extra_args(false);
  app.add_option("--batch", batch, "the number of samples of a batch: --dim or --shape of the axis that holds them")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--shape", shapes, "INPUT=32x3x32x32: the shape of an input")->allow_extra_args(false);
  app.add_option("--fix", fixed, "INPUT=VALUE: make an input a constant: a number, a list, or FILE.safetensors:TENSOR")
      ->allow_extra_args(false);
  app.add_flag("--dequantize", dequantize,
               "convert a quantised model to floating point first: 8-bit weights become parameters");
}

Status ModelArguments::fill(CompileOptions &options) const {
  options.modelPath = models.front();
  options.recipePath = recipe;
  options.settings = settings;
  options.dequantize = dequantize;
  for (const std::string &text : dims) {
    auto pair = splitAssignment("--dim", text);
    if (!pair)
      return pair.status();
    auto extents = parseExtents("--dim", pair->first, pair->second, ',');
    if (!extents)
      return extents.status();
    if (!options.dims.emplace(pair->first, *extents).second)
      return Status(fmt::format("--dim {0}: given twice; --dim {0}=N,M makes a shape for each value", pair->first),
                    StatusCode::Usage);
  }
  for (const std::string &text : shapes) {
    auto pair = splitAssignment("--shape", text);
    if (!pair)
      return pair.status();
    auto shape = parseExtents("--shape", pair->first, pair->second, 'x');
    if (!shape)
      return shape.status();
    options.shapes[pair->first] = *shape;
  }
  if (batch > 0 && models.size() > 1)
    return Status("--batch is for one model at a time; give --dim or --shape", StatusCode::Usage);
  for (const std::string &text : fixed) {
    auto pair = splitAssignment("--fix", text);
    if (!pair)
      return pair.status();
    std::string name;
    for (char c : pair->first)
      name += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    options.settings.push_back(fmt::format("model.fix.\"{}\"={}", name, pair->second));
  }
  return batch > 0 ? setBatch(options, batch) : Status::success();
}

int printError(const Status &status) {
  // One line for each problem: an import reports all of them. Advice may hold a setting of several lines.
  std::stringstream lines(shownText(status.message()));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty())
      printMessage("{}{}\n", line.starts_with(" ") ? "" : "error: ", line);
  return exitStatusOf(status);
}

std::optional<int> readCommandLine(CLI::App &app, int argc, char **argv) {
  app.set_version_flag("--version", "tcc " TCC_VERSION);
  app.get_formatter()->column_width(30);
  Arguments arguments = readArguments(app, argc, argv);
  if (arguments.answered)
    return kExitDone;
  if (!arguments.status.ok())
    return printError(arguments.status);
  return std::nullopt;
}

} // namespace tcc::tools
