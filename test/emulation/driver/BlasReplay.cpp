//===- BlasReplay.cpp - recorded answers of cuBLASLt's heuristics --------===//
#include "test/emulation/driver/BlasReplay.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
constexpr const char *kKeys[] = {"m", "n", "k", "batch", "ta", "tb", "type", "result", "compute", "epilogue"};

std::string textOf(std::initializer_list<uint64_t> values) {
  std::string text;
  for (uint64_t value : values)
    text += std::to_string(value) + " ";
  return text;
}

std::string textOf(const nlohmann::json &product) {
  std::string text;
  for (const char *key : kKeys)
    text += std::to_string(product.at(key).get<uint64_t>()) + " ";
  return text;
}

RecordedAnswer answerOf(const nlohmann::json &line) {
  RecordedAnswer answer;
  answer.status = static_cast<cublasStatus_t>(line.at("status").get<int>());
  for (const nlohmann::json &one : line.at("algorithms"))
    answer.algorithms.push_back({one.at("id"), one.at("tile"), std::max(1u, one.at("parts").get<uint32_t>()),
                                 one.at("scheme"), one.at("workspace")});
  return answer;
}
} // namespace

BlasReplay BlasReplay::read(const std::string &file, std::string &problem) {
  BlasReplay replay;
  std::ifstream stream(file);
  std::stringstream content;
  content << stream.rdbuf();
  const std::string text = content.str();
  try {
    std::vector<nlohmann::json> lines;
    if (nlohmann::json whole = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
        whole.contains("checks")) {
      for (const nlohmann::json &check : whole.at("checks"))
        if (check.at("check") == "cuBLASLt heuristics")
          lines.insert(lines.end(), check.at("answers").begin(), check.at("answers").end());
    } else {
      std::istringstream parts(text);
      for (std::string line; std::getline(parts, line);)
        if (!line.empty())
          lines.push_back(nlohmann::json::parse(line));
    }
    for (const nlohmann::json &line : lines)
      if (line.contains("product"))
        replay.answers[textOf(line.at("product"))] = answerOf(line);
    if (replay.answers.empty())
      problem = "it has no answer for a product";
  } catch (const nlohmann::json::exception &wrong) {
    problem = wrong.what();
  }
  return replay;
}

const RecordedAnswer *BlasReplay::find(const BlasObject &desc, const Shape &shape, const BlasObject &a,
                                       const BlasObject &d) const {
  auto found = answers.find(textOf({shape.m, shape.n, shape.k, uint64_t(d.batch), desc.transA, desc.transB,
                                    uint64_t(a.type), uint64_t(d.type), uint64_t(desc.computeType), desc.epilogue}));
  return found == answers.end() ? nullptr : &found->second;
}

} // namespace tcc::emulation
