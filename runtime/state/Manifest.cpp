//===- Manifest.cpp - the manifest of a checkpoint ------------------------===//
//
// Members are read through `Reader`, which keeps the first error and the member's path ("tensors[3].shape"), so that a
// list of reads needs one check at its end.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Manifest.h"
#include "runtime/state/SealedJson.h"
#include "support/Json.h"
#include "support/ShortText.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
constexpr uint64_t kMostCount = 1ull << 53; ///< the largest integer that every JSON reader represents exactly
constexpr std::string_view kFormat = "tcc checkpoint";
constexpr std::string_view kLossScale = "loss_scale"; ///< in "requires": a reader without it would miscount updates
constexpr std::string_view kFlatSlices = "flat_slices"; ///< in "requires": shards of ranks are ranges, not boxes
constexpr std::array<std::pair<TensorRole, std::string_view>, 6> kRoles = {{{TensorRole::Parameter, "parameter"},
                                                                            {TensorRole::Buffer, "buffer"},
                                                                            {TensorRole::Optimizer, "optimizer"},
                                                                            {TensorRole::Ema, "ema"},
                                                                            {TensorRole::LossScale, "loss_scale"},
                                                                            {TensorRole::Counter, "counter"}}};

class Reader {
public:
  explicit Reader(const std::string &name) : name(name) {}

  const json *member(const json &object, const std::string &path, const char *key) {
    auto found = object.find(key);
    if (found != object.end())
      return &*found;
    fail(join(path, key), "is missing");
    return nullptr;
  }
  uint64_t count(const json &object, const std::string &path, const char *key, uint64_t most = kMostCount) {
    const json *value = member(object, path, key);
    return value ? count(*value, join(path, key), most) : 0;
  }
  uint64_t count(const json &value, const std::string &path, uint64_t most = kMostCount) {
    if (value.is_number_unsigned() && value.get<uint64_t>() <= most)
      return value.get<uint64_t>();
    fail(path, fmt::format("is {}, not an integer from 0 to {}", shorten(value), most));
    return 0;
  }
  double number(const json &object, const std::string &path, const char *key) {
    const json *value = member(object, path, key);
    if (value && value->is_number() && std::isfinite(value->get<double>()))
      return value->get<double>();
    if (value)
      fail(join(path, key), fmt::format("is {}, not a finite number", shorten(*value)));
    return 0;
  }
  bool boolean(const json &object, const std::string &path, const char *key) {
    const json *value = member(object, path, key);
    if (value && !value->is_boolean())
      fail(join(path, key), fmt::format("is {}, not true or false", shorten(*value)));
    return value && value->is_boolean() && value->get<bool>();
  }
  std::string text(const json &object, const std::string &path, const char *key) {
    const json *value = member(object, path, key);
    return value ? text(*value, join(path, key)) : "";
  }
  std::string text(const json &value, const std::string &path) {
    if (value.is_string())
      return value.get<std::string>();
    fail(path, fmt::format("is {}, not a string", shorten(value)));
    return "";
  }
  uint64_t checksum(const json &value, const std::string &path) {
    if (value.is_string())
      if (auto hash = parseChecksum(value.get_ref<const std::string &>()))
        return *hash;
    fail(path, fmt::format("is {}, not a checksum of 16 hexadecimal digits", shorten(value)));
    return 0;
  }
  const json &list(const json &object, const std::string &path, const char *key) {
    static const json kNone = json::array();
    const json *value = member(object, path, key);
    if (value && value->is_array())
      return *value;
    if (value)
      fail(join(path, key), fmt::format("is {}, not a list", shorten(*value)));
    return kNone;
  }
  const json &object(const json &object, const std::string &path, const char *key) {
    const json *value = member(object, path, key);
    return value ? asObject(*value, join(path, key)) : kNothing;
  }
  const json &asObject(const json &value, const std::string &path) {
    if (value.is_object())
      return value;
    fail(path, fmt::format("is {}, not an object", shorten(value)));
    return kNothing;
  }

