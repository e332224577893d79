//===- EnvironmentPlace.h - the rank that torchrun started ------------------===//
#ifndef TCC_RUNTIME_PARALLEL_ENVIRONMENTPLACE_H
#define TCC_RUNTIME_PARALLEL_ENVIRONMENTPLACE_H

#include "runtime/parallel/Tcp.h"

#include <optional>

namespace tcc::runtime {

/// The place that torchrun's variables give this process: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, if set,
/// LOCAL_RANK and LOCAL_WORLD_SIZE; and the job's secret (secretFromEnvironment). Nothing if RANK or WORLD_SIZE is not
/// set. Error: a variable is missing, is no number, or contradicts another.
Expected<std::optional<RankPlace>> placeFromEnvironment();

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_ENVIRONMENTPLACE_H
