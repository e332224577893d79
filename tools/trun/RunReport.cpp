//===- RunReport.cpp - a run as text, JSON or a page -----------------------===//
#include "support/MappedFile.h"
#include "tools/common/Page.h"
#include "tools/common/Stages.h"
#include "tools/common/TextTable.h"
#include "tools/trun/Commands.h"
#include "tools/trun/RunHistory.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;
using Json = nlohmann::ordered_json;

static constexpr std::string_view kPage =
#include "tools/trun/RunPage.inc"
    ;
/// The largest picture in a page, so that the page can be mailed.
static constexpr uint64_t kMostPicture = 8 << 20;
static constexpr size_t kNamesShown = 8;

namespace {
/// JSON cannot represent numbers that are not finite.
Json numberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// The sum of a number over the lines that have it; NaN if none has.
struct Sum {
  double sum = 0;
  uint64_t count = 0;
  double least = INFINITY, greatest = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value))
      return;
    sum += value;
    ++count;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  double total() const { return count ? sum : NAN; }
  double mean() const { return count ? sum / static_cast<double>(count) : NAN; }
};

/// Columns of a phase: means of losses and norms over the updates of a point in which it ran, and its last rate.
void addPhase(Json &columns, const std::string &name, size_t phase, std::span<const PastUpdate> updates) {
  Sum loss, norm;
  double rate = NAN;
  for (const PastUpdate &update : updates)
    if (phase < update.phases.size()) {
      loss.add(update.phases[phase].loss);
      norm.add(update.phases[phase].gradientNorm);
      if (std::isfinite(update.phases[phase].learningRate))
        rate = update.phases[phase].learningRate;
    }
  columns["loss." + name].push_back(numberOrNull(loss.mean()));
  columns["lr." + name].push_back(numberOrNull(rate));
  columns["grad_norm." + name].push_back(numberOrNull(norm.mean()));
}

Json updatesOf(const RunHistory &history, size_t most) {
  const std::vector<PastUpdate> &all = history.updates;
  const size_t each = std::max<size_t>(1, (all.size() + most - 1) / most);
  Json columns = Json::object();
  for (const char *name :
       {"first", "step", "epoch", "loss", "loss_least", "loss_greatest", "lr", "grad_norm", "loss_scale", "seconds",
        "data_seconds", "communication_seconds", "exposed_seconds", "samples", "tokens"})
    columns[name] = Json::array();
  for (size_t begin = 0; begin < all.size(); begin += each) {
    const size_t end = std::min(all.size(), begin + each);
    Sum loss, norm, seconds, data, communication, exposed, samples, tokens;
    for (size_t i = begin; i < end; ++i) {
      loss.add(all[i].loss);
      norm.add(all[i].gradientNorm);
      seconds.add(all[i].seconds);
      data.add(all[i].dataSeconds);
      communication.add(all[i].communicationSeconds);
      exposed.add(all[i].exposedSeconds);
      samples.add(all[i].samples);
      tokens.add(all[i].tokens);
    }
    const PastUpdate &last = all[end - 1];
    columns["first"].push_back(all[begin].step);
    columns["step"].push_back(last.step);
    columns["epoch"].push_back(last.epoch);
    columns["loss"].push_back(numberOrNull(loss.mean()));
    columns["loss_least"].push_back(numberOrNull(loss.least));
    columns["loss_greatest"].push_back(numberOrNull(loss.greatest));
    columns["lr"].push_back(numberOrNull(last.learningRate));
    columns["grad_norm"].push_back(numberOrNull(norm.mean()));
    columns["loss_scale"].push_back(numberOrNull(last.lossScale));
    columns["seconds"].push_back(numberOrNull(seconds.total()));
    columns["data_seconds"].push_back(numberOrNull(data.total()));
    columns["communication_seconds"].push_back(numberOrNull(communication.total()));
    columns["exposed_seconds"].push_back(numberOrNull(exposed.total()));
    columns["samples"].push_back(numberOrNull(samples.total()));
    columns["tokens"].push_back(numberOrNull(tokens.total()));
    for (size_t phase = 0; phase < history.phases.size(); ++phase)
      addPhase(columns, history.phases[phase], phase, std::span(all).subspan(begin, end - begin));
    for (size_t i = 0; i < history.losses.size(); ++i) {
      Sum part;
      for (size_t j = begin; j < end; ++j)
        if (i < all[j].losses.size())
          part.add(all[j].losses[i]);
      columns["loss/" + history.losses[i].name].push_back(numberOrNull(part.mean()));
    }
  }
  return columns;
}