  void fail(const std::string &path, const std::string &problem) {
    if (status.ok())
      status = error("{}: damaged: {} {}", name, path, problem);
  }
  static std::string join(const std::string &path, const std::string &key) {
    return path.empty() ? key : path + "." + key;
  }
  static std::string shorten(const json &value) {
    return value.is_array() ? "a list" : value.is_object() ? "an object" : shortened(jsonText(value));
  }

  const std::string &name;
  Status status;

private:
  const json kNothing = json::object();
};

void readPosition(Reader &reader, const json &root, TrainingPosition &position) {
  const json &from = reader.object(root, "", "position");
  position.step = reader.count(from, "position", "step");
  position.epoch = reader.count(from, "position", "epoch");
  position.batch = reader.count(from, "position", "batch");
  position.seed = reader.count(from, "position", "seed", UINT64_MAX);
  position.shuffle = reader.boolean(from, "position", "shuffle");
  position.scheduleTotal = reader.number(from, "position", "schedule_total");
  if (position.scheduleTotal < 0 || position.scheduleTotal > static_cast<double>(kMostCount))
    reader.fail("position.schedule_total", fmt::format("is {}", position.scheduleTotal));
  if (from.contains("damaged_samples"))
    for (const json &sample : reader.list(from, "position", "damaged_samples"))
      position.damagedSamples.push_back(reader.count(sample, "position.damaged_samples"));
  if (from.contains("loss_scale")) {
    const std::string path = "position.loss_scale";
    const json &scale = reader.object(from, "position", "loss_scale");
    LossScaleState &state = position.lossScale.emplace();
    state.scale = reader.number(scale, path, "scale");
    state.growthTracker = reader.count(scale, path, "growth_tracker");
    state.skipped = reader.count(scale, path, "skipped_updates");
    state.hopeless = reader.count(scale, path, "hopeless_updates");
    if (!(state.scale > 0 && state.scale <= double(std::numeric_limits<float>::max())))
      reader.fail(path + ".scale", fmt::format("is {}", state.scale));
    if (state.skipped > position.step)
      reader.fail(path + ".skipped_updates", fmt::format("is {} of {} updates", state.skipped, position.step));
    if (scale.contains("phases"))
      for (const auto &[phase, count] : reader.object(scale, path, "phases").items())
        state.skippedOf[phase] = reader.count(count, path + ".phases." + phase, position.step);
  }
  if (from.contains("plateau")) {
    const std::string path = "position.plateau";
    const json &plateau = reader.object(from, "position", "plateau");
    PlateauState &state = position.plateau.emplace();
    state.metric = reader.text(plateau, path, "metric");
    if (plateau.contains("best"))
      state.best = reader.number(plateau, path, "best");
    state.waited = reader.count(plateau, path, "waited");
    state.cooldown = reader.count(plateau, path, "cooldown");
    state.reductions = reader.count(plateau, path, "reductions");
    state.heard = reader.count(plateau, path, "heard");
    if (state.heard > position.step)
      reader.fail(path + ".heard", fmt::format("is {}; the checkpoint is of step {}", state.heard, position.step));
    if (state.reductions > state.heard)
      reader.fail(path + ".reductions", fmt::format("is {} after {} updates", state.reductions, state.heard));
  }
  const json *best = reader.member(root, "", "best");
  if (!best || best->is_null())
    return;
  reader.asObject(*best, "best");
  if (!best->is_object())
    return;
  position.bestStep = reader.count(*best, "best", "step");
  for (const auto &[key, value] : best->items())
    if (key != "step")
      position.bestMetric = key;
  position.bestValue = reader.number(*best, "best", position.bestMetric.c_str());
  if (position.bestStep == 0 || position.bestStep > position.step)
    reader.fail("best.step", fmt::format("is {}; the checkpoint is of step {}", position.bestStep, position.step));
}

void readSettings(Reader &reader, const json &root, TrainingPosition &position) {
  const json &settings = reader.list(root, "", "settings");
  for (size_t i = 0; i < settings.size(); ++i)
    position.settings.push_back(reader.text(settings[i], fmt::format("settings[{}]", i)));
}

