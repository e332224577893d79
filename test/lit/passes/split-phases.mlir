// RUN: tcc-opt %s --split-input-file --split-phases --verify-diagnostics | FileCheck %s

// A copy for each phase: its own recipe, other phases' parameters frozen, evaluation and prediction in the first.
// CHECK: module attributes {train.entries = ["train", "predict"], train.recipe = {phases = [
// CHECK: module @d attributes {train.entries = ["train", "predict"], train.recipe = {{{.*}}phase = "d", phase_parameters = ["d.*"]
// CHECK: train.variable @d.w : tensor<4xf32> {role = "parameter", train.of_phase}
// CHECK: train.variable @g.w : tensor<4xf32> {role = "frozen", train.of_phase}
// CHECK: train.variable @rest : tensor<4xf32> {role = "frozen"}
// CHECK: func.func @forward
// CHECK: module @g attributes {train.entries = ["train"], train.recipe = {{{.*}}phase = "g"
// CHECK: train.variable @d.w : tensor<4xf32> {role = "frozen", train.of_phase}
// CHECK: train.variable @g.w : tensor<4xf32> {role = "parameter", train.of_phase}
// CHECK: func.func @forward
module attributes {train.entries = ["train", "predict"],
                   train.recipe = {phases = [{phase = "d", phase_parameters = ["d.*"]}, {phase = "g", phase_parameters = ["g.*"]}]}} {
  train.variable @d.w : tensor<4xf32> {role = "parameter"}
  train.variable @g.w : tensor<4xf32> {role = "parameter"}
  train.variable @rest : tensor<4xf32> {role = "parameter"}
  func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// Stages also record which of them train a parameter.
// CHECK: module @stage1
// CHECK: train.variable @a : tensor<4xf32> {role = "parameter", train.of_phase, train.stages = 3 : i64}
// CHECK: train.variable @b : tensor<4xf32> {role = "frozen", train.of_phase, train.stages = 2 : i64}
// CHECK: module @stage2
// CHECK: train.variable @b : tensor<4xf32> {role = "parameter", train.of_phase, train.stages = 2 : i64}
module attributes {train.recipe = {stages = [{trainable = ["a"], until = 5 : i64}, {trainable = ["*"]}]}} {
  train.variable @a : tensor<4xf32> {role = "parameter"}
  train.variable @b : tensor<4xf32> {role = "parameter"}
}

// -----

// expected-error @below {{recipe.toml:7:1: phase.parameters: `c*` matches no parameter; there is a}}
module attributes {train.recipe = {phases = [{phase = "d", phase_parameters = ["c*"], where = {parameters = "recipe.toml:7:1"}}]}} {
  train.variable @a : tensor<4xf32> {role = "parameter"}
}
