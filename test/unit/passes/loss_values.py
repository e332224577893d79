"""Prints LossValues.h: PyTorch's losses and their gradients in f64, for LossTest.cpp.

python loss_values.py > LossValues.h
"""
import torch
import torch.nn.functional as F
from torchvision.ops import sigmoid_focal_loss

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def numbers(tensor):
    return "{" + ", ".join(repr(float(v)) for v in tensor.flatten().tolist()) + "}"


def case(name, settings, prediction, target, loss, target_in_graph=False, correct=None, counted=None, outputs=1, weights=None):
    """`outputs`: the predictions, one after another along the first axis of `prediction`; `target`: None where there is none;
    `weights`: of the samples, exact in f32, which `loss` knows."""
    prediction = prediction.detach().clone().requires_grad_()
    value = loss(*(prediction if outputs > 1 else [prediction]), *([] if target is None else [target]))
    value.backward()
    target = torch.zeros(0) if target is None else target
    shape = "x".join(str(d) for d in prediction.shape)
    target_shape = "x".join(str(d) for d in target.shape) if target_in_graph else ""
    print(f'    {{"{name}", {settings},\n     "{shape}", "{target_shape}", {numbers(prediction)},\n     {numbers(target)},\n'
          f"     {value.item()!r}, {numbers(prediction.grad)},\n"
          f"     {-1.0 if correct is None else float(correct)}, {-1.0 if counted is None else float(counted)}, {outputs}"
          f"{'' if weights is None else ', ' + numbers(weights)}}},")


def hits(prediction, target, axis, ignore=-100):
    valid = target != ignore
    return ((prediction.argmax(axis) == target) & valid).sum(), valid.sum()


print('''//===- LossValues.h - PyTorch's losses and gradients ------------*- C++ -*-===//
//
// Printed by loss_values.py (seed 7, f64); do not edit.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PASSES_LOSSVALUES_H
#define TCC_TEST_UNIT_PASSES_LOSSVALUES_H

#include <ostream>
#include <string>
#include <vector>

namespace tcc::test {

struct LossCase {
  const char *name;
  const char *settings;    ///< keys of [loss], as KEY=VALUE
  const char *shape;       ///< of the prediction
  const char *targetShape; ///< of a target that is a graph input already; empty: the pass makes it
  std::vector<double> prediction, target;
  double loss;
  std::vector<double> gradient;
  double correct, counted; ///< -1: not computed
  int outputs;             ///< predictions, one after another along the first axis of `prediction`
  std::vector<double> weights = {}; ///< of the samples, in the graph input "w"; empty: they have none
};
inline void PrintTo(const LossCase &value, std::ostream *out) { *out << value.name; }

inline const LossCase kLossCases[] = {''')

x, t = torch.randn(4, 5), torch.tensor([1, -100, 4, 0])
t = torch.where(t == 4, x.argmax(1), t)
w = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5])
case("cross_entropy", '"kind=cross_entropy"', x, t, F.cross_entropy, correct=hits(x, t, 1)[0], counted=3)
case("cross_entropy_weight", '"kind=cross_entropy weight=[0.5,1,2,0.25,1.5]"', x, t, lambda p, y: F.cross_entropy(p, y, weight=w))
case("cross_entropy_smoothing", '"kind=cross_entropy label_smoothing=0.1"', x, t,
     lambda p, y: F.cross_entropy(p, y, label_smoothing=0.1))
case("cross_entropy_weight_smoothing", '"kind=cross_entropy label_smoothing=0.2 weight=[0.5,1,2,0.25,1.5]"', x, t,
     lambda p, y: F.cross_entropy(p, y, weight=w, label_smoothing=0.2))
case("cross_entropy_sum", '"kind=cross_entropy reduction=sum"', x, t, lambda p, y: F.cross_entropy(p, y, reduction="sum"))
case("cross_entropy_ignore", '"kind=cross_entropy ignore_index=0"', x, t.clamp(min=0), lambda p, y: F.cross_entropy(p, y, ignore_index=0))
x3, t3 = torch.randn(2, 3, 5), torch.tensor([[1, 2, -100], [0, 4, 3]])
case("cross_entropy_last_axis", '"kind=cross_entropy class_axis=-1"', x3, t3,
     lambda p, y: F.cross_entropy(p.reshape(6, 5), y.reshape(6)))
