// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=fc,adapter.rank=2,adapter.alpha=4" --add-adapters --split-input-file | FileCheck %s
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=fc,adapter.rank=2,adapter.alpha=4,adapter.train=norm,adapter.base=bf16" --add-adapters --split-input-file | FileCheck %s --check-prefix=BF16
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=fc,adapter.rank=2,adapter.alpha=4,adapter.dropout=0.25" --add-adapters --split-input-file | FileCheck %s --check-prefix=DROP
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=['fc','table'],adapter.rank=2,adapter.base=int8" --add-adapters --split-input-file | FileCheck %s --check-prefix=INT8
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=['fc','table'],adapter.rank=2,adapter.base=nf4,adapter.block=32" --add-adapters --split-input-file | FileCheck %s --check-prefix=NF4
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=['fc','table'],adapter.rank=2,adapter.base=nf4,adapter.nested=true" --add-adapters --split-input-file | FileCheck %s --check-prefix=NESTED
// RUN: tcc-opt %s --set-recipe="settings=adapter.targets=['fc','table'],adapter.rank=2,adapter.base=int4,adapter.block=32" --add-adapters --split-input-file | FileCheck %s --check-prefix=INT4
// RUN: not tcc-opt %s --set-recipe="settings=adapter.targets=norm,adapter.rank=2" --add-adapters --split-input-file 2>&1 | FileCheck %s --check-prefix=VECTOR
// RUN: not tcc-opt %s --set-recipe="settings=adapter.targets=fd,adapter.rank=2" --add-adapters --split-input-file 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not tcc-opt %s --set-recipe="settings=adapter.targets=fc,adapter.rank=4" --add-adapters --split-input-file 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not tcc-opt %s --set-recipe="settings=adapter.targets=fc,adapter.rank=2,adapter.train=fc.weight" --add-adapters --split-input-file 2>&1 | FileCheck %s --check-prefix=BOTH

// VECTOR: adapter.targets: "norm" matches `norm`, which is read by broadcast: only a matrix that products alone read, a filter that convolutions alone read, or a table that lookups alone read can be adapted; there are table, fc
// NONE: adapter.targets: "fd" matches no matrix, filter or table that can be adapted; there are table, fc
// RANK: adapter.rank: 4 is more than `fc.weight`, a matrix of 3 inputs and 4 results, has; give a smaller rank
// BOTH: adapter.train: `fc.weight` is adapted, so that it is frozen itself

// x·Aᵀ, then ·Bᵀ, scaled by 4/2; the whole base is frozen.
// CHECK: train.adapters = [{a = "fc.lora_A.weight", b = "fc.lora_B.weight", input_first = false, not_peft = "", of = "fc.weight"}]
// CHECK: train.variable @fc.weight : tensor<4x3xf32> {role = "frozen"}
// CHECK: train.variable @norm : tensor<1x1x4xf32> {role = "frozen"}
// CHECK: train.variable @fc.lora_A.weight : tensor<2x3xf32> {role = "parameter", value = dense<{{.*}}> : tensor<2x3xf32>}
// CHECK: train.variable @fc.lora_B.weight : tensor<4x2xf32> {fill = 0.000000e+00 : f64, role = "parameter"}
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x8x3xf32>
// CHECK-DAG: %[[A:.*]] = train.read @fc.lora_A.weight
// CHECK-DAG: %[[B:.*]] = train.read @fc.lora_B.weight
// CHECK: %[[Y:.*]] = train.matmul %[[X]], %{{.*}} {transB = true}
// CHECK-DAG: %[[A3:.*]] = train.reshape %[[A]] : tensor<2x3xf32> -> tensor<1x2x3xf32>
// CHECK-DAG: %[[B3:.*]] = train.reshape %[[B]] : tensor<4x2xf32> -> tensor<1x4x2xf32>
// CHECK: %[[U:.*]] = train.matmul %[[X]], %[[A3]] {transB = true} : {{.*}} -> tensor<1x8x2xf32>
// CHECK: %[[V:.*]] = train.matmul %[[U]], %[[B3]] {transB = true} : {{.*}} -> tensor<1x8x4xf32>
// CHECK: train.constant dense<2.000000e+00>
// CHECK: %[[S:.*]] = train.mul %[[V]]
// CHECK: %[[Z:.*]] = train.add %[[Y]], %[[S]]
// CHECK: train.mul %[[Z]]