Json evaluationsOf(const RunHistory &history) {
  Json rows = Json::array();
  for (const PastEvaluation &one : history.evaluations) {
    Json row = {{"step", one.step}, {"seconds", numberOrNull(one.seconds)}};
    for (const auto &[key, value] : one.record.values)
      row[key] = numberOrNull(value);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json checkpointsOf(const RunHistory &history) {
  Json rows = Json::array();
  for (const PastCheckpoint &one : history.checkpoints)
    rows.push_back({{"step", one.step},
                    {"bytes", one.bytes},
                    {"waited_seconds", numberOrNull(one.waitedSeconds)},
                    {"seconds", numberOrNull(one.seconds)},
                    {"kept", one.kept},
                    {"best", history.best && history.best->step == one.step}});
  return rows;
}

Json factsOf(const RunHistory &history) {
  Json facts;
  if (history.options)
    facts["options"] = optionsText(*history.options);
  if (!history.manifest)
    return facts;
  const RunRecord &run = history.manifest->run;
  const TrainingPosition &position = history.manifest->position;
  facts["model"] = run.model;
  facts["producer"] = run.producer;
  facts["target"] = run.target;
  facts["plan"] = run.plan ? fmt::format("{:016x}", *run.plan) : "";
  facts["seed"] = position.seed;
  facts["shuffle"] = position.shuffle;
  facts["set"] = position.settings;
  if (run.data)
    facts["data"] = {{"samples", run.data->samples},
                     {"samples_an_epoch", run.data->epochSamples},
                     {"batch", run.data->batch},
                     {"batches_an_epoch", run.data->epochBatches},
                     {"columns", run.data->columns}};
  facts["training"] = run.training;
  return facts;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
  }
  return text;
}

/// The losses of all updates in one line, "loss 5.36 █▆▃▂▁ 2.52": the mean of each part of the run, between the least
/// and the greatest of these means. Empty for fewer than two updates.
std::string curveText(const RunHistory &history) {
  constexpr size_t kMostParts = 40;
  constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::vector<PastUpdate> &all = history.updates;
  const size_t parts = std::min(all.size(), kMostParts);
  if (parts < 2)
    return "";
  std::vector<double> means;
  Sum range;
  for (size_t part = 0; part < parts; ++part) {
    Sum loss;
    for (size_t i = part * all.size() / parts; i < (part + 1) * all.size() / parts; ++i)
      loss.add(all[i].loss);
    means.push_back(loss.mean());
    range.add(means.back());
  }
  std::string curve;
  for (double mean : means) {
    const double height = range.greatest > range.least ? (mean - range.least) / (range.greatest - range.least) : 0;
    curve += std::isfinite(mean) ? kBlocks[static_cast<size_t>(std::lround(height * 7))] : " ";
  }
  return fmt::format("loss {:.4g} {} {:.4g}\n", all.front().loss, curve, all.back().loss);
}

/// Of the last update in which the phase ran.
std::string phaseText(const RunHistory &history, size_t phase) {
  for (auto update = history.updates.rbegin(); update != history.updates.rend(); ++update)
    if (phase < update->phases.size() && !std::isnan(update->phases[phase].loss)) {
      auto skipped = history.skippedOf.find(history.phases[phase]);
      return fmt::format("  phase {}: loss {:.6g}, learning rate {:.3g}{}\n", history.phases[phase],
                         update->phases[phase].loss, update->phases[phase].learningRate,
                         skipped == history.skippedOf.end() ? "" : fmt::format(", {} skipped", skipped->second));
    }
  return "";
}

std::string secondsText(double seconds) {
  if (seconds >= 3600)
    return fmt::format("{:.1f} h", seconds / 3600);
  if (seconds >= 60)
    return fmt::format("{:.1f} min", seconds / 60);
  return seconds >= 0.1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.3g} ms", seconds * 1000);
}
} // namespace

