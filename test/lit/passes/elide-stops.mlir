// RUN: tcc-opt %s --elide-stops | FileCheck %s

// Stops are removed from every function, chains of them included.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>
// CHECK-NEXT: return %[[X]]
func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = train.stop_gradient %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @backward
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>
// CHECK-NEXT: %[[E:.*]] = train.exp %[[X]]
// CHECK-NEXT: return %[[E]]
func.func @backward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = train.stop_gradient %x {source = "aten.detach"} : tensor<4xf32>
  %1 = train.stop_gradient %0 : tensor<4xf32>
  %2 = train.exp %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
