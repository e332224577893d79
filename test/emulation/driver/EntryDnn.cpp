//===- EntryDnn.cpp - entry points of cuDNN ------------------------------===//
//
// cuDNN 9, "Backend API": descriptors are given attributes, finalized, and read or executed from then on. A descriptor
// refers to others, which must be there whenever it is used (the documentation does not say what it copies). A
// convolution is work of the handle's stream: it reads two tensors, writes the third, and fills its workspace with NaN,
// so that a workspace shared with something else is noticed. The library is not told how large a workspace is: the
// allocation must hold as much as the plan takes.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/EntryDnn.h"

#include <set>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

#define TCC_DNN_ENTRY extern "C" __attribute__((visibility("default"))) cudnnStatus_t
#define TCC_DNN_BEGIN                                                                                                  \
  StandIn &d = standIn();                                                                                              \
  std::lock_guard lock(d.mutex);                                                                                       \
  if (d.enter())                                                                                                       \
  return CUDNN_STATUS_NOT_INITIALIZED

namespace {

/// The problem and the engine of a finalized configuration.
struct Chosen {
  DnnProblem problem;
  DnnConfiguration configuration;
  std::optional<DnnGraph> graph; ///< in place of a convolution
};
std::optional<Chosen> chosenBy(StandIn &d, const DnnObject &configuration, const char *call) {
  DnnObject *graph = findDnn(d, configuration.graph, false, call);
  if (!graph)
    return std::nullopt;
  const DnnConfiguration how{configuration.engine, configuration.tile};
  if (isDnnGraph(d, *graph)) {
    std::optional<DnnGraph> read = readDnnGraph(d, *graph, call);
    return read ? std::optional(Chosen{{}, how, std::move(read)}) : std::nullopt;
  }
  std::optional<DnnProblem> problem = problemOfGraph(d, *graph, call);
  if (!problem)
    return std::nullopt;
  return Chosen{std::move(*problem), how, std::nullopt};
}

void becomeEngine(DnnObject &object, cudnnBackendDescriptor_t graph, int64_t index) {
  const DnnEngineRule &engine = *findDnnEngine(index);
  object.graph = graph;
  object.engine = index;
  object.put<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {index});
  auto notes = engine.notes;
  if (const int note = standIn().options.dnnNote)
    notes.push_back(static_cast<cudnnBackendNumericalNote_t>(note));
  object.put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
  object.put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, engine.behavior);
  object.finalized = true;
}

