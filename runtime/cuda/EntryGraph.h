//===- EntryGraph.h - an entry as one graph ------------------------------===//
#ifndef TCC_RUNTIME_CUDA_ENTRYGRAPH_H
#define TCC_RUNTIME_CUDA_ENTRYGRAPH_H

#include "runtime/cuda/Step.h"

#include <functional>
#include <string>

namespace tcc::cuda {

/// Captures steps [begin, end) as a graph. All steps are on `stream`, in order, except collectives with other ranks.
/// Those are on a stream of their own, in order, concurrent with the instructions that the plan allows
/// (Instruction.beside): each begins after the steps before it, and the first instruction that may not run
/// concurrently, or the graph's end, waits for it. `ranks`: null for a single rank. `where` names a step for messages.
/// Null if there are no steps.
Expected<api::CUgraphExec> captureSteps(const std::vector<Step> &steps, size_t begin, size_t end,
                                        const DriverLibrary &driver, api::CUstream stream, api::CUstream communication,
                                        const CardRanks *ranks, const std::function<std::string(size_t)> &where);

/// Submits each collective of an entry once, on zeros instead of its operands, because NCCL makes connections when an
/// operation of a kind and size runs for the first time.
Status runCollectives(const plan::Entry &entry, const std::vector<Step> &steps, const DriverLibrary &driver,
                      api::CUstream stream, const CardRanks &ranks);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_ENTRYGRAPH_H
