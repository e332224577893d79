//===- Phase.cpp - the names of phases ------------------------------------===//
#include "passes/Phase.h"

#include "llvm/ADT/STLExtras.h"

namespace tcc {

static constexpr std::pair<Phase, llvm::StringLiteral> kPhases[] = {
    {Phase::Import, "import"},
    {Phase::Fold, "fold"},
    {Phase::AddAdapters, "adapters"},
    {Phase::SplitPhases, "split"},
    {Phase::AttachLoss, "loss"},
    {Phase::FuseAttention, "attention"},
    {Phase::Autocast, "autocast"},
    {Phase::FindLoops, "loops"},
    {Phase::Differentiate, "differentiate"},
    {Phase::WidenProducts, "widen"},
    {Phase::BuildUpdate, "update"},
    {Phase::MergeParts, "merge"},
    {Phase::Distribute, "distribute"},
    {Phase::Decompose, "decompose"},
    {Phase::Kernels, "kernels"},
    {Phase::Order, "order"},
    {Phase::Memory, "memory"},
};

llvm::StringRef nameOf(Phase phase) {
  return llvm::find_if(kPhases, [&](const auto &entry) { return entry.first == phase; })->second;
}

std::optional<Phase> findPhase(llvm::StringRef name) {
  for (const auto &[phase, known] : kPhases)
    if (known == name)
      return phase;
  return std::nullopt;
}

} // namespace tcc
