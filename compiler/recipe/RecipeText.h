//===- RecipeText.h - read the text of a recipe file ------------*- C++ -*-===//
#ifndef TCC_COMPILER_RECIPE_RECIPETEXT_H
#define TCC_COMPILER_RECIPE_RECIPETEXT_H

#include "support/Status.h"

#include <string>

namespace tcc::recipe {

/// Bytes of a recipe.
constexpr size_t kMostRecipeBytes = size_t(1) << 20;

/// The content of a recipe file. Errors: it cannot be opened, it is not a regular file (a FIFO is never waited for), or
/// it is larger than kMostRecipeBytes.
Expected<std::string> readRecipeFile(const std::string &path);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPE_RECIPETEXT_H
