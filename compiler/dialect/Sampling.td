//===- Sampling.td - weighted sums of elements at given places --------------===//
#ifndef TCC_DIALECT_SAMPLING_TD
#define TCC_DIALECT_SAMPLING_TD
include "compiler/dialect/TrainDialect.td"

def Train_SampleOp : Train_PureOp<"sample", [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "result[b, c, p, i] = Σ_t weights[b, t, p] · input[b, c, indices[b, t, p], i]";
  let description = [{
    Interpolation: `t` counts the taps of an output. An index outside of the input adds nothing. Weights are f64 for f64, else
    f32, and so is the sum before it is rounded. If indices and weights are constants, the derivative is a sample by the
    transposed table; else a spread.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_IntTensor:$indices, Train_FloatTensor:$weights);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_SpreadOp : Train_PureOp<"spread", [DeclareOpInterfaceMethods<Train_LoopKernel>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "result[b, c, indices[b, t, p], i] += weights[b, t, p] · updates[b, c, p, i], from 0: the transpose of sample";
  let description = "Added in the order of t, then p. An index outside of the result is dropped.";
  let arguments = (ins Train_FloatTensor:$updates, Train_IntTensor:$indices, Train_FloatTensor:$weights);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_SampleWeightGradOp : Train_PureOp<"sample_weight_grad", [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "result[b, t, p] = Σ_c,i input[b, c, indices[b, t, p], i] · grad[b, c, p, i]";
  let description = "The derivative of sample with respect to its weights.";
  let arguments = (ins Train_FloatTensor:$input, Train_IntTensor:$indices, Train_FloatTensor:$grad);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_SAMPLING_TD
