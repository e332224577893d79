//===- Toml.h - parse untrusted text as TOML --------------------*- C++ -*-===//
//
// Recipes come from users, and recipes in plans are untrusted. On some invalid texts the TOML library reads past its
// buffers, recurses without end or asserts. checkTomlText refuses the first two kinds before the library sees them; an
// assertion becomes an error. All code that reads TOML includes this header instead of the library's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_TOML_H
#define TCC_SUPPORT_TOML_H

#include "support/Status.h"

#include <exception>
#include <string>
#include <string_view>

#ifdef NDEBUG
#error "with NDEBUG the TOML library takes for granted what it else asserts: build without it"
#endif
namespace tcc {
struct TomlAssertion : std::exception {};
[[noreturn]] void tomlAsserted();
} // namespace tcc
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::tcc::tomlAsserted())
#include <toml++/toml.h>

namespace tcc {

/// The most parts of a dotted key: each is a table inside the one before.
constexpr int kMostKeyParts = 16;

/// Errors: bytes that are not UTF-8, control characters, characters beyond ASCII outside of strings and comments, keys
/// of more than kMostKeyParts parts, values that are missing or not separated. The message begins with `place`, line
/// and column: "recipe.toml:3:1: …".
Status checkTomlText(std::string_view text, const std::string &place);

/// The text as a table. Errors: those of checkTomlText, and all other invalid TOML; without line and column if `place`
/// is empty.
Expected<toml::table> parseToml(std::string_view text, const std::string &place = "");

} // namespace tcc

#endif // TCC_SUPPORT_TOML_H
