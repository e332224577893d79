//===- SealedJson.cpp - JSON files that carry their own checksum ---------===//
#include "runtime/state/SealedJson.h"
#include "runtime/plan/PlanFile.h"
#include "support/Json.h"
#include "support/RegularFile.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
constexpr std::string_view kKey = "\"xxh3\": \"", kEnd = "\"\n}\n";
constexpr size_t kDigits = 16, kTail = kKey.size() + kDigits + kEnd.size();

/// True if the text ends like a sealed one, whatever its last key is: a damaged key must not make it pass as unsealed.
bool endsInChecksum(std::string_view text) {
  return text.size() >= kTail && text.ends_with(kEnd) &&
         parseChecksum(text.substr(text.size() - kDigits - kEnd.size(), kDigits)).has_value();
}

bool hasTail(std::string_view text) {
  return text.size() >= kTail && text.substr(text.size() - kTail, kKey.size()) == kKey && text.ends_with(kEnd);
}
} // namespace

std::string tcc::runtime::checksumText(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<uint64_t> tcc::runtime::parseChecksum(std::string_view text) {
  uint64_t hash = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  bool lower = std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (text.size() != kDigits || code != std::errc() || end != text.data() + text.size() || !lower)
    return std::nullopt;
  return hash;
}

Expected<json> tcc::runtime::parseObject(std::string_view text, const std::string &name) {
  auto value = parseJson(text, name + ": damaged");
  if (value && !value->is_object())
    return error("{}: damaged: no JSON object", name);
  return value;
}

std::string tcc::runtime::sealObject(const nlohmann::ordered_json &object, const std::vector<std::string> &linewise) {
  std::string text = "{\n";
  for (const auto &[key, value] : object.items()) {
    text += jsonText(nlohmann::json(key)) + ": ";
    if (value.is_array() && !value.empty() && std::find(linewise.begin(), linewise.end(), key) != linewise.end()) {
      for (size_t i = 0; i < value.size(); ++i)
        text += (i == 0 ? "[\n " : ",\n ") + jsonText(value[i]);
      text += "\n]";
    } else {
      text += jsonText(value);
    }
    text += ",\n";
  }
  uint64_t hash = plan::hashBytes(text.data(), text.size());
  return text.append(kKey).append(checksumText(hash)).append(kEnd);
}

Expected<json> tcc::runtime::openSealed(std::string_view text, const std::string &name, bool allowUnsealed) {
  auto value = parseObject(text, name);
  if (!value || (allowUnsealed && !value->contains("xxh3") && !endsInChecksum(text)))
    return value;
  if (!hasTail(text))
    return error("{}: damaged or edited: it does not end with its checksum", name);
  std::string_view sealed = text.substr(0, text.size() - kTail);
  auto stored = parseChecksum(text.substr(sealed.size() + kKey.size(), kDigits));
  if (!stored || *stored != plan::hashBytes(sealed.data(), sealed.size()))
    return error("{}: damaged or edited: its checksum does not match", name);
  return value;
}

Expected<std::string> tcc::runtime::readJsonText(const std::string &path) {
  return readWhole(path, kMostJsonBytes);
}

Expected<json> tcc::runtime::readSealed(const std::string &path, bool allowUnsealed) {
  auto text = readJsonText(path);
  return text ? openSealed(*text, path, allowUnsealed) : text.status();
}
