//===- Session.cpp - an open plan, its settings and its device -----------===//
#include "runtime/train/Session.h"
#include "runtime/cpu/MachineMemory.h"
#include "runtime/plan/Variants.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Settings.h"

#include <cstdlib>

using namespace tcc;
using namespace tcc::runtime;

bool Session::hasMemory() const {
  return plan().resident_bytes() == 0 || plan().variables_size() == 0 || device->variableData(0) != nullptr;
}

/// Of a fat plan, the fastest variant within the budget, or within the memory that is free.
static plan::Status chooseVariant(Session &session, const SessionOptions &options) {
  const plan::Plan &plan = session.plan();
  uint64_t limit = options.budgetBytes ? options.budgetBytes : freeMemoryBytes();
  std::optional<uint32_t> variant = plan::fastestVariant(plan, limit);
  uint32_t smallest = plan::smallestVariant(plan);
  auto bytesOf = [&](uint32_t index) {
    return plan.resident_bytes() +
           (plan.variants().empty() ? plan.transient_bytes() : plan.variants(int(index)).transient_bytes());
  };
  if (!variant && options.budgetBytes)
    return plan::Status(fmt::format("{}: the plan takes at least {} ({} bytes), --memory-budget allows {}; compile with "
                                    "tcc --memory-budget, or with more --variants",
                                    options.planPath, formatBytes(bytesOf(smallest)), bytesOf(smallest),
                                    formatBytes(limit)),
                        plan::kExitOverBudget);
  if (plan.variants().empty())
    return plan::Status();
  uint32_t chosen = variant.value_or(smallest);
  session.note = fmt::format("variant {} of {}: {} of {} {}{}", chosen + 1, plan.variants_size(),
                             formatBytes(bytesOf(chosen)), formatBytes(limit),
                             options.budgetBytes ? "allowed" : "free on this machine",
                             variant ? "" : ", less than the smallest variant takes");
  session.reader.selectVariant(chosen);
  return plan::Status();
}

plan::Expected<Session> tcc::runtime::openSession(const SessionOptions &options) {
  auto reader = plan::PlanReader::open(options.planPath);
  if (!reader)
    return reader.status();
  Session session{reader.take(), {}, {}, nullptr, {}};
  if (plan::Status status = chooseVariant(session, options); !status.ok())
    return status;
  session.training = session.plan().training();
  session.data = session.plan().data();
  if (plan::Status status = applySettings(options.settings, session.training, session.data); !status.ok())
    return status;
  std::string kind = options.device.empty() ? "cpu" : options.device;
  plan::Expected<std::unique_ptr<Device>> device = plan::Status("", plan::kExitUsage);
  if (kind == "cpu")
    device = createCpuDevice(session.reader, options.threads);
  else if (kind == "null")
    device = createNullDevice(session.reader);
  else if (kind.starts_with("cuda"))
    return plan::error("--device {}: the plan is for {}; compile for it with tcc --target cuda:sm_90", kind,
                       session.plan().target());
  else
    return plan::Status(fmt::format("--device {}: unknown; use cpu or null", kind), plan::kExitUsage);
  if (!device)
    return device.status();
  session.device = device.take();
  return session;
}

double tcc::runtime::evalSplitOf(const Session &session) {
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  std::string text = settingText(settings, "eval_split");
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

uint64_t tcc::runtime::maxBadOf(const Session &session) {
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  return std::strtoull(settingText(settings, "max_bad").c_str(), nullptr, 10);
}

plan::Expected<EntryData> tcc::runtime::openEntryData(const Session &session, const plan::Entry &entry,
                                                      const std::string &path, const EntryDataOptions &options) {
  DatasetOptions dataOptions;
  dataOptions.settings.insert(session.data.settings().begin(), session.data.settings().end());
  dataOptions.part = options.part;
  dataOptions.evalSplit = evalSplitOf(session);
  dataOptions.sameWindow = session.training.shift();
  dataOptions.overlappingWindows = options.training && settingText(dataOptions.settings, "windows") == "random";
  dataOptions.vocabulary = options.vocabulary;
  dataOptions.memoryBytes = freeMemoryBytes();
  // The window is the sequence length: of the first sampled integer input of rank 2, the target's last.
  for (bool target : {false, true})
    for (const plan::Port &port : entry.inputs()) {
      const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
      if (dataOptions.windowLength == 0 && (port.name() == session.training.target()) == target &&
          port.sample_axis() >= 0 && port.sample_axis() < 2 && type.dims_size() == 2 &&
          !plan::isFloatingPoint(type.dtype()) && type.dtype() != plan::I1)
        dataOptions.windowLength = type.dims(1 - port.sample_axis());
    }
  auto dataset = openDataset(path, dataOptions);
  if (!dataset)
    return dataset.status();
  EntryData result;
  result.dataset = std::make_unique<Dataset>(dataset.take());
  BindOptions bind;
  bind.map.insert(session.data.map().begin(), session.data.map().end());
  bind.target = session.training.target();
  bind.ignoreIndex = ignoreIndexOf(session.plan());
  bind.classes = classesOf(session.plan());
  bind.maxBad = maxBadOf(session);
  auto reader = BatchReader::bind(entry, *result.dataset, bind);
  if (!reader)
    return reader.status();
  result.reader = std::make_unique<BatchReader>(reader.take());
  return result;
}
