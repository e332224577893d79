// RUN: tcc-opt %s --fuse-attention --canonicalize --cse | FileCheck %s
// Masks and biases: which become a diagonal, which a boolean tensor, and which are added.

// A constant triangle is added: -1e4 above its diagonal, 2 keys before the first query.
// CHECK-LABEL: func @constant
// CHECK: train.attention %{{[0-9]+}}, %{{[0-9]+}}, %{{[0-9]+}} {causal = true, causalOffset = 2 : i64,
func.func @constant(%q: tensor<4x3x4xf32>, %k: tensor<4x5x4xf32>, %v: tensor<4x5x4xf32>) -> tensor<4x3x4xf32> {
  %m = train.constant dense<[[0., 0., 0., -1.e4, -1.e4], [0., 0., 0., 0., -1.e4], [0., 0., 0., 0., 0.]]> : tensor<3x5xf32>
  %mb = train.broadcast %m : tensor<3x5xf32> -> tensor<4x3x5xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<4x3x4xf32>, tensor<4x5x4xf32>) -> tensor<4x3x5xf32>
  %x = train.add %mb, %s : tensor<4x3x5xf32>
  %w = train.softmax %x dim = 2 : tensor<4x3x5xf32>
  %y = train.matmul %w, %v : (tensor<4x3x5xf32>, tensor<4x5x4xf32>) -> tensor<4x3x4xf32>
  return %y : tensor<4x3x4xf32>
}

// Ranges compared, and padding: the padded keys are known only at run time, and -inf replaces their scores. The result is
// one diagonal and one mask of the samples' keys.
// CHECK-LABEL: func @ranges
// CHECK-SAME: %[[P:[a-z0-9]*]]: tensor<2x4xi1>
// CHECK: %[[M:.*]] = train.reshape %[[P]] : tensor<2x4xi1> -> tensor<2x1x1x4xi1>
// CHECK: train.attention {{.*}}, %[[M]] {causal = true,
func.func @ranges(%q: tensor<2x3x4x4xf32>, %k: tensor<2x3x4x4xf32>, %v: tensor<6x4x4xf32>, %p: tensor<2x4xi1>) -> tensor<6x4x4xf32> {
  %low = train.constant dense<0xFF800000> : tensor<2x3x4x4xf32>
  %i = train.iota dim = 0 : tensor<4x1xi64>
  %j = train.iota dim = 1 : tensor<1x4xi64>
  %ib = train.broadcast %i : tensor<4x1xi64> -> tensor<4x4xi64>
  %jb = train.broadcast %j : tensor<1x4xi64> -> tensor<4x4xi64>
  %above = train.compare gt %jb, %ib : tensor<4x4xi64> -> tensor<4x4xi1>
  %seen = train.not %above : tensor<4x4xi1>
  %c = train.broadcast %seen : tensor<4x4xi1> -> tensor<2x3x4x4xi1>
  %p4 = train.reshape %p : tensor<2x4xi1> -> tensor<2x1x1x4xi1>
  %pb = train.broadcast %p4 : tensor<2x1x1x4xi1> -> tensor<2x3x4x4xi1>
  %keep = train.and %c, %pb : tensor<2x3x4x4xi1>
  %q3 = train.reshape %q : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %k3 = train.reshape %k : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %s3 = train.matmul %q3, %k3 {transB = true} : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  %s = train.reshape %s3 : tensor<6x4x4xf32> -> tensor<2x3x4x4xf32>
  %x = train.select %keep, %s, %low : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
  %w = train.softmax %x dim = 3 : tensor<2x3x4x4xf32>
  %w3 = train.reshape %w : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %y = train.matmul %w3, %v : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  return %y : tensor<6x4x4xf32>
}

