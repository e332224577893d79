"""Prints UpdateValues.h: three updates of PyTorch's optimizers in f64, for UpdateTest.cpp.

The model is y = x·w + b with a mean squared error; accumulation takes two micro-batches an update.
python update_values.py > UpdateValues.h
"""
import torch

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)
W, B = torch.randn(2, 3), torch.randn(3)
X, T = torch.randn(2, 2, 3), torch.randn(2, 2, 3)


def numbers(values):
    return "{" + ", ".join(repr(float(v)) for v in values) + "}"


class Lion(torch.optim.Optimizer):
    """arXiv:2302.06675, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"]).sub_(lr * (b1 * m + (1 - b1) * p.grad).sign())
                m.mul_(b2).add_((1 - b2) * p.grad)


class Lamb(torch.optim.Optimizer):
    """arXiv:1904.00962, algorithm 2, with the norm itself as φ."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                s["t"] = s.get("t", 0) + 1
                m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
                m.mul_(b1).add_((1 - b1) * p.grad)
                v.mul_(b2).add_((1 - b2) * p.grad ** 2)
                r = m / (1 - b1 ** s["t"]) / ((v / (1 - b2 ** s["t"])).sqrt() + group["eps"]) + group["weight_decay"] * p
                p.sub_(group["lr"] * p.norm() / r.norm() * r)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon for matrices, AdamW with the same rate and decay for the rest."""

    def __init__(self, groups, lr, weight_decay=0.1, **options):
        parameters = [p for g in groups for p in g["params"]]
        super().__init__(parameters, {})
        self.parts = [torch.optim.Muon([p for p in parameters if p.ndim == 2], lr=lr, weight_decay=weight_decay, **options),
                      torch.optim.AdamW([p for p in parameters if p.ndim != 2], lr=lr, weight_decay=weight_decay)]

    def step(self):
        for part in self.parts:
            part.step()


def case(name, kind, settings, optimizer, exempt=False, clip=0.0, accumulate=1, flags="", clip_value=0.0, adjust="original"):
    w, b = W.clone().requires_grad_(), B.clone().requires_grad_()
    groups = [{"params": [w]}, {"params": [b], **({"weight_decay": 0.0} if exempt else {})}]
    optimizer = optimizer(groups)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((X[:accumulate] * w + b - T[:accumulate]) ** 2).mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([w, b], clip if clip else float("inf")))
        if clip_value:
            torch.nn.utils.clip_grad_value_([w, b], clip_value)
        losses.append(loss.item())
        optimizer.step()
    print(f'    {{"{name}", "{kind}", {{{settings}}}, {str("nesterov" in name).lower()}, {str(exempt).lower()}, {clip}, {accumulate},\n'
          f"     {numbers(losses)}, {numbers(norms)},\n     {numbers(w.flatten().tolist())}, {numbers(b.tolist())},\n"
          f'     {{{flags}}}, {clip_value}, "{adjust}"}},')


print(f'''//===- UpdateValues.h - three updates by PyTorch's optimizers ---*- C++ -*-===//
//
// Printed by update_values.py (seed 11, f64); do not edit.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PASSES_UPDATEVALUES_H
#define TCC_TEST_UNIT_PASSES_UPDATEVALUES_H

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace tcc::test {{

inline const std::vector<double> kInitialW = {numbers(W.flatten().tolist())}, kInitialB = {numbers(B.tolist())};
/// Two micro-batches.
inline const std::vector<double> kX[] = {{{numbers(X[0].flatten().tolist())}, {numbers(X[1].flatten().tolist())}}};
inline const std::vector<double> kT[] = {{{numbers(T[0].flatten().tolist())}, {numbers(T[1].flatten().tolist())}}};

struct UpdateCase {{
  const char *name, *kind;
  std::map<std::string, double> numbers;
  bool nesterov, exemptBias;
  double clipNorm; ///< 0: no clipping
  int accumulate;
  std::vector<double> losses, norms, w, b;
  std::set<std::string> flags;
  double clipValue; ///< 0: no clipping
  std::string adjustLr;
}};
inline void PrintTo(const UpdateCase &value, std::ostream *out) {{ *out << value.name; }}

inline const UpdateCase kUpdateCases[] = {{''')
O = torch.optim
case("sgd", "sgd", '{"lr", 0.1}', lambda p: O.SGD(p, lr=0.1))
case("sgd_momentum", "sgd", '{"lr", 0.1}, {"momentum", 0.9}', lambda p: O.SGD(p, lr=0.1, momentum=0.9))
case("sgd_dampening", "sgd", '{"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.3}, {"weight_decay", 0.1}',
     lambda p: O.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1))
case("sgd_nesterov", "sgd", '{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.1}',
     lambda p: O.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1), exempt=True)
case("sgd_clipped", "sgd", '{"lr", 0.1}, {"momentum", 0.9}', lambda p: O.SGD(p, lr=0.1, momentum=0.9), clip=0.25)
case("adam", "adam", '{"lr", 0.1}', lambda p: O.Adam(p, lr=0.1))
case("adam_decay", "adam", '{"lr", 0.1}, {"weight_decay", 0.3}, {"beta1", 0.3}',
     lambda p: O.Adam(p, lr=0.1, weight_decay=0.3, betas=(0.3, 0.999)))
case("adamw", "adamw", '{"lr", 0.1}', lambda p: O.AdamW(p, lr=0.1))
case("adamw_groups", "adamw", '{"lr", 0.1}, {"weight_decay", 0.5}, {"beta2", 0.95}, {"eps", 1e-6}',
     lambda p: O.AdamW(p, lr=0.1, weight_decay=0.5, betas=(0.9, 0.95), eps=1e-6), exempt=True, clip=0.5)
case("adamw_accumulated", "adamw", '{"lr", 0.1}', lambda p: O.AdamW(p, lr=0.1), accumulate=2)
case("adamw_amsgrad_maximize", "adamw", '{"lr", 0.1}, {"beta2", 0.5}',
     lambda p: O.AdamW(p, lr=0.1, betas=(0.9, 0.5), amsgrad=True, maximize=True), flags='"amsgrad", "maximize"')
case("sgd_clipped_by_value", "sgd", '{"lr", 0.1}', lambda p: O.SGD(p, lr=0.1), clip=1.5, clip_value=0.3)
case("rmsprop", "rmsprop", '{"lr", 0.05}', lambda p: O.RMSprop(p, lr=0.05))
case("rmsprop_momentum", "rmsprop", '{"lr", 0.02}, {"alpha", 0.9}, {"momentum", 0.5}, {"eps", 1e-3}, {"weight_decay", 0.2}',
     lambda p: O.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.5, eps=1e-3, weight_decay=0.2), exempt=True)
case("rmsprop_centered", "rmsprop", '{"lr", 0.02}, {"alpha", 0.4}, {"momentum", 0.5}',
     lambda p: O.RMSprop(p, lr=0.02, alpha=0.4, momentum=0.5, centered=True), flags='"centered"')
case("adagrad", "adagrad", '{"lr", 0.1}', lambda p: O.Adagrad(p, lr=0.1))
case("adagrad_decay", "adagrad", '{"lr", 0.1}, {"lr_decay", 0.5}, {"initial_accumulator_value", 0.3}, {"weight_decay", 0.1}',
     lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.5, initial_accumulator_value=0.3, weight_decay=0.1))
case("muon_nesterov", "muon", '{"lr", 0.1}', lambda p: Muon(p, lr=0.1))
case("muon_plain", "muon", '{"lr", 0.1}, {"momentum", 0.3}, {"ns_steps", 3}, {"ns_a", 2}, {"ns_b", -1.5}, {"ns_c", 0.5}',
     lambda p: Muon(p, lr=0.1, momentum=0.3, nesterov=False, ns_steps=3, ns_coefficients=(2.0, -1.5, 0.5),
                    adjust_lr_fn="match_rms_adamw"), adjust="match_rms_adamw")
case("lion", "lion", '{"lr", 0.1}, {"weight_decay", 0.2}', lambda p: Lion(p, lr=0.1, weight_decay=0.2))
case("lamb", "lamb", '{"lr", 0.1}', lambda p: Lamb(p, lr=0.1))
case("adamw_accumulated_clipped", "adamw", '{"lr", 0.1}', lambda p: O.AdamW(p, lr=0.1), clip=0.5, accumulate=2)
print('''};

} // namespace tcc::test

#endif // TCC_TEST_UNIT_PASSES_UPDATEVALUES_H''')
