// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(narrow-values))" | FileCheck %s

// Between a product and the kernels around it, memory holds narrow values: the narrowing comes before the view, the
// widening after it.
// CHECK-LABEL: func.func @linear
// CHECK: %[[R:.*]] = train.exp %arg0
// CHECK-NEXT: %[[N:.*]] = train.cast %[[R]] : tensor<4x8x16xf32> -> tensor<4x8x16xbf16>
// CHECK-NEXT: %[[V:.*]] = train.reshape %[[N]] : tensor<4x8x16xbf16> -> tensor<1x32x16xbf16>
// CHECK-NEXT: %[[P:.*]] = train.matmul %[[V]], %arg1
// CHECK-NEXT: %[[B:.*]] = train.reshape %[[P]] : tensor<1x32x16xbf16> -> tensor<4x8x16xbf16>
// CHECK-NEXT: %[[W:.*]] = train.cast %[[B]] : tensor<4x8x16xbf16> -> tensor<4x8x16xf32>
// CHECK-NEXT: train.add %[[W]], %[[R]]
func.func @linear(%x: tensor<4x8x16xf32> {train.name = "x"}, %w: tensor<1x16x16xbf16> {train.variable = "w"})
    -> (tensor<4x8x16xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %e = train.exp %x : tensor<4x8x16xf32>
  %v = train.reshape %e : tensor<4x8x16xf32> -> tensor<1x32x16xf32>
  %n = train.cast %v : tensor<1x32x16xf32> -> tensor<1x32x16xbf16>
  %p = train.matmul %n, %w {train.call = #train.call<"">} : (tensor<1x32x16xbf16>, tensor<1x16x16xbf16>) -> tensor<1x32x16xbf16>
  %wide = train.cast %p : tensor<1x32x16xbf16> -> tensor<1x32x16xf32>
  %back = train.reshape %wide : tensor<1x32x16xf32> -> tensor<4x8x16xf32>
  %y = train.add %back, %e : tensor<4x8x16xf32>
  return %y : tensor<4x8x16xf32>
}

// Two products read a value that is rounded once. Widening and narrowing again give the same value, whatever views are between.
// CHECK-LABEL: func.func @once
// CHECK: %[[E:.*]] = train.exp
// CHECK: %[[N:.*]] = train.cast %[[E]]
// CHECK-NOT: train.cast
// CHECK-DAG: train.reshape %[[N]] : tensor<4x8xbf16> -> tensor<1x4x8xbf16>
// CHECK-DAG: train.reshape %[[N]] : tensor<4x8xbf16> -> tensor<1x8x4xbf16>
// CHECK: %[[D:.*]] = train.matmul
// CHECK-NOT: train.cast
// CHECK: train.matmul
func.func @once(%x: tensor<4x8xf32> {train.name = "x"})
    -> (tensor<1x4x4xbf16> {train.name = "y"}) attributes {train.entry = "predict"} {
  %e = train.exp %x : tensor<4x8xf32>
  %v = train.reshape %e : tensor<4x8xf32> -> tensor<1x4x8xf32>
  %n = train.cast %v : tensor<1x4x8xf32> -> tensor<1x4x8xbf16>
  %u = train.reshape %e : tensor<4x8xf32> -> tensor<1x8x4xf32>
  %m = train.cast %u : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
  %d = train.matmul %n, %m {train.call = #train.call<"">} : (tensor<1x4x8xbf16>, tensor<1x8x4xbf16>) -> tensor<1x4x4xbf16>
  %wide = train.cast %d : tensor<1x4x4xbf16> -> tensor<1x4x4xf32>
  %flat = train.reshape %wide : tensor<1x4x4xf32> -> tensor<16xf32>
  %square = train.reshape %flat : tensor<16xf32> -> tensor<1x4x4xf32>
  %again = train.cast %square : tensor<1x4x4xf32> -> tensor<1x4x4xbf16>
  %y = train.matmul %again, %d {train.call = #train.call<"">} : (tensor<1x4x4xbf16>, tensor<1x4x4xbf16>) -> tensor<1x4x4xbf16>
  return %y : tensor<1x4x4xbf16>
}

// A parameter's cast stays in its place: no kernel computes the parameter.
// CHECK-LABEL: func.func @parameter
// CHECK: %[[V:.*]] = train.reshape %arg0 : tensor<8x8xf32> -> tensor<1x8x8xf32>
// CHECK: train.cast %[[V]]
func.func @parameter(%w: tensor<8x8xf32> {train.variable = "w"}, %x: tensor<1x8x8xbf16> {train.name = "x"})
    -> (tensor<1x8x8xbf16> {train.name = "y"}) attributes {train.entry = "predict"} {
  %v = train.reshape %w : tensor<8x8xf32> -> tensor<1x8x8xf32>
  %n = train.cast %v : tensor<1x8x8xf32> -> tensor<1x8x8xbf16>
  %y = train.matmul %x, %n {train.call = #train.call<"">} : (tensor<1x8x8xbf16>, tensor<1x8x8xbf16>) -> tensor<1x8x8xbf16>
  return %y : tensor<1x8x8xbf16>
}

// A row's score is picked from the narrow scores, and a gradient with several readers stays narrow behind its mask. If the
// other number is not of the narrow type, or a single op reads the choice, it stays as it is.
// CHECK-LABEL: func.func @elements
// CHECK: %[[P:.*]] = train.pick %arg0, %arg1 dim = 1 : (tensor<4x8xbf16>, tensor<4x1xi64>) -> tensor<4x1xbf16>
// CHECK: train.cast %[[P]] : tensor<4x1xbf16> -> tensor<4x1xf32>
// CHECK: %[[S:.*]] = train.select %arg2, %arg0, %{{.*}} : tensor<4x8xi1>, tensor<4x8xbf16>
// CHECK: train.cast %[[S]] : tensor<4x8xbf16> -> tensor<4x8xf32>
// CHECK: train.select {{.*}} : tensor<4x8xi1>, tensor<4x8xf32>
// CHECK: train.select {{.*}} : tensor<4x8xi1>, tensor<4x8xf32>
func.func @elements(%x: tensor<4x8xbf16> {train.name = "x"}, %i: tensor<4x1xi64> {train.name = "i"}, %m: tensor<4x8xi1> {train.name = "m"})
    -> (tensor<4x1xf32> {train.name = "p"}, tensor<4x8xf32> {train.name = "s"}, tensor<4x8xf32> {train.name = "t"}) attributes {train.entry = "predict"} {
  %wide = train.cast %x : tensor<4x8xbf16> -> tensor<4x8xf32>
  %p = train.pick %wide, %i dim = 1 : (tensor<4x8xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
  %zero = train.constant dense<0.0> : tensor<4x8xf32>
  %g = train.select %m, %wide, %zero : tensor<4x8xi1>, tensor<4x8xf32>
  %s = train.mul %g, %g : tensor<4x8xf32>
  %third = train.constant dense<0.333333343> : tensor<4x8xf32>
  %h = train.select %m, %third, %wide : tensor<4x8xi1>, tensor<4x8xf32>
  %k = train.mul %h, %h : tensor<4x8xf32>
  %one = train.select %m, %zero, %wide : tensor<4x8xi1>, tensor<4x8xf32>
  %t = train.add %one, %k : tensor<4x8xf32>
  return %p, %s, %t : tensor<4x1xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// Each reader of narrow state has a cast of its own that widens it; the readers of another value share one.
// CHECK-LABEL: func.func @state
// CHECK: %[[B:.*]] = train.cast %arg1 : tensor<1x8x8xbf16> -> tensor<1x8x8xf32>
// CHECK: %[[A:.*]] = train.cast %arg1 : tensor<1x8x8xbf16> -> tensor<1x8x8xf32>
// CHECK: %[[H:.*]] = train.matmul %arg0, %[[A]]
// CHECK: train.matmul %[[H]], %[[B]]
// CHECK: train.cast %arg2
// CHECK-NOT: train.cast
func.func @state(%x: tensor<1x8x8xf32> {train.name = "x"}, %w: tensor<1x8x8xbf16> {train.variable = "w"}, %v: tensor<1x8x8xbf16> {train.name = "v"})
    -> (tensor<1x8x8xf32> {train.name = "y"}, tensor<1x8x8xf32> {train.name = "z"}) attributes {train.entry = "predict"} {
  %wide = train.cast %w : tensor<1x8x8xbf16> -> tensor<1x8x8xf32>
  %h = train.matmul %x, %wide {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %y = train.matmul %h, %wide {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %vast = train.cast %v : tensor<1x8x8xbf16> -> tensor<1x8x8xf32>
  %k = train.matmul %y, %vast {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %z = train.matmul %k, %vast {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  return %y, %z : tensor<1x8x8xf32>, tensor<1x8x8xf32>
}

// Integers of 8 bits and their scales are widened for each product: one copy would live from the first to the last product.
// CHECK-LABEL: func.func @eight
// CHECK: %[[Q:.*]] = train.cast %arg1 : tensor<4x3xi8> -> tensor<4x3xf32>
// CHECK: %[[W:.*]] = train.mul %[[Q]]
// CHECK: %[[V:.*]] = train.reshape %[[W]]
// CHECK: %[[Y:.*]] = train.matmul %arg0, %[[V]] {
// CHECK: %[[Q2:.*]] = train.cast %arg1 : tensor<4x3xi8> -> tensor<4x3xf32>
// CHECK: %[[W2:.*]] = train.mul %[[Q2]]
// CHECK: %[[V2:.*]] = train.reshape %[[W2]]
// CHECK: train.matmul %[[Y]], %[[V2]] {
// CHECK-NOT: train.cast
func.func @eight(%x: tensor<1x8x3xf32> {train.name = "x"}, %q: tensor<4x3xi8> {train.variable = "w"},
                 %s: tensor<4x1xf32> {train.variable = "w/scale"})
    -> (tensor<1x8x3xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %steps = train.cast %q : tensor<4x3xi8> -> tensor<4x3xf32>
  %scale = train.broadcast %s : tensor<4x1xf32> -> tensor<4x3xf32>
  %wide = train.mul %steps, %scale : tensor<4x3xf32>
  %w = train.reshape %wide : tensor<4x3xf32> -> tensor<1x4x3xf32>
  %y = train.matmul %x, %w {transB = true, train.call = #train.call<"">} : (tensor<1x8x3xf32>, tensor<1x4x3xf32>) -> tensor<1x8x4xf32>
  %z = train.matmul %y, %w {train.call = #train.call<"">} : (tensor<1x8x4xf32>, tensor<1x4x3xf32>) -> tensor<1x8x3xf32>
  return %z : tensor<1x8x3xf32>
}

// So are codes of 4 bits.
// CHECK-LABEL: func.func @four
// CHECK: %[[W:.*]] = train.unpack nf4 %arg1, %arg2
// CHECK: %[[V:.*]] = train.reshape %[[W]]
// CHECK: %[[Y:.*]] = train.matmul %arg0, %[[V]] {
// CHECK: %[[W2:.*]] = train.unpack nf4 %arg1, %arg2
// CHECK: %[[V2:.*]] = train.reshape %[[W2]]
// CHECK: train.matmul %[[Y]], %[[V2]] {
// CHECK-NOT: train.unpack
func.func @four(%x: tensor<1x8x3xf32> {train.name = "x"}, %q: tensor<6xui8> {train.variable = "w"},
                %s: tensor<1xf32> {train.variable = "w/absmax"})
    -> (tensor<1x8x3xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %wide = train.unpack nf4 %q, %s block = 32 shape = [4, 3] strides = [3, 1] : (tensor<6xui8>, tensor<1xf32>) -> tensor<4x3xf32>
  %w = train.reshape %wide : tensor<4x3xf32> -> tensor<1x4x3xf32>
  %y = train.matmul %x, %w {transB = true, train.call = #train.call<"">} : (tensor<1x8x3xf32>, tensor<1x4x3xf32>) -> tensor<1x8x4xf32>
  %z = train.matmul %y, %w {train.call = #train.call<"">} : (tensor<1x8x4xf32>, tensor<1x4x3xf32>) -> tensor<1x8x3xf32>
  return %z : tensor<1x8x3xf32>
}
