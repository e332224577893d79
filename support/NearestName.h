//===- NearestName.h - suggest the nearest known name -----------*- C++ -*-===//
//
// Messages about an unknown name suggest known names that are spelled alike. The comparison ignores case, '_', '-' and
// the wildcards of a glob. Two names are near if at most a third of the longer one's letters were inserted, deleted,
// replaced, or swapped with the next letter.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_NEARESTNAME_H
#define TCC_SUPPORT_NEARESTNAME_H

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc {

/// The optimal string alignment distance in letters; nothing if the names are not near.
std::optional<size_t> nameDistance(std::string_view given, std::string_view known);

/// The known names near to `given`, nearest first, at most `most`.
std::vector<std::string> nearNames(std::string_view given, std::span<const std::string> known, size_t most = 3);

/// The nearest one; empty where none is near.
std::string nearestName(std::string_view given, std::span<const std::string> known);

/// For the end of a message: "the nearest is a, b", or where none is near "there are a, b, c and 12 more".
std::string nearestOrSome(std::string_view given, std::span<const std::string> known);

} // namespace tcc

#endif // TCC_SUPPORT_NEARESTNAME_H