void readChecksums(Reader &reader, const json &root, const char *key, std::map<std::string, uint64_t> &checksums) {
  for (const auto &[name, value] : reader.object(root, "", key).items())
    checksums[name] = reader.checksum(value, Reader::join(key, name));
}

void readRun(Reader &reader, const json &root, RunRecord &run) {
  run.producer = reader.text(root, "", "producer");
  run.model = reader.text(root, "", "model");
  if (const json *plan = reader.member(root, "", "plan"); plan && !plan->is_null())
    run.plan = reader.checksum(*plan, "plan");
  if (root.contains("target"))
    run.target = reader.text(root, "", "target");
  readChecksums(reader, root, "run_files", run.files);
  readChecksums(reader, root, "frozen", run.frozen);
  for (const auto &[name, value] : reader.object(root, "", "training").items()) {
    if (value.is_structured())
      reader.fail(Reader::join("training", name), fmt::format("is {}, not a single value", Reader::shorten(value)));
    run.training[name] = jsonText(value);
  }
  const json *data = reader.member(root, "", "data");
  if (!data || data->is_null() || !reader.asObject(*data, "data").is_object() || !data->is_object())
    return;
  DataRecord &record = run.data.emplace();
  record.samples = reader.count(*data, "data", "samples");
  record.epochSamples = reader.count(*data, "data", "epoch_samples");
  record.batch = reader.count(*data, "data", "batch");
  record.epochBatches = reader.count(*data, "data", "epoch_batches");
  if (data->contains("ranks"))
    record.ranks = std::max<uint64_t>(reader.count(*data, "data", "ranks"), 1);
  if (data->contains("shapes"))
    record.shapes = reader.text(*data, "data", "shapes");
  for (const auto &[name, value] : reader.object(*data, "data", "columns").items())
    record.columns[name] = reader.text(value, "data.columns." + name);
  if (const json *hash = reader.member(*data, "data", "fingerprint"))
    record.fingerprint = reader.checksum(*hash, "data.fingerprint");
  if (record.batch == 0 || record.epochBatches > kMostCount / record.batch)
    reader.fail("data.batch", fmt::format("is {}, of {} batches an epoch", record.batch, record.epochBatches));
}

void readShards(Reader &reader, const json &root, std::vector<ManifestShard> &shards) {
  std::set<std::string> files;
  const json &list = reader.list(root, "", "shards");
  for (size_t i = 0; i < list.size() && reader.status.ok(); ++i) {
    std::string path = fmt::format("shards[{}]", i);
    const json &from = reader.asObject(list[i], path);
    ManifestShard shard;
    shard.file = reader.text(from, path, "file");
    shard.bytes = reader.count(from, path, "bytes");
    if (const json *hash = reader.member(from, path, "xxh3"))
      shard.hash = reader.checksum(*hash, path + ".xxh3");
    bool inside = !shard.file.empty() && shard.file != "." && shard.file != ".." && shard.file != "manifest.json" &&
                  shard.file.size() <= 255 && shard.file.find('/') == std::string::npos &&
                  shard.file.find('\0') == std::string::npos;
    if (!inside)
      reader.fail(path + ".file", fmt::format("is {}, which names no shard in the checkpoint's folder",
                                              Reader::shorten(json(shard.file))));
    else if (!files.insert(shard.file).second)
      reader.fail(path + ".file", fmt::format("names '{}' a second time", shard.file));
    shards.push_back(std::move(shard));
  }
}

std::vector<uint64_t> readExtents(Reader &reader, const json &object, const std::string &path, const char *key) {
  constexpr size_t kMostRank = 64;
  std::vector<uint64_t> extents;
  const json &list = reader.list(object, path, key);
  if (list.size() > kMostRank)
    reader.fail(Reader::join(path, key), fmt::format("has {} axes, more than {}", list.size(), kMostRank));
  for (size_t d = 0; d < list.size() && reader.status.ok(); ++d)
    extents.push_back(reader.count(list[d], fmt::format("{}.{}[{}]", path, key, d), 1ull << 62));
  return extents;
}

