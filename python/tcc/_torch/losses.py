"""Torch's losses in the words of a recipe, so that accumulation and evaluation divide by what the loss counts.

A loss that a recipe cannot express, or whose operands have shapes for which the recipe means something else, stays in
the graph.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional as F

_CLASSES = ("weight", "ignore_index", "label_smoothing", "reduction")
_MODULES: dict[type, tuple[str, tuple[str, ...]]] = {
    nn.CrossEntropyLoss: ("cross_entropy", _CLASSES),
    nn.NLLLoss: ("nll", ("weight", "ignore_index", "reduction")),
    nn.MSELoss: ("mse", ("reduction",)),
    nn.L1Loss: ("l1", ("reduction",)),
    nn.HuberLoss: ("huber", ("delta", "reduction")),
    nn.SmoothL1Loss: ("smooth_l1", ("beta", "reduction")),
    nn.BCELoss: ("bce", ("weight", "reduction")),
    nn.BCEWithLogitsLoss: ("bce_with_logits", ("weight", "pos_weight", "reduction")),
    nn.KLDivLoss: ("kl_div", ("log_target", "reduction")),
    nn.PoissonNLLLoss: ("poisson_nll", ("log_input", "full", "eps", "reduction")),
}
_FUNCTIONS: dict[Callable[..., Any], str] = {
    F.cross_entropy: "cross_entropy",
    F.nll_loss: "nll",
    F.mse_loss: "mse",
    F.l1_loss: "l1",
    F.huber_loss: "huber",
    F.smooth_l1_loss: "smooth_l1",
    F.binary_cross_entropy: "bce",
    F.binary_cross_entropy_with_logits: "bce_with_logits",
    F.kl_div: "kl_div",
    F.poisson_nll_loss: "poisson_nll",
}
_DEFAULTS = {
    "weight": None,
    "pos_weight": None,
    "reduction": "mean",
    "ignore_index": -100,
    "label_smoothing": 0.0,
    "delta": 1.0,
    "beta": 1.0,
    "log_target": False,
    "log_input": True,
    "full": False,
    "eps": 1e-8,
}


def _read(loss: Any) -> tuple[str, dict[str, Any]] | None:
    """(kind, options) of a loss that is torch's own, not of a class derived from it."""
    if type(loss) in _MODULES:
        kind, names = _MODULES[type(loss)]
        return kind, {name: getattr(loss, name) for name in names}
    given: dict[str, Any] = {}
    if isinstance(loss, functools.partial) and not loss.args:
        given, loss = dict(loss.keywords), loss.func
    try:
        known = _FUNCTIONS.get(loss)
    except TypeError:  # not hashable
        return None
    return (known, given) if known and given.keys() <= _DEFAULTS.keys() else None


def recipe_of(loss: Any, output: Any, target: Any) -> dict[str, Any] | None:
    """Keys of the recipe, without `loss.of` and `loss.target`; None: the loss must be a part of the graph.

    output, target: tensors of the example, the loss's operands.
    """
    read = _read(loss)
    if not read or not (hasattr(output, "dim") and hasattr(target, "dim")):
        return None
    kind, options = read
    options = {name: value for name, value in options.items() if hasattr(value, "dim") or value != _DEFAULTS[name]}
    if kind in ("cross_entropy", "nll"):
        classes = output.shape[:1] + output.shape[2:]
        if output.dim() < 2 or target.is_floating_point() or tuple(target.shape) != tuple(classes):
            return None
        if "weight" in options:
            options["weight"] = options["weight"].detach().flatten().tolist()
    else:
        # Other shapes broadcast in torch, and element weights apply to one shape of batch alone.
        if tuple(target.shape) != tuple(output.shape) or "weight" in options or "pos_weight" in options:
            return None
        if not target.is_floating_point():
            return None
    return {"loss.kind": kind} | {f"loss.{name}": value for name, value in options.items()}


def for_export(loss: Any, target: Any) -> Any:
    """The same loss in ops that torch's exporter writes rightly: its cross entropy of probabilities becomes one of
    classes.
    """
    read = _read(loss)
    if not read or read[0] != "cross_entropy" or not (hasattr(target, "dim") and target.is_floating_point()):
        return loss
    options = _DEFAULTS | read[1]

    def cross_entropy(output: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        smoothing = options["label_smoothing"]
        shares = shares * (1 - smoothing) + smoothing / shares.shape[1]
        terms = shares * F.log_softmax(output, 1)
        if options["weight"] is not None:
            terms = terms * options["weight"].reshape(-1, *[1] * (output.dim() - 2))
        each = -terms.sum(1)
        return each.sum() if options["reduction"] == "sum" else each.mean()

    return cross_entropy
