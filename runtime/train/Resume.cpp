//===- Resume.cpp - compare a resumed run with its checkpoint -------------===//
#include "runtime/train/Resume.h"
#include "runtime/plan/SettingFields.h"
#include "support/Advice.h"
#include "support/Json.h"
#include "support/ShortText.h"
#include "runtime/state/Weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
using Settings = std::map<std::string, std::string>;

std::string text(const json &value) { return jsonText(value); }

/// Keys of a recipe's table under their full names; arrays are one value.
void flatten(const toml::table &table, const std::string &prefix, Settings &out) {
  for (const auto &[key, node] : table) {
    std::string name = prefix + std::string(key.str());
    if (const toml::table *inner = node.as_table()) {
      flatten(*inner, name + ".", out);
      continue;
    }
    if (auto word = node.value<std::string>())
      out[name] = text(*word);
    else if (auto number = node.value<double>(); number && !node.is_boolean())
      out[name] = text(*number);
    else if (auto flag = node.value<bool>())
      out[name] = text(*flag);
    else if (const toml::array *array = node.as_array()) {
      std::ostringstream stream;
      stream << toml::json_formatter(*array, toml::format_flags::none);
      json parsed = parseJsonOrNull(stream.str());
      out[name] = text(parsed.is_null() ? json(stream.str()) : json(jsonText(parsed)));
    }
  }
}

/// The groups that differ from the optimizer's own settings.
void addGroups(const plan::Optimizer &optimizer, Settings &out) {
  auto decay = optimizer.numbers().find("weight_decay");
  double usual = decay == optimizer.numbers().end() ? 0 : decay->second;
  for (int g = 0; g < optimizer.groups_size(); ++g) {
    const plan::OptimizerGroup &group = optimizer.groups(g);
    std::string prefix = fmt::format("optimizer.group[{}] '{}' ", g, group.name());
    if (group.lr_scale() != 1)
      out[prefix + "lr_scale"] = text(group.lr_scale());
    if (group.weight_decay() != usual)
      out[prefix + "weight_decay"] = text(group.weight_decay());
  }
}

/// The key of a setting, or of the table that it is an entry of; null for what no recipe sets.
const recipe::Key *keyOfSetting(const std::string &name) {
  const recipe::Key *key = recipe::findKey(name);
  return key ? key : recipe::findTableOf(name);
}

/// The settings of a run: values that the plan keeps, values of the recipe that only the compiler reads, and the
/// compiler's choices for keys that the recipe leaves open.
Settings settingsOf(const Session &session) {
  plan::Training training = session.training;
  plan::storePresets("schedule", training);
  Settings out;
  for (const recipe::Key &key : recipe::allKeys())
    if (key.resumed != recipe::Resumed::Ignored)
      out.merge(plan::settingTexts(key, training, session.data));
  addGroups(training.optimizer(), out);
  if (training.has_loss_scale()) {
    out["train.loss_scale.kind"] = text(training.loss_scale().dynamic() ? "dynamic" : "fixed");
    if (!training.loss_scale().dynamic())
      for (const char *unread : {"growth_factor", "backoff_factor", "growth_interval"})
        out.erase(fmt::format("train.loss_scale.{}", unread));
  }
  out["train.precision"] = text(session.plan().precision());
  out["loss.kind"] = text(training.loss_kind());
  out["loss.output"] = text(training.loss_output());
  out["loss.target"] = text(training.target());
  out["loss.shift"] = text(training.shift());
  if (auto recipe = parseToml(session.plan().recipe())) {
    Settings given;
    flatten(*recipe, "", given);
    for (const auto &[name, value] : given)
      if (const recipe::Key *key = keyOfSetting(name);
          name == "loss" || (key && key->places.empty() && key->resumed != recipe::Resumed::Ignored))
        out.try_emplace(name, value);
  }
  return out;
}

/// How a resumed run handles a change of this setting.
recipe::Resumed policyOf(const std::string &name) {
  const recipe::Key *key = keyOfSetting(name);
  return key ? key->resumed : recipe::Resumed::Noted;
}

std::string wayOut(const RunReference &run) {
  return fmt::format("start a new run from its weights: {} {}",
                     advice::option("init", fmt::format("{}@{}", run.run, run.selector)), advice::option("out", "NEW"));
}

