// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adam,optimizer.moments=8bit" --build-update | FileCheck %s
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adam,optimizer.moments=8bit" --build-update --canonicalize --cse -o %t.mlir
// RUN: tcc-opt %t.mlir --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s --check-prefix=KERNEL
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adam,optimizer.moments=8bit,parallel.mode=grad_op,parallel.ranks=2" --build-update | FileCheck %s --check-prefix=SHARDS

train.variable @w : tensor<64x80xf32> {role = "parameter"}
train.variable @odd : tensor<64x65xf32> {role = "parameter"}
train.variable @small : tensor<4xf32> {role = "parameter"}

func.func @backward(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64}, %g: tensor<64x80xf32> {train.name = "g"},
                    %h: tensor<64x65xf32> {train.name = "h"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<64x80xf32> {train.gradient_of = "w"},
        tensor<64x65xf32> {train.gradient_of = "odd"}, tensor<4xf32> {train.gradient_of = "small"})
    attributes {train.loss_name = "own"} {
  %one = train.constant dense<1.0> : tensor<f32>
  return %one, %one, %g, %h, %x : tensor<f32>, tensor<f32>, tensor<64x80xf32>, tensor<64x65xf32>, tensor<4xf32>
}

// A byte for each element, a magnitude for each 256; the last block may be shorter, small parameters keep f32.
// CHECK: 8 bits for 9280 elements of parameters, f32 for 4
// CHECK: train.variable @"w/exp_avg" : tensor<20x256xui8> {fill = 0.000000e+00
// CHECK: train.variable @"w/exp_avg_absmax" : tensor<20x1xf32> {fill = 0.000000e+00
// CHECK: train.variable @"w/exp_avg_sq" : tensor<20x256xui8>
// CHECK: train.variable @"w/exp_avg_sq_absmax" : tensor<20x1xf32>
// CHECK: train.variable @"odd/exp_avg" : tensor<17x256xui8>
// CHECK: train.variable @"small/exp_avg" : tensor<4xf32>
// CHECK-NOT: small/exp_avg_absmax
// The norm is summed in blocks, too; codes are looked up, and found by two look-ups and a comparison.
// CHECK: func.func @step
// CHECK: train.reduce sum %{{.*}} [1] : tensor<20x256xf32>
// CHECK: %[[CODE:.*]] = train.cast %{{.*}} : tensor<20x256xui8> -> tensor<20x256xi32>
// CHECK: train.gather %{{.*}}, %[[CODE]] axis = 0
// CHECK: train.reduce max %{{.*}} [1] : tensor<20x256xf32> -> tensor<20x1xf32>
// CHECK: %[[BELOW:.*]] = train.gather
// CHECK: train.compare gt
// CHECK: train.cast %{{.*}} : tensor<20x256xf32> -> tensor<20x256xui8>

// One kernel reads and writes weight, codes and magnitudes: no moment leaves it in f32.
// KERNEL: train.fused({{.*}}) -> (tensor<20x1xf32>, tensor<20x256xf32>, tensor<20x256xui8>, tensor<20x1xf32>, tensor<20x256xui8>, tensor<20x1xf32>)

// A rank holds 10 whole blocks of @w; those of @odd would be cut.
// SHARDS: shards of odd would cut blocks of 256 elements
// SHARDS: train.variable @"w/exp_avg" : tensor<2560xui8> {{.*}}tensor<20x256xui8>
// SHARDS: train.variable @"w/exp_avg_absmax" : tensor<10xf32> {{.*}}tensor<20x1xf32>
// SHARDS: train.variable @"odd/exp_avg" : tensor<2080xf32>
