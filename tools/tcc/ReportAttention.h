//===- ReportAttention.h - the report's section on attention ----*- C++ -*-===//
//
// Reads the notes of fuse-attention and call-attention, whose text is a JSON object.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTATTENTION_H
#define TCC_TOOLS_TCC_REPORTATTENTION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// Is it one of those notes? They have a section of their own.
bool isAttentionNote(const plan::Decisions::Note &note);

/// `fused`, `near_misses`, `weights_elided`; `kept_from_library` if the recipe asks for calls that are not made.
nlohmann::ordered_json attentionJson(const plan::Plan &plan);
/// The same for people; empty where the plan has no attention.
std::string attentionText(const plan::Plan &plan);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTATTENTION_H
