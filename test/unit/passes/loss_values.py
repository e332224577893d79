"""Prints LossValues.h: PyTorch's losses and their gradients in f64, for LossTest.cpp.

python loss_values.py > LossValues.h
"""
import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def numbers(tensor):
    return "{" + ", ".join(repr(float(v)) for v in tensor.flatten().tolist()) + "}"


def case(name, settings, prediction, target, loss, target_in_graph=False, correct=None, counted=None):
    prediction = prediction.detach().clone().requires_grad_()
    value = loss(prediction, target)
    value.backward()
    shape = "x".join(str(d) for d in prediction.shape)
    target_shape = "x".join(str(d) for d in target.shape) if target_in_graph else ""
    print(f'    {{"{name}", {settings},\n     "{shape}", "{target_shape}", {numbers(prediction)},\n     {numbers(target)},\n'
          f"     {value.item()!r}, {numbers(prediction.grad)},\n"
          f"     {-1.0 if correct is None else float(correct)}, {-1.0 if counted is None else float(counted)}}},")


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
  const char *settings;    ///< of attach-loss
  const char *shape;       ///< of the prediction
  const char *targetShape; ///< of a target that is a graph input already; empty: the pass makes it
  std::vector<double> prediction, target;
  double loss;
  std::vector<double> gradient;
  double correct, counted; ///< -1: not computed
};
inline void PrintTo(const LossCase &value, std::ostream *out) { *out << value.name; }

inline const LossCase kLossCases[] = {''')

x, t = torch.randn(4, 5), torch.tensor([1, -100, 4, 0])
t = torch.where(t == 4, x.argmax(1), t)
w = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5])
case("cross_entropy", '"kind=cross_entropy"', x, t, F.cross_entropy, correct=hits(x, t, 1)[0], counted=3)
case("cross_entropy_weight", '"kind=cross_entropy weight=0.5,1,2,0.25,1.5"', x, t, lambda p, y: F.cross_entropy(p, y, weight=w))
case("cross_entropy_smoothing", '"kind=cross_entropy label-smoothing=0.1"', x, t,
     lambda p, y: F.cross_entropy(p, y, label_smoothing=0.1))
case("cross_entropy_weight_smoothing", '"kind=cross_entropy label-smoothing=0.2 weight=0.5,1,2,0.25,1.5"', x, t,
     lambda p, y: F.cross_entropy(p, y, weight=w, label_smoothing=0.2))
case("cross_entropy_sum", '"kind=cross_entropy reduction=sum"', x, t, lambda p, y: F.cross_entropy(p, y, reduction="sum"))
case("cross_entropy_ignore", '"kind=cross_entropy ignore-index=0"', x, t.clamp(min=0), lambda p, y: F.cross_entropy(p, y, ignore_index=0))
x3, t3 = torch.randn(2, 3, 5), torch.tensor([[1, 2, -100], [0, 4, 3]])
case("cross_entropy_last_axis", '"kind=cross_entropy class-axis=-1"', x3, t3,
     lambda p, y: F.cross_entropy(p.reshape(6, 5), y.reshape(6)))
case("cross_entropy_shift", '"kind=cross_entropy class-axis=-1 shift=true"', x3, t3,
     lambda p, y: F.cross_entropy(p[:, :-1].reshape(4, 5), y[:, 1:].reshape(4)))
case("cross_entropy_images", '"kind=cross_entropy"', torch.randn(2, 5, 3), t3, F.cross_entropy)
probabilities = torch.softmax(torch.randn(4, 5), 1)
case("cross_entropy_probabilities", '"kind=cross_entropy label-smoothing=0.1 weight=0.5,1,2,0.25,1.5"', x, probabilities,
     lambda p, y: F.cross_entropy(p, y, weight=w, label_smoothing=0.1), target_in_graph=True,
     correct=(x.argmax(1) == probabilities.argmax(1)).sum(), counted=4)
case("nll", '"kind=nll weight=0.5,1,2,0.25,1.5"', torch.log_softmax(x, 1), t, lambda p, y: F.nll_loss(p, y, weight=w))
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
case("bce", '"kind=bce weight=0.5,1,2,0.25"', torch.sigmoid(a), y01, lambda p, y: F.binary_cross_entropy(p, y, weight=e))
a[0, 0] = a[0, 1] = 0
a[2, 3] = 40
case("bce_with_logits", '"kind=bce_with_logits"', a, y01, F.binary_cross_entropy_with_logits)
case("bce_with_logits_weights", '"kind=bce_with_logits pos-weight=0.5,1,2,0.25 weight=0.25,2,1,0.5"', a, y01,
     lambda p, y: F.binary_cross_entropy_with_logits(p, y, pos_weight=e, weight=e.flip(0)))
q = torch.softmax(torch.randn(3, 4), 1)
q[0, 1] = 0
case("kl_div", '"kind=kl_div"', torch.log_softmax(b, 1), q, lambda p, y: F.kl_div(p, y, reduction="mean"))
case("kl_div_log", '"kind=kl_div log-target=true reduction=sum"', torch.log_softmax(b, 1), torch.log_softmax(a, 1),
     lambda p, y: F.kl_div(p, y, reduction="sum", log_target=True))
print('''};

} // namespace tcc::test

#endif // TCC_TEST_UNIT_PASSES_LOSSVALUES_H''')
