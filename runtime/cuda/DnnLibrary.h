//===- DnnLibrary.h - cuDNN, opened at run time --------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNLIBRARY_H
#define TCC_RUNTIME_CUDA_DNNLIBRARY_H

#include "runtime/cuda/api/Cudnn.h"
#include "support/Status.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tcc::cuda {

/// libcudnn.so.9 with every entry point that we call. The program does not link it: plans without its calls also run
/// on machines without it. It opens its own parts (libcudnn_graph.so.9 and others) from its own folder.
class DnnLibrary {
public:
  /// Error: no library (the message names its package), or a missing entry point. It stays open until the process ends.
  static Expected<DnnLibrary> open();

  const api::Cudnn *operator->() const { return &entryPoints; }

  /// "9.26.0".
  std::string version() const;
  /// 13: it is made for CUDA 13, so that it opens the compiler of that version; 0: it does not say.
  size_t cudaMajor() const { return entryPoints.getCudartVersion ? entryPoints.getCudartVersion() / 1000 : 0; }
  /// 92600 for 9.26.0.
  size_t versionNumber() const { return entryPoints.getVersion(); }

  /// An error that names the failed call, the library's text for the status and its message about the latest error;
  /// success for success.
  Status check(api::cudnnStatus_t status, const char *what) const;

private:
  api::Cudnn entryPoints;
};

/// A descriptor of the library, destroyed with its last owner.
class DnnDescriptor {
public:
  DnnDescriptor() = default;
  static Expected<DnnDescriptor> create(std::shared_ptr<const DnnLibrary> library,
                                        api::cudnnBackendDescriptorType_t type);

  api::cudnnBackendDescriptor_t get() const { return owned.get(); }
  explicit operator bool() const { return owned != nullptr; }

  /// Sets an attribute, unless an earlier call of this descriptor failed, which finalize() reports. The attribute's
  /// type follows from that of its elements, which outlive the call.
  DnnDescriptor &set(api::cudnnBackendAttributeName_t name, std::span<const int64_t> elements);
  DnnDescriptor &set(api::cudnnBackendAttributeName_t name, std::span<const api::cudnnBackendDescriptor_t> elements);
  DnnDescriptor &set(api::cudnnBackendAttributeName_t name, const DnnDescriptor &element);
  DnnDescriptor &setPointers(api::cudnnBackendAttributeName_t name, std::span<void *const> elements);
  template <typename T> DnnDescriptor &set(api::cudnnBackendAttributeName_t name, T element) {
    return setRaw(name, typeOf<T>(), 1, &element);
  }

  /// Error: this call, or one that set an attribute.
  Status finalize(const char *what);

  /// Up to `most` elements of an attribute. Error: the call.
  template <typename T> Expected<std::vector<T>> get(api::cudnnBackendAttributeName_t name, int64_t most) const {
    std::vector<T> elements(static_cast<size_t>(most));
    int64_t count = 0;
    Status status = library->check((*library)->getAttribute(get(), name, typeOf<T>(), most, &count, elements.data()),
                                   "asking cuDNN");
    if (!status.ok())
      return status;
    elements.resize(static_cast<size_t>(std::min(count, most)));
    return elements;
  }
  /// The same for descriptors.
  Expected<std::vector<DnnDescriptor>> descriptors(api::cudnnBackendAttributeName_t name,
                                                   api::cudnnBackendDescriptorType_t type, int64_t most) const;
  /// The number of elements of an attribute.
  Expected<int64_t> count(api::cudnnBackendAttributeName_t name, api::cudnnBackendAttributeType_t type) const;

private:
  template <typename T> static constexpr api::cudnnBackendAttributeType_t typeOf() {
    if constexpr (std::is_same_v<T, api::cudnnHandle_t>)
      return api::CUDNN_TYPE_HANDLE;
    else if constexpr (std::is_same_v<T, api::cudnnDataType_t>)
      return api::CUDNN_TYPE_DATA_TYPE;
    else if constexpr (std::is_same_v<T, int64_t>)
      return api::CUDNN_TYPE_INT64;
    else if constexpr (std::is_same_v<T, float>)
      return api::CUDNN_TYPE_FLOAT;
    else if constexpr (std::is_same_v<T, bool>)
      return api::CUDNN_TYPE_BOOLEAN;
    else if constexpr (std::is_same_v<T, api::cudnnPointwiseMode_t>)
      return api::CUDNN_TYPE_POINTWISE_MODE;
    else if constexpr (std::is_same_v<T, api::cudnnReduceTensorOp_t>)
      return api::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    else if constexpr (std::is_same_v<T, api::cudnnConvolutionMode_t>)
      return api::CUDNN_TYPE_CONVOLUTION_MODE;
    else if constexpr (std::is_same_v<T, api::cudnnBackendHeurMode_t>)
      return api::CUDNN_TYPE_HEUR_MODE;
    else if constexpr (std::is_same_v<T, api::cudnnBackendKnobType_t>)
      return api::CUDNN_TYPE_KNOB_TYPE;
    else if constexpr (std::is_same_v<T, api::cudnnBackendNumericalNote_t>)
      return api::CUDNN_TYPE_NUMERICAL_NOTE;
    else {
      static_assert(std::is_same_v<T, api::cudnnBackendBehaviorNote_t>);
      return api::CUDNN_TYPE_BEHAVIOR_NOTE;
    }
  }
  DnnDescriptor &setRaw(api::cudnnBackendAttributeName_t name, api::cudnnBackendAttributeType_t type, int64_t count,
                        const void *elements);

  std::shared_ptr<const DnnLibrary> library;
  std::shared_ptr<void> owned;
  Status failed;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNLIBRARY_H