/// Checks a descriptor that is being finalized, and derives its read-only attributes.
cudnnStatus_t finish(StandIn &d, DnnObject &object, const char *call) {
  auto bad = [&](std::string text) {
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", call, text));
  };
  switch (object.type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
    auto dims = object.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
         strides = object.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    const auto alignment = object.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (dims.size() != strides.size() || std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 1; }))
      return bad(fmt::format("a tensor of {} dimensions with {} strides", dims.size(), strides.size()));
    const auto type = object.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    const int64_t bytes = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
    if (alignment % bytes || alignment < bytes)
      return bad(fmt::format("an alignment of {} for elements of {} bytes", alignment, bytes));
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: {
    const auto spatial = static_cast<size_t>(object.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
    for (cudnnBackendAttributeName_t name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                                             CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
      if (object.all<int64_t>(name).size() != spatial)
        return bad(fmt::format("attribute {} with another number of elements than spatial dimensions", int(name)));
    if (object.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
      return bad("sums in another type than f32");
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
    if (!findDnn(d, object.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), true, call))
      return CUDNN_STATUS_BAD_PARAM;
    if (isDnnGraph(d, object)) {
      std::optional<DnnGraph> graph = readDnnGraph(d, object, call);
      if (!graph)
        return CUDNN_STATUS_BAD_PARAM;
      const std::string unknown = graph->unknown();
      return unknown.empty()
                 ? CUDNN_STATUS_SUCCESS
                 : refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED, fmt::format("{}: {}", call, unknown));
    }
    return problemOfGraph(d, object, call) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
    const bool heuristics = object.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
    DnnObject *graph =
        referred(d, object, heuristics ? CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH : CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                 {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR}, call);
    if (!graph)
      return CUDNN_STATUS_BAD_PARAM;
    if (heuristics)
      return CUDNN_STATUS_SUCCESS;
    const auto index = object.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (!findDnnEngine(index) || isDnnGraph(d, *graph) != (index >= kDnnGraphGreedy))
      return CUDNN_STATUS_NOT_SUPPORTED; // not reported as a mistake: the index may come from an old record
    becomeEngine(object, object.one<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), index);
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
    DnnObject *engine = referred(d, object, CUDNN_ATTR_ENGINECFG_ENGINE, {CUDNN_BACKEND_ENGINE_DESCRIPTOR}, call);
    if (!engine)
      return CUDNN_STATUS_BAD_PARAM;
    const int64_t tiles = findDnnEngine(engine->engine)->tiles;
    int64_t tile = tiles ? 1 : 0;
    for (cudnnBackendDescriptor_t one : object.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
      DnnObject *knob = findDnn(d, one, false, call);
      if (!knob || !knob->finalized || knob->type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
        return knob ? bad("a setting that is not finalized") : CUDNN_STATUS_BAD_PARAM;
      tile = knob->one<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
      if (knob->one<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) != CUDNN_KNOB_TYPE_TILE_SIZE ||
          tile < 1 || tile > tiles)
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    object.graph = engine->graph;
    object.engine = engine->engine;
    object.tile = tile;
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
    DnnObject *configuration =
        referred(d, object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}, call);
    if (!configuration || !findDnn(d, object.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), true, call))
      return CUDNN_STATUS_BAD_PARAM;
    std::optional<Chosen> chosen = chosenBy(d, *configuration, call);
    if (!chosen)
      return CUDNN_STATUS_BAD_PARAM;
    // Tensor-core engines need an architecture that has tensor cores.
    const bool isTensor = hasNote(*findDnnEngine(chosen->configuration.engine), CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    if ((!chosen->graph && !chosen->problem.wrong().empty()) || !findDnnEngine(chosen->configuration.engine)->runs ||
        (isTensor && d.options.architecture < 80))
      return CUDNN_STATUS_NOT_SUPPORTED;
    object.put<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                        {static_cast<int64_t>(chosen->graph ? dnnGraphWorkspace(*chosen->graph, chosen->configuration)
                                                            : dnnWorkspace(chosen->problem, chosen->configuration))});
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
    auto uids = object.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (uids.size() != object.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() ||
        std::set<int64_t>(uids.begin(), uids.end()).size() != uids.size())
      return bad("a variant pack whose names and pointers do not fit");
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    return finishDnnPart(d, object, call);
  default: { // an operation
    std::optional<DnnProblem> problem = problemOfOperation(d, object, call);
    if (!problem)
      return CUDNN_STATUS_BAD_PARAM;
    return problem->wrong().empty() ? CUDNN_STATUS_SUCCESS : bad(problem->wrong());
  }
  }
}