// The tensors that adapter.train names are trained; frozen matrices are kept in bf16 and widened where they are read.
// BF16: train.variable @table : tensor<5x3xbf16> {role = "frozen"}
// BF16: train.variable @fc.weight : tensor<4x3xbf16> {role = "frozen"}
// BF16: train.variable @norm : tensor<1x1x4xf32> {role = "parameter"}
// BF16: train.variable @fc.lora_A.weight : tensor<2x3xf32>
// BF16: %[[W:.*]] = train.read @fc.weight : tensor<4x3xbf16>
// BF16: train.cast %[[W]] : tensor<4x3xbf16> -> tensor<4x3xf32>

// Codes of 4 bits and a scale for each block of the matrix as torch stores it. A lookup unpacks the rows that it takes. Rows
// of INT4 are padded to whole blocks, which makes these small tensors no smaller.
// NF4: train.variable @table : tensor<8xui8> {role = "frozen", train.four_bits = {block = 32 : i64, code = "nf4", dims = array<i64: 5, 3>, strides = array<i64: 3, 1>}, train.scale = "table/absmax"}
// NF4: train.variable @"table/absmax" : tensor<1xf32> {role = "constant"}
// NF4: train.variable @fc.weight : tensor<6xui8> {role = "frozen", train.four_bits = {block = 32 : i64, code = "nf4", dims = array<i64: 4, 3>, strides = array<i64: 3, 1>}, train.scale = "fc.weight/absmax"}
// NF4: %[[T:.*]] = train.read @table : tensor<8xui8>
// NF4: train.unpack nf4 %[[T]], %{{.*}} at %arg1 block = 32 shape = [5, 3] strides = [3, 1] : (tensor<8xui8>, tensor<1xf32>, tensor<8xi64>) -> tensor<8x3xf32>
// NF4: %[[W:.*]] = train.read @fc.weight : tensor<6xui8>
// NF4: train.unpack nf4 %[[W]], %{{.*}} block = 32 shape = [4, 3] strides = [3, 1] : (tensor<6xui8>, tensor<1xf32>) -> tensor<4x3xf32>
// INT4: train.variable @table : tensor<5x3xf32>
// Nested scales are codes; their mean and magnitudes are one more variable.
// NESTED: train.variable @fc.weight : tensor<6xui8> {{.*}}train.nested_scale = "fc.weight/nested_absmax", train.scale = "fc.weight/absmax"
// NESTED: train.variable @"fc.weight/absmax" : tensor<1xui8> {role = "constant"}
// NESTED: train.variable @"fc.weight/nested_absmax" : tensor<2xf32> {role = "constant"}
// NESTED: %[[N:.*]] = train.read @"table/nested_absmax" : tensor<2xf32>
// NESTED: %[[M:.*]] = train.constant dense<{{.*}}> : tensor<256xf32>
// NESTED: train.unpack nf4 %{{.*}}, %{{.*}} nested %[[N]] by %[[M]] at %arg1 block = 64

// Integers of 8 bits, and a scale for each row of a table and each feature of a product's result. A lookup takes rows of the
// integers, of the scales and of a table of `rank` columns; other readers read integers times scales.
// INT8: train.variable @table : tensor<5x3xi8> {role = "frozen", train.scale = "table/scale"}
// INT8: train.variable @"table/scale" : tensor<5x1xf32> {role = "constant"}
// INT8: train.variable @fc.weight : tensor<4x3xi8> {role = "frozen", train.scale = "fc.weight/scale"}
// INT8: train.variable @"fc.weight/scale" : tensor<4x1xf32> {role = "constant"}
// INT8: train.variable @norm : tensor<1x1x4xf32> {role = "frozen"}
// INT8: train.variable @table.lora_embedding_A : tensor<2x5xf32> {fill = 0.000000e+00 : f64, role = "parameter"}
// INT8: train.variable @table.lora_embedding_B : tensor<3x2xf32> {role = "parameter", value = dense<{{.*}}> : tensor<3x2xf32>}
// INT8: %[[T:.*]] = train.read @table : tensor<5x3xi8>
// INT8: %[[R:.*]] = train.gather %[[T]], %arg1 axis = 0 : (tensor<5x3xi8>, tensor<8xi64>) -> tensor<8x3xi8>
// INT8: %[[RF:.*]] = train.cast %[[R]]
// INT8: %[[RS:.*]] = train.gather %{{.*}}, %arg1 axis = 0 : (tensor<5x1xf32>, tensor<8xi64>) -> tensor<8x1xf32>
// INT8: %[[RB:.*]] = train.broadcast %[[RS]]
// INT8: %[[ROWS:.*]] = train.mul %[[RF]], %[[RB]]
// INT8: %[[EA:.*]] = train.gather %{{.*}}, %arg1 axis = 0 : (tensor<5x2xf32>, tensor<8xi64>) -> tensor<8x2xf32>
// INT8: train.matmul {{.*}} {transB = true} : (tensor<1x8x2xf32>, tensor<1x3x2xf32>) -> tensor<1x8x3xf32>
// INT8: %[[W:.*]] = train.read @fc.weight : tensor<4x3xi8>
// INT8: %[[S:.*]] = train.read @"fc.weight/scale"
// INT8: %[[F:.*]] = train.cast %[[W]] : tensor<4x3xi8> -> tensor<4x3xf32>
// INT8: train.mul %[[F]]

