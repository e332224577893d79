//===- PtxText.cpp - join several PTX texts -------------------------------===//
#include "compiler/codegen/PtxText.h"

#include <sstream>
#include <string_view>

namespace tcc::codegen {

namespace {

std::string_view withoutComment(std::string_view line) {
  line = line.substr(0, line.find("//"));
  size_t last = line.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

bool isHeader(std::string_view line) {
  return line.starts_with(".version ") || line.starts_with(".target ") || line.starts_with(".address_size ");
}

} // namespace

Expected<std::string> joinPtx(const std::vector<std::string> &texts) {
  std::string header, body;
  for (const std::string &text : texts) {
    std::string ownHeader;
    std::istringstream lines(text);
    for (std::string whole; std::getline(lines, whole);) {
      std::string_view line = withoutComment(whole);
      if (line.empty())
        continue;
      if (line.starts_with(".extern"))
        return error("internal error: generated kernels import a symbol: {}", line);
      (isHeader(line) ? ownHeader : body).append(line).push_back('\n');
    }
    if (header.empty())
      header = ownHeader;
    if (ownHeader.empty() || ownHeader != header)
      return error("internal error: generated kernels are for different machines: '{}' and '{}'", header, ownHeader);
  }
  return header + body;
}

} // namespace tcc::codegen
