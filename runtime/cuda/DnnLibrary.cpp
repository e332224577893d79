//===- DnnLibrary.cpp - cuDNN, opened at run time ------------------------===//
#include "runtime/cuda/DnnLibrary.h"
#include "runtime/cuda/LibraryFile.h"
#include "support/Advice.h"

#include <dlfcn.h>

namespace tcc::cuda {

namespace {
const std::string kDnnLibrary = "libcudnn.so.9";

/// What a plan can do without the library.
std::string wayOut() {
  return fmt::format("or compile with {}, which is far slower", advice::compileSet("compiler.convolutions", "kernels"));
}
} // namespace

std::string DnnLibrary::version() const {
  size_t number = entryPoints.getVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

Status DnnLibrary::check(api::cudnnStatus_t status, const char *what) const {
  if (status == api::CUDNN_STATUS_SUCCESS)
    return Status();
  const char *text = entryPoints.getErrorString(status);
  std::string more(1024, '\0');
  entryPoints.getLastErrorString(more.data(), more.size());
  more.resize(more.find('\0') == std::string::npos ? more.size() : more.find('\0'));
  while (!more.empty() && more.back() == '\n')
    more.pop_back();
  std::replace(more.begin(), more.end(), '\n', ';');
  return error("{}: {}{}{} (cuDNN {})", what, text ? text : fmt::format("status {}", static_cast<int>(status)),
               more.empty() ? "" : ": ", more, version());
}

Expected<DnnLibrary> DnnLibrary::open() {
  std::string reasons;
  void *handle = openLibrary({&kDnnLibrary, 1}, reasons);
  if (!handle)
    return error(
        "the plan's convolutions run on cuDNN, which the loader does not open ({}); install NVIDIA's package "
        "cudnn9-cuda-13, or pip install nvidia-cudnn-cu13 into the active environment, or put the folder of its {} "
        "into LD_LIBRARY_PATH, {}",
        reasons, kDnnLibrary, wayOut());
  DnnLibrary library;
  const char *missing = nullptr;
  auto find = [&](auto &member, const char *symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(handle, symbol));
    if (!member && !missing)
      missing = symbol;
  };
#define TCC_CUDNN_FIND(member, symbol, parameters) find(library.entryPoints.member, #symbol);
  TCC_CUDNN_ENTRY_POINTS(TCC_CUDNN_FIND)
#undef TCC_CUDNN_FIND
  find(library.entryPoints.getVersion, "cudnnGetVersion");
  find(library.entryPoints.getErrorString, "cudnnGetErrorString");
  find(library.entryPoints.getLastErrorString, "cudnnGetLastErrorString");
  library.entryPoints.getCudartVersion = reinterpret_cast<size_t (*)()>(::dlsym(handle, "cudnnGetCudartVersion"));
  if (missing)
    return error("{} has no {}: it is too old; install cuDNN 9.0 or later, {}", kDnnLibrary, missing, wayOut());
  return library;
}

Expected<DnnDescriptor> DnnDescriptor::create(std::shared_ptr<const DnnLibrary> library,
                                              api::cudnnBackendDescriptorType_t type) {
  api::cudnnBackendDescriptor_t made = nullptr;
  if (Status status = library->check((*library)->descriptorCreate(type, &made), "making a descriptor"); !status.ok())
    return status;
  DnnDescriptor descriptor;
  descriptor.owned.reset(made, [library](void *old) { (void)(*library)->descriptorDestroy(old); });
  descriptor.library = std::move(library);
  return descriptor;
}

DnnDescriptor &DnnDescriptor::setRaw(api::cudnnBackendAttributeName_t name, api::cudnnBackendAttributeType_t type,
                                     int64_t count, const void *elements) {
  if (failed.ok())
    failed = library->check((*library)->setAttribute(get(), name, type, count, elements),
                            fmt::format("setting attribute {}", static_cast<int>(name)).c_str());
  return *this;
}

DnnDescriptor &DnnDescriptor::set(api::cudnnBackendAttributeName_t name, std::span<const int64_t> elements) {
  return setRaw(name, api::CUDNN_TYPE_INT64, static_cast<int64_t>(elements.size()), elements.data());
}
DnnDescriptor &DnnDescriptor::set(api::cudnnBackendAttributeName_t name,
                                  std::span<const api::cudnnBackendDescriptor_t> elements) {
  return setRaw(name, api::CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(elements.size()), elements.data());
}
DnnDescriptor &DnnDescriptor::set(api::cudnnBackendAttributeName_t name, const DnnDescriptor &element) {
  const api::cudnnBackendDescriptor_t raw = element.get();
  return setRaw(name, api::CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}
DnnDescriptor &DnnDescriptor::setPointers(api::cudnnBackendAttributeName_t name, std::span<void *const> elements) {
  return setRaw(name, api::CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(elements.size()), elements.data());
}

Status DnnDescriptor::finalize(const char *what) {
  return failed.ok() ? library->check((*library)->finalize(get()), what) : failed;
}

Expected<std::vector<DnnDescriptor>> DnnDescriptor::descriptors(api::cudnnBackendAttributeName_t name,
                                                                api::cudnnBackendDescriptorType_t type,
                                                                int64_t most) const {
  std::vector<DnnDescriptor> found;
  std::vector<api::cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    Expected<DnnDescriptor> made = create(library, type);
    if (!made)
      return made.status();
    raw.push_back(made->get());
    found.push_back(made.take());
  }
  int64_t count = 0;
  if (Status status = library->check(
          (*library)->getAttribute(get(), name, api::CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data()),
          "asking cuDNN");
      !status.ok())
    return status;
  found.resize(static_cast<size_t>(std::min(count, most)));
  return found;
}

Expected<int64_t> DnnDescriptor::count(api::cudnnBackendAttributeName_t name,
                                       api::cudnnBackendAttributeType_t type) const {
  int64_t count = 0;
  Status status = library->check((*library)->getAttribute(get(), name, type, 0, &count, nullptr), "asking cuDNN");
  return status.ok() ? Expected<int64_t>(count) : status;
}

} // namespace tcc::cuda
