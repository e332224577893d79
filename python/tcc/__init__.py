"""Train ONNX models by plans that are compiled ahead of time.

    plan = tcc.compile("m.onnx", recipe={"optimizer.lr": 3e-4, "loss.kind": "cross_entropy"})
    trainer = tcc.Trainer(plan)
    trainer.fit("train.npz", eval="test.npz", epochs=3, out="run")

or in a loop of your own:

    for x, y in batches:
        print(trainer.step(x, y, lr=1e-3).loss)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._history import Evaluation, History
from ._library import DataError, Error, NonFinite, OverBudget, UsageError, version as _version
from ._plan import CompileError, Phase, Plan, Value, compile
from ._trainer import EarlyStopping, Event, Step, Trainer

if TYPE_CHECKING:
    from ._torch.steps import CompiledStep

__version__ = _version().decode()
__all__ = [
    "CompileError",
    "DataError",
    "EarlyStopping",
    "Error",
    "Evaluation",
    "Event",
    "History",
    "NonFinite",
    "OverBudget",
    "Phase",
    "Plan",
    "Step",
    "Trainer",
    "UsageError",
    "Value",
    "compile",
    "compile_step",
]


def compile_step(module: Any, loss: Any, optimizer: Any, *, example: Any, **options: Any) -> CompiledStep:
    """A function that replaces forward, loss, backward, optimizer.step and zero_grad of a torch loop: loss = step(x,
    y).

    module, loss, optimizer, example: as for compile; options: those of compile, and threads, device and seed of
    Trainer. The function follows the optimizer's learning rates, so that a loop's schedulers work unchanged. The module
    gets the weights when it is called, or when its state_dict is taken; `step.sync()` copies them at once. See
    tcc._torch.steps.CompiledStep.
    """
    from ._torch.steps import CompiledStep

    return CompiledStep(module, loss, optimizer, example, options)
