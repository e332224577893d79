//===- Targets.h - the targets of this program ------------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_REGISTRY_TARGETS_H
#define TCC_COMPILER_TARGET_REGISTRY_TARGETS_H

namespace tcc::target {

/// Registers every kind of machine that this program compiles for, with its passes; "cpu" is the default. Idempotent.
void registerTargets();

} // namespace tcc::target

#endif // TCC_COMPILER_TARGET_REGISTRY_TARGETS_H
