// RUN: tcc-opt %s --rematerialize="budget-bytes=16384" | FileCheck %s
// RUN: tcc-opt %s --rematerialize="budget-bytes=20480" | FileCheck %s --check-prefix=PLENTY
// RUN: not tcc-opt %s --rematerialize="budget-bytes=16383" 2>&1 | FileCheck %s --check-prefix=LITTLE
// RUN: tcc-opt %s --rematerialize="variants=2" | FileCheck %s --check-prefix=VARIANTS
// RUN: tcc-opt %s --rematerialize="extra-time=0.187 least-bytes=16384" | FileCheck %s --check-prefix=TIME
// RUN: tcc-opt %s --rematerialize="extra-time=0.186 least-bytes=16384" | FileCheck %s --check-prefix=DEAR
// RUN: tcc-opt %s --rematerialize="extra-time=0.187 least-bytes=16385" | FileCheck %s --check-prefix=SMALL
// RUN: tcc-opt %s --pass-pipeline="builtin.module(rematerialize{budget-bytes=16384},func.func(plan-memory))" | FileCheck %s --check-prefix=PACKED

// Every tensor has 4096 bytes, and so has the state. If %a is held from its first reader to its last, four are live where %e
// is made: a, c, d, e. If it is made again from the state, three are, there and everywhere: 3 × 4096 + 4096 = 16384. The
// second execution gives only the results that are read.

// CHECK: module attributes {{.*}}train.budget_bytes = 16384
// CHECK: train.fused(%[[W:.*]]) : (tensor<1x32x32xf32>) -> (tensor<1x32x32xf32>, tensor<1x32x32xf32>)
// CHECK: train.matmul
// CHECK: train.matmul
// CHECK: %[[E:.*]] = train.matmul
// CHECK: %[[A:.*]] = train.fused(%[[W]]) {train.recompute} : (tensor<1x32x32xf32>) -> tensor<1x32x32xf32>
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.exp
// CHECK-NEXT: train.yield
// CHECK: train.matmul %[[E]], %[[A]]

// The ladder knows the cost of that, and plan-memory finds the buffers and the cost that the ladder computed: a product
// takes 2000 + 2 × 32³ / 150 = 2436 ns, the kernel 2000 + 3 × 4096 / 32 = 2384, and 2000 + 2 × 4096 / 32 = 2256 for the
// exponential alone: 4 × 2436 + 2384 + 2256.
// PACKED: train.cost = 14384 : i64
// PACKED-SAME: train.transient_bytes = 12288 : i64
// PACKED: {train.offsets = array<i64: {{[0-9]+}}>, train.recompute}

// Without a budget, a share of the time: 17205 is 1.2133 times 14181, the cost of executing everything once. Costlier
// schedules are not looked for, and programs of few bytes are not searched.
// TIME-NOT: train.budget_bytes
// TIME: chosen = false{{.*}}chosen = true
// TIME: train.recompute
// DEAR-NOT: chosen = false
// DEAR: chosen = true
// DEAR-NOT: chosen = false
// DEAR-NOT: train.recompute
// SMALL-NOT: train.frontier
// SMALL-NOT: train.recompute

// PLENTY: chosen = true{{.*}}chosen = false
// PLENTY-NOT: train.recompute

// LITTLE: no plan fits into the memory budget of 16383 bytes; the smallest budget that does is 16384 bytes
// LITTLE: live at its peak
// LITTLE: 4.0 KiB  {{first|second|third}}

// The first has memory for everything, the second the least that is possible.
// VARIANTS: func.func @step.0
// VARIANTS-NOT: train.recompute
// VARIANTS: func.func @step(
// VARIANTS: train.recompute
module {
train.variable @w : tensor<1x32x32xf32> {role = "parameter"}
func.func @step(%w: tensor<1x32x32xf32> {train.variable = "w"}) -> (tensor<1x32x32xf32> {train.name = "y"}) attributes {train.entry = "step"} {
  %a, %b = train.fused(%w) : (tensor<1x32x32xf32>) -> (tensor<1x32x32xf32>, tensor<1x32x32xf32>) {
  ^bb0(%p: tensor<1x32x32xf32>):
    %q = train.exp %p : tensor<1x32x32xf32>
    %r = train.neg %p : tensor<1x32x32xf32>
    train.yield %q, %r : tensor<1x32x32xf32>, tensor<1x32x32xf32>
  } loc("first")
  %c = train.matmul %a, %b {train.call = #train.call<"">} : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32> loc("second")
  %d = train.matmul %c, %c {train.call = #train.call<"">} : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32> loc("third")
  %e = train.matmul %c, %d {train.call = #train.call<"">} : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32> loc("third")
  %y = train.matmul %e, %a {train.call = #train.call<"">} : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32> loc("third")
  return %y : tensor<1x32x32xf32>
}
}
