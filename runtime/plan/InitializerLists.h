//===- InitializerLists.h - the lists of floating-point initializers -------===//
#ifndef TCC_RUNTIME_PLAN_INITIALIZERLISTS_H
#define TCC_RUNTIME_PLAN_INITIALIZERLISTS_H

#include <algorithm>
#include <iterator>
#include <string_view>

namespace tcc::plan {

/// Kinds of notes (Decisions.notes). Every floating-point initializer of the model has one note of these kinds, with
/// its name as the subject and the reason as the text.
namespace lists {
inline constexpr char kTrained[] = "trained", kFrozen[] = "frozen", kBuffer[] = "buffer", kConstant[] = "constant";
inline constexpr std::string_view kAll[] = {kTrained, kFrozen, kBuffer, kConstant};

inline bool isList(std::string_view kind) {
  return std::find(std::begin(kAll), std::end(kAll), kind) != std::end(kAll);
}
} // namespace lists

/// Kind of the note on a fact that neither the model's file nor the recipe states.
inline constexpr char kUnsaidNote[] = "unsaid";

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_INITIALIZERLISTS_H
