//===- RecipeText.cpp - read the text of a recipe file --------------------===//
#include "compiler/recipe/RecipeText.h"
#include "support/RegularFile.h"

namespace tcc::recipe {

Expected<std::string> readRecipeFile(const std::string &path) {
  return readWhole(path, kMostRecipeBytes);
}

} // namespace tcc::recipe
