// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(call-attention))" --split-input-file | FileCheck %s --check-prefixes=CHECK,FORWARD
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(call-attention{gradients=true}))" --split-input-file | FileCheck %s --check-prefixes=CHECK,BOTH
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_100},func.func(call-attention{gradients=true}))" --split-input-file | FileCheck %s --check-prefix=WITHOUT

// The library keeps logsumexp alone; the gradient reads it, whoever computes that. sm_100 has no gradient, so nothing is a
// call there.
// CHECK-LABEL: func.func @plain
// CHECK: %[[O:.*]], %[[L:.*]] = train.attention_call %arg0, %arg1, %arg2 {causal = true, scale = 2.500000e-01 : f64}
// FORWARD: train.attention_grad %arg0, %arg1, %arg2, %[[O]], %[[L]], %arg3 {
// FORWARD-SAME: array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1>
// BOTH: train.attention_grad_call %arg0, %arg1, %arg2, %[[O]], %[[L]], %arg3 {causal = true, scale = 2.500000e-01 : f64}
// WITHOUT-LABEL: func.func @plain
// WITHOUT-NOT: attention_call
// WITHOUT-NOT: attention_grad_call
func.func @plain(%q: tensor<1x2x32x24xbf16>, %k: tensor<1x2x32x24xbf16>, %v: tensor<1x2x32x24xbf16>, %g: tensor<1x2x32x24xbf16>)
    -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>) attributes {train.entry = "step"} {
  %o, %l, %r = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, causal = true, scale = 0.25} : (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>) -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, causal = true, scale = 0.25} : (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x24xbf16>) -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>)
  return %o, %dq, %dk, %dv : tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>
}

// -----

// Masks, dropout, soft caps, offsets of the diagonal, other types and other sizes of heads are no calls.
// CHECK-LABEL: func.func @others
// CHECK-NOT: attention_call
// WITHOUT-LABEL: func.func @others
func.func @others(%q: tensor<1x2x32x16xbf16>, %k: tensor<1x2x32x16xbf16>, %v: tensor<1x2x32x16xbf16>, %m: tensor<1x1x1x32xi1>, %b: tensor<1x1x32x32xf32>,
                  %w: tensor<1x2x32x16xf32>, %x: tensor<1x2x32x12xbf16>, %c: tensor<1x2x32x16xf16>)
    -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xf32>, tensor<1x2x32x12xbf16>, tensor<1x2x32x1xf32>) attributes {train.entry = "step"} {
  %o0, %l0, %r0 = train.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 0>, scale = 0.25} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x1x1x32xi1>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o1, %l1, %r1 = train.attention %q, %k, %v, %b {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, scale = 0.25} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x1x32x32xf32>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o2, %l2, %r2 = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25, softcap = 5.0} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o3, %l3, %r3 = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25, causal = true, causalOffset = 3} : (tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>) -> (tensor<1x2x32x16xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o4, %l4, %r4 = train.attention %w, %w, %w {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25} : (tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>) -> (tensor<1x2x32x16xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o5, %l5, %r5 = train.attention %x, %x, %x {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25} : (tensor<1x2x32x12xbf16>, tensor<1x2x32x12xbf16>, tensor<1x2x32x12xbf16>) -> (tensor<1x2x32x12xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %o6, %l6, %r6 = train.attention %c, %c, %c {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25} : (tensor<1x2x32x16xf16>, tensor<1x2x32x16xf16>, tensor<1x2x32x16xf16>) -> (tensor<1x2x32x16xf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  return %o0, %o1, %o2, %o3, %o4, %o5, %r6 : tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xbf16>, tensor<1x2x32x16xf32>, tensor<1x2x32x12xbf16>, tensor<1x2x32x1xf32>
}
