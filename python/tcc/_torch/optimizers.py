"""Torch's optimizers and schedulers in the words of a recipe; what it cannot express is refused by name."""

from __future__ import annotations

from typing import Any

import torch

from .._library import UsageError
from .._plan import CompileError, exact

# Keys of the recipe that each optimizer of torch has; "lr" and "weight_decay" may differ between groups.
_OPTIMIZERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "SGD": ("sgd", ("momentum", "dampening", "nesterov", "maximize")),
    "Adam": ("adam", ("betas", "eps", "amsgrad", "maximize")),
    "AdamW": ("adamw", ("betas", "eps", "amsgrad", "maximize")),
    "RMSprop": ("rmsprop", ("alpha", "eps", "momentum", "centered", "maximize")),
    "Adagrad": ("adagrad", ("lr_decay", "eps", "initial_accumulator_value", "maximize")),
}
# Settings that choose how torch computes, not what.
_IMPLEMENTATION = {
    "params",
    "param_names",
    "foreach",
    "fused",
    "capturable",
    "initial_lr",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
    "swa_lr",
    "decoupled_weight_decay",
    "differentiable",
}


def _number(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_number(one) for one in value]
    return value.item() if isinstance(value, torch.Tensor) else value


class Rates:
    """The learning rate of a torch optimizer that a loop or a scheduler moves, as one number for `step(lr=…)`."""

    def __init__(self, optimizer: Any, scales: list[float]):
        self.optimizer, self.scales = optimizer, scales
        self._reference = max(range(len(scales)), key=lambda index: scales[index])

    def now(self) -> float:
        """The rate of the group with scale 1. Raises UsageError if the groups' ratios are no longer those that were
        compiled.
        """
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        rate = rates[self._reference]
        for index, (own, scale) in enumerate(zip(rates, self.scales)):
            if abs(own - rate * scale) > 1e-6 * abs(rate):
                raise UsageError(
                    f"group {index} of the optimizer has the learning rate {own:g}, and {scale:g} times that of group "
                    f"{self._reference}, {rate:g}, was compiled in; move all groups by one factor, or compile again"
                )
        return rate


def read_optimizer(
    optimizer: Any, names: dict[int, str], scheduled: bool
) -> tuple[dict[str, Any], list[str], list[float]]:
    """(keys of the recipe, names of the parameters that it trains, each group's share of the learning rate).

    names: the graph's name of each parameter, by id(); a parameter without one is not in the graph. scheduled: a
    scheduler has changed the rates already, and the groups keep the first ones.
    """
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise CompileError(
            f"optimizer: {kind} is none of torch's; give a torch.optim.Optimizer, or the keys of a recipe: "
            "recipe={'optimizer.kind': 'adamw', 'optimizer.lr': 3e-4}"
        )
    if kind not in _OPTIMIZERS:
        raise CompileError(
            f"optimizer: a plan has no {kind}; it has {', '.join(_OPTIMIZERS)}, and by recipe={{'optimizer.kind': …}} "
            f"muon, "
            "lion and lamb"
        )
    # Adagrad makes its sums, and counts from 0, before the first update; others make their state in it.
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise CompileError(
            f"optimizer: this {kind} has made updates, and its moments do not move into a plan; make a new one for "
            "model.parameters()"
        )
    name, keys = _OPTIMIZERS[kind]
    groups = optimizer.param_groups
    if groups[0].get("decoupled_weight_decay") and name == "adam":
        name = "adamw"
    for key in groups[0]:
        if key not in keys and key not in _IMPLEMENTATION and key not in ("lr", "weight_decay"):
            raise CompileError(f"optimizer: {kind} has the setting '{key}', which a plan does not know; leave it out")
    if groups[0].get("differentiable"):
        raise CompileError(
            f"optimizer: {kind}(differentiable=True) is a part of autograd's graph, which a plan has not; leave it out"
        )
    for index, group in enumerate(groups[1:], 1):
        for key in keys:
            if _number(group.get(key)) != _number(groups[0].get(key)):
                raise CompileError(
                    f"optimizer: group {index} has {key} = {_number(group.get(key))}, group 0 has "
                    f"{_number(groups[0].get(key))}; "
                    "groups of a plan differ in lr and weight_decay alone"
                )
    recipe: dict[str, Any] = {"optimizer.kind": name}
    for key in keys:
        if key in groups[0]:
            recipe[f"optimizer.{key}"] = _number(groups[0][key])
    rates = [float(group.get("initial_lr", group["lr"]) if scheduled else group["lr"]) for group in groups]
    rates = [float(group["max_lr"]) if scheduled and "max_lr" in group else rate for group, rate in zip(groups, rates)]
    most = max(rates)
    scales = [rate / most if most else 1.0 for rate in rates]
    recipe["optimizer.lr"] = most
    trained = [[names[id(p)] for p in group["params"] if p.requires_grad and id(p) in names] for group in groups]
    # The settings of the group with most parameters are the optimizer's own, so that the others' globs are few.
    largest = max(range(len(groups)), key=lambda index: len(trained[index]))
    decay = float(groups[largest].get("weight_decay", 0.0))
    recipe["optimizer.weight_decay"] = decay
    tables = []
    for index, group in enumerate(groups):
        own = float(group.get("weight_decay", 0.0))
        if trained[index] and (scales[index] != 1.0 or own != decay):
            tables.append(
                {"match": [exact(one) for one in trained[index]], "lr_scale": scales[index], "weight_decay": own}
            )
    if tables:
        recipe["optimizer.group"] = tables
    return recipe, [one for group in trained for one in group], scales


