//===- Libraries.cpp - the libraries that a plan's calls run on ----------===//
#include "runtime/cuda/Libraries.h"
#include "runtime/cuda/LibraryFile.h"
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

/// How the text of each call of attention begins, and the code of one that kernels compute.
constexpr const char *kAttentionText = "attention ", *kByKernels = "kernels";

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

Libraries::Recorded Libraries::recordedAttention() const {
  if (tune)
    return Recorded::None;
  Recorded found = Recorded::None;
  for (const auto &[text, algorithm] : recorded.calls)
    if (text.starts_with(kAttentionText))
      found = algorithm.code == kByKernels ? Recorded::Kernels : Recorded::Library;
  return found;
}

Status Libraries::useKernels(const Status &why) {
  if (recordedAttention() == Recorded::Library)
    return Status(
        fmt::format("{}: cuDNN computed the run's attention: {}; or go on with {}, which chooses anew (results "
                    "may differ in their last bits)",
                    recorded.source, why.message(), advice::flag("tune")));
  if (!hasKernels)
    return why;
  whyKernels = why.message().substr(0, why.message().find("; ")); // without the advice
  attentions.reset();
  tried.clear();
  compiler.clear();
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
  if (!status.ok() || !calls(plan, plan::Instruction::kAttention))
    return status;
  hasKernels = std::all_of(plan.entries().begin(), plan.entries().end(), [](const plan::Entry &entry) {
    return std::all_of(entry.instructions().begin(), entry.instructions().end(), [](const plan::Instruction &one) {
      return !one.has_attention() || one.attention().kernels_size() > 0;
    });
  });
  if (recordedAttention() == Recorded::Kernels && hasKernels)
    return useKernels(error("{} has them", recorded.source));
  if (Status missing = openAttention(); !missing.ok())
    return useKernels(missing);
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

Status Libraries::tryAttention(const plan::AttentionCall &call, Pointers pointers, api::CUdeviceptr workspace) {
  if (attendsByKernels())
    return Status();
  Expected<DnnCall> described = describeAttention(dnn, dnnHandle, call, pointers, workspace);
  Status status = described ? attentions->find(*described) : described.status();
  if (!status.ok())
    return useKernels(status);
  tried.push_back(described.take());
  return Status();
}

void Libraries::recordKernels(const plan::AttentionCall &call, Pointers pointers) {
  byKernels[attentionText(call, pointers)] = {kByKernels, "generated kernels, since " + whyKernels};
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
  if (!byKernels.empty()) {
    if (all.library.empty())
      name("generated kernels");
    all.calls.insert(byKernels.begin(), byKernels.end());
    all.notes.push_back(fmt::format("attention: generated kernels in place of cuDNN: {}", whyKernels));
  }
  if (!all.empty())
    all.machine = machine;
  return all;
}

} // namespace tcc::cuda