void readSlices(Reader &reader, const json &from, const std::string &path, size_t shards, ManifestTensor &tensor,
                std::set<std::pair<size_t, std::string>> &keys) {
  const json &list = reader.list(from, path, "slices");
  for (size_t i = 0; i < list.size() && reader.status.ok(); ++i) {
    std::string at = fmt::format("{}.slices[{}]", path, i);
    const json &entry = reader.asObject(list[i], at);
    TensorSlice slice;
    slice.shard = reader.count(entry, at, "shard");
    slice.key = reader.text(entry, at, "key");
    slice.start = readExtents(reader, entry, at, "start");
    slice.shape = readExtents(reader, entry, at, "shape");
    if (!reader.status.ok())
      return;
    if (slice.shard >= shards)
      reader.fail(at + ".shard", fmt::format("is {}; there are {} shards", slice.shard, shards));
    else if (!keys.emplace(slice.shard, slice.key).second)
      reader.fail(at + ".key", fmt::format("'{}' belongs to another slice already", slice.key));
    tensor.slices.push_back(std::move(slice));
  }
}

void readTensors(Reader &reader, const json &root, Manifest &manifest) {
  std::set<std::string> names;
  std::set<std::pair<size_t, std::string>> keys;
  const json &list = reader.list(root, "", "tensors");
  for (size_t i = 0; i < list.size() && reader.status.ok(); ++i) {
    std::string path = fmt::format("tensors[{}]", i);
    const json &from = reader.asObject(list[i], path);
    ManifestTensor tensor;
    tensor.name = reader.text(from, path, "name");
    std::string role = reader.text(from, path, "role"), dtype = reader.text(from, path, "dtype");
    std::vector<uint64_t> shape = readExtents(reader, from, path, "shape");
    if (!reader.status.ok())
      return;
    if (tensor.name.empty() || !names.insert(tensor.name).second)
      reader.fail(path + ".name", tensor.name.empty() ? "is empty" : fmt::format("'{}' occurs twice", tensor.name));
    for (const auto &[known, text] : kRoles)
      if (text == role)
        tensor.role = known;
    if (!tensor.role)
      reader.fail(path + ".role", fmt::format("is '{}', which this program does not know; update it", role));
    auto type = plan::dtypeFromName(dtype);
    if (!type || *type == plan::DTYPE_NONE)
      reader.fail(path + ".dtype", fmt::format("is '{}', no element type", dtype));
    tensor.type.set_dtype(type.value_or(plan::DTYPE_NONE));
    for (uint64_t extent : shape)
      tensor.type.add_dims(static_cast<int64_t>(extent));
    if (reader.status.ok() && !plan::tensorBytes(tensor.type))
      reader.fail(path + ".shape", "has more elements than fit into memory");
    readSlices(reader, from, path, manifest.shards.size(), tensor, keys);
    if (!reader.status.ok())
      return;
    if (Status covered = checkCoverage(shape, tensor.slices); !covered.ok())
      reader.fail(fmt::format("{}.slices of '{}'", path, tensor.name), covered.message());
    manifest.tensors.push_back(std::move(tensor));
  }
}

