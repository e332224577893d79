//===- InitializerLists.h - the lists of floating-point initializers -------===//
#ifndef TCC_RUNTIME_PLAN_INITIALIZERLISTS_H
#define TCC_RUNTIME_PLAN_INITIALIZERLISTS_H

#include <algorithm>
#include <iterator>
#include <string_view>

namespace tcc::plan {

/// Every floating-point initializer of the model is in one of these: the kind of the note (Decisions.notes) that has its
/// name as the subject and the reason as the text.
namespace lists {
inline constexpr char kTrained[] = "trained", kFrozen[] = "frozen", kBuffer[] = "buffer", kConstant[] = "constant";
inline constexpr std::string_view kAll[] = {kTrained, kFrozen, kBuffer, kConstant};

inline bool isList(std::string_view kind) { return std::find(std::begin(kAll), std::end(kAll), kind) != std::end(kAll); }
} // namespace lists

/// The note on what the model's file cannot say and the recipe does not.
inline constexpr char kUnsaidNote[] = "unsaid";

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_INITIALIZERLISTS_H
