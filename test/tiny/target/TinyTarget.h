//===- TinyTarget.h - a second target, in one folder ----------------------===//
//
// A machine with one level, "tiny:one". It multiplies f32 matrices by a call of its own; everything else is generated
// kernels with four lanes. A real target differs in the number of its choices alone.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_TINY_TARGET_TINYTARGET_H
#define TCC_TEST_TINY_TARGET_TINYTARGET_H

#include "compiler/target/Target.h"

namespace tcc::test {

/// For target::registerTarget.
target::TargetKind tinyKind();

/// Version of the arithmetic of the machine's products (MatmulCall.numerics).
inline constexpr uint32_t kTinyNumerics = 5;

} // namespace tcc::test

#endif // TCC_TEST_TINY_TARGET_TINYTARGET_H
