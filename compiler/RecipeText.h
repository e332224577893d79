//===- RecipeText.h - the text of a recipe, before it is parsed -*- C++ -*-===//
//
// The TOML library reads past its buffers, or recurses without an end, on some texts that are no TOML. They are refused
// here: what remains is text that it reads or answers with an error.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPETEXT_H
#define TCC_COMPILER_RECIPETEXT_H

#include "runtime/plan/Status.h"

#include <string>
#include <string_view>

namespace tcc::recipe {

/// Bytes of a recipe.
constexpr size_t kMostRecipeBytes = size_t(1) << 20;
/// Parts of one dotted key: each is a table inside the one before.
constexpr int kMostKeyParts = 16;

/// The content of a recipe file. Errors: what cannot be opened, what is no regular file (nothing is waited for), more than
/// kMostRecipeBytes.
plan::Expected<std::string> readRecipeFile(const std::string &path);

/// Errors: bytes that are no UTF-8, control characters, characters beyond ASCII outside of strings and comments, keys of more
/// than kMostKeyParts parts. The message begins with `place` and line and column: "recipe.toml:3:1: …".
plan::Status checkRecipeText(std::string_view text, const std::string &place);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPETEXT_H
