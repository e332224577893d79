//===- CudaPasses.td - passes of the CUDA target, with IR before and after -===//
#ifndef TCC_TARGET_CUDA_PASSES_TD
#define TCC_TARGET_CUDA_PASSES_TD

include "mlir/Pass/PassBase.td"

def CallAttentionPass : Pass<"call-attention", "::mlir::ModuleOp"> {
  let summary = "Replace attention by the library's, where the target has a call";
  let description = [{
    train.attention without soft cap and dropout becomes train.attention_call if the target has a call for it. The call keeps
    one number a row for the gradient, so the pass decides for attention and its gradients together. With `calls` =
    "forward" the gradient stays a generated kernel, which reads logsumexp without its rounding error; with "both" the gradient
    becomes the library's too, if the target has a call for it. If an op other than a gradient reads the rounding error,
    attention stays as it is.

    With `calls` = "auto" the target's default decides (`plain`), another one for attention with a bias or a mask (`biased`). Such a
    choice may be refused later (`train.calls_refused` on the module, with the reason): the pass runs again, and all
    attention stays as it is.

    A bias and a mask become one bias of the operands' type, for every query and key; a generated gradient reads that
    bias too. Both need the mark `train.rows_keep_keys`, since the library does not handle rows that see no key. The
    library sums the bias's gradient over samples and heads that share a bias, so the only readers in the graph must be
    such sums.

    ```mlir
    %o, %l, %rest = train.attention %q, %k, %v {scale = 0.25, causal = true}
    %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %rest, %do {scale = 0.25, causal = true}
    // becomes
    %o, %l = train.attention_call %q, %k, %v {scale = 0.25, causal = true}
    %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %do {scale = 0.25, causal = true}
    // with calls = "both"
    %dq, %dk, %dv = train.attention_grad_call %q, %k, %v, %o, %l, %do {scale = 0.25, causal = true}

    %o, %l, %rest = train.attention %q, %k, %v, %bias {scale = 0.25, train.rows_keep_keys} // f32
    %dq, %dk, %dv, %ds = train.attention_grad %q, %k, %v, %bias, %o, %l, %rest, %do {scale = 0.25, train.rows_keep_keys}
    %db = train.reduce sum %ds [0] : tensor<8x12x64x64xf32> -> tensor<1x12x64x64xf32>
    // with calls = "both" becomes
    %b = train.cast %bias : tensor<1x12x64x64xf32> -> tensor<1x12x64x64xbf16>
    %o, %l = train.attention_call %q, %k, %v, %b {scale = 0.25}
    %dq, %dk, %dv, %g = train.attention_grad_call %q, %k, %v, %o, %l, %do, %b {scale = 0.25}
    %db = train.cast %g : tensor<1x12x64x64xbf16> -> tensor<1x12x64x64xf32>
    ```
  }];
  let options = [
    Option<"calls", "calls", "std::string", "\"forward\"", "compiler.attention_calls: auto, forward or both">,
    Option<"plain", "plain", "std::string", "\"none\"", "what auto stands for without a bias: none, forward or both">,
    Option<"plainWhy", "plain-why", "std::string", "\"\"", "the reason">,
    Option<"biased", "biased", "std::string", "\"none\"", "the same with a bias or mask">,
    Option<"biasedWhy", "biased-why", "std::string", "\"\"", "the reason">];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def UnpackInOrderPass : Pass<"unpack-in-order", "::mlir::func::FuncOp"> {
  let summary = "Widen matrices of 4 bits for products in the order of their codes";
  let description = [{
    A matrix that products alone read, and whose codes run along its columns, is unpacked transposed, and the products
    read it transposed: neighbouring threads then read neighbouring codes. Values and sums stay the same.

    ```mlir
    %w = train.unpack nf4 %q, %s block = 64 shape = [48, 32] strides = [1, 48] : (tensor<768xui8>, tensor<24xf32>) -> tensor<48x32xf32>
    %b = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
    %y = train.matmul %x, %b : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
    // becomes
    %w = train.unpack nf4 %q, %s block = 64 shape = [32, 48] strides = [48, 1] : (tensor<768xui8>, tensor<24xf32>) -> tensor<32x48xf32>
    %b = train.reshape %w : tensor<32x48xf32> -> tensor<1x32x48xf32>
    %y = train.matmul %x, %b {transB = true} : (tensor<1x64x48xf32>, tensor<1x32x48xf32>) -> tensor<1x64x32xf32>
    ```
  }];
}

def AlignProductsPass : Pass<"align-products", "::mlir::func::FuncOp"> {
  let summary = "Pad matrices whose rows would slow tensor cores down";
  let description = [{
    Tensor cores reach full speed if rows are a multiple of `row-bytes`. The pass pads rows of large products' operands
    with zeros, and slices the extra rows and columns off the result. Fusion makes both part of the kernels around the
    product. Each element sums the same terms; the library may add them in another order.

    ```mlir
    %y = train.matmul %x, %w {transB = true} : (tensor<1x512x768xbf16>, tensor<1x50257x768xbf16>) -> tensor<1x512x50257xbf16>
    // becomes
    %wide = train.pad %w low [0, 0, 0] steps [1, 1, 1] value 0.0 : tensor<1x50257x768xbf16> -> tensor<1x50264x768xbf16>
    %p = train.matmul %x, %wide {transB = true} : (tensor<1x512x768xbf16>, tensor<1x50264x768xbf16>) -> tensor<1x512x50264xbf16>
    %y = train.slice %p starts [0, 0, 0] steps [1, 1, 1] : tensor<1x512x50264xbf16> -> tensor<1x512x50257xbf16>
    ```
  }];
  let options = [Option<"rowBytes", "row-bytes", "int64_t", "16", "alignment of rows">];
}

def SumAttentionRowsPass : Pass<"sum-attention-rows", "::mlir::func::FuncOp"> {
  let summary = "Compute the sums of rows that attention's gradient reads ahead of it";
  let description = [{
    For targets whose attention kernels read all queries in each tile of keys (Capabilities::attentionTiles). The
    gradient then reads δ = Σ output·outputGrad, one number a row, in place of the output. Gradients that those kernels do
    not compute still read the output.

    ```mlir
    %dq, %dk, %dv = train.attention_grad %q, %k, %v, %o, %l, %rest, %do {...}
    // becomes
    %p = train.mul %o32, %do32 : tensor<1x2x32x16xf32>
    %delta = train.reduce sum %p [3] : tensor<1x2x32x16xf32> -> tensor<1x2x32x1xf32>
    %dq, %dk, %dv = train.attention_grad %q, %k, %v, %delta, %l, %rest, %do {...}
    ```
  }];
}

def MarkNarrowPass : Pass<"mark-narrow", "::mlir::func::FuncOp"> {
  let summary = "Mark functions whose results are rounded to 16 bits";
  let description = [{
    An op with the trait HasNearForm (exp, tanh, sigmoid, silu, softplus, erf, gelu and its derivative) gets the attribute
    `train.of_narrow` if its type has 16 bits, or if it is part of an elementwise chain that reads tensors of 16 bits and
    ends, in all readers, in a rounding to 16 bits or in a reduction. Other operands of the chain are smaller: biases,
    scales, statistics of rows. Kernels then compute it by the card's approximations of 2^x and 1/x (NearFunctions.h).

    ```mlir
    %x = train.cast %p : tensor<8x64xbf16> -> tensor<8x64xf32>
    %y = train.add %x, %bias : tensor<8x64xf32>
    %z = train.gelu %y : tensor<8x64xf32>
    %r = train.cast %z : tensor<8x64xf32> -> tensor<8x64xbf16>
    // becomes
    %z = train.gelu %y {train.of_narrow} : tensor<8x64xf32>
    ```
  }];
}

def FuseEpiloguesPass : Pass<"fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Replace kernels that finish a product by the epilogue of its call";
  let description = [{
    A kernel that only adds a bias to a product, applies gelu to the sum, multiplies a product by the derivative of gelu, or
    sums an operand of a product for the gradient of a bias, costs a launch, and reads again a tensor that the product
    has just written or read. If the target has a call that does the same (MatMulEpilogueOp), the call replaces the
    kernel. The pass replaces whole kernels, so each replacement saves a launch. It keeps no additional value: gelu's
    input is kept instead of the product, and only if all readers of the product are replaced.

    ```mlir
    %p = train.matmul %x, %w {train.call = ...} : ... -> tensor<1x64x256xf32>
    %h = train.fused(%b, %p) ... { broadcast; add; gelu {tanh = true} }      // forward
    %d = train.matmul %dy, %v {train.call = ...} : ... -> tensor<1x64x256xf32>
    %g:2 = train.fused(%d, %p, %b) ... { add; gelu_derivative; mul; reduce sum [0, 1] }
    // becomes
    %h:2 = train.matmul_epilogue "gelu"(%x, %w, %b) {keeps, train.call = ...} ...
    %g:2 = train.matmul_epilogue "gelu_gradient"(%dy, %v, %h#1) {sums = "result", train.call = ...} ...
    ```

    A convolution may have a bias as its epilogue. The library uses other engines for it than for the convolution alone,
    and these add in another order. Relu stays a kernel: the libraries compute 0 where the sum is NaN.

    A call rounds its result once, when it stores it. In f32 a kernel that adds a bias rounds once as well. In 16 bits the
    product is rounded before a kernel adds the bias, and the bias of a call is a 16-bit vector, which a small kernel
    converts from the f32 parameter: such a call gives other bits, those of PyTorch's autocast. The library also has its
    own formulas for gelu and sums, and returns sums of 16-bit products in 16 bits. `level` says how far a value may
    differ. With `level` = "auto" the target's defaults decide for products and convolutions of 16 bits, and others keep
    their bits.

    A call keeps what kernels need that finish the plain product where a library has no algorithm for the call: the bias
    in f32, and how split-reductions would cut sums.
  }];
  let options = [
    Option<"level", "level", "std::string", "\"all\"", "exact: biases that keep their bits; bias: all biases; gelu: also gelu and its gradient; all: also sums for biases' gradients beside weight gradients; auto: defaults">,
    Option<"narrow", "narrow", "std::string", "\"exact\"", "what auto stands for in products of 16 bits">,
    Option<"narrowWhy", "narrow-why", "std::string", "\"\"", "the reason">,
    Option<"convolutions", "convolutions", "std::string", "\"exact\"", "the same in convolutions of 16 bits">,
    Option<"convolutionsWhy", "convolutions-why", "std::string", "\"\"", "the reason">];
}

