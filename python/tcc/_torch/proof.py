"""Compares the gradients of a plan with autograd's on the example, so that an export that lost something is found
before training.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Relative bounds; those of the cases that the project trains beside PyTorch.
LOSS, GRADIENT = 1e-4, 1e-2
# A gradient that is zero in exact arithmetic, as that of a bias before a norm, is rounding alone: below this share of
# the largest one.
ROUNDING = 1e-5


class WithoutDropout(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Masks of dropout become their mean. `dropped`: there were some. `random`: other ops that drew random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dropped = False
        self.random: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            func is torch.ops.aten.bernoulli_.float
        ):  # dropout without a fused kernel, and stochastic depth: a mask that is divided by p
            self.dropped = True
            return args[0].fill_(args[1] if len(args) > 1 else 0.5)
        if func is torch.ops.aten.native_dropout.default:
            self.dropped = True
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if torch.Tag.nondeterministic_seeded in func.tags and "scaled_dot_product" not in str(func):
            self.random.append(str(func.overloadpacket).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Puts buffers and torch's random state back."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


class Reference:
    """Loss and gradients by autograd, without dropout."""

    def __init__(
        self, module: torch.nn.Module, loss_of: Callable[[], torch.Tensor], parameters: dict[str, torch.nn.Parameter]
    ):
        mode = WithoutDropout()
        with unchanged(module), torch.enable_grad(), mode:
            loss = loss_of()
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        self.loss = float(loss.detach())
        self.gradients = {
            name: None if value is None else value.detach().double().cpu().numpy()
            for name, value in zip(parameters, found)
        }
        self.dropped, self.random = mode.dropped, mode.random


def difference(reference: Reference, loss: float, gradients: dict[str, numpy.ndarray]) -> tuple[str, str] | None:
    """(where, what) of the first difference, seen from the loss backwards; None: there is none. where: a parameter, or
    "" for the loss.
    """
    if not abs(loss - reference.loss) <= LOSS * max(abs(reference.loss), 1e-3):
        return "", f"the loss of the example is {loss:.7g}, torch's is {reference.loss:.7g}"
    largest = max(
        (float(numpy.linalg.norm(value)) for value in reference.gradients.values() if value is not None), default=0.0
    )
    for name in reversed(list(reference.gradients)):
        expected = reference.gradients[name]
        found = gradients.get(name)
        if found is None and expected is None:
            continue
        one = expected if expected is not None else numpy.zeros(found.shape)
        other = found.astype(numpy.float64) if found is not None else numpy.zeros(one.shape)
        size, apart = float(numpy.linalg.norm(one)), float(numpy.linalg.norm(other - one))
        if not apart <= GRADIENT * size + ROUNDING * largest:
            return (
                name,
                f"the gradient of '{name}' is {apart / size if size else float('inf'):.2g} of its norm away from "
                f"autograd's",
            )
    return None


class _Squares(torch.fx.Interpreter):
    """Runs an exported program and keeps the mean square of each value, by name."""

    def __init__(self, program: Any):
        super().__init__(program.graph_module)
        self.found: dict[str, tuple[float, tuple[int, ...]]] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            self.found[n.name] = float(value.detach().double().square().mean()), tuple(value.shape)
        return value


def first_node(
    program: Any,
    inputs: list[torch.Tensor],
    values: set[str],
    mean_square: Callable[[str, tuple[int, ...]], float | None],
) -> str:
    """The first value of the exported program that a plan computes otherwise, or "". values: those that the graph has
    by the same name. mean_square: the plan's mean square of one, or None if the plan cannot tell. Bisects the values,
    since a difference reaches those behind it.
    """
    signature = program.graph_signature
    given = iter(inputs)
    flat = []
    for spec in signature.input_specs:
        if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT:
            flat.append(next(given))
        elif spec.target in program.state_dict:
            flat.append(program.state_dict[spec.target])
        else:
            flat.append(program.constants[spec.target])
    interpreter = _Squares(program)
    with torch.no_grad(), WithoutDropout():
        interpreter.run(*(value.detach().clone() if isinstance(value, torch.Tensor) else value for value in flat))
    names = [name for name in interpreter.found if name in values]

    def differs(name: str) -> bool | None:
        expected, shape = interpreter.found[name]
        found = mean_square(name, shape)
        return None if found is None else not abs(found - expected) <= LOSS * max(abs(expected), 1e-6)

    low, high = 0, len(names)  # names[high] differs, names before `low` do not
    while low < high:
        # A value that the plan cannot tell counts as its successor.
        middle = (low + high) // 2
        at = middle
        while at < high and (verdict := differs(names[at])) is None:
            at += 1
        if at == high or verdict:
            high = middle
        else:
            low = at + 1
    return names[high] if high < len(names) else ""
