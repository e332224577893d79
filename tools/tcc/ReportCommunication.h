//===- ReportCommunication.h - the collectives of a plan --------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_REPORTCOMMUNICATION_H
#define TCC_TOOLS_TCC_REPORTCOMMUNICATION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// For each program with collectives: the bytes of each, the instructions beside it, and its exposed time on a nominal
/// link.
/// Null for a plan without any.
nlohmann::ordered_json communicationJson(const Report &report);

/// The same as text; empty without collectives.
std::string communicationText(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTCOMMUNICATION_H
