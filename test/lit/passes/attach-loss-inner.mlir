// RUN: tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=y,loss.target=labels" --attach-loss | FileCheck %s
// RUN: tcc-opt %s --set-recipe="settings=loss.kind=cross_entropy,loss.of=p,loss.target=labels" --attach-loss | FileCheck %s --check-prefix=OUTPUT
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=z,loss.target=t" --attach-loss 2>&1 | FileCheck %s --check-prefix=OUTPUTS

// attach-loss alone makes a value inside the graph a result: @forward returns the graph's outputs behind it. The loader
// does not see this value's shape, so that the target carries the number of classes.
// CHECK: func.func @forward(%{{.*}}) -> (tensor<8x4xf32> {train.name = "p"}) {
// CHECK: return %{{.*}} : tensor<8x4xf32>
// CHECK-NEXT: }
// CHECK: func.func @loss(%[[Y:.*]]: tensor<8x4xf32> {{{.*}}}, %{{.*}}: tensor<8xi64> {train.index_ranges = [
// CHECK-SAME: exceptions = array<i64: -100>
// CHECK-SAME: high = 3 : i64, low = 0 : i64, meaning = "class"
// CHECK: train.pick %[[Y]]

// OUTPUT: func.func @forward(%{{.*}}) -> (tensor<8x4xf32> {train.name = "p"}) {
// OUTPUT: func.func @loss
// OUTPUT-NOT: meaning
// OUTPUT: %[[P:.*]] = train.softmax
// OUTPUT: train.pick %[[P]]

// OUTPUTS: loss.of: the graph has no output `z`; outputs: `p` (tensor<8x4xf32>){{$}}
func.func @forward(%x: tensor<8x4xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<8x4xf32> {train.name = "p"}, tensor<8x4xf32> {train.inner, train.name = "y"}) {
  %0 = train.softmax %x dim = 1 : tensor<8x4xf32>
  return %0, %x : tensor<8x4xf32>, tensor<8x4xf32>
}
