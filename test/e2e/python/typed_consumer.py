"""A program as its author's type checker reads it: torch_modules.py checks it by mypy --strict. It is not run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy
import torch
from numpy.typing import NDArray
from torch import nn

import tcc


def rate(step: int) -> float:
    return 1e-3 / (1 + step)


def log(event: tcc.Event) -> str | None:
    if event.update is not None and event.update.loss < 0.1:
        return "stop"
    print(event.kind, event.step, {name: f"{value:.3f}" for name, value in event.metrics.items()})
    return None


def of_a_file(rows: dict[str, NDArray[numpy.float32]], run: Path) -> dict[str, NDArray[numpy.float32]]:
    plan = tcc.compile("m.onnx", {"optimizer.lr": 3e-4}, entries=("train", "predict"), memory_budget="2GiB", threads=4)
    resident, transient = plan.memory(threads=4)
    shapes: list[tuple[int, ...]] = [value.shape for value in plan.inputs()]
    print(resident + transient == plan.peak_bytes, shapes, plan.target.upper())
    with tcc.Trainer(plan, settings={"optimizer.lr": 1e-3}, seed=1) as trainer:
        metrics: dict[str, float] = trainer.fit(
            rows, eval="test.npz", epochs=3, out=run, progress=True, callbacks=[tcc.EarlyStopping(patience=2), log]
        )
        step: tcc.Step = trainer.step(rows, lr=rate(trainer.steps))
        print(step.loss + sum(metrics.values()), trainer.history.losses[-1], trainer.predict(rows["x"])["y"].mean())
        return trainer.get_parameters()


def of_a_module(module: nn.Module, loader: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> int | None:
    example = next(iter(loader))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = tcc.compile_step(module, nn.CrossEntropyLoss(), optimizer, example=example)
    losses: list[torch.Tensor] = [step(x, y) for x, y in loader]
    print(torch.stack(losses).mean())
    try:
        tcc.compile(module, example, loss=nn.CrossEntropyLoss(), optimizer=optimizer, fit="batch", memory_budget="80%")
    except tcc.OverBudget as problem:
        return problem.smallest
    return None
