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


def case(name, kind, settings, optimizer, exempt=False, clip=0.0, accumulate=1):
    w, b = W.clone().requires_grad_(), B.clone().requires_grad_()
    groups = [{"params": [w]}, {"params": [b], **({"weight_decay": 0.0} if exempt else {})}]
    optimizer = optimizer(groups)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((X[:accumulate] * w + b - T[:accumulate]) ** 2).mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([w, b], clip if clip else float("inf")))
        losses.append(loss.item())
        optimizer.step()
    print(f'    {{"{name}", "{kind}", {{{settings}}}, {str("nesterov" in name).lower()}, {str(exempt).lower()}, {clip}, {accumulate},\n'
          f"     {numbers(losses)}, {numbers(norms)},\n     {numbers(w.flatten().tolist())}, {numbers(b.tolist())}}},")


print(f'''//===- UpdateValues.h - three updates by PyTorch's optimizers ---*- C++ -*-===//
//
// Printed by update_values.py (seed 11, f64); do not edit.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PASSES_UPDATEVALUES_H
#define TCC_TEST_UNIT_PASSES_UPDATEVALUES_H

#include <map>
#include <ostream>
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
case("adamw_accumulated_clipped", "adamw", '{"lr", 0.1}', lambda p: O.AdamW(p, lr=0.1), clip=0.5, accumulate=2)
print('''};

} // namespace tcc::test

#endif // TCC_TEST_UNIT_PASSES_UPDATEVALUES_H''')
