// RUN: tcc-opt %s --split-input-file --merge-phases | FileCheck %s

// Entries and the optimizers' state get their phase's name; a parameter that some phase trains is one; the recipe stays.
// CHECK: module attributes {
// CHECK-SAME: train.groups = [{name = "d: default"
// CHECK-SAME: {name = "g: default"
// CHECK-SAME: train.phases = [{groups = [{name = "default"{{.*}}scalars = ["lr"]}, {groups
// CHECK-SAME: train.recipe = {phases = []}
// CHECK-NOT: module
// CHECK: train.variable @d.w : tensor<4xf32> {group = 0 : i64, role = "parameter"}
// CHECK: train.variable @g.w : tensor<4xf32> {group = 1 : i64, role = "parameter"}
// CHECK: train.variable @"d.w/d/momentum" : tensor<4xf32>
// CHECK: func.func @step.d(%{{.*}}: tensor<4xf32> {train.variable = "d.w/d/momentum"})
// CHECK: train.variable @"g.w/g/momentum" : tensor<4xf32>
// CHECK: func.func @step.g(%{{.*}}: tensor<4xf32> {train.variable = "g.w/g/momentum"})
module attributes {train.recipe = {phases = []}} {
  module @d attributes {train.groups = [{name = "default"}], train.scalars = ["lr"], train.recipe = {phase = "d"}} {
    train.variable @d.w : tensor<4xf32> {role = "parameter", group = 0 : i64}
    train.variable @g.w : tensor<4xf32> {role = "frozen"}
    train.variable @"d.w/momentum" : tensor<4xf32> {role = "optimizer", fill = 0.0, group = 0 : i64}
    func.func @step(%m: tensor<4xf32> {train.variable = "d.w/momentum"}) attributes {train.entry = "step"} {
      return
    }
  }
  module @g attributes {train.groups = [{name = "default"}], train.scalars = ["lr"], train.recipe = {phase = "g"}} {
    train.variable @d.w : tensor<4xf32> {role = "frozen"}
    train.variable @g.w : tensor<4xf32> {role = "parameter", group = 0 : i64}
    train.variable @"g.w/momentum" : tensor<4xf32> {role = "optimizer", fill = 0.0, group = 0 : i64}
    func.func @step(%m: tensor<4xf32> {train.variable = "g.w/momentum"}) attributes {train.entry = "step"} {
      return
    }
  }
}

// -----

// A module without parts stays.
// CHECK: module {
// CHECK-NEXT: train.variable @w
module {
  train.variable @w : tensor<4xf32> {role = "parameter"}
}
