//===- SealedJson.h - JSON files that carry their own checksum -----------===//
//
// A sealed file is a JSON object whose last member is "xxh3", the XXH3-64 (16 hexadecimal digits) of all bytes of the
// file before that member's key. The text ends with exactly `"xxh3": "<digits>"`, a line feed, `}`, a line feed, so
// that any program can check it without a JSON parser. The checksum finds damage and edits by hand, not malice.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_SEALEDJSON_H
#define TCC_RUNTIME_STATE_SEALEDJSON_H

#include "support/Status.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tcc::runtime {

/// 16 hexadecimal digits, lower case.
std::string checksumText(uint64_t hash);
std::optional<uint64_t> parseChecksum(std::string_view text);

/// Parses a JSON object. Error (prefixed with `name`): not JSON, not an object, nested too deep, or a key that occurs
/// twice in one object.
Expected<nlohmann::json> parseObject(std::string_view text, const std::string &name);

/// The sealed text of an object: one member per line, and one element per line for the arrays named in `linewise`.
std::string sealObject(const nlohmann::ordered_json &object, const std::vector<std::string> &linewise = {});

/// Checks the seal, and parses. With `allowUnsealed`, a text that neither has an "xxh3" member nor ends in a checksum
/// is accepted, for files of earlier versions. Error: as parseObject, or a missing or wrong checksum.
Expected<nlohmann::json> openSealed(std::string_view text, const std::string &name, bool allowUnsealed = false);

/// Reads a small file and opens it. Error: it is not a regular file, larger than `kMostJsonBytes`, or as above.
constexpr uint64_t kMostJsonBytes = 64ull << 20;
Expected<std::string> readJsonText(const std::string &path);
Expected<nlohmann::json> readSealed(const std::string &path, bool allowUnsealed = false);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_SEALEDJSON_H
