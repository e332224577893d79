// RUN: tcc-opt %s --widen-products | FileCheck %s

// Operands are widened, which is exact; the sum is rounded once.
// CHECK-LABEL: func.func @forward
// CHECK-DAG: %[[A:.*]] = train.cast %arg0 : tensor<1x8x4xf16> -> tensor<1x8x4xf32>
// CHECK-DAG: %[[B:.*]] = train.cast %arg1 : tensor<1x4x2xf16> -> tensor<1x4x2xf32>
// CHECK: %[[C:.*]] = train.matmul %[[A]], %[[B]] : (tensor<1x8x4xf32>, tensor<1x4x2xf32>) -> tensor<1x8x2xf32>
// CHECK: %[[D:.*]] = train.cast %[[C]] : tensor<1x8x2xf32> -> tensor<1x8x2xf16>
// CHECK: train.tanh %[[D]] : tensor<1x8x2xf16>
func.func @forward(%a: tensor<1x8x4xf16>, %b: tensor<1x4x2xf16>) -> tensor<1x8x2xf16> {
  %c = train.matmul %a, %b : (tensor<1x8x4xf16>, tensor<1x4x2xf16>) -> tensor<1x8x2xf16>
  %d = train.tanh %c : tensor<1x8x2xf16>
  return %d : tensor<1x8x2xf16>
}

// A weight gradient keeps its sums in f32; products of f32, and the product of bf16, stay.
// CHECK-LABEL: func.func @backward
// CHECK-NOT: -> tensor<1x4x2xf16>
// CHECK: train.matmul {{.*}} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
// CHECK-NEXT: train.matmul %arg2, %arg2
// CHECK-NEXT: train.matmul %arg3, %arg3
// CHECK-NEXT: return
func.func @backward(%a: tensor<1x8x4xf16>, %g: tensor<1x8x2xf16>, %f: tensor<1x4x4xf32>, %h: tensor<1x4x4xbf16>)
    -> (tensor<1x4x2xf32>, tensor<1x4x4xf32>, tensor<1x4x4xbf16>) {
  %0 = train.matmul %a, %g {transA = true} : (tensor<1x8x4xf16>, tensor<1x8x2xf16>) -> tensor<1x4x2xf32>
  %1 = train.matmul %f, %f : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %2 = train.matmul %h, %h : (tensor<1x4x4xbf16>, tensor<1x4x4xbf16>) -> tensor<1x4x4xbf16>
  return %0, %1, %2 : tensor<1x4x2xf32>, tensor<1x4x4xf32>, tensor<1x4x4xbf16>
}
