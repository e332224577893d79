//===- Page.h - a report as one HTML file ---------------------------------===//
//
// page/ holds the parts that the pages of `tcc report` and `trun report` share: HTML, style sheet, tables, charts. A
// page is one string in the program (tcc_page in CMakeLists.txt); the browser draws it from the JSON that it holds.
//
// Names come from models and runs and may hold anything. The data is in a script element of a type that no browser
// runs. "<" is escaped in the JSON, so that no name ends the element, and scripts insert names as text, never as
// markup.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_PAGE_H
#define TCC_TOOLS_COMMON_PAGE_H

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tcc::report {

/// The page with its data. Bytes that are not UTF-8 are replaced.
std::string pageWith(std::string_view page, const nlohmann::ordered_json &data);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_PAGE_H
