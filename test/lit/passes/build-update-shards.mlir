// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.momentum=0.9,parallel.mode=grad_op,parallel.ranks=3,train.clip_norm=1" --build-update | FileCheck %s --check-prefix=GRADOP
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.momentum=0.9,parallel.mode=full,parallel.ranks=3" --build-update | FileCheck %s --check-prefix=FULL
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.momentum=0.9,parallel.mode=full,parallel.ranks=3" --build-update --distribute=bucket-bytes=64 | FileCheck %s --check-prefix=NEAR
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.momentum=0.9,parallel.mode=hybrid,parallel.shard_within_node=3,train.clip_norm=1" --build-update | FileCheck %s --check-prefix=HYBRID
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=grad_op,parallel.ranks=3,train.accumulate=2,parallel.accumulators=shards,parallel.reduce_dtype=bf16" --build-update | FileCheck %s --check-prefix=PARTS
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=hybrid,parallel.shard_within_node=3,train.accumulate=2,parallel.accumulators=shards" --build-update | FileCheck %s --check-prefix=NODES

train.variable @w : tensor<2x4xf32> {role = "parameter"}
train.variable @v : tensor<4x8xf32> {role = "parameter"}

// The parameter stays whole; the update computes the rank's own shard, which its state has, too. The norm is that of all shards.
// GRADOP: train.variable @w : tensor<2x4xf32>
// GRADOP: train.variable @"w/momentum_buffer" : tensor<3xf32> {{{.*}}role = "optimizer", train.whole = tensor<2x4xf32>}
// GRADOP: func.func @step(
// GRADOP-SAME: %[[W:[^ ]*]]: tensor<2x4xf32> {train.variable = "w"}
// GRADOP-DAG: train.reduce_scatter(%{{.*}}) ranks = 3 : (tensor<2x4xf32>) -> tensor<3xf32>
// GRADOP-DAG: train.reduce_scatter(%{{.*}}) ranks = 3 : (tensor<4x8xf32>) -> tensor<11xf32>
// GRADOP: %[[SQUARES:.*]] = train.all_reduce(%{{.*}}) : (tensor<f32>) -> tensor<f32>
// GRADOP-NEXT: train.sqrt %[[SQUARES]]
// GRADOP: %[[OWN:.*]] = train.own_shard(%[[W]]) ranks = 3 : (tensor<2x4xf32>) -> tensor<3xf32>
// GRADOP: %[[KEPT:.*]] = train.select %{{.*}}, %{{.*}}, %[[OWN]] : tensor<3xi1>, tensor<3xf32>
// GRADOP: train.all_gather(%[[KEPT]]) ranks = 3 : (tensor<3xf32>) -> tensor<2x4xf32>

// The parameter itself is a shard, which is gathered where the parameter is read.
// FULL: train.variable @w : tensor<3xf32> {{{.*}}train.whole = tensor<2x4xf32>}
// FULL: func.func @step(
// FULL-SAME: %[[W:[^ ]*]]: tensor<3xf32> {train.variable = "w"}
// FULL: train.all_gather(%[[W]]) ranks = 3 : (tensor<3xf32>) -> tensor<2x4xf32>
// FULL-NOT: train.own_shard
// FULL: train.select %{{.*}}, %{{.*}}, %[[W]] : tensor<3xi1>, tensor<3xf32>

// A gradient is summed in the node, and its shard across nodes. The norm sums a node's shards, the loss sums all ranks.
// HYBRID: train.variable @w : tensor<3xf32> {{{.*}}train.whole = tensor<2x4xf32>}
// HYBRID: func.func @step(
// HYBRID: %[[NODE:.*]] = train.reduce_scatter(%{{.*}}) ranks = 3 : (tensor<2x4xf32>) -> tensor<3xf32>
// HYBRID-NEXT: train.all_reduce(%[[NODE]]) {across = 3 : i64} : (tensor<3xf32>) -> tensor<3xf32>
// HYBRID: %[[SQUARES:.*]] = train.all_reduce(%{{.*}}) {within = 3 : i64} : (tensor<f32>) -> tensor<f32>
// HYBRID-NEXT: train.sqrt %[[SQUARES]]

// A rank holds its shard of a window's gradient, to which each micro-batch adds the ranks' sum; the update sums only the loss.
// PARTS: train.variable @"w/gradient" : tensor<3xf32> {{{.*}}role = "accumulator"}
// PARTS: func.func @accumulate_first(
// PARTS: %[[SUM:.*]] = train.reduce_scatter(%{{.*}}) ranks = 3 : (tensor<2x4xbf16>) -> tensor<3xbf16>
// PARTS-NEXT: train.cast %[[SUM]] : tensor<3xbf16> -> tensor<3xf32>
// PARTS: func.func @accumulate_next({{.*}} %[[BEFORE:[^ ]*]]: tensor<3xf32> {train.variable = "w/gradient"}
// PARTS: %[[NEXT:.*]] = train.reduce_scatter(%{{.*}}) ranks = 3 : (tensor<2x4xbf16>) -> tensor<3xbf16>
// PARTS-NEXT: %[[WIDE:.*]] = train.cast %[[NEXT]]
// PARTS: train.add %[[BEFORE]], %[[WIDE]] : tensor<3xf32>
// PARTS: func.func @update(
// PARTS-NOT: train.reduce_scatter

// Nodes add their shards once a window.
// NODES: func.func @accumulate_first(
// NODES-NOT: across
// NODES: func.func @update({{.*}} %[[SHARD:[^ ]*]]: tensor<3xf32> {train.variable = "w/gradient"}
// NODES-NOT: train.reduce_scatter
// NODES: train.all_reduce(%[[SHARD]]) {across = 3 : i64} : (tensor<3xf32>) -> tensor<3xf32>

// Between the readers of w, v is read, which exceeds a bucket: w is gathered twice, v once for its two readers.
// NEAR: func.func @step(
// NEAR-SAME: %[[V:[^ ]*]]: tensor<11xf32> {train.variable = "v"}
// NEAR-SAME: %[[W:[^ ]*]]: tensor<3xf32> {train.variable = "w"}
// NEAR: %[[FIRST:.*]] = train.all_gather(%[[W]]) ranks = 3 {train.gather = 0 : i64}
// NEAR-NEXT: train.exp %[[FIRST]]
// NEAR-NEXT: %[[ONCE:.*]] = train.all_gather(%[[V]]) ranks = 3 {train.gather = 0 : i64}
// NEAR-NEXT: train.exp %[[ONCE]]
// NEAR-NEXT: train.neg %[[ONCE]]
// NEAR-NEXT: %[[AGAIN:.*]] = train.all_gather(%[[W]]) ranks = 3 {train.gather = 1 : i64}
// NEAR-NEXT: train.neg %[[AGAIN]]

func.func @backward(%x: tensor<f32> {train.name = "x", train.sample_axis = -1 : i64})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"},
        tensor<2x4xf32> {train.gradient_of = "w"}, tensor<4x8xf32> {train.gradient_of = "v"}) {
  %v = train.read @v : tensor<4x8xf32>
  %w = train.read @w : tensor<2x4xf32>
  %0 = train.exp %w : tensor<2x4xf32>
  %1 = train.exp %v : tensor<4x8xf32>
  %2 = train.neg %v : tensor<4x8xf32>
  %3 = train.neg %w : tensor<2x4xf32>
  %4 = train.add %0, %3 : tensor<2x4xf32>
  %5 = train.add %1, %2 : tensor<4x8xf32>
  return %x, %x, %4, %5 : tensor<f32>, tensor<f32>, tensor<2x4xf32>, tensor<4x8xf32>
}
