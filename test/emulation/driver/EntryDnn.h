//===- EntryDnn.h - looking up descriptors of cuDNN ----------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_ENTRYDNN_H
#define TCC_TEST_EMULATION_DRIVER_ENTRYDNN_H

#include "test/emulation/driver/DnnGraph.h"
#include "test/emulation/driver/Entry.h"

#include <algorithm>

namespace tcc::emulation {

inline cuda::api::cudnnStatus_t refuseDnn(StandIn &d, FaultKind kind, cuda::api::cudnnStatus_t status,
                                          std::string text) {
  d.misuse(kind, cuda::api::CUDA_ERROR_INVALID_VALUE, std::move(text));
  return status;
}

inline DnnObject *findDnn(StandIn &d, const void *handle, bool isHandle, const char *call) {
  const char *kind = isHandle ? "handle of cuDNN" : "descriptor";
  DnnObject *found = d.lookup(d.dnn, handle, call, kind);
  if (!found || found->isHandle == isHandle)
    return found;
  d.misuse(FaultKind::NotAHandle, cuda::api::CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: this is no {}", call, kind));
  return nullptr;
}

/// The descriptor that another one refers to, if it exists, is finalized and has one of the types; else null, reported.
inline DnnObject *referred(StandIn &d, const DnnObject &from, cuda::api::cudnnBackendAttributeName_t name,
                           std::initializer_list<cuda::api::cudnnBackendDescriptorType_t> types, const char *call) {
  DnnObject *found = findDnn(d, from.one<cuda::api::cudnnBackendDescriptor_t>(name), false, call);
  if (!found)
    return nullptr;
  if (std::find(types.begin(), types.end(), found->type) == types.end()) {
    d.misuse(FaultKind::Misuse, cuda::api::CUDA_ERROR_INVALID_VALUE,
             fmt::format("{}: attribute {} is a descriptor of type {}", call, int(name), int(found->type)));
    return nullptr;
  }
  if (!found->finalized) {
    d.misuse(FaultKind::Misuse, cuda::api::CUDA_ERROR_INVALID_VALUE,
             fmt::format("{}: the descriptor of attribute {} is not finalized", call, int(name)));
    return nullptr;
  }
  return found;
}

/// The problem of a convolution operation, and of a graph that begins with one; nothing after a message.
std::optional<DnnProblem> problemOfOperation(StandIn &d, const DnnObject &operation, const char *call);
std::optional<DnnProblem> problemOfGraph(StandIn &d, const DnnObject &graph, const char *call);

/// Whether the graph's first operation is not a convolution.
bool isDnnGraph(StandIn &d, const DnnObject &graph);
/// The operations and tensors of a graph; nothing after a message.
std::optional<DnnGraph> readDnnGraph(StandIn &d, const DnnObject &graph, const char *call);
/// Checks a part of a graph that is being finalized.
cuda::api::cudnnStatus_t finishDnnPart(StandIn &d, const DnnObject &object, const char *call);
/// Checks the addresses of a variant pack, and enqueues the graph.
cuda::api::cudnnStatus_t submitDnnGraph(StandIn &d, const DnnObject &library, DnnGraph graph,
                                        const DnnConfiguration &configuration, const DnnObject &pack, const char *call);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_ENTRYDNN_H