std::string shown(const Settings &settings, const std::string &name) {
  auto found = settings.find(name);
  if (found == settings.end())
    return "unset";
  json value = parseJsonOrNull(found->second);
  std::string result = value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : found->second;
  return shortened(result);
}

Status compareSettings(const RunReference &run, const Manifest &stored, const RunRecord &now,
                             std::vector<Message> &notes) {
  std::set<std::string> names;
  for (const Settings *settings : {&stored.run.training, &now.training})
    for (const auto &[name, value] : *settings)
      names.insert(name);
  std::string differences;
  constexpr size_t kShown = 12;
  size_t count = 0;
  for (const std::string &name : names) {
    if (policyOf(name) == recipe::Resumed::Ignored)
      continue; // of a checkpoint that an earlier version wrote
    auto before = stored.run.training.find(name), after = now.training.find(name);
    const std::string none = text(nullptr);
    if ((before == stored.run.training.end() ? none : before->second) ==
        (after == now.training.end() ? none : after->second))
      continue;
    std::string change = fmt::format("{} {} → {}", name, shown(stored.run.training, name), shown(now.training, name));
    if (policyOf(name) == recipe::Resumed::Refused)
      return error("the run was trained with another setting: {}; its state cannot go on so; {}", change,
                         wayOut(run));
    if (policyOf(name) == recipe::Resumed::Kept)
      return error("{0} {1} → {2}: the run that is resumed goes on with {1}; leave it out, or give {3}", name,
                   shown(stored.run.training, name), shown(now.training, name),
                   advice::set(name, shown(stored.run.training, name)));
    if (++count <= kShown)
      differences += (differences.empty() ? "" : ", ") + change;
  }
  if (count > kShown)
    differences += fmt::format(" and {} more", count - kShown);
  if (count != 0)
    notes.push_back(Message::note("settings differ from the run's: {}", differences));
  return Status();
}

Status compareFrozen(const RunReference &run, const Manifest &stored, const RunRecord &now) {
  NameList different;
  for (const auto &[name, identity] : now.frozen)
    if (auto before = stored.run.frozen.find(name); before != stored.run.frozen.end() && before->second != identity)
      different.add(name);
  if (different.empty())
    return Status();
  return error("the plan's frozen values are not those that the run was trained with: {}; compile the model that "
                     "the run started from, or {}",
                     different.text(), wayOut(run));
}

/// Converts the number of finished micro-batches of the epoch to the new batch size.
Status convertBatches(const RunReference &run, const DataRecord &before, const DataRecord &now,
                            TrainingPosition &position) {
  if (position.batch >= before.epochBatches) {
    position.batch = now.epochBatches;
    return Status();
  }
  if (before.shapes != now.shapes)
    return error("the run had done {} batches of epoch {} in other shapes, so that the rest of the epoch has other "
                 "samples; resume with a plan of the same shapes, or {}",
                 position.batch, position.epoch + 1, wayOut(run));
  uint64_t samples = position.batch * before.batch;
  // With another number of ranks, the finished samples need not be whole global batches: the rest of a batch is
  // skipped.
  const bool sameShare = before.ranks != now.ranks && before.batch / before.ranks == now.batch / now.ranks;
  if (sameShare) {
    position.batch = std::min((samples + now.batch - 1) / now.batch, now.epochBatches);
    return Status();
  }
  if (samples % now.batch != 0)
    return error(
        "the run had done {} samples of epoch {} in batches of {}; batches of {} cannot go on from there; "
        "compile with a batch that divides {}, or {}",
        samples, position.epoch + 1, before.batch, now.batch, samples, wayOut(run));
  position.batch = std::min(samples / now.batch, now.epochBatches);
  return Status();
}

