// RUN: tcc-opt %s --fuse-attention --canonicalize --cse | FileCheck %s
// Axes: which dimensions are samples, heads, queries and keys, whatever reshapes are in between.

// The note about it, with the nodes in order.
// CHECK: train.notes = [{kind = "attention fused", subject = "softmax", text = "{{.*}}causal{{.*}}:false{{.*}}heads{{.*}}:3{{.*}}[\22prediction\22]{{.*}}[\22scores\22,\22scale\22,\22softmax\22,\22product\22]
// CHECK-SAME: {kind = "attention elided", subject = "softmax", text = "{\22bytes\22:1536,

// Four dimensions around products of rank 3; a flag transposes the keys; the scale is on the scores.
// CHECK-LABEL: func @heads
// CHECK-SAME: (%[[Q:.*]]: tensor<2x3x8x4xf32>, %[[K:.*]]: tensor<2x3x8x4xf32>, %[[V:.*]]: tensor<2x3x8x5xf32>)
// CHECK-NEXT: %[[O:.*]], %{{.*}}, %{{.*}} = train.attention %[[Q]], %[[K]], %[[V]] {{{.*}}scale = 5.000000e-01 : f64}
// CHECK-NEXT: return %[[O]]
func.func @heads(%q: tensor<2x3x8x4xf32>, %k: tensor<2x3x8x4xf32>, %v: tensor<2x3x8x5xf32>) -> tensor<2x3x8x5xf32> {
  %half = train.constant dense<0.5> : tensor<2x3x8x8xf32>
  %q3 = train.reshape %q : tensor<2x3x8x4xf32> -> tensor<6x8x4xf32>
  %k3 = train.reshape %k : tensor<2x3x8x4xf32> -> tensor<6x8x4xf32>
  %v3 = train.reshape %v : tensor<2x3x8x5xf32> -> tensor<6x8x5xf32>
  %s3 = train.matmul %q3, %k3 {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32> loc("scores")
  %s = train.reshape %s3 : tensor<6x8x8xf32> -> tensor<2x3x8x8xf32> loc("scores")
  %x = train.mul %s, %half : tensor<2x3x8x8xf32> loc("scale")
  %w = train.softmax %x dim = 3 : tensor<2x3x8x8xf32> loc("softmax")
  %w3 = train.reshape %w : tensor<2x3x8x8xf32> -> tensor<6x8x8xf32> loc("product")
  %y3 = train.matmul %w3, %v3 : (tensor<6x8x8xf32>, tensor<6x8x5xf32>) -> tensor<6x8x5xf32> loc("product")
  %y = train.reshape %y3 : tensor<6x8x5xf32> -> tensor<2x3x8x5xf32>
  return %y : tensor<2x3x8x5xf32>
}

// A scale on each side, one of them a divisor; an op transposes the keys; without a dimension of heads each matrix is one.
// CHECK-LABEL: func @rank3
// CHECK: train.attention {{.*}}scale = 1.000000e+00 : f64} : (tensor<1x6x8x4xf32>, tensor<1x6x9x4xf32>, tensor<1x6x9x4xf32>)
func.func @rank3(%q: tensor<6x8x4xf32>, %k: tensor<6x9x4xf32>, %v: tensor<6x9x4xf32>) -> tensor<6x8x4xf32> {
  %two = train.constant dense<2.0> : tensor<6x8x4xf32>
  %twoToo = train.constant dense<2.0> : tensor<6x4x9xf32>
  %qs = train.div %q, %two : tensor<6x8x4xf32>
  %kt = train.transpose %k [0, 2, 1] : tensor<6x9x4xf32> -> tensor<6x4x9xf32>
  %ks = train.mul %twoToo, %kt : tensor<6x4x9xf32>
  %s = train.matmul %qs, %ks : (tensor<6x8x4xf32>, tensor<6x4x9xf32>) -> tensor<6x8x9xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x9xf32>
  %y = train.matmul %w, %v : (tensor<6x8x9xf32>, tensor<6x9x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

// Keys times queries, softmax down the columns, values from the left: the same, with rows and columns exchanged.
// CHECK-LABEL: func @columns
// CHECK: %[[O:.*]], %{{.*}}, %{{.*}} = train.attention
// CHECK-SAME: (tensor<1x6x8x4xf32>, tensor<1x6x9x4xf32>, tensor<1x6x9x5xf32>) -> (tensor<1x6x8x5xf32>
// CHECK: train.transpose {{.*}} -> tensor<6x5x8xf32>
func.func @columns(%q: tensor<6x8x4xf32>, %k: tensor<6x9x4xf32>, %v: tensor<6x9x5xf32>) -> tensor<6x5x8xf32> {
  %s = train.matmul %k, %q {transB = true} : (tensor<6x9x4xf32>, tensor<6x8x4xf32>) -> tensor<6x9x8xf32>
  %w = train.softmax %s dim = 1 : tensor<6x9x8xf32>
  %y = train.matmul %v, %w {transA = true} : (tensor<6x9x5xf32>, tensor<6x9x8xf32>) -> tensor<6x5x8xf32>
  return %y : tensor<6x5x8xf32>
}

// Groups of heads share keys and values, which are repeated by expanding or by gathering.
// CHECK-LABEL: func @repeated
// CHECK-SAME: (%[[Q:.*]]: tensor<2x4x8x4xf32>, %[[K:.*]]: tensor<2x2x8x4xf32>, %[[V:.*]]: tensor<2x2x8x4xf32>)
// CHECK-NEXT: train.attention %[[Q]], %[[K]], %[[V]] {{.*}} : (tensor<2x4x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>)
func.func @repeated(%q: tensor<2x4x8x4xf32>, %k: tensor<2x2x8x4xf32>, %v: tensor<2x2x8x4xf32>) -> tensor<8x8x4xf32> {
  %heads = train.constant dense<[0, 0, 1, 1]> : tensor<4xi64>
  %k5 = train.reshape %k : tensor<2x2x8x4xf32> -> tensor<2x2x1x8x4xf32>
  %ke = train.broadcast %k5 : tensor<2x2x1x8x4xf32> -> tensor<2x2x2x8x4xf32>
  %ve = train.gather %v, %heads axis = 1 : (tensor<2x2x8x4xf32>, tensor<4xi64>) -> tensor<2x4x8x4xf32>
  %q3 = train.reshape %q : tensor<2x4x8x4xf32> -> tensor<8x8x4xf32>
  %k3 = train.reshape %ke : tensor<2x2x2x8x4xf32> -> tensor<8x8x4xf32>
  %v3 = train.reshape %ve : tensor<2x4x8x4xf32> -> tensor<8x8x4xf32>
  %s = train.matmul %q3, %k3 {transB = true} : (tensor<8x8x4xf32>, tensor<8x8x4xf32>) -> tensor<8x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<8x8x8xf32>
  %y = train.matmul %w, %v3 : (tensor<8x8x8xf32>, tensor<8x8x4xf32>) -> tensor<8x8x4xf32>
  return %y : tensor<8x8x4xf32>
}

// Keys of heads in turn (0 1 0 1): heads that share them are put together. One group: keys of one head.
// CHECK-LABEL: func @in_turn
// CHECK-DAG: %[[T:.*]] = train.transpose {{.*}} : tensor<2x3x2x8x4xf32> -> tensor<2x2x3x8x4xf32>
// CHECK-DAG: %[[QT:.*]] = train.reshape %[[T]] : tensor<2x2x3x8x4xf32> -> tensor<2x6x8x4xf32>
// CHECK: train.attention %[[QT]], {{.*}} : (tensor<2x6x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>)
// CHECK: train.transpose {{.*}} : tensor<2x2x3x8x4xf32> -> tensor<2x3x2x8x4xf32>
func.func @in_turn(%q: tensor<2x6x8x4xf32>, %k: tensor<2x2x8x4xf32>, %v: tensor<2x2x8x4xf32>) -> tensor<12x8x4xf32> {
  %kc = train.concat dim = 1 %k, %k, %k : (tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>) -> tensor<2x6x8x4xf32>
  %vc = train.concat dim = 1 %v, %v, %v : (tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>) -> tensor<2x6x8x4xf32>
  %q3 = train.reshape %q : tensor<2x6x8x4xf32> -> tensor<12x8x4xf32>
  %k3 = train.reshape %kc : tensor<2x6x8x4xf32> -> tensor<12x8x4xf32>
  %v3 = train.reshape %vc : tensor<2x6x8x4xf32> -> tensor<12x8x4xf32>
  %s = train.matmul %q3, %k3 {transB = true} : (tensor<12x8x4xf32>, tensor<12x8x4xf32>) -> tensor<12x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<12x8x8xf32>
  %y = train.matmul %w, %v3 : (tensor<12x8x8xf32>, tensor<12x8x4xf32>) -> tensor<12x8x4xf32>
  return %y : tensor<12x8x4xf32>
}

// The queries of a group are rows of one product.
// CHECK-LABEL: func @rows
// CHECK: train.attention {{.*}} : (tensor<2x4x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>)
func.func @rows(%q: tensor<2x4x8x4xf32>, %k: tensor<4x8x4xf32>, %v: tensor<4x8x4xf32>) -> tensor<4x16x4xf32> {
  %q3 = train.reshape %q : tensor<2x4x8x4xf32> -> tensor<4x16x4xf32>
  %s3 = train.matmul %q3, %k {transB = true} : (tensor<4x16x4xf32>, tensor<4x8x4xf32>) -> tensor<4x16x8xf32>
  %s = train.reshape %s3 : tensor<4x16x8xf32> -> tensor<2x4x8x8xf32>
  %w = train.softmax %s dim = 3 : tensor<2x4x8x8xf32>
  %w3 = train.reshape %w : tensor<2x4x8x8xf32> -> tensor<4x16x8xf32>
  %y = train.matmul %w3, %v : (tensor<4x16x8xf32>, tensor<4x8x4xf32>) -> tensor<4x16x4xf32>
  return %y : tensor<4x16x4xf32>
}

// Softmax in f32 between products of bf16; factors of the weights become factors of the result.
// CHECK-LABEL: func @mixed
// CHECK: %[[O:.*]], %[[L:.*]], %[[R:.*]] = train.attention {{.*}} -> (tensor<1x6x8x4xbf16>, tensor<1x6x8x1xf32>, tensor<1x6x8x1xf32>)
// CHECK: train.mul %[[O]]
func.func @mixed(%q: tensor<6x8x4xbf16>, %k: tensor<6x8x4xbf16>, %v: tensor<6x8x4xbf16>) -> tensor<6x8x4xbf16> {
  %two = train.constant dense<2.0> : tensor<6x8x8xbf16>
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xbf16>, tensor<6x8x4xbf16>) -> tensor<6x8x8xbf16>
  %sf = train.cast %s : tensor<6x8x8xbf16> -> tensor<6x8x8xf32>
  %wf = train.softmax %sf dim = 2 : tensor<6x8x8xf32>
  %w = train.cast %wf : tensor<6x8x8xf32> -> tensor<6x8x8xbf16>
  %w2 = train.mul %w, %two : tensor<6x8x8xbf16>
  %y = train.matmul %w2, %v : (tensor<6x8x8xbf16>, tensor<6x8x4xbf16>) -> tensor<6x8x4xbf16>
  return %y : tensor<6x8x4xbf16>
}

// A temperature for each head multiplies queries; dropout becomes part of the op.
// CHECK-LABEL: func @temperature
// CHECK-SAME: %[[T:[a-z0-9]*]]: tensor<3x1x1xf32>, %[[KEY:[a-z0-9]*]]: tensor<4xui32>
// CHECK: %[[Q:.*]] = train.mul
// CHECK: train.attention %[[Q]], {{.*}}, %[[KEY]] {dropout = 1.000000e-01 : f64, dropoutId = 7 : i64
func.func @temperature(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>, %t: tensor<3x1x1xf32>,
                       %key: tensor<4xui32>) -> tensor<6x8x4xf32> {
  %s3 = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %s = train.reshape %s3 : tensor<6x8x8xf32> -> tensor<2x3x8x8xf32>
  %tb = train.broadcast %t : tensor<3x1x1xf32> -> tensor<2x3x8x8xf32>
  %x = train.mul %s, %tb : tensor<2x3x8x8xf32>
  %w = train.softmax %x dim = 3 : tensor<2x3x8x8xf32>
  %d, %m = train.dropout %w, %key id = 7 p = 0.1 : (tensor<2x3x8x8xf32>, tensor<4xui32>) -> (tensor<2x3x8x8xf32>, tensor<2x3x8x8xi1>)
  %w3 = train.reshape %d : tensor<2x3x8x8xf32> -> tensor<6x8x8xf32>
  %y = train.matmul %w3, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}
