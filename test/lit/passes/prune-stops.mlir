// RUN: tcc-opt %s --prune-stops --mlir-print-debuginfo | FileCheck %s

// A stop that no trainable parameter reaches has no effect and is not listed; one that a parameter reaches is, also behind another.
// CHECK: train.notes = [{kind = "stop_gradient", subject = "target", text = "aten.detach"}, {kind = "stop_gradient", subject = "again", text = "tcc::StopGradient"}]
train.variable @w : tensor<4xf32> {role = "parameter"}
train.variable @frozen : tensor<4xf32> {role = "frozen"}

// CHECK-LABEL: func.func @forward
// CHECK-COUNT-1: train.stop_gradient
// CHECK-NOT: train.stop_gradient
// CHECK: return
func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = train.read @w : tensor<4xf32>
  %a = train.stop_gradient %x {source = "aten.detach"} : tensor<4xf32> loc("mask")
  %b = train.stop_gradient %w {source = "aten.detach"} : tensor<4xf32> loc("target")
  %c = train.add %a, %b : tensor<4xf32>
  return %c : tensor<4xf32>
}

// CHECK-LABEL: func.func @loss
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>
// CHECK-DAG: %[[W:.*]] = train.read @w
// CHECK-DAG: %[[F:.*]] = train.read @frozen
// CHECK: %[[T:.*]] = train.stop_gradient %[[W]] {source = "aten.detach"}
// CHECK: %[[E:.*]] = train.exp %[[T]]
// CHECK: %[[A:.*]] = train.add %[[X]], %[[F]]
// CHECK: %[[S:.*]] = train.add %[[A]], %[[E]]
// CHECK: return %[[S]]
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = train.read @w : tensor<4xf32>
  %f = train.read @frozen : tensor<4xf32>
  %0 = train.stop_gradient %x {source = "aten.detach"} : tensor<4xf32> loc("mask")
  %1 = train.stop_gradient %f {source = "aten.detach"} : tensor<4xf32> loc("scale")
  %2 = train.stop_gradient %w {source = "aten.detach"} : tensor<4xf32> loc("target")
  %3 = train.exp %2 : tensor<4xf32>
  %4 = train.stop_gradient %3 {source = "tcc::StopGradient"} : tensor<4xf32> loc("again")
  %5 = train.add %0, %1 : tensor<4xf32>
  %6 = train.add %5, %4 : tensor<4xf32>
  return %6 : tensor<4xf32>
}
