// RUN: tcc-opt %s --set-target=name=cpu:v3 | FileCheck %s
// RUN: not tcc-opt %s --set-target=name=abacus:v1 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// The module names its target; passes look it up by that name.
// CHECK: module attributes {train.target = "cpu:v3"}
// UNKNOWN: there is no target 'abacus:v1'
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> attributes {train.entry = "step"} {
  return %x : tensor<4xf32>
}
