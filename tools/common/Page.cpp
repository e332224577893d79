//===- Page.cpp - a report as one HTML file -------------------------------===//
#include "tools/common/Page.h"

#include <nlohmann/json.hpp>

static constexpr std::string_view kDataMark = "@DATA@";

std::string tcc::report::pageWith(std::string_view page, const nlohmann::ordered_json &data) {
  std::string text = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), made;
  size_t mark = page.find(kDataMark);
  made.reserve(page.size() + text.size() + text.size() / 16);
  made += page.substr(0, mark);
  for (char c : text)
    if (c == '<')
      made += "\\u003c";
    else
      made += c;
  made += page.substr(mark + kDataMark.size());
  return made;
}
