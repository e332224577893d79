//===- Transforms.cpp - the table of data transforms ----------------------===//
#include "support/recipe/Transforms.h"
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <sstream>
#include <utility>

namespace tcc::recipe {
namespace {

using Works = TransformKind::Works;

/// Images larger than this on a side are refused by the decoder, too.
constexpr int64_t kMostSide = 65535;
constexpr Range kLevels{0, 255};
constexpr int64_t kMostToken = 2147483647;
constexpr Range kDegrees{-360, 360};
constexpr Range kShear{-89, 89};
constexpr const char *kGeometry = "Geometry";

/// True for the kinds that accept a `mask` column.
bool isGeometry(const TransformKind &kind) { return kind.family == kGeometry; }

TransformArgument probability(std::string preset = "0.5") {
  return {"p", number(kUnit), std::move(preset), "probability"};
}
TransformArgument size(std::string meaning) {
  return {"size", integersOf(1, kMostSide, {2}), "", std::move(meaning), /*required=*/true};
}
TransformArgument interpolation(std::vector<std::string> filters, std::string preset) {
  return {"interpolation", choice(std::move(filters)), std::move(preset), "the filter"};
}
TransformArgument warpInterpolation() { return interpolation({"nearest", "bilinear", "bicubic"}, "\"nearest\""); }
TransformArgument resizeInterpolation() {
  return interpolation({"nearest", "bilinear", "bicubic", "lanczos"}, "\"bilinear\"");
}
TransformArgument antialias() {
  return {"antialias", flag(), "true", "false: 2 or 4 pixels a side, however much smaller the image becomes"};
}
TransformArgument fill() {
  return {"fill", numbers(kLevels), "0", "grey level outside the image, or one for each channel"};
}
TransformArgument padding(std::string preset, bool required) {
  return {"padding", integersOf(0, kMostSide, {2, 4}), std::move(preset),
          "pixels on all sides, [left and right, top and bottom] or [left, top, right, bottom]", required};
}
TransformArgument paddingMode() {
  return {"padding_mode", choice({"constant", "edge", "reflect", "symmetric"}), "\"constant\"", "value of the padding"};
}
TransformArgument jitter(std::string name) {
  return {std::move(name), intervalOrNumber(kNotNegative), "0", "v: a factor from max(0, 1 − v) to 1 + v"};
}
TransformArgument area(std::string preset) {
  return {"scale", interval(kUnit), std::move(preset), "share of the area"};
}
TransformArgument ratio(std::string preset) {
  return {"ratio", interval(kPositive), std::move(preset), "aspect ratio; its logarithm is uniform"};
}
TransformArgument target() { return {"target", text(), "\"label\"", "the column of class probabilities"}; }

std::vector<TransformKind> makeKinds() {
  const std::string geometry = kGeometry, colour = "Colour", erase = "Erasing", values = "Values", batch = "Batches",
                    tokens = "Tokens";
  return {
      {"resize",
       geometry,
       false,
       Works::OnImages,
       {size("the shorter side, or [height, width]"),
        {"max_size", integer(1, kMostSide), "", "limit on the longer side where `size` is the shorter"},
        resizeInterpolation(),
        antialias()},
       "scales the image"},
      {"center_crop",
       geometry,
       false,
       Works::OnImages,
       {size("side, or [height, width]")},
       "cuts out the middle; a smaller image is padded with 0",
       {"centre_crop"}},
      {"random_crop",
       geometry,
       true,
       Works::OnImages,
       {size("side, or [height, width]"),
        padding("0", false),
        {"pad_if_needed", flag(), "false", "pad an image that is smaller than `size`"},
        fill(),
        paddingMode()},
       "pads, and cuts out a place"},
      {"random_resized_crop",
       geometry,
       true,
       Works::OnImages,
       {size("side, or [height, width]"), area("[0.08, 1]"), ratio("[0.75, 1.3333333333333333]"), resizeInterpolation(),
        antialias()},
       "cuts out a part and scales it to `size`"},
      {"pad", geometry, false, Works::OnImages, {padding("", true), fill(), paddingMode()}, "pads the image"},
      {"horizontal_flip", geometry, true, Works::OnImages, {probability()}, "mirrors left and right"},
      {"vertical_flip", geometry, true, Works::OnImages, {probability()}, "mirrors top and bottom"},
      {"rotation",
       geometry,
       true,
       Works::OnImages,
       {{"degrees", intervalOrNumber(kDegrees), "", "v: from −v to v; counter-clockwise", true},
        warpInterpolation(),
        fill()},
       "turns the image about its centre"},
      {"affine",
       geometry,
       true,
       Works::OnImages,
       {{"degrees", intervalOrNumber(kDegrees), "", "v: from −v to v; clockwise", true},
        {"translate", numbers(kUnit, 2), "", "largest shifts as shares of width and height"},
        {"scale", interval(kPositive), "", "factor"},
        {"shear", intervalOrNumber(kShear, 2), "", "degrees along x, v: from −v to v; a second pair: along y"},
        warpInterpolation(),
        fill()},
       "turns, shifts, scales and shears about the centre"},

      {"color_jitter",
       colour,
       true,
       Works::OnImages,
       {jitter("brightness"),
        jitter("contrast"),
        jitter("saturation"),
        {"hue", intervalOrNumber({-0.5, 0.5}), "0", "v: a shift from −v to v of the circle"}},
       "the four adjustments in random order",
       {"colour_jitter"}},
      {"grayscale", colour, true, Works::OnImages, {probability("0.1")}, "makes all channels the luma", {"greyscale"}},
      {"rand_augment",
       colour,
       true,
       Works::OnImages,
       {{"num_ops", integer(0, 100), "2", "transforms, one after the other"},
        {"magnitude", integer(0, 1000), "9", "the bin of all magnitudes"},
        {"num_magnitude_bins", integer(5, 1001), "31", "bins"},
        warpInterpolation(),
        fill()},
       "RandAugment: `num_ops` of 14 transforms"},
      {"trivial_augment",
       colour,
       true,
       Works::OnImages,
       {{"num_magnitude_bins", integer(7, 1001), "31", "bins"}, warpInterpolation(), fill()},
       "TrivialAugment (wide): one of 14 transforms with a random magnitude"},

      {"random_erasing",
       erase,
       true,
       Works::OnImages,
       {probability(),
        area("[0.02, 0.33]"),
        ratio("[0.3, 3.3]"),
        {"value", other("number or list of them, or `\"random\"`"), "0",
         "what replaces the rectangle, in [0, 1] before `normalise`; \"random\": normal numbers"}},
       "erases a rectangle; bytes become floats as by `to_float` first"},
      {"cutout",
       erase,
       true,
       Works::OnImages,
       {{"size", integersOf(1, kMostSide, {2}), "", "side, or [height, width]", true},
        {"count", integer(1, 1000), "1", "squares"},
        probability("1"),
        {"value", numbers(kUnit), "0", "in [0, 1]: share of white"}},
       "erases squares whose centres are anywhere in the image, cut off at its border"},

      {"to_float",
       values,
       false,
       Works::OnImages,
       {{"divide", number(kPositive), "255", "divisor of the bytes"}},
       "makes f32 of bytes; images do so by themselves where a later step asks for it"},
      {"scale",
       values,
       false,
       Works::OnImages,
       {{"factor", number(), "1", ""}, {"offset", number(), "0", ""}},
       "x · `factor` + `offset`"},
      {"normalise",
       values,
       false,
       Works::OnImages,
       {{"mean", numbers(kAny), "", "one number, or one for each channel", true},
        {"std", numbers(kPositive), "", "likewise", true}},
       "(x − `mean`) ÷ `std`, of images in [0, 1]",
       {"normalize"}},
      {"standardise",
       values,
       false,
       Works::OnNumbers,
       {{"per", choice({"element", "channel", "column"}), "",
         "what has constants of its own: each element of a sample, each index of its first axis, or the column; by "
         "default "
         "elements of numbers and vectors, channels of larger samples"}},
       "(x − mean) ÷ standard deviation of the training data, as f32; of any column of numbers, which `column` names: "
       "[data.md](data.md#tables)",
       {"standardize"}},
      {"one_hot",
       values,
       false,
       Works::OnLabels,
       {{"classes", integer(1, int64_t(1) << 24), "", "how many", true},
        {"smoothing", number(kUnit), "0", "share of each label that is spread over all classes"}},
       "makes f32 class probabilities of integer labels"},

      {"mixup",
       batch,
       true,
       Works::OnBatches,
       {{"alpha", number(kPositive), "1", "λ is from Beta(α, α)"}, probability("1"), target()},
       "λ · sample + (1 − λ) · the sample before it in the batch; targets likewise"},
      {"cutmix",
       batch,
       true,
       Works::OnBatches,
       {{"alpha", number(kPositive), "1", "λ is from Beta(α, α)"}, probability("1"), target()},
       "a rectangle of 1 − λ of the area is from the sample before it; targets by the area"},
      {"mixup_or_cutmix",
       batch,
       true,
       Works::OnBatches,
       {{"mixup_alpha", number(kPositive), "1", ""},
        {"cutmix_alpha", number(kPositive), "1", ""},
        {"switch", number(kUnit), "0.5", "probability of `cutmix`"},
        probability("1"),
        target()},
       "one of the two for each batch"},

      {"mask_tokens",
       tokens,
       true,
       Works::OnTokens,
       {{"mask", integer(0, kMostToken), "", "the token that masks", true},
        {"vocabulary", integer(1, kMostToken), "", "tokens are below it", true},
        probability("0.15"),
        {"random", number(kUnit), "0.1", "share of the chosen tokens that become random ones"},
        {"keep", number(kUnit), "0.1", "share of the chosen tokens that stay"},
        {"special", integers(0), "[]", "tokens that are never chosen"},
        {"ignore_index", integer(-kMostToken), "-100", "target of the tokens that are not chosen"}},
       "masked language modelling (BERT): masks chosen tokens; targets are these tokens"},
      {"span_corruption",
       tokens,
       true,
       Works::OnTokens,
       {{"sentinel", integer(0, kMostToken), "", "the first sentinel; the next ones count down", true},
        {"end", integer(0, kMostToken), "1", "the token that ends inputs and targets"},
        {"start", integer(0, kMostToken), "0", "the first of `decoder_tokens`"},
        {"density", number({0, 1, true, true}), "0.15", "share of the tokens that is taken out"},
        {"mean_length", number({1, 1000}), "3", "mean length of a span"}},
       "span corruption (T5): replaces spans by sentinels; targets are the spans"},
  };
}

/// Adds the default of an argument that the table leaves out.
void addDefault(toml::table &arguments, const TransformArgument &argument) {
  if (argument.preset.empty() || arguments.contains(argument.name))
    return;
  if (auto parsed = parseToml("v = " + argument.preset))
    arguments.insert(argument.name, *parsed->get("v"));
}

std::vector<std::string> namesOf(const TransformKind &kind) {
  std::vector<std::string> names;
  for (const TransformArgument &argument : kind.arguments)
    names.push_back(argument.name);
  return names;
}

Status unknownArgument(const TransformKind &kind, std::string_view name) {
  std::vector<std::string> known = namesOf(kind);
  known.insert(known.end(), {"column", "on"});
  const std::string nearest = nearestName(std::string(name), known);
  return error("{} has no argument {}; {}it takes {}", kind.name, name,
               nearest.empty() ? "" : fmt::format("the nearest is {}, ", nearest), fmt::join(known, ", "));
}

/// Checks conditions between the arguments of one table.
Status checkTogether(const TransformSpec &spec) {
  if (spec.kind->name == "resize" && spec.has("max_size")) {
    if (spec.integers("size").size() == 2)
      return error("max_size belongs to a size of one number, the shorter side; leave it out");
    if (spec.integer("max_size") <= spec.integer("size"))
      return error("max_size = {} must be above size = {}", spec.integer("max_size"), spec.integer("size"));
  }
  if (spec.kind->name == "rand_augment" && spec.integer("magnitude") >= spec.integer("num_magnitude_bins"))
    return error("magnitude = {} is no bin of num_magnitude_bins = {}: bins count from 0", spec.integer("magnitude"),
                 spec.integer("num_magnitude_bins"));
  if (spec.kind->name == "random_erasing") {
    const auto value = spec.arguments["value"];
    if (value.is_string() ? spec.word("value") != "random" : !check(numbers(kAny), *value.node()).ok())
      return error("value: expected a number, a list of them or \"random\"");
  }
  if (spec.kind->name == "normalise")
    if (size_t mean = spec.numbers("mean").size(), std = spec.numbers("std").size();
        mean == 0 || std == 0 || (mean != std && mean != 1 && std != 1))
      return error("mean has {} numbers, std {}: give each one number, or one for each channel", mean, std);
  if (spec.kind->name == "mask_tokens") {
    if (spec.real("random") + spec.real("keep") > 1)
      return error("random = {} and keep = {} are more than all chosen tokens", spec.real("random"), spec.real("keep"));
    if (spec.integer("mask") >= spec.integer("vocabulary"))
      return error("mask = {} is no token: vocabulary = {}", spec.integer("mask"), spec.integer("vocabulary"));
  }
  if (spec.kind->name == "color_jitter")
    if (spec.arguments["hue"].is_number() && spec.real("hue") < 0)
      return error("hue: {} is out of range: a single number is from 0 to 0.5", spec.real("hue"));
  return Status();
}

Expected<TransformSpec> readOne(const toml::table &table, size_t number) {
  TransformSpec spec;
  spec.number = number;
  const toml::node *kind = table.get("kind");
  if (!kind || !kind->is_string())
    return error("data.transform {}: it has no `kind`, a string", number);
  const std::string name = *kind->value<std::string>();
  spec.kind = findTransformKind(name);
  if (!spec.kind) {
    std::vector<std::string> known;
    for (const TransformKind &one : transformKinds())
      known.push_back(one.name);
    const std::string nearest = nearestName(name, known);
    return error("data.transform {}: kind \"{}\" is unknown; {}known are {}", number, name,
                 nearest.empty() ? "" : fmt::format("the nearest is \"{}\"; ", nearest), fmt::join(known, ", "));
  }
  auto wrong = [&](std::string_view key, const Status &status) {
    return status.withContext(fmt::format("{}: {}", spec.place(), key));
  };
  const Works works = spec.kind->works;
  spec.column = works == Works::OnLabels    ? "label"
                : works == Works::OnTokens  ? "tokens"
                : works == Works::OnNumbers ? ""
                                            : "image";
  spec.inEvaluation = !spec.kind->random || works == Works::OnTokens; // they also make the targets
  for (const auto &[key, value] : table) {
    const std::string_view argument = key.str();
    if (argument == "kind")
      continue;
    if (argument == "column" || argument == "on" || (argument == "mask" && isGeometry(*spec.kind))) {
      if (Status status = check(argument == "on" ? choice({"train", "eval", "both"}) : text(), value); !status.ok())
        return wrong(argument, status);
      const std::string word = *value.value<std::string>();
      if (argument == "column") {
        spec.column = word;
      } else if (argument == "mask") {
        spec.mask = word;
      } else {
        spec.inTraining = word != "eval";
        spec.inEvaluation = word != "train";
      }
      continue;
    }
    auto found = std::find_if(spec.kind->arguments.begin(), spec.kind->arguments.end(),
                              [&](const TransformArgument &one) { return one.name == argument; });
    if (found == spec.kind->arguments.end())
      return unknownArgument(*spec.kind, argument).withContext(fmt::format("data.transform {}", number));
    if (Status status = check(found->values, value); !status.ok())
      return wrong(argument, status);
    spec.arguments.insert(argument, value);
  }
  if (spec.column.empty())
    return error("{}: it needs column: the name of a column of numbers", spec.place());
  if (!spec.mask.empty() && spec.mask == spec.column)
    return wrong("mask", error("\"{}\" is the column itself; name the column that moves with it", spec.mask));
  if (spec.inEvaluation && spec.kind->works == Works::OnBatches)
    return wrong("on", error("batches are mixed in training alone: \"train\""));
  for (const TransformArgument &argument : spec.kind->arguments) {
    if (argument.required && !spec.has(argument.name))
      return error("{}: it needs {}: {}", spec.place(), argument.name, argument.meaning);
    addDefault(spec.arguments, argument);
  }
  if (Status status = checkTogether(spec); !status.ok())
    return status.withContext(spec.place());
  return spec;
}

} // namespace

std::span<const TransformKind> transformKinds() {
  static const std::vector<TransformKind> kinds = makeKinds();
  return kinds;
}

const TransformKind *findTransformKind(std::string_view name) {
  for (const TransformKind &kind : transformKinds())
    if (kind.name == name || std::find(kind.otherNames.begin(), kind.otherNames.end(), name) != kind.otherNames.end())
      return &kind;
  return nullptr;
}

std::vector<double> TransformSpec::numbers(std::string_view name) const {
  std::vector<double> result;
  const toml::node *node = arguments.get(name);
  if (node && !node->is_array())
    result.push_back(*node->value<double>());
  else if (node)
    for (const toml::node &element : *node->as_array())
      result.push_back(*element.value<double>());
  return result;
}

std::vector<int64_t> TransformSpec::integers(std::string_view name) const {
  std::vector<int64_t> result;
  for (double value : numbers(name))
    result.push_back(int64_t(value));
  return result;
}

TransformSpec TransformSpec::ofMask() const {
  TransformSpec spec = *this;
  spec.column = std::exchange(spec.mask, "");
  spec.ofMasks = true;
  if (spec.has("interpolation"))
    spec.arguments.insert_or_assign("interpolation", "nearest");
  if (spec.has("fill"))
    spec.arguments.insert_or_assign("fill", 0.0);
  return spec;
}

std::string TransformSpec::place() const { return fmt::format("data.transform {} ({})", number, kind->name); }

Expected<std::vector<TransformSpec>> readTransforms(const toml::node &tables,
                                                    const std::function<std::string(const toml::node &)> &at) {
  const toml::array *array = tables.as_array();
  if (!array)
    return expected("tables, each begun by [[data.transform]]", tables);
  std::vector<TransformSpec> specs;
  for (const toml::node &element : *array) {
    if (!element.is_table())
      return expected("tables, each begun by [[data.transform]]", element);
    Expected<TransformSpec> spec = readOne(*element.as_table(), specs.size() + 1);
    if (!spec)
      return Status((at ? at(element) : "") + spec.message());
    specs.push_back(spec.take());
  }
  return specs;
}

std::string transformsText(const toml::node &tables) {
  toml::table whole;
  whole.insert("tables", tables);
  std::ostringstream text;
  text << whole;
  return text.str();
}

Expected<std::vector<TransformSpec>> parseTransforms(const std::string &text) {
  if (text.empty())
    return std::vector<TransformSpec>();
  Expected<toml::table> parsed = parseToml(text);
  const toml::node *tables = parsed ? parsed->get("tables") : nullptr;
  if (!tables)
    return error("data.transform: no list of tables: {}", text);
  return readTransforms(*tables);
}

std::string transformsTable() {
  std::string text, family;
  for (const TransformKind &kind : transformKinds()) {
    if (kind.family != family) {
      family = kind.family;
      text += fmt::format("{}### {}\n| kind | what it does | arguments (default) |\n| --- | --- | --- |\n",
                          text.empty() ? "" : "\n", family);
    }
    std::string arguments;
    for (const TransformArgument &argument : kind.arguments) {
      arguments += fmt::format("{}`{}`: {}", arguments.empty() ? "" : "<br>", argument.name, describe(argument.values));
      if (!argument.preset.empty())
        arguments += fmt::format(" (`{}`)", argument.preset);
      else if (!argument.required)
        arguments += " (none)";
      if (!argument.meaning.empty())
        arguments += "; " + argument.meaning;
    }
    text += fmt::format("| `{}` | {}{} | {} |\n", kind.name, kind.random ? "random: " : "", kind.meaning, arguments);
  }
  return text;
}

} // namespace tcc::recipe
