//===- WeightNames.cpp - classify an initializer by its name --------------===//
#include "frontend/WeightNames.h"

#include <algorithm>
#include <cctype>

namespace tcc::frontend {

bool isInventedName(const std::string &name) {
  for (std::string_view prefix :
       {"val_", "onnx::", "_tensor_constant", "c_lifted_tensor", "lifted_tensor_", "const_", "Constant_", "/"})
    if (name.starts_with(prefix))
      return true;
  // "int64_1_1d": a literal of torch's translations.
  for (std::string_view type : {"int64_", "float_", "bool_"})
    if (name.starts_with(type) && name.size() > type.size() &&
        std::isdigit(static_cast<unsigned char>(name[type.size()])))
      return true;
  return name.empty() || std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The words of a name in lower case: "layers.0.runningMean_1" has layers, 0, running, mean and 1.
static std::vector<std::string> wordsOf(const std::string &name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool begins = std::isupper(c) && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1]));
    if ((!std::isalnum(c) || begins) && !words.back().empty())
      words.emplace_back();
    if (std::isalnum(c))
      words.back() += char(std::tolower(c));
  }
  return words;
}

bool isBufferName(const std::string &name) {
  const std::vector<std::string> words = wordsOf(name);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "buffer" || words[i] == "buffers")
      return true;
    if (i + 1 < words.size() && (words[i] == "running" || words[i] == "moving") &&
        (words[i + 1] == "mean" || words[i + 1].starts_with("var") || words[i + 1] == "std"))
      return true;
  }
  // Names that modules register as buffers: rotary frequencies, masks, statistics of pixels.
  const std::string last = words.back(), both = words.size() > 1 ? words[words.size() - 2] + " " + last : last;
  static const std::set<std::string> buffers = {"inv freq", "freqs cis", "pixel mean", "pixel std", "batches tracked"};
  return last == "mask" || buffers.count(both);
}

bool hasModuleName(const std::string &name) {
  const size_t dot = name.rfind('.');
  return dot != name.npos && dot > 0 && dot + 1 < name.size() && name.find_first_of(":/ ") == name.npos &&
         !std::isdigit(static_cast<unsigned char>(name[dot + 1]));
}

bool isParameterName(const std::string &name, uint64_t count) {
  static const std::set<std::string> always = {"weight", "weights", "bias",      "biases",     "gamma", "beta",
                                               "kernel", "kernels", "embedding", "embeddings", "embed"},
                                     ofMany = {"scale", "offset", "alpha", "token", "tokens"};
  if (name.find("ReadVariableOp") != std::string::npos)
    return true;
  std::vector<std::string> words = wordsOf(name);
  const bool numbered = words.size() > 1 && std::all_of(words.back().begin(), words.back().end(), [](unsigned char c) {
                          return std::isdigit(c) != 0;
                        });
  if (numbered)
    words.pop_back();
  // Paddle's "conv2d_0.w_0" and "linear_3.b_0".
  if (numbered && (words.back() == "w" || words.back() == "b"))
    return name.find(".w_") != std::string::npos || name.find(".b_") != std::string::npos;
  return always.count(words.back()) || (count > 1 && ofMany.count(words.back()));
}

} // namespace tcc::frontend
