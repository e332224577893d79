//===- Recurrent.td - recurrent layers and their gradient -----------------===//
#ifndef TCC_DIALECT_RECURRENT_TD
#define TCC_DIALECT_RECURRENT_TD
include "compiler/dialect/TrainDialect.td"

def Train_RecurrentCell : I32EnumAttr<"RecurrentCell", "cell of a recurrent layer", [
    I32EnumAttrCase<"rnn", 0>, I32EnumAttrCase<"gru", 1>, I32EnumAttrCase<"gru_reset_after", 2>, I32EnumAttrCase<"lstm", 3>]> {
  let cppNamespace = "::tcc::train";
}
def Train_CellActivation : I32EnumAttr<"CellActivation", "activation inside a cell", [
    I32EnumAttrCase<"tanh", 0>, I32EnumAttrCase<"sigmoid", 1>, I32EnumAttrCase<"relu", 2>, I32EnumAttrCase<"affine", 3>,
    I32EnumAttrCase<"leaky_relu", 4>, I32EnumAttrCase<"thresholded_relu", 5>, I32EnumAttrCase<"scaled_tanh", 6>,
    I32EnumAttrCase<"hard_sigmoid", 7>, I32EnumAttrCase<"elu", 8>, I32EnumAttrCase<"softsign", 9>, I32EnumAttrCase<"softplus", 10>]> {
  let cppNamespace = "::tcc::train";
}
def Train_WideFloatTensor : StaticShapeTensorOf<[F64, F32]>;

defvar Train_CellAttributes = (ins Train_RecurrentCell:$cell, DenseI32ArrayAttr:$activations, DenseF64ArrayAttr:$alphas,
                                   DenseF64ArrayAttr:$betas, DefaultValuedAttr<F64Attr, "0.0">:$clip,
                                   DefaultValuedAttr<BoolAttr, "false">:$coupled, DefaultValuedAttr<BoolAttr, "false">:$reverse);

class Train_RecurrentBase<string mnemonic, string text, list<Trait> traits>
    : Train_PureOp<mnemonic, traits # [AttrSizedOperandSegments]> {
  let summary = text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_RecurrentOp : Train_RecurrentBase<"recurrent", "all steps of a recurrent layer in one direction",
                                            [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    The last dimension concatenates the gates in ONNX's order: rnn 1, gru z r h, lstm i o f c. `projected` [T, B, G·H]
    is input and biases times their weights, `weight` [H, G·H] the recurrent weights, transposed. `extra`: an lstm's
    peepholes i o f [3·H]; the bias of gru_reset_after's hidden part inside the reset gate [H]. `lengths` [B]: from the
    step of its length on, a sample's state does not change. `activations`, with alphas and betas, are ONNX's f, g, h;
    `clip` > 0 bounds their arguments; `coupled`: the forget gate is 1 − input gate.

    Results: `states` [T, B, H]; `last` [B, H], the state after the last step in the layer's direction; then
    gru: gates z r h [T, B, 3·H]; gru_reset_after: z r q h [T, B, 4·H], where q is the value that the reset gate scales;
    lstm: the last cell [B, H], gates i o f c [T, B, 4·H], cells [T, B, H]. The gradient reads gates and cells.

    Steps stay a loop inside one kernel, over a few samples at a time: compile time does not depend on the length, and the
    gradient of the weights is one product over all steps.
  }];
  let arguments = !con((ins Train_WideFloatTensor:$projected, Train_WideFloatTensor:$weight, Train_WideFloatTensor:$initial,
                            Optional<Train_WideFloatTensor>:$initialCell, Optional<Train_WideFloatTensor>:$extra,
                            Optional<Train_IntTensor>:$lengths), Train_CellAttributes);
  let results = (outs Train_WideFloatTensor:$states, Train_WideFloatTensor:$last, Variadic<Train_WideFloatTensor>:$kept);
}
def Train_RecurrentGradOp : Train_RecurrentBase<"recurrent_grad", "gradient of a recurrent layer by its gates, backwards through the steps",
                                                [Train_NotDifferentiable]> {
  let description = [{
    `weight` is [G·H, H]. `kept`: rnn: states; gru and gru_reset_after: gates, previous states; lstm: gates, cells,
    previous cells. Absent gradients are zero. Results: the gradient of `projected`, of the initial state, then lstm: of the
    initial cell; gru_reset_after: of q [T, B, H].
  }];
  let arguments = !con((ins Train_WideFloatTensor:$weight, Variadic<Train_WideFloatTensor>:$kept, Optional<Train_WideFloatTensor>:$extra,
                            Optional<Train_IntTensor>:$lengths, Optional<Train_WideFloatTensor>:$statesGrad,
                            Optional<Train_WideFloatTensor>:$lastGrad, Optional<Train_WideFloatTensor>:$lastCellGrad), Train_CellAttributes);
  let results = (outs Train_WideFloatTensor:$projectedGrad, Train_WideFloatTensor:$initialGrad, Variadic<Train_WideFloatTensor>:$more);
}
#endif // TCC_DIALECT_RECURRENT_TD
