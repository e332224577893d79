//===- ModelNotes.h - notes in the model that a plan holds ------*- C++ -*-===//
#ifndef TCC_RUNTIME_PLAN_MODELNOTES_H
#define TCC_RUNTIME_PLAN_MODELNOTES_H

namespace tcc::plan {

/// Key of the note (metadata_props) on a tensor that holds a variable's value but is not an initializer of the main
/// graph; its value is the variable's name. The export removes the note.
constexpr const char *kWeightNote = "tcc.weight";

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_MODELNOTES_H
