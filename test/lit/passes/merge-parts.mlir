// RUN: tcc-opt %s --split-input-file --merge-parts --verify-diagnostics | FileCheck %s

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

// -----

// Shapes share all state; entries of further shapes end with their number. A program that reads state alone stays once.
// Constants that differ get names of their own.
// CHECK: module attributes {train.entries = ["train", "predict"], train.groups = [{name = "default"}], train.recipe = {}, train.scalars = ["lr"]}
// CHECK-NEXT: train.variable @w : tensor<4xf32> {group = 0 : i64, role = "parameter"}
// CHECK-NEXT: train.variable @c : tensor<1xf32> {init = dense<1.0{{.*}}role = "constant"}
// CHECK: func.func @accumulate_first({{.*}}) attributes {train.dims = {s = 4 : i64}, train.entry = "accumulate_first"}
// CHECK: func.func @update() attributes {train.entry = "update"}
// CHECK: train.variable @"c/@1/constant" : tensor<1xf32> {init = dense<2.0
// CHECK: func.func @"accumulate_first@1"(%{{.*}}: tensor<1xf32> {train.variable = "c/@1/constant"}) attributes {train.dims = {s = 8 : i64}, train.entry = "accumulate_first@1"}
// CHECK-NOT: update@1
// CHECK: func.func @predict() attributes {train.dims = {s = 1 : i64}, train.entry = "predict"}
module attributes {train.entries = ["train", "predict"], train.recipe = {}} {
  module @"@0" attributes {train.dims = {s = 4 : i64}, train.entries = ["train"], train.shape_numbers = {train = 0 : i64},
                           train.groups = [{name = "default"}], train.scalars = ["lr"], train.recipe = {}} {
    train.variable @w : tensor<4xf32> {role = "parameter", group = 0 : i64}
    train.variable @c : tensor<1xf32> {role = "constant", init = dense<1.0> : tensor<1xf32>}
    func.func @accumulate_first(%c: tensor<1xf32> {train.variable = "c"}) attributes {train.entry = "accumulate_first"} {
      return
    }
    func.func @update() attributes {train.entry = "update"} {
      return
    }
  }
  module @"@1" attributes {train.dims = {s = 8 : i64}, train.entries = ["train"], train.shape_numbers = {train = 1 : i64},
                           train.groups = [{name = "default"}], train.scalars = ["lr"], train.recipe = {}} {
    train.variable @w : tensor<4xf32> {role = "parameter", group = 0 : i64}
    train.variable @c : tensor<1xf32> {role = "constant", init = dense<2.0> : tensor<1xf32>}
    func.func @accumulate_first(%c: tensor<1xf32> {train.variable = "c"}) attributes {train.entry = "accumulate_first"} {
      return
    }
    func.func @update() attributes {train.entry = "update"} {
      return
    }
  }
  module @"@2" attributes {train.dims = {s = 1 : i64}, train.entries = ["predict"], train.shape_numbers = {predict = 0 : i64}, train.recipe = {}} {
    train.variable @w : tensor<4xf32> {role = "parameter"}
    func.func @predict() attributes {train.entry = "predict"} {
      return
    }
  }
}

// -----

module attributes {train.recipe = {}} {
  module @"@0" attributes {train.recipe = {}} {
    train.variable @w : tensor<4xf32> {role = "parameter"}
  }
  module @"@1" attributes {train.recipe = {}} {
    // expected-error @below {{'w' is 'tensor<5xf32>' for one shape and 'tensor<4xf32>' for another; compile a plan for each}}
    train.variable @w : tensor<5xf32> {role = "parameter"}
  }
}
