//===- Passes.td - the passes, in the order of the pipeline ----------------===//
//
// One pass, one file, one test, one name in four spellings: AttachLossPass, --attach-loss, AttachLoss.cpp,
// attach-loss.mlir. What a pass reads beside its options is in the module: the recipe is its attribute train.recipe.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_TD
#define TCC_PASSES_TD
include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// The mathematics: loss, gradients, update
//===----------------------------------------------------------------------===//

def SetRecipePass : Pass<"set-recipe", "::mlir::ModuleOp"> {
  let summary = "Set the recipe that the module is compiled with";
  let description = [{
    For tests: reads the settings as `tcc --set` does, but checks no rules between keys, and writes them as the module
    attribute `train.recipe`, from which passes read the recipe. The attribute holds what differs from the defaults. `tcc`
    writes it after the import.

    ```mlir
    module {}
    ```
    becomes, with `settings=loss.kind=mse,loss.target=t`,
    ```mlir
    module attributes {train.recipe = {loss = {kind = "mse", target = "t"}}} {}
    ```
  }];
  let options = [ListOption<"settings", "settings", "std::string", "keys and values, as KEY=VALUE in TOML">];
}

def FoldConstantsPass : Pass<"fold-constants", "::mlir::ModuleOp"> {
  let summary = "Evaluate ops whose operands are all constants";
  let description = [{
    Each op is evaluated by its own naive evaluator (`Reference`). Results larger than `max-bytes` stay in the program,
    since a constant is stored in the plan; so does iota, which is free. A gather whose constant indices form an
    arithmetic sequence becomes a slice.

    ```mlir
    %0 = train.constant dense<2> : tensor<2xi64>
    %1 = train.constant dense<[1, 3]> : tensor<2xi64>
    %2 = train.mul %0, %1 : tensor<2xi64>
    ```
    becomes
    ```mlir
    %2 = train.constant dense<[2, 6]> : tensor<2xi64>
    ```
  }];
  let options = [Option<"maxBytes", "max-bytes", "int64_t", "65536", "largest constant, in bytes, that folding creates">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def DeriveIndexRangesPass : Pass<"derive-index-ranges", "::mlir::ModuleOp"> {
  let summary = "Derive the legal index values of each integer graph input";
  let description = [{
    Starts at each op that addresses a table (`IndexedAccess`) and propagates the bound on its indices backwards through
    casts, views, slices and arithmetic with constants (`IntegerFlow`) to the inputs of @forward. The loader checks the
    data against these bounds: kernels clamp indices to their tables, so an index outside would silently train another
    row. The pass does not follow indices that other ops compute; those stay clamped.

    ```mlir
    func.func @forward(%ids: tensor<8xi64> {train.name = "ids"}) -> tensor<8x4xf32> {
      %w = train.read @wte : tensor<50x4xf32>
      %0 = train.gather %w, %ids axis = 0 : (tensor<50x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
    ```
    gains on `%ids`
    ```mlir
    train.index_ranges = [ {axis = 0, extent = 50, high = 49, low = -50, node = "", table = "wte"} ]
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AddAdaptersPass : Pass<"add-adapters", "::mlir::ModuleOp"> {
  let summary = "Add a low-rank adapter to the products with chosen matrices and freeze the other parameters";
  let description = [{
    For each chosen matrix W (`targets`), of which every reader is a product, @forward computes x·W + scale·(x·Aᵀ)·Bᵀ with
    two new parameters A, [rank, features of x], and B, [features of the result, rank] (Hu et al., arXiv:2106.09685). W may
    be read transposed, cast, reshaped, and on either side. A starts with uniform numbers in ±1/√(features of x), drawn by
    `seed` and its name, and B with zeros, as in peft. A filter that only convolutions read gets a convolution to `rank`
    channels and a 1x1 one; a table that only lookups read gets a lookup in Aᵀ and a product, where A starts with zeros and
    B with normal numbers. All parameters but A, B and those of `train` become frozen; `base` "bf16" keeps frozen matrices
    in that type, "int8" as i8 with one f32 scale per output channel, "nf4" and "int4" in 4 bits with one for each `block`
    elements of a channel. The module attribute `train.adapters` lists the
    adapters for exports and reports. Runs before attach-loss, which copies @forward with its adapters into @loss.

    ```mlir
    train.variable @fc.weight : tensor<4x3xf32> {role = "parameter"}
    func.func @forward(%x: tensor<1x8x3xf32>) -> tensor<1x8x4xf32> {
      %w = train.read @fc.weight : tensor<4x3xf32>
      %0 = train.reshape %w : tensor<4x3xf32> -> tensor<1x4x3xf32>
      %y = train.matmul %x, %0 {transB = true} : (tensor<1x8x3xf32>, tensor<1x4x3xf32>) -> tensor<1x8x4xf32>
      return %y : tensor<1x8x4xf32>
    }
    ```
    becomes, with `rank = 2`, `alpha = 4` and `targets = ["fc"]` in the recipe,
    ```mlir
    train.variable @fc.weight : tensor<4x3xf32> {role = "frozen"}
    train.variable @fc.lora_A.weight : tensor<2x3xf32> {role = "parameter", value = dense<...>}
    train.variable @fc.lora_B.weight : tensor<4x2xf32> {role = "parameter", fill = 0.0}
    func.func @forward(%x: tensor<1x8x3xf32>) -> tensor<1x8x4xf32> {
      ...
      %a = train.read @fc.lora_A.weight : tensor<2x3xf32>
      %b = train.read @fc.lora_B.weight : tensor<4x2xf32>
      %1 = train.reshape %a : tensor<2x3xf32> -> tensor<1x2x3xf32>
      %u = train.matmul %x, %1 {transB = true} : (tensor<1x8x3xf32>, tensor<1x2x3xf32>) -> tensor<1x8x2xf32>
      %2 = train.reshape %b : tensor<4x2xf32> -> tensor<1x4x2xf32>
      %v = train.matmul %u, %2 {transB = true} : (tensor<1x8x2xf32>, tensor<1x4x2xf32>) -> tensor<1x8x4xf32>
      %s = train.constant dense<2.0> : tensor<1x8x4xf32>
      %d = train.mul %v, %s : tensor<1x8x4xf32>
      %z = train.add %y, %d : tensor<1x8x4xf32>
      return %z : tensor<1x8x4xf32>
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def SplitPhasesPass : Pass<"split-phases", "::mlir::ModuleOp"> {
  let summary = "Make a module for each [[phase]] or [[stage]] of the recipe";
  let description = [{
    Each phase is compiled in a copy of the module in which other phases' parameters are frozen, so that later passes see
    an ordinary model with one loss. A copy has the phase's name and recipe; evaluation and prediction belong to the first
    one (`train.entries`). In a plan of several shapes the module of each is split. Parameters that some phase trains are marked `train.of_phase`, and with the stages that train
    them as bits of `train.stages`. Runs up to merge-parts on each copy.

    ```mlir
    module attributes {train.recipe = {phases = [{phase = "d", phase_parameters = ["d.*"]}, {phase = "g", phase_parameters = ["g.*"]} ]}} {
      train.variable @d.w : tensor<4xf32> {role = "parameter"}
      train.variable @g.w : tensor<4xf32> {role = "parameter"}
    }
    ```
    becomes
    ```mlir
    module attributes {train.recipe = ...} {
      module @d attributes {train.recipe = {phase = "d", phase_parameters = ["d.*"]}} {
        train.variable @d.w : tensor<4xf32> {role = "parameter", train.of_phase}
        train.variable @g.w : tensor<4xf32> {role = "frozen", train.of_phase}
      }
      module @g attributes {train.entries = ["train"], train.recipe = {phase = "g", phase_parameters = ["g.*"]}} {
        train.variable @d.w : tensor<4xf32> {role = "frozen", train.of_phase}
        train.variable @g.w : tensor<4xf32> {role = "parameter", train.of_phase}
      }
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AttachLossPass : Pass<"attach-loss", "::mlir::ModuleOp"> {
  let summary = "Create @loss: the forward graph and its loss as a sum and a weight";
  let description = [{
    A loss is a numerator `loss_sum` and a denominator `loss_weight`, so that accumulation over micro-batches divides
    once, by the total weight of the window. The loss is a built-in kind (`kind`) of graph outputs (`of`) and a target,
    or the graph's own scalar output (`output`, or its only scalar floating-point output), whose denominator is the
    number of samples in a batch. Kinds with classes also yield `correct` and `counted`. @forward keeps its body, but no
    longer returns values with the attribute `train.inner`: the frontend returns them only because `of` names them.

    ```mlir
    func.func @forward(%x: tensor<8x4xf32> {train.name = "x"}) -> (tensor<8x4xf32> {train.name = "y"}) {
      return %x : tensor<8x4xf32>
    }
    ```
    gains, with `kind = "mse"`, `of = ["y"]` and `target = "t"` in the recipe,
    ```mlir
    func.func @loss(%x: tensor<8x4xf32> {train.name = "x"}, %t: tensor<8x4xf32> {train.name = "t", train.sample_axis = 0})
        -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}) {
      %d = train.sub %x, %t : tensor<8x4xf32>
      %s = train.mul %d, %d : tensor<8x4xf32>
      %r = train.reduce sum %s [1] : tensor<8x4xf32> -> tensor<8x1xf32>
      %q = train.reduce sum %r [0] : tensor<8x1xf32> -> tensor<1x1xf32>
      %n = train.reshape %q : tensor<1x1xf32> -> tensor<f32>
      %w = train.constant dense<32.0> : tensor<f32>
      return %n, %w : tensor<f32>, tensor<f32>
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def ElideUnusedPass : Pass<"elide-unused", "::mlir::ModuleOp"> {
  let summary = "Remove unread values and list parameters without a path to the loss";
  let description = [{
    Removes from @loss the outputs that only @forward returns, and every op that only they need. A trainable parameter
    that @loss no longer reads is proven to get no gradient: the pass lists it in the module attribute
    `train.unused_parameters`, and the optimizer leaves it unchanged.

    ```mlir
    func.func @loss() -> tensor<f32> {
      %v = train.read @head2 : tensor<f32>
      %unused = train.exp %v : tensor<f32>
      %w = train.read @head1 : tensor<f32>
      return %w : tensor<f32>
    }
    ```
    becomes
    ```mlir
    // module attributes {train.unused_parameters = [{name = "head2", reason = "no path to the loss", node = "exp"} ]}
    func.func @loss() -> tensor<f32> {
      %w = train.read @head1 : tensor<f32>
      return %w : tensor<f32>
    }
    ```
  }];
}

def PruneStopsPass : Pass<"prune-stops", "::mlir::ModuleOp"> {
  let summary = "Remove stop_gradient ops that stop no gradient and report the others";
  let description = [{
    Runs on @forward and @loss. A `train.stop_gradient` is an identity if no trainable parameter reaches its operand
    through differentiable ops. Exporters also mark masks and constants, and later passes match chains of ops that such
    identities would interrupt. Every stop of @loss whose value depends on a trainable parameter becomes a note of kind
    `stop_gradient` with its node and its mark.

    ```mlir
    func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
      %w = train.read @w : tensor<4xf32>
      %a = train.stop_gradient %x {source = "aten.detach"} : tensor<4xf32> loc("mask")
      %b = train.stop_gradient %w {source = "aten.detach"} : tensor<4xf32> loc("target")
      %c = train.add %a, %b : tensor<4xf32>
      return %c : tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    // module attributes {train.notes = [{kind = "stop_gradient", subject = "target", text = "aten.detach"} ]}
    func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
      %w = train.read @w : tensor<4xf32>
      %b = train.stop_gradient %w {source = "aten.detach"} : tensor<4xf32> loc("target")
      %c = train.add %x, %b : tensor<4xf32>
      return %c : tensor<4xf32>
    }
    ```
  }];
}

def HoldStopsPass : Pass<"hold-stops", "::mlir::ModuleOp"> {
  let summary = "Store stopped values in variables so that the gradient check can hold them fixed";
  let description = [{
    Only for the gradient check, before differentiation. A select follows each `train.stop_gradient` of @loss: if the
    variable @"tcc.stopped/hold" is above 0, readers get the value that the last run wrote, else the fresh one.
    Gradients do not depend on the select: if differentiation ignored a stop, its gradient would follow a path that the
    finite differences hold fixed, and the check would fail. Readers of a straight-through op (`StraightThrough`) get y
    + stop(l − y), where l is x if the gradient passes and y elsewhere: a value with the derivative that the op claims.

    ```mlir
    %b = train.stop_gradient %w : tensor<4xf64>
    %c = train.exp %b : tensor<4xf64>
    ```
    becomes
    ```mlir
    %h = train.read @"tcc.stopped/hold" : tensor<f64>
    %0 = train.constant dense<0.0> : tensor<f64>
    %p = train.compare gt %h, %0 : tensor<f64> -> tensor<i1>
    %b = train.stop_gradient %w : tensor<4xf64>
    %k = train.read @"tcc.stopped/0" : tensor<4xf64>
    %q = train.broadcast %p : tensor<i1> -> tensor<4xi1>
    %s = train.select %q, %k, %b : tensor<4xi1>, tensor<4xf64>
    train.write @"tcc.stopped/0", %s : tensor<4xf64>
    %c = train.exp %s : tensor<4xf64>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def DropForeignWritesPass : Pass<"drop-foreign-writes", "::mlir::ModuleOp"> {
  let summary = "Remove writes of @loss that belong to networks of other phases";
  let description = [{
    With [[phase]] a phase only computes values that its loss needs. A `train.write` (running statistics) stays if the
    loss depends on one of the nearest mode-dependent ops (`ModeDependent`) that its value comes from, or if there are
    none; the ops that only a removed write needs are removed with it.

    ```mlir
    func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y, %mean, %var = train.batch_norm %x ...  // the result does not depend on %y
      train.write @other.mean, %mean : tensor<4xf32>
      return %x : tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def AutocastPass : Pass<"autocast", "::mlir::ModuleOp"> {
  let summary = "Compute products, convolutions and attention in a 16-bit type and all else in f32";
  let description = [{
    Casts the operands that `Autocast` names to the 16-bit type; result 0 becomes narrow and is widened for its readers.
    Runs on @forward and @loss before differentiation, because the gradient of a cast is a cast. Each edge gets its own
    cast, so that gradients of several readers are added in f32; equal casts are merged afterwards. A value that depends
    only on results of products and on state, and that a product reads, is rounded for all its readers, so that it is
    stored once.

    ```mlir
    %y = train.matmul %x, %w : (tensor<1x8x4xf32>, tensor<1x4x2xf32>) -> tensor<1x8x2xf32>
    ```
    becomes
    ```mlir
    %a = train.cast %x : tensor<1x8x4xf32> -> tensor<1x8x4xbf16>
    %b = train.cast %w : tensor<1x4x2xf32> -> tensor<1x4x2xbf16>
    %c = train.matmul %a, %b : (tensor<1x8x4xbf16>, tensor<1x4x2xbf16>) -> tensor<1x8x2xbf16>
    %y = train.cast %c : tensor<1x8x2xbf16> -> tensor<1x8x2xf32>
    ```
  }];
  let options = [Option<"precision", "precision", "std::string", "\"bf16\"", "bf16 or f16">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def FuseAttentionPass : Pass<"fuse-attention", "::mlir::ModuleOp"> {
  let summary = "Replace softmax(query·keyᵀ)·value by train.attention";
  let description = [{
    Matches softmax between two batched products, queries by keys and weights by values. Scaling, biases, masks, a soft
    cap and dropout may come in any order with the same meaning, with any reshapes and transposes between them. Runs
    before differentiation, so that the gradient is one op too, and neither scores nor weights are stored. Keys and
    values with repeated heads are read without the repetition. A mask that excludes everything above a diagonal becomes
    `causal`. `train.notes` lists fused attentions, near misses with the node that broke the match, and the attentions
    whose weights are no longer formed.

    ```mlir
    %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
    %h = train.constant dense<0.5> : tensor<6x8x8xf32>
    %x = train.mul %s, %h : tensor<6x8x8xf32>
    %w = train.softmax %x dim = 2 : tensor<6x8x8xf32>
    %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
    ```
    becomes
    ```mlir
    %q4 = train.reshape %q : tensor<6x8x4xf32> -> tensor<1x6x8x4xf32>
    %k4 = train.reshape %k : tensor<6x8x4xf32> -> tensor<1x6x8x4xf32>
    %v4 = train.reshape %v : tensor<6x8x4xf32> -> tensor<1x6x8x4xf32>
    %o, %l, %rest = train.attention %q4, %k4, %v4 {scale = 0.5} : (tensor<1x6x8x4xf32>, tensor<1x6x8x4xf32>, tensor<1x6x8x4xf32>)
        -> (tensor<1x6x8x4xf32>, tensor<1x6x8x1xf32>, tensor<1x6x8x1xf32>)
    %y = train.reshape %o : tensor<1x6x8x4xf32> -> tensor<6x8x4xf32>
    ```
  }];
  let options = [Option<"required", "required", "bool", "false", "report near misses as errors">,
                 Option<"tiles", "tiles", "std::string", "", "what the target's lane groups multiply for heads that suit them: bf16, f16, tf32 or f32">,
                 Option<"tilesOnly", "tiles-only", "bool", "false", "only heads whose features suit tiles (suitsTiles)">,
                 Option<"callsOnly", "calls-only", "bool", "false", "only forms that calls of the target's library compute (Capabilities::attentionCalls); with tiles-only, these or those">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def DifferentiatePass : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "Create @backward: the loss and its gradient with respect to every parameter it depends on";
  let description = [{
    Differentiates in reverse mode. A value is active if it depends on a trainable parameter and `loss_sum` depends
    on it through differentiable ops. The pass visits active ops last to first; each builds its vector-Jacobian product
    through `Differentiable`. Several gradients of one value are added in the order in which its users were visited.
    Gradients are those of `loss_sum`, not divided by the weight. With `loss-scale` they are those of
    `loss_sum · c · loss_scale`: `loss_scale` is a run-time scalar, and c, the function's attribute `train.gradient_scale`,
    the largest power of two that is at most 1/n for n elements of the loss. So values of the backward pass have the
    magnitude that they have in a framework that scales the mean, and multiplying by c is exact. Parameters whose every
    path to the loss ends at an op without a derivative are listed with that op in `train.unused_parameters`.

    ```mlir
    func.func @loss(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>) {
      %w = train.read @w : tensor<4xf32>
      %y = train.mul %w, %x : tensor<4xf32>
      %r = train.reduce sum %y [0] : tensor<4xf32> -> tensor<1xf32>
      %sum = train.reshape %r : tensor<1xf32> -> tensor<f32>
      ...
    ```
    gives
    ```mlir
    func.func @backward(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32> {train.gradient_of = "w"}) {
      ...
      %one = train.constant dense<1.0> : tensor<f32>
      %0 = train.reshape %one : tensor<f32> -> tensor<1xf32>
      %1 = train.broadcast %0 : tensor<1xf32> -> tensor<4xf32>
      %dw = train.mul %1, %x : tensor<4xf32>
      return %sum, %weight, %dw : tensor<f32>, tensor<f32>, tensor<4xf32>
    ```
  }];
  let options = [Option<"lossScale", "loss-scale", "bool", "false", "multiply the gradients by a run-time factor">];
  let dependentDialects = ["::tcc::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def ElideStopsPass : Pass<"elide-stops", "::mlir::ModuleOp"> {
  let summary = "Remove every train.stop_gradient";
  let description = [{
    Runs after differentiate, and in programs that are not differentiated. Once gradients exist a stop is an identity;
    without it the plan spends no time and no memory on stops.

    ```mlir
    %b = train.stop_gradient %w : tensor<4xf32>
    %c = train.exp %b : tensor<4xf32>
    ```
    becomes
    ```mlir
    %c = train.exp %w : tensor<4xf32>
    ```
  }];
}

def SettleCastsPass : Pass<"settle-casts", "::mlir::ModuleOp"> {
  let summary = "Remove cancelling casts and keep weight gradients in f32";
  let description = [{
    Runs after autocast and differentiate. A value that is widened and narrowed again is replaced by the value itself. A
    product that is rounded, and then widened on its way into a weight gradient (through sums, reshapes and transposes),
    returns its f32 sums.

    ```mlir
    %g = train.matmul %x, %dy {transA = true} : (tensor<1x8x4xbf16>, tensor<1x8x2xbf16>) -> tensor<1x4x2xbf16>
    %dw = train.cast %g : tensor<1x4x2xbf16> -> tensor<1x4x2xf32>
    ```
    becomes
    ```mlir
    %dw = train.matmul %x, %dy {transA = true} : (tensor<1x8x4xbf16>, tensor<1x8x2xbf16>) -> tensor<1x4x2xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
  let options = [Option<"roundConvolutions", "round-convolutions", "bool", "false",
                        "leave weight gradients of convolutions in 16 bits: the target's library has no f32 sums of them">];
}

def WidenProductsPass : Pass<"widen-products", "::mlir::ModuleOp"> {
  let summary = "Multiply widened f16 operands in f32 on targets without products of f16";
  let description = [{
    Operands of matrix products and convolutions in f16 are widened to f32, which is exact, and results are rounded to f16
    once, after the sum: the values are those of f16 products whose sums are in f32. Tensors stay stored in f16 where
    kernels can widen them. Runs after settle-casts.

    ```mlir
    %c = train.matmul %a, %b : (tensor<1x8x4xf16>, tensor<1x4x2xf16>) -> tensor<1x8x2xf16>
    ```
    becomes
    ```mlir
    %x = train.cast %a : tensor<1x8x4xf16> -> tensor<1x8x4xf32>
    %y = train.cast %b : tensor<1x4x2xf16> -> tensor<1x4x2xf32>
    %z = train.matmul %x, %y : (tensor<1x8x4xf32>, tensor<1x4x2xf32>) -> tensor<1x8x2xf32>
    %c = train.cast %z : tensor<1x8x2xf32> -> tensor<1x8x2xf16>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def DecomposeCompositesPass : Pass<"decompose-composites", "::mlir::ModuleOp"> {
  let summary = "Expand composite ops into core ops";
  let description = [{
    Runs after differentiation, which prefers a composite's own gradient. Softmax, normalisations and other composites
    become core ops that fusion handles. The new ops keep the composite's location.

    ```mlir
    %l = train.logsumexp %x dim = 1 : tensor<8x4xf32> -> tensor<8x1xf32>
    ```
    becomes
    ```mlir
    %m = train.reduce max %x [1] : tensor<8x4xf32> -> tensor<8x1xf32>
    %b = train.broadcast %m : tensor<8x1xf32> -> tensor<8x4xf32>
    %d = train.sub %x, %b : tensor<8x4xf32>
    %e = train.exp %d : tensor<8x4xf32>
    %s = train.reduce sum %e [1] : tensor<8x4xf32> -> tensor<8x1xf32>
    %g = train.log %s : tensor<8x1xf32>
    %l = train.add %g, %m : tensor<8x1xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def BuildUpdatePass : Pass<"build-update", "::mlir::ModuleOp"> {
  let summary = "Build the entry functions from forward, loss, gradients, clipping and optimizer";
  let description = [{
    The entries that the module attribute `train.entries` names are built; without it, all whose function is there.
    Creates `step` (or, with accumulation, `accumulate_first`, `accumulate_next` and `update`), `evaluate`, `predict`
    and `gradients` from @forward, @loss and @backward, and erases these three. Entry functions take state as arguments
    and return its next values; both carry `train.variable`. Run-time numbers (learning rate and so on) are one vector,
    which the module attribute `train.scalars` names in order. Every next value is selected by `the loss is finite`, and
    with clipping or accumulation also by `the gradients' norm is finite`, so that a bad step changes no bit. (Waiting
    for the norm keeps every gradient alive until the last one is known. If nothing else needs the norm, each gradient
    dies after its update, and a norm that is not finite ends the run without a checkpoint.)

    A write of the forward pass (running statistics) becomes the next value of its variable in entries that train; all
    other entries drop it. There, and in `evaluate` and `predict`, ops that depend on the mode (`ModeDependent`) take
    their inference form. `train.random_key` becomes the last argument, `train.counters`, and `train.run_scalar` one of the
    run-time numbers.

    If @backward scales the loss, the update removes the factor from the gradients before it measures and clips them, and
    every next value but those of running statistics waits for the norm. `gradients` scales by the recipe's first factor.
    With `optimizer.moments = "bf16"` the optimizer's state is stored in bf16 and computed in f32. Next values are rounded
    stochastically: the probability of each neighbour grows with its nearness, so that changes below half a unit in the
    last place are kept in the mean. With `"8bit"` a parameter of at least 4096 elements is updated in the shape
    [blocks, 256]: a moment is read as numbers of the dynamic map, looked up by their codes, times the block's magnitude,
    and stored as the largest magnitude of the new values and the codes nearest to their quotients by it.

    With `parallel.mode = "ddp"` the numerator and denominator of the loss and every gradient go through `train.all_reduce` before
    they are averaged, in `step` or, once a window, in `update`; running statistics become those of rank 0
    (`train.rank_broadcast`). Random numbers of the update are the same on every rank.

    With `train.virtual_ranks = V` an update always has `accumulate_first`, `accumulate_next` (with more than one micro-batch) and
    `update`, and a rank takes the windows of its virtual ranks one after the other. For each level k of the tree over those
    of one rank, `hold_k` copies the window's sums to variables of their own, and `join_k` adds the held sums to the
    window's sums. The tree is that of `train.all_reduce`, so the sum does not depend on the number of ranks.

    With `parallel.mode = "grad_op"` each of `ranks` ranks owns a shard of every parameter (dialect, Collective.td), and the optimizer's
    state has a shard's size (`train.whole` of its variable has the parameter's type). Gradients go through
    `train.reduce_scatter`, the update computes this rank's shard of the next value, and `train.all_gather` assembles
    the parameter. With `"full"` the parameter itself is a shard, which entries gather before they read it. With
    `"hybrid"` the same holds in each node of `ranks` ranks, and a `train.all_reduce` across nodes sums the shards.

    ```mlir
    func.func @backward(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32> {train.gradient_of = "w"})
    ```
    becomes, with `optimizer.kind = "sgd"`,
    ```mlir
    func.func @step(%x: tensor<4xf32>, %w: tensor<4xf32> {train.variable = "w"}, %scalars: tensor<1xf32> {train.scalars})
        -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"},
            tensor<f32> {train.name = "grad_norm"}, tensor<4xf32> {train.variable = "w"})
        attributes {train.entry = "step"} {
      ...
      %scaled = train.mul %gradient, %scale : tensor<4xf32>
      %change = train.mul %lr, %scaled : tensor<4xf32>
      %next = train.sub %w, %change : tensor<4xf32>
      %kept = train.select %ok, %next, %w : tensor<4xi1>, tensor<4xf32>
      return %loss, %weight, %norm, %kept : tensor<f32>, tensor<f32>, tensor<f32>, tensor<4xf32>
    }
    ```
  }];
  let options = [Option<"predictAsExported", "predict-as-exported", "bool", "false",
                        "predict runs dropout and batch norm as the graph says, and predict_inference in inference mode; else predict does">];
  let dependentDialects = ["::tcc::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def MergePartsPass : Pass<"merge-parts", "::mlir::ModuleOp"> {
  let summary = "Join the entries of all phases and shapes in one module over the same variables";
  let description = [{
    Merges the copies that split-phases made, and the modules of several shapes (`train.dims`). The phase's name becomes a
    part of the names of training entries and of the optimizers' state; stages share that state, so their names become a
    part of the entries' names only. The module attribute `train.phases` holds each phase's groups and run-time numbers;
    lists of the report are concatenated. An entry of a further shape gets its number (`train.shape_numbers`) and its
    dimensions; a program of an update that reads state alone is kept for the first shape only. Constants that differ
    between parts get names of their own.

    ```mlir
    module {
      module @d { func.func @step() attributes {train.entry = "step"} { ... } }
      module @g { func.func @step() attributes {train.entry = "step"} { ... } }
    }
    ```
    becomes
    ```mlir
    module attributes {train.phases = [...]} {
      func.func @step.d() attributes {train.entry = "step.d"} { ... }
      func.func @step.g() attributes {train.entry = "step.g"} { ... }
    }
    ```
    and
    ```mlir
    module {
      module @"@0" attributes {train.dims = {s = 4}, train.shape_numbers = {train = 0}} { func.func @step() attributes {train.entry = "step"} { ... } }
      module @"@1" attributes {train.dims = {s = 8}, train.shape_numbers = {train = 1}} { func.func @step() attributes {train.entry = "step"} { ... } }
    }
    ```
    becomes
    ```mlir
    module {
      func.func @step() attributes {train.dims = {s = 4}, train.entry = "step"} { ... }
      func.func @"step@1"() attributes {train.dims = {s = 8}, train.entry = "step@1"} { ... }
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def DistributePass : Pass<"distribute", "::mlir::ModuleOp"> {
  let summary = "Sum gradients over the ranks in buckets";
  let description = [{
    Merges the single-operand all_reduce, reduce_scatter and all_gather ops of an entry into buckets of about
    `bucket-bytes`, in the order in which the program computes their operands. A bucket is inserted right after its last
    operand, so that gradients of the last layers need not wait for those of the first. Each kind and element type has
    buckets of its own, and so have all-reduces whose results other sums are computed from. Every rank has the same
    program, and so the same sequence of collectives; the sum of an element does not depend on its bucket.

    ```mlir
    %a = train.matmul %x, %g : ...
    %0 = train.all_reduce(%a) : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
    %b = train.reduce_sum %g ... : tensor<4xf32>
    %1 = train.all_reduce(%b) : (tensor<4xf32>) -> tensor<4xf32>
    ```
    becomes
    ```mlir
    %a = train.matmul %x, %g : ...
    %b = train.reduce_sum %g ... : tensor<4xf32>
    %0:2 = train.all_reduce(%a, %b) : (tensor<1x4x4xf32>, tensor<4xf32>) -> (tensor<1x4x4xf32>, tensor<4xf32>)
    ```
  }];
  let options = [
    Option<"bucketBytes", "bucket-bytes", "int64_t", "26214400", "bytes of a bucket; a larger gradient has one of its own">
  ];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def ElideZeroFillPass : Pass<"elide-zero-fill", "::mlir::ModuleOp"> {
  let summary = "Initialise gradients with their first term instead of zeros";
  let description = [{
    A scatter into zeros whose result is added to another gradient scatters into that gradient instead. If the indices
    name at most a quarter of a table's rows, and the rest of the gradient is zeros or a product, the named rows are
    summed into a compact table, and readers of the gradient gather from it: nothing is zeroed, and the rows of the
    product can go directly to the update (fuse-updates). `train.zero_fill_kept` lists gradients that still start as
    zeros (parameter, bytes, reason), `train.zero_fill_elided` all others.

    ```mlir
    %zeros = train.constant dense<0.0> : tensor<8x4xf32>
    %s = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<8x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<8x4xf32>
    %g = train.add %h, %s : tensor<8x4xf32>
    ```
    becomes
    ```mlir
    %g = train.scatter_add %h, %i, %u axis = 0 : (tensor<8x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<8x4xf32>
    ```
    and, of a table of 50257 rows,
    ```mlir
    %s = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<50257x768xf32>, tensor<3xi64>, tensor<3x768xf32>) -> tensor<50257x768xf32>
    ```
    becomes
    ```mlir
    %rows = train.scatter set %threes, %i, %iota axis = 0 : (tensor<50257xi32>, tensor<3xi64>, tensor<3xi32>) -> tensor<50257xi32>
    %named = train.gather %rows, %i axis = 0 : (tensor<50257xi32>, tensor<3xi64>) -> tensor<3xi32>
    %sums = train.scatter_add %zeros, %named, %u axis = 0 : (tensor<4x768xf32>, tensor<3xi32>, tensor<3x768xf32>) -> tensor<4x768xf32>
    %s = train.gather %sums, %rows axis = 0 : (tensor<4x768xf32>, tensor<50257xi32>) -> tensor<50257x768xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def UpdateRowsPass : Pass<"update-rows", "::mlir::func::FuncOp"> {
  let summary = "Update only the rows of a table that have a gradient";
  let description = [{
    Where elide-zero-fill has summed a gradient's few rows into a compact table, and the update leaves every element
    unchanged whose gradient is zero (SGD without momentum and weight decay), the update computes only the rows that the
    indices name and writes them in place. Sums of squares for the gradient's norm run over the compact table.

    ```mlir
    %g = train.gather %sums, %rows axis = 0 : (tensor<4x768xf32>, tensor<50257xi32>) -> tensor<50257x768xf32>
    %s = train.mul %lr, %g : tensor<50257x768xf32>
    %n = train.sub %w, %s : tensor<50257x768xf32>
    // becomes
    %g = train.gather %sums, %named axis = 0 : (tensor<4x768xf32>, tensor<3xi32>) -> tensor<3x768xf32>
    %v = train.gather %w, %i axis = 0 : (tensor<50257x768xf32>, tensor<3xi64>) -> tensor<3x768xf32>
    %s = train.mul %lr, %g : tensor<3x768xf32>
    %m = train.sub %v, %s : tensor<3x768xf32>
    %n = train.scatter set %w, %j, %m axis = 0 : (tensor<50257x768xf32>, tensor<3x768xi64>, tensor<3x768xf32>) -> tensor<50257x768xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def FindLoopsPass : Pass<"find-loops", "::mlir::ModuleOp"> {
  let summary = "Make loops of steps that an exporter has written out";
  let description = [{
    A sequence of ops that repeats, each copy reading results of the copy before it, becomes one train.loop: neither
    compile time nor the plan grows with the number of steps. An operand is one value for all steps, a slice of a tensor
    that advances with the steps, or a result of the same or the preceding step. If every step's result is read, the
    loop returns them stacked, which replaces their concatenation. Fewer than 16 steps stay unrolled; so do steps with
    much arithmetic, random numbers, or ops that emit their own loops, also in the gradient.

    ```mlir
    %m0 = train.mul %h, %w : tensor<1x4xf32>
    %h0 = train.add %m0, %x0 : tensor<1x4xf32> // and so on with %h0 and %x1, slices of %x; becomes
    %last = train.loop %h, %rows, %w steps 9 {operandSegmentSizes = array<i32: 1, 1, 1>}
        : (tensor<1x4xf32>, tensor<9x1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> {
    ^bb0(%before: tensor<1x4xf32>, %row: tensor<1x4xf32>, %factor: tensor<1x4xf32>):
      %kept = train.mul %before, %factor : tensor<1x4xf32>
      %after = train.add %kept, %row : tensor<1x4xf32>
      train.next (%after : tensor<1x4xf32>)
    }
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

#endif // TCC_PASSES_TD