def read_scheduler(scheduler: Any, optimizer: Any, per: str) -> dict[str, Any]:
    """Keys of the recipe for a scheduler of torch that has not been stepped. per: "step" or "epoch", when a loop would
    step it.
    """
    kind = type(scheduler).__name__
    if scheduler.optimizer is not optimizer:
        raise CompileError(f"scheduler: this {kind} belongs to another optimizer; make it from the one that is given")
    if getattr(scheduler, "last_epoch", 0) > 0:
        raise CompileError(f"scheduler: this {kind} has been stepped; make a new one")
    rates = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]

    def floor(value: float) -> float:
        if value and len(set(rates)) > 1:
            raise CompileError(
                f"scheduler: {kind} ends at one rate, eta_min = {value:g}, for groups of different rates; use eta_min "
                f"= 0, or "
                "fit(…, scheduler=…)"
            )
        return value / max(rates) if value else 0.0

    known: dict[str, Any] = {
        "StepLR": lambda s: {"kind": "step", "step_size": s.step_size, "gamma": s.gamma},
        "MultiStepLR": lambda s: {
            "kind": "multi_step",
            "milestones": sorted(s.milestones.elements()),
            "gamma": s.gamma,
        },
        "ExponentialLR": lambda s: {"kind": "exponential", "gamma": s.gamma},
        "CosineAnnealingLR": lambda s: {"kind": "cosine", "total_steps": s.T_max, "min_lr_scale": floor(s.eta_min)},
        "CosineAnnealingWarmRestarts": lambda s: {
            "kind": "cosine_warm_restarts",
            "t_0": s.T_0,
            "t_mult": s.T_mult,
            "eta_min": s.eta_min,
        },
        "PolynomialLR": lambda s: {"kind": "polynomial", "total_steps": s.total_iters, "power": s.power},
        "LinearLR": lambda s: (
            {"kind": "linear", "total_steps": s.total_iters, "min_lr_scale": s.end_factor}
            if s.start_factor == 1
            else None
        ),
        "ReduceLROnPlateau": lambda s: {
            "kind": "plateau",
            "mode": s.mode,
            "factor": s.factor,
            "patience": s.patience,
            "threshold": s.threshold,
            "threshold_mode": s.threshold_mode,
            "cooldown": s.cooldown,
            "min_lr": _number(s.min_lrs[0]),
            "eps": s.eps,
        },
    }
    found = known[kind](scheduler) if kind in known else None
    if found is None:
        raise CompileError(
            f"scheduler: a recipe has no {kind}{' that begins below the full rate' if kind in known else ''}; leave "
            f"it out "
            "here, and give it to fit(…, scheduler=…), or to a loop that steps it: compile_step reads the optimizer's "
            "rates"
        )
    return {f"schedule.{key}": value for key, value in found.items()} | (
        {"schedule.per": "epoch"} if per == "epoch" else {}
    )
