"""What a trainer remembers of its updates and evaluations, and the curves that a notebook shows of it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import cycle
from typing import NamedTuple

from . import _drawing


class Evaluation(NamedTuple):
    """step: updates made before it. metrics: its numbers by name."""

    step: int
    metrics: dict[str, float]


class History:
    """steps, losses: of each update, 16 bytes for both. evaluations: those of fit. Shows curves in a notebook."""

    def __init__(self) -> None:
        self.steps: array[int] = array("Q")
        self.losses: array[float] = array("d")
        self.evaluations: list[Evaluation] = []

    def update(self, step: int, loss: float) -> None:
        self.steps.append(step)
        self.losses.append(loss)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations.append(Evaluation(step, dict(metrics)))

    def __len__(self) -> int:
        return len(self.losses)

    def __repr__(self) -> str:
        last = f", the last loss {self.losses[-1]:.6g}" if self.losses else ""
        return f"<tcc.History: {len(self)} updates{last}, {len(self.evaluations)} evaluations>"

    def _repr_html_(self) -> str:
        """The losses, with the evaluations' losses among them, and a curve of each other metric."""
        if not self.losses:
            return "<p>no updates yet</p>"
        curves: dict[str, list[tuple[float, float]]] = {}
        for step, metrics in self.evaluations:
            for name, value in metrics.items():
                curves.setdefault(name, []).append((step, value))
        losses: dict[str, _drawing.Points] = {"loss": list(zip(self.steps, self.losses))}
        losses |= {name: points for name, points in curves.items() if name.endswith("loss")}
        pictures = [_curves(losses)]
        pictures += [_curves({name: points}) for name, points in curves.items() if name not in losses]
        return "".join(pictures)


def _curves(curves: Mapping[str, _drawing.Points]) -> str:
    """One drawing of several curves by update."""
    points = [point for one in curves.values() for point in one if abs(point[1]) < float("inf")]
    if not points:
        return "<p>no finite numbers</p>"
    steps, values = zip(*points)
    axes = _drawing.Axes((min(steps), max(steps)), (min(values), max(values)))
    entries = []
    for (name, own), colour in zip(curves.items(), cycle(_drawing.COLOURS)):
        axes.line(own, colour, name)
        if len(own) < 50:
            axes.dots(own, colour)
        entries.append((f"{name} {own[-1][1]:.4g}", colour))
    return f"<div>{_drawing.legend(entries)}<br>{axes.svg(', '.join(curves), 'update')}</div>"
