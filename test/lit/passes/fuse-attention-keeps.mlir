// RUN: tcc-opt %s --fuse-attention --canonicalize --cse | FileCheck %s
// Which biases and masks certainly leave each query a key, whatever the data: these get the mark rows_keep_keys.

train.variable @table : tensor<4x4xf32> {role = "parameter"}
train.variable @fixed : tensor<4x4xf32> {role = "frozen"}
train.variable @weight : tensor<4x4xf32> {role = "parameter"}

// A trained table does.
// CHECK-LABEL: func @trained
// CHECK: train.attention {{.*}}train.rows_keep_keys
func.func @trained(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %t = train.read @table : tensor<4x4xf32>
  %b = train.broadcast %t : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A frozen table may not: its numbers are not in the IR.
// CHECK-LABEL: func @frozen
// CHECK: train.attention %
// CHECK-NOT: rows_keep_keys
func.func @frozen(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %t = train.read @fixed : tensor<4x4xf32>
  %b = train.broadcast %t : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// Constants of ordinary size do, beside a trained table.
// CHECK-LABEL: func @slopes
// CHECK: train.attention {{.*}}train.rows_keep_keys
func.func @slopes(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %r = train.read @table : tensor<4x4xf32>
  %c = train.constant dense<[[0., -1., -2., -3.], [-1., 0., -1., -2.], [-2., -1., 0., -1.], [-100., -2., -1., 0.]]> : tensor<4x4xf32>
  %t = train.add %r, %c : tensor<4x4xf32>
  %b = train.broadcast %t : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A constant that excludes all keys of the first query does not.
// CHECK-LABEL: func @low
// CHECK: train.attention %
// CHECK-NOT: rows_keep_keys
func.func @low(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %c = train.constant dense<[[-1.e4, -1.e4, -1.e4, -1.e4], [0., 0., 0., 0.], [0., 0., 0., 0.], [0., 0., 0., 0.]]> : tensor<4x4xf32>
  %b = train.broadcast %c : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A value computed from data without trained weights counts as a mask, also if it was added to a table before.
// CHECK-LABEL: func @padding
// CHECK: train.attention %
// CHECK-NOT: rows_keep_keys
func.func @padding(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>, %p: tensor<2x1x4xf32>) -> tensor<2x4x4xf32> {
  %r = train.read @table : tensor<4x4xf32>
  %u = train.broadcast %r : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %m = train.broadcast %p : tensor<2x1x4xf32> -> tensor<2x4x4xf32>
  %e = train.constant dense<-1.e9> : tensor<2x4x4xf32>
  %n = train.mul %m, %e : tensor<2x4x4xf32>
  %b = train.add %u, %n : tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// An activation is no mask, and does.
// CHECK-LABEL: func @activation
// CHECK: train.attention {{.*}}train.rows_keep_keys
func.func @activation(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>, %z: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %r = train.read @weight : tensor<4x4xf32>
  %u = train.broadcast %r : tensor<4x4xf32> -> tensor<2x4x4xf32>
  %b = train.matmul %z, %u : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %x = train.add %s, %b : tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A constant pattern that leaves each query its own key does.
// CHECK-LABEL: func @window
// CHECK: train.attention {{.*}}train.rows_keep_keys
func.func @window(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %m = train.constant dense<[[true, true, false, false], [true, true, true, false], [false, true, true, true], [false, false, true, true]]> : tensor<4x4xi1>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %low = train.constant dense<0xFF800000> : tensor<2x4x4xf32>
  %mb = train.broadcast %m : tensor<4x4xi1> -> tensor<2x4x4xi1>
  %x = train.select %mb, %s, %low : tensor<2x4x4xi1>, tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A constant pattern that leaves the last query no key does not.
// CHECK-LABEL: func @unseeing
// CHECK: train.attention %
// CHECK-NOT: rows_keep_keys
func.func @unseeing(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %m = train.constant dense<[[true, true, false, false], [true, true, true, false], [false, true, true, true], [false, false, false, false]]> : tensor<4x4xi1>
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %low = train.constant dense<0xFF800000> : tensor<2x4x4xf32>
  %mb = train.broadcast %m : tensor<4x4xi1> -> tensor<2x4x4xi1>
  %x = train.select %mb, %s, %low : tensor<2x4x4xi1>, tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// A pattern from the data may not.
// CHECK-LABEL: func @unknown
// CHECK: train.attention %
// CHECK-NOT: rows_keep_keys
func.func @unknown(%q: tensor<2x4x4xf32>, %k: tensor<2x4x4xf32>, %v: tensor<2x4x4xf32>, %p: tensor<4x4xi1>) -> tensor<2x4x4xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %low = train.constant dense<0xFF800000> : tensor<2x4x4xf32>
  %mb = train.broadcast %p : tensor<4x4xi1> -> tensor<2x4x4xi1>
  %x = train.select %mb, %s, %low : tensor<2x4x4xi1>, tensor<2x4x4xf32>
  %w = train.softmax %x dim = 2 : tensor<2x4x4xf32>
  %y = train.matmul %w, %v : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}
