//===- DType.h - sizes and names of element types ------------------------===//
#ifndef TCC_RUNTIME_PLAN_DTYPE_H
#define TCC_RUNTIME_PLAN_DTYPE_H

#include "runtime/plan/plan.pb.h"

#include <optional>
#include <string>
#include <string_view>

namespace tcc::plan {

/// Bytes of one element; 0 for DTYPE_NONE and for values that this version does not know.
uint64_t dtypeBytes(DType dtype);

/// "f32", "bf16", "i64", …; "none" for DTYPE_NONE.
std::string_view dtypeName(DType dtype);

/// The inverse of dtypeName.
std::optional<DType> dtypeFromName(std::string_view name);

bool isFloatingPoint(DType dtype);

/// Product of the dimensions (1 for a scalar), or nothing where one is negative or the product overflows 2^62.
std::optional<uint64_t> elementCount(const TensorType &type);

/// Elements times element size, or nothing as elementCount.
std::optional<uint64_t> tensorBytes(const TensorType &type);

/// For messages: "f32[4x64x768]".
std::string typeName(const TensorType &type);

/// Writes `count` elements of value `value` (converted as a C cast does; round to nearest even for bf16 and f16).
void fillElements(void *destination, DType dtype, uint64_t count, double value);

/// Element `index` of floating-point elements, exactly; NaN for other types.
double floatElement(const void *elements, DType dtype, uint64_t index);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_DTYPE_H
