//===- ReportStops.h - the report's section on stopped gradients --*- C++ -*-===//
//
// Reads the notes that prune-stops leaves for each stop behind a trainable parameter.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTSTOPS_H
#define TCC_TOOLS_TCC_REPORTSTOPS_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// True for such a note, which has a section of its own.
bool isStopNote(const plan::Decisions::Note &note);

/// `stop_gradient` of the report: `node`, `source`.
nlohmann::ordered_json stopsJson(const plan::Plan &plan);
std::string stopsText(const plan::Plan &plan);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTSTOPS_H
