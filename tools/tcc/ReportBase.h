//===- ReportBase.h - frozen weights that are kept in 8 bits ----*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_REPORTBASE_H
#define TCC_TOOLS_TCC_REPORTBASE_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// Of adapter.base = "int8": `tensors`, their `bytes` and `scale_bytes`, `model_bytes` in the model's type; and for
/// each program with copies that are widened in memory, `copies` (`name`, `bytes`, `first`, `last`: instructions) and
/// `most_bytes`, live at once. Null for other plans.
nlohmann::ordered_json integerBaseJson(const Report &report);
/// The same in words, a line each; empty for other plans.
std::string integerBaseText(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTBASE_H
