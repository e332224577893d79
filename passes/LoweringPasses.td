//===- LoweringPasses.td - from entry functions to a planned program -------===//
//
// The passes of kernels and memory, in the order of the pipeline. Each runs after build-update, on one entry function at
// a time or on the module.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_LOWERINGPASSES_TD
#define TCC_PASSES_LOWERINGPASSES_TD

include "mlir/Pass/PassBase.td"

def ChunkRowsPass : Pass<"chunk-rows", "::mlir::ModuleOp"> {
  let summary = "Compute a large product and its row-wise users in chunks of rows";
  let description = [{
    If no large value leaves the ops that work on each row of a product separately, these ops run on one chunk of rows
    after another, and the product is never stored whole: logits, the loss, and the products of the gradient. Small
    results of each row are concatenated; sums over the rows continue from chunk to chunk
    (docs/design/cross-entropy.md). A note names each chunked product, or the reason why a large product stays whole.

    ```mlir
    %l = train.matmul %x, %w : (tensor<1x512x8xf32>, tensor<1x8x9000xf32>) -> tensor<1x512x9000xf32>
    %s = train.reduce sum %l [2] : tensor<1x512x9000xf32> -> tensor<1x512x1xf32>
    // becomes
    %x0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<1x512x8xf32> -> tensor<1x256x8xf32>
    %l0 = train.matmul %x0, %w : (tensor<1x256x8xf32>, tensor<1x8x9000xf32>) -> tensor<1x256x9000xf32>
    %s0 = train.reduce sum %l0 [2] : tensor<1x256x9000xf32> -> tensor<1x256x1xf32>
    ...
    %s = train.concat dim = 1 %s0, %s1 : (tensor<1x256x1xf32>, tensor<1x256x1xf32>) -> tensor<1x512x1xf32>
    ```
  }];
  let options = [
    Option<"maxBytes", "max-bytes", "int64_t", "0", "size of a chunk; a larger product is computed in chunks; 0: no chunks">,
    Option<"minRows", "min-rows", "int64_t", "256",
           "least number of rows in a chunk; half as many where the matrix is unpacked from 4 bits">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AssignLayoutsPass : Pass<"assign-layouts", "::mlir::func::FuncOp"> {
  let summary = "Assign channels-last layouts to convolutions and the ops between them";
  let description = [{
    Changes convolutions and the ops between them (pointwise ops, broadcasts, reductions, pooling and data movement: the
    interface LayoutAware) from N, C, spatial to N, spatial, C. A minimum cut weighs the bytes that the library would
    copy into its own layout against the transposes that remain at the border. A reduction that keeps the channels
    becomes two, so that it reads memory in order; it stays one if the target splits reductions
    (Capabilities::reductionUnits), and ops on numbers of channels then take the layout of their operands.

    ```mlir
    %y = train.conv %x, %w {...} : (tensor<8x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x56x56xf32>
    %r = train.relu %y : tensor<8x64x56x56xf32>
    %z = train.conv %r, %v {...} : (tensor<8x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x56x56xf32>
    // becomes
    %1 = train.transpose %x [0, 2, 3, 1] : tensor<8x64x56x56xf32> -> tensor<8x56x56x64xf32>
    %y = train.conv %1, %w {channelsLast = true, ...} : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    %r = train.relu %y : tensor<8x56x56x64xf32>
    %2 = train.conv %r, %v {channelsLast = true, ...} : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    %z = train.transpose %2 [0, 3, 1, 2] : tensor<8x56x56x64xf32> -> tensor<8x64x56x56xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AddProductsPass : Pass<"add-products", "::mlir::func::FuncOp"> {
  let summary = "Add products to gradient accumulators in place";
  let description = [{
    If a product is only added to an accumulator, and nothing else reads that accumulator, the product adds to it in
    place. The bits do not change.

    ```mlir
    %g = train.matmul %x, %d {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
    %next = train.add %sum, %g : tensor<1x4x2xf32>
    // becomes
    %next = train.matmul %x, %d add %sum {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
    ```
  }];
}

def SetTargetPass : Pass<"set-target", "::mlir::ModuleOp"> {
  let summary = "Name the target that a module is compiled for";
  let description = [{
    Sets the module's attribute `train.target`, by which passes find the target. Fails if no target has that name.

    ```mlir
    module { ... }
    // becomes, with name=cpu:v4
    module attributes {train.target = "cpu:v4"} { ... }
    ```
  }];
  let options = [Option<"name", "name", "std::string", "\"\"", "full name of the target, such as cpu:v4">];
}

def SelectKernelsPass : Pass<"select-kernels", "::mlir::func::FuncOp"> {
  let summary = "Choose the target's calls for products and convolutions";
  let description = [{
    Asks the target for a call for every op with the interface LibraryCall. The call's complete descriptor becomes the
    attribute `train.call`; `train.scratch` has the sizes of its scratch and partial sums. All other ops become
    generated kernels.

    ```mlir
    %c = train.matmul %a, %b : (tensor<1x4x8xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
    // becomes
    %c = train.matmul %a, %b {train.call = #train.call<"matmul { ... }">, train.scratch = #train.scratch<...>} : ...
    ```

    If all products that read the bf16 copy of a parameter can round it while reading, they read the f32 parameter
    instead: no kernel writes the copy, and no pass keeps it in memory.

    ```mlir
    %b = train.cast %w : tensor<1x768x768xf32> -> tensor<1x768x768xbf16>
    %c = train.matmul %a, %b : (tensor<1x64x768xbf16>, tensor<1x768x768xbf16>) -> tensor<1x64x768xbf16>
    // becomes
    %c = train.matmul %a, %w {train.call = ..., ...} : (tensor<1x64x768xbf16>, tensor<1x768x768xf32>) -> ...
    ```
  }];
  let options = [Option<"library", "library", "bool", "true", "false: generated kernels for everything">];
}

def FoldStridesPass : Pass<"fold-strides", "::mlir::func::FuncOp"> {
  let summary = "Absorb surrounding transposes and slices into attention as strides";
  let description = [{
    Builds a region from an op that emits its own loops and accepts strides (LoopKernel::acceptsLayout: attention), the
    transposes, slices and reshapes that produce its operands, and the transposes, slices, reshapes and concatenations
    that consume its results: no kernel moves the elements. Sums of pads that do not overlap count as concatenations. A
    slice is read in place only if the op reads the whole sliced tensor: else a part would keep the rest alive. Casts
    between these ops move before or after them.

    ```mlir
    %t = train.transpose %x [0, 2, 1, 3] : tensor<2x64x4x32xf32> -> tensor<2x4x64x32xf32>
    %output, %logsumexp, %rest = train.attention %t, %k, %v {...}
    %o = train.transpose %output [0, 2, 1, 3] : tensor<2x4x64x32xf32> -> tensor<2x64x4x32xf32>
    // becomes
    %o, %logsumexp, %rest = train.fused(%x, %k, %v) -> (tensor<2x64x4x32xf32>, tensor<2x4x64x1xf32>, tensor<2x4x64x1xf32>) {
      %t = train.transpose %x [0, 2, 1, 3]
      %output, %logsumexp, %rest = train.attention %t, %k, %v {...}
      %o = train.transpose %output [0, 2, 1, 3]
      train.yield %o, %logsumexp, %rest
    }
    ```
  }];
}

def NarrowValuesPass : Pass<"narrow-values", "::mlir::func::FuncOp"> {
  let summary = "Move casts across views so that the stored tensor is the 16-bit one";
  let description = [{
    A view between a cast and a kernel prevents their fusion. A narrowing cast moves before the views of
    its operand if a generated kernel computes that operand, a widening cast behind the views of its result, so that the
    views are of the narrower type. A widening cast also moves behind ops that select elements unchanged (`pick`, and a
    `select` with several readers). A widening and a narrowing cast that meet cancel. Each reader of a widened variable
    gets a cast of its own, so that no wide copy lives from the forward pass to its gradient.

    ```mlir
    %r = train.reshape %x : tensor<4x64x768xf32> -> tensor<256x768xf32>    // a generated kernel makes %x
    %n = train.cast %r : tensor<256x768xf32> -> tensor<256x768xbf16>
    %w = train.cast %y : tensor<256x768xbf16> -> tensor<256x768xf32>
    %v = train.reshape %w : tensor<256x768xf32> -> tensor<4x64x768xf32>
    // becomes
    %c = train.cast %x : tensor<4x64x768xf32> -> tensor<4x64x768xbf16>
    %n = train.reshape %c : tensor<4x64x768xbf16> -> tensor<256x768xbf16>
    %r = train.reshape %y : tensor<256x768xbf16> -> tensor<4x64x768xbf16>
    %v = train.cast %r : tensor<4x64x768xbf16> -> tensor<4x64x768xf32>
    ```
  }];
}

def MinimizeSavedPass : Pass<"minimize-saved", "::mlir::func::FuncOp"> {
  let summary = "Choose the forward values that the backward pass keeps, by a minimum cut of their bytes";
  let description = [{
    The kernel that reads the result of cheap ops can recompute it. If that needs fewer bytes in memory between the
    passes, the reader gets a copy of the ops, marked `train.repeated`, which fuse-kernels puts into the reader's
    kernel. Values that library calls of the backward pass read are in memory in any case and cost nothing. A kernel
    that reads the operands of such a value recomputes the value too, instead of reading it.

    ```mlir
    %s = train.sub %x, %mean : tensor<8xf32>       // forward; a library call of the backward pass reads %x
    %n = train.mul %s, %rstd : tensor<8xf32>
    %d = train.mul %g, %n : tensor<8xf32>          // backward
    // becomes
    %s1 = train.sub %x, %mean {train.repeated} : tensor<8xf32>
    %n1 = train.mul %s1, %rstd {train.repeated} : tensor<8xf32>
    %d = train.mul %g, %n1 : tensor<8xf32>         // %n is not kept
    ```
  }];
}

def FuseKernelsPass : Pass<"fuse-kernels", "::mlir::func::FuncOp"> {
  let summary = "Group ops into regions that become one generated kernel each";
  let description = [{
    Chains with one full-size operand are duplicated into each kernel that reads them, like the copies of
    minimize-saved: each copy joins its reader's kernel or is dropped. A widening cast belongs to the kernels that read
    it, even if there is only one, so that its operand is stored in the narrow type. Then producers and consumers share
    a kernel as long as one loop nest computes them (elementwise chains, reductions with their producers and consumers,
    reductions over the same rows). A lookup of a few elements of a large value (`train.pick`) computes these from the
    operands of the value's elementwise chain, unless the value is stored in any case.

    ```mlir
    %0 = train.mul %a, %b : tensor<8xf32>
    %1 = train.add %0, %c : tensor<8xf32>
    // becomes
    %1 = train.fused(%a, %b, %c) : (...) -> tensor<8xf32> {
    ^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<8xf32>):
      %2 = train.mul %x, %y : tensor<8xf32>
      %3 = train.add %2, %z : tensor<8xf32>
      train.yield %3 : tensor<8xf32>
    }
    ```
  }];
  let options = [Option<"fuse", "fuse", "bool", "true", "false: one kernel per op, for debugging">];
}

def FuseColumnSumsPass : Pass<"fuse-column-sums", "::mlir::func::FuncOp"> {
  let summary = "Sum columns in the kernel that reduces the rows of the same tensor";
  let description = [{
    The gradient of a norm reduces rows for the gradient of its input, and sums columns for those of scale and shift; a
    bias beside it is a sum of the result's columns. Separate kernels read the same tensors again. The pass moves sums of
    columns that read nothing but operands and results of a kernel of rows into that kernel, which walks over the rows of
    a part in order and keeps the columns' sums in registers. split-reductions makes the parts (`train.parts`), along
    one dimension of the rows or several: 32 × 512 rows have 1024 parts of 16 rows.

    The pass leaves kernels apart where this does not pay: rows too few for parts that keep the machine busy, or too
    long for a walk (CodeModel::threadsOfWalk), more sums than registers hold, or few bytes saved.

    ```mlir
    %d = train.fused(%g, %x, ...) : (tensor<65536x768xf32>, ...) -> tensor<65536x768xf32> { ... train.reduce sum %p [1] ... }
    %s = train.fused(%g, %x) : (...) -> tensor<1x768xf32> { ... train.reduce sum %q [0] ... }
    // becomes
    %d, %s = train.fused(%g, %x, ...) {train.parts = 1024} : ... { ... train.reduce sum %p [1] ... train.reduce sum %q [0] ... }
    ```
  }];
  let options = [Option<"parts", "parts", "int64_t", "0", "most parts, and least half as many; 0: as the target says">,
                 Option<"rows", "rows", "int64_t", "0", "least rows of a part; 0: as the target says">];
}

def SplitReductionsPass : Pass<"split-reductions", "::mlir::func::FuncOp"> {
  let summary = "Cut long reductions of few rows into parts, which a second kernel reduces";
  let description = [{
    For targets whose units (lane groups) each reduce a whole row, and which need many rows to be busy
    (Capabilities::reductionUnits). The pass splits the kernel of a long reduction. The first kernel reduces each part
    of a dimension, and writes the full-shape results that do not depend on the reduction. The second one reduces the
    parts and computes small results from them. A third one computes dependent results of full shape, and further
    reductions; it reads the results of the others where that saves bytes. A reshape of the operands makes the parts a
    dimension. Adjacent dimensions become one first if that gives at least twice as many parts. A reduction whose
    dimensions have no divisor in range stays whole.

    ```mlir
    %b = train.fused(%dy) : (tensor<65536x768xf32>) -> tensor<1x768xf32> {
    ^bb0(%x: tensor<65536x768xf32>):
      %0 = train.reduce sum %x [0] : tensor<65536x768xf32> -> tensor<1x768xf32>
      train.yield %0 : tensor<1x768xf32>
    }
    // becomes
    %v = train.reshape %dy : tensor<65536x768xf32> -> tensor<128x512x768xf32>
    %p = train.fused(%v) : (tensor<128x512x768xf32>) -> tensor<128x1x768xf32> { ... train.reduce sum %x [1] ... }
    %w = train.reshape %p : tensor<128x1x768xf32> -> tensor<128x768xf32>
    %b = train.fused(%w) : (tensor<128x768xf32>) -> tensor<1x768xf32> { ... train.reduce sum %x [0] ... }
    ```
  }];
  let options = [Option<"units", "units", "int64_t", "0", "rows and parts that are wanted; 0: as the target says">,
                 Option<"length", "length", "int64_t", "32", "least steps of a part; a step is a vector, or one element of each of its lanes">];
}

def PlaceCallsPass : Pass<"place-calls", "::mlir::func::FuncOp"> {
  let summary = "Give regions of fold-strides around a library call that call";
  let description = [{
    A call that accepts strides reads and writes its tensors in place, inside the tensors of other ops. fold-strides has
    put the op and the movements around it into a region; the pass moves the call to the region, with the strides in its
    descriptor. The region then is an instruction like a call, and no code is generated for it.

    ```mlir
    %o, %l = train.fused(%qkv) : ... {
      ... slices and transposes
      %a, %b = train.attention_call %q, %k, %v {train.call = #train.call<"...">, ...}
      ...
    }
    // becomes
    %o, %l = train.fused(%qkv) {train.call = #train.call<"attention { ... tensors { strides: 196608 ... } ... }">, ...} : ...
    ```
  }];
}

def FuseUpdatesPass : Pass<"fuse-updates", "::mlir::func::FuncOp"> {
  let summary = "Compute weight gradients row by row inside the kernels that update the weights";
  let description = [{
    A gradient that is a matrix product and that only its update reads (no clipping by the norm of all gradients, no
    accumulation) needs no memory. A tile computes some rows of the product in its scratch, as many as stay in the
    core's caches, and the kernel updates these rows of the parameter and of the optimizer's state. This
    saves writing and reading the gradient, a sixth of an update's traffic each, and the gradient's memory; one tile
    multiplies while another waits for memory. The bits do not change: the product and the kernel compute as they would
    separately.

    ```mlir
    %g = train.matmul %x, %dy {transA = true, train.call = ...} : ... -> tensor<1x3072x768xf32>
    %r = train.reshape %g : ... -> tensor<3072x768xf32>
    %u:3 = train.fused(%r, %w, %m, %v) ...
    // becomes
    %u:3 = train.rowwise(%x, %dy, %w, %m, %v) {train.call = ...} ... {
    ^bb0(...):
      %g = train.matmul ...
      %r = train.reshape %g
      %u:3 = train.fused(%r, ...) {train.tile_elements = 73728} ...
      train.yield %u#0, %u#1, %u#2
    }
    ```
  }];
}

def MarkTileThreadsPass : Pass<"mark-tile-threads", "::mlir::func::FuncOp"> {
  let summary = "Record how many threads share a tile of each kernel";
  let description = [{
    The code generator chooses the threads that share a tile of a kernel. Kernels can share a launch only if their blocks
    have the same size, so the pass that joins them reads this number.

    ```mlir
    %0 = train.fused(%x) : (tensor<8xf32>) -> tensor<8xf32> { ... }
    ```
    becomes
    ```mlir
    %0 = train.fused(%x) {train.tile_threads = 32 : i64} : (tensor<8xf32>) -> tensor<8xf32> { ... }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def MaterializeBuffersPass : Pass<"materialize-buffers", "::mlir::ModuleOp"> {
  let summary = "Give every value that is stored in memory a buffer of its own";
  let description = [{
    Constants become state of role constant, or `train.fill` if all their elements are equal. The target of an in-place
    update (a scatter) is copied first if another op still reads it; so is a returned value that is an argument, a
    constant or returned twice.

    ```mlir
    %zero = train.constant dense<0.0> : tensor<9x4xf32>
    %g = train.fused(%zero, %i, %u) ... { train.scatter_add ... }
    // becomes
    %zero = train.fill 0.0 : tensor<9x4xf32>
    %g = train.fused(%zero, %i, %u) ... { train.scatter_add ... }
    ```
  }];
}

def SchedulePass : Pass<"schedule", "::mlir::func::FuncOp"> {
  let summary = "Order instructions for the least peak of live memory";
  let description = [{
    Every order that reads values after they are computed, and a variable's old value before its new one, gives the same
    results; the pass takes the one with the smallest peak that compiler/planning/Scheduling finds. So updates run as
    soon as that frees large gradients, and values that are needed late are computed late.

    With several ranks each all_reduce then moves up to right after its last operand, and its readers move down behind
    the next all_reduce, so that computation overlaps the communication. An all_gather of parameters moves up to the
    first reader of the gather that is `train.prefetch` (on the module; 1) gathers before it.

    ```mlir
    %a = train.fused(%x) ...     // only needed at the end
    %b = train.matmul %x, %w ...
    %c = train.matmul %b, %a ...
    // becomes
    %b = train.matmul %x, %w ...
    %a = train.fused(%x) ...
    %c = train.matmul %b, %a ...
    ```
  }];
}

def WeighScratchPass : Pass<"weigh-scratch", "::mlir::ModuleOp"> {
  let summary = "Use less scratch where scratch makes the peak of memory";
  let description = [{
    Scratch is placed above all values that are live at its instruction, so an instruction with much scratch at a step
    with many live values enlarges the arena, which all entries share. In the given order, the pass gives such calls and
    kernels a form with less scratch (`Target::lighterCall`, `LoopKernel::shrinkScratch`), as far as that lowers the
    peak. Lighter forms cost little time and give the same bits.

    ```mlir
    %b = train.fused(%a, %w) {train.scratch = #train.scratch<slot = 2064640, ..., tiles = 8, ...>} ... {
      %r = train.winograd_conv %x, %k {padsBegin = array<i64: 1, 1>} : ...
    // becomes
    %b = train.fused(%a, %w) {train.scratch = #train.scratch<slot = 1180160, ..., tiles = 8, ...>} ... {
      %r = train.winograd_conv %x, %k {channelBlock = 64 : i64, padsBegin = array<i64: 1, 1>} : ...
    ```
  }];
}

def RematerializePass : Pass<"rematerialize", "::mlir::ModuleOp"> {
  let summary = "Recompute values instead of keeping them, within a memory budget";
  let description = [{
    Solves the ladder of budgets of each entry (compiler/planning/Frontier) and applies the cheapest rung whose packed
    arena fits beside the state. Random numbers are counter-based and a kernel's bits do not depend on its position, so
    every result keeps its bits. A repeated kernel computes only those results that are read, and the ladder counts the
    cost of these. The rung's packing stays with the instructions as `train.packed_offsets`.

    Without a budget, `extra-time` limits the recomputation instead: of each entry's smallest arena whose cost is within
    that share above executing everything once, the largest becomes the arena that all entries share.

    ```mlir
    %a = train.fused(%x) ...        // read at once and, much later, by %g
    %b = train.matmul %a, %w ...
    %g = train.fused(%a, %d) ...
    // becomes
    %a = train.fused(%x) ...
    %b = train.matmul %a, %w ...
    %a2 = train.fused(%x) {train.recompute} ...
    %g = train.fused(%a2, %d) ...
    ```
  }];
  let options = [
    Option<"budgetBytes", "budget-bytes", "uint64_t", "0", "limit on state and arena together; 0: none">,
    Option<"rungs", "rungs", "unsigned", "16", "number of budgets to solve for each entry">,
    Option<"extraTime", "extra-time", "double", "0",
           "without a budget: the least memory whose cost is at most this share above that of executing everything once">,
    Option<"leastBytes", "least-bytes", "uint64_t", "67108864", "with extra-time: programs of less are left alone">,
    Option<"variants", "variants", "unsigned", "1", "number of points of the frontier in the plan">,
    Option<"offload", "offload", "std::string", "\"none\"",
           "what may be kept on the host: auto, state, activations or none; none where the target has no link">,
    Option<"hostBytes", "host-bytes", "uint64_t", "0", "limit on the host's memory; 0: none">,
    Option<"bounds", "bounds", "bool", "false", "compute a lower bound of the cost for each point">];
}

def BeginTransfersPass : Pass<"begin-transfers", "::mlir::func::FuncOp"> {
  let summary = "Let transfers between device and host run beside other instructions";
  let description = [{
    Planning places a store where it has to be done, and a fetch where it begins. This pass moves each store behind the
    instruction that makes its source, and tells both how many instructions they may run beside.

    ```mlir
    %a = train.fused(%x) ...
    %b = train.fused(%a) ...
    %h = train.store %a
    %c = train.fused(%b) ...
    // becomes
    %a = train.fused(%x) ...
    %h = train.store %a {train.beside = 1}
    %b = train.fused(%a) ...
    %c = train.fused(%b) ...
    ```
  }];
}

def PlanMemoryPass : Pass<"plan-memory", "::mlir::func::FuncOp"> {
  let summary = "Assign every buffer its offset in the arena";
  let description = [{
    Computes live ranges from the order, merges in-place pairs, then packs (compiler/planning/Packing). If rematerialize
    has chosen a rung, its packing is used; it is an internal error if its buffers and cost are not the function's.
    Offsets are bytes from the start of the transient arena; −1 stands for state, which is in the resident one. With
    `train.runs_beside` on the module the sources of a reduce_scatter live until its result is read or the next one
    begins; `train.beside` counts the instructions in between.

    ```mlir
    %b = train.fused(%a) : ...
    // becomes
    %b = train.fused(%a) {train.offsets = array<i64: 4096>} : ...
    ```
  }];
}

def OverlapMemoryPass : Pass<"overlap-memory", "::mlir::func::FuncOp"> {
  let summary = "Run memory-bound updates concurrently with matmuls";
  let description = [{
    The update of a large parameter is memory-bound. It runs concurrently with the library calls that follow, if neither
    accesses memory that the other writes (compiler/planning/Overlap). Instructions that wait for the update may move
    behind these calls. The update's operands live longer, so other buffers may move; the arena does not grow.

    ```mlir
    %n = train.fused(%w, %g) {train.offsets = array<i64: -1>} ...
    %h = train.matmul %a, %b {train.call = ..., train.offsets = array<i64: 0>} ...   // where %g was
    // becomes
    %n = train.fused(%w, %g) {train.beside = 1, train.offsets = array<i64: -1>} ...
    %h = train.matmul %a, %b {train.call = ..., train.offsets = array<i64: 8192>} ...
    ```
  }];
}

def VerifyPhasePass : Pass<"verify-phase", "::mlir::func::FuncOp"> {
  let summary = "Verify that a phase has converted all ops that it must";
  let description = [{
    Closes a phase of the pipeline: `decompose` leaves no composite and no read or write of a variable, `kernels` only
    kernels, library calls, views and constants, `memory` only views and instructions with offsets. The error names each
    illegal op and the pass that should have converted it.

    ```mlir
    func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> attributes {train.entry = "step"} {
      %y = train.exp %x : tensor<4xf32>   // error after `kernels`: expected to have been converted by fuse-kernels
      return %y : tensor<4xf32>
    }
    ```
  }];
  let options = [Option<"name", "phase", "std::string", "\"decompose\"", "decompose, kernels or memory">];
}

#endif // TCC_PASSES_LOWERINGPASSES_TD
