//===- RecipeText.h - the file of a recipe ----------------------*- C++ -*-===//
#ifndef TCC_COMPILER_RECIPETEXT_H
#define TCC_COMPILER_RECIPETEXT_H

#include "runtime/plan/Status.h"

#include <string>

namespace tcc::recipe {

/// Bytes of a recipe.
constexpr size_t kMostRecipeBytes = size_t(1) << 20;

/// The content of a recipe file. Errors: what cannot be opened, what is no regular file (nothing is waited for), more than
/// kMostRecipeBytes.
plan::Expected<std::string> readRecipeFile(const std::string &path);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPETEXT_H
