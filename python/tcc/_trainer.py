"""Trainers: the loop of the caller's, or whole runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy

from . import _library as native, _loops, _progress
from ._checks import integer, mapping, nearest, number, path as as_path
from ._fit import Fit, takes
from ._history import History
from ._layout import is_tensor
from ._plan import MOST_THREADS, Plan, Value, toml

T = TypeVar("T")


class Step(NamedTuple):
    """Numbers of one update. loss: before it. gradient_norm: before clipping. outputs: the graph outputs that
    tcc.compile(outputs=…) names, of the update's rows: {name: numpy array}.
    """

    step: int  # from 1
    loss: float
    learning_rate: float
    gradient_norm: float
    samples: int
    tokens: int
    loss_scale: float  # 0 without one
    skipped: bool  # a gradient overflowed under the loss scale, and no weight changed
    outputs: Mapping[str, numpy.ndarray] = MappingProxyType({})


class Event(NamedTuple):
    """What a run tells a callback.

    kind: "message" (text), "begin" (total), "update" (update: a Step), "evaluation", "checkpoint" (text: its folder),
    "end" (text: why, if it was not the planned end). step, total: updates; total 0: not known. metrics: numbers by
    name, for a logger: those of an evaluation; of an update "loss", "lr" and "grad_norm"; else {}.
    """

    kind: str
    step: int
    total: int
    text: str
    update: Step | None
    metrics: dict[str, float]


_KINDS = ("message", "begin", "update", "evaluation", "checkpoint", "end")


def _step(numbers: Any) -> Step:
    return Step(
        numbers.step,
        numbers.loss,
        numbers.learning_rate,
        numbers.gradient_norm,
        numbers.samples,
        numbers.tokens,
        numbers.loss_scale,
        bool(numbers.skipped),
    )


def _address(value: Any) -> tuple[int, str, tuple[int, ...], tuple[int, ...] | None, Any]:
    """(address, dtype, shape, strides in elements or None, what keeps the memory) of a numpy array or a torch tensor."""
    if hasattr(value, "data_ptr"):
        if value.device.type != "cpu":
            value = value.cpu()
        value = value.detach()
        dtype = str(value.dtype).removeprefix("torch.")
        return (
            value.data_ptr(),
            dtype,
            tuple(value.shape),
            None if value.is_contiguous() else tuple(value.stride()),
            value,
        )
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        value = numpy.from_dlpack(value)
    value = numpy.asarray(value)
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    strides = None
    if not value.flags.c_contiguous:
        if value.itemsize and all(step % value.itemsize == 0 for step in value.strides):
            strides = tuple(step // value.itemsize for step in value.strides)
        else:
            value = numpy.ascontiguousarray(value)
    return value.ctypes.data, value.dtype.name, value.shape, strides, value


class _Tensors:
    """The C structs of named tensors, made again only if a type or a shape changes."""

    def __init__(self) -> None:
        self._known: list[Any] | None = None
        self._array: Any = None
        self.keep: list[Any] = []

    def of(self, named: list[tuple[str, Any]]) -> Any:
        known, addresses, keep = [], [], []
        for name, value in named:
            try:
                address, dtype, shape, strides, owner = _address(value)
            except ValueError as problem:
                raise native.DataError(f"'{name}' is no array: {problem}") from None
            known.append((name, dtype, shape, strides))
            addresses.append(address)
            keep.append(owner)
        if known != self._known:
            for name, value in named:
                if value is None or isinstance(value, (str, bytes, Mapping)):
                    raise native.DataError(
                        f"'{name}' is {type(value).__name__}; give a NumPy array, a torch tensor, or what has __dlpack__"
                    )
            array = (native.Tensor * len(known))()
            for tensor, (name, dtype, shape, strides) in zip(array, known):
                if dtype not in native.DTYPES:
                    raise native.DataError(f"'{name}': its dtype {dtype} is none that a plan can read; convert it")
                tensor.size, tensor.name, tensor.dtype, tensor.rank = (
                    ctypes.sizeof(native.Tensor),
                    name.encode(),
                    native.DTYPES[dtype],
                    len(shape),
                )
                tensor.dims = (ctypes.c_int64 * len(shape))(*shape)
                tensor.strides = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
            self._known, self._array = known, array
        for tensor, address in zip(self._array, addresses):
            tensor.data = address
        self.keep = keep
        return self._array


def _array(info: native.Info, address: Any) -> numpy.ndarray:
    """A copy of a result's array. bfloat16, which numpy lacks, becomes float32."""
    name, shape = native.NAMES[info.dtype], tuple(info.dims[: info.rank])
    raw = ctypes.string_at(address, info.bytes)
    if name == "bfloat16":
        return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(shape)
    return numpy.frombuffer(raw, name).reshape(shape).copy()


