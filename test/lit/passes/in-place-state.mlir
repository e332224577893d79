// RUN: tcc-opt %s --materialize-buffers | FileCheck %s

// A scatter updates its operand in place, so a new value of state can be made in the state's memory only by a scatter whose
// operand is prepared there, and only if no op reads the old value any more.
train.variable @t : tensor<9x4xf32> {role = "parameter"}
train.variable @sum : tensor<9x4xf32> {role = "accumulator"}

// State that is only written first holds the zeros.
// CHECK-LABEL: func.func @written(
// CHECK: %[[ZERO:.*]] = train.fill 0.000000e+00
// CHECK: %[[NEW:.*]] = train.fused(%[[ZERO]],
// CHECK: return %[[NEW]]
func.func @written(%i: tensor<3xi64> {train.name = "i", train.sample_axis = 0 : i64}, %u: tensor<3x4xf32> {train.name = "u", train.sample_axis = 0 : i64})
    -> (tensor<9x4xf32> {train.variable = "sum"}) attributes {train.entry = "written"} {
  %zero = train.constant dense<0.0> : tensor<9x4xf32>
  %g = train.fused(%zero, %i, %u) : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>, %j: tensor<3xi64>, %v: tensor<3x4xf32>):
    %r = train.scatter_add %z, %j, %v axis = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  return %g : tensor<9x4xf32>
}

// CHECK-LABEL: func.func @read(
// CHECK-SAME: %[[T:[^ ]*]]: tensor<9x4xf32> {train.variable = "t"}
// CHECK: %[[TWICE:.*]] = train.fused(%[[T]])
// CHECK: %[[NEW:.*]] = train.fused(%[[TWICE]],
// CHECK: %[[COPY:.*]] = train.copy %[[NEW]]
// CHECK: return %[[COPY]]
func.func @read(%i: tensor<3xi64> {train.name = "i", train.sample_axis = 0 : i64}, %u: tensor<3x4xf32> {train.name = "u", train.sample_axis = 0 : i64},
                %t: tensor<9x4xf32> {train.variable = "t"}) -> (tensor<9x4xf32> {train.variable = "t"}) attributes {train.entry = "read"} {
  %d = train.fused(%t) : (tensor<9x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>):
    %r = train.add %z, %z : tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  %g = train.fused(%d, %i, %u) : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>, %j: tensor<3xi64>, %v: tensor<3x4xf32>):
    %r = train.scatter_add %z, %j, %v axis = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  return %g : tensor<9x4xf32>
}

// An update in the state's own place needs no copy.
// CHECK-LABEL: func.func @onto(
// CHECK-SAME: %[[S:[^ ]*]]: tensor<9x4xf32> {train.variable = "sum"}
// CHECK-NEXT: %[[NEW:.*]] = train.fused(%[[S]],
// CHECK: return %[[NEW]]
func.func @onto(%i: tensor<3xi64> {train.name = "i", train.sample_axis = 0 : i64}, %u: tensor<3x4xf32> {train.name = "u", train.sample_axis = 0 : i64},
                %s: tensor<9x4xf32> {train.variable = "sum"}) -> (tensor<9x4xf32> {train.variable = "sum"}) attributes {train.entry = "onto"} {
  %g = train.fused(%s, %i, %u) : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32> {
  ^bb0(%z: tensor<9x4xf32>, %j: tensor<3xi64>, %v: tensor<3x4xf32>):
    %r = train.scatter_add %z, %j, %v axis = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
    train.yield %r : tensor<9x4xf32>
  }
  return %g : tensor<9x4xf32>
}
