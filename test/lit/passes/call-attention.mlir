// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},call-attention)" --split-input-file | FileCheck %s --check-prefixes=CHECK,FORWARD
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},call-attention{calls=both})" --split-input-file | FileCheck %s --check-prefixes=CHECK,BOTH
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_100},call-attention{calls=both})" --split-input-file | FileCheck %s --check-prefix=WITHOUT
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},call-attention{calls=auto plain=both plain-why={a card said so}})" --split-input-file | FileCheck %s --check-prefix=AUTO
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_80},call-attention{calls=auto plain-why={not measured}})" --split-input-file | FileCheck %s --check-prefix=UNMEASURED --implicit-check-not=train.attention_call

// The library keeps only logsumexp; the gradient reads it, whether a call or a kernel (as on sm_100) computes that.
// CHECK-LABEL: func.func @plain
// CHECK: %[[O:.*]], %[[L:.*]] = train.attention_call %arg0, %arg1, %arg2 {causal = true, scale = 2.500000e-01 : f64}
// FORWARD: train.attention_grad %arg0, %arg1, %arg2, %[[O]], %[[L]], %arg3 {
// FORWARD-SAME: array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1>
// BOTH: train.attention_grad_call %arg0, %arg1, %arg2, %[[O]], %[[L]], %arg3 {causal = true, scale = 2.500000e-01 : f64}
// By default: where a card has shown that it is faster. The module says why, and that it may be refused.
// AUTO: module attributes {train.calls_by_default
// AUTO-SAME: attention called
// AUTO-SAME: the default for cuda:sm_90: a card said so
// AUTO: train.attention_call
// AUTO: train.attention_grad_call
// UNMEASURED: attention kept
// UNMEASURED-SAME: the default for cuda:sm_80: not measured
// UNMEASURED: func.func @plain
// WITHOUT-LABEL: func.func @plain
// WITHOUT: train.attention_call
// WITHOUT: train.attention_grad %arg0
func.func @plain(%q: tensor<1x2x32x24xbf16>, %k: tensor<1x2x32x24xbf16>, %v: tensor<1x2x32x24xbf16>, %g: tensor<1x2x32x24xbf16>)
    -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>) attributes {train.entry = "step"} {
  %o, %l, %r = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, causal = true, scale = 0.25} : (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>) -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>)
  %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, causal = true, scale = 0.25} : (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x1xf32>, tensor<1x2x32x1xf32>, tensor<1x2x32x24xbf16>) -> (tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>)
  return %o, %dq, %dk, %dv : tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>, tensor<1x2x32x24xbf16>
}

// -----

// These are no calls: masks or offsets of the diagonal that may exclude a row, dropout, soft caps, other types and sizes of heads.
// CHECK-LABEL: func.func @others
// CHECK-NOT: train.attention_call
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

// -----

// A bias gets the operands' type; the call sums its gradient over samples, and the remaining sums stay sums. For a bias
// shared by all queries, that is the sum over queries. Without the library's gradient a kernel reads the same bias.
// CHECK-LABEL: func.func @biased
// CHECK: %[[WIDE:.*]] = train.broadcast %arg4
// CHECK: %[[BIAS:.*]] = train.cast %[[WIDE]] : tensor<1x4x20x20xf32> -> tensor<1x4x20x20xbf16>
// CHECK: %[[O:.*]], %[[L:.*]] = train.attention_call %arg0, %arg1, %arg2, %[[BIAS]] {{.*}}
// FORWARD: %queryGrad, %keyGrad, %valueGrad, %biasGrad = train.attention_grad %arg0, %arg1, %arg2, %[[BIAS]], %[[O]], %[[L]], %arg3 {
// FORWARD-SAME: array<i32: 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1>
// BOTH: %queryGrad, %keyGrad, %valueGrad, %biasGrad = train.attention_grad_call %arg0, %arg1, %arg2, %[[O]], %[[L]], %arg3, %[[BIAS]] {
// BOTH: %[[F:.*]] = train.cast %biasGrad : tensor<1x4x20x20xbf16> -> tensor<1x4x20x20xf32>
// BOTH: train.reduce sum %[[F]] [2] : tensor<1x4x20x20xf32> -> tensor<1x4x1x20xf32>
// AUTO: attention kept{{.*}}the default with a bias or mask for cuda:sm_90
// AUTO: func.func @biased
// AUTO: train.attention %
// AUTO: train.attention_grad %
func.func @biased(%q: tensor<2x4x20x16xbf16>, %k: tensor<2x2x20x16xbf16>, %v: tensor<2x2x20x16xbf16>, %g: tensor<2x4x20x16xbf16>, %b: tensor<1x4x1x20xf32>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x1x20xf32>) attributes {train.entry = "step"} {
  %o, %l, %r = train.attention %q, %k, %v, %b {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, scale = 0.25, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x1x20xf32>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>)
  %dq, %dk, %dv, %s = train.attention_grad %q, %k, %v, %b, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1>, scale = 0.25, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x1x20xf32>, tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>, tensor<2x4x20x16xbf16>) -> (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x4x20x20xf32>)
  %db = train.reduce sum %s [0, 2] : tensor<2x4x20x20xf32> -> tensor<1x4x1x20xf32>
  return %o, %dq, %dk, %dv, %db : tensor<2x4x20x16xbf16>, tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x1x20xf32>
}

