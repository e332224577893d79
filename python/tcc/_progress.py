"""Shows the progress of fit: a tqdm bar where tqdm is installed, else one line at intervals."""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ._trainer import Event

# Between two lines.
SECONDS = 1.0


def shown(progress: bool | None, stream: TextIO) -> bool:
    """Whether a fit tells its progress. None: where someone looks, at a terminal or a notebook."""
    return progress if progress is not None else stream.isatty() or "ipykernel" in sys.modules


def _numbers(metrics: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4g}" for name, value in metrics.items()}


class Lines:
    """A callback of fit that prints "update 12/500, loss 0.4321, …", at most one line a second, no wider than the
    terminal.
    """

    def __init__(self, stream: TextIO):
        self.stream, self.next = stream, 0.0
        self.evaluation: dict[str, float] = {}
        self.unsaid: Event | None = None

    def __call__(self, event: Event) -> None:
        if event.kind == "evaluation":
            self.evaluation = event.metrics
        if event.kind == "update":
            self.unsaid = event
        if self.unsaid is not None and (event.kind in ("evaluation", "end") or time.monotonic() >= self.next):
            self.say(self.unsaid)

    def say(self, event: Event) -> None:
        total = f"/{event.total}" if event.total else ""
        numbers = _numbers({"loss": event.metrics["loss"]} | self.evaluation | {"lr": event.metrics["lr"]})
        words = [f"update {event.step}{total}", *(f"{name} {value}" for name, value in numbers.items())]
        width = shutil.get_terminal_size().columns if self.stream.isatty() else sys.maxsize
        while len(words) > 1 and len(", ".join(words)) >= width:
            words.pop()
        print(", ".join(words), file=self.stream, flush=True)
        self.next = time.monotonic() + SECONDS
        self.unsaid = None

    def close(self) -> None:
        pass


class Bar:
    """A callback of fit that moves a bar of tqdm."""

    def __init__(self, tqdm: Any, stream: TextIO):
        self.tqdm, self.stream = tqdm, stream
        self.bar: Any = None
        self.numbers: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if self.bar is None:
            # In a notebook tqdm.auto draws a widget, which a stream of ours would replace by text.
            options = {"file": self.stream} if self.stream.isatty() else {}
            total = event.total or None
            self.bar = self.tqdm(initial=event.step, total=total, unit=" updates", dynamic_ncols=True, **options)
        if event.kind == "evaluation":
            self.numbers |= _numbers(event.metrics)
        if event.kind == "update":
            if event.total and self.bar.total != event.total:
                self.bar.total = event.total
            self.numbers = {"loss": f"{event.metrics['loss']:.4g}"} | {
                name: value for name, value in self.numbers.items() if name != "loss"
            }
            self.bar.set_postfix(self.numbers, refresh=False)
            self.bar.update(event.step - self.bar.n)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def reporter(stream: TextIO) -> Lines | Bar:
    try:
        found = importlib.import_module("tqdm.auto")
    except ImportError:
        return Lines(stream)
    return Bar(found.tqdm, stream)
