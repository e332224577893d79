//===- Ctc.td - connectionist temporal classification ----------------------===//
#ifndef TCC_DIALECT_CTC_TD
#define TCC_DIALECT_CTC_TD
include "compiler/dialect/TrainDialect.td"

class Train_CtcBase<string mnemonic, string text, list<Trait> traits>
    : Train_PureOp<mnemonic, traits> {
  let summary = text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
defvar Train_CtcFloat = StaticShapeTensorOf<[F64, F32]>;
defvar Train_CtcIndex = StaticShapeTensorOf<[I64]>;

def Train_CtcOp : Train_CtcBase<"ctc", "−ln of the probability of each sample's labels, over all alignments",
                                [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    Graves et al., "Connectionist temporal classification", ICML 2006. `logProbs` [N, T, C] are logarithms, `targets`
    [N, S] the labels: sample n has the first `targetLengths`[n] labels and the first `inputLengths`[n] steps; these
    lengths are clamped to [0, S] and [0, T]. `blank` is a class. With l' the labels with a blank before, between and
    after them, α_0 = [0, −∞, …] and

        α_t(s) = logProbs(t, l'_s) + ln(e^α_(t−1)(s) + e^α_(t−1)(s−1) + [l'_s ≠ l'_(s−2)] e^α_(t−1)(s−2)).

    Results: `loss` [N] = −ln(e^α(2L) + e^α(2L−1)) after the last step, ∞ where no alignment is possible; `alphas`
    [N, T, 2·S + 1] for the gradient, −∞ beyond a sample's steps and labels. A label that is no class makes NaN.

    Steps are a loop inside one kernel, a tile is one sample: neither compile time nor the plan grows with T. The gradient
    with respect to logProbs is that of this formula: minus the probability that l'_s is at t, given the labels. (PyTorch's
    ctc_loss adds e^logProbs, which is the same behind a log-softmax.)
  }];
  let arguments = (ins Train_CtcFloat:$logProbs, Train_CtcIndex:$targets, Train_CtcIndex:$inputLengths,
                       Train_CtcIndex:$targetLengths, I64Attr:$blank);
  let results = (outs Train_CtcFloat:$loss, Train_CtcFloat:$alphas);
}
def Train_CtcGradOp : Train_CtcBase<"ctc_grad", "gradient of ctc with respect to its log-probabilities",
                                    [Train_NotDifferentiable]> {
  let description = [{
    β runs backwards as α runs forwards, without the step's own logProbs; the gradient of logProbs(t, c) is
    −lossGrad · Σ e^(α_t(s) + β_t(s) + loss) over all s with l'_s = c. Alignments of probability 0 contribute nothing: a
    sample whose loss is ∞ has the gradient 0.
  }];
  let arguments = (ins Train_CtcFloat:$lossGrad, Train_CtcFloat:$logProbs, Train_CtcIndex:$targets,
                       Train_CtcIndex:$inputLengths, Train_CtcIndex:$targetLengths, Train_CtcFloat:$loss,
                       Train_CtcFloat:$alphas, I64Attr:$blank);
  let results = (outs Train_CtcFloat:$logProbsGrad);
}
#endif // TCC_DIALECT_CTC_TD
