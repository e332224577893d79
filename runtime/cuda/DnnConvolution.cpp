//===- DnnConvolution.cpp - a convolution by cuDNN -----------------------===//
//
// The library's tensors have their dimensions in the order N, C, spatial, and strides say where elements lie: so both
// of our layouts are described alike. It has two or three spatial dimensions; one becomes the second of two.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnConvolution.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/ranges.h>

namespace tcc::cuda {

namespace {

using Call = plan::ConvolutionCall;
using Sizes = google::protobuf::RepeatedField<int64_t>;

/// Names of tensors within a graph.
enum Uid : int64_t { kX = 1, kW = 2, kY = 3 };

/// As many settings as an engine may have, and notes: the library says which there are.
constexpr int64_t kMostKnobs = 32, kMostNotes = 16;

Expected<api::cudnnDataType_t> typeOf(plan::DType type) {
  switch (type) {
  case plan::F32:
    return api::CUDNN_DATA_FLOAT;
  case plan::BF16:
    return api::CUDNN_DATA_BFLOAT16;
  case plan::F16:
    return api::CUDNN_DATA_HALF;
  default:
    return error("cuDNN convolves no {} here", plan::DType_Name(type));
  }
}

/// Alignments that engines ask for are no larger.
int64_t alignmentOf(api::CUdeviceptr address) {
  constexpr api::CUdeviceptr kMost = 16;
  return static_cast<int64_t>(std::min(kMost, address & (~address + 1)));
}

/// Two spatial dimensions at least, from `first` on.
std::vector<int64_t> widened(const Sizes &sizes, int first, int64_t filler) {
  std::vector<int64_t> result(sizes.begin(), sizes.end());
  if (sizes.size() - first == 1)
    result.insert(result.begin() + first, filler);
  return result;
}

std::vector<int64_t> stridesOf(const std::vector<int64_t> &dims, bool channelsLast) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  if (channelsLast) {
    strides[1] = 1;
    step = dims[1];
  }
  for (size_t i = dims.size(); i-- > 0;)
    if (!channelsLast || i != 1) {
      strides[i] = step;
      step *= dims[i];
    }
  return strides;
}

constexpr const char *kWayOut = "compile with tcc --set compiler.convolutions=kernels, which is far slower";

} // namespace

DnnOperands DnnOperands::of(const Call &call, std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr workspace) {
  switch (call.kind()) {
  case Call::INPUT_GRADIENT:
    return {pointers[2], pointers[1], pointers[0], workspace};
  case Call::WEIGHT_GRADIENT:
    return {pointers[0], pointers[2], pointers[1], workspace};
  default:
    return {pointers[0], pointers[1], pointers[2], workspace};
  }
}

Expected<DnnConvolution> DnnConvolution::describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                                  const Call &call, const DnnOperands &operands) {
  DnnConvolution made;
  made.library = std::move(library);
  made.handle = handle;
  made.call = call;
  made.operands = operands;
  Status status = made.describeTensors();
  if (status.ok())
    status = made.describeOperation();
  return status.ok() ? Expected<DnnConvolution>(std::move(made)) : status;
}

Status DnnConvolution::describeTensors() {
  Expected<api::cudnnDataType_t> type = typeOf(call.dtype());
  if (!type)
    return type.status();
  auto describe = [&](DnnDescriptor &tensor, Uid uid, const Sizes &sizes, bool channelsLast,
                      api::CUdeviceptr address) -> Status {
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!made)
      return made.status();
    tensor = made.take();
    const std::vector<int64_t> dims = widened(sizes, 2, 1), strides = stridesOf(dims, channelsLast);
    return tensor.set(api::CUDNN_ATTR_TENSOR_DATA_TYPE, *type)
        .set(api::CUDNN_ATTR_TENSOR_DIMENSIONS, std::span(dims))
        .set(api::CUDNN_ATTR_TENSOR_STRIDES, std::span(strides))
        .set(api::CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(uid))
        .set(api::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignmentOf(address))
        .finalize("describing a tensor");
  };
  Status status = describe(x, kX, call.x_dims(), call.channels_last(), operands.x);
  if (status.ok()) // whatever lies last in x and y: an engine turns the weights, which are few
    status = describe(w, kW, call.w_dims(), false, operands.w);
  return status.ok() ? describe(y, kY, call.y_dims(), call.channels_last(), operands.y) : status;
}

