//===- InitialValues.h - initial values in the host's memory -------------===//
#ifndef TCC_RUNTIME_CPU_INITIALVALUES_H
#define TCC_RUNTIME_CPU_INITIALVALUES_H

#include "runtime/cpu/ThreadPool.h"
#include "runtime/plan/PlanFile.h"

namespace tcc::runtime {

/// Writes every variable of a verified plan into the resident arena, which holds zeros. Variables are independent, so
/// the pool's workers share them. Errors: those of runtime/InitialValues.h.
Status loadInitialValues(const plan::PlanReader &reader, char *resident, ThreadPool &pool, uint32_t rank = 0);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_INITIALVALUES_H
