// RUN: tcc-opt %s --elide-unused | FileCheck %s

// CHECK: train.unused_parameters = [{name = "head2", node = "second head", reason = "no path to the loss"}, {name = "nowhere", node = "", reason = "no node reads it"}]
train.variable @head1 : tensor<f32> {role = "parameter"}
train.variable @head2 : tensor<f32> {role = "parameter"}
train.variable @nowhere : tensor<f32> {role = "parameter"}
train.variable @mask : tensor<f32> {role = "frozen"}

func.func @forward() -> (tensor<f32>, tensor<f32>) {
  %w = train.read @head1 : tensor<f32>
  %v = train.read @head2 : tensor<f32>
  %r = train.exp %v : tensor<f32> loc("second head")
  return %w, %r : tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func @loss
// CHECK-NEXT: %[[W:.*]] = train.read @head1
// CHECK-NEXT: return %[[W]], %[[W]]
func.func @loss() -> (tensor<f32>, tensor<f32>) {
  %w = train.read @head1 : tensor<f32>
  %v = train.read @head2 : tensor<f32>
  %r = train.exp %v : tensor<f32> loc("second head")
  return %w, %w : tensor<f32>, tensor<f32>
}