/// The configurations of heuristics, written into descriptors of the caller.
cudnnStatus_t readResults(StandIn &d, const DnnObject &heuristics, int64_t asked, int64_t *count,
                          cudnnBackendDescriptor_t *into, const char *call) {
  const auto graph = heuristics.one<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto mode = heuristics.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  DnnObject *found = findDnn(d, graph, false, call);
  const bool several = found && isDnnGraph(d, *found);
  std::optional<DnnProblem> problem = found && !several ? problemOfGraph(d, *found, call) : std::nullopt;
  if (!problem && !several)
    return CUDNN_STATUS_BAD_PARAM;
  const auto list = several ? dnnGraphHeuristics(mode) : dnnHeuristics(*problem, mode);
  *count = static_cast<int64_t>(list.size());
  if (asked == 0)
    return CUDNN_STATUS_SUCCESS;
  *count = std::min(asked, *count);
  for (int64_t i = 0; i < *count; ++i) {
    DnnObject *to = findDnn(d, into[i], false, call);
    if (!to || to->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || to->finalized)
      return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                       fmt::format("{}: results go into new configurations", call));
    to->graph = graph;
    to->engine = list[static_cast<size_t>(i)].engine;
    to->tile = list[static_cast<size_t>(i)].tile;
    to->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

/// A configuration's engine or its settings, written into descriptors of the caller.
cudnnStatus_t readConfiguration(StandIn &d, const DnnObject &configuration, const DnnRule &rule, int64_t asked,
                                int64_t *count, cudnnBackendDescriptor_t *into, const char *call) {
  const bool engine = rule.name == CUDNN_ATTR_ENGINECFG_ENGINE;
  *count = std::min<int64_t>(asked, engine || configuration.tile ? 1 : 0);
  if (*count == 0)
    return CUDNN_STATUS_SUCCESS;
  DnnObject *to = findDnn(d, into[0], false, call);
  if (!to || to->finalized ||
      to->type != (engine ? CUDNN_BACKEND_ENGINE_DESCRIPTOR : CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR))
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                     fmt::format("{}: attribute {} goes into a new descriptor of its type", call, int(rule.name)));
  if (engine) {
    becomeEngine(*to, configuration.graph, configuration.engine);
  } else {
    to->put<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {CUDNN_KNOB_TYPE_TILE_SIZE});
    to->put<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {configuration.tile});
    to->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" __attribute__((visibility("default"))) size_t cudnnGetVersion() {
  return size_t(standIn().options.dnnVersion);
}
extern "C" __attribute__((visibility("default"))) size_t cudnnGetCudartVersion() {
  return size_t(standIn().options.dnnCuda);
}
extern "C" __attribute__((visibility("default"))) const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS:
    return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_NOT_SUPPORTED:
    return "CUDNN_STATUS_NOT_SUPPORTED";
  case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
    return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
  case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE:
    return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
  case CUDNN_STATUS_EXECUTION_FAILED:
    return "CUDNN_STATUS_EXECUTION_FAILED";
  default:
    return "CUDNN_STATUS_BAD_PARAM";
  }
}
extern "C" __attribute__((visibility("default"))) void cudnnGetLastErrorString(char *message, size_t maximum) {
  StandIn &d = standIn();
  std::lock_guard lock(d.mutex);
  if (maximum)
    message[d.faults.empty() ? 0 : d.faults.back().copy(message, maximum - 1)] = '\0';
}

TCC_DNN_ENTRY cudnnCreate(cudnnHandle_t *handle) {
  TCC_DNN_BEGIN;
  auto made = std::make_unique<DnnObject>();
  made->isHandle = true;
  *handle = reinterpret_cast<cudnnHandle_t>(d.dnn.add(std::move(made)));
  return CUDNN_STATUS_SUCCESS;
}
TCC_DNN_ENTRY cudnnDestroy(cudnnHandle_t handle) {
  TCC_DNN_BEGIN;
  if (!findDnn(d, handle, true, "cudnnDestroy"))
    return CUDNN_STATUS_BAD_PARAM;
  d.dnn.remove(handle);
  return CUDNN_STATUS_SUCCESS;
}
TCC_DNN_ENTRY cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  TCC_DNN_BEGIN;
  DnnObject *found = findDnn(d, handle, true, "cudnnSetStream");
  if (!found || !d.stream(stream))
    return CUDNN_STATUS_BAD_PARAM;
  found->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

