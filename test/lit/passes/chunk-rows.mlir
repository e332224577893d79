// RUN: tcc-opt %s --chunk-rows="max-bytes=2048 min-rows=1" | FileCheck %s
// RUN: tcc-opt %s --chunk-rows="max-bytes=0" | FileCheck %s --check-prefix=OFF
// RUN: tcc-opt %s --chunk-rows="max-bytes=2048 min-rows=8" | FileCheck %s --check-prefix=FEW
// OFF-NOT: train.slice
// FEW-LABEL: func.func @step
// FEW-NOT: train.slice

// Notes say what is chunked and what is not, with the reader of a stored value; they omit products whose rows nothing reduces.
// CHECK: train.notes = [{kind = "chunked", subject = "head", text = "computed with its row-wise users in 4 chunks of 2 rows: 0.0 MiB never stored whole"}
// CHECK-SAME: {kind = "stored", subject = "head", text = "0.0 MiB stored whole: read by a result of the entry"}
// CHECK-SAME: {kind = "stored", subject = "head", text = "0.0 MiB stored whole: spread needs all rows at once, through whole"}
// CHECK-SAME: {kind = "stored", subject = "tied", text = "0.0 MiB stored whole: chunks would save little, since a gradient that is added up over them waits for another"}
// CHECK-SAME: {kind = "chunked", subject = "narrow", text = "computed with its row-wise users in 2 chunks of 4 rows: 0.0 MiB never stored whole"}]

