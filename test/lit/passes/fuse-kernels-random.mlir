// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s

// Each kernel that reads a mask draws it, before and after the product; the mask is never stored.
// CHECK: func.func @step(%[[KEY:[^ ]*]]: tensor<4xui32>
// CHECK: train.fused(%[[KEY]], %{{[^ ]*}}) : (tensor<4xui32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
// CHECK: train.random bits %{{.*}} id = 7
// CHECK: train.matmul
// CHECK: train.fused(%[[KEY]], %{{[^ ]*}}) : (tensor<4xui32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
// CHECK: train.random bits %{{.*}} id = 7
// CHECK: return
func.func @step(%k: tensor<4xui32> {train.counters}, %x: tensor<1x64x64xf32> {train.name = "x"}) -> (tensor<1x64x64xf32> {train.name = "y"}) attributes {train.entry = "step"} {
  %zero = train.constant dense<0.0> : tensor<1x64x64xf32>
  %half = train.constant dense<2147483648> : tensor<1x64x64xui32>
  %bits = train.random bits %k id = 7 : tensor<4xui32> -> tensor<1x64x64xui32>
  %mask = train.compare ge %bits, %half : tensor<1x64x64xui32> -> tensor<1x64x64xi1>
  %a = train.select %mask, %x, %zero : tensor<1x64x64xi1>, tensor<1x64x64xf32>
  %m = train.matmul %a, %a {train.call = #train.call<"">} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  %y = train.select %mask, %m, %zero : tensor<1x64x64xi1>, tensor<1x64x64xf32>
  return %y : tensor<1x64x64xf32>
}
