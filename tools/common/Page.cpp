//===- Page.cpp - a report as one HTML file -------------------------------===//
#include "tools/common/Page.h"
#include "support/Json.h"


static constexpr std::string_view kDataMark = "@DATA@";

std::string tcc::report::pageWith(std::string_view page, const nlohmann::ordered_json &data) {
  std::string text = jsonText(data), made;
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
