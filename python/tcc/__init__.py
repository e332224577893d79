"""Train ONNX models by plans that are compiled ahead of time.

    plan = tcc.compile("m.onnx", recipe={"optimizer.lr": 3e-4, "loss.kind": "cross_entropy"})
    trainer = tcc.Trainer(plan)
    trainer.fit("train.npz", eval="test.npz", epochs=3, out="run")

or in a loop of your own:

    for x, y in batches:
        print(trainer.step(x, y, lr=1e-3).loss)
"""
from ._library import Error, NonFinite, OverBudget, UsageError, version as _version
from ._plan import CompileError, Plan, Value, compile
from ._trainer import EarlyStopping, Event, Step, Trainer

__version__ = _version().decode()
__all__ = ["CompileError", "EarlyStopping", "Error", "Event", "NonFinite", "OverBudget", "Plan", "Step", "Trainer", "UsageError",
           "Value", "compile"]
