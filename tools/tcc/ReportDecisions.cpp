//===- ReportDecisions.cpp - which initializers are trained ---------------===//
#include "tools/tcc/ReportDecisions.h"

#include "runtime/plan/InitializerLists.h"

#include <map>

namespace tcc::report {

/// Earlier plans: a note on each initializer of rank 1 and more; the variable's role says the rest.
static constexpr char kParameterNote[] = "parameter";

std::vector<Decision> decisionsOf(const plan::Plan &plan) {
  std::map<std::string, const plan::Variable *> variables;
  for (const plan::Variable &variable : plan.variables())
    variables[variable.name()] = &variable;
  std::vector<Decision> decisions;
  for (const plan::Decisions::Note &note : plan.decisions().notes()) {
    auto found = variables.find(note.subject());
    const plan::Variable *variable = found == variables.end() ? nullptr : found->second;
    if (plan::lists::isList(note.kind()))
      decisions.push_back({note.subject(), note.kind(), note.text(), variable});
    else if (note.kind() == kParameterNote && variable)
      decisions.push_back({note.subject(),
                           variable->role() == plan::PARAMETER ? plan::lists::kTrained : plan::lists::kFrozen, note.text(),
                           variable});
  }
  return decisions;
}

bool isDecisionNote(const plan::Decisions::Note &note) {
  return note.kind() == kParameterNote || plan::lists::isList(note.kind());
}

} // namespace tcc::report
