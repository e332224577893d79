// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),weigh-calls)" --split-input-file | FileCheck %s

// The gradient's scratch is 1 GiB, and all else 4 MiB.
// CHECK: module attributes {train.calls_refused = "its library's scratch would raise the memory from 4.2{{.*}}MiB to 1.00{{.*}}GiB"
// CHECK: func.func @long
func.func @long(%q: tensor<2x4x8192x8xbf16> {train.name = "q"}, %l: tensor<2x4x8192x1xf32> {train.name = "l"}) -> (tensor<2x4x8192x8xbf16> {train.name = "y"}) attributes {train.entry = "step"} {
  %dq, %dk, %dv = train.attention_grad_call %q, %q, %q, %q, %l, %q {scale = 0.25} : (tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x1xf32>, tensor<2x4x8192x8xbf16>) -> (tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>)
  return %dq : tensor<2x4x8192x8xbf16>
}

// -----

// A quarter of the positions take a sixteenth of the scratch, which is no objection on any card.
// CHECK: module attributes {train.target
// CHECK: func.func @short
func.func @short(%q: tensor<2x4x2048x8xbf16> {train.name = "q"}, %l: tensor<2x4x2048x1xf32> {train.name = "l"}) -> (tensor<2x4x2048x8xbf16> {train.name = "y"}) attributes {train.entry = "step"} {
  %dq, %dk, %dv = train.attention_grad_call %q, %q, %q, %q, %l, %q {scale = 0.25} : (tensor<2x4x2048x8xbf16>, tensor<2x4x2048x8xbf16>, tensor<2x4x2048x8xbf16>, tensor<2x4x2048x8xbf16>, tensor<2x4x2048x1xf32>, tensor<2x4x2048x8xbf16>) -> (tensor<2x4x2048x8xbf16>, tensor<2x4x2048x8xbf16>, tensor<2x4x2048x8xbf16>)
  return %dq : tensor<2x4x2048x8xbf16>
}

// -----

// Another entry takes more than the gradient with its scratch: the memory stays as it is.
// CHECK: module attributes {train.target
// CHECK: func.func @gradient
func.func @gradient(%q: tensor<2x4x8192x8xbf16> {train.name = "q"}, %l: tensor<2x4x8192x1xf32> {train.name = "l"}) -> (tensor<2x4x8192x8xbf16> {train.name = "y"}) attributes {train.entry = "step"} {
  %dq, %dk, %dv = train.attention_grad_call %q, %q, %q, %q, %l, %q {scale = 0.25} : (tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x1xf32>, tensor<2x4x8192x8xbf16>) -> (tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>, tensor<2x4x8192x8xbf16>)
  return %dq : tensor<2x4x8192x8xbf16>
}
func.func @large(%x: tensor<1x1xf32> {train.name = "x"}) -> (tensor<32768x16384xf32> {train.name = "y"}) attributes {train.entry = "evaluate"} {
  %y = train.broadcast %x : tensor<1x1xf32> -> tensor<32768x16384xf32>
  return %y : tensor<32768x16384xf32>
}
