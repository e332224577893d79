//===- Json.h - parse untrusted text as JSON, and write JSON ----------------===//
//
// Run folders, settings and graphs are untrusted. The JSON library parses any depth, but its writer and every function
// that walks a value recurse: a depth of 100,000 crashes the process. So all code that reads JSON into values calls
// these functions, which bound the depth; only headers of safetensors are read as a stream of events.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_JSON_H
#define TCC_SUPPORT_JSON_H

#include "support/Status.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tcc {

/// Objects and arrays inside each other.
constexpr int kMostJsonDepth = 32;

/// The value of a text. Errors begin with `name`: invalid JSON (with the byte of the first fault), nested deeper than
/// kMostJsonDepth, a number beyond the range of doubles, or a key that occurs twice in one object.
Expected<nlohmann::json> parseJson(std::string_view text, const std::string &name);

/// The same for lines of logs, but null for invalid JSON, which readers skip. Of a repeated key the last value counts.
nlohmann::json parseJsonOrNull(std::string_view text);

/// The text of a value; bytes that are not UTF-8 become U+FFFD. `indent`: spaces a level, -1: one line.
std::string jsonText(const nlohmann::json &value, int indent = -1);
std::string jsonText(const nlohmann::ordered_json &value, int indent = -1);

} // namespace tcc

#endif // TCC_SUPPORT_JSON_H