def WeighCallsPass : Pass<"weigh-calls", "::mlir::ModuleOp"> {
  let summary = "Refuse calls of attention, chosen by default, whose scratch would need much more memory";
  let description = [{
    The library's gradient of attention stores the scores' gradients in scratch. If that raises the peak of live bytes
    by more than a share of all memory, the pass sets `train.calls_refused` on the module: the compile then begins again
    where the calls were chosen. It changes nothing else. With a memory budget the budget decides.
  }];
  let options = [
    Option<"raiseShare", "raise-share", "uint64_t", "8", "memory may grow by one part of so many">,
    Option<"harmlessBytes", "harmless", "uint64_t", "268435456", "so many bytes more are no objection">];
}

def JoinKernelsPass : Pass<"join-kernels", "::mlir::func::FuncOp"> {
  let summary = "Let small kernels that do not depend on one another share a launch";
  let description = [{
    A kernel of a few kilobytes takes a card 4 to 7 us, most of them for the launch. In the given order, the pass delays
    a small kernel until its result is read; all delayed kernels then share one launch. Other kernels whose operands are
    computed join that launch if it already runs the same program. A larger kernel is delayed as well if its operands
    have left the cache (updates that wait for the norm of all gradients). Each keeps its own tiles and reduction trees,
    so no bit changes.

    A delayed kernel keeps its operands alive: where this would raise the peak of memory, only smaller kernels are
    delayed.

    ```mlir
    %a = train.fused(%x) ...
    %p = train.matmul %y, %w ...
    %b = train.fused(%p) ...
    return %a, %b
    // becomes
    %p = train.matmul %y, %w ...
    %r:2 = train.joined(%x, %p) ... {
    ^bb0(%0: ..., %1: ...):
      %a = train.fused(%0) ...
      %b = train.fused(%1) ...
    }
    return %r#0, %r#1
    ```
  }];
  let options = [
    Option<"smallBytes", "small", "int64_t", "4194304",
           "a kernel that reads and writes fewer bytes takes little longer than its launch: it waits">,
    Option<"cachedBytes", "cached", "int64_t", "33554432",
           "a larger kernel waits if its operands were written before so many other bytes, and have left the cache">];
}

#endif // TCC_TARGET_CUDA_PASSES_TD
