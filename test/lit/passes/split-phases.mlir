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

// -----

// The module of each shape is split; one that does not train has the first phase alone.
// CHECK: module {{.*}}train.recipe = {phases = [
// CHECK: module @"d@0" attributes {train.dims = {s = 4 : i64}, train.entries = ["train"], train.recipe = {{{.*}}phase = "d"
// CHECK: module @"g@0" attributes {train.dims = {s = 4 : i64}, train.entries = ["train"], train.recipe = {{{.*}}phase = "g"
// CHECK: module @"d@1" attributes {train.dims = {s = 1 : i64}, train.entries = ["predict"], train.recipe = {{{.*}}phase = "d"
// CHECK-NOT: module @"g@1"
module attributes {train.recipe = {phases = [{phase = "d", phase_parameters = ["a"]}, {phase = "g", phase_parameters = ["a"]}]}} {
  module @"@0" attributes {train.dims = {s = 4 : i64}, train.entries = ["train"]} {
    train.variable @a : tensor<4xf32> {role = "parameter"}
  }
  module @"@1" attributes {train.dims = {s = 1 : i64}, train.entries = ["predict"]} {
    train.variable @a : tensor<4xf32> {role = "parameter"}
  }
}