// DROP: %[[K:.*]] = train.random_key
// DROP: %[[D:[a-z0-9]*]], %{{.*}} = train.dropout %arg0, %[[K]]
// DROP: train.matmul %[[D]]
train.variable @table : tensor<5x3xf32> {role = "parameter"}
train.variable @fc.weight : tensor<4x3xf32> {role = "parameter"}
train.variable @norm : tensor<1x1x4xf32> {role = "parameter"}
func.func @forward(%x: tensor<1x8x3xf32>, %ids: tensor<8xi64>) -> (tensor<1x8x4xf32>, tensor<8x3xf32>) {
  %t = train.read @table : tensor<5x3xf32>
  %e = train.gather %t, %ids axis = 0 : (tensor<5x3xf32>, tensor<8xi64>) -> tensor<8x3xf32> loc("look")
  %w = train.read @fc.weight : tensor<4x3xf32>
  %0 = train.reshape %w : tensor<4x3xf32> -> tensor<1x4x3xf32>
  %y = train.matmul %x, %0 {transB = true} : (tensor<1x8x3xf32>, tensor<1x4x3xf32>) -> tensor<1x8x4xf32>
  %n = train.read @norm : tensor<1x1x4xf32>
  %1 = train.broadcast %n : tensor<1x1x4xf32> -> tensor<1x8x4xf32>
  %z = train.mul %y, %1 : tensor<1x8x4xf32>
  return %z, %e : tensor<1x8x4xf32>, tensor<8x3xf32>
}

// -----

