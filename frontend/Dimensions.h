//===- Dimensions.h - symbolic dimensions and sums of them ------*- C++ -*-===//
//
// Exporters write a dimension as a name ("batch"), or as an expression of names ("2*batch + 1", "s0//2").
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_DIMENSIONS_H
#define TCC_FRONTEND_DIMENSIONS_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace tcc::frontend {

/// "", "?", "-1", "None", "unk__214": placeholders of exporters for a dimension without a name. Two equal ones need not
/// be the same dimension.
bool isPlaceholder(const std::string &text);

/// The names in an expression; the text itself if it is no expression.
std::set<std::string> dimensionNames(const std::string &text);

/// The value of an expression of integers, names, + - * / // % ** and parentheses, Max, Min and floor; nullopt if a
/// name has no value, or the text is no such expression.
std::optional<int64_t> dimensionValue(const std::string &text, const std::map<std::string, int64_t> &names);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_DIMENSIONS_H
