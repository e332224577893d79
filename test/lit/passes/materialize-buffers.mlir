// RUN: tcc-opt %s --materialize-buffers | FileCheck %s

// A constant with different elements becomes state, named by its content: equal constants become one.
// CHECK: train.variable @"constant/[[RAMP:[0-9a-f]+]]" : tensor<4xf32> {role = "constant", value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>}
// CHECK-NOT: role = "constant"
train.variable @w : tensor<4xf32> {role = "parameter"}
train.variable @t : tensor<9x4xf32> {role = "parameter"}

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[X:[^ ]*]]: tensor<4xf32> {train.name = "x"
// CHECK-SAME: %[[I:[^ ]*]]: tensor<3xi64>
// CHECK-SAME: %[[W:[^ ]*]]: tensor<4xf32> {train.variable = "w"}
// CHECK-SAME: %[[T:[^ ]*]]: tensor<9x4xf32> {train.variable = "t"}
// CHECK-SAME: %[[R:[^ ]*]]: tensor<4xf32> {train.variable = "constant/[[RAMP]]"}
func.func @step(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64}, %i: tensor<3xi64> {train.name = "i", train.sample_axis = 0 : i64},
                %u: tensor<3x4xf32> {train.name = "u", train.sample_axis = 0 : i64}, %w: tensor<4xf32> {train.variable = "w"}, %t: tensor<9x4xf32> {train.variable = "t"})
    -> (tensor<4xf32> {train.name = "same"}, tensor<9x4xf32> {train.name = "table"}, tensor<9x4xf32> {train.name = "onto"}, tensor<4xf32> {train.name = "sum"},
        tensor<4xf32> {train.name = "again"}, tensor<4xf32> {train.variable = "w"}) attributes {train.entry = "step"} {
  %zero = train.constant dense<0.0> : tensor<9x4xf32>
  %ramp = train.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %ramp2 = train.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>

  // The zeros to which a scatter adds are written for it.
  // CHECK: %[[ZERO:.*]] = train.fill 0.000000e+00 : tensor<9x4xf32>
  // CHECK: %[[TABLE:.*]] = train.fused(%[[ZERO]], %[[I]],
  %g = train.fused(%zero, %i, %u) : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>, %j: tensor<3xi64>, %v: tensor<3x4xf32>):
    %r = train.scatter_add %z, %j, %v axis = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  // State that is kept is copied before a scatter adds to it.
  // CHECK: %[[COPY:.*]] = train.copy %[[T]]
  // CHECK: %[[ONTO:.*]] = train.fused(%[[COPY]], %[[I]],
  %h = train.fused(%t, %i, %u) : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>, %j: tensor<3xi64>, %v: tensor<3x4xf32>):
    %r = train.scatter_add %z, %j, %v axis = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  // CHECK: %[[SUM:.*]] = train.fused(%[[X]], %[[R]], %[[R]])
  %s = train.fused(%x, %ramp, %ramp2) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>, %o: tensor<4xf32>):
    %r = train.add %p, %q : tensor<4xf32>
    %k = train.add %r, %o : tensor<4xf32>
    train.yield %k : tensor<4xf32>
  }
  // An input that is returned, and a value returned twice, get buffers of their own; unchanged state needs none.
  // CHECK-DAG: %[[SAME:.*]] = train.copy %[[X]]
  // CHECK-DAG: %[[AGAIN:.*]] = train.copy %[[SUM]]
  // CHECK: return %[[SAME]], %[[TABLE]], %[[ONTO]], %[[SUM]], %[[AGAIN]], %[[W]]
  return %x, %g, %h, %s, %s, %w : tensor<4xf32>, tensor<9x4xf32>, tensor<9x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
