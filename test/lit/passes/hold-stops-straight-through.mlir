// RUN: tcc-opt %s --hold-stops | FileCheck %s

// A fake quantisation is checked along its line: x where the gradient passes, the result elsewhere. No value is held for it.
// CHECK-NOT: tcc.stopped
train.variable @w : tensor<4xf64> {role = "parameter"}

// CHECK-LABEL: func.func @loss
// CHECK: %[[X:.*]] = train.read @w
// CHECK: %[[Y:.*]] = train.fake_quantize %[[X]],
// CHECK: %[[P:.*]] = train.and
// CHECK: %[[LINE:.*]] = train.select %[[P]], %[[X]], %[[Y]]
// CHECK: %[[REST:.*]] = train.sub %[[LINE]], %[[Y]]
// CHECK: %[[STOP:.*]] = train.stop_gradient %[[REST]]
// CHECK: %[[V:.*]] = train.add %[[Y]], %[[STOP]]
// CHECK: train.exp %[[V]]
func.func @loss() -> (tensor<f64>, tensor<f64>) {
  %w = train.read @w : tensor<4xf64>
  %s = train.constant dense<0.5> : tensor<4xf64>
  %z = train.constant dense<0.0> : tensor<4xf64>
  %0 = train.fake_quantize %w, %s, %z within -8 to 7 : tensor<4xf64>
  %1 = train.exp %0 : tensor<4xf64>
  %2 = train.reduce sum %1 [0] : tensor<4xf64> -> tensor<1xf64>
  %3 = train.reshape %2 : tensor<1xf64> -> tensor<f64>
  return %3, %3 : tensor<f64>, tensor<f64>
}
