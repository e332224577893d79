//===- DnnEngines.cpp - engines of cuDNN for a graph of operations ------===//
#include "runtime/cuda/DnnEngines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/ranges.h>

namespace tcc::cuda {

namespace {
/// Upper bounds for the number of an engine's settings and of its notes.
constexpr int64_t kMostKnobs = 32, kMostNotes = 16;
} // namespace

int64_t dnnAlignmentOf(api::CUdeviceptr address) {
  constexpr api::CUdeviceptr kMost = 16; // engines ask for no more
  return static_cast<int64_t>(std::min(kMost, address & (~address + 1)));
}

Expected<std::string> DnnEngines::objection(const DnnDescriptor &of, bool takesUnknown) const {
  auto numerical = of.get<api::cudnnBackendNumericalNote_t>(api::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kMostNotes);
  if (!numerical)
    return numerical.status();
  for (api::cudnnBackendNumericalNote_t note : *numerical)
    switch (note) {
    case api::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      break;
    case api::CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      if (!rules.tensorCores)
        return std::string("it rounds f32 to TF32");
      break;
    case api::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return std::string("it adds in no fixed order");
    case api::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return std::string("it narrows its operands");
    case api::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      return std::string("it adds in less than f32");
    default: // transforms, and notes of later versions
      if (note <= api::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13)
        return fmt::format("it computes by a transform (numerical note {})", static_cast<int>(note));
      if (!takesUnknown)
        return fmt::format("it has a property that this version does not know (numerical note {})",
                           static_cast<int>(note));
    }
  auto behavior = of.get<api::cudnnBackendBehaviorNote_t>(api::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, kMostNotes);
  if (!behavior)
    return behavior.status();
  for (api::cudnnBackendBehaviorNote_t note : *behavior)
    if (note > api::CUDNN_BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY) {
      if (!takesUnknown)
        return fmt::format("it has a property that this version does not know (behavior note {})",
                           static_cast<int>(note));
    } else if (note != api::CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API &&
               !(rules.compiles && note == api::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) {
      return fmt::format("it needs more than cuDNN (behavior note {})", static_cast<int>(note));
    }
  return std::string();
}

Expected<DnnEngine> DnnEngines::ready(DnnDescriptor configuration, std::vector<DnnDescriptor> parts) const {
  DnnEngine result;
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (!made)
    return made.status();
  result.plan = made.take();
  if (Status status = result.plan.set(api::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
                          .set(api::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
                          .finalize("making an engine ready");
      !status.ok())
    return status;
  auto bytes = result.plan.get<int64_t>(api::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  if (!bytes || bytes->size() != 1 || bytes->front() < 0)
    return bytes ? error("cuDNN tells no workspace of an engine") : bytes.status();
  result.workspaceBytes = static_cast<uint64_t>(bytes->front());
  if (result.workspaceBytes > rules.workspaceBytes)
    return error("it takes {} bytes of workspace, the plan has {}", result.workspaceBytes, rules.workspaceBytes);
  result.parts = std::move(parts);
  result.parts.push_back(std::move(configuration));
  return result;
}

Status DnnEngines::gather(bool takesUnknown, int most, std::vector<DnnEngine> &found, size_t &listed,
                          std::vector<std::string> &reasons) const {
  auto consider = [&](DnnDescriptor configuration) -> Status {
    auto engines = configuration.descriptors(api::CUDNN_ATTR_ENGINECFG_ENGINE, api::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (!engines || engines->empty())
      return engines ? error("cuDNN tells no engine of a configuration") : engines.status();
    Expected<std::string> wrong = objection(engines->front(), takesUnknown);
    if (!wrong)
      return wrong.status();
    auto index = engines->front().get<int64_t>(api::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
    auto knobs = configuration.descriptors(api::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                           api::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMostKnobs);
    if (!index || index->empty() || !knobs)
      return !index ? index.status() : !knobs ? knobs.status() : error("cuDNN tells no index of an engine");
    if (!wrong->empty()) {
      reasons.push_back(*wrong);
      return Status();
    }
    std::vector<std::pair<int64_t, int64_t>> choices;
    for (const DnnDescriptor &knob : *knobs) {
      auto kind = knob.get<api::cudnnBackendKnobType_t>(api::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 1);
      auto value = knob.get<int64_t>(api::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1);
      if (!kind || !value || kind->empty() || value->empty())
        return error("cuDNN tells no settings of an engine");
      choices.emplace_back(static_cast<int64_t>(kind->front()), value->front());
    }
    Expected<std::string> doubt = objection(engines->front(), /*takesUnknown=*/false);
    if (!doubt)
      return doubt.status();
    std::vector<DnnDescriptor> parts = std::move(*knobs);
    parts.push_back(std::move(engines->front()));
    Expected<DnnEngine> engine = ready(std::move(configuration), std::move(parts));
    if (!engine) { // this card or machine cannot run it, or not within the plan's workspace
      reasons.push_back(engine.message());
      return Status();
    }
    engine->index = index->front();
    engine->knobs = std::move(choices);
    engine->doubt = doubt.take();
    const bool known = std::any_of(found.begin(), found.end(), [&](const DnnEngine &other) {
      return other.index == engine->index && other.knobs == engine->knobs;
    });
    if (!known)
      found.push_back(engine.take());
    return Status();
  };
  // The fallback engines, which always work, come last: they are used if nothing else works, or if all are timed.
  for (api::cudnnBackendHeurMode_t mode :
       {api::CUDNN_HEUR_MODE_A, api::CUDNN_HEUR_MODE_B, api::CUDNN_HEUR_MODE_FALLBACK}) {
    if (static_cast<int>(found.size()) >= most || (most == 1 && !found.empty()))
      break;
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!made)
      return made.status();
    DnnDescriptor heuristics = made.take();
    if (Status status = heuristics.set(api::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
                            .set(api::CUDNN_ATTR_ENGINEHEUR_MODE, mode)
                            .finalize("asking for engines");
        !status.ok()) {
      reasons.push_back(status.message()); // a mode may not know this graph
      continue;
    }
    Expected<int64_t> count = heuristics.count(api::CUDNN_ATTR_ENGINEHEUR_RESULTS, api::CUDNN_TYPE_BACKEND_DESCRIPTOR);
    if (!count)
      return count.status();
    auto configurations =
        heuristics.descriptors(api::CUDNN_ATTR_ENGINEHEUR_RESULTS, api::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, *count);
    if (!configurations)
      return configurations.status();
    listed += configurations->size();
    for (DnnDescriptor &configuration : *configurations) {
      if (static_cast<int>(found.size()) >= most)
        break;
      if (Status status = consider(std::move(configuration)); !status.ok())
        return status;
    }
  }
  return Status();
}

Expected<std::vector<DnnEngine>> DnnEngines::candidates(int most, const std::string &what,
                                                        const std::string &wayOut) const {
  std::vector<DnnEngine> found;
  std::vector<std::string> reasons;
  size_t listed = 0;
  for (bool takesUnknown : {false, true}) {
    listed = 0;
    if (Status status = gather(takesUnknown, most, found, listed, reasons); !status.ok())
      return status;
    if (!found.empty())
      return found;
  }
  return error("cuDNN {} lists {} engines and settings for this call ({}), and none that the plan allows: {}; {}",
               library->version(), listed, what, reasons.empty() ? "no engine" : reasons.front(), wayOut);
}

std::string DnnEngine::code() const {
  std::string text = fmt::format("{}", index);
  for (auto [kind, value] : knobs)
    text += fmt::format(" {}={}", kind, value);
  return text;
}

std::string DnnEngine::about() const {
  return fmt::format("engine {}, {} settings, {} bytes of workspace{}{}", index, knobs.size(), workspaceBytes,
                     doubt.empty() ? "" : "; the last choice, since ", doubt);
}

Expected<DnnEngine> DnnEngines::fromCode(const std::string &code) const {
  const char *at = code.data(), *end = at + code.size();
  auto number = [&](int64_t &to) {
    auto [next, failure] = std::from_chars(at, end, to);
    at = next;
    return failure == std::errc();
  };
  int64_t index = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;
  bool good = number(index);
  while (good && at != end) {
    auto &[kind, value] = knobs.emplace_back();
    good = *at++ == ' ' && number(kind) && at != end && *at++ == '=' && number(value);
  }
  if (!good)
    return error("its code is damaged");
  std::vector<DnnDescriptor> parts;
  std::vector<api::cudnnBackendDescriptor_t> raw;
  for (auto [kind, value] : knobs) {
    Expected<DnnDescriptor> knob = DnnDescriptor::create(library, api::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (!knob)
      return knob.status();
    if (Status status = knob->set(api::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<api::cudnnBackendKnobType_t>(kind))
                            .set(api::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value)
                            .finalize("setting an engine");
        !status.ok())
      return status;
    raw.push_back(knob->get());
    parts.push_back(knob.take());
  }
  Expected<DnnDescriptor> engine = DnnDescriptor::create(library, api::CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  Expected<DnnDescriptor> configuration = DnnDescriptor::create(library, api::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!engine || !configuration)
    return engine ? configuration.status() : engine.status();
  Status status = engine->set(api::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
                      .set(api::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index)
                      .finalize("finding an engine");
  if (!status.ok())
    return status;
  Expected<std::string> wrong = objection(*engine, /*takesUnknown=*/true);
  if (!wrong || !wrong->empty())
    return wrong ? error("{}", *wrong) : wrong.status();
  configuration->set(api::CUDNN_ATTR_ENGINECFG_ENGINE, *engine);
  if (!raw.empty())
    configuration->set(api::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::span<const api::cudnnBackendDescriptor_t>(raw));
  if (status = configuration->finalize("setting an engine"); !status.ok())
    return status;
  parts.push_back(engine.take());
  Expected<DnnEngine> result = ready(configuration.take(), std::move(parts));
  if (result) {
    result->index = index;
    result->knobs = std::move(knobs);
  }
  return result;
}

} // namespace tcc::cuda