TCC_DNN_ENTRY cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
  TCC_DNN_BEGIN;
  if (!knowsDnnType(type))
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED,
                     fmt::format("cudnnBackendCreateDescriptor: a descriptor of type {}", int(type)));
  auto made = std::make_unique<DnnObject>();
  made->type = type;
  *descriptor = d.dnn.add(std::move(made));
  return CUDNN_STATUS_SUCCESS;
}
TCC_DNN_ENTRY cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  TCC_DNN_BEGIN;
  if (!findDnn(d, descriptor, false, "cudnnBackendDestroyDescriptor"))
    return CUDNN_STATUS_BAD_PARAM;
  d.dnn.remove(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

TCC_DNN_ENTRY cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *elements) {
  TCC_DNN_BEGIN;
  const char *call = "cudnnBackendSetAttribute";
  DnnObject *found = findDnn(d, descriptor, false, call);
  if (!found)
    return CUDNN_STATUS_BAD_PARAM;
  const DnnRule *rule = findRule(found->type, name);
  if (found->finalized)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                     fmt::format("{}: the descriptor is finalized", call));
  if (!rule || rule->use == DnnRule::ReadOnly)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED,
                     fmt::format("{}: attribute {} of a descriptor of type {}", call, int(name), int(found->type)));
  if (type != rule->type)
    return refuseDnn(
        d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
        fmt::format("{}: attribute {} has elements of type {}, not {}", call, int(name), int(rule->type), int(type)));
  if (count < rule->least || count > rule->most || !elements)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                     fmt::format("{}: {} elements of attribute {}, which has {} to {}", call, count, int(name),
                                 rule->least, rule->most));
  DnnValue &value = found->values[name];
  value.count = count;
  value.bytes.resize(static_cast<size_t>(count) * bytesOf(type));
  std::memcpy(value.bytes.data(), elements, value.bytes.size());
  return CUDNN_STATUS_SUCCESS;
}

TCC_DNN_ENTRY cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  TCC_DNN_BEGIN;
  const char *call = "cudnnBackendFinalize";
  DnnObject *found = findDnn(d, descriptor, false, call);
  if (!found)
    return CUDNN_STATUS_BAD_PARAM;
  if (const DnnRule *missing = missingRule(*found))
    return refuseDnn(
        d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
        fmt::format("{}: a descriptor of type {} without attribute {}", call, int(found->type), int(missing->name)));
  cudnnStatus_t status = finish(d, *found, call);
  found->finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

TCC_DNN_ENTRY cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked, int64_t *count,
                                       void *elements) {
  TCC_DNN_BEGIN;
  const char *call = "cudnnBackendGetAttribute";
  DnnObject *found = findDnn(d, descriptor, false, call);
  if (!found)
    return CUDNN_STATUS_BAD_PARAM;
  if (!found->finalized)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                     fmt::format("{}: the descriptor is not finalized", call));
  const DnnRule *rule = findRule(found->type, name);
  if (!rule)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED,
                     fmt::format("{}: attribute {} of a descriptor of type {}", call, int(name), int(found->type)));
  if (type != rule->type)
    return refuseDnn(
        d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
        fmt::format("{}: attribute {} has elements of type {}, not {}", call, int(name), int(rule->type), int(type)));
  int64_t ignored = 0;
  count = count ? count : &ignored;
  auto *descriptors = static_cast<cudnnBackendDescriptor_t *>(elements);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return readResults(d, *found, asked, count, descriptors, call);
  if (found->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
    return readConfiguration(d, *found, *rule, asked, count, descriptors, call);
  const DnnValue &value = found->values[name];
  *count = value.count;
  if (asked > 0) {
    *count = std::min(asked, value.count);
    std::memcpy(elements, value.bytes.data(), static_cast<size_t>(*count) * bytesOf(type));
  }
  return CUDNN_STATUS_SUCCESS;
}