// 8 rows of 256 scores: the logits take 8192 bytes. The loss reads two numbers of each row; two products and a sum over the
// rows contract the gradient, and each chunk adds to their results.
// CHECK-LABEL: func.func @step
// CHECK-SAME: (%[[X:.*]]: tensor<1x8x4xf32>, %[[W:.*]]: tensor<1x256x4xf32>, %[[B:.*]]: tensor<256xf32>, %[[T:.*]]: tensor<2x4x1xi64>)
func.func @step(%x: tensor<1x8x4xf32>, %w: tensor<1x256x4xf32>, %b: tensor<256xf32>, %t: tensor<2x4x1xi64>)
    -> (tensor<2x4x1xf32> {train.name = "loss"}, tensor<1x8x4xf32> {train.name = "gradient:x"},
        tensor<1x256x4xf32> {train.name = "gradient:w"}, tensor<1x1x256xf32> {train.name = "gradient:b"}) attributes {train.entry = "gradients"} {
  // CHECK-NOT: 8x256xf32
  // CHECK-NOT: 2x4x256xf32
  %zero = train.constant dense<0.0> : tensor<2x4x256xf32>
  %one = train.constant dense<1.0> : tensor<2x4x1xf32>
  // CHECK: %[[X0:.*]] = train.slice %[[X]] starts [0, 0, 0] steps [1, 1, 1] : tensor<1x8x4xf32> -> tensor<1x2x4xf32>
  // CHECK: %[[L0:.*]] = train.matmul %[[X0]], %[[W]] {transB = true} : (tensor<1x2x4xf32>, tensor<1x256x4xf32>) -> tensor<1x2x256xf32>
  %product = train.matmul %x, %w {transB = true} : (tensor<1x8x4xf32>, tensor<1x256x4xf32>) -> tensor<1x8x256xf32> loc("head")
  %shaped = train.reshape %product : tensor<1x8x256xf32> -> tensor<2x4x256xf32>
  %bias = train.broadcast %b : tensor<256xf32> -> tensor<2x4x256xf32>
  %l = train.add %shaped, %bias : tensor<2x4x256xf32>
  // CHECK: train.reduce sum %{{.*}} [2] : tensor<1x2x256xf32> -> tensor<1x2x1xf32>
  %e = train.exp %l : tensor<2x4x256xf32>
  %s = train.reduce sum %e [2] : tensor<2x4x256xf32> -> tensor<2x4x1xf32>
  %lse = train.log %s : tensor<2x4x1xf32>
  // CHECK: train.slice %{{.*}} starts [0, 0, 0] {{.*}} : tensor<1x8x1xi64> -> tensor<1x2x1xi64>
  %p = train.pick %l, %t dim = 2 : (tensor<2x4x256xf32>, tensor<2x4x1xi64>) -> tensor<2x4x1xf32>
  %loss = train.sub %lse, %p : tensor<2x4x1xf32>
  // Each chunk makes its own one-hot vectors.
  // CHECK: train.iota dim = 2 : tensor<1x2x256xi64>
  %i = train.iota dim = 2 : tensor<2x4x256xi64>
  %at = train.broadcast %t : tensor<2x4x1xi64> -> tensor<2x4x256xi64>
  %hot = train.compare eq %i, %at : tensor<2x4x256xi64> -> tensor<2x4x256xi1>
  %ones = train.broadcast %one : tensor<2x4x1xf32> -> tensor<2x4x256xf32>
  %h = train.select %hot, %ones, %zero : tensor<2x4x256xi1>, tensor<2x4x256xf32>
  %lses = train.broadcast %lse : tensor<2x4x1xf32> -> tensor<2x4x256xf32>
  %d = train.sub %l, %lses : tensor<2x4x256xf32>
  %soft = train.exp %d : tensor<2x4x256xf32>
  %dl = train.sub %soft, %h : tensor<2x4x256xf32>
  %g = train.reshape %dl : tensor<2x4x256xf32> -> tensor<1x8x256xf32>
  // CHECK: %[[DX0:.*]] = train.matmul %{{.*}}, %[[W]] : (tensor<1x2x256xf32>, tensor<1x256x4xf32>) -> tensor<1x2x4xf32>
  // CHECK: %[[DW0:.*]] = train.matmul %{{.*}}, %[[X0]] {transA = true}
  // CHECK: %[[DB0:.*]] = train.reduce sum %{{.*}} [0, 1] : tensor<1x2x256xf32> -> tensor<1x1x256xf32>
  // CHECK: %[[X1:.*]] = train.slice %[[X]] starts [0, 2, 0]
  // CHECK: %[[DW1:.*]] = train.matmul %{{.*}}, %[[X1]] add %[[DW0]] {transA = true}
  // CHECK: train.add %[[DB0]], %{{.*}} : tensor<1x1x256xf32>
  // CHECK: %[[X3:.*]] = train.slice %[[X]] starts [0, 6, 0]
  // CHECK: %[[DW3:.*]] = train.matmul %{{.*}}, %[[X3]] add %{{.*}} {transA = true}
  %dx = train.matmul %g, %w : (tensor<1x8x256xf32>, tensor<1x256x4xf32>) -> tensor<1x8x4xf32>
  %dw = train.matmul %g, %x {transA = true} : (tensor<1x8x256xf32>, tensor<1x8x4xf32>) -> tensor<1x256x4xf32>
  %db = train.reduce sum %dl [0, 1] : tensor<2x4x256xf32> -> tensor<1x1x256xf32>
  // The rows' numbers are joined; a computation that needs all of them runs once, behind the chunks.
  // CHECK: %[[DX:.*]] = train.concat dim = 1 %[[DX0]], {{.*}} -> tensor<1x8x4xf32>
  // CHECK: return %{{.*}}, %[[DX]], %[[DW3]], %{{.*}} : tensor<2x4x1xf32>
  return %loss, %dx, %dw, %db : tensor<2x4x1xf32>, tensor<1x8x4xf32>, tensor<1x256x4xf32>, tensor<1x1x256xf32>
}

// Another op reads the logits.
// CHECK-LABEL: func.func @read
func.func @read(%x: tensor<1x8x4xf32>, %w: tensor<1x256x4xf32>)
    -> (tensor<1x8x256xf32> {train.name = "logits"}, tensor<1x8x1xf32> {train.name = "most"}) attributes {train.entry = "predict"} {
  // CHECK-NEXT: train.matmul %{{.*}} -> tensor<1x8x256xf32>
  %l = train.matmul %x, %w {transB = true} : (tensor<1x8x4xf32>, tensor<1x256x4xf32>) -> tensor<1x8x256xf32> loc("head")
  %m = train.reduce max %l [2] : tensor<1x8x256xf32> -> tensor<1x8x1xf32>
  return %l, %m : tensor<1x8x256xf32>, tensor<1x8x1xf32>
}

