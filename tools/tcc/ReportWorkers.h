//===- ReportWorkers.h - memory and speed of more workers -------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_REPORTWORKERS_H
#define TCC_TOOLS_TCC_REPORTWORKERS_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// For each program the arena and the parallel efficiency with 1, 2, 4, … 128 workers, and the instructions that leave
/// most of 128 workers idle.
nlohmann::ordered_json workersJson(const Report &report);

/// The same as text, for the program with the largest peak and, where that is another one, training.
std::string workersText(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTWORKERS_H
