//===- Json.cpp - parse untrusted text as JSON, and write JSON --------------===//
#include "support/Json.h"
#include "support/ShortText.h"

#include <fmt/format.h>
#include <set>
#include <vector>

namespace tcc {

using nlohmann::json;

/// True if a list or object begins here and `depth`, the number of those around it, is already the limit.
static bool isTooDeep(int depth, json::parse_event_t event) {
  return (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) &&
         depth >= kMostJsonDepth;
}

Expected<json> parseJson(std::string_view text, const std::string &name) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  bool deep = false;
  auto watch = [&](int depth, json::parse_event_t event, json &parsed) {
    deep |= isTooDeep(depth, event);
    if (event == json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == json::parse_event_t::object_end && !open.empty())
      open.pop_back();
    else if (event == json::parse_event_t::key && !open.empty())
      if (const auto &key = parsed.get_ref<const std::string &>(); !open.back().insert(key).second && twice.empty())
        twice = key;
    return !deep;
  };
  auto tooDeep = [&] { return error("{}: nested deeper than {} levels", name, kMostJsonDepth); };
  try {
    json value = json::parse(text.begin(), text.end(), watch);
    if (deep)
      return tooDeep();
    if (!twice.empty())
      return error("{}: the key '{}' occurs twice in one object", name, shortened(twice));
    return value;
  } catch (const json::parse_error &problem) {
    if (deep)
      return tooDeep();
    return error("{}: it is not JSON: byte {} is not allowed there", name, problem.byte);
  } catch (const json::exception &) {
    return error("{}: a number in it is beyond the range of 64-bit floats", name);
  }
}

json parseJsonOrNull(std::string_view text) {
  bool deep = false;
  json value = json::parse(
      text.begin(), text.end(),
      [&](int depth, json::parse_event_t event, json &) {
        deep |= isTooDeep(depth, event);
        return !deep;
      },
      /*allow_exceptions=*/false);
  return deep || value.is_discarded() ? json() : value;
}

std::string jsonText(const json &value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}
std::string jsonText(const nlohmann::ordered_json &value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace tcc
