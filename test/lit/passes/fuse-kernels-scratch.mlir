// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s

// A kernel with an op that needs scratch says how much a worker needs, and how many tiles there are to share: two blocks of
// 64 queries.
// CHECK: train.fused(%{{.*}}) {train.scratch = #train.scratch<slot = {{[1-9][0-9]*}}, shared = 0, tiles = 2, partial = 0>}
// CHECK: train.attention
func.func @step(%q: tensor<1x1x70x8xf32> {train.name = "q"}) -> (tensor<1x1x70x8xf32> {train.name = "y"}) attributes {train.entry = "step"} {
  %o, %l, %l_rest = train.attention %q, %q, %q {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>) -> (tensor<1x1x70x8xf32>, tensor<1x1x70x1xf32>, tensor<1x1x70x1xf32>)
  return %o : tensor<1x1x70x8xf32>
}
