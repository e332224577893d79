//===- MutateJson.h - random structural changes of a JSON tree -----------===//
#ifndef TCC_TEST_FUZZ_MUTATEJSON_H
#define TCC_TEST_FUZZ_MUTATEJSON_H

#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace tcc::fuzz {

inline void collect(nlohmann::json &node, std::vector<nlohmann::json *> &nodes) {
  nodes.push_back(&node);
  if (node.is_structured())
    for (nlohmann::json &child : node)
      collect(child, nodes);
}

inline nlohmann::json scalarNear(const nlohmann::json &old, std::mt19937_64 &random) {
  static const nlohmann::json kValues[] = {nullptr,
                                           true,
                                           false,
                                           0,
                                           1,
                                           2,
                                           3,
                                           -1,
                                           7.5,
                                           1e300,
                                           UINT64_MAX,
                                           INT64_MIN,
                                           1u << 31,
                                           uint64_t(1) << 53,
                                           uint64_t(1) << 62,
                                           "",
                                           "f32",
                                           "bf16",
                                           "bool",
                                           "i64",
                                           "state.safetensors",
                                           "..",
                                           "a/b",
                                           "parameter",
                                           "optimizer",
                                           "buffer",
                                           nlohmann::json::array(),
                                           nlohmann::json::object()};
  if (old.is_number_integer() && random() % 2)
    return static_cast<int64_t>(old.get<uint64_t>() + random() % 5 - 2);
  if (old.is_string() && random() % 2) {
    std::string text = old.get<std::string>();
    const size_t size = text.size();
    text.resize(size + 8);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(text.data()), size, text.size()));
    return text;
  }
  return kValues[random() % std::size(kValues)];
}

/// Changes one place: changes a value, or removes, duplicates or replaces a member or element.
inline void mutateJson(nlohmann::json &root, std::mt19937_64 &random) {
  std::vector<nlohmann::json *> nodes;
  collect(root, nodes);
  nlohmann::json &node = *nodes[random() % nodes.size()];
  if (!node.is_structured() || node.empty() || random() % 8 == 0) {
    node = random() % 4 ? scalarNear(node, random) : nlohmann::json(*nodes[random() % nodes.size()]);
    return;
  }
  auto child = std::next(node.begin(), static_cast<std::ptrdiff_t>(random() % node.size()));
  if (random() % 2)
    node.erase(child);
  else if (node.is_array())
    node.push_back(nlohmann::json(*child));
  else
    *child = nlohmann::json(*nodes[random() % nodes.size()]);
}

} // namespace tcc::fuzz

#endif // TCC_TEST_FUZZ_MUTATEJSON_H
