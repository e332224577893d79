// RUN: tcc-opt %s --derive-index-ranges --split-input-file | FileCheck %s

train.variable @wte : tensor<50x3xf32> {role = "parameter"}
train.variable @wpe : tensor<12x3xf32> {role = "parameter"}

// Indices come from the input directly, or through a cast, an added constant and a view: positions that start at 2.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: extent = 50 : i64, high = 49 : i64, low = -50 : i64, node = "", table = "wte"}
// CHECK-SAME: extent = 12 : i64, high = 9 : i64, low = -14 : i64, node = "", table = "wpe"}
// CHECK-SAME: train.name = "ids"
func.func @forward(%ids: tensor<2x4xi32> {train.name = "ids"}) -> (tensor<2x4x3xf32>, tensor<8x3xf32>) {
  %wte = train.read @wte : tensor<50x3xf32>
  %wpe = train.read @wpe : tensor<12x3xf32>
  %0 = train.gather %wte, %ids axis = 0 : (tensor<50x3xf32>, tensor<2x4xi32>) -> tensor<2x4x3xf32>
  %1 = train.cast %ids : tensor<2x4xi32> -> tensor<2x4xi64>
  %2 = train.constant dense<2> : tensor<2x4xi64>
  %3 = train.add %1, %2 : tensor<2x4xi64>
  %4 = train.reshape %3 : tensor<2x4xi64> -> tensor<8xi64>
  %5 = train.gather %wpe, %4 axis = 0 : (tensor<12x3xf32>, tensor<8xi64>) -> tensor<8x3xf32>
  return %0, %5 : tensor<2x4x3xf32>, tensor<8x3xf32>
}

// -----

train.variable @wte : tensor<50x3xf32> {role = "parameter"}

// A slice limits only its own elements; where offsets differ by column, the range is the widest that any column allows.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: begin = array<i64: 0, 1>, end = array<i64: 2, 4>, extent = 50 : i64, high = 49 : i64, low = -50 : i64
// CHECK-SAME: train.name = "ids"
// CHECK-SAME: high = 39 : i64, low = -80 : i64
// CHECK-SAME: train.name = "fields"
func.func @forward(%ids: tensor<2x4xi64> {train.name = "ids"}, %fields: tensor<2x2xi64> {train.name = "fields"})
    -> (tensor<2x3x3xf32>, tensor<2x2x3xf32>) {
  %wte = train.read @wte : tensor<50x3xf32>
  %0 = train.slice %ids starts [0, 1] steps [1, 1] : tensor<2x4xi64> -> tensor<2x3xi64>
  %1 = train.gather %wte, %0 axis = 0 : (tensor<50x3xf32>, tensor<2x3xi64>) -> tensor<2x3x3xf32>
  %2 = train.constant dense<[[10, 30]]> : tensor<1x2xi64>
  %3 = train.broadcast %2 : tensor<1x2xi64> -> tensor<2x2xi64>
  %4 = train.add %fields, %3 : tensor<2x2xi64>
  %5 = train.gather %wte, %4 axis = 0 : (tensor<50x3xf32>, tensor<2x2xi64>) -> tensor<2x2x3xf32>
  return %1, %5 : tensor<2x3x3xf32>, tensor<2x2x3xf32>
}

// -----

train.variable @wte : tensor<50x3xf32> {role = "parameter"}

// min(max(x, 0), 49) is legal whatever x is; max(x, 0) leaves the upper bound; a value computed from two inputs, or chosen
// by a select, is not followed.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: (%{{[^:]*}}: tensor<2xi64> {train.name = "clipped"},
// CHECK-SAME: high = 49 : i64, low = -9223372036854775808 : i64
// CHECK-SAME: train.name = "floored"
// CHECK-SAME: %{{[^:]*}}: tensor<2xi64> {train.name = "summed"}
func.func @forward(%clipped: tensor<2xi64> {train.name = "clipped"}, %floored: tensor<2xi64> {train.name = "floored"},
                   %summed: tensor<2xi64> {train.name = "summed"}) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %wte = train.read @wte : tensor<50x3xf32>
  %zero = train.constant dense<0> : tensor<2xi64>
  %last = train.constant dense<49> : tensor<2xi64>
  %0 = train.max %clipped, %zero : tensor<2xi64>
  %1 = train.min %0, %last : tensor<2xi64>
  %2 = train.gather %wte, %1 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %3 = train.max %floored, %zero : tensor<2xi64>
  %4 = train.gather %wte, %3 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %5 = train.add %summed, %clipped : tensor<2xi64>
  %6 = train.gather %wte, %5 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %7 = train.compare lt %summed, %zero : tensor<2xi64> -> tensor<2xi1>
  %8 = train.select %7, %zero, %summed : tensor<2xi1>, tensor<2xi64>
  %9 = train.gather %wte, %8 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  return %2, %4, %6, %9 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

train.variable @wte : tensor<50x3xf32> {role = "parameter"}

// 10 − 3·x, and −x: a negative factor swaps the bounds. A cast to bytes wraps, and gives no bound.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: high = 20 : i64, low = -13 : i64
// CHECK-SAME: train.name = "back"
// CHECK-SAME: high = 50 : i64, low = -49 : i64
// CHECK-SAME: train.name = "mirrored"
// CHECK-SAME: %{{[^:]*}}: tensor<2xi64> {train.name = "narrowed"}
func.func @forward(%back: tensor<2xi64> {train.name = "back"}, %mirrored: tensor<2xi64> {train.name = "mirrored"},
                   %narrowed: tensor<2xi64> {train.name = "narrowed"}) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %wte = train.read @wte : tensor<50x3xf32>
  %factor = train.constant dense<-3> : tensor<2xi64>
  %ten = train.constant dense<10> : tensor<2xi64>
  %0 = train.mul %back, %factor : tensor<2xi64>
  %1 = train.add %ten, %0 : tensor<2xi64>
  %2 = train.gather %wte, %1 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %3 = train.neg %mirrored : tensor<2xi64>
  %4 = train.gather %wte, %3 axis = 0 : (tensor<50x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %5 = train.cast %narrowed : tensor<2xi64> -> tensor<2xi8>
  %6 = train.gather %wte, %5 axis = 0 : (tensor<50x3xf32>, tensor<2xi8>) -> tensor<2x3xf32>
  return %2, %4, %6 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// Labels of a loss inside the graph: 0 to 9, or the one that is ignored.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: exceptions = array<i64: -100>, extent = 10 : i64, high = 9 : i64, low = 0 : i64
func.func @forward(%scores: tensor<4x10xf32> {train.name = "scores"}, %labels: tensor<4x1xi64> {train.name = "labels"}) -> tensor<4x1xf32> {
  %0 = train.pick %scores, %labels dim = 1 {train.uncounted_labels = array<i64: -100>} : (tensor<4x10xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
  return %0 : tensor<4x1xf32>
}
