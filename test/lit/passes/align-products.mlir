// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(align-products),cse)" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(align-products{row-bytes=4}))" | FileCheck %s --check-prefix=WORDS

// Rows of 1003 classes become rows of 1008. The weight is padded by its cast. Reductions ignore elements behind a row's
// end, and the gradient is zero there, so that no copy remains.
// CHECK-LABEL: func.func @logits
// CHECK-SAME: %[[W:.*]]: tensor<1x1003x512xf32>, %[[X:.*]]: tensor<1x512x512xbf16>
// CHECK: %[[PADDED:.*]] = train.pad %[[W]] low [0, 0, 0] steps [1, 1, 1] value 0.000000e+00 : tensor<1x1003x512xf32> -> tensor<1x1008x512xf32>
// CHECK: %[[WIDE:.*]] = train.cast %[[PADDED]] : tensor<1x1008x512xf32> -> tensor<1x1008x512xbf16>
// CHECK: %[[LOGITS:.*]] = train.matmul %[[X]], %[[WIDE]] {transB = true} {{.*}} -> tensor<1x512x1008xbf16>
// CHECK: %[[CAST:.*]] = train.cast %[[LOGITS]] : tensor<1x512x1008xbf16> -> tensor<1x512x1008xf32>
// CHECK: %[[INSIDE:.*]] = train.compare lt {{.*}} : tensor<1x512x1008xi32>
// CHECK: train.select %[[INSIDE]], %[[CAST]]
// CHECK: train.reduce max
// CHECK: train.exp {{.*}} : tensor<1x512x1008xf32>
// CHECK: %[[GRAD:.*]] = train.select %[[INSIDE]], {{.*}} : tensor<1x512x1008xi1>, tensor<1x512x1008xbf16>
// CHECK: train.matmul %[[GRAD]], %[[WIDE]]
// CHECK: %[[TALL:.*]] = train.matmul %[[GRAD]], %[[X]] {transA = true} {{.*}} -> tensor<1x1008x512xf32>
// CHECK: train.slice %[[TALL]] {{.*}} -> tensor<1x1003x512xf32>
// WORDS-LABEL: func.func @logits
// WORDS: train.pad {{.*}} : tensor<1x1003x512xf32> -> tensor<1x1004x512xf32>
func.func @logits(%w: tensor<1x1003x512xf32>, %x: tensor<1x512x512xbf16>) -> (tensor<1x512x1xf32>, tensor<1x512x512xbf16>, tensor<1x1003x512xf32>) attributes {train.entry = "step"} {
  %narrow = train.cast %w : tensor<1x1003x512xf32> -> tensor<1x1003x512xbf16>
  %logits = train.matmul %x, %narrow {transB = true} : (tensor<1x512x512xbf16>, tensor<1x1003x512xbf16>) -> tensor<1x512x1003xbf16>
  %cast = train.cast %logits : tensor<1x512x1003xbf16> -> tensor<1x512x1003xf32>
  %max = train.reduce max %cast [2] : tensor<1x512x1003xf32> -> tensor<1x512x1xf32>
  %bases = train.broadcast %max : tensor<1x512x1xf32> -> tensor<1x512x1003xf32>
  %above = train.sub %cast, %bases : tensor<1x512x1003xf32>
  %weights = train.exp %above : tensor<1x512x1003xf32>
  %grad = train.cast %weights : tensor<1x512x1003xf32> -> tensor<1x512x1003xbf16>
  %dx = train.matmul %grad, %narrow : (tensor<1x512x1003xbf16>, tensor<1x1003x512xbf16>) -> tensor<1x512x512xbf16>
  %dw = train.matmul %grad, %x {transA = true} : (tensor<1x512x1003xbf16>, tensor<1x512x512xbf16>) -> tensor<1x1003x512xf32>
  return %max, %dx, %dw : tensor<1x512x1xf32>, tensor<1x512x512xbf16>, tensor<1x1003x512xf32>
}

// Too small for a copy to pay; or in f32, whose products use no tensor cores.
// CHECK-LABEL: func.func @others
// CHECK-NOT: train.pad
func.func @others(%x: tensor<1x8x16xbf16>, %w: tensor<1x65x16xbf16>, %y: tensor<1x512x512xf32>, %v: tensor<1x1003x512xf32>)
    -> (tensor<1x8x65xbf16>, tensor<1x512x1003xf32>) attributes {train.entry = "predict"} {
  %a = train.matmul %x, %w {transB = true} : (tensor<1x8x16xbf16>, tensor<1x65x16xbf16>) -> tensor<1x8x65xbf16>
  %b = train.matmul %y, %v {transB = true} : (tensor<1x512x512xf32>, tensor<1x1003x512xf32>) -> tensor<1x512x1003xf32>
  return %a, %b : tensor<1x8x65xbf16>, tensor<1x512x1003xf32>
}

// Integers have no minus infinity with which the padding could be ignored by a maximum: the reduction gets a slice.
// CHECK-LABEL: func.func @integers
// CHECK: %[[COUNTED:.*]] = train.cast {{.*}} -> tensor<1x512x1008xi32>
// CHECK: %[[CUT:.*]] = train.slice %[[COUNTED]] {{.*}} -> tensor<1x512x1003xi32>
// CHECK: train.reduce max %[[CUT]] [2]
func.func @integers(%x: tensor<1x512x512xbf16>, %w: tensor<1x1003x512xbf16>) -> tensor<1x512x1xi32> attributes {train.entry = "predict"} {
  %y = train.matmul %x, %w {transB = true} : (tensor<1x512x512xbf16>, tensor<1x1003x512xbf16>) -> tensor<1x512x1003xbf16>
  %counted = train.cast %y : tensor<1x512x1003xbf16> -> tensor<1x512x1003xi32>
  %max = train.reduce max %counted [2] : tensor<1x512x1003xi32> -> tensor<1x512x1xi32>
  return %max : tensor<1x512x1xi32>
}
