//===- InitialValues.h - what the variables hold before training ---------===//
#ifndef TCC_RUNTIME_CPU_INITIALVALUES_H
#define TCC_RUNTIME_CPU_INITIALVALUES_H

#include "runtime/cpu/ThreadPool.h"
#include "runtime/plan/PlanFile.h"

namespace tcc::runtime {

/// Writes every variable of a verified plan into the resident arena. Errors name variable and file: an external file is
/// missing, too short, or does not have the content that the plan was made from.
plan::Status loadInitialValues(const plan::PlanReader &reader, char *resident, ThreadPool &pool);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_INITIALVALUES_H
