//===- LoweringPasses.td - from entry functions to a planned program -------===//
#ifndef TCC_PASSES_LOWERINGPASSES_TD
#define TCC_PASSES_LOWERINGPASSES_TD

include "mlir/Pass/PassBase.td"

def ChunkRowsPass : Pass<"chunk-rows", "::mlir::ModuleOp"> {
  let summary = "Computes a large product, and what is made of each of its rows, some rows at a time";
  let description = [{
    Where nothing large leaves the ops around a product that work on each row by itself, they run on a chunk of rows, then on
    the next, and the product is never stored whole: logits, the loss, and the gradient's products. What is small a row is
    joined; sums over the rows go on adding (docs/cross-entropy.md). Notes say what was chunked, and what stood in the way.

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
    Option<"maxBytes", "max-bytes", "int64_t", "67108864", "a larger product is chunked, in chunks of about so many bytes; 0: none">,
    Option<"minRows", "min-rows", "int64_t", "256", "rows that a chunk has at least">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AssignLayoutsPass : Pass<"assign-layouts", "::mlir::func::FuncOp"> {
  let summary = "Lets tensors lie channels-last where the library's convolutions then copy nothing";
  let description = [{
    Gives convolutions and what lies between them (pointwise ops, broadcasts, reductions, pooling and other movement:
    interface LayoutAware) tensors N, spatial, C instead of N, C, spatial, by a minimum cut between what the library
    would copy into its own layout and the transposes that remain at the border. A reduction that keeps the channels
    becomes two, so that it reads memory in order.

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

def WinogradPass : Pass<"winograd", "::mlir::func::FuncOp"> {
  let summary = "Computes 3x3 convolutions with fewer multiplications where that is cheaper";
  let description = [{
    Channels-last convolutions of stride 1 with 3x3 weights, and their gradients, become generated kernels that multiply
    transformed tiles (Lavin and Gray, CVPR 2016), where their shapes say that the transforms cost less than what is saved
    (docs/winograd.md). A weight's gradient comes in parts, which are summed.

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, padsBegin = array<i64: 1, 1>, ...}
        : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    // becomes
    %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>}
        : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def PointwiseConvolutionsPass : Pass<"pointwise-convolutions", "::mlir::func::FuncOp"> {
  let summary = "Computes 1x1 convolutions as matrix products where that is faster";
  let description = [{
    Channels-last 1x1 convolutions without pads and groups, and their gradients, become products of tensors seen as
    matrices, a row for each pixel, where the product's kernels copy less than the convolution's (docs/layouts.md). A
    gradient of weights that is a product may then go by rows to the kernel that updates them (fuse-updates).

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, strides = array<i64: 1, 1>, ...}
        : (tensor<8x7x7x512xbf16>, tensor<2048x512x1x1xbf16>) -> tensor<8x7x7x2048xbf16>
    // becomes
    %0 = train.reshape %x : tensor<8x7x7x512xbf16> -> tensor<1x392x512xbf16>
    %1 = train.reshape %w : tensor<2048x512x1x1xbf16> -> tensor<1x2048x512xbf16>
    %2 = train.matmul %0, %1 {transB = true} : (tensor<1x392x512xbf16>, tensor<1x2048x512xbf16>) -> tensor<1x392x2048xbf16>
    %y = train.reshape %2 : tensor<1x392x2048xbf16> -> tensor<8x7x7x2048xbf16>
    ```
  }];
  let options = [
    Option<"target", "target", "std::string", "\"\"", "machine level of the library's kernels; empty: the process's">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AddProductsPass : Pass<"add-products", "::mlir::func::FuncOp"> {
  let summary = "Lets products add to gradient accumulators";
  let description = [{
    A product that only goes into the next value of a sum that nobody else reads adds to it where it lies. The bits stay.

    ```mlir
    %g = train.matmul %x, %d {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
    %next = train.add %sum, %g : tensor<1x4x2xf32>
    // becomes
    %next = train.matmul %x, %d add %sum {transA = true} : (tensor<1x8x4xf32>, tensor<1x8x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
    ```
  }];
}

def SelectKernelsPass : Pass<"select-kernels", "::mlir::func::FuncOp"> {
  let summary = "Marks what the library computes";
  let description = [{
    Asks the library about every op that it might have a kernel for (interface LibraryCall). Those it takes are marked
    `train.library` and carry the scratch and the partial sums they need; all others become generated kernels.

    ```mlir
    %c = train.matmul %a, %b : (tensor<1x4x8xf32>, tensor<1x8x2xf32>) -> tensor<1x4x2xf32>
    // becomes
    %c = train.matmul %a, %b {train.library, train.partial_bytes = 0 : i64, train.scratch_slot_bytes = 1024 : i64} : ...
    ```

    Where all products that read a parameter rounded to bf16 can round it as they read it, they do: no kernel makes the
    copy, and none lies in memory from the forward to the backward pass.

    ```mlir
    %b = train.cast %w : tensor<1x768x768xf32> -> tensor<1x768x768xbf16>
    %c = train.matmul %a, %b : (tensor<1x64x768xbf16>, tensor<1x768x768xbf16>) -> tensor<1x64x768xbf16>
    // becomes
    %c = train.matmul %a, %w {train.library, ...} : (tensor<1x64x768xbf16>, tensor<1x768x768xf32>) -> ...
    ```
  }];
  let options = [Option<"library", "library", "bool", "true", "false: generated kernels for everything">,
                 Option<"target", "target", "std::string", "\"\"", "machine level of the library's kernels; empty: the process's">];
}

def FoldStridesPass : Pass<"fold-strides", "::mlir::func::FuncOp"> {
  let summary = "Lets loops of an op's own read and write where the others want it";
  let description = [{
    An op whose loops are its own and that accepts strides (LoopKernel::acceptsLayout: attention) becomes a region with the
    transposes, slices and reshapes that its operands come through, and those and the concatenations that its results go
    to: no kernel moves them. Sums of gradients that pads put side by side are concatenations. A slice is read in place
    only where the op reads all of what it is a slice of, so that nothing lives longer for a part of it. Casts between the
    movements are made before them, or after them.

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
  let summary = "Puts casts where what lies in memory is narrow";
  let description = [{
    A view of what is cast would part the cast from the kernel on the other side. A narrowing is made before the views of
    its operand, where a generated kernel makes that, and a widening after the views of its result, so that views are of the
    narrower type. A widening also comes after what picks or chooses elements as they are (`pick`, and a `select` that
    several ops read). A widening and a narrowing that meet are nothing.

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
  let summary = "Chooses what the backward pass keeps of the forward pass: the fewest bytes, by a minimum cut";
  let description = [{
    What cheap ops made can be computed again in the kernel that reads it. Where that needs fewer bytes in memory between
    the passes, the reader gets a copy of the ops, marked `train.repeated`; fuse-kernels puts it into the reader's kernel.
    What library calls of the backward pass read lies in memory in any case and is a free start.
    A kernel that reads what such a value was made of makes it again, too, and does not read it.

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
  let summary = "Gathers ops into regions that become one generated kernel each";
  let description = [{
    Chains with one full-size operand are repeated for each kernel that reads them, like the copies that minimize-saved
    made: each joins its reader's kernel or is given up. A cast to a wider type belongs to the kernels that read it, even
    where there is one: what makes its operand writes that. Then producers and consumers share a
    kernel as long as one loop nest computes them (elementwise chains, reductions with what precedes and follows them,
    reductions side by side over the same rows).

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

def FuseUpdatesPass : Pass<"fuse-updates", "::mlir::func::FuncOp"> {
  let summary = "Makes gradients row by row for the kernels that update parameters with them";
  let description = [{
    A gradient by a matrix that only the kernel of its update reads (no clipping by the norm of all gradients, no
    accumulation) need not lie in memory: some rows of the product are made in a worker's scratch, as many as its second
    cache holds, and the kernel updates those rows of the parameter and of the optimizer's state. This saves writing and
    reading the gradient, a sixth of an update's traffic each, and the memory of the gradient; one worker multiplies while
    another waits for memory. Bits stay: the product is summed and the kernel computes as they would by themselves.

    ```mlir
    %g = train.matmul %x, %dy {transA = true, train.library} : ... -> tensor<1x3072x768xf32>
    %r = train.reshape %g : ... -> tensor<3072x768xf32>
    %u:3 = train.fused(%r, %w, %m, %v) ...
    // becomes
    %u:3 = train.rowwise(%x, %dy, %w, %m, %v) {train.library} ... {
    ^bb0(...):
      %g = train.matmul ...
      %r = train.reshape %g
      %u:3 = train.fused(%r, ...) {train.tile_elements = 73728} ...
      train.yield %u#0, %u#1, %u#2
    }
    ```
  }];
}

def MaterializeBuffersPass : Pass<"materialize-buffers", "::mlir::ModuleOp"> {
  let summary = "Gives every value that has to lie in memory a buffer of its own";
  let description = [{
    Constants become state of role constant, or `train.fill` where they are the same everywhere. What is updated in place
    (the target of a scatter) is copied first if anyone else reads it; so is a returned value that is an argument, a constant
    or returned twice.

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
  let summary = "Orders instructions for the least peak of live memory";
  let description = [{
    Any order that reads values after they are made and a variable's old value before its new one gives the same results; this
    pass takes one whose peak is as small as compiler/planning/Scheduling can make it. So updates run as soon as that frees
    gradients where these count, and what nobody needs yet is computed late.

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

def RematerializePass : Pass<"rematerialize", "::mlir::ModuleOp"> {
  let summary = "Executes instructions again instead of keeping their results, under a budget of bytes";
  let description = [{
    Solves the ladder of budgets of each entry (compiler/planning/Frontier) and makes it follow the cheapest rung whose packed
    arena fits beside the state. Counter-based random numbers and kernels whose bits do not depend on where they run leave
    every result as it was. A kernel that runs again computes only what is read of it, and the ladder reckons with what that
    takes. The rung's packing goes with it, as `train.packed_offsets`.

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
    Option<"budgetBytes", "budget-bytes", "uint64_t", "0", "what state and arena may take together; 0: no limit">,
    Option<"rungs", "rungs", "unsigned", "16", "budgets that are solved for each entry">,
    Option<"variants", "variants", "unsigned", "1", "points of the frontier that the plan is to hold">,
    Option<"bounds", "bounds", "bool", "false", "a lower bound of the cost for each point">];
}

def PlanMemoryPass : Pass<"plan-memory", "::mlir::func::FuncOp"> {
  let summary = "Decides where every value lies";
  let description = [{
    Live ranges from the order, in-place pairs merged, then packing (compiler/planning/Packing); a rung of the ladder of budgets
    brings its own packing, and it is an internal error if its buffers and cost are not the function's. Offsets are bytes from
    the start of the transient arena; −1 stands for state, which lies in the resident one.

    ```mlir
    %b = train.fused(%a) : ...
    // becomes
    %b = train.fused(%a) {train.offsets = array<i64: 4096>} : ...
    ```
  }];
}

def OverlapMemoryPass : Pass<"overlap-memory", "::mlir::func::FuncOp"> {
  let summary = "Lets what waits for memory run beside what multiplies";
  let description = [{
    The update of a large parameter waits for memory. It may still run while the library calls after it do, where these touch
    nothing that it writes, nor it what they write (compiler/planning/Overlap). What waits for it may change places with them.
    What it touches lives longer then, so that others may have to lie elsewhere; the arena does not grow.

    ```mlir
    %n = train.fused(%w, %g) {train.offsets = array<i64: -1>} ...
    %h = train.matmul %a, %b {train.library, train.offsets = array<i64: 0>} ...   // where %g was
    // becomes
    %n = train.fused(%w, %g) {train.beside = 1, train.offsets = array<i64: -1>} ...
    %h = train.matmul %a, %b {train.library, train.offsets = array<i64: 8192>} ...
    ```
  }];
}

def VerifyPhasePass : Pass<"verify-phase", "::mlir::func::FuncOp"> {
  let summary = "Checks what a phase must leave behind";
  let description = [{
    Closes a phase of the pipeline: `decompose` leaves no composite and no read or write of a variable, `kernels` only
    kernels, library calls, views and constants, `memory` only instructions with offsets, and views. What is illegal is
    named, with the pass that should have converted it.

    ```mlir
    func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> attributes {train.entry = "step"} {
      %y = train.exp %x : tensor<4xf32>   // error after `kernels`: expected to have been converted by fuse-kernels
      return %y : tensor<4xf32>
    }
    ```
  }];
  let options = [Option<"phase", "phase", "std::string", "\"decompose\"", "decompose, kernels or memory">];
}

#endif // TCC_PASSES_LOWERINGPASSES_TD
