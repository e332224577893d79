// An op that a phase should have converted is named, with the pass that should have done it.
// RUN: not tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(verify-phase{phase=decompose}))" 2>&1 >/dev/null | FileCheck %s --check-prefix=DECOMPOSE
// RUN: not tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(verify-phase{phase=kernels}))" 2>&1 >/dev/null | FileCheck %s --check-prefix=KERNELS
// RUN: not tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(verify-phase{phase=memory}))" 2>&1 >/dev/null | FileCheck %s --check-prefix=MEMORY
// RUN: not tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(verify-phase{phase=kernel}))" 2>&1 >/dev/null | FileCheck %s --check-prefix=UNKNOWN
// RUN: not tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(verify-phase{phase=order}))" 2>&1 >/dev/null | FileCheck %s --check-prefix=OTHER

// UNKNOWN: verify-phase: `kernel` is no phase that it verifies; known: decompose, kernels, memory
// OTHER: verify-phase: `order` is no phase that it verifies

// DECOMPOSE: 'train.softmax' op internal error: illegal after phase decompose, expected to have been converted by decompose-composites
func.func @composite(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {train.entry = "predict"} {
  %y = train.softmax %x dim = 1 : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// KERNELS: 'train.exp' op internal error: illegal after phase kernels, expected to have been converted by fuse-kernels
func.func @loose(%x: tensor<8xf32>) -> tensor<8xf32> attributes {train.entry = "predict"} {
  %y = train.exp %x : tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// MEMORY: 'train.fused' op internal error: illegal after phase memory, expected to have been converted by plan-memory
func.func @unplaced(%x: tensor<8xf32>) -> tensor<8xf32> attributes {train.entry = "predict"} {
  %y = train.fused(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %0 = train.exp %a : tensor<8xf32>
    train.yield %0 : tensor<8xf32>
  }
  return %y : tensor<8xf32>
}
