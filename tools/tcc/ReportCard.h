//===- ReportCard.h - the least time of a step on a CUDA card ---*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_REPORTCARD_H
#define TCC_TOOLS_TCC_REPORTCARD_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// For a plan of a cuda target: the card (the named one, or the architecture's usual one), the launches in the programs
/// of `Report::counted`, the least seconds by the roofline, and its slow kernels (`floor`). Null for others.
nlohmann::ordered_json cardJson(const Report &report);

/// The same as text; empty for others.
std::string cardText(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTCARD_H
