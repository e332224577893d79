//===- Limits.h - limits on models ------------------------------*- C++ -*-===//
//
// A few bytes of a model can ask for any amount of memory or time. Each limit is checked before memory is taken or work
// begins, and the message names it. docs/guide/limits.md lists them all with their tests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_LIMITS_H
#define TCC_FRONTEND_LIMITS_H

#include "compiler/model/TensorLimits.h"

#include <cstddef>
#include <cstdint>

namespace tcc::frontend {

/// Nodes of the graph, functions inlined and loops unrolled.
constexpr int64_t kMostNodes = 100'000;
/// Nesting depth of functions, and of graphs.
constexpr size_t kDeepestNesting = 64;
/// Bytes that inlined functions add to the model.
constexpr uint64_t kMostInlinedBytes = uint64_t(256) << 20;
/// Elements of one table that an importer computes: taps of a resize, cosines of a Fourier transform, sizes of windows.
constexpr int64_t kMostTableElements = int64_t(1) << 25;
/// Kernel extents, strides, dilations and pads of a window: products of two of them do not wrap.
constexpr int64_t kMostWindow = int64_t(1) << 30;
/// Steps into which one op is unrolled (tokens of a linear attention).
constexpr int64_t kMostUnrolled = 4096;
/// Bytes of all tables and constants that nodes create; each loop iteration counts.
constexpr uint64_t kMostConstantBytes = uint64_t(1) << 30;
/// Bytes of all sparse tensors in dense form.
constexpr uint64_t kMostDenseBytes = uint64_t(256) << 20;

} // namespace tcc::frontend

#endif // TCC_FRONTEND_LIMITS_H
