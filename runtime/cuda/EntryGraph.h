//===- EntryGraph.h - an entry as one graph ------------------------------===//
#ifndef TCC_RUNTIME_CUDA_ENTRYGRAPH_H
#define TCC_RUNTIME_CUDA_ENTRYGRAPH_H

#include "runtime/cuda/Step.h"

#include <functional>
#include <string>

namespace tcc::cuda {

/// Captures steps `begin` to `end` (not included) as a graph: all on `stream`, in their order, but collectives with
/// other ranks. These are on a stream of their own, in their order, beside the instructions that the plan names
/// (Instruction.beside): each begins after what is before it, and the first instruction that is not beside it, or the
/// graph's end, waits for it. `ranks`: null, if this rank is alone. `where` names a step for messages. Null, where
/// there are no steps.
Expected<api::CUgraphExec> captureSteps(const std::vector<Step> &steps, size_t begin, size_t end,
                                        const DriverLibrary &driver, api::CUstream stream, api::CUstream communication,
                                        const CardRanks *ranks, const std::function<std::string(size_t)> &where);

/// Submits each collective of an entry once, on zeros in place of its operands: NCCL makes connections when an
/// operation of a kind and size runs for the first time.
Status runCollectives(const plan::Entry &entry, const std::vector<Step> &steps, const DriverLibrary &driver,
                      api::CUstream stream, const CardRanks &ranks);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_ENTRYGRAPH_H
