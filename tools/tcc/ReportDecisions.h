//===- ReportDecisions.h - which initializers are trained -------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_REPORTDECISIONS_H
#define TCC_TOOLS_TCC_REPORTDECISIONS_H

#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace tcc::report {

/// A floating-point initializer of the model, or a variable of an older plan, which has one list for all of them.
struct Decision {
  std::string name, list, reason; ///< list: as of runtime/plan/InitializerLists.h
  const plan::Variable *variable = nullptr;
};
/// In the plan's order.
std::vector<Decision> decisionsOf(const plan::Plan &plan);

/// True for a note on one initializer, which decisionsOf reads.
bool isDecisionNote(const plan::Decisions::Note &note);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTDECISIONS_H
