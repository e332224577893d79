//===- RecipeReaders.h - read and check one value of a recipe ---*- C++ -*-===//
//
// Readers for values inside tables. Each checks type and range and stores the value; its error says what was expected,
// without the place.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPE_RECIPEREADERS_H
#define TCC_COMPILER_RECIPE_RECIPEREADERS_H

#include "compiler/recipe/Recipe.h"
#include "support/recipe/Values.h"

namespace tcc::recipe {

Status readNumber(const toml::node &node, Range range, double &out);
Status readString(const toml::node &node, std::string &out);
Status readChoice(const toml::node &node, const std::vector<std::string> &words, std::string &out);
Status readStrings(const toml::node &node, std::vector<std::string> &out);
Status readIntegers(const toml::node &node, int64_t least, std::vector<int64_t> &out);
/// A number, a boolean, nested lists of these, "FILE.safetensors:TENSOR", or { file, tensor }.
Status readFixedValue(const toml::node &node, FixedValue &out);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPE_RECIPEREADERS_H