// The weight is read transposed, as the left operand, in 16 bits, and by two products: one adapter, in f32, serves both.
// CHECK: train.adapters = [{a = "fc.lora_A.weight", b = "fc.lora_B.weight", input_first = true, not_peft = "", of = "fc.weight"}]
// CHECK: train.variable @fc.lora_A.weight : tensor<2x3xf32>
// CHECK: train.variable @fc.lora_B.weight : tensor<4x2xf32>
// CHECK: train.matmul {{.*}} -> tensor<1x4x8xf16>
// CHECK: %[[X:.*]] = train.cast %{{.*}} : tensor<1x3x8xf16> -> tensor<1x3x8xf32>
// CHECK: %[[U:.*]] = train.matmul %{{.*}}, %[[X]] : (tensor<1x2x3xf32>, tensor<1x3x8xf32>) -> tensor<1x2x8xf32>
// CHECK: %[[V:.*]] = train.matmul %{{.*}}, %[[U]] : (tensor<1x4x2xf32>, tensor<1x2x8xf32>) -> tensor<1x4x8xf32>
// CHECK: train.add
// CHECK: train.cast %{{.*}} : tensor<1x4x8xf32> -> tensor<1x4x8xf16>
// CHECK: train.matmul {{.*}} -> tensor<1x4x8xf16>
// CHECK-COUNT-2: train.matmul {{.*}}f32
train.variable @norm : tensor<4xf32> {role = "parameter"}
train.variable @fc.weight : tensor<3x4xf16> {role = "parameter"}
train.variable @table : tensor<4x4xf32> {role = "parameter"}
func.func @forward(%x: tensor<1x3x8xf16>, %i: tensor<2xi64>) -> (tensor<1x4x8xf16>, tensor<2x4xf32>) {
  %t = train.read @table : tensor<4x4xf32>
  %e = train.gather %t, %i axis = 0 : (tensor<4x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  %w = train.read @fc.weight : tensor<3x4xf16>
  %0 = train.transpose %w [1, 0] : tensor<3x4xf16> -> tensor<4x3xf16>
  %1 = train.reshape %0 : tensor<4x3xf16> -> tensor<1x4x3xf16>
  %y = train.matmul %1, %x : (tensor<1x4x3xf16>, tensor<1x3x8xf16>) -> tensor<1x4x8xf16>
  %z = train.matmul %1, %x : (tensor<1x4x3xf16>, tensor<1x3x8xf16>) -> tensor<1x4x8xf16>
  %s = train.add %y, %z : tensor<1x4x8xf16>
  return %s, %e : tensor<1x4x8xf16>, tensor<2x4xf32>
}

// -----

// The adapter of a filter: a convolution like the filter's, but to `rank` channels, then a 1x1 convolution.
// CHECK: train.adapters = [{a = "fc.lora_A.weight", b = "fc.lora_B.weight", input_first = false, not_peft = "its lora_A has no dilation", of = "fc.weight"}]
// CHECK: train.variable @fc.lora_A.weight : tensor<2x3x3x3xf32> {role = "parameter", value = dense<{{.*}}> : tensor<2x3x3x3xf32>}
// CHECK: train.variable @fc.lora_B.weight : tensor<4x2x1x1xf32> {fill = 0.000000e+00 : f64, role = "parameter"}
// CHECK: %[[Y:.*]] = train.conv %arg0, %{{.*}} {dilations = array<i64: 2, 2>, padsBegin = array<i64: 2, 1>
// CHECK: %[[U:.*]] = train.conv %arg0, %{{.*}} {dilations = array<i64: 2, 2>, padsBegin = array<i64: 2, 1>, padsEnd = array<i64: 2, 1>, strides = array<i64: 2, 1>} : (tensor<1x3x8x8xf32>, tensor<2x3x3x3xf32>) -> tensor<1x2x4x6xf32>
// CHECK: %[[V:.*]] = train.conv %[[U]], %{{.*}} : (tensor<1x2x4x6xf32>, tensor<4x2x1x1xf32>) -> tensor<1x4x4x6xf32>
// CHECK: train.mul %[[V]]
// CHECK: train.add %[[Y]]
// INT8: train.variable @"fc.weight/scale" : tensor<4x1x1x1xf32> {role = "constant"}
train.variable @norm : tensor<4xf32> {role = "parameter"}
train.variable @table : tensor<4x4xf32> {role = "parameter"}
train.variable @fc.weight : tensor<4x3x3x3xf32> {role = "parameter"}
func.func @forward(%x: tensor<1x3x8x8xf32>, %i: tensor<2xi64>) -> (tensor<1x4x4x6xf32>, tensor<2x4xf32>) {
  %w = train.read @fc.weight : tensor<4x3x3x3xf32>
  %y = train.conv %x, %w {dilations = array<i64: 2, 2>, padsBegin = array<i64: 2, 1>, padsEnd = array<i64: 2, 1>, strides = array<i64: 2, 1>} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x6xf32>
  %t = train.read @table : tensor<4x4xf32>
  %e = train.gather %t, %i axis = 0 : (tensor<4x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  return %y, %e : tensor<1x4x4x6xf32>, tensor<2x4xf32>
}

// -----

// A matrix that the file stores in 4 bits is adapted behind its unpacking; its bytes stay as they are, whatever adapter.base.
// CHECK: train.adapters = [{a = "fc.lora_A.weight", b = "fc.lora_B.weight", dims = array<i64: 4, 32>, input_first = false, not_peft = "", of = "fc.weight"}]
// CHECK: train.variable @fc.weight : tensor<4x1x16xui8> {role = "frozen"}
// CHECK: train.variable @fc.lora_A.weight : tensor<2x32xf32>
// CHECK: train.variable @fc.lora_B.weight : tensor<4x2xf32>
// CHECK: %[[Y:.*]] = train.matmul %arg0, %{{.*}} {transB = true} : (tensor<1x8x32xf32>, tensor<1x4x32xf32>)
// CHECK: train.add %[[Y]]
// NF4: train.variable @fc.weight : tensor<4x1x16xui8> {role = "frozen"}
train.variable @norm : tensor<4xf32> {role = "parameter"}
train.variable @table : tensor<4x4xf32> {role = "parameter"}
train.variable @fc.weight : tensor<4x1x16xui8> {role = "frozen"}
func.func @forward(%x: tensor<1x8x32xf32>, %i: tensor<2xi64>) -> (tensor<1x8x4xf32>, tensor<2x4xf32>) {
  %q = train.read @fc.weight : tensor<4x1x16xui8>
  %b = train.reshape %q : tensor<4x1x16xui8> -> tensor<64xui8>
  %s = train.constant dense<0.5> : tensor<4xf32>
  %w = train.unpack int4 %b, %s block = 0 shape = [4, 32] strides = [32, 1] {blocks = array<i64: 1, 32>, scaleStrides = array<i64: 1, 1>} : (tensor<64xui8>, tensor<4xf32>) -> tensor<4x32xf32>
  %v = train.reshape %w : tensor<4x32xf32> -> tensor<1x4x32xf32>
  %y = train.matmul %x, %v {transB = true} : (tensor<1x8x32xf32>, tensor<1x4x32xf32>) -> tensor<1x8x4xf32>
  %t = train.read @table : tensor<4x4xf32>
  %e = train.gather %t, %i axis = 0 : (tensor<4x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  return %y, %e : tensor<1x8x4xf32>, tensor<2x4xf32>
}