@contextlib.contextmanager
def _tensors_of_the_caller() -> Iterator[None]:
    """What libtrun says of a call's tensors is about data."""
    try:
        yield
    except native.UsageError as problem:
        if isinstance(problem, native.DataError):
            raise
        raise native.DataError(str(problem)) from None


@contextlib.contextmanager
def _data_of_the_caller(*given: Any) -> Iterator[None]:
    """What libtrun says of a data set begins with its path, or with "the rows" in memory, after "for seq = 8: " of one of
    several shapes.
    """
    names = ["the rows", *(os.fsdecode(one) for one in given if isinstance(one, (str, os.PathLike)))]
    try:
        yield
    except native.Error as problem:
        words = str(problem).replace("give eval_data = PATH", "give eval=")
        of_data = re.sub(r"^for [^:]* = \d+: ", "", words).startswith(tuple(names))
        if type(problem) is native.Error and of_data:
            raise native.DataError(words) from None
        problem.args = (words,)
        raise


@contextlib.contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Yields a list that is not empty after Ctrl-C, which calls `stop`; a KeyboardInterrupt follows at the end.

    An exception that a signal raises between two lines of a callback of ctypes is lost, so none is raised there. A
    second Ctrl-C is raised at once. Handlers of the caller's own stay.
    """
    came: list[int] = []
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return

    def note(number: int, frame: Any) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)
        stop()

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def _setting(key: Any, value: Any) -> bytes:
    """KEY=VALUE for libtrun. Texts stand for themselves, as in trun --set."""
    return f"{key}={value if isinstance(value, str) else toml(str(key), value)}".encode()


class EarlyStopping:
    """A callback of fit: ends the run after `patience` evaluations without a better `metric`.

    mode: "min" or "max"; default: "max" for accuracies, else "min". min_change: what counts as better.
    """

    def __init__(self, metric: str = "eval_loss", patience: int = 3, mode: str | None = None, min_change: float = 0.0):
        if mode not in (None, "min", "max"):
            raise native.UsageError(f'EarlyStopping: mode = {mode!r}: it must be "min" or "max"')
        self.metric, self.patience, self.min_change = (
            metric,
            integer("EarlyStopping: patience", patience, 1),
            min_change,
        )
        self.mode = mode or ("max" if "accuracy" in metric or "auc" in metric or "f1" in metric else "min")
        self.best: float | None = None
        self.waited = 0

    def __call__(self, event: Event) -> str | None:
        if event.kind != "evaluation":
            return None
        if self.metric not in event.metrics:
            raise native.UsageError(
                f"EarlyStopping: the evaluation has no '{self.metric}'; it has {', '.join(event.metrics)}"
            )
        value = event.metrics[self.metric]
        better = self.best is None or (
            value < self.best - self.min_change if self.mode == "min" else value > self.best + self.min_change
        )
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        return "stop" if self.waited >= self.patience else None


class Trainer:
    """The state of a model in training, on one device, with all memory of the plan.

    plan: a Plan, or what Plan() takes. target, device ("cpu", "cuda", "null"): of several; None: the best that runs
    here. threads: 0: as many as the process may use. memory_budget: bytes; 0: the plan's. settings: {"optimizer.lr":
    3e-4}, keys that need no compilation. seed: of random numbers. schedule_steps: length of the learning rate's
    schedule, if the recipe has none.

    Several trainers may work in several threads, each in one at a time; `stop` may be called from any. Raises
    OverBudget, Error.
    """

    def __init__(
        self,
        plan: Any,
        *,
        target: str | None = None,
        device: str | None = None,
        threads: int = 0,
        memory_budget: int = 0,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        schedule_steps: float = 0,
    ):
        self.plan = plan if isinstance(plan, Plan) else Plan(plan)
        options = native.trainer_defaults()
        options.target = target.encode() if target else None
        options.device = device.encode() if device else None
        options.threads = integer("threads", threads, 0, MOST_THREADS)
        options.memory_budget = integer("memory_budget (bytes)", memory_budget)
        options.schedule_steps = number("schedule_steps", schedule_steps)
        if seed is not None:
            options.seed = integer("seed", seed)
        words = [
            _setting(key, value) for key, value in mapping("settings", settings or {}, "{'optimizer.lr': 3e-4}").items()
        ]
        options.settings, options.setting_count = (ctypes.c_char_p * len(words))(*words), len(words)
        self._memory = ctypes.c_void_p()
        native.trainer_create(self.plan._handle, byref(options), byref(self._memory))
        self._numbers = native.StepNumbers(ctypes.sizeof(native.StepNumbers))
        self._given: dict[str, _Tensors] = {}
        self.history = History()
        self._inputs = [value.name for value in self.plan.inputs()]
        # Entries of an update return graph outputs under this prefix.
        self._returns = any(
            value.name.startswith("output:") for entry in self.plan.entries for value in self.plan.values(entry)
        )
        self._rate: float | None = None
        self._stopped = False
        self._run: str | None = None  # that a resumed trainer goes on with
        self._position: _loops.Position | None = None  # of a resumed run over a loader

    @classmethod
    def resume(cls, run: Any, **options: Any) -> Trainer:
        """A trainer with the plan and the state of a run: "RUN", "RUN@STEP", "RUN@best"."""
        folder = os.fsdecode(as_path("run", run))
        if not os.path.isdir(folder):
            folder = folder.rpartition("@")[0] or folder
        if not os.path.isdir(folder):
            raise native.UsageError(f"{folder}: no such run folder; give the one that fit(out=…) or save made")
        if not os.path.exists(place := os.path.join(folder, "plan.tplan")):
            raise native.UsageError(f"{folder}: it is no run folder: it has no plan.tplan; give one that out= named")
        plan = Plan(place)
        plan.module = _loops.load_module(folder)
        trainer = cls(plan, **options)
        trainer.load(run)
        trainer._run = folder
        trainer._position = _loops.Position.load(folder, trainer.steps)
        return trainer

    @property
    def _handle(self) -> ctypes.c_void_p:
        if not self._memory:
            raise native.UsageError("the trainer is closed; make another one of its plan: tcc.Trainer(trainer.plan)")
        return self._memory

    def close(self) -> None:
        """Gives memory and threads back now, not when Python drops the trainer. Later calls raise UsageError. A trainer
        is a context manager, too: `with tcc.Trainer(plan) as trainer`.
        """
        if getattr(self, "_memory", None):
            native.trainer_free(self._memory)
            self._memory = ctypes.c_void_p()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _pairs(self, inputs: list[str], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """(input, tensor) of a call. A plan of a module takes batches as its example was, or what its entry needs by
        name.
        """
        module = self.plan.module
        if module is not None and not (named and set(named) <= set(inputs) and not arguments):
            pairs = module.layout.named(module.layout.batch_of(arguments, named))
            return [(name, value) for name, value in pairs if name in inputs]
        if len(arguments) == 1 and not named:  # a batch, as a loader gives it
            if isinstance(arguments[0], Mapping):
                return list(arguments[0].items())
            if isinstance(arguments[0], (tuple, list)) and arguments[0] and all(map(is_tensor, arguments[0])):
                arguments = tuple(arguments[0])
        if len(arguments) > len(inputs):
            raise native.DataError(f"{len(arguments)} tensors for {len(inputs)} inputs: {', '.join(inputs)}")
        return list(zip(inputs, arguments)) + list(named.items())

    def _tensors(self, use: str, pairs: list[tuple[str, Any]]) -> tuple[Any, int]:
        return self._given.setdefault(use, _Tensors()).of(pairs), len(pairs)

    def step(self, *tensors: Any, lr: float | None = None, **named: Any) -> Step:
        """One update from tensors (numpy arrays, torch tensors, anything with __dlpack__), in the order of the plan's
        inputs or by name, or a batch as a loader gives it, with `rows` samples or fewer; for a plan of a torch module a
        batch as its example was. lr: the learning rate from this update on.

        Raises DataError for tensors that do not fit, which change nothing; NonFinite.
        """
        return self._step(self._pairs(self._inputs, tensors, named), lr)

    def _step(self, pairs: list[tuple[str, Any]], lr: float | None) -> Step:
        if lr is not None and lr != self._rate:
            native.trainer_set_rate(self._handle, number("lr", lr))
            self._rate = lr
        with _tensors_of_the_caller():
            array, count = self._tensors("step", pairs)
            native.check(native.trainer_step(self._handle, array, count, byref(self._numbers)))
        self.history.update(self._numbers.step, self._numbers.loss)
        step = _step(self._numbers)
        if not self._returns:
            return step
        results = ctypes.c_void_p()
        native.trainer_outputs(self._handle, byref(results))
        return step._replace(outputs=self._arrays(results))

    def _joined(self, batches: list[Any], entry: str) -> list[tuple[str, Any]]:
        """(input, tensor) of several batches of a loader, one after the other. Inputs without samples are those of the
        first.
        """
        inputs = self.plan.inputs(entry)
        each = []
        for batch in batches:
            if self.plan.module is None and isinstance(batch, Mapping):
                each.append(dict(batch))
            else:
                arguments = tuple(batch) if isinstance(batch, (tuple, list)) and self.plan.module is None else (batch,)
                each.append(dict(self._pairs([value.name for value in inputs], arguments, {})))
        sampled = {value.name for value in inputs if value.sample_axis is not None}
        return [
            (name, _loops.joined([one[name] for one in each]) if name in sampled else each[0][name]) for name in each[0]
        ]

    def _rows_of(self, batches: list[Any]) -> int:
        """Samples of several batches of a loader."""
        count = 0
        for batch in batches:
            pairs = self._joined([batch], "step")
            first = next((value for value in self.plan.inputs() if value.sample_axis is not None), None)
            given = dict(pairs).get(first.name) if first is not None else None
            count += len(given) if given is not None and is_tensor(given) else 1
        return count

    @property
    def rows(self) -> int:
        """Samples of an update."""
        return int(native.trainer_rows(self._handle))

    @property
    def steps(self) -> int:
        """Updates done."""
        return int(native.trainer_steps(self._handle))

    def set(self, key: str, value: Any) -> None:
        """Changes a setting that needs no compilation, from the next update on: set("optimizer.weight_decay", 0.1)."""
        native.trainer_set(self._handle, _setting(key, value))

    def next_epoch(self) -> None:
        """Begins the next epoch, for a schedule that counts epochs: an own loop knows where one ends."""
        native.trainer_next_epoch(self._handle)

    def evaluate(self, *tensors: Any, averages: bool = False, **named: Any) -> dict[str, float]:
        """Loss and metrics over any number of rows, in inference mode: {"eval_loss": …}. averages: of the averaged
        weights.

        A single argument that is an iterable of batches, as a DataLoader, is evaluated whole; its tensors are held in
        memory together.
        """
        if len(tensors) == 1 and not named and self._are_batches(tensors[0]):
            return self._evaluate_over(tensors[0], averages)
        return self._evaluate(
            self._pairs([value.name for value in self.plan.inputs("evaluate")], tensors, named), averages
        )

    def _are_batches(self, given: Any) -> bool:
        """True for a loader or a list of batches; a tuple is one batch, and so is a list that begins with a tensor."""
        if is_tensor(given) or isinstance(given, tuple):
            return False
        if isinstance(given, list) and given and (self.plan.module is not None or is_tensor(given[0])):
            return False
        return _loops.is_loader(given)

    def _evaluate_over(self, loader: Iterable[Any], averages: bool = False) -> dict[str, float]:
        batches = list(loader)
        if not batches:
            raise native.DataError(
                "the loader of evaluation gives no batch; an iterator is used up after one pass: give a list or a DataLoader"
            )
        return self._evaluate(self._joined(batches, "evaluate"), averages)

    def _evaluate(self, pairs: list[tuple[str, Any]], averages: bool) -> dict[str, float]:
        results = ctypes.c_void_p()
        with _tensors_of_the_caller():
            array, count = self._tensors("evaluate", pairs)
            native.trainer_evaluate(self._handle, array, count, averages, byref(results))
        return self._taken(results, lambda index: float(native.results_number(results, index)))

    def predict(self, *tensors: Any, **named: Any) -> dict[str, numpy.ndarray]:
        """The graph's outputs for any number of rows, in inference mode: {name: numpy array}. A plan of a torch module
        takes what the module's forward takes, or a whole batch, whose target is not read.
        """
        module = self.plan.module
        if module is None:
            return self._run_entry("predict", tensors, named)
        inputs = {value.name: value for value in self.plan.inputs("predict")}
        read = [name for _, name in module.layout.tensors if name in inputs and name not in module.targets]
        if named and not tensors and set(named) <= set(inputs):
            pairs = list(named.items())
        elif len(tensors) == len(read) and all(is_tensor(one) for one in tensors):
            pairs = list(zip(read, tensors))
        else:
            pairs = [
                (name, value)
                for name, value in module.layout.named(module.layout.batch_of(tensors, named))
                if name in read
            ]
        # The loss is a part of the graph, and no other output reads its targets.
        rows = len(pairs[0][1]) if pairs else 0
        for name in module.targets:
            value = inputs[name]
            shape = tuple(rows if axis == value.sample_axis else extent for axis, extent in enumerate(value.shape))
            pairs.append((name, numpy.zeros(shape, "float32" if value.dtype == "bfloat16" else value.dtype)))
        found = self._run_entry("predict", (), dict(pairs))
        if module.loss is not None:
            found.pop(module.loss, None)
        return found

    def gradients(self, *tensors: Any, **named: Any) -> dict[str, numpy.ndarray]:
        """The loss, by its output's name ("loss" if the recipe made it), and gradients by their parameters' names, of
        one batch. The plan needs the entry "gradients".
        """
        return {
            name.removeprefix("gradient:"): value
            for name, value in self._run_entry("gradients", tensors, named).items()
        }

    def _run_entry(self, entry: str, tensors: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
        pairs = self._pairs([value.name for value in self.plan.inputs(entry)], tensors, named)
        results = ctypes.c_void_p()
        with _tensors_of_the_caller():
            array, count = self._tensors(entry, pairs)
            native.trainer_run(self._handle, entry.encode(), array, count, byref(results))
        return self._arrays(results)

    def _arrays(self, results: Any) -> dict[str, numpy.ndarray]:
        """{name: array} of results, which are freed."""
        info = native.Info(ctypes.sizeof(native.Info))

        def array_of(index: int) -> numpy.ndarray:
            native.results_info(results, index, byref(info))
            return _array(info, native.results_data(results, index))

        return self._taken(results, array_of)

    @staticmethod
    def _taken(results: Any, value_of: Callable[[int], T]) -> dict[str, T]:
        """{name: value} of results, which are freed."""
        try:
            return {
                native.text(native.results_name(results, index)): value_of(index)
                for index in range(native.results_count(results))
            }
        finally:
            native.results_free(results)

    def _variables(self, roles: tuple[str, ...]) -> list[Value]:
        return [value for value in self.plan.variables if value.role in roles]

    def _variable(self, name: str) -> Value:
        known = {value.name: value for value in self.plan.variables}
        if name not in known:
            raise native.UsageError(f"the plan has no variable '{name}'; {nearest(name, list(known))}")
        return known[name]

    def read(self, name: str) -> numpy.ndarray:
        """A variable's value as a numpy array: a parameter, a buffer, or state of the optimizer."""
        value = self._variable(name)
        memory = ctypes.create_string_buffer(max(value.nbytes, 1))
        native.trainer_read(self._handle, name.encode(), memory, value.nbytes)
        info = native.Info(
            ctypes.sizeof(native.Info),
            None,
            0,
            native.DTYPES[value.dtype],
            len(value.shape),
            (ctypes.c_int64 * len(value.shape))(*value.shape),
            -1,
            value.nbytes,
        )
        return _array(info, memory)

    def write(self, name: str, array: Any) -> None:
        """Sets a variable, of the plan's dtype and shape."""
        value, owner = self._checked(name, array)
        native.trainer_write(self._handle, name.encode(), _address(owner)[0], value.nbytes)

    def _checked(self, name: str, array: Any) -> tuple[Value, Any]:
        """The variable, and the array in dense memory. Raises UsageError if the variable has another dtype or shape."""
        value = self._variable(name)
        _, dtype, shape, strides, owner = _address(array)
        if dtype != value.dtype or tuple(shape) != value.shape:
            raise native.UsageError(f"'{name}' is {value.dtype}{list(value.shape)}, the array {dtype}{list(shape)}")
        if strides is not None:
            owner = owner.contiguous() if hasattr(owner, "data_ptr") else numpy.ascontiguousarray(owner)
        return value, owner

    def get_parameters(self) -> dict[str, numpy.ndarray]:
        """Copies of the trained parameters: {name: numpy array}."""
        return {value.name: self.read(value.name) for value in self._variables(("parameter",))}

    def set_parameters(self, arrays: Mapping[str, Any]) -> None:
        """Sets parameters by name. Raises UsageError, before anything is set, for a name, a dtype or a shape that is no
        parameter's.
        """
        known = [value.name for value in self._variables(("parameter",))]
        arrays = mapping("set_parameters", arrays, "{name: array}, as get_parameters does")
        for name, array in arrays.items():
            if name not in known:
                raise native.UsageError(f"the plan has no parameter '{name}'; {nearest(name, known)}")
            self._checked(name, array)
        for name, array in arrays.items():
            self.write(name, array)

    def state_dict(self) -> dict[str, numpy.ndarray]:
        """{name: numpy array} of parameters and buffers: by the names of the graph; for a plan of a torch module by
        torch's names, in torch's order and shapes, a tied weight under each of its names.
        """
        module = self.plan.module
        if module is None:
            return {value.name: self.read(value.name) for value in self._variables(("parameter", "buffer"))}
        known = {value.name for value in self.plan.variables}
        found = {name: self.read(own) for name, own in module.state.items() if own in known}
        for name, value in module.rest.items():
            found[name] = numpy.asarray(value + self.steps * self._accumulated) if name in module.counters else value
        return {name: found[name] for name in module.order if name in found}

    @property
    def _accumulated(self) -> int:
        """Forward passes of an update."""
        batch = next(
            (value.shape[value.sample_axis] for value in self.plan.inputs() if value.sample_axis is not None), None
        )
        return self.rows // batch if batch else 1

    def load_into(self, target: Any) -> None:
        """Copies parameters and buffers into a torch module, by name, whatever its device and dtype.

        Raises UsageError, before anything is copied, for a name that the module lacks or has in another shape.
        """
        if not hasattr(target, "state_dict"):
            raise native.UsageError(f"load_into: {type(target).__name__} is no torch module")
        import torch

        state, own = target.state_dict(), self.state_dict()
        for name, array in own.items():
            if name not in state:
                raise native.UsageError(
                    f"the module has no '{name}'; load_into takes a module like the one that was compiled"
                )
            if tuple(state[name].shape) != array.shape:
                raise native.UsageError(f"'{name}' is {list(array.shape)}, the module's {list(state[name].shape)}")
        with torch.no_grad():
            for name, array in own.items():
                state[name].copy_(torch.from_numpy(array.copy()))

    def save(self, run: Any) -> None:
        """Writes the state as a checkpoint of the run folder `run`, which trun resumes, evaluates and exports."""
        native.trainer_save(self._handle, as_path("run", run))
        _loops.save_module(run, self.plan.module)

    def load(self, run: Any) -> None:
        """Takes the state of "RUN", "RUN@STEP" or "RUN@best"."""
        native.trainer_load(self._handle, as_path("run", run))

    def export(self, path: Any) -> None:
        """Writes the model with the trained values: .onnx or .safetensors."""
        native.trainer_export(self._handle, as_path("path", path))

    def export_adapter(self, folder: Any) -> None:
        """Writes the trained adapter alone, for PeftModel.from_pretrained(base, folder)."""
        native.trainer_export_adapter(self._handle, as_path("folder", folder))

    def stop(self) -> None:
        """Ends a fit after its update, from any thread or signal handler."""
        self._stopped = True
        native.trainer_stop(self._handle)

    @takes(Fit)
    def fit(self, given: Fit) -> dict[str, float]:
        """Trains over a data set, as trun does, or over a loader, from this state.

        data, eval: a path of any kind that trun reads; {input: array}, samples first; or an iterable of batches (tuples
        or dicts of tensors), as a DataLoader. epochs, steps: passes or updates from here; neither: one epoch, or after
        Trainer.resume what is left of the run. out: a run folder to make; None: no files. eval_every: updates between
        evaluations; 0: at the end. checkpoint_every: updates between checkpoints. callbacks: functions of an Event; one
        that returns "stop" ends the run. progress: True: a bar of tqdm on the standard error if it is installed, else a
        line a second; None: the same where that is a terminal or a notebook; False: nothing is printed.

        Of a data set alone: resume, a run to go on with; shuffle. Of a loader alone: scheduler, one of
        torch.optim.lr_scheduler for the optimizer of compile, which is stepped after each update. A loader's last batch
        may be shorter where the loss can leave rows out. A checkpoint holds the loader's state_dict() if it has one;
        else a resumed epoch skips the batches that it has used already.

        A KeyboardInterrupt ends the run after its update, with everything kept, and is raised again. Returns {metric:
        value} of the last evaluation, or {}. Raises DataError, NonFinite.
        """
        if given.checkpoint_every and given.out is None and given.resume is None and self._run is None:
            raise native.UsageError(
                f"fit: checkpoint_every = {given.checkpoint_every}: there is no run folder; give out="
            )
        if is_tensor(given.data) or (isinstance(given.data, tuple) and any(map(is_tensor, given.data))):
            names = ", ".join(f"'{name}': …" for name in self._inputs)
            raise native.UsageError(
                f"fit: data is {type(given.data).__name__}; give whole arrays as {{{names}}}, or a list of batches"
            )
        with contextlib.ExitStack() as stack:
            if _progress.shown(given.progress, sys.stderr):
                reporter = stack.enter_context(contextlib.closing(_progress.reporter(sys.stderr)))
                given.callbacks.insert(0, reporter)
            return _loops.Run(self, given).run() if _loops.is_loader(given.data) else self._fit_data_set(given)

    def _fit_data_set(self, given: Fit) -> dict[str, float]:
        """A run over a data set, by libtrun."""
        if given.scheduler is not None:
            raise native.UsageError(
                "fit: a scheduler is stepped over a loader; for a data set, compile it: tcc.compile(…, scheduler=…)"
            )
        if given.eval is not None and _loops.is_loader(given.eval):
            raise native.UsageError("fit: data is a data set and eval a loader; give two of one kind")
        if not isinstance(given.data, (str, bytes, os.PathLike, Mapping)):
            raise native.UsageError(
                f"fit: data is {type(given.data).__name__}; give a path, a dict of arrays, or an iterable of batches"
            )
        options = native.fit_defaults()
        keep: list[Any] = []
        metrics: dict[str, float] = {}
        problems: list[BaseException] = []
        for name, rows_or_path in (("data", given.data), ("eval_data", given.eval)):
            if rows_or_path is None:
                continue
            if isinstance(rows_or_path, Mapping):
                tensors = _Tensors()
                pairs = [
                    (str(key), numpy.ascontiguousarray(one) if isinstance(one, numpy.ndarray) else one)
                    for key, one in rows_or_path.items()
                ]
                array = tensors.of(pairs)
                keep.append((tensors, array))
                rows, count = ("rows", "row_count") if name == "data" else ("eval_rows", "eval_row_count")
                setattr(options, rows, array)
                setattr(options, count, len(pairs))
            else:
                setattr(options, name, as_path("eval" if name == "eval_data" else name, rows_or_path))
        for name in ("epochs", "steps", "checkpoint_every"):
            if getattr(given, name) is not None:
                setattr(options, name, getattr(given, name))
        options.eval_every, options.shuffle = given.eval_every, given.shuffle
        options.out = as_path("out", given.out) if given.out is not None else None
        options.resume = as_path("resume", given.resume) if given.resume is not None else None

        def hear(_: Any, pointer: Any) -> None:
            try:
                raw = pointer.contents
                update = _step(raw.update.contents) if raw.update else None
                found = self._numbers_of(raw.results) if raw.results else {}
                metrics.update(found)
                if found:
                    self.history.evaluation(raw.step, found)
                if update is not None:
                    self.history.update(update.step, update.loss)
                    found = {"loss": update.loss, "lr": update.learning_rate, "grad_norm": update.gradient_norm}
                event = Event(_KINDS[raw.kind], raw.step, raw.total, raw.text.decode(errors="replace"), update, found)
                for callback in given.callbacks:
                    if callback(event) == "stop":
                        self.stop()
                if came:  # perhaps before the run began
                    self.stop()
            except BaseException as problem:  # raised again when the run has ended, with everything kept
                problems.append(problem)
                self.stop()

        options.on_event = native.OnEvent(hear)
        with _interrupts(self.stop) as came, _data_of_the_caller(given.data, given.eval):
            native.trainer_fit(self._handle, byref(options))
        if problems:
            raise problems[0]
        return metrics

    @staticmethod
    def _numbers_of(results: Any) -> dict[str, float]:
        return {
            native.text(native.results_name(results, index)): native.results_number(results, index)
            for index in range(native.results_count(results))
        }

    def __repr__(self) -> str:
        return f"<tcc.Trainer of {self.plan.model}, {f'{self.steps} updates' if self._memory else 'closed'}>"
