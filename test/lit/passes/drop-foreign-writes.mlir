// Statistics of a network that the loss does not depend on are not computed; those of its own are, and so are values
// that depend on no mode.
// RUN: tcc-opt %s --drop-foreign-writes | FileCheck %s
// CHECK-LABEL: func.func @loss
// CHECK: train.batch_norm %arg0
// CHECK-NOT: train.batch_norm
// CHECK-NOT: @other
// CHECK: train.write @own.mean
// CHECK-NEXT: train.write @count
// CHECK-NEXT: return
train.variable @own.mean : tensor<3xf32> {role = "frozen"}
train.variable @other.mean : tensor<3xf32> {role = "frozen"}
train.variable @count : tensor<3xf32> {role = "frozen"}
func.func @loss(%x: tensor<8x3xf32>, %w: tensor<3xf32>) -> tensor<8x3xf32> {
  %y, %bm, %bv = train.batch_norm %x, %w, %w, %w, %w epsilon = 1.0e-5 : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  %z, %om, %ov = train.batch_norm %y, %w, %w, %w, %w epsilon = 1.0e-5 : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  train.write @own.mean, %bm : tensor<3xf32>
  train.write @other.mean, %om : tensor<3xf32>
  train.write @count, %w : tensor<3xf32>
  return %y : tensor<8x3xf32>
}
