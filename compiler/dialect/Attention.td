//===- Attention.td - scaled dot-product attention and its gradient --------===//
#ifndef TCC_DIALECT_ATTENTION_TD
#define TCC_DIALECT_ATTENTION_TD
include "compiler/dialect/TrainDialect.td"

class Train_AttentionBase<string mnemonic, string text, list<Trait> traits>
    : Train_PureOp<mnemonic, traits # [AttrSizedOperandSegments]> {
  let summary = text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
defvar Train_AttentionAttributes = (ins F64Attr:$scale, DefaultValuedAttr<BoolAttr, "false">:$causal,
                                        DefaultValuedAttr<I64Attr, "0">:$causalOffset, DefaultValuedAttr<F64Attr, "0.0">:$softcap,
                                        DefaultValuedAttr<F64Attr, "0.0">:$dropout, DefaultValuedAttr<I64Attr, "0">:$dropoutId,
                                        OptionalAttr<F64Attr>:$maskFill);

def Train_AttentionOp : Train_AttentionBase<"attention", "softmax(query·keyᵀ·scale + bias)·value, scores never stored",
                                            [DeclareOpInterfaceMethods<Train_Differentiable>, DeclareOpInterfaceMethods<Train_ModeDependent>,
                                             DeclareOpInterfaceMethods<Train_Autocast, ["getAutocastOperands"]>]> {
  let description = [{
    Online softmax over blocks of keys (Milakov and Gimelshein, arXiv:1805.02867; Dao et al., "FlashAttention",
    arXiv:2205.14135): memory linear in the sequence. `query` [B, H, Tq, D], `key` [B, G, Tk, D], `value` [B, G, Tk, V]; H is a
    multiple of G: heads h·G/H share keys (grouped-query attention).

    score(b, h, i, j) = softcap(scale · Σ query·key) + bias(b, h, i, j), where softcap(s) = c·tanh(s/c) for `softcap` c > 0.
    `bias` broadcasts to [B, H, Tq, Tk], each dimension of it full or 1; so does `mask`: false excludes. `causal` excludes
    j > i + `causalOffset`. With `maskFill` a score that `mask` excludes is `maskFill` + bias instead of −∞: it has no
    gradient, but a weight above 0 if the rest of its row is excluded, too. A row that excludes everything gives zeros,
    and logsumexp −∞. `dropout` is the probability of a weight to become 0 after the softmax; the mask is the one that
    train.dropout draws over [B, H, Tq, Tk] with the id `dropoutId` and the key `randomKey`.

    Results: output [B, H, Tq, V] in the operands' type; logsumexp [B, H, Tq, 1] of each row's scores, f32 (f64 for f64);
    logsumexpRest, of the same type, the rounding error of logsumexp. If a finite mask value excludes a whole row, its
    scores are near −1e9, and rounding to f32 would lose the logarithm of the sum from logsumexp alone.
    Sums are f32 (f64) whatever the operands' type. Operands and results of heads may be strided views of other tensors
    (acceptsLayout), as long as features are contiguous.
  }];
  let arguments = !con((ins Train_FloatTensor:$query, Train_FloatTensor:$key, Train_FloatTensor:$value,
                            Optional<Train_FloatTensor>:$bias, Optional<Train_BoolTensor>:$mask,
                            Optional<StaticShapeTensorOf<[UI32]>>:$randomKey), Train_AttentionAttributes);
  let results = (outs Train_FloatTensor:$output, Train_FloatTensor:$logsumexp, Train_FloatTensor:$logsumexpRest);
}
def Train_AttentionGradOp : Train_AttentionBase<"attention_grad", "gradients of attention; recomputes scores block by block",
                                                [Train_NotDifferentiable]> {
  let description = [{
    With p = exp(score − logsumexp − logsumexpRest) and δ = Σ output·outputGrad over a row: valueGrad = pᵀ·g and
    s' = p∘(g·valueᵀ − δ), which gives queryGrad and keyGrad through softcap and scale (Dao et al., algorithm 2). δ is
    computed from `output`, or given as `delta`, [B, H, Tq, 1] in the type of logsumexp (pass sum-attention-rows):
    exactly one of the two is present. An absent `logsumexpRest` counts as 0: logsumexp comes from a library that keeps
    one number for each row (train.attention_call). `biasGrad`, present only if it has a reader, is all of s':
    [B, H, Tq, Tk].
  }];
  let arguments = !con((ins Train_FloatTensor:$query, Train_FloatTensor:$key, Train_FloatTensor:$value,
                            Optional<Train_FloatTensor>:$bias, Optional<Train_BoolTensor>:$mask,
                            Optional<StaticShapeTensorOf<[UI32]>>:$randomKey, Optional<Train_FloatTensor>:$output,
                            Optional<Train_FloatTensor>:$delta, Train_FloatTensor:$logsumexp,
                            Optional<Train_FloatTensor>:$logsumexpRest, Train_FloatTensor:$outputGrad), Train_AttentionAttributes);
  let results = (outs Train_FloatTensor:$queryGrad, Train_FloatTensor:$keyGrad, Train_FloatTensor:$valueGrad,
                      Variadic<Train_FloatTensor>:$biasGrad);
  let hasCanonicalizer = 1;
}

/// Calls of the target's library, without mask, soft cap and dropout. Heads may be strided views of other tensors, as
/// for the kernels: fold-strides puts the op and the movements into a region, and place-calls gives the region the call
/// with strides. `bias` has the operands' type and is dense: [1 or B, 1 or H, Tq, Tk].
class Train_AttentionCallBase<string mnemonic, string text>
    : Train_PureOp<mnemonic, [Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_LibraryCall, ["getInPlaceOperand", "buildKernels"]>,
                              DeclareOpInterfaceMethods<Train_LoopKernel, ["acceptsLayout"]>]> {
  let summary = text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_AttentionCallOp : Train_AttentionCallBase<"attention_call", "attention by a library, which keeps one number a row"> {
  let description = [{
    Output and logsumexp are those of train.attention with the same operands, without the rounding error of logsumexp.
    Weights are rounded to the operands' type before they multiply values. `causal` excludes j > i. Every row must see a
    key: the library's result for a row that sees none is not documented. call-attention replaces train.attention by it.
  }];
  let arguments = (ins Train_FloatTensor:$query, Train_FloatTensor:$key, Train_FloatTensor:$value,
                       Optional<Train_FloatTensor>:$bias, F64Attr:$scale, DefaultValuedAttr<BoolAttr, "false">:$causal);
  let results = (outs Train_FloatTensor:$output, Train_FloatTensor:$logsumexp);
}
def Train_AttentionGradCallOp : Train_AttentionCallBase<"attention_grad_call", "gradients of attention_call, by the same library"> {
  let description = [{
    The gradients of train.attention_grad with the output and logsumexp of train.attention_call. `biasGrad`, present only
    if it has a reader, has the bias's type and shape: it is summed over the samples and heads that share an element.
  }];
  let arguments = (ins Train_FloatTensor:$query, Train_FloatTensor:$key, Train_FloatTensor:$value, Train_FloatTensor:$output,
                       Train_FloatTensor:$logsumexp, Train_FloatTensor:$outputGrad, Optional<Train_FloatTensor>:$bias,
                       F64Attr:$scale, DefaultValuedAttr<BoolAttr, "false">:$causal);
  let results = (outs Train_FloatTensor:$queryGrad, Train_FloatTensor:$keyGrad, Train_FloatTensor:$valueGrad,
                      Variadic<Train_FloatTensor>:$biasGrad);
}
#endif // TCC_DIALECT_ATTENTION_TD