// Another number than -inf replaces the scores of padded keys: a row without keys is then even over all of them. Its
// queries become zeros, which give the same weights, and no gradient.
// CHECK-LABEL: func @finite
// CHECK: %[[ANY:.*]] = train.reduce max %[[M:.*]] [3] : tensor<2x1x1x4xi1> -> tensor<2x1x1x1xi1>
// CHECK: %[[NONE:.*]] = train.not %[[ANY]]
// CHECK: %[[ALL:.*]] = train.or
// CHECK: %[[Q:.*]] = train.select %{{.*}} : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
// CHECK: train.attention %[[Q]], %{{[0-9]+}}, %{{[0-9]+}}, %[[ALL]] {
func.func @finite(%q: tensor<6x4x4xf32>, %k: tensor<6x4x4xf32>, %v: tensor<6x4x4xf32>, %p: tensor<2x1x1x4xi1>) -> tensor<6x4x4xf32> {
  %low = train.constant dense<-3.0e38> : tensor<2x3x4x4xf32>
  %pb = train.broadcast %p : tensor<2x1x1x4xi1> -> tensor<2x3x4x4xi1>
  %s3 = train.matmul %q, %k {transB = true} : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  %s = train.reshape %s3 : tensor<6x4x4xf32> -> tensor<2x3x4x4xf32>
  %x = train.select %pb, %low, %s : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
  %w = train.softmax %x dim = 3 : tensor<2x3x4x4xf32>
  %w3 = train.reshape %w : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %y = train.matmul %w3, %v : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  return %y : tensor<6x4x4xf32>
}

// A mask that is added is a bias, with only the dimensions along which it varies, whatever it was broadcast to before.
// CHECK-LABEL: func @added
// CHECK: %[[B:.*]] = train.select {{.*}} : tensor<2x4xi1>, tensor<2x4xf32>
// CHECK: %[[B4:.*]] = train.reshape %[[B]] : tensor<2x4xf32> -> tensor<2x1x1x4xf32>
// CHECK: train.attention %{{[0-9]+}}, %{{[0-9]+}}, %{{[0-9]+}}, %[[B4]] {
func.func @added(%q: tensor<6x4x4xf32>, %k: tensor<6x4x4xf32>, %v: tensor<6x4x4xf32>, %p: tensor<2x4xi1>) -> tensor<6x4x4xf32> {
  %low = train.constant dense<-1.0e4> : tensor<2x4xf32>
  %zero = train.constant dense<0.0> : tensor<2x4xf32>
  %b = train.select %p, %zero, %low : tensor<2x4xi1>, tensor<2x4xf32>
  %b4 = train.reshape %b : tensor<2x4xf32> -> tensor<2x1x1x4xf32>
  %bb = train.broadcast %b4 : tensor<2x1x1x4xf32> -> tensor<2x3x4x4xf32>
  %s3 = train.matmul %q, %k {transB = true} : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  %s = train.reshape %s3 : tensor<6x4x4xf32> -> tensor<2x3x4x4xf32>
  %x = train.add %s, %bb : tensor<2x3x4x4xf32>
  %w = train.softmax %x dim = 3 : tensor<2x3x4x4xf32>
  %w3 = train.reshape %w : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %y = train.matmul %w3, %v : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  return %y : tensor<6x4x4xf32>
}

