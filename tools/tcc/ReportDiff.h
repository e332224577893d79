//===- ReportDiff.h - compare two plans -------------------------*- C++ -*-===//
//
// Two plans of the same model, before and after a change of the model, the recipe, the budget or the compiler: sizes,
// programs, what lives at the peak, kernels, recomputation, parameters, recipe. Only what differs is listed.
//
// The numbers behind the names of buffers count values, so that one value more renames all that follow: buffers are
// compared by the rest of their name and by their node. Where several have the same, as layers of one ONNX function do,
// their bytes and their number are compared.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTDIFF_H
#define TCC_TOOLS_TCC_REPORTDIFF_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// The keys are in docs/guide/report.md. What does not differ is an empty list or object.
nlohmann::ordered_json diffJson(const Report &before, const Report &after);

/// The same for a terminal, from that object; "no difference" where there is none.
std::string diffText(const nlohmann::ordered_json &difference);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTDIFF_H
