//===- DnnObjects.h - what handles of cuDNN stand for --------------------===//
//
// A descriptor is a set of attributes; finalizing it derives the rest from them. A table lists each descriptor type's
// attributes with their types, numbers of elements, and whether they are required.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_DNNOBJECTS_H
#define TCC_TEST_EMULATION_DRIVER_DNNOBJECTS_H

#include "runtime/cuda/api/Cudnn.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace tcc::emulation {

/// An attribute's elements.
struct DnnValue {
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct DnnObject {
  bool isHandle = false;
  cuda::api::CUstream stream = nullptr; ///< of a handle
  cuda::api::cudnnBackendDescriptorType_t type = cuda::api::CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  /// Of a finalized engine or configuration: the graph that it computes, and the engine.
  cuda::api::cudnnBackendDescriptor_t graph = nullptr;
  int64_t engine = 0, tile = 0;
  std::map<cuda::api::cudnnBackendAttributeName_t, DnnValue> values;

  template <typename T> std::vector<T> all(cuda::api::cudnnBackendAttributeName_t name) const {
    auto found = values.find(name);
    std::vector<T> elements(found == values.end() ? 0 : static_cast<size_t>(found->second.count));
    if (!elements.empty())
      std::memcpy(elements.data(), found->second.bytes.data(), elements.size() * sizeof(T));
    return elements;
  }
  /// The only element; T() where there is none.
  template <typename T> T one(cuda::api::cudnnBackendAttributeName_t name) const {
    std::vector<T> elements = all<T>(name);
    return elements.empty() ? T() : elements.front();
  }
  template <typename T> void put(cuda::api::cudnnBackendAttributeName_t name, const std::vector<T> &elements) {
    DnnValue &value = values[name];
    value.count = static_cast<int64_t>(elements.size());
    value.bytes.resize(elements.size() * sizeof(T));
    if (!elements.empty())
      std::memcpy(value.bytes.data(), elements.data(), value.bytes.size());
  }
};

/// An attribute that descriptors of a type have.
struct DnnRule {
  cuda::api::cudnnBackendDescriptorType_t of;
  cuda::api::cudnnBackendAttributeName_t name;
  cuda::api::cudnnBackendAttributeType_t type;
  int64_t least, most; ///< elements
  enum Use { Required, Optional, ReadOnly } use;
};
/// Null for an attribute that the type does not have, or that the stand-in does not know.
const DnnRule *findRule(cuda::api::cudnnBackendDescriptorType_t of, cuda::api::cudnnBackendAttributeName_t name);
/// The first required attribute that a descriptor lacks; null for none.
const DnnRule *missingRule(const DnnObject &descriptor);
/// Whether the stand-in knows descriptors of this type.
bool knowsDnnType(cuda::api::cudnnBackendDescriptorType_t type);
size_t bytesOf(cuda::api::cudnnBackendAttributeType_t type);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_DNNOBJECTS_H
