"""Whole runs over a loader of batches, with the events, evaluations and checkpoints of a run over a data set."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy

from . import _library as native
from ._fit import Fit
from ._module import Module

# In a run folder, beside what trun writes: what Python alone knows of it.
_FOLDER = "python"
# What an iterator gives that has ended: None may be a batch, which is refused with a message of its own.
_END = object()


def is_loader(data: Any) -> bool:
    """True for an iterable of batches; paths and dicts of whole arrays are data sets, which libtrun reads."""
    return not isinstance(data, (str, bytes, os.PathLike, Mapping)) and isinstance(data, Iterable)


def joined(pieces: list[Any]) -> Any:
    """The rows of several tensors, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    if all(hasattr(one, "data_ptr") for one in pieces):
        import torch

        return torch.cat(list(pieces))
    try:
        return numpy.concatenate([numpy.asarray(one) for one in pieces])
    except ValueError as problem:
        raise native.DataError(f"the loader's batches cannot be joined: {problem}") from None


def save_module(run: Any, module: Module | None) -> None:
    """Keeps in a run folder how batches are read and how torch names the state."""
    if module is not None:
        folder = Path(os.fspath(run)) / _FOLDER
        folder.mkdir(exist_ok=True)
        (folder / "module.json").write_text(json.dumps(module.record()))


def load_module(run: str) -> Module | None:
    try:
        return Module.of_record(json.loads((Path(run) / _FOLDER / "module.json").read_text()))
    except FileNotFoundError:
        return None


class Position:
    """Where a run over a loader is: epochs begun, batches taken from the present one, batches that no update has used
    yet, totals to reach, and the loader's own state, if it has one.
    """

    def __init__(self) -> None:
        self.epoch, self.batches = 0, 0
        self.pending: list[Any] = []
        self.steps: int | None = None
        self.epochs: int | None = None
        self.loader: Any = None

    def save(self, run: Any, step: int) -> None:
        """Beside the checkpoint of `step`; those of checkpoints that are gone are removed."""
        folder = Path(os.fspath(run))
        place = folder / _FOLDER
        place.mkdir(exist_ok=True)
        (place / f"step-{step}.pickle").write_bytes(pickle.dumps(self.__dict__))
        for other in place.glob("step-*.pickle"):
            if not (folder / "checkpoints" / other.stem).is_dir():
                other.unlink()

    @classmethod
    def load(cls, run: str, step: int) -> Position | None:
        """A pickle: read only runs that you trust, as their plans hold machine code."""
        position = cls()
        try:
            position.__dict__.update(pickle.loads((Path(run) / _FOLDER / f"step-{step}.pickle").read_bytes()))
        except FileNotFoundError:
            return None
        return position


