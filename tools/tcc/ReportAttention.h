//===- ReportAttention.h - the report's section on attention ----*- C++ -*-===//
//
// fuse-attention leaves notes whose text is a JSON object; this is where they are read again.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTATTENTION_H
#define TCC_TOOLS_TCC_REPORTATTENTION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

/// Is it one of those notes? They have a section of their own.
bool isAttentionNote(const plan::Decisions::Note &note);

/// `fused`, `near_misses` and `weights_elided`.
nlohmann::ordered_json attentionJson(const plan::Plan &plan);
/// The same for people; empty where the plan has no attention.
std::string attentionText(const plan::Plan &plan);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTATTENTION_H