Status DnnConvolution::describeOperation() {
  struct Names {
    api::cudnnBackendDescriptorType_t type;
    api::cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
  };
  static constexpr std::array<Names, 3> kNames = {
      {{api::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
       {api::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
       {api::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};
  const Names &names = kNames[static_cast<size_t>(call.kind())];
  for (auto [descriptor, type] :
       {std::pair(&window, api::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), std::pair(&operation, names.type),
        std::pair(&graph, api::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)}) {
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, type);
    if (!made)
      return made.status();
    *descriptor = made.take();
  }
  const std::vector<int64_t> strides = widened(call.strides(), 0, 1), dilations = widened(call.dilations(), 0, 1),
                             begin = widened(call.pads_begin(), 0, 0), end = widened(call.pads_end(), 0, 0);
  Status status = window.set(api::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(strides.size()))
                      .set(api::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, api::CUDNN_DATA_FLOAT)
                      .set(api::CUDNN_ATTR_CONVOLUTION_CONV_MODE, api::CUDNN_CROSS_CORRELATION)
                      .set(api::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span(strides))
                      .set(api::CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span(dilations))
                      .set(api::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span(begin))
                      .set(api::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span(end))
                      .finalize("describing a window");
  if (status.ok())
    status = operation.set(names.window, window)
                 .set(names.x, x)
                 .set(names.w, w)
                 .set(names.y, y)
                 .set(names.alpha, 1.0F)
                 .set(names.beta, 0.0F)
                 .finalize("describing a convolution");
  return status.ok() ? graph.set(api::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
                           .set(api::CUDNN_ATTR_OPERATIONGRAPH_OPS, operation)
                           .finalize("making a graph of a convolution")
                     : status;
}

std::string DnnConvolution::text() const {
  static constexpr std::array<const char *, 3> kKinds = {"forward", "gradient of x", "gradient of w"};
  return fmt::format("convolution {} {}{}, x {}, w {}, y {}, {}, stride {}, dilation {}, pads {} and {}, workspace {}, "
                     "aligned {} {} {}",
                     kKinds[static_cast<size_t>(call.kind())], plan::DType_Name(call.dtype()),
                     call.tf32() ? " in TF32" : "", fmt::join(call.x_dims(), "x"), fmt::join(call.w_dims(), "x"),
                     fmt::join(call.y_dims(), "x"), call.channels_last() ? "channels last" : "channels first",
                     fmt::join(call.strides(), "x"), fmt::join(call.dilations(), "x"),
                     fmt::join(call.pads_begin(), "x"), fmt::join(call.pads_end(), "x"), call.library_scratch_bytes(),
                     alignmentOf(operands.x), alignmentOf(operands.w), alignmentOf(operands.y));
}

Expected<std::string> DnnConvolution::objection(const DnnDescriptor &of) const {
  auto numerical = of.get<api::cudnnBackendNumericalNote_t>(api::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kMostNotes);
  if (!numerical)
    return numerical.status();
  for (api::cudnnBackendNumericalNote_t note : *numerical)
    switch (note) {
    case api::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      break;
    case api::CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      if (call.dtype() == plan::F32 && !call.tf32())
        return std::string("it rounds f32 to TF32");
      break;
    case api::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return std::string("it adds in no fixed order");
    case api::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return std::string("it narrows its operands");
    case api::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      return std::string("it adds in less than f32");
    default: // transforms, and what later versions know
      return fmt::format("it computes by a transform (numerical note {})", static_cast<int>(note));
    }
  auto behavior = of.get<api::cudnnBackendBehaviorNote_t>(api::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, kMostNotes);
  if (!behavior)
    return behavior.status();
  for (api::cudnnBackendBehaviorNote_t note : *behavior)
    if (note != api::CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API)
      return fmt::format("it needs more than cuDNN (behavior note {})", static_cast<int>(note));
  return std::string();
}

Expected<DnnEngine> DnnConvolution::ready(DnnDescriptor configuration, std::vector<DnnDescriptor> parts) const {
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
  if (result.workspaceBytes > call.library_scratch_bytes())
    return error("it takes {} bytes of workspace, the plan has {}", result.workspaceBytes,
                 call.library_scratch_bytes());
  result.parts = std::move(parts);
  result.parts.push_back(std::move(configuration));
  return result;
}

Expected<std::vector<DnnEngine>> DnnConvolution::candidates(int most) const {
  std::vector<DnnEngine> found;
  std::vector<std::string> reasons;
  size_t listed = 0;
  auto consider = [&](DnnDescriptor configuration) -> Status {
    auto engines = configuration.descriptors(api::CUDNN_ATTR_ENGINECFG_ENGINE, api::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (!engines || engines->empty())
      return engines ? error("cuDNN tells no engine of a configuration") : engines.status();
    Expected<std::string> wrong = objection(engines->front());
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
    std::vector<DnnDescriptor> parts = std::move(*knobs);
    parts.push_back(std::move(engines->front()));
    Expected<DnnEngine> engine = ready(std::move(configuration), std::move(parts));
    if (!engine) { // this card or this machine does not run it, or not within the plan's workspace
      reasons.push_back(engine.message());
      return Status();
    }
    engine->index = index->front();
    engine->knobs = std::move(choices);
    const bool known = std::any_of(found.begin(), found.end(), [&](const DnnEngine &other) {
      return other.index == engine->index && other.knobs == engine->knobs;
    });
    if (!known)
      found.push_back(engine.take());
    return Status();
  };
  // Engines that always work come last: only where nothing else does, or where all are timed.
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
  if (!found.empty())
    return found;
  return error(
      "cuDNN {} lists {} engines and settings for this convolution ({}), and none that the plan allows: {}; {}",
      library->version(), listed, text(), reasons.empty() ? "no engine" : reasons.front(), kWayOut);
}

std::string DnnConvolution::codeOf(const DnnEngine &engine) {
  std::string code = fmt::format("{}", engine.index);
  for (auto [kind, value] : engine.knobs)
    code += fmt::format(" {}={}", kind, value);
  return code;
}

std::string DnnConvolution::aboutOf(const DnnEngine &engine) {
  return fmt::format("engine {}, {} settings, {} bytes of workspace", engine.index, engine.knobs.size(),
                     engine.workspaceBytes);
}

Expected<DnnEngine> DnnConvolution::fromCode(const std::string &code) const {
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
  Expected<std::string> wrong = objection(*engine);
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

Status DnnConvolution::use(const DnnEngine &chosen) {
  engine = chosen;
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!made)
    return made.status();
  pack = made.take();
  static constexpr std::array<int64_t, 3> kUids = {kX, kW, kY};
  auto at = [](api::CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  const std::array<void *, 3> pointers = {at(operands.x), at(operands.w), at(operands.y)};
  const std::array<void *, 1> workspace = {engine.workspaceBytes ? at(operands.workspace) : nullptr};
  return pack.set(api::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(kUids))
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("giving a convolution its operands");
}

Status DnnConvolution::submit(api::CUstream stream) const {
  Status status = library->check((*library)->setStream(handle, stream), "taking a stream");
  return status.ok()
             ? library->check((*library)->execute(handle, engine.plan.get(), pack.get()), "submitting a convolution")
             : status;
}

std::vector<DnnConvolution::Range> DnnConvolution::operandRanges() const {
  auto bytes = [&](const Sizes &sizes) {
    uint64_t count = plan::dtypeBytes(call.dtype());
    for (int64_t size : sizes)
      count *= static_cast<uint64_t>(size);
    return count;
  };
  return {{operands.x, bytes(call.x_dims())}, {operands.w, bytes(call.w_dims())}, {operands.y, bytes(call.y_dims())}};
}

} // namespace tcc::cuda
