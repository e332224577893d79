// RUN: not tcc-opt %s --split-input-file --set-recipe="settings=optimizer.kind=sgd" --build-update 2>&1 >/dev/null | FileCheck %s

// The pass finds results by their attributes: a missing result is an error.
train.variable @w : tensor<4xf32> {role = "parameter"}
// CHECK: error: 'func.func' op result 2 has no train.gradient_of that names a variable
func.func @backward(%x: tensor<f32> {train.name = "x"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  return %x, %x, %w : tensor<f32>, tensor<f32>, tensor<4xf32>
}

// -----

// CHECK: error: 'func.func' op result 2 has no train.gradient_of that names a variable
func.func @backward(%x: tensor<f32> {train.name = "x"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"},
        tensor<f32> {train.gradient_of = "absent"}) {
  return %x, %x, %x : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// CHECK: error: 'func.func' op has 1 results, no numerator and denominator of the loss
func.func @backward(%x: tensor<f32> {train.name = "x"}) -> (tensor<f32> {train.name = "loss_sum"}) {
  return %x : tensor<f32>
}

// -----

// CHECK: error: 'func.func' op result 1 is of type 'tensor<2xf32>', and no scalar
func.func @backward(%x: tensor<f32> {train.name = "x"}, %y: tensor<2xf32> {train.name = "y"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<2xf32> {train.name = "loss_weight"}) {
  return %x, %y : tensor<f32>, tensor<2xf32>
}

// -----

train.variable @w : tensor<4xf32> {role = "parameter"}
// CHECK: error: 'func.func' op result 2 is of type 'tensor<2xf32>', and @w of type 'tensor<4xf32>'
func.func @backward(%x: tensor<f32> {train.name = "x"}, %y: tensor<2xf32> {train.name = "y"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<2xf32> {train.gradient_of = "w"}) {
  return %x, %x, %y : tensor<f32>, tensor<f32>, tensor<2xf32>
}

// -----

// CHECK: error: 'func.func' op result 1 has no train.name
func.func @loss(%x: tensor<f32> {train.name = "x"}) -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32>) {
  return %x, %x : tensor<f32>, tensor<f32>
}
