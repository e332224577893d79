// RUN: tcc-opt %s --pass-pipeline='builtin.module(fuse-attention{tiles=f16 tiles-only=true})' | FileCheck %s --check-prefixes=CHECK,SHORT
// RUN: tcc-opt %s --pass-pipeline='builtin.module(fuse-attention{tiles=tf32 tiles-only=true})' | FileCheck %s --check-prefixes=CHECK,SINGLE
// RUN: tcc-opt %s --pass-pipeline='builtin.module(fuse-attention{tiles=bf16})' | FileCheck %s --check-prefix=EVERY
// Which heads a target's warps multiply, and what they require of rows. The graph is f32 until casts are inserted.

// SHORT: {kind = "attention missed", subject = "odd", text = "{{.*}}its heads have 5 and 5 features; the target's kernels take even numbers up to 128
// SHORT-SAME: {kind = "attention missed", subject = "wide", text = "{{.*}}130 and 130 features; the target's kernels take even numbers up to 128
// SINGLE: {kind = "attention missed", subject = "wide", text = "{{.*}}130 and 130 features; the target's kernels take numbers up to 128
// CHECK-LABEL: func.func @even
// SHORT: train.attention {{.*}}train.word_rows
// SINGLE: train.attention {{.*}}train.tf32_products
// CHECK-LABEL: func.func @odd
// SHORT-NOT: train.attention
// SINGLE: train.attention {{.*}}train.tf32_products
// CHECK-LABEL: func.func @wide
// CHECK-NOT: train.attention
// CHECK: train.softmax

// If the recipe asks for attention, other heads get another kernel, which reads rows of any form.
// EVERY-LABEL: func.func @even
// EVERY: train.attention {{.*}}train.word_rows
// EVERY-LABEL: func.func @odd
// EVERY: train.attention
// EVERY-NOT: train.word_rows
// EVERY-LABEL: func.func @wide
// EVERY: train.attention {{.*}}train.word_rows

func.func @even(%q: tensor<6x8x20xf32>, %k: tensor<6x8x20xf32>, %v: tensor<6x8x20xf32>) -> tensor<6x8x20xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x20xf32>, tensor<6x8x20xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32> loc("even")
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x20xf32>) -> tensor<6x8x20xf32>
  return %y : tensor<6x8x20xf32>
}

func.func @odd(%q: tensor<6x8x5xf32>, %k: tensor<6x8x5xf32>, %v: tensor<6x8x5xf32>) -> tensor<6x8x5xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x5xf32>, tensor<6x8x5xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32> loc("odd")
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x5xf32>) -> tensor<6x8x5xf32>
  return %y : tensor<6x8x5xf32>
}

func.func @wide(%q: tensor<6x8x130xf32>, %k: tensor<6x8x130xf32>, %v: tensor<6x8x130xf32>) -> tensor<6x8x130xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x130xf32>, tensor<6x8x130xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32> loc("wide")
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x130xf32>) -> tensor<6x8x130xf32>
  return %y : tensor<6x8x130xf32>
}
