"""Trainers: the loop of the caller's, or whole runs."""
import ctypes
import os
from collections import namedtuple
from ctypes import byref

import numpy

from . import _library as native
from ._plan import Plan

Step = namedtuple("Step", "step loss learning_rate gradient_norm samples tokens loss_scale skipped")
Step.__doc__ = """Numbers of one update. step: from 1. loss_scale: 0 without one. skipped: a gradient overflowed, no weight changed."""

Event = namedtuple("Event", "kind step total text update metrics")
Event.__doc__ = """What a run tells a callback.

kind: "message" (text), "begin" (total), "update" (update: a Step), "evaluation" (metrics: a dict), "checkpoint" (text: its folder),
"end" (text: why, if it was not the planned end). step, total: updates.
"""
_KINDS = ("message", "begin", "update", "evaluation", "checkpoint", "end")


def _step(numbers):
    return Step(numbers.step, numbers.loss, numbers.learning_rate, numbers.gradient_norm, numbers.samples, numbers.tokens,
                numbers.loss_scale, bool(numbers.skipped))


def _address(value):
    """(address, dtype, shape, strides in elements or None, what keeps the memory) of a numpy array or a torch tensor."""
    if hasattr(value, "data_ptr"):
        if value.device.type != "cpu":
            value = value.cpu()
        value = value.detach()
        dtype = str(value.dtype).removeprefix("torch.")
        return value.data_ptr(), dtype, tuple(value.shape), None if value.is_contiguous() else tuple(value.stride()), value
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        value = numpy.from_dlpack(value)
    value = numpy.asarray(value)
    strides = None
    if not value.flags.c_contiguous:
        if value.itemsize and all(step % value.itemsize == 0 for step in value.strides):
            strides = tuple(step // value.itemsize for step in value.strides)
        else:
            value = numpy.ascontiguousarray(value)
    return value.ctypes.data, value.dtype.name, value.shape, strides, value


class _Tensors:
    """The C structs of named tensors, made again only if a type or a shape changes."""

    def __init__(self):
        self._known, self._array = None, None

    def of(self, named):
        known, addresses, keep = [], [], []
        for name, value in named:
            address, dtype, shape, strides, owner = _address(value)
            known.append((name, dtype, shape, strides))
            addresses.append(address)
            keep.append(owner)
        if known != self._known:
            self._array = (native.Tensor * len(known))()
            for tensor, (name, dtype, shape, strides) in zip(self._array, known):
                if dtype not in native.DTYPES:
                    raise native.UsageError(f"'{name}': its dtype {dtype} is none that a plan can read; convert it")
                tensor.size, tensor.name, tensor.dtype, tensor.rank = ctypes.sizeof(native.Tensor), name.encode(), native.DTYPES[dtype], len(shape)
                tensor.dims = (ctypes.c_int64 * len(shape))(*shape)
                tensor.strides = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
            self._known = known
        for tensor, address in zip(self._array, addresses):
            tensor.data = address
        self.keep = keep
        return self._array


def _array(info, address):
    """A copy of a result's array. bfloat16, which numpy lacks, becomes float32."""
    name, shape = native.NAMES[info.dtype], tuple(info.dims[:info.rank])
    raw = ctypes.string_at(address, info.bytes)
    if name == "bfloat16":
        return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(shape)
    return numpy.frombuffer(raw, name).reshape(shape).copy()


class EarlyStopping:
    """A callback of fit: ends the run after `patience` evaluations without a better `metric`.

    mode: "min" or "max"; default: "max" for accuracies, else "min". min_change: what counts as better.
    """

    def __init__(self, metric="eval_loss", patience=3, mode=None, min_change=0.0):
        self.metric, self.patience, self.min_change = metric, patience, min_change
        self.mode = mode or ("max" if "accuracy" in metric or "auc" in metric or "f1" in metric else "min")
        self.best, self.waited = None, 0

    def __call__(self, event):
        if event.kind != "evaluation":
            return None
        if self.metric not in event.metrics:
            raise native.UsageError(f"EarlyStopping: the evaluation has no '{self.metric}'; it has {', '.join(event.metrics)}")
        value = event.metrics[self.metric]
        better = self.best is None or (value < self.best - self.min_change if self.mode == "min" else value > self.best + self.min_change)
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        return "stop" if self.waited >= self.patience else None


class Trainer:
    """The state of a model in training, on one device, with all memory of the plan.

    plan: a Plan, or what Plan() takes. target, device ("cpu", "cuda", "null"): of several; None: the best that runs here. threads: 0:
    as many as the process may use. memory_budget: bytes; 0: the plan's. settings: {"optimizer.lr": 3e-4}, keys that need no
    compilation. seed: of random numbers. schedule_steps: length of the learning rate's schedule, if the recipe has none.

    Several trainers may work in several threads, each in one at a time; `stop` may be called from any. Raises OverBudget, Error.
    """

    def __init__(self, plan, *, target=None, device=None, threads=0, memory_budget=0, settings=None, seed=None, schedule_steps=0):
        self.plan = plan if isinstance(plan, Plan) else Plan(plan)
        options = native.trainer_defaults()
        options.target = target.encode() if target else None
        options.device = device.encode() if device else None
        options.threads, options.memory_budget, options.schedule_steps = threads, memory_budget, schedule_steps
        if seed is not None:
            options.seed = seed
        words = [f"{key}={value}".encode() for key, value in (settings or {}).items()]
        options.settings, options.setting_count = (ctypes.c_char_p * len(words))(*words), len(words)
        self._handle = ctypes.c_void_p()
        native.trainer_create(self.plan._handle, byref(options), byref(self._handle))
        self._numbers = native.StepNumbers(ctypes.sizeof(native.StepNumbers))
        self._given = {}
        self._inputs = [value.name for value in self.plan.inputs()]
        self._rate = None

    @classmethod
    def resume(cls, run, **options):
        """A trainer with the plan and the state of a run: "RUN", "RUN@STEP", "RUN@best"."""
        trainer = cls(Plan(os.path.join(os.fspath(run).split("@")[0], "plan.tplan")), **options)
        trainer.load(run)
        return trainer

    def __del__(self):
        if getattr(self, "_handle", None):
            native.trainer_free(self._handle)
            self._handle = None

    def _tensors(self, use, inputs, arguments, named):
        if len(arguments) > len(inputs):
            raise native.UsageError(f"{len(arguments)} tensors for {len(inputs)} inputs: {', '.join(inputs)}")
        pairs = list(zip(inputs, arguments)) + list(named.items())
        return self._given.setdefault(use, _Tensors()).of(pairs), len(pairs)

    def step(self, *tensors, lr=None, **named):
        """One update from tensors (numpy arrays, torch tensors on the CPU, anything with __dlpack__), in the order of the plan's inputs
        or by name, with `rows` samples or fewer. lr: the learning rate from this update on. Returns a Step.

        Raises UsageError for tensors that do not fit, NonFinite.
        """
        if lr is not None and lr != self._rate:
            native.trainer_set_rate(self._handle, lr)
            self._rate = lr
        array, count = self._tensors("step", self._inputs, tensors, named)
        native.check(native.trainer_step(self._handle, array, count, byref(self._numbers)))
        return _step(self._numbers)

    @property
    def rows(self):
        """Samples of an update."""
        return native.trainer_rows(self._handle)

    @property
    def steps(self):
        """Updates done."""
        return native.trainer_steps(self._handle)

    def set(self, key, value):
        """Changes a setting that needs no compilation, from the next update on: set("optimizer.weight_decay", 0.1)."""
        native.trainer_set(self._handle, f"{key}={value}".encode())

    def next_epoch(self):
        """Begins the next epoch, for a schedule that counts epochs: an own loop knows where one ends."""
        native.trainer_next_epoch(self._handle)

    def evaluate(self, *tensors, averages=False, **named):
        """Loss and metrics over any number of rows, in inference mode: {"eval_loss": …}. averages: of the averaged weights."""
        array, count = self._tensors("evaluate", [value.name for value in self.plan.inputs("evaluate")], tensors, named)
        results = ctypes.c_void_p()
        native.trainer_evaluate(self._handle, array, count, averages, byref(results))
        return self._take(results, arrays=False)

    def predict(self, *tensors, **named):
        """The graph's outputs for any number of rows, in inference mode: {name: numpy array}."""
        return self._run("predict", tensors, named)

    def gradients(self, *tensors, **named):
        """Loss and gradients of one batch: {name: numpy array}. The plan needs the entry "gradients"."""
        return self._run("gradients", tensors, named)

    def _run(self, entry, tensors, named):
        array, count = self._tensors(entry, [value.name for value in self.plan.inputs(entry)], tensors, named)
        results = ctypes.c_void_p()
        native.trainer_run(self._handle, entry.encode(), array, count, byref(results))
        return self._take(results, arrays=True)

    @staticmethod
    def _take(results, arrays):
        try:
            found, info = {}, native.Info(ctypes.sizeof(native.Info))
            for index in range(native.results_count(results)):
                name = native.results_name(results, index).decode()
                if arrays:
                    native.results_info(results, index, byref(info))
                    found[name] = _array(info, native.results_data(results, index))
                else:
                    found[name] = native.results_number(results, index)
            return found
        finally:
            native.results_free(results)

    def _variables(self, roles):
        return [value for value in self.plan.variables if value.role in roles]

    def read(self, name):
        """A variable's value as a numpy array: a parameter, a buffer, or state of the optimizer."""
        value = next((one for one in self.plan.variables if one.name == name), None)
        if value is None:
            raise native.UsageError(f"the plan has no variable '{name}'")
        memory = ctypes.create_string_buffer(max(value.nbytes, 1))
        native.trainer_read(self._handle, name.encode(), memory, value.nbytes)
        info = native.Info(ctypes.sizeof(native.Info), None, 0, native.DTYPES[value.dtype], len(value.shape),
                           (ctypes.c_int64 * len(value.shape))(*value.shape), -1, value.nbytes)
        return _array(info, memory)

    def write(self, name, array):
        """Sets a variable, of the plan's dtype and shape."""
        value = next((one for one in self.plan.variables if one.name == name), None)
        if value is None:
            raise native.UsageError(f"the plan has no variable '{name}'")
        _, dtype, shape, strides, owner = _address(array)
        if dtype != value.dtype or tuple(shape) != value.shape:
            raise native.UsageError(f"'{name}' is {value.dtype}{list(value.shape)}, the array {dtype}{list(shape)}")
        if strides is not None:
            owner = owner.contiguous() if hasattr(owner, "data_ptr") else numpy.ascontiguousarray(owner)
        native.trainer_write(self._handle, name.encode(), _address(owner)[0], value.nbytes)

    def get_parameters(self):
        """Copies of the trained parameters: {name: numpy array}."""
        return {value.name: self.read(value.name) for value in self._variables(("parameter",))}

    def set_parameters(self, arrays):
        """Sets parameters by name. Raises UsageError, before anything is set, for a name that is none."""
        known = {value.name for value in self._variables(("parameter",))}
        for name in arrays:
            if name not in known:
                raise native.UsageError(f"the plan has no parameter '{name}'")
        for name, array in arrays.items():
            self.write(name, array)

    def state_dict(self):
        """{name: numpy array} of parameters and buffers, by the names of the graph."""
        return {value.name: self.read(value.name) for value in self._variables(("parameter", "buffer"))}

    def load_into(self, module):
        """Copies parameters and buffers into a torch module, by name and shape. Raises UsageError for a name that it lacks."""
        import torch
        state = module.state_dict()
        with torch.no_grad():
            for name, array in self.state_dict().items():
                if name not in state:
                    raise native.UsageError(f"the module has no '{name}'")
                state[name].copy_(torch.from_numpy(array))

    def save(self, run):
        """Writes the state as a checkpoint of the run folder `run`, which trun resumes, evaluates and exports."""
        native.trainer_save(self._handle, os.fsencode(run))

    def load(self, run):
        """Takes the state of "RUN", "RUN@STEP" or "RUN@best"."""
        native.trainer_load(self._handle, os.fsencode(run))

    def export(self, path):
        """Writes the model with the trained values: .onnx or .safetensors."""
        native.trainer_export(self._handle, os.fsencode(path))

    def stop(self):
        """Ends a fit after its update, from any thread or signal handler."""
        native.trainer_stop(self._handle)

    def fit(self, data, eval=None, *, epochs=None, steps=None, out=None, resume=None, eval_every=0, checkpoint_every=None,
            shuffle=True, callbacks=()):
        """Trains over a data set, as trun does, from this state.

        data, eval: a path of any kind that trun reads, or {input: array}, samples first. epochs, steps: passes or updates from here;
        neither: one epoch. out: a run folder to make; None: no files. resume: a run to go on with. eval_every: updates between
        evaluations; 0: at the end. callbacks: functions of an Event; one that returns "stop" ends the run.

        A KeyboardInterrupt ends the run after its update, with everything kept, and is raised again. Returns {metric: value} of the
        last evaluation, or {}.
        """
        options = native.fit_defaults()
        keep, metrics, problems = [], {}, []
        for name, value in (("data", data), ("eval_data", eval)):
            if value is None:
                continue
            if isinstance(value, dict):
                tensors = _Tensors()
                pairs = [(key, numpy.ascontiguousarray(one) if isinstance(one, numpy.ndarray) else one) for key, one in value.items()]
                array = tensors.of(pairs)
                keep.append((tensors, array))
                rows, count = ("rows", "row_count") if name == "data" else ("eval_rows", "eval_row_count")
                setattr(options, rows, array)
                setattr(options, count, len(pairs))
            else:
                setattr(options, name, os.fsencode(value))
        for name, value in (("epochs", epochs), ("steps", steps), ("checkpoint_every", checkpoint_every)):
            if value is not None:
                setattr(options, name, value)
        options.eval_every, options.shuffle = eval_every, shuffle
        options.out = os.fsencode(out) if out is not None else None
        options.resume = os.fsencode(resume) if resume is not None else None

        def hear(_, pointer):
            try:
                raw = pointer.contents
                update = _step(raw.update.contents) if raw.update else None
                found = self._numbers_of(raw.results) if raw.results else {}
                metrics.update(found)
                event = Event(_KINDS[raw.kind], raw.step, raw.total, raw.text.decode(errors="replace"), update, found)
                for callback in callbacks:
                    if callback(event) == "stop":
                        self.stop()
            except BaseException as problem:  # raised again when the run has ended, with everything kept
                problems.append(problem)
                self.stop()

        options.on_event = native.OnEvent(hear)
        native.trainer_fit(self._handle, byref(options))
        if problems:
            raise problems[0]
        return metrics

    @staticmethod
    def _numbers_of(results):
        return {native.results_name(results, index).decode(): native.results_number(results, index)
                for index in range(native.results_count(results))}

    def __repr__(self):
        return f"<tcc.Trainer of {self.plan.model}, {self.steps} updates>"
