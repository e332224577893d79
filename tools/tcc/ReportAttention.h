//===- ReportAttention.h - the report's section on attention ----*- C++ -*-===//
//
// fuse-attention and call-attention leave notes whose text is a JSON object; this is where they are read again.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTATTENTION_H
#define TCC_TOOLS_TCC_REPORTATTENTION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// Is it one of those notes? They have a section of their own.
bool isAttentionNote(const plan::Decisions::Note &note);

/// `fused`, `near_misses`, `weights_elided`; `kept_from_library` where the recipe asks for calls that it does not get.
nlohmann::ordered_json attentionJson(const plan::Plan &plan);
/// The same for people; empty where the plan has no attention.
std::string attentionText(const plan::Plan &plan);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTATTENTION_H
