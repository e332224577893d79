"""One call in place of forward, loss, backward and optimizer.step of a torch loop."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .._plan import Plan
from .._trainer import Step, Trainer

_OF_TRAINER = ("device", "threads", "seed", "settings")


class CompiledStep:
    """Made by tcc.compile_step. step(x, y) makes one update and returns the loss before it, a tensor without a
    gradient.

    The weights are the plan's. They are copied into the module before it computes (model(x) in an evaluation) and
    before its state_dict is read, if updates were made since; parameters that the loop changes by hand go into the plan
    before the next update. Code that reads model.parameters() between updates calls sync() first.

    plan, trainer: what it is made of. last: the Step of the last update.
    """

    def __init__(self, module: torch.nn.Module, loss: Any, optimizer: Any, example: Any, options: dict[str, Any]):
        from .._plan import CompileError, compile

        if not isinstance(module, torch.nn.Module):
            raise CompileError(f"compile_step: {type(module).__name__} is no torch module")
        training = {key: options.pop(key) for key in _OF_TRAINER if key in options}
        self.plan: Plan = compile(module, example, loss=loss, optimizer=optimizer, **options)
        self.trainer = Trainer(self.plan, **training)
        self.last: Step | None = None
        assert self.plan.module is not None
        self._facts = self.plan.module
        self._rates = self._facts.rates
        self._module = module
        self._state = module.state_dict(keep_vars=True)
        self._behind = False
        self._busy = False
        self._versions = self._current()
        # The module must not keep the step, which has the plan's memory, alive.
        own = weakref.ref(self)

        def before(*_: Any) -> None:
            step = own()
            if step is not None:
                step.sync()

        self._hooks = [
            module.register_forward_pre_hook(before),
            module.register_state_dict_pre_hook(before),  # type: ignore[no-untyped-call]
        ]

    def _current(self) -> list[int]:
        return [value._version for value in self._state.values()]

    def __call__(self, *batch: Any, **named: Any) -> torch.Tensor:
        """One update. Raises DataError for a batch unlike the example; UsageError if the ratios of the groups' rates
        have changed.
        """
        if self._current() != self._versions:
            self.reload()
        self.last = self.trainer.step(*batch, lr=self._rates.now() if self._rates else None, **named)
        if self._rates:
            self._rates.optimizer._opt_called = True  # torch warns of schedulers that move before their optimizer
        self._behind = True
        return torch.tensor(self.last.loss)

    def sync(self) -> None:
        """Copies the weights into the module, if updates were made since the last time."""
        if not self._behind or self._busy:
            return
        self._busy = True  # load_into reads the module's state_dict, which comes here
        try:
            self.trainer.load_into(self._module)
        finally:
            self._busy = False
        self._behind = False
        self._versions = self._current()

    def reload(self) -> None:
        """Takes the values that the loop has changed in the module, as by load_state_dict."""
        known = {value.name for value in self.plan.variables}
        changed = [name for name, old, new in zip(self._state, self._versions, self._current()) if old != new]
        for name in changed:
            own = self._facts.state.get(name)
            if own in known:
                self.trainer.write(own, self._state[name].detach().cpu())
        self._versions = self._current()

    def close(self) -> None:
        """Copies the weights into the module a last time and lets go of it."""
        self.sync()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