case("cross_entropy_shift", '"kind=cross_entropy class_axis=-1 shift=true"', x3, t3,
     lambda p, y: F.cross_entropy(p[:, :-1].reshape(4, 5), y[:, 1:].reshape(4)))
case("cross_entropy_images", '"kind=cross_entropy"', torch.randn(2, 5, 3), t3, F.cross_entropy)
probabilities = torch.softmax(torch.randn(4, 5), 1)
case("cross_entropy_probabilities", '"kind=cross_entropy label_smoothing=0.1 weight=[0.5,1,2,0.25,1.5]"', x, probabilities,
     lambda p, y: F.cross_entropy(p, y, weight=w, label_smoothing=0.1), target_in_graph=True,
     correct=(x.argmax(1) == probabilities.argmax(1)).sum(), counted=4)
case("nll", '"kind=nll weight=[0.5,1,2,0.25,1.5]"', torch.log_softmax(x, 1), t, lambda p, y: F.nll_loss(p, y, weight=w))
a, b = torch.randn(3, 4), torch.randn(3, 4)
b[1, 2] = a[1, 2]
case("mse", '"kind=mse"', a, b, F.mse_loss)
case("mse_sum", '"kind=mse reduction=sum"', a, b, lambda p, y: F.mse_loss(p, y, reduction="sum"))
case("l1", '"kind=l1"', a, b, F.l1_loss)
case("huber", '"kind=huber delta=0.7"', a, b, lambda p, y: F.huber_loss(p, y, delta=0.7))
case("smooth_l1", '"kind=smooth_l1 beta=0.5"', a, b, lambda p, y: F.smooth_l1_loss(p, y, beta=0.5))
case("smooth_l1_zero", '"kind=smooth_l1 beta=0"', a, b, lambda p, y: F.smooth_l1_loss(p, y, beta=0.0))
y01 = torch.tensor([[0, 1, 0.25, 1], [1, 0, 0, 0.5], [1, 1, 0, 0]])
e = torch.tensor([0.5, 1.0, 2.0, 0.25])
case("bce", '"kind=bce weight=[0.5,1,2,0.25]"', torch.sigmoid(a), y01, lambda p, y: F.binary_cross_entropy(p, y, weight=e))
a[0, 0] = a[0, 1] = 0
a[2, 3] = 40
case("bce_with_logits", '"kind=bce_with_logits"', a, y01, F.binary_cross_entropy_with_logits)
case("bce_with_logits_weights", '"kind=bce_with_logits pos_weight=[0.5,1,2,0.25] weight=[0.25,2,1,0.5]"', a, y01,
     lambda p, y: F.binary_cross_entropy_with_logits(p, y, pos_weight=e, weight=e.flip(0)))
q = torch.softmax(torch.randn(3, 4), 1)
q[0, 1] = 0
case("kl_div", '"kind=kl_div"', torch.log_softmax(b, 1), q, lambda p, y: F.kl_div(p, y, reduction="mean"))
case("kl_div_log", '"kind=kl_div log_target=true reduction=sum"', torch.log_softmax(b, 1), torch.log_softmax(a, 1),
     lambda p, y: F.kl_div(p, y, reduction="sum", log_target=True))
