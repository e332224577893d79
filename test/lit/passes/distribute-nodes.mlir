// RUN: tcc-opt %s --distribute=bucket-bytes=1000 | FileCheck %s
// RUN: tcc-opt %s --distribute=bucket-bytes=40 | FileCheck %s --check-prefix=SMALL

// A bucket that was summed in a node is summed across nodes as one bucket, too. The sum over all ranks does not belong to it.
// CHECK-LABEL: func.func @step
// CHECK: %[[NODE:.*]]:2 = train.reduce_scatter(%{{.*}}, %{{.*}}) ranks = 2
// CHECK: %[[SUM:.*]]:2 = train.all_reduce(%[[NODE]]#0, %[[NODE]]#1) {across = 2 : i64}
// CHECK: train.all_reduce(%{{[a-z0-9]+}}) : (tensor<4xf32>)
// CHECK: return %[[SUM]]#0, %[[SUM]]#1
// SMALL-LABEL: func.func @step
// SMALL-COUNT-2: train.all_reduce({{%[0-9a-z]+}}) {across = 2 : i64}
func.func @step(%x: tensor<8xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) attributes {train.entry = "step"} {
  %a = train.exp %x : tensor<8xf32>
  %as = train.reduce_scatter(%a) ranks = 2 : (tensor<8xf32>) -> tensor<4xf32>
  %aa = train.all_reduce(%as) {across = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = train.neg %a : tensor<8xf32>
  %bs = train.reduce_scatter(%b) ranks = 2 : (tensor<8xf32>) -> tensor<4xf32>
  %ba = train.all_reduce(%bs) {across = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %c = train.abs %y : tensor<4xf32>
  %cs = train.all_reduce(%c) : (tensor<4xf32>) -> tensor<4xf32>
  return %aa, %ba, %cs : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