class Run:
    """A run of `trainer.fit` over a loader."""

    def __init__(self, trainer: Any, given: Fit):
        if given.resume is not None:
            raise native.UsageError("fit: a run over a loader is resumed by Trainer.resume(run).fit(loader)")
        if given.eval_every and given.eval is None:
            raise native.UsageError(f"fit: eval_every = {given.eval_every}: there is no evaluation data; give eval=")
        self.trainer, self.loader, self.eval = trainer, given.data, given.eval
        self.out = os.fspath(given.out) if given.out is not None else trainer._run
        self.eval_every, self.checkpoint_every = given.eval_every, given.checkpoint_every
        self.callbacks, self.scheduler = given.callbacks, given.scheduler
        if self.scheduler is not None and (trainer.plan.module is None or trainer.plan.module.rates is None):
            raise native.UsageError(
                "fit: a scheduler moves the rates of a torch optimizer, and the plan was compiled without optimizer="
            )
        if given.out is not None and os.path.exists(given.out):
            raise native.UsageError(f"fit: {self.out} exists; go on with it by Trainer.resume, or give another out=")
        self.position = position = trainer._position or Position()
        trainer._position = None
        if given.steps is not None:
            position.steps, position.epochs = trainer.steps + given.steps, None
        elif given.epochs is not None or (position.steps is None and position.epochs is None):
            position.steps, position.epochs = None, position.epoch + (1 if given.epochs is None else given.epochs)
        self.metrics: dict[str, float] = {}
        self.saved: int | None = None
        # Updates of an epoch, and those before the present one.
        passes = trainer._accumulated
        self.per_epoch = -(-len(self.loader) // passes) if isinstance(self.loader, Sized) else 0
        self.began = trainer.steps - position.batches // passes

    def tell(self, kind: str, text: str = "", update: Any = None, metrics: Any = None) -> None:
        from ._trainer import Event

        event = Event(kind, self.trainer.steps, self.total, text, update, metrics or {})
        for callback in self.callbacks:
            if callback(event) == "stop":
                self.trainer.stop()

    @property
    def total(self) -> int:
        """Updates at the planned end; of epochs by the loader's length, later by that of an epoch; 0: not known."""
        position = self.position
        if position.steps is not None or position.epochs is None or not self.per_epoch:
            return position.steps or 0
        return int(self.began + (position.epochs - position.epoch) * self.per_epoch)

    def evaluate(self) -> None:
        self.metrics = (
            self.trainer._evaluate_over(self.eval) if is_loader(self.eval) else self.trainer.evaluate(**self.eval)
        )
        self.trainer.history.evaluation(self.trainer.steps, self.metrics)
        self.tell("evaluation", metrics=self.metrics)

    def checkpoint(self) -> None:
        step = self.trainer.steps
        if self.out is None or self.saved == step:
            return
        self.saved = step
        self.position.loader = self.loader.state_dict() if hasattr(self.loader, "state_dict") else None
        self.trainer.save(self.out)
        self.position.save(self.out, step)
        self.tell("checkpoint", text=os.path.join(self.out, "checkpoints", f"step-{step}"))

    def update(self, batches: list[Any]) -> None:
        trainer = self.trainer
        rate = trainer.plan.module.rates.now() if self.scheduler is not None else None
        numbers = trainer._step(trainer._joined(batches, "step"), rate)
        if self.scheduler is not None:
            trainer.plan.module.rates.optimizer._opt_called = (
                True  # torch warns of schedulers that move before their optimizer
            )
            self.scheduler.step()
        metrics = {"loss": numbers.loss, "lr": numbers.learning_rate, "grad_norm": numbers.gradient_norm}
        self.tell("update", update=numbers, metrics=metrics)

    def begin_epoch(self) -> Any:
        """An iterator that stands behind the batches that a resumed run has taken."""
        position = self.position
        if position.loader is not None and hasattr(self.loader, "load_state_dict"):
            self.loader.load_state_dict(position.loader)
            position.loader = None
            return iter(self.loader)
        iterator = iter(self.loader)
        for _ in range(position.batches):
            if next(iterator, _END) is _END:
                raise native.DataError(
                    f"the loader gives fewer than the {position.batches} batches that this epoch has used already; "
                    "give the loader of the run"
                )
        return iterator

    @property
    def done(self) -> bool:
        position = self.position
        return self.trainer._stopped or (position.steps is not None and self.trainer.steps >= position.steps)

    def run(self) -> dict[str, float]:
        trainer, position = self.trainer, self.position
        trainer._stopped = False
        self.tell("begin")
        try:
            while not self.done and (position.epochs is None or position.epoch < position.epochs):
                self.epoch()
            if self.eval is not None and not (self.eval_every and trainer.steps % self.eval_every == 0):
                self.evaluate()
        except KeyboardInterrupt:
            self.checkpoint()
            raise
        self.checkpoint()
        if position.batches:  # an epoch that was ended early
            trainer.next_epoch()
        self.tell("end", text="a request to stop" if trainer._stopped else "")
        return self.metrics

    def epoch(self) -> None:
        position, trainer = self.position, self.trainer
        iterator = self.begin_epoch()
        began = position.batches
        while not self.done:
            batch = next(iterator, _END)
            if batch is _END:
                if position.batches == began == 0:
                    raise native.DataError(
                        f"the loader gives no batch in epoch {position.epoch + 1}; an iterator is used up after one "
                        "pass: give a list or a DataLoader"
                    )
                break
            position.batches += 1
            position.pending.append(batch)
            # Batches of a plan of several shapes may differ in length, so that they cannot be joined.
            if trainer.plan.has_shapes or trainer._rows_of(position.pending) >= trainer.rows:
                self.flush()
        else:
            return
        if position.pending:
            self.flush()
        position.epoch, position.batches = position.epoch + 1, 0
        self.per_epoch, self.began = trainer.steps - self.began, trainer.steps
        trainer.next_epoch()

    def flush(self) -> None:
        """One update of the batches that wait."""
        trainer = self.trainer
        # An interrupt comes after the update, whose native code it does not end, so these batches count as used.
        batches, self.position.pending = self.position.pending, []
        self.update(batches)
        if self.eval is not None and self.eval_every and trainer.steps % self.eval_every == 0:
            self.evaluate()
        if self.checkpoint_every and trainer.steps % self.checkpoint_every == 0:
            self.checkpoint()
