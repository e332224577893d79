"""The arguments of Trainer.fit: declared, checked and named here alone, as the constructor of Fit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as native
from ._checks import functions, integer

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec

    from ._trainer import Event

    P = ParamSpec("P")

S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")


class Fit:
    """What a call of Trainer.fit asks for; its docstring describes the arguments."""

    def __init__(
        self,
        data: Any,
        eval: Any = None,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        out: Any = None,
        resume: Any = None,
        eval_every: int = 0,
        checkpoint_every: int | None = None,
        shuffle: bool = True,
        progress: bool | None = False,
        callbacks: Callable[[Event], Any] | Iterable[Callable[[Event], Any]] = (),
        scheduler: Any = None,
    ):
        for name, value in (("steps", steps), ("epochs", epochs), ("checkpoint_every", checkpoint_every)):
            if value is not None:
                integer(f"fit: {name}", value)
        integer("fit: eval_every", eval_every)
        if epochs is not None and steps is not None:
            raise native.UsageError("fit: epochs and steps are both given; give one")
        self.data, self.eval = data, eval
        self.epochs, self.steps = epochs, steps
        self.out, self.resume = out, resume
        self.eval_every, self.checkpoint_every = eval_every, checkpoint_every
        self.shuffle, self.scheduler = shuffle, scheduler
        self.progress, self.callbacks = progress, functions(callbacks)


def takes(make: Callable[P, A]) -> Callable[[Callable[[S, A], T]], Callable[Concatenate[S, P], T]]:
    """Gives a method of one `make` the arguments of `make`: for callers, type checkers and help()."""

    def decorate(method: Callable[[S, A], T]) -> Callable[Concatenate[S, P], T]:
        @functools.wraps(method)
        def call(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
            return method(self, make(*arguments, **named))

        own, declared = inspect.signature(method), inspect.signature(make)
        parameters = [next(iter(own.parameters.values())), *declared.parameters.values()]
        whole = own.replace(parameters=parameters)
        call.__signature__ = whole  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in declared.parameters.values()}
        call.__annotations__["return"] = own.return_annotation
        if inspect.isclass(make):
            make.__init__.__qualname__ = method.__qualname__  # in the TypeError of a call with wrong arguments
        return call

    return decorate
