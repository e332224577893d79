//===- TrainOps.td - all families ------------------------------------------===//
include "compiler/dialect/Elementwise.td"
include "compiler/dialect/Shape.td"
include "compiler/dialect/Reduction.td"
include "compiler/dialect/Indexing.td"
include "compiler/dialect/Contraction.td"
include "compiler/dialect/State.td"
