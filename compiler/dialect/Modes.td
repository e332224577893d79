//===- Modes.td - ops with a training and an inference form ---------------===//
#ifndef TCC_DIALECT_MODES_TD
#define TCC_DIALECT_MODES_TD
include "compiler/dialect/Random.td"
include "compiler/dialect/Reduction.td"

class Train_Mode<string mnemonic, string text>
    : Train_Composite<mnemonic, text, [DeclareOpInterfaceMethods<Train_ModeDependent>]> {
  let hasVerifier = 1;
}
def Train_DropoutOp : Train_Mode<"dropout", "each element is 0 with probability `p`, else x/(1 − p); in inference x"> {
  let description = [{
    Srivastava et al., JMLR 2014. `mask` is true for the elements that are kept. It depends on the key and `id` alone
    (see train.random), not on the element type; the backward pass draws it again instead of storing it.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_RandomKey:$key, I64Attr:$id, F64Attr:$p);
  let results = (outs Train_FloatTensor:$result, Train_BoolTensor:$mask);
  let assemblyFormat = "$input `,` $key `id` `=` $id `p` `=` $p attr-dict `:` functional-type(operands, results)";
}
def Train_BatchNormOp : Train_Mode<"batch_norm", "(x − mean)·rstd·scale + bias with each channel's statistics of the batch"> {
  let description = [{
    Ioffe and Szegedy, arXiv:1502.03167. Channels are dimension 1; statistics go over all others. `variance` is biased; rstd is
    1/√(variance + epsilon). In inference the running statistics replace the batch's. Training does not
    read them; a train.write beside the op updates them. f32 statistics for f16 and bf16.

    With `sync` the batch is that of all ranks (torch.nn.SyncBatchNorm): sums over it, here and in the gradient, go through
    train.all_reduce. Gradients of scale and bias are this rank's part: they are summed with those of other parameters.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$scale, Train_FloatTensor:$bias,
                       Train_FloatTensor:$runningMean, Train_FloatTensor:$runningVariance, F64Attr:$epsilon,
                       UnitAttr:$sync);
  let results = (outs Train_FloatTensor:$result, Train_FloatTensor:$mean, Train_FloatTensor:$variance);
  let assemblyFormat = [{
    $input `,` $scale `,` $bias `,` $runningMean `,` $runningVariance `epsilon` `=` $epsilon attr-dict `:`
    functional-type(operands, results)
  }];
}
#endif // TCC_DIALECT_MODES_TD
