//===- Convert.h - element types of columns and inputs -------------------===//
//
// Integers (and booleans) convert if every value fits, numbers read from text if the type can represent them; nothing
// else converts silently. A finite number that would become infinite does not fit.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_CONVERT_H
#define TCC_RUNTIME_DATA_CONVERT_H

#include "runtime/plan/DType.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tcc::runtime {

/// True if elements of type `from` may be converted to `to`. (Single values may still not fit.)
bool mayConvert(plan::DType from, plan::DType to, bool text);

/// True if `to` can represent every value of `from`, so that no check is needed.
bool alwaysFits(plan::DType from, plan::DType to);

/// Converts `count` elements; both places may be unaligned. Returns the index of the first value that does not fit, or
/// nothing. Only for pairs that mayConvert.
std::optional<uint64_t> convertElements(const std::byte *source, plan::DType from, std::byte *destination,
                                        plan::DType to, uint64_t count);

/// An integer element (values above INT64_MAX wrap).
int64_t integerElement(const std::byte *source, plan::DType dtype, uint64_t index);

/// An element of a floating-point type.
double floatElement(const std::byte *source, plan::DType dtype, uint64_t index);

/// An element of any type, as a number.
double numberElement(const std::byte *source, plan::DType dtype, uint64_t index);

/// The first of `count` elements that is NaN (with `infinities`, also infinite); nothing if there is none or the type
/// is not a floating-point one.
std::optional<uint64_t> firstNonFinite(const std::byte *source, plan::DType dtype, uint64_t count, bool infinities);

/// The first of `count` integers outside [low, high], if there is one. Vectorised: it runs on every batch.
std::optional<uint64_t> firstOutside(const std::byte *source, plan::DType dtype, uint64_t count, int64_t low,
                                     int64_t high);

/// Element `index` as text, for messages.
std::string elementText(const std::byte *source, plan::DType dtype, uint64_t index);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_CONVERT_H
