//===- ModelNotes.h - notes in the model that a plan holds ------*- C++ -*-===//
#ifndef TCC_RUNTIME_PLAN_MODELNOTES_H
#define TCC_RUNTIME_PLAN_MODELNOTES_H

namespace tcc::plan {

/// Key of the note (metadata_props) at a tensor that holds a variable's value and is no initializer of the outermost graph:
/// the variable's name. The export removes it.
constexpr const char *kWeightNote = "tcc.weight";

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_MODELNOTES_H
