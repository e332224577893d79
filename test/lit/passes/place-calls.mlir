// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fold-strides,place-calls))" | FileCheck %s

// Queries, keys and values are columns of one tensor, and the output is written in the next product's layout: rows are 72
// and 24 elements apart. The region is the call; it replaces what select-kernels said for dense tensors.
// CHECK-LABEL: func.func @slices
// CHECK: train.fused(%arg0) {
// CHECK-SAME: attention { dtype: BF16 batch: 2 heads: 3 key_heads: 3 queries: 16 keys: 16 depth: 8 width: 8 scale: 0.5
// CHECK-SAME: tensors { strides: 1152 strides: 8 strides: 72 strides: 1 }
// CHECK-SAME: tensors { offset: 24 strides: 1152 strides: 8 strides: 72 strides: 1 }
// CHECK-SAME: tensors { offset: 48 strides: 1152 strides: 8 strides: 72 strides: 1 }
// CHECK-SAME: tensors { operand: 1 strides: 384 strides: 8 strides: 24 strides: 1 }
// CHECK-SAME: tensors { operand: 2 strides: 48 strides: 16 strides: 1 strides: 1 }
// CHECK-SAME: train.scratch
// CHECK: train.attention_call
// CHECK-NOT: train.call
// CHECK: train.yield
func.func @slices(%x: tensor<2x16x72xbf16>) -> (tensor<2x16x24xbf16>, tensor<2x3x16x1xf32>) attributes {train.entry = "step"} {
  %q0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<2x16x72xbf16> -> tensor<2x16x24xbf16>
  %k0 = train.slice %x starts [0, 0, 24] steps [1, 1, 1] : tensor<2x16x72xbf16> -> tensor<2x16x24xbf16>
  %v0 = train.slice %x starts [0, 0, 48] steps [1, 1, 1] : tensor<2x16x72xbf16> -> tensor<2x16x24xbf16>
  %q1 = train.reshape %q0 : tensor<2x16x24xbf16> -> tensor<2x16x3x8xbf16>
  %k1 = train.reshape %k0 : tensor<2x16x24xbf16> -> tensor<2x16x3x8xbf16>
  %v1 = train.reshape %v0 : tensor<2x16x24xbf16> -> tensor<2x16x3x8xbf16>
  %q = train.transpose %q1 [0, 2, 1, 3] : tensor<2x16x3x8xbf16> -> tensor<2x3x16x8xbf16>
  %k = train.transpose %k1 [0, 2, 1, 3] : tensor<2x16x3x8xbf16> -> tensor<2x3x16x8xbf16>
  %v = train.transpose %v1 [0, 2, 1, 3] : tensor<2x16x3x8xbf16> -> tensor<2x3x16x8xbf16>
  %o, %l = train.attention_call %q, %k, %v {scale = 0.5} : (tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>) -> (tensor<2x3x16x8xbf16>, tensor<2x3x16x1xf32>)
  %y = train.transpose %o [0, 2, 1, 3] : tensor<2x3x16x8xbf16> -> tensor<2x16x3x8xbf16>
  %z = train.reshape %y : tensor<2x16x3x8xbf16> -> tensor<2x16x24xbf16>
  return %z, %l : tensor<2x16x24xbf16>, tensor<2x3x16x1xf32>
}

// Dense tensors need no region: the op is the call.
// CHECK-LABEL: func.func @dense
// CHECK: train.attention_call {{.*}}train.call = #train.call<"attention { dtype: F16{{.*}} causal: true
// CHECK-SAME: tensors { operand: 1 strides:
func.func @dense(%q: tensor<2x4x16x8xf16>, %k: tensor<2x2x16x8xf16>, %v: tensor<2x2x16x8xf16>) -> tensor<2x4x16x8xf16> attributes {train.entry = "step"} {
  %o, %l = train.attention_call %q, %k, %v {scale = 0.5, causal = true} : (tensor<2x4x16x8xf16>, tensor<2x2x16x8xf16>, tensor<2x2x16x8xf16>) -> (tensor<2x4x16x8xf16>, tensor<2x4x16x1xf32>)
  return %o : tensor<2x4x16x8xf16>
}
