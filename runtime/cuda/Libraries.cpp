//===- Libraries.cpp - the libraries that a plan's calls run on ----------===//
#include "runtime/cuda/Libraries.h"
#include "runtime/cuda/LibraryFile.h"
#include "runtime/plan/CallKernels.h"
#include "support/Advice.h"

#include <algorithm>
#include <dlfcn.h>

namespace tcc::cuda {

namespace {
bool calls(const plan::Plan &plan, plan::Instruction::CallCase kind) {
  return std::any_of(plan.entries().begin(), plan.entries().end(), [&](const plan::Entry &entry) {
    return std::any_of(entry.instructions().begin(), entry.instructions().end(),
                       [&](const plan::Instruction &instruction) { return instruction.call_case() == kind; });
  });
}

/// The code of a recorded call that kernels compute or finish.
constexpr const char *kByKernels = "kernels";

/// The usual reasons why a library does not start.
Status doesNotStart(const Status &problem, const DriverLibrary &driver) {
  return error(
      "{}; the driver is of CUDA {}: install a library for it, or free the card's memory (nvidia-smi lists who "
      "uses it)",
      problem.message(), versionText(driver.version()));
}

/// The call with its algorithm.
template <LibraryCall Call>
Expected<Call> chosen(std::optional<AlgorithmChoice<Call>> &choice, Expected<Call> described) {
  if (described)
    if (Status status = choice->choose(*described); !status.ok())
      return status;
  return described;
}
} // namespace

Libraries::Libraries(const DriverLibrary &driver, api::CUstream stream, std::string machine,
                     const runtime::Algorithms &recorded, bool tune)
    : driver(driver), stream(stream), machine(std::move(machine)), recorded(recorded), tune(tune) {
  parts[kAttention] = {"attention", "cuDNN", [](std::string_view text) { return text.starts_with(kAttentionText); }};
  parts[kEpilogues] = {"epilogues of products", "cuBLASLt",
                       [](std::string_view text) { return text.find(kEpilogueText) != text.npos; }};
  parts[kBiases] = {"biases of convolutions", "cuDNN",
                    [](std::string_view text) { return text.starts_with(kBiasedText); }};
}

Libraries::~Libraries() {
  products.reset();
  convolutions.reset(); // its engines depend on the handle
  attentions.reset();
  tried.clear();
  if (blasHandle)
    (void)(*blas)->destroy(blasHandle);
  if (dnnHandle)
    (void)(*dnn)->destroy(dnnHandle);
}

Status Libraries::openBlas() {
  if (blasHandle)
    return Status();
  Expected<BlasLibrary> opened = BlasLibrary::open(driver.version());
  if (!opened)
    return opened.status();
  blas = std::make_shared<const BlasLibrary>(opened.take());
  if (Status status = blas->check((*blas)->create(&blasHandle), "starting cuBLASLt"); !status.ok())
    return doesNotStart(status, driver);
  products.emplace("product", blas->version(), driver, stream, machine, recorded, tune);
  return products->compareLibrary();
}

Status Libraries::openDnn() {
  if (dnnHandle)
    return Status();
  Expected<DnnLibrary> opened = DnnLibrary::open();
  if (!opened)
    return opened.status();
  dnn = std::make_shared<const DnnLibrary>(opened.take());
  if (Status status = dnn->check((*dnn)->create(&dnnHandle), "starting cuDNN"); !status.ok())
    return doesNotStart(status, driver);
  convolutions.emplace("convolution", dnn->version(), driver, stream, machine, recorded, tune);
  attentions.emplace("attention call", dnn->version(), driver, stream, machine, recorded, tune);
  return Status();
}

Status Libraries::openCompiler() {
  if (!compiler.empty())
    return Status();
  std::vector<std::string> names;
  for (size_t major : {13, 12})
    if (const size_t wanted = dnn->cudaMajor(); wanted == 0 || wanted == major)
      names.push_back(fmt::format("libnvrtc.so.{}", major));
  std::string reasons;
  void *library = openLibrary(names, reasons);
  auto versionOf = library ? reinterpret_cast<int (*)(int *, int *)>(::dlsym(library, "nvrtcVersion")) : nullptr;
  int major = 0, minor = 0;
  if (!versionOf || versionOf(&major, &minor) != 0)
    return error("cuDNN compiles attention by NVRTC, which the loader does not open ({}); install NVIDIA's package "
                 "cuda-nvrtc of the version for which this cuDNN is made, or pip install nvidia-cuda-nvrtc into the "
                 "active environment, or put its folder "
                 "into LD_LIBRARY_PATH, or compile with {}, which generates kernels",
                 reasons, advice::compileSet("compiler.attention_calls", "none"));
  compiler = fmt::format("NVRTC {}.{}", major, minor);
  const std::string before = recorded.libraryNamed("NVRTC");
  if (tune || before.empty() || before == compiler)
    return Status();
  return error(
      "{}: the run's attention was compiled by {}, this machine has {}, which may give other bits: install {}, or "
      "go on with {}, which times and records engines anew (results may differ in their last bits)",
      recorded.source, before, compiler, before, advice::flag("tune"));
}

std::optional<Libraries::PartNumber> Libraries::partOf(const plan::Instruction &instruction) {
  if (!plan::mayHaveKernels(instruction))
    return std::nullopt;
  return instruction.has_attention() ? kAttention : instruction.has_matmul() ? kEpilogues : kBiases;
}

bool Libraries::usesKernels(const plan::Instruction &instruction) const {
  const std::optional<PartNumber> part = partOf(instruction);
  return part && !parts[*part].whyKernels.empty();
}

Libraries::Recorded Libraries::recordedOf(const Part &part) const {
  if (tune)
    return Recorded::None;
  Recorded found = Recorded::None;
  for (const auto &[text, algorithm] : recorded.calls)
    if (part.isOf(text))
      found = algorithm.code == kByKernels ? Recorded::Kernels : Recorded::Library;
  return found;
}

Status Libraries::useKernels(PartNumber number, const Status &why) {
  Part &part = parts[number];
  if (recordedOf(part) == Recorded::Library)
    return Status(fmt::format("{}: {} computed the run's {}: {}; or go on with {}, which chooses anew (results "
                              "may differ in their last bits)",
                              recorded.source, part.library, part.noun, why.message(), advice::flag("tune")));
  if (!part.hasKernels)
    return why;
  part.whyKernels = why.message().substr(0, why.message().find("; ")); // without the advice
  if (number == kAttention) {
    attentions.reset();
    compiler.clear();
  }
  return Status();
}

Status Libraries::openAttention() {
  if (Status status = openDnn(); !status.ok())
    return status;
  if (dnn->versionNumber() < kLeastDnnForAttention)
    return tooOldForAttention(*dnn);
  return openCompiler();
}

Status Libraries::open(const plan::Plan &plan) {
  Status status = calls(plan, plan::Instruction::kMatmul) ? openBlas() : Status();
  convolves = calls(plan, plan::Instruction::kConvolution);
  if (status.ok() && convolves)
    status = openDnn();
  if (status.ok() && convolves && !recorded.empty())
    status = convolutions->compareLibrary();
  if (!status.ok())
    return status;
  for (Part &part : parts)
    part.hasKernels = true;
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      if (const std::optional<PartNumber> part = partOf(instruction); part && plan::kernelsOf(instruction).empty())
        parts[*part].hasKernels = false;
  for (PartNumber part : {kAttention, kEpilogues, kBiases})
    if (recordedOf(parts[part]) == Recorded::Kernels && parts[part].hasKernels)
      if (status = useKernels(part, error("{} has them", recorded.source)); !status.ok())
        return status;
  if (!calls(plan, plan::Instruction::kAttention) || !parts[kAttention].whyKernels.empty())
    return Status();
  if (Status missing = openAttention(); !missing.ok())
    return useKernels(kAttention, missing);
  return recorded.empty() ? Status() : attentions->compareLibrary();
}

Expected<BlasProduct> Libraries::product(const plan::MatmulCall &call, const BlasOperands &operands) {
  if (Status status = openBlas(); !status.ok())
    return status;
  return chosen(products, BlasProduct::describe(blas, blasHandle, call, operands));
}

Expected<DnnCall> Libraries::convolution(const plan::ConvolutionCall &call, Pointers pointers,
                                         api::CUdeviceptr workspace) {
  if (Status status = openDnn(); !status.ok())
    return status;
  return chosen(convolutions, describeConvolution(dnn, dnnHandle, call, pointers, workspace));
}

Expected<DnnCall> Libraries::attention(const plan::AttentionCall &call, Pointers pointers, api::CUdeviceptr workspace) {
  if (Status status = openAttention(); !status.ok())
    return status;
  return chosen(attentions, describeAttention(dnn, dnnHandle, call, pointers, workspace));
}

Status Libraries::tryCall(const plan::Instruction &instruction, Pointers pointers, api::CUdeviceptr workspace) {
  const std::optional<PartNumber> part = partOf(instruction);
  if (!part || usesKernels(instruction))
    return Status();
  auto find = [&](auto &choice, auto described) {
    if (Status status = described ? choice->find(*described) : described.status(); !status.ok())
      return useKernels(*part, status);
    if constexpr (std::is_same_v<decltype(described), Expected<DnnCall>>)
      tried.push_back(described.take());
    return Status();
  };
  switch (*part) {
  case kAttention:
    return find(attentions, describeAttention(dnn, dnnHandle, instruction.attention(), pointers, workspace));
  case kEpilogues:
    return find(products, BlasProduct::describe(blas, blasHandle, instruction.matmul(),
                                                BlasOperands::of(instruction.matmul(), pointers, workspace)));
  default:
    return find(convolutions, describeConvolution(dnn, dnnHandle, instruction.convolution(), pointers, workspace));
  }
}

void Libraries::recordKernels(const plan::Instruction &instruction, Pointers pointers) {
  const PartNumber number = *partOf(instruction);
  const std::string text = number == kAttention ? attentionText(instruction.attention(), pointers)
                           : number == kEpilogues
                               ? productText(instruction.matmul(), BlasOperands::of(instruction.matmul(), pointers, 0))
                               : convolutionText(instruction.convolution(), pointers);
  parts[number].byKernels[text] = {kByKernels, "generated kernels, since " + parts[number].whyKernels};
}

runtime::Algorithms Libraries::taken() const {
  runtime::Algorithms all;
  auto name = [&](const std::string &library) {
    all.library += (all.library.empty() ? "" : runtime::Algorithms::kSeparator) + library;
  };
  auto add = [&](const auto &choice) { all.calls.insert(choice->taken().begin(), choice->taken().end()); };
  if (products) {
    name(products->libraryName());
    add(products);
  }
  if (convolutions && (convolves || attentions)) {
    name(convolutions->libraryName());
    add(convolutions);
  }
  if (attentions && !attentions->taken().empty()) {
    add(attentions);
    name(compiler);
    all.notes.push_back(fmt::format("attention: {}, compiled by {}", attentions->libraryName(), compiler));
  }
  for (const Part &part : parts)
    if (!part.byKernels.empty()) {
      if (all.library.empty())
        name("generated kernels");
      for (const auto &[text, algorithm] : part.byKernels) // other calls of the part may have found an algorithm first
        all.calls.insert_or_assign(text, algorithm);
      all.notes.push_back(
          fmt::format("{}: generated kernels in place of {}: {}", part.noun, part.library, part.whyKernels));
    }
  if (!all.empty())
    all.machine = machine;
  return all;
}

} // namespace tcc::cuda
