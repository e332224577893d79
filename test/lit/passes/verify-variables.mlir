// RUN: not tcc-opt %s --split-input-file 2>&1 >/dev/null | FileCheck %s

train.variable @w : tensor<2x4xf32> {role = "parameter"}
// CHECK: error: 'train.read' op is of type 'tensor<4x8xf32>', and @w of type 'tensor<2x4xf32>'
// CHECK: note: the variable is declared here
func.func @forward() -> tensor<4x8xf32> {
  %w = train.read @w : tensor<4x8xf32>
  return %w : tensor<4x8xf32>
}

// -----

// CHECK: error: 'train.read' op names @v, and no variable has this name
func.func @forward() -> tensor<4xf32> {
  %v = train.read @v : tensor<4xf32>
  return %v : tensor<4xf32>
}

// -----

train.variable @m : tensor<4xf32> {role = "optimizer", fill = 0.0}
// CHECK: error: 'train.write' op is of type 'tensor<4xbf16>', and @m of type 'tensor<4xf32>'
func.func @step(%x: tensor<4xbf16>) {
  train.write @m, %x : tensor<4xbf16>
  return
}
