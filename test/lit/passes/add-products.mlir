// RUN: tcc-opt %s --pass-pipeline='builtin.module(func.func(add-products))' | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline='builtin.module(set-target{name=cpu:v3},func.func(add-products,select-kernels,fuse-kernels),materialize-buffers)' | FileCheck %s --check-prefix=BUFFERS
train.variable @w : tensor<4x2xf32> {role = "accumulator"}
train.variable @v : tensor<1x4x2xf32> {role = "accumulator"}
train.variable @u : tensor<1x4x2xf32> {role = "accumulator"}

// CHECK-LABEL: func.func @next
// CHECK-SAME: %[[X:.*]]: tensor<1x8x4xf32>, %[[D:.*]]: tensor<1x8x2xf32>, %[[W:.*]]: tensor<4x2xf32> {{.*}}, %[[V:.*]]: tensor<1x4x2xf32> {{.*}}, %[[U:.*]]: tensor<1x4x2xf32>
func.func @next(%x: tensor<1x8x4xf32>, %d: tensor<1x8x2xf32>, %w: tensor<4x2xf32> {train.variable = "w"}, %v: tensor<1x4x2xf32> {train.variable = "v"},
                %u: tensor<1x4x2xf32> {train.variable = "u"})
    -> (tensor<4x2xf32> {train.variable = "w"}, tensor<1x4x2xf32> {train.variable = "v"}, tensor<1x4x2xf32> {train.variable = "u"}) attributes {train.entry = "accumulate_next"} {
  // Sums are found through views; the product adds to the weight's own memory.
  // CHECK: %[[SHAPED:.*]] = train.reshape %[[W]]
  // CHECK: %[[SUM:.*]] = train.matmul %[[X]], %[[D]] add %[[SHAPED]] {transA = true}
  // CHECK: %[[NEXTW:.*]] = train.reshape %[[SUM]]
  // BUFFERS-NOT: train.copy
  %g = train.matmul %x, %d {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
  %r = train.reshape %g : tensor<1x4x2xf32> -> tensor<4x2xf32>
  %nextw = train.add %w, %r : tensor<4x2xf32>
  // A product with other readers stays a product; the sum stays a sum.
  // CHECK: %[[H:.*]] = train.matmul %[[X]], %[[D]] {transA = true}
  // CHECK: %[[NEXTV:.*]] = train.add %[[V]], %[[H]]
  // CHECK: %[[TWICE:.*]] = train.add %[[U]], %[[H]]
  // CHECK: return %[[NEXTW]], %[[NEXTV]], %[[TWICE]]
  %h = train.matmul %x, %d {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
  %nextv = train.add %v, %h : tensor<1x4x2xf32>
  %nextu = train.add %u, %h : tensor<1x4x2xf32>
  return %nextw, %nextv, %nextu : tensor<4x2xf32>, tensor<1x4x2xf32>, tensor<1x4x2xf32>
}

// If something later still reads the addend, the sum of it and a product is made in a copy.
// BUFFERS-LABEL: func.func @read
// BUFFERS: %[[COPY:.*]] = train.copy
// BUFFERS: train.matmul %{{.*}}, %{{.*}} add %[[COPY]]
func.func @read(%x: tensor<1x8x4xf32> {train.name = "x"}, %d: tensor<1x8x2xf32> {train.name = "d"}, %s: tensor<1x4x2xf32> {train.name = "s"})
    -> (tensor<1x4x2xf32> {train.name = "sum"}, tensor<1x4x2xf32> {train.name = "old"}) attributes {train.entry = "predict"} {
  %t = train.matmul %x, %d {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
  %g = train.matmul %x, %d add %t {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  return %g, %t : tensor<1x4x2xf32>, tensor<1x4x2xf32>
}
