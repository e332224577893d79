//===- ReportStops.h - the report's section on stopped gradients --*- C++ -*-===//
//
// prune-stops leaves a note for each stop behind a trainable parameter; this is where they are read again.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTSTOPS_H
#define TCC_TOOLS_TCC_REPORTSTOPS_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// Is it one of those notes? They have a section of their own.
bool isStopNote(const plan::Decisions::Note &note);

/// `stop_gradient` of the report: `node`, `source`.
nlohmann::ordered_json stopsJson(const plan::Plan &plan);
std::string stopsText(const plan::Plan &plan);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTSTOPS_H
