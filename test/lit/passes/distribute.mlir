// RUN: tcc-opt %s --distribute=bucket-bytes=64 | FileCheck %s
// RUN: tcc-opt %s --distribute=bucket-bytes=1 | FileCheck %s --check-prefix=SINGLE

// Sums are joined where the last operand of their bucket is complete, in the order of the operands; a bucket ends before it
// would exceed 64 bytes. Ops that read a sum before that place move behind it. bf16 has a bucket of its own.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<8xf32>
// CHECK: %[[A:.*]] = train.exp %[[X]]
// CHECK-NEXT: %[[H:.*]] = train.cast %[[A]]
// CHECK-NEXT: %[[HS:.*]] = train.all_reduce(%[[H]]) : (tensor<8xbf16>) -> tensor<8xbf16>
// CHECK-NEXT: %[[B:.*]] = train.neg %[[A]]
// CHECK-NEXT: %[[S:.*]]:2 = train.all_reduce(%[[A]], %[[B]]) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT: %[[D:.*]] = train.neg %[[S]]#0
// CHECK-NEXT: %[[C:.*]] = train.abs %[[B]]
// CHECK-NEXT: %[[CS:.*]] = train.all_reduce(%[[C]]) : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: return %[[D]], %[[S]]#1, %[[CS]], %[[HS]]

// SINGLE-LABEL: func.func @step
// SINGLE-COUNT-4: train.all_reduce({{%[0-9a-z]+}}) :
func.func @step(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xbf16>) attributes {train.entry = "step"} {
  %a = train.exp %x : tensor<8xf32>
  %as = train.all_reduce(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %d = train.neg %as : tensor<8xf32>
  %h = train.cast %a : tensor<8xf32> -> tensor<8xbf16>
  %hs = train.all_reduce(%h) : (tensor<8xbf16>) -> tensor<8xbf16>
  %b = train.neg %a : tensor<8xf32>
  %bs = train.all_reduce(%b) : (tensor<8xf32>) -> tensor<8xf32>
  %c = train.abs %b : tensor<8xf32>
  %cs = train.all_reduce(%c) : (tensor<8xf32>) -> tensor<8xf32>
  return %d, %bs, %cs, %hs : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xbf16>
}

// Operands of later sums have a bucket of their own: %n, which @awaited's gradient needs, does not wait for %l.
// CHECK-LABEL: func.func @awaited
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<8xf32>, %[[Y:[a-z0-9]+]]: tensor<8xf32>
// CHECK-NEXT: %[[N:.*]] = train.exp %[[Y]]
// CHECK-NEXT: %[[L:.*]] = train.neg %[[X]]
// CHECK-NEXT: %[[M:.*]] = train.abs %[[Y]]
// CHECK-NEXT: %[[NS:.*]]:2 = train.all_reduce(%[[N]], %[[M]])
// CHECK-NEXT: %[[G:.*]] = train.mul %[[X]], %[[NS]]#0
// CHECK-NEXT: %[[GM:.*]] = train.mul %[[G]], %[[NS]]#1
// CHECK-NEXT: %[[S:.*]]:2 = train.all_reduce(%[[L]], %[[GM]])
// CHECK-NEXT: return %[[S]]#0, %[[S]]#1
func.func @awaited(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {train.entry = "step"} {
  %n = train.exp %y : tensor<8xf32>
  %ns = train.all_reduce(%n) : (tensor<8xf32>) -> tensor<8xf32>
  %l = train.neg %x : tensor<8xf32>
  %ls = train.all_reduce(%l) : (tensor<8xf32>) -> tensor<8xf32>
  %m = train.abs %y : tensor<8xf32>
  %ms = train.all_reduce(%m) : (tensor<8xf32>) -> tensor<8xf32>
  %g = train.mul %x, %ns : tensor<8xf32>
  %gm = train.mul %g, %ms : tensor<8xf32>
  %gs = train.all_reduce(%gm) : (tensor<8xf32>) -> tensor<8xf32>
  return %ls, %gs : tensor<8xf32>, tensor<8xf32>
}