// A soft cap, then a bias for each head, a window of two keys behind each query; a select guards rows without a key.
// CHECK-LABEL: func @window
// CHECK-DAG: %[[W:.*]] = train.compare ge {{.*}} -> tensor<1x1x4x4xi1>
// CHECK-DAG: %[[B:.*]] = train.reshape %{{.*}} : tensor<3x4x4xf32> -> tensor<1x3x4x4xf32>
// CHECK: train.attention {{.*}}, %[[B]], %[[W]] {causal = true, {{.*}}scale = 1.250000e+00 : f64, softcap = 5.000000e+00 : f64}
func.func @window(%q: tensor<6x4x4xf32>, %k: tensor<6x4x4xf32>, %v: tensor<6x4x4xf32>, %b: tensor<3x4x4xf32>) -> tensor<6x4x4xf32> {
  %low = train.constant dense<0xFF800000> : tensor<2x3x4x4xf32>
  %lows = train.constant dense<0xFF800000> : tensor<2x3x4x1xf32>
  %zero = train.constant dense<0.0> : tensor<2x3x4x4xf32>
  %cap = train.constant dense<5.0> : tensor<2x3x4x4xf32>
  %inner = train.constant dense<0.25> : tensor<2x3x4x4xf32>
  %i = train.iota dim = 2 : tensor<2x3x4x4xi64>
  %j = train.iota dim = 3 : tensor<2x3x4x4xi64>
  %two = train.constant dense<2> : tensor<2x3x4x4xi64>
  %d = train.sub %i, %j : tensor<2x3x4x4xi64>
  %none = train.constant dense<0> : tensor<2x3x4x4xi64>
  %near = train.compare lt %d, %two : tensor<2x3x4x4xi64> -> tensor<2x3x4x4xi1>
  %past = train.compare ge %d, %none : tensor<2x3x4x4xi64> -> tensor<2x3x4x4xi1>
  %keep = train.and %near, %past : tensor<2x3x4x4xi1>
  %bb = train.broadcast %b : tensor<3x4x4xf32> -> tensor<2x3x4x4xf32>
  %s3 = train.matmul %q, %k {transB = true} : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  %s = train.reshape %s3 : tensor<6x4x4xf32> -> tensor<2x3x4x4xf32>
  %c0 = train.mul %s, %inner : tensor<2x3x4x4xf32>
  %c1 = train.tanh %c0 : tensor<2x3x4x4xf32>
  %c2 = train.mul %c1, %cap : tensor<2x3x4x4xf32>
  %biased = train.add %c2, %bb : tensor<2x3x4x4xf32>
  %x = train.select %keep, %biased, %low : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
  %most = train.reduce max %x [3] : tensor<2x3x4x4xf32> -> tensor<2x3x4x1xf32>
  %isLow = train.compare eq %most, %lows : tensor<2x3x4x1xf32> -> tensor<2x3x4x1xi1>
  %empty = train.broadcast %isLow : tensor<2x3x4x1xi1> -> tensor<2x3x4x4xi1>
  %guarded = train.select %empty, %zero, %x : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
  %w0 = train.softmax %guarded dim = 3 : tensor<2x3x4x4xf32>
  %w = train.select %empty, %zero, %w0 : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
  %w3 = train.reshape %w : tensor<2x3x4x4xf32> -> tensor<6x4x4xf32>
  %y = train.matmul %w3, %v : (tensor<6x4x4xf32>, tensor<6x4x4xf32>) -> tensor<6x4x4xf32>
  return %y : tensor<6x4x4xf32>
}

// Windows of an image: each window has a mask, each head a bias. Windows count as heads, since repeating the bias for 2
// windows takes less memory than repeating the mask for 3 samples.
// CHECK-LABEL: func @windows
// CHECK: train.attention {{.*}} : (tensor<3x10x4x8xf32>, tensor<3x10x4x8xf32>, tensor<3x10x4x8xf32>, tensor<1x10x4x4xf32>)
func.func @windows(%q: tensor<30x4x8xf32>, %k: tensor<30x4x8xf32>, %v: tensor<30x4x8xf32>, %m: tensor<2x1x4x4xf32>,
                   %b: tensor<5x4x4xf32>) -> tensor<30x4x8xf32> {
  %s3 = train.matmul %q, %k {transB = true} : (tensor<30x4x8xf32>, tensor<30x4x8xf32>) -> tensor<30x4x4xf32>
  %s = train.reshape %s3 : tensor<30x4x4xf32> -> tensor<6x5x4x4xf32>
  %bb = train.broadcast %b : tensor<5x4x4xf32> -> tensor<6x5x4x4xf32>
  %x0 = train.add %s, %bb : tensor<6x5x4x4xf32>
  %x1 = train.reshape %x0 : tensor<6x5x4x4xf32> -> tensor<3x2x5x4x4xf32>
  %mb = train.broadcast %m : tensor<2x1x4x4xf32> -> tensor<3x2x5x4x4xf32>
  %x2 = train.add %x1, %mb : tensor<3x2x5x4x4xf32>
  %x = train.reshape %x2 : tensor<3x2x5x4x4xf32> -> tensor<6x5x4x4xf32>
  %w = train.softmax %x dim = 3 : tensor<6x5x4x4xf32>
  %w3 = train.reshape %w : tensor<6x5x4x4xf32> -> tensor<30x4x4xf32>
  %y = train.matmul %w3, %v : (tensor<30x4x4xf32>, tensor<30x4x8xf32>) -> tensor<30x4x8xf32>
  return %y : tensor<30x4x8xf32>
}
