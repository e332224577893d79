// RUN: tcc-opt %s --rematerialize="budget-bytes=1572864 offload=auto" | FileCheck %s --check-prefix=STATE
// RUN: tcc-opt %s --rematerialize="budget-bytes=2097152 offload=auto" | FileCheck %s --check-prefix=ROOM
// RUN: tcc-opt %s --rematerialize="offload=state" | FileCheck %s --check-prefix=STATE
// RUN: not tcc-opt %s --rematerialize="budget-bytes=1572864 offload=none" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not tcc-opt %s --rematerialize="budget-bytes=2097152 offload=state host-bytes=1000" 2>&1 | FileCheck %s --check-prefix=SMALL

// Two parameters and their moments have 512 KiB each. On the host, a moment is fetched into memory of the transient arena
// before its update and stored after it: 1 MiB of parameters, and one moment at a time.
// STATE: train.variable @m {{.*}}train.on_host
// STATE: train.variable @n {{.*}}train.on_host
// STATE: func.func @step(%[[V:.*]]: tensor<131072xf32> {{.*}}, %[[M:.*]]: tensor<131072xf32> {{.*}}, %[[W:.*]]: tensor<131072xf32> {{.*}}, %[[N:.*]]: tensor<131072xf32>
// STATE-DAG: %[[FM:.*]] = train.fetch %[[M]]
// STATE-DAG: %[[A:.*]]:2 = train.fused(%[[V]], %[[FM]])
// STATE-DAG: %[[SM:.*]] = train.store %[[A]]#1
// STATE-DAG: %[[FN:.*]] = train.fetch %[[N]]
// STATE-DAG: %[[B:.*]]:2 = train.fused(%[[W]], %[[FN]])
// STATE-DAG: %[[SN:.*]] = train.store %[[B]]#1
// STATE: return %[[A]]#0, %[[SM]], %[[B]]#0, %[[SN]]

// What fits stays on the device, since nothing is cheaper.
// ROOM-NOT: train.on_host
// ROOM-NOT: train.fetch

// NONE: no plan fits into the memory budget of 1.5 MiB (1572864 bytes); the smallest budget that does is 2.0 MiB
// NONE-NOT: on the host
// SMALL: offload.what = "state" keeps 1.0 MiB on the host, more than the 1000 B of --host-memory
module attributes {train.target = "cuda:sm_90"} {
train.variable @v : tensor<131072xf32> {role = "parameter"}
train.variable @m : tensor<131072xf32> {fill = 0.0 : f64, role = "optimizer"}
train.variable @w : tensor<131072xf32> {role = "parameter"}
train.variable @n : tensor<131072xf32> {fill = 0.0 : f64, role = "optimizer"}
func.func @step(%v: tensor<131072xf32> {train.variable = "v"}, %m: tensor<131072xf32> {train.variable = "m"},
                %w: tensor<131072xf32> {train.variable = "w"}, %n: tensor<131072xf32> {train.variable = "n"})
    -> (tensor<131072xf32> {train.variable = "v"}, tensor<131072xf32> {train.variable = "m"},
        tensor<131072xf32> {train.variable = "w"}, tensor<131072xf32> {train.variable = "n"}) attributes {train.entry = "step"} {
  %a:2 = train.fused(%v, %m) : (tensor<131072xf32>, tensor<131072xf32>) -> (tensor<131072xf32>, tensor<131072xf32>) {
  ^bb0(%p: tensor<131072xf32>, %q: tensor<131072xf32>):
    %r = train.add %p, %q : tensor<131072xf32>
    %s = train.exp %q : tensor<131072xf32>
    train.yield %r, %s : tensor<131072xf32>, tensor<131072xf32>
  }
  %b:2 = train.fused(%w, %n) : (tensor<131072xf32>, tensor<131072xf32>) -> (tensor<131072xf32>, tensor<131072xf32>) {
  ^bb0(%p: tensor<131072xf32>, %q: tensor<131072xf32>):
    %r = train.add %p, %q : tensor<131072xf32>
    %s = train.exp %q : tensor<131072xf32>
    train.yield %r, %s : tensor<131072xf32>, tensor<131072xf32>
  }
  return %a#0, %a#1, %b#0, %b#1 : tensor<131072xf32>, tensor<131072xf32>, tensor<131072xf32>, tensor<131072xf32>
}
}