// -----

// A mask becomes a bias that is very low where the mask excludes. If gradients of scores are read unsummed, a kernel makes them.
// CHECK-LABEL: func.func @masked
// CHECK: %[[LOW:.*]] = train.constant dense<-3.276800e+04>
// CHECK: %[[BIAS:.*]] = train.select %{{.*}}, %{{.*}}, %[[LOW]]
// CHECK: train.attention_call %arg0, %arg1, %arg2, %[[BIAS]] {{.*}}
// CHECK-LABEL: func.func @unsummed
// CHECK: train.attention_call
// CHECK: train.attention_grad %arg0
func.func @masked(%q: tensor<2x4x20x16xbf16>, %k: tensor<2x2x20x16xbf16>, %v: tensor<2x2x20x16xbf16>, %m: tensor<1x1x20x20xi1>) -> tensor<2x4x20x16xbf16> attributes {train.entry = "predict"} {
  %o, %l, %r = train.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 0>, scale = 0.25, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x1x20x20xi1>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>)
  return %o : tensor<2x4x20x16xbf16>
}
func.func @unsummed(%q: tensor<2x4x20x16xbf16>, %k: tensor<2x2x20x16xbf16>, %v: tensor<2x2x20x16xbf16>, %g: tensor<2x4x20x16xbf16>, %b: tensor<1x4x20x20xf32>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x4x20x20xf32>) attributes {train.entry = "step"} {
  %o, %l, %r = train.attention %q, %k, %v, %b {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, scale = 0.25, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x20x20xf32>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>)
  %dq, %dk, %dv, %s = train.attention_grad %q, %k, %v, %b, %o, %l, %r, %g {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1>, scale = 0.25, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<1x4x20x20xf32>, tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>, tensor<2x4x20x16xbf16>) -> (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x4x20x20xf32>)
  return %o, %dq, %dk, %dv, %s : tensor<2x4x20x16xbf16>, tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x4x20x20xf32>
}

// -----

// So does a shifted diagonal, since the library compares only that of a square.
// CHECK-LABEL: func.func @shifted
// CHECK: %[[SEEN:.*]] = train.compare le
// CHECK: %[[BIAS:.*]] = train.select
// CHECK: train.attention_call %arg0, %arg1, %arg2, %[[BIAS]] {scale = 2.500000e-01 : f64}
func.func @shifted(%q: tensor<2x4x20x16xbf16>, %k: tensor<2x2x20x16xbf16>, %v: tensor<2x2x20x16xbf16>) -> tensor<2x4x20x16xbf16> attributes {train.entry = "predict"} {
  %o, %l, %r = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.25, causal = true, causalOffset = 3, train.rows_keep_keys} : (tensor<2x4x20x16xbf16>, tensor<2x2x20x16xbf16>, tensor<2x2x20x16xbf16>) -> (tensor<2x4x20x16xbf16>, tensor<2x4x20x1xf32>, tensor<2x4x20x1xf32>)
  return %o : tensor<2x4x20x16xbf16>
}
