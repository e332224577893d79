// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(minimize-saved))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(minimize-saved,fuse-kernels))" | FileCheck %s --check-prefix=FUSED

// A normalised value: a product of the backward pass reads the value's source, so that the value is computed again there.

// CHECK-LABEL: func.func @normalised
// CHECK: %[[X:[^ ]*]] = train.matmul %{{[^ ]*}}, %{{[^ ]*}} {train.call = #train.call<{{.*}}>}
// CHECK: train.mul
// CHECK: %[[MEAN:[^ ]*]] = train.broadcast {{.*}} {train.repeated}
// CHECK: %[[AGAIN:[^ ]*]] = train.sub %[[X]], %[[MEAN]] {train.repeated}
// CHECK: train.mul %{{[^ ]*}}, %[[AGAIN]] :
// FUSED-LABEL: func.func @normalised
// The forward kernel writes two numbers for each row; the backward kernel computes the rest from the product.
// FUSED: %[[X:[^ ]*]] = train.matmul
// FUSED: %[[ROWS:[^ ]*]]:2 = train.fused(%[[X]]) : {{.*}} -> (tensor<1x16x1xf32>, tensor<1x16x1xf32>) {
// FUSED: train.fused({{.*}}%[[X]]
// FUSED: train.sub
// FUSED: train.mul
// FUSED: train.yield %{{[^ ]*}} : tensor<1x16x64xf32>
// FUSED-NOT: train.repeated
func.func @normalised(%a: tensor<1x16x64xf32> {train.name = "a"}, %w: tensor<1x64x64xf32> {train.variable = "w"})
    -> (tensor<1x16x1xf32> {train.name = "loss_sum"}, tensor<1x64x64xf32> {train.name = "gradient:w"}) attributes {train.entry = "gradients"} {
  %x = train.matmul %a, %w {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %m = train.reduce sum %x [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %b = train.broadcast %m : tensor<1x16x1xf32> -> tensor<1x16x64xf32>
  %n = train.sub %x, %b : tensor<1x16x64xf32>
  %s = train.mul %n, %n : tensor<1x16x64xf32>
  %loss = train.reduce sum %s [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %g = train.matmul %x, %x {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  %h = train.matmul %a, %g {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %d = train.mul %h, %n : tensor<1x16x64xf32>
  %dw = train.matmul %a, %d {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  return %loss, %dw : tensor<1x16x1xf32>, tensor<1x64x64xf32>
}

// A mask is smaller than its source, which nothing else needs: the mask is kept, and nothing is repeated.

// CHECK-LABEL: func.func @mask
// CHECK-NOT: train.repeated
func.func @mask(%a: tensor<1x16x64xf32> {train.name = "a"}, %w: tensor<1x64x64xf32> {train.variable = "w"})
    -> (tensor<1x16x1xf32> {train.name = "loss_sum"}, tensor<1x64x64xf32> {train.name = "gradient:w"}) attributes {train.entry = "gradients"} {
  %zero = train.constant dense<0.0> : tensor<1x16x64xf32>
  %x = train.matmul %a, %w {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %c = train.compare gt %x, %zero : tensor<1x16x64xf32> -> tensor<1x16x64xi1>
  %y = train.select %c, %x, %zero : tensor<1x16x64xi1>, tensor<1x16x64xf32>
  %loss = train.reduce sum %y [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %one = train.constant dense<1.0> : tensor<1x16x64xf32>
  %d = train.select %c, %one, %zero : tensor<1x16x64xi1>, tensor<1x16x64xf32>
  %dw = train.matmul %a, %d {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  return %loss, %dw : tensor<1x16x1xf32>, tensor<1x64x64xf32>
}

// The same mask, but a product of the backward pass reads the activation: the mask is computed from that again.

// CHECK-LABEL: func.func @activation
// CHECK: %[[Y:[^ ]*]] = train.relu
// CHECK: %[[C:[^ ]*]] = train.compare gt %[[Y]], %{{[^ ]*}} {train.repeated}
// CHECK: train.select %[[C]]
func.func @activation(%a: tensor<1x16x64xf32> {train.name = "a"}, %w: tensor<1x64x64xf32> {train.variable = "w"})
    -> (tensor<1x16x1xf32> {train.name = "loss_sum"}, tensor<1x64x64xf32> {train.name = "gradient:w"}) attributes {train.entry = "gradients"} {
  %zero = train.constant dense<0.0> : tensor<1x16x64xf32>
  %x = train.matmul %a, %w {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %y = train.relu %x : tensor<1x16x64xf32>
  %c = train.compare gt %y, %zero : tensor<1x16x64xf32> -> tensor<1x16x64xi1>
  %one = train.constant dense<1.0> : tensor<1x16x64xf32>
  %t = train.select %c, %one, %zero : tensor<1x16x64xi1>, tensor<1x16x64xf32>
  %loss = train.reduce sum %t [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %g = train.matmul %y, %y {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  %h = train.matmul %a, %g {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %d = train.select %c, %h, %zero : tensor<1x16x64xi1>, tensor<1x16x64xf32>
  %dw = train.matmul %a, %d {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  return %loss, %dw : tensor<1x16x1xf32>, tensor<1x64x64xf32>
}

// The kernel that needs the mask reads the activation's source in any case: it computes the activation again, and the
// activation is kept for the product alone.

// CHECK-LABEL: func.func @read_anyway
// CHECK: %[[X:[^ ]*]] = train.matmul
// CHECK: %[[Y:[^ ]*]] = train.relu
// CHECK: train.matmul %[[Y]], %{{[^ ]*}} {train.call = #train.call<{{.*}}>, transA = true}
// CHECK: %[[N:[^ ]*]] = train.sub %[[X]], %{{[^ ]*}} {train.repeated}
// CHECK: %[[AGAIN:[^ ]*]] = train.relu %[[N]] {train.repeated}
// CHECK: %[[C:[^ ]*]] = train.compare gt %[[AGAIN]], %{{[^ ]*}} {train.repeated}
// CHECK: train.select %[[C]]
// FUSED-LABEL: func.func @read_anyway
// FUSED: %[[X:[^ ]*]] = train.matmul
// FUSED: %[[H:[^ ]*]] = train.matmul %{{[^ ]*}}, %{{[^ ]*}} {train.call = #train.call<{{.*}}>, transB = true}
// Three operands: each row's mean, the product and the gradient.
// FUSED: train.fused(%{{[^ ]*}}, %[[X]], %[[H]]) : (tensor<1x16x1xf32>, tensor<1x16x64xf32>, tensor<1x16x64xf32>)
func.func @read_anyway(%a: tensor<1x16x64xf32> {train.name = "a"}, %w: tensor<1x64x64xf32> {train.variable = "w"})
    -> (tensor<1x16x1xf32> {train.name = "loss_sum"}, tensor<1x64x64xf32> {train.name = "gradient:w"},
        tensor<1x16x64xf32> {train.name = "gradient:v"}, tensor<1x16x1xf32> {train.name = "gradient:u"}) attributes {train.entry = "gradients"} {
  %zero = train.constant dense<0.0> : tensor<1x16x64xf32>
  %x = train.matmul %a, %w {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %m = train.reduce sum %x [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %b = train.broadcast %m : tensor<1x16x1xf32> -> tensor<1x16x64xf32>
  %n = train.sub %x, %b : tensor<1x16x64xf32>
  %y = train.relu %n : tensor<1x16x64xf32>
  %o = train.matmul %y, %w {train.call = #train.call<"">} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %s = train.mul %o, %o : tensor<1x16x64xf32>
  %loss = train.reduce sum %s [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  %dw = train.matmul %y, %o {train.call = #train.call<"">, transA = true} : (tensor<1x16x64xf32>, tensor<1x16x64xf32>) -> tensor<1x64x64xf32>
  %h = train.matmul %o, %dw {train.call = #train.call<"">, transB = true} : (tensor<1x16x64xf32>, tensor<1x64x64xf32>) -> tensor<1x16x64xf32>
  %c = train.compare gt %y, %zero : tensor<1x16x64xf32> -> tensor<1x16x64xi1>
  %d = train.select %c, %h, %zero : tensor<1x16x64xi1>, tensor<1x16x64xf32>
  %e = train.mul %d, %n : tensor<1x16x64xf32>
  %r = train.reduce sum %e [2] : tensor<1x16x64xf32> -> tensor<1x16x1xf32>
  return %loss, %dw, %d, %r : tensor<1x16x1xf32>, tensor<1x64x64xf32>, tensor<1x16x64xf32>, tensor<1x16x1xf32>
}
