// RUN: tcc-opt %s --autocast --split-input-file | FileCheck %s
// RUN: not tcc-opt %s --autocast=precision=f8 --split-input-file 2>&1 | FileCheck %s --check-prefix=BAD

// BAD: autocast: unknown precision 'f8'; expected bf16 or f16

// Products read and give bf16; everything between them is f32. Each operand has a cast of its own.
// CHECK-LABEL: func @loss
// CHECK: %[[W:.*]] = train.read @w
// CHECK: %[[A:.*]] = train.cast %arg0 : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
// CHECK: %[[B:.*]] = train.cast %[[W]] : tensor<1x4x4xf32> -> tensor<1x4x4xbf16>
// CHECK: %[[P:.*]] = train.matmul %[[A]], %[[B]] {{.*}}-> tensor<1x8x4xbf16>
// CHECK: %[[Y:.*]] = train.cast %[[P]] : tensor<1x8x4xbf16> -> tensor<1x8x4xf32>
// CHECK: %[[G:.*]] = train.gelu %[[Y]] {{.*}}tensor<1x8x4xf32>
// CHECK: %[[N:.*]] = train.cast %[[G]] : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
// CHECK: %[[V:.*]] = train.cast %[[W]] : tensor<1x4x4xf32> -> tensor<1x4x4xbf16>
// CHECK: train.matmul %[[N]], %[[V]]
train.variable @w : tensor<1x4x4xf32> {role = "parameter"}
func.func @loss(%x: tensor<1x8x4xf32>) -> tensor<1x8x4xf32> {
  %w = train.read @w : tensor<1x4x4xf32>
  %y = train.matmul %x, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %g = train.gelu %y {approximate = true} : tensor<1x8x4xf32>
  %z = train.matmul %g, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  return %z : tensor<1x8x4xf32>
}

// -----

// %r is computed from a product (and state) alone: its other reader takes it rounded, too.
// CHECK-LABEL: func @loss
// CHECK: %[[R:.*]] = train.relu
// CHECK: %[[N:.*]] = train.cast %[[R]] : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
// CHECK: %[[WIDE:.*]] = train.cast %[[N]] : tensor<1x8x4xbf16> -> tensor<1x8x4xf32>
// CHECK: train.add %[[WIDE]]
train.variable @w : tensor<1x4x4xf32> {role = "parameter"}
func.func @loss(%x: tensor<1x8x4xf32>) -> tensor<1x8x4xf32> {
  %w = train.read @w : tensor<1x4x4xf32>
  %y = train.matmul %x, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %r = train.relu %y : tensor<1x8x4xf32>
  %z = train.matmul %r, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %s = train.add %r, %z : tensor<1x8x4xf32>
  return %s : tensor<1x8x4xf32>
}

// -----

// %r is computed from the f32 input, too: the residual keeps that precision.
// CHECK-LABEL: func @loss
// CHECK: %[[R:.*]] = train.add
// CHECK: train.cast %[[R]] : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
// CHECK: train.add %[[R]]
train.variable @w : tensor<1x4x4xf32> {role = "parameter"}
func.func @loss(%x: tensor<1x8x4xf32>) -> tensor<1x8x4xf32> {
  %w = train.read @w : tensor<1x4x4xf32>
  %y = train.matmul %x, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %r = train.add %y, %x : tensor<1x8x4xf32>
  %z = train.matmul %r, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %s = train.add %r, %z : tensor<1x8x4xf32>
  return %s : tensor<1x8x4xf32>
}

// -----

// The types that the graph itself gives its values stay.
// CHECK-LABEL: func @loss
// CHECK-NEXT: train.matmul %arg0, %arg0 : (tensor<1x4x4xf64>, tensor<1x4x4xf64>) -> tensor<1x4x4xf64>
// CHECK-NEXT: return
func.func @loss(%x: tensor<1x4x4xf64>) -> tensor<1x4x4xf64> {
  %y = train.matmul %x, %x : (tensor<1x4x4xf64>, tensor<1x4x4xf64>) -> tensor<1x4x4xf64>
  return %y : tensor<1x4x4xf64>
}

// -----

// A row looked up by data counts as data, though its table is state: a residual that starts there stays f32, normalised or not.
// CHECK-LABEL: func @loss
// CHECK: %[[R:.*]] = train.relu
// CHECK: train.cast %[[R]] : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
// CHECK: train.add %[[R]]
train.variable @table : tensor<16x4xf32> {role = "parameter"}
train.variable @w : tensor<1x4x4xf32> {role = "parameter"}
func.func @loss(%ids: tensor<1x8xi64>) -> tensor<1x8x4xf32> {
  %table = train.read @table : tensor<16x4xf32>
  %w = train.read @w : tensor<1x4x4xf32>
  %e = train.gather %table, %ids axis = 0 : (tensor<16x4xf32>, tensor<1x8xi64>) -> tensor<1x8x4xf32>
  %y = train.matmul %e, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %x = train.add %y, %e : tensor<1x8x4xf32>
  %r = train.relu %x : tensor<1x8x4xf32>
  %z = train.matmul %r, %w : (tensor<1x8x4xf32>, tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
  %s = train.add %r, %z : tensor<1x8x4xf32>
  return %s : tensor<1x8x4xf32>
}