TCC_DNN_ENTRY cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variantPack) {
  TCC_DNN_BEGIN;
  const char *call = "cudnnBackendExecute";
  DnnObject *library = findDnn(d, handle, true, call), *made = findDnn(d, plan, false, call),
            *pack = findDnn(d, variantPack, false, call);
  if (!library || !made || !pack)
    return CUDNN_STATUS_BAD_PARAM;
  if (made->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                     fmt::format("{}: no plan with a variant pack", call));
  if (!made->finalized || !pack->finalized)
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                     fmt::format("{}: a descriptor is not finalized", call));
  DnnObject *configuration =
      referred(d, *made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}, call);
  std::optional<Chosen> chosen = configuration ? chosenBy(d, *configuration, call) : std::nullopt;
  if (!chosen)
    return CUDNN_STATUS_BAD_PARAM;
  if (chosen->graph)
    return submitDnnGraph(d, *library, std::move(*chosen->graph), chosen->configuration, *pack, call);
  DnnWork work{chosen->problem, chosen->configuration};
  const auto uids = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const DnnProblem &problem = work.problem;
  std::vector<std::tuple<const DnnProblem::Tensor *, void **, const char *>> tensors = {
      {&problem.x, &work.x, "x"}, {&problem.w, &work.w, "w"}, {&problem.y, &work.y, "y"}};
  if (problem.finish != DnnProblem::Sums)
    tensors.emplace_back(&problem.bias, &work.bias, "the bias");
  for (auto [tensor, pointer, name] : tensors) {
    auto at = std::find(uids.begin(), uids.end(), tensor->uid);
    if (at == uids.end())
      return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM, fmt::format("{}: no address of {}", call, name));
    *pointer = pointers[static_cast<size_t>(at - uids.begin())];
    if (Allocation *in = d.machine.memory().find(*pointer, tensor->bytes()); !in || in->home != Home::Device)
      return refuseDnn(
          d, FaultKind::OutOfBounds, CUDNN_STATUS_BAD_PARAM,
          fmt::format("{}: {} of {} bytes at {}", call, name, tensor->bytes(), d.machine.memory().describe(*pointer)));
    if (reinterpret_cast<uint64_t>(*pointer) % static_cast<uint64_t>(tensor->alignment))
      return refuseDnn(
          d, FaultKind::Misaligned, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
          fmt::format("{}: {} lies at no multiple of {}, as its descriptor says", call, name, tensor->alignment));
  }
  auto overlaps = [](const void *one, uint64_t oneBytes, const void *other, uint64_t otherBytes) {
    auto a = reinterpret_cast<uint64_t>(one), b = reinterpret_cast<uint64_t>(other);
    return a < b + otherBytes && b < a + oneBytes;
  };
  const DnnProblem::Tensor &result = problem.result();
  for (auto [tensor, pointer, name] : tensors)
    if (tensor != &result && overlaps(work.of(*tensor), tensor->bytes(), work.of(result), result.bytes()))
      return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                       fmt::format("{}: the result overlaps an operand", call));
  if (problem.alpha != 1 || problem.beta != 0)
    return refuseDnn(
        d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED,
        fmt::format("{}: the stand-in neither scales nor adds: alpha {}, beta {}", call, problem.alpha, problem.beta));
  if (const uint64_t bytes = dnnWorkspace(problem, work.configuration)) {
    work.workspace = pack->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    Allocation *in = d.machine.memory().find(work.workspace, bytes);
    if (!in || in->home != Home::Device || reinterpret_cast<uint64_t>(work.workspace) % 16)
      return refuseDnn(
          d, FaultKind::OutOfBounds, CUDNN_STATUS_BAD_PARAM,
          fmt::format("{}: a workspace of {} bytes at {}", call, bytes, d.machine.memory().describe(work.workspace)));
    for (auto [tensor, pointer, name] : tensors)
      if (overlaps(work.of(*tensor), tensor->bytes(), work.workspace, bytes))
        return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                         fmt::format("{}: the workspace overlaps an operand", call));
  }
  const DnnEngineRule &engine = *findDnnEngine(work.configuration.engine);
  Task task;
  task.what = call;
  task.ticks = work.configuration.tile == 2 ? engine.ticks / 2 : engine.ticks;
  task.run = [work](uint32_t number) { return work.run(number); };
  return d.enqueue(library->stream, std::move(task), call) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
