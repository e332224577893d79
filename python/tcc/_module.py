"""What a plan keeps of the torch module that it was made from: how batches are read, and how its state is named."""

from __future__ import annotations

from typing import Any

import numpy

from ._layout import Layout


class Module:
    """layout: of batches. targets: inputs that only the loss inside the graph reads, whose output is `loss`. state:
    {name in torch: name in the graph}, two names for a tied weight. rest: what the graph does not hold, as it was.
    counters: names of `num_batches_tracked` that training counts up. order: names of the state_dict. rates: reads the
    learning rates of the torch optimizer; None without one.
    """

    def __init__(
        self,
        layout: Layout,
        targets: list[str],
        loss: str | None,
        state: dict[str, str],
        rest: dict[str, numpy.ndarray],
        counters: list[str],
        order: list[str],
    ):
        self.layout, self.targets, self.loss, self.state, self.rest, self.counters = (
            layout,
            targets,
            loss,
            state,
            rest,
            counters,
        )
        self.order = order
        self.rates: Any = None

    def record(self) -> dict[str, Any]:
        """What a run folder keeps of it, for json; of_record is the inverse."""
        return {
            "layout": self.layout.record(),
            "targets": self.targets,
            "loss": self.loss,
            "state": self.state,
            "counters": self.counters,
            "order": self.order,
            "rest": {name: [str(value.dtype), value.tolist()] for name, value in self.rest.items()},
        }

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Module:
        rest = {name: numpy.array(value, dtype) for name, (dtype, value) in record["rest"].items()}
        return cls(
            Layout.of_record(record["layout"]),
            record["targets"],
            record["loss"],
            record["state"],
            rest,
            record["counters"],
            record["order"],
        )