/// Version 1: no seal, no tensors, one shard.
Expected<Manifest> parseFirstVersion(const json &root, const std::string &name) {
  Reader reader(name);
  Manifest manifest;
  manifest.version = 1;
  TrainingPosition &position = manifest.position;
  position.step = reader.count(root, "", "step");
  position.epoch = reader.count(root, "", "epoch");
  position.batch = reader.count(root, "", "batch");
  position.seed = reader.count(root, "", "seed", UINT64_MAX);
  position.shuffle = !root.contains("shuffle") || reader.boolean(root, "", "shuffle");
  position.scheduleTotal = root.contains("schedule_total") ? reader.number(root, "", "schedule_total") : 0;
  position.bestStep = root.contains("best_step") ? reader.count(root, "", "best_step") : 0;
  position.bestValue = root.contains("best_loss") ? reader.number(root, "", "best_loss") : 0;
  if (position.scheduleTotal < 0 || position.bestStep > position.step)
    reader.fail(position.scheduleTotal < 0 ? "schedule_total" : "best_step", "is out of range");
  readSettings(reader, root, position);
  if (root.contains("model"))
    manifest.run.model = reader.text(root, "", "model");
  ManifestShard shard;
  shard.file = "state.safetensors";
  const json &state = reader.object(reader.object(root, "", "files"), "files", "state.safetensors");
  if (const json *hash = reader.member(state, "files.state.safetensors", "xxh3"))
    shard.hash = reader.checksum(*hash, "files.state.safetensors.xxh3");
  manifest.shards.push_back(shard);
  if (!reader.status.ok())
    return reader.status;
  return manifest;
}

Expected<Manifest> parseRoot(const json &root, const std::string &name) {
  Reader reader(name);
  uint64_t version = reader.count(root, "", "version");
  if (!reader.status.ok())
    return reader.status;
  if (version > kManifestVersion)
    return error("{}: checkpoint version {} is newer than {}, the newest that this program reads; update it",
                       name, version, kManifestVersion);
  if (version == 0)
    return error("{}: damaged: version is 0; this program reads 1 to {}", name, kManifestVersion);
  if (version == 1 && !root.contains("format"))
    return parseFirstVersion(root, name);
  if (version == 1 || reader.text(root, "", "format") != kFormat)
    reader.fail(version == 1 ? "version" : "format",
                version == 1 ? "is 1, but the members are a later version's" : fmt::format("is not '{}'", kFormat));
  const json &required = reader.list(root, "", "requires");
  bool scales = false;
  for (size_t i = 0; i < required.size(); ++i)
    if (std::string feature = reader.text(required[i], fmt::format("requires[{}]", i)); feature == kLossScale)
      scales = true;
    else if (reader.status.ok() && feature != kFlatSlices)
      return error("{}: the checkpoint requires '{}', which this program does not know; update it", name,
                         feature);
  Manifest manifest;
  manifest.version = static_cast<int>(version);
  readPosition(reader, root, manifest.position);
  if (scales != manifest.position.lossScale.has_value())
    reader.fail(scales ? "position.loss_scale" : "requires", scales ? "is missing" : "does not list 'loss_scale'");
  readSettings(reader, root, manifest.position);
  readRun(reader, root, manifest.run);
  readShards(reader, root, manifest.shards);
  readTensors(reader, root, manifest);
  if (const auto &data = manifest.run.data; data && manifest.position.batch > data->epochBatches)
    reader.fail("position.batch", fmt::format("is {}; an epoch has {}", manifest.position.batch, data->epochBatches));
  if (!reader.status.ok())
    return reader.status;
  return manifest;
}

nlohmann::ordered_json checksums(const std::map<std::string, uint64_t> &from) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto &[name, hash] : from)
    object[name] = checksumText(hash);
  return object;
}
} // namespace

std::string_view tcc::runtime::roleName(TensorRole role) {
  for (const auto &[known, text] : kRoles)
    if (known == role)
      return text;
  return "";
}

Expected<Manifest> tcc::runtime::parseManifest(std::string_view text, const std::string &name) {
  auto root = openSealed(text, name, /*allowUnsealed=*/true);
  if (!root)
    return root.status();
  auto version = root->find("version");
  bool first = version != root->end() && *version == 1 && !root->contains("format");
  bool newer = version != root->end() && version->is_number_unsigned() && *version > kManifestVersion;
  if (!root->contains("xxh3") && !first && !newer)
    return error("{}: damaged or edited: it does not end with its checksum", name);
  return parseRoot(*root, name);
}

Expected<Manifest> tcc::runtime::parseManifestBody(std::string_view text, const std::string &name) {
  auto root = parseObject(text, name);
  return root ? parseRoot(*root, name) : root.status();
}

