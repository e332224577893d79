//===- ReportDiff.h - compare two plans -------------------------*- C++ -*-===//
//
// Two plans of the same model, before and after a change of the model, the recipe, the budget or the compiler: sizes,
// programs, buffers live at the peak, kernels, recomputation, parameters, recipe. Only differences are listed.
//
// Names of buffers end in a number that counts the program's values, so one more value renames all that follow: buffers
// are compared by the rest of their name and by their node. Buffers that share both, as layers of one ONNX function do,
// are compared by their number and total bytes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTDIFF_H
#define TCC_TOOLS_TCC_REPORTDIFF_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// The keys are in docs/guide/report.md. A list or object without differences is empty.
nlohmann::ordered_json diffJson(const Report &before, const Report &after);

/// The same for a terminal, from that object; "no difference" where there is none.
std::string diffText(const nlohmann::ordered_json &difference);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTDIFF_H