Status compareData(const RunReference &run, const Manifest &stored, const RunRecord &now,
                         TrainingPosition &position, std::vector<Message> &notes) {
  if (!stored.run.data || !now.data)
    return Status();
  const DataRecord &before = *stored.run.data, &after = *now.data;
  bool middle = position.batch != 0 && position.batch < before.epochBatches;
  if (before.batch != after.batch || before.shapes != after.shapes ||
      (before.epochBatches != after.epochBatches && !middle)) {
    uint64_t was = position.batch;
    if (Status status = convertBatches(run, before, after, position); !status.ok())
      return status;
    if (before.ranks != after.ranks)
      notes.push_back(Message::note("the number of ranks differs from the run's: {} → {}; epoch {} goes on after {} of "
                                  "its samples, of which the run had done {}",
                                  before.ranks, after.ranks, position.epoch + 1, position.batch * after.batch,
                                  was * before.batch));
    else if (before.batch != after.batch && before.shapes == after.shapes)
      notes.push_back(Message::note("the batch differs from the run's: {} → {} samples; epoch {} goes on after "
                                  "batch {} (it was {})",
                                  before.batch, after.batch, position.epoch + 1, position.batch, was));
  }
  if (before.samples != after.samples)
    notes.push_back(Message::note("the data differ from the run's: {} → {} samples{}", before.samples,
                                after.samples,
                                middle ? fmt::format("; the rest of epoch {} follows the new order, so that some "
                                                     "samples may come twice in it and others not at all",
                                                     position.epoch + 1)
                                       : ""));
  else if (before.fingerprint != after.fingerprint)
    notes.push_back(Message::note("the data differ from the run's: as many samples, but other values"));
  return Status();
}
} // namespace

RunRecord tcc::runtime::makeRunRecord(const Session &session) {
  RunRecord record;
  record.producer = "trun " TCC_VERSION;
  record.model = session.plan().model();
  record.plan = session.reader.checksum();
  record.target = session.plan().target();
  record.training = settingsOf(session);
  std::vector<bool> written = writtenVariables(session.plan());
  for (int i = 0; i < session.plan().variables_size(); ++i)
    if (const plan::Variable &variable = session.plan().variables(i);
        variable.role() == plan::FROZEN && !written[static_cast<size_t>(i)])
      record.frozen[variable.name()] = initialIdentity(session.plan(), variable);
  return record;
}

DataRecord tcc::runtime::makeDataRecord(const EntryData &data, uint64_t epochSamples, uint64_t epochBatches,
                                        uint64_t ranks) {
  DataRecord record;
  record.samples = data.reader().samples();
  record.epochSamples = epochSamples;
  record.batch = data.reader().batch() * ranks;
  record.ranks = ranks;
  record.epochBatches = epochBatches;
  for (const auto &reader : data.readers)
    if (data.readers.size() > 1)
      record.shapes += (record.shapes.empty() ? "" : "; ") + reader->shapeText();
  constexpr uint64_t kProbes = 16;
  for (const auto &[input, column] : data.reader().columns()) {
    record.columns[input] = plan::typeName(column->type());
    std::vector<std::byte> sample(column->sampleBytes());
    for (uint64_t i = 0, last = UINT64_MAX; i < kProbes && column->samples() != 0; ++i) {
      uint64_t index = i * (column->samples() - 1) / (kProbes - 1);
      if (index == last)
        continue;
      last = index;
      // A sample that cannot be read is reported when a batch needs it.
      bool read = column->read(index, sample.data()).ok();
      uint64_t pair[2] = {record.fingerprint, read ? plan::hashBytes(sample.data(), sample.size()) : 0};
      record.fingerprint = plan::hashBytes(pair, sizeof(pair));
    }
  }
  return record;
}

Expected<std::vector<Message>> tcc::runtime::compareWithRun(const RunReference &run, const Manifest &stored,
                                                                      const RunRecord &now,
                                                                      TrainingPosition &position) {
  std::vector<Message> notes;
  if (stored.version == 1) {
    notes.push_back(
        Message::note("an earlier version wrote this checkpoint, without its settings: whether they differ is not "
                      "known"));
    return notes;
  }
  Status status = compareSettings(run, stored, now, notes);
  if (status.ok())
    status = compareFrozen(run, stored, now);
  if (status.ok())
    status = compareData(run, stored, now, position, notes);
  if (!status.ok())
    return status;
  if (stored.run.model != now.model)
    notes.push_back(Message::note("the model differs from the run's: {} → {}", stored.run.model, now.model));
  return notes;
}