std::string tcc::runtime::manifestText(const Manifest &manifest) {
  using Json = nlohmann::ordered_json;
  const TrainingPosition &position = manifest.position;
  const RunRecord &run = manifest.run;
  Json training = Json::object(), data, best, tensors = Json::array(), shards = Json::array();
  for (const auto &[name, value] : run.training)
    training[name] = Json::parse(value);
  if (run.data)
    data = {{"samples", run.data->samples}, {"epoch_samples", run.data->epochSamples},
            {"batch", run.data->batch},     {"epoch_batches", run.data->epochBatches},
            {"columns", run.data->columns}, {"fingerprint", checksumText(run.data->fingerprint)}};
  if (run.data && run.data->ranks > 1)
    data["ranks"] = run.data->ranks;
  if (run.data && !run.data->shapes.empty())
    data["shapes"] = run.data->shapes;
  if (position.bestStep != 0)
    best = {{"step", position.bestStep}, {position.bestMetric, position.bestValue}};
  for (const ManifestShard &shard : manifest.shards)
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"xxh3", checksumText(shard.hash)}});
  for (const ManifestTensor &tensor : manifest.tensors) {
    Json slices = Json::array();
    for (const TensorSlice &slice : tensor.slices)
      slices.push_back({{"shard", slice.shard}, {"key", slice.key}, {"start", slice.start}, {"shape", slice.shape}});
    std::vector<int64_t> shape(tensor.type.dims().begin(), tensor.type.dims().end());
    tensors.push_back({{"name", tensor.name},
                       {"role", roleName(tensor.role.value_or(TensorRole::Parameter))},
                       {"dtype", plan::dtypeName(tensor.type.dtype())},
                       {"shape", shape},
                       {"slices", std::move(slices)}});
  }
  Json root = {{"format", kFormat},
               {"version", kManifestVersion},
               {"requires", Json::array()},
               {"producer", run.producer},
               {"model", run.model},
               {"plan", run.plan ? Json(checksumText(*run.plan)) : Json()},
               {"target", run.target},
               {"run_files", checksums(run.files)},
               {"position",
                {{"step", position.step},
                 {"epoch", position.epoch},
                 {"batch", position.batch},
                 {"seed", position.seed},
                 {"shuffle", position.shuffle},
                 {"schedule_total", position.scheduleTotal}}},
               {"best", best},
               {"settings", position.settings},
               {"training", training},
               {"frozen", checksums(run.frozen)},
               {"data", data},
               {"shards", shards},
               {"tensors", tensors}};
  if (const auto &state = position.lossScale) {
    root["requires"].push_back(kLossScale);
    root["position"]["loss_scale"] = {{"scale", state->scale},
                                      {"growth_tracker", state->growthTracker},
                                      {"skipped_updates", state->skipped},
                                      {"hopeless_updates", state->hopeless}};
    if (!state->skippedOf.empty())
      root["position"]["loss_scale"]["phases"] = state->skippedOf;
  }
  if (const auto &state = position.plateau) {
    root["position"]["plateau"] = {{"metric", state->metric},
                                   {"waited", state->waited},
                                   {"cooldown", state->cooldown},
                                   {"reductions", state->reductions},
                                   {"heard", state->heard}};
    if (state->best)
      root["position"]["plateau"]["best"] = *state->best;
  }
  const bool flat = std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const ManifestTensor &tensor) {
    return !tensor.slices.empty() &&
           isFlat(tensor.slices[0], std::vector<uint64_t>(tensor.type.dims().begin(), tensor.type.dims().end()));
  });
  if (flat)
    root["requires"].push_back(kFlatSlices);
  if (!position.damagedSamples.empty())
    root["position"]["damaged_samples"] = position.damagedSamples;
  return sealObject(root, {"shards", "tensors"});
}

bool tcc::runtime::wasFrozenAs(const Manifest &manifest, const std::string &name, uint64_t identity) {
  auto found = manifest.run.frozen.find(name);
  return found != manifest.run.frozen.end() && found->second == identity;
}
