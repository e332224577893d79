// A recipe of another form is refused, with the member that is wrong.
// RUN: not tcc-opt %s --split-input-file --build-update 2>&1 >/dev/null | FileCheck %s

// CHECK: unknown optimizer `sdg`; known: sgd, adam, adamw
module attributes {train.recipe = {training = "optimizer { kind: 'sdg' } accumulate: 1"}} {
  train.variable @w : tensor<f32> {role = "parameter"}
  func.func @backward() -> (tensor<f32>, tensor<f32>, tensor<f32> {train.gradient_of = "w"}) {
    %w = train.read @w : tensor<f32>
    return %w, %w, %w : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

// CHECK: train.recipe: optimizer: there is no `momments`
module attributes {train.recipe = {optimizer = {momments = "bf16"}}} {}

// -----

// CHECK: train.recipe: parallel: ranks: expected an integer, found "three"
module attributes {train.recipe = {parallel = {ranks = "three"}}} {}

// -----

// CHECK: train.recipe: training: expected the text of a plan.Training, found "accumulate: many"
module attributes {train.recipe = {training = "accumulate: many"}} {}
