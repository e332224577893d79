//===- DataCommand.cpp - trun data: what a data set holds ----------------===//
#include "runtime/data/Inspect.h"
#include "runtime/data/Sheet.h"
#include "runtime/data/Table.h"
#include "runtime/plan/Shapes.h"
#include "runtime/train/EntryRunner.h"
#include "runtime/train/Settings.h"
#include "support/MachineMemory.h"
#include "support/PlanNames.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/TextTable.h"
#include "tools/trun/Commands.h"

#include <cstdlib>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
/// The entry whose inputs the data must fit, in its shapes: training, else the first that reads data.
std::vector<const plan::Entry *> entryOfData(const plan::Plan &plan) {
  for (const char *name : {entries::kStep, entries::kAccumulateFirst, entries::kEvaluate, entries::kPredict})
    for (const plan::Entry &entry : plan.entries())
      if (entries::baseOf(entry.name()) == name && entry.inputs_size() != 0)
        return plan::shapesOf(plan, entry.name());
  return {};
}

/// Opens the data as a plan's model reads it; damaged samples are found by the check, not refused here.
Expected<EntryData> openForPlan(const Options &options) {
  SessionOptions sessionOptions = options.session;
  sessionOptions.device = "null";
  sessionOptions.settings.push_back("data.max_bad=1");
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  const std::vector<const plan::Entry *> shapes = entryOfData(session->plan());
  if (shapes.empty())
    return error("{}: no entry of the plan reads data", options.session.planPath);
  EntryDataOptions with;
  with.note = [](const Message &message) { printMessage("trun: {}\n", message.line()); };
  with.learnsFacts = true;
  return openEntryData(*session, shapes, options.train.data, with);
}

/// The same without a plan: a token file is a column of single tokens.
Expected<EntryData> openAlone(const Options &options) {
  plan::Training training;
  plan::DataSettings data;
  if (Status status = applySettings(options.session.settings, training, data); !status.ok())
    return status;
  DatasetOptions open;
  open.settings.insert(data.settings().begin(), data.settings().end());
  open.limit = std::strtoull(settingText(open.settings, "limit").c_str(), nullptr, 10);
  open.windowLength = 1;
  open.sameWindow = true;
  open.learnsFacts = true;
  open.memoryBytes = freeMemoryBytes();
  auto dataset = openDataset(options.train.data, open);
  if (!dataset)
    return dataset.status();
  EntryData result;
  result.dataset = std::make_unique<Dataset>(dataset.take());
  return result;
}

/// The settings of the plan, or of the command alone.
Expected<DatasetOptions> settingsOf(const Options &options) {
  plan::Training training;
  plan::DataSettings data;
  if (!options.session.planPath.empty()) {
    auto reader = plan::PlanReader::open(options.session.planPath);
    if (!reader)
      return reader.status();
    reader->selectTarget(0); // data and training are those of all targets
    training = reader->plan().training();
    data = reader->plan().data();
  }
  if (Status status = applySettings(options.session.settings, training, data); !status.ok())
    return status;
  DatasetOptions open;
  open.settings.insert(data.settings().begin(), data.settings().end());
  open.limit = std::strtoull(settingText(open.settings, "limit").c_str(), nullptr, 10);
  open.memoryBytes = freeMemoryBytes();
  open.learnsFacts = true;
  return open;
}

std::string valueText(const ColumnSummary &column, double value) {
  return column.anyFinite ? fmt::format("{:.6g}", value) : "";
}
} // namespace

Status tcc::tools::dataCommand(const Options &options) {
  if (!options.output.empty()) {
    auto settings = settingsOf(options);
    if (!settings)
      return settings.status();
    if (Status status = writeSheet(options.train.data, *settings, {}, options.output); !status.ok())
      return status;
  }
  auto data = options.session.planPath.empty() ? openAlone(options) : openForPlan(options);
  if (!data)
    return data.status();
  const Dataset &dataset = *data->dataset;
  // Damaged samples are printed as they are found, since a pass over a large set takes long.
  DataSummary summary = inspectData(dataset, data->allReaders(), [](const DamagedSample &damaged) {
    printResult("damaged sample {}: {}\n", damaged.sample, damaged.problem);
    std::fflush(stdout);
  });
  report::Table table("<<>>>>>", {"column", "type", "least", "greatest", "NaN", "infinite", "missing"});
  for (const ColumnSummary &column : summary.columns) {
    const Column &read = *dataset.find(column.name);
    const std::string type = !column.unusable.empty() ? "none" : columnTypeName(read);
    table.add({column.name, type, valueText(column, column.least), valueText(column, column.greatest),
               std::to_string(column.nans), std::to_string(column.infinities), std::to_string(column.missing)});
  }
  printResult("{}: {}, {}\n{}", dataset.path, dataset.format, report::counted(summary.samples, "sample"), table.text());
  for (const ColumnSummary &column : summary.columns) {
    if (column.smallest != column.largest)
      printResult("sizes of {}: from {} to {}\n", column.name, fmt::join(column.smallest, "x"),
                  fmt::join(column.largest, "x"));
    if (!column.unusable.empty())
      printResult("{}: {}\n", column.name, column.unusable);
    else if (column.texts)
      printResult("texts of {}: {}\n", column.name,
                 column.manyDistinct ? "more than 100" : report::listText(column.distinct, 20));
    if (auto found = dataset.facts.categories.find(column.name); found != dataset.facts.categories.end())
      printResult("categories of {}: {}\n", column.name, report::listText(found->second, 20));
  }
  if (!dataset.classes.empty())
    printResult("classes: {}\n", report::listText(dataset.classes, 20));
  if (!dataset.vocabulary.empty())
    printResult("vocabulary: {}\n", report::counted(dataset.vocabulary.size(), "character"));
  if (std::fflush(stdout) != 0)
    return error("standard output: cannot write");
  if (summary.samples == 0)
    return error("{}: the data set is empty: it holds no sample", dataset.path);
  if (summary.damaged != 0)
    return error("{}: {} of {} samples {} damaged; repair or remove them, or train with --set data.max_bad={}",
                       dataset.path, summary.damaged, summary.samples, summary.damaged == 1 ? "is" : "are",
                       summary.damaged);
  return Status();
}
