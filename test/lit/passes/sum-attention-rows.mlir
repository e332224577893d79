// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(sum-attention-rows))" | FileCheck %s

// Kernels of warps read one number for each row: the sum of output times its gradient, in f32.
// CHECK-LABEL: func.func @tiles
// CHECK-DAG: %[[OUTPUT:.*]] = train.cast %arg3 : tensor<1x2x32x16xbf16> -> tensor<1x2x32x16xf32>
// CHECK-DAG: %[[GRAD:.*]] = train.cast %arg6 : tensor<1x2x32x16xbf16> -> tensor<1x2x32x16xf32>
// CHECK: %[[PRODUCT:.*]] = train.mul %[[OUTPUT]], %[[GRAD]]
// CHECK: %[[DELTA:.*]] = train.reduce sum %[[PRODUCT]] [3] : tensor<1x2x32x16xf32> -> tensor<1x2x32x1xf32>
// CHECK: train.attention_grad %arg0, %arg1, %arg2, %[[DELTA]], %arg4, %arg5, %arg6
// CHECK-SAME: array<i32: 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1>
func.func @tiles(%q: tensor<1x2x32x16xbf16>, %k: tensor<1x2x32x16xbf16>, %v: tensor<1x2x32x16xbf16>,
                 %o: tensor<1x2x32x16xbf16>, %l: tensor<1x2x32x1xf32>, %r: tensor<1x2x32x1xf32>,
                 %g: tensor<1x2x32x16xbf16>)
    -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>) {
  %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0>, scale = 0.25} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x16xbf16>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>)
  return %dq, %dk, %dv : tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>
}

// Rows of 7 features do not consist of whole words: a thread's kernel reads the output itself.
// CHECK-LABEL: func.func @narrow
// CHECK-NOT: train.reduce
// CHECK: train.attention_grad %arg0, %arg1, %arg2, %arg3
func.func @narrow(%q: tensor<1x2x32x7xbf16>, %k: tensor<1x2x32x7xbf16>, %v: tensor<1x2x32x7xbf16>,
                  %o: tensor<1x2x32x7xbf16>, %l: tensor<1x2x32x1xf32>, %r: tensor<1x2x32x1xf32>,
                  %g: tensor<1x2x32x7xbf16>)
    -> (tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>) {
  %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0>, scale = 0.25} : (tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x7xbf16>) -> (tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>)
  return %dq, %dk, %dv : tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>, tensor<1x2x32x7xbf16>
}

// Inside a region that reads its operands by strides, rows are summed in place; the output is then no operand.
// CHECK-LABEL: func.func @strided
// CHECK: %[[O:.*]] = train.transpose %arg3 [0, 2, 1, 3]
// CHECK: %[[OUTPUT:.*]] = train.cast %[[O]]
// CHECK: %[[G:.*]] = train.transpose %arg6 [0, 2, 1, 3]
// CHECK: %[[GRAD:.*]] = train.cast %[[G]]
// CHECK: %[[PRODUCT:.*]] = train.mul %[[OUTPUT]], %[[GRAD]]
// CHECK: %[[DELTA:.*]] = train.reduce sum %[[PRODUCT]] [3]
// CHECK: train.fused(%arg0, %arg1, %arg2, %arg4, %arg5, %arg6, %[[DELTA]])
// CHECK: ^bb0(%[[Q:.*]]: tensor<1x2x32x16xbf16>, %{{.*}}: tensor<1x2x32x16xbf16>, %{{.*}}: tensor<1x2x32x16xbf16>, %{{.*}}: tensor<1x2x32x1xf32>, %{{.*}}: tensor<1x2x32x1xf32>, %[[GROWS:.*]]: tensor<1x32x2x16xbf16>, %[[D:.*]]: tensor<1x2x32x1xf32>):
// CHECK: %[[GHEADS:.*]] = train.transpose %[[GROWS]] [0, 2, 1, 3]
// CHECK: train.attention_grad %[[Q]], %{{.*}}, %{{.*}}, %[[D]], %{{.*}}, %{{.*}}, %[[GHEADS]]
func.func @strided(%q: tensor<1x2x32x16xbf16>, %k: tensor<1x2x32x16xbf16>, %v: tensor<1x2x32x16xbf16>,
                   %o: tensor<1x32x2x16xbf16>, %l: tensor<1x2x32x1xf32>, %r: tensor<1x2x32x1xf32>,
                   %g: tensor<1x32x2x16xbf16>) -> tensor<1x2x32x16xbf16> {
  %dq = train.fused(%q, %k, %v, %o, %l, %r, %g) : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x32x2x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x32x2x16xbf16>) -> tensor<1x2x32x16xbf16> {
  ^bb0(%q1: tensor<1x2x32x16xbf16>, %k1: tensor<1x2x32x16xbf16>, %v1: tensor<1x2x32x16xbf16>, %o1: tensor<1x32x2x16xbf16>, %l1: tensor<1x2x32x1xf32>, %r1: tensor<1x2x32x1xf32>, %g1: tensor<1x32x2x16xbf16>):
    %oh = train.transpose %o1 [0, 2, 1, 3] : tensor<1x32x2x16xbf16> -> tensor<1x2x32x16xbf16>
    %gh = train.transpose %g1 [0, 2, 1, 3] : tensor<1x32x2x16xbf16> -> tensor<1x2x32x16xbf16>
    %a, %b, %c = train.attention_grad %q1, %k1, %v1, %oh, %l1, %r1, %gh {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0>, scale = 0.25} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x16xbf16>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>)
    train.yield %a : tensor<1x2x32x16xbf16>
  }
  return %dq : tensor<1x2x32x16xbf16>
}
