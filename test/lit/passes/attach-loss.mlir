// RUN: tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t" --attach-loss | FileCheck %s --check-prefix=MSE
// RUN: tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=y,loss.target=labels,loss.class_axis=-1" --attach-loss | FileCheck %s --check-prefix=CE
// RUN: tcc-opt %s --set-recipe="settings=loss.output=own" --attach-loss | FileCheck %s --check-prefix=OWN
// RUN: tcc-opt %s --attach-loss | FileCheck %s --check-prefix=OWN
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=z,loss.target=t" --attach-loss 2>&1 | FileCheck %s --check-prefix=NO-OUTPUT
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.target=t" --attach-loss 2>&1 | FileCheck %s --check-prefix=AMBIGUOUS
// RUN: not tcc-opt %s --set-recipe="settings=loss.output=y" --attach-loss 2>&1 | FileCheck %s --check-prefix=NO-SCALAR
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=y,loss.target=x" --attach-loss 2>&1 | FileCheck %s --check-prefix=BAD-TARGET
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=y,loss.target=l,loss.class_axis=2" --attach-loss 2>&1 | FileCheck %s --check-prefix=BAD-AXIS
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=y,loss.target=l,loss.weight=[1,2]" --attach-loss 2>&1 | FileCheck %s --check-prefix=BAD-WEIGHT
// RUN: tcc-opt %s --set-recipe="settings=loss.kind=margin_ranking,loss.of=['y','y'],loss.target=t,loss.margin=0.5" --attach-loss | FileCheck %s --check-prefix=MARGIN
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=triplet,loss.of=['y','y']" --attach-loss 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=margin_ranking,loss.of=['y','own'],loss.target=t" --attach-loss 2>&1 | FileCheck %s --check-prefix=SHAPES
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=gaussian_nll,loss.of=['y','own'],loss.target=t" --attach-loss 2>&1 | FileCheck %s --check-prefix=VARIANCE
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=ctc,loss.of=y,loss.target=t,loss.max_target_length=3" --attach-loss 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=dice,loss.of=y,loss.target=t,loss.class_axis=0" --attach-loss 2>&1 | FileCheck %s --check-prefix=DICE
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t,loss.margn=1" --attach-loss 2>&1 | FileCheck %s --check-prefix=SETTING

func.func @forward(%x: tensor<8x3xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<8x4xf32> {train.name = "y"}, tensor<f32> {train.name = "own"}) {
  %0 = train.slice %x starts [0, 0] steps [1, 1] : tensor<8x3xf32> -> tensor<8x1xf32>
  %1 = train.broadcast %0 : tensor<8x1xf32> -> tensor<8x4xf32>
  %2 = train.reduce sum %0 [0, 1] : tensor<8x1xf32> -> tensor<1x1xf32>
  %3 = train.reshape %2 : tensor<1x1xf32> -> tensor<f32>
  return %1, %3 : tensor<8x4xf32>, tensor<f32>
}

// The forward graph stays; the loss is a copy with the target as a new input, and its denominator is 32 elements.
// MSE: func.func @forward
// MSE: func.func @loss(%[[X:.*]]: tensor<8x3xf32> {train.name = "x", train.sample_axis = 0 : i64}, %[[T:.*]]: tensor<8x4xf32> {train.name = "t", train.sample_axis = 0 : i64})
// MSE-SAME: (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"})
// MSE-SAME: train.loss_name = "loss"
// MSE: %[[D:.*]] = train.sub %{{.*}}, %[[T]] : tensor<8x4xf32>
// MSE: %[[S:.*]] = train.mul %[[D]], %[[D]] : tensor<8x4xf32>
// MSE: train.reduce sum %[[S]] [1] : tensor<8x4xf32> -> tensor<8x1xf32>
// MSE: train.constant dense<3.200000e+01> : tensor<f32>

// One score is picked per row, and only the logarithm of the sum of exponentials is formed.
// CE: func.func @loss({{.*}}%[[T:.*]]: tensor<8xi64> {train.name = "labels", train.sample_axis = 0 : i64})
// CE-SAME: {train.name = "correct"}, tensor<f32> {train.name = "counted"}
// CE: train.compare ne
// CE: train.logsumexp %{{.*}} dim = 1
// CE: train.pick
// CE-NOT: log_softmax
// CE: train.argmax

// The graph's own loss has the number of its batch's samples as its weight.
// OWN: func.func @loss(%{{.*}}: tensor<8x3xf32> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"})
// OWN-SAME: train.loss_name = "own"
// OWN: %[[N:.*]] = train.constant dense<8.000000e+00>
// OWN: train.mul %{{.*}}, %[[N]] : tensor<f32>

// NO-OUTPUT: loss.of: the graph has no output `z`; outputs: `y` (tensor<8x4xf32>), `own` (tensor<f32>)
// AMBIGUOUS: 2 floating-point outputs: set loss.of
// NO-SCALAR: loss.output: `y` is tensor<8x4xf32>, not a scalar
// BAD-TARGET: the graph input `x` is tensor<8x3xf32>, but cross_entropy of tensor<8x4xf32> needs the shape of tensor<8xi64>
// BAD-AXIS: loss.class_axis: 2 is no axis of the prediction: `y` is tensor<8x4xf32>; use one from -2 to 1
// BAD-WEIGHT: loss.weight has 2 numbers, but class_axis 1 has 4 classes
// MARGIN: func.func @loss({{.*}}%{{.*}}: tensor<8x4xf32> {train.name = "t"
// MARGIN: train.constant dense<5.000000e-01>
// COUNT: loss.of: triplet compares 3 values, and 2 are named: set loss.of = ["anchor", "positive", "negative"]; outputs: `y`
// SHAPES: the values that loss.of names differ in shape, and margin_ranking compares them element by element: name values of one shape (`y` is tensor<8x4xf32>, `own` is tensor<f32>)
// VARIANCE: the variance, the second value that loss.of names, does not fit the mean
// RANK: loss.of: ctc needs a prediction with the axes time, samples and classes: `y` is tensor<8x4xf32>
// DICE: loss.class_axis: axis 0 holds the samples of dice: name another axis (`y` is tensor<8x4xf32>)
// SETTING: set-recipe: unknown key loss.margn; the nearest known one is loss.margin
