//===- EntryShapes.cpp - the shapes of a plan's entries -------------------===//
#include "compiler/driver/EntryShapes.h"

#include "support/PlanNames.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc {

namespace {

/// Each is compiled, and the loader numbers them by bytes.
constexpr size_t kMostShapes = 64;

/// `own` with the values of `more` in place of its own.
DimValues overlaid(DimValues own, const DimValues &more) {
  for (const auto &[name, extent] : more)
    own[name] = extent;
  return own;
}

/// Sets the dimensions that follow from others. Error: the other one has no value.
Status divide(const Recipe &recipe, const DimValues &given, DimValues &dims) {
  for (const auto &[name, quotient] : recipe.model.quotients) {
    if (given.contains(name))
      continue;
    const auto by = dims.find(quotient.by);
    if (by == dims.end())
      return error("{}model.dims: {} = \"{}/{}\": {} has no value; give it one in model.dims, model.buckets or by {}",
                   recipe.at("model.dims"), name, quotient.total, quotient.by, quotient.by,
                   "--dim " + quotient.by + "=N");
    dims[name] = std::max<int64_t>(quotient.total / by->second, 1);
  }
  return Status::success();
}

/// Appends the shape unless it is there; returns its number.
uint64_t numberIn(std::vector<DimValues> &shapes, const DimValues &dims) {
  const auto found = std::find(shapes.begin(), shapes.end(), dims);
  const auto number = static_cast<uint64_t>(found - shapes.begin());
  if (found == shapes.end())
    shapes.push_back(dims);
  return number;
}

} // namespace

std::string EntryShape::text() const {
  std::string text;
  for (const auto &[name, extent] : dims)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, extent);
  return text;
}

const char *shapesKey(const Recipe &recipe) { return recipe.model.buckets.empty() ? "model.dims" : "model.buckets"; }

Expected<std::vector<DimValues>> trainingShapes(const CompileOptions &options, const Recipe &recipe) {
  if (!options.buckets.empty())
    return options.buckets;
  DimValues given;
  std::vector<DimValues> buckets = recipe.model.buckets;
  std::string listed;
  for (const auto &[name, extents] : options.dims) {
    if (extents.size() == 1) {
      given[name] = extents.front();
      continue;
    }
    if (!listed.empty())
      return Status(fmt::format("--dim {}=…, --dim {}=…: only one dimension may have several values; list the wanted "
                                "pairs by model.buckets in the recipe",
                                listed, name),
                    StatusCode::Usage);
    listed = name;
    buckets.clear();
    for (int64_t extent : extents)
      buckets.push_back({{name, extent}});
  }
  if (buckets.empty())
    buckets.emplace_back();
  std::vector<DimValues> shapes;
  for (const DimValues &bucket : buckets) {
    DimValues dims = overlaid(overlaid(recipe.model.dims, bucket), given), fixed = given;
    fixed.insert(bucket.begin(), bucket.end());
    if (Status status = divide(recipe, fixed, dims); !status.ok())
      return status;
    numberIn(shapes, dims);
  }
  return shapes;
}

Expected<std::vector<EntryShape>> entryShapes(const CompileOptions &options, const Recipe &recipe,
                                              const std::vector<std::string> &entries) {
  auto training = trainingShapes(options, recipe);
  if (!training)
    return training.status();
  if (options.forceF64) // derivatives are checked for one shape
    training->resize(1);
  std::vector<EntryShape> shapes;
  auto add = [&](const char *entry, const char *key, const std::vector<DimValues> &own, const DimValues &replaced) {
    if (std::find(entries.begin(), entries.end(), entry) == entries.end())
      return;
    std::vector<DimValues> ofEntry;
    for (const DimValues &dims : own)
      numberIn(ofEntry, options.forceF64 ? dims : overlaid(dims, replaced));
    for (uint64_t number = 0; number < ofEntry.size(); ++number) {
      auto found = std::find_if(shapes.begin(), shapes.end(),
                                [&](const EntryShape &shape) { return shape.dims == ofEntry[number]; });
      if (found == shapes.end())
        found = shapes.insert(shapes.end(), {ofEntry[number], {}, replaced.empty() ? shapesKey(recipe) : key});
      found->numbers[entry] = number;
    }
  };
  if (training->size() > kMostShapes)
    return error("{}{} shapes of training: a plan has at most {}", recipe.at("model.dims"), training->size(),
                 kMostShapes);
  add(entries::kTrain, shapesKey(recipe), *training, {});
  add(entries::kGradients, shapesKey(recipe), {training->front()}, {});
  add(entries::kEvaluate, "evaluate.dims", *training, recipe.evaluateDims);
  add(entries::kPredict, "predict.dims", *training, recipe.predictDims);
  return shapes;
}

} // namespace tcc