z = torch.tensor([[1.0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
case("focal", '"kind=focal"', a, z, lambda p, y: sigmoid_focal_loss(p, y, reduction="mean"))
case("focal_sum", '"kind=focal alpha=-1 gamma=1.5 reduction=sum"', a, z,
     lambda p, y: sigmoid_focal_loss(p, y, alpha=-1, gamma=1.5, reduction="sum"))
case("focal_gamma_one", '"kind=focal alpha=0.6 gamma=1"', a, z, lambda p, y: sigmoid_focal_loss(p, y, alpha=0.6, gamma=1, reduction="mean"))
case("focal_gamma_zero", '"kind=focal gamma=0"', a, z, lambda p, y: sigmoid_focal_loss(p, y, gamma=0, reduction="mean"))


def dice(p, y, dims, smooth=1.0):
    return (1 - (2 * (p * y).sum(dims) + smooth) / (p.sum(dims) + y.sum(dims) + smooth)).mean()


images, masks = torch.randn(3, 2, 2, 3), (torch.rand(3, 2, 2, 3) < 0.5).double()
case("dice", '"kind=dice"', torch.sigmoid(images), masks, lambda p, y: dice(p, y, (1, 2, 3)))
case("dice_logits", '"kind=dice input=logits smooth=0.5"', images, masks, lambda p, y: dice(torch.sigmoid(p), y, (1, 2, 3), 0.5))
case("dice_classes", '"kind=dice class_axis=1"', torch.softmax(images, 1), masks, lambda p, y: dice(p, y, (2, 3)))
sides = torch.randn(2, 5, 4)
sides[1, 1] = -3 * sides[0, 1]
signs = torch.tensor([1.0, -1, 1, -1, 0])
case("cosine_embedding", '"kind=cosine_embedding"', sides, signs, F.cosine_embedding_loss, outputs=2)
case("cosine_embedding_margin", '"kind=cosine_embedding margin=-0.9 reduction=sum"', sides, signs,
     lambda p, q, y: F.cosine_embedding_loss(p, q, y, margin=-0.9, reduction="sum"), outputs=2)
triple = torch.randn(3, 5, 4)
triple[1, 0] = triple[0, 0]
for name, arguments in [("", {}), ("_p1", {"p": 1, "margin": 0.5}), ("_p3", {"p": 3, "eps": 1e-3}),
                        ("_swap", {"swap": True, "reduction": "sum"})]:
    settings = "".join(f" {k}={str(v).lower()}" for k, v in arguments.items() if k != "reduction")
    case(f"triplet{name}", f'"kind=triplet{settings}{" reduction=sum" if "swap" in arguments else ""}"',
         triple, None, lambda p, q, r: F.triplet_margin_loss(p, q, r, **arguments), outputs=3)
signs = torch.sign(torch.randn(5, 4))
case("margin_ranking", '"kind=margin_ranking"', sides, signs, F.margin_ranking_loss, outputs=2)
case("margin_ranking_margin", '"kind=margin_ranking margin=0.5 reduction=sum"', sides, signs,
     lambda p, q, y: F.margin_ranking_loss(p, q, y, margin=0.5, reduction="sum"), outputs=2)
signs = torch.tensor([[1.0, -1, 1, -1], [-1, -1, 0, 1], [1, 1, -1, -1]])
case("hinge", '"kind=hinge"', a, signs, lambda p, y: (1 - y * p).clamp_min(0).mean())
case("hinge_margin", '"kind=hinge margin=0.3"', a, signs, lambda p, y: (0.3 - y * p).clamp_min(0).mean())
case("hinge_embedding", '"kind=hinge_embedding"', a, signs, F.hinge_embedding_loss)
case("hinge_embedding_margin", '"kind=hinge_embedding margin=0.3 reduction=sum"', a, signs,
     lambda p, y: F.hinge_embedding_loss(p, y, margin=0.3, reduction="sum"))
counts = torch.tensor([[0.0, 1, 2, 7], [3, 0, 1, 0], [12, 1, 0.5, 4]])
case("poisson_nll", '"kind=poisson_nll"', b, counts, F.poisson_nll_loss)
case("poisson_nll_full", '"kind=poisson_nll full=true reduction=sum"', b, counts, lambda p, y: F.poisson_nll_loss(p, y, full=True, reduction="sum"))
rates = b.exp()
rates[1, 1] = 0
case("poisson_nll_rates", '"kind=poisson_nll log_input=false eps=0.01"', rates, counts,
     lambda p, y: F.poisson_nll_loss(p, y, log_input=False, eps=0.01))
moments = torch.stack([torch.randn(3, 4), torch.rand(3, 4)])
moments[1, 0, 0] = 0
case("gaussian_nll", '"kind=gaussian_nll"', moments, b, lambda p, v, y: F.gaussian_nll_loss(p, y, v), outputs=2)
case("gaussian_nll_full", '"kind=gaussian_nll full=true eps=0.5 reduction=sum"', moments, b,
     lambda p, v, y: F.gaussian_nll_loss(p, y, v, full=True, eps=0.5, reduction="sum"), outputs=2)


def ctc(logits, y, inputs=None, lengths=None, axes=(1, 0, 2), ignore=-100, space=torch.log_softmax, **arguments):
    """`axes`: where time, samples and classes are."""
    x = space(logits.permute(axes), -1)
    inputs = torch.full([x.shape[1]], x.shape[0]) if inputs is None else inputs
    lengths = torch.tensor([next((i for i, v in enumerate(row) if v == ignore), len(row)) for row in y.tolist()]) if lengths is None else lengths
    return F.ctc_loss(x, y, inputs, lengths, **arguments)


def plain_ctc(p, y, blank=0):
    """ctc_loss of probabilities [time, samples, classes] by its definition: PyTorch's backward would give the derivative through a
    log-softmax before it."""
    losses = []
    for n, row in enumerate(y.tolist()):
        labels = [v for v in row if v != -100]
        states = [blank] + [v for label in labels for v in (label, blank)]
        alpha = [torch.ones(())] + [torch.zeros(())] * (len(states) - 1)
        for step in p[:, n]:
            alpha = [step[v] * (alpha[s] + (alpha[s - 1] if s else 0) + (alpha[s - 2] if s > 1 and v != states[s - 2] else 0))
                     for s, v in enumerate(states)]
        losses.append(-sum(alpha[-2:]).log() / max(1, len(labels)))
    return torch.stack(losses).mean()


frames = torch.randn(4, 6, 4)
words = torch.tensor([[1, 1, 3], [2, -100, -100], [-100, -100, -100], [3, 2, 1]])
length = "max_target_length=3"
case("ctc", f'"kind=ctc input=logits time_axis=1 {length}"', frames, words, ctc)
case("ctc_sum", f'"kind=ctc input=logits time_axis=1 {length} reduction=sum"', frames, words, lambda p, y: ctc(p, y, reduction="sum"))
case("ctc_blank", f'"kind=ctc ignore_index=3 input=logits time_axis=-2 blank=3 {length}"', frames, torch.where(words == 3, 0, words).clamp(max=2)
     .masked_fill(words == -100, 3), lambda p, y: ctc(p, y, ignore=3, blank=3))
probs = torch.softmax(frames.permute(1, 0, 2), -1)
assert torch.allclose(plain_ctc(probs, words), ctc(probs, words, axes=(0, 1, 2), space=lambda x, _: x.log()))
case("ctc_probs", f'"kind=ctc input=probs {length}"', probs, words, plain_ctc)
case("ctc_log_probs", f'"kind=ctc {length}"', probs.log(), words, lambda p, y: plain_ctc(p.exp(), y))
case("ctc_time_last", f'"kind=ctc class_axis=1 input=logits time_axis=2 zero_infinity=true {length}"', frames[:, :4, :2].transpose(1, 2)
     .repeat(1, 2, 1), words, lambda p, y: ctc(p, y, axes=(2, 0, 1), zero_infinity=True))


# Weighted by samples: sum(w · loss) / sum(w · what the loss counts).
def weighed(name, settings, prediction, target, elements, w, counts=None, total=False, **more):
    """`elements`: the losses with reduction "none"; `counts`: what each adds to the denominator, by default 1."""
    def loss(*arguments):
        parts = elements(*arguments)
        of = w.reshape(-1, *[1] * (parts.dim() - 1)).expand_as(parts)
        return (of * parts).sum() / (1 if total else (of * (torch.ones_like(parts) if counts is None else counts)).sum())
    case("weighed_" + name, settings, prediction, target, loss, weights=w, **more)


w4, w3, w5 = torch.tensor([0.5, 2, 0.25, 1.5]), torch.tensor([0.5, 3, 1.25]), torch.tensor([0.5, 0, 1, 2, 0.25])
named = "sample_weight=w"
valid = (t != -100).double()
weighed("cross_entropy", f'"kind=cross_entropy {named}"', x, t, lambda p, y: F.cross_entropy(p, y, reduction="none"), w4, valid,
        correct=hits(x, t, 1)[0], counted=3)
weighed("cross_entropy_classes", f'"kind=cross_entropy label_smoothing=0.2 weight=[0.5,1,2,0.25,1.5] {named}"', x, t,
        lambda p, y: F.cross_entropy(p, y, weight=w, label_smoothing=0.2, reduction="none"), w4, valid * w[t.clamp(min=0)])
weighed("cross_entropy_sum", f'"kind=cross_entropy reduction=sum {named}"', x, t,
        lambda p, y: F.cross_entropy(p, y, reduction="none"), w4, total=True)
w2 = torch.tensor([0.5, 2.0])
weighed("cross_entropy_tokens", f'"kind=cross_entropy class_axis=-1 {named}"', x3, t3,
        lambda p, y: F.cross_entropy(p.transpose(1, 2), y, reduction="none"), w2, (t3 != -100).double())
weighed("cross_entropy_shift", f'"kind=cross_entropy class_axis=-1 shift=true {named}"', x3, t3,
        lambda p, y: F.cross_entropy(p[:, :-1].transpose(1, 2), y[:, 1:], reduction="none"), w2, (t3[:, 1:] != -100).double())
weighed("cross_entropy_probabilities", f'"kind=cross_entropy {named}"', x, probabilities,
        lambda p, y: F.cross_entropy(p, y, reduction="none"), w4, target_in_graph=True)
weighed("nll", f'"kind=nll weight=[0.5,1,2,0.25,1.5] {named}"', torch.log_softmax(x, 1), t,
        lambda p, y: F.nll_loss(p, y, weight=w, reduction="none"), w4, valid * w[t.clamp(min=0)])
weighed("mse", f'"kind=mse {named}"', a, b, lambda p, y: F.mse_loss(p, y, reduction="none"), w3)
weighed("mse_sum", f'"kind=mse reduction=sum {named}"', a, b, lambda p, y: F.mse_loss(p, y, reduction="none"), w3, total=True)
weighed("bce_with_logits", f'"kind=bce_with_logits pos_weight=[0.5,1,2,0.25] weight=[0.25,2,1,0.5] {named}"', a, y01,
        lambda p, y: F.binary_cross_entropy_with_logits(p, y, pos_weight=e, weight=e.flip(0), reduction="none"), w3)
weighed("kl_div", f'"kind=kl_div reduction=batchmean {named}"', torch.log_softmax(b, 1), q,
        lambda p, y: F.kl_div(p, y, reduction="none").sum(1), w3)
weighed("dice", f'"kind=dice {named}"', torch.sigmoid(images), masks,
        lambda p, y: 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1), w3)
weighed("dice_classes", f'"kind=dice class_axis=1 {named}"', torch.softmax(images, 1), masks,
        lambda p, y: 1 - (2 * (p * y).sum((2, 3)) + 1) / (p.sum((2, 3)) + y.sum((2, 3)) + 1), w3)
signs = torch.tensor([1.0, -1, 1, -1, 0])
weighed("cosine_embedding", f'"kind=cosine_embedding {named}"', sides, signs,
        lambda p, q, y: F.cosine_embedding_loss(p, q, y, reduction="none"), w5, outputs=2)
weighed("triplet", f'"kind=triplet {named}"', triple, None, lambda p, q, r: F.triplet_margin_loss(p, q, r, reduction="none"), w5, outputs=3)
weighed("gaussian_nll", f'"kind=gaussian_nll {named}"', moments, b, lambda p, v, y: F.gaussian_nll_loss(p, y, v, reduction="none"), w3, outputs=2)
lengths_of = torch.tensor([3, 1, 1, 3])   # of the words, an empty one counted as 1
weighed("ctc", f'"kind=ctc input=logits time_axis=1 sample_weight=w {length}"', frames, words,
        lambda p, y: ctc(p, y, reduction="none") / lengths_of, w4)
weighed("ctc_time_first", f'"kind=ctc input=logits sample_weight=w {length}"', frames.transpose(0, 1), words,
        lambda p, y: ctc(p, y, axes=(0, 1, 2), reduction="none") / lengths_of, w4)
print('''};

} // namespace tcc::test

#endif // TCC_TEST_UNIT_PASSES_LOSSVALUES_H''')