// Each row reads a number that is computed from all rows.
// CHECK-LABEL: func.func @circle
func.func @circle(%x: tensor<1x8x4xf32>, %w: tensor<1x256x4xf32>) -> (tensor<1x8x1xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  // CHECK-NEXT: train.matmul %{{.*}} -> tensor<1x8x256xf32>
  %l = train.matmul %x, %w {transB = true} : (tensor<1x8x4xf32>, tensor<1x256x4xf32>) -> tensor<1x8x256xf32> loc("head")
  %m = train.reduce max %l [2] : tensor<1x8x256xf32> -> tensor<1x8x1xf32>
  %a = train.reduce max %m [1] : tensor<1x8x1xf32> -> tensor<1x1x1xf32> loc("whole")
  %as = train.broadcast %a : tensor<1x1x1xf32> -> tensor<1x8x256xf32> loc("spread")
  %d = train.sub %l, %as : tensor<1x8x256xf32>
  %e = train.exp %d : tensor<1x8x256xf32>
  %s = train.reduce sum %e [2] : tensor<1x8x256xf32> -> tensor<1x8x1xf32>
  return %s : tensor<1x8x1xf32>
}

// The weight's gradient is as large as the logits, and is needed only after the other gradient: chunks would begin it early.
// CHECK-LABEL: func.func @waits
func.func @waits(%x: tensor<1x8x8xf32>, %w: tensor<1x256x8xf32>) -> (tensor<1x256x8xf32> {train.name = "gradient:w"}) attributes {train.entry = "gradients"} {
  // CHECK-NEXT: train.matmul %{{.*}} -> tensor<1x8x256xf32>
  %l = train.matmul %x, %w {transB = true} : (tensor<1x8x8xf32>, tensor<1x256x8xf32>) -> tensor<1x8x256xf32> loc("tied")
  %m = train.reduce max %l [2] : tensor<1x8x256xf32> -> tensor<1x8x1xf32>
  %ms = train.broadcast %m : tensor<1x8x1xf32> -> tensor<1x8x256xf32>
  %d = train.sub %l, %ms : tensor<1x8x256xf32>
  %dx = train.matmul %d, %w : (tensor<1x8x256xf32>, tensor<1x256x8xf32>) -> tensor<1x8x8xf32>
  %dw = train.matmul %d, %x {transA = true} : (tensor<1x8x256xf32>, tensor<1x8x8xf32>) -> tensor<1x256x8xf32>
  %s = train.reduce sum %dx [1] : tensor<1x8x8xf32> -> tensor<1x1x8xf32>
  %ss = train.broadcast %s : tensor<1x1x8xf32> -> tensor<1x256x8xf32>
  %g = train.add %dw, %ss : tensor<1x256x8xf32>
  return %g : tensor<1x256x8xf32>
}

// A matrix in 4 bits costs a chunk less to read: half as many rows are enough.
// CHECK-LABEL: func.func @narrow
// FEW-LABEL: func.func @narrow
// FEW: train.matmul {{.*}} -> tensor<1x4x256xbf16>
// FEW: train.matmul {{.*}} -> tensor<1x4x256xbf16>
func.func @narrow(%x: tensor<1x8x4xbf16>, %q: tensor<512xui8> {train.variable = "w"}, %s: tensor<16xf32> {train.variable = "w/absmax"})
    -> (tensor<1x8x1xf32> {train.name = "most"}) attributes {train.entry = "gradients"} {
  %u = train.unpack nf4 %q, %s block = 64 shape = [256, 4] strides = [4, 1] : (tensor<512xui8>, tensor<16xf32>) -> tensor<256x4xf32>
  %n = train.cast %u : tensor<256x4xf32> -> tensor<256x4xbf16>
  %w = train.reshape %n : tensor<256x4xbf16> -> tensor<1x256x4xbf16>
  %l = train.matmul %x, %w {transB = true} : (tensor<1x8x4xbf16>, tensor<1x256x4xbf16>) -> tensor<1x8x256xbf16> loc("narrow")
  %f = train.cast %l : tensor<1x8x256xbf16> -> tensor<1x8x256xf32>
  %m = train.reduce max %f [2] : tensor<1x8x256xf32> -> tensor<1x8x1xf32>
  return %m : tensor<1x8x1xf32>
}