Json tcc::tools::runReportJson(const RunHistory &history, size_t most) {
  Json json;
  json["version"] = 1;
  json["run"] = std::filesystem::path(history.folder).lexically_normal().filename().string();
  if (json["run"] == "")
    json["run"] = history.folder;
  json["state"] = history.state();
  json["state_text"] = history.stateText();
  json["end"] = history.end ? Json(*history.end) : Json(nullptr);
  json["steps"] = history.updates.empty() ? 0 : history.updates.back().step;
  json["epoch"] = history.updates.empty() ? 0 : history.updates.back().epoch;
  const RunHistory::Times times = history.times();
  json["times"] = {{"compute", times.compute},
                   {"data", times.data},
                   {"ranks", times.ranks},
                   {"checkpoints", times.checkpoints},
                   {"evaluations", times.evaluations}};
  json["best"] = nullptr;
  if (history.best)
    json["best"] = {
        {"step", history.best->step}, {"metric", history.best->metric}, {"value", numberOrNull(history.best->value)}};
  json["parameters"] = history.parameters;
  json["phases"] = history.phases;
  json["stages"] = report::stagesJson(history.stages);
  json["losses"] = Json::array();
  for (const PastLoss &loss : history.losses)
    json["losses"].push_back({{"name", loss.name}, {"scale", numberOrNull(loss.scale)}});
  json["skipped_updates"] = history.skipped;
  json["skipped_by_phase"] = history.skippedOf;
  json["damaged_samples"] = history.damaged;
  json["unreadable_lines"] = history.unreadable;
  json["superseded"] = history.superseded;
  json["resumed_after"] = Json::array();
  for (size_t i = 0; i < history.updates.size(); ++i)
    if (history.updates[i].resumed)
      json["resumed_after"].push_back(history.updates[i].step - std::min<uint64_t>(history.updates[i].step, 1));
  json["facts"] = factsOf(history);
  json["problems"] = history.problems;
  json["evaluations"] = evaluationsOf(history);
  json["checkpoints"] = checkpointsOf(history);
  json["updates"] = updatesOf(history, most);
  json["log"] = history.log;
  return json;
}

std::string tcc::tools::runReportText(const RunHistory &history) {
  std::string text = fmt::format("{}: {} {}\n", history.folder, history.state(), history.stateText());
  if (!history.updates.empty()) {
    const PastUpdate &last = history.updates.back();
    text += fmt::format("update {} of epoch {}: loss {:.6g}, learning rate {:.3g}\n", last.step, last.epoch, last.loss,
                        last.learningRate);
    text += curveText(history);
    for (size_t phase = 0; phase < history.phases.size(); ++phase)
      text += phaseText(history, phase);
    for (size_t i = 0; i < std::min(history.losses.size(), last.losses.size()); ++i)
      text += fmt::format("  loss/{}: {:.6g}{}\n", history.losses[i].name, last.losses[i],
                          std::isnan(history.losses[i].scale) ? ""
                                                              : fmt::format(", × {:g}", history.losses[i].scale));
  }
  for (const plan::StageSummary &stage : history.stages)
    text += fmt::format("  {}, trains {}\n", report::stageText(stage),
                        report::listText(stage.parameters, kNamesShown, 4));
  if (history.skipped)
    text += fmt::format("{} of {} updates skipped, since a gradient in f16 was not finite; the last loss scale is {}\n",
                        history.skipped, history.updates.back().step, history.updates.back().lossScale);
  if (history.best)
    text +=
        fmt::format("best: {} {:.6g} after update {}\n", history.best->metric, history.best->value, history.best->step);
  const RunHistory::Times times = history.times();
  if (times.total() > 0) {
    report::Table table("<>>", {"time", "", "share"});
    for (auto [name, seconds] :
         {std::pair("compute", times.compute), std::pair("waiting for data", times.data),
          std::pair("waiting for other ranks", times.ranks), std::pair("waiting for checkpoints", times.checkpoints),
          std::pair("evaluations", times.evaluations)})
      if (seconds > 0 || times.ranks > 0 || name != std::string_view("waiting for other ranks"))
        table.add({name, secondsText(seconds), fmt::format("{:.1f} %", 100 * seconds / times.total())});
    text += table.text();
  }
  if (!history.checkpoints.empty()) {
    report::Table table(">>>><", {"checkpoint", "bytes", "waited", "durable after", ""});
    for (const PastCheckpoint &one : history.checkpoints)
      if (one.kept)
        table.add({std::to_string(one.step), formatBytes(one.bytes), secondsText(one.waitedSeconds),
                   secondsText(one.seconds), history.best && history.best->step == one.step ? "best" : ""});
    text += table.text();
  }
  if (history.unreadable)
    text += fmt::format("{} of metrics.jsonl cannot be read and {} left out\n",
                        report::counted(history.unreadable, "line"), history.unreadable == 1 ? "is" : "are");
  for (const std::string &problem : history.problems)
    text += "note: " + problem + "\n";
  return text;
}

std::string tcc::tools::runReportHtml(const RunHistory &history) {
  Json data = runReportJson(history);
  data["samples"] = nullptr;
  const std::string picture = history.folder + "/samples.png";
  std::error_code code;
  if (std::filesystem::is_regular_file(picture, code) && std::filesystem::file_size(picture, code) <= kMostPicture)
    if (auto bytes = readFile(picture); bytes && bytes->starts_with("\x89PNG"))
      data["samples"] = "data:image/png;base64," + base64(*bytes);
  return report::pageWith(kPage, data);
}
