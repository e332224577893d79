"""Plans: made of a model by the tcc program, or opened."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from ctypes import byref
from pathlib import Path
from typing import Any, NamedTuple

from . import _drawing, _library as native
from ._checks import integer, mapping, path
from ._module import Module
from ._programs import program

MOST_THREADS = 4096
_ENTRIES = ("train", "evaluate", "predict", "gradients")


class Value(NamedTuple):
    """What a plan says of an input, an output or a variable."""

    name: str
    role: str  # "input", "output", "parameter", "buffer" (frozen, running statistics) or "state" (the optimizer's)
    dtype: str  # a name of numpy's, "float32"
    shape: tuple[int, ...]
    sample_axis: int | None
    nbytes: int


class CompileError(native.Error):
    """tcc refuses the model or the recipe. The message is tcc's, which names the place."""


def _value(info: native.Info) -> Value:
    return Value(
        info.name.decode(),
        native.ROLES[info.role],
        native.NAMES[info.dtype],
        tuple(info.dims[: info.rank]),
        None if info.sample_axis < 0 else info.sample_axis,
        info.bytes,
    )


class Plan:
    """A training plan.

    Plan(path) opens a file that tcc wrote, Plan(bytes) a plan in memory. A plan holds machine code: open only plans
    that you trust. Raises Error if it is damaged or from another version.
    """

    def __init__(self, source: Any):
        self._handle = ctypes.c_void_p()
        self._folder: Folder | None = None
        self._path: str | None = None
        self.module: Module | None = None
        if isinstance(source, (str, os.PathLike)):
            self._path = os.path.abspath(source)
            native.plan_open(os.fsencode(source), byref(self._handle))
            return
        try:
            held = bytes(memoryview(source))
        except TypeError:
            raise native.UsageError(
                f"plan: {type(source).__name__} is neither a Plan, nor the path or the bytes of one"
            ) from None
        native.plan_open_memory(held, len(held), None, byref(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            native.plan_close(self._handle)
            self._handle = ctypes.c_void_p()

    @property
    def model(self) -> str:
        """The file name of the model that it was compiled from."""
        return native.text(native.plan_model(self._handle))

    @property
    def target(self) -> str:
        """The target that a Trainer takes by default, "cpu:v4"; "" if none of the plan's runs here."""
        return native.text(native.plan_target(self._handle))

    @property
    def entries(self) -> list[str]:
        """Names of the programs in the plan: "step", "evaluate", "predict", …"""
        names, index = [], 0
        while (name := native.plan_entry(self._handle, index)) is not None:
            names.append(name.decode())
            index += 1
        return names

    @property
    def has_shapes(self) -> bool:
        """Whether the plan trains in several shapes: each batch of a loader is then an update of its own."""
        return any(name.endswith("@1") for name in self.entries if not name.startswith(("evaluate", "predict")))

    def values(self, entry: str) -> list[Value]:
        """Inputs and outputs of an entry, as a list of Value."""
        if entry not in self.entries:
            raise native.UsageError(
                f"the plan has no entry '{entry}'; it has {', '.join(self.entries)}"
                + (f"; compile with entries=('train', '{entry}')" if entry in _ENTRIES else "")
            )
        found, info = [], native.Info(ctypes.sizeof(native.Info))
        for index in range(native.plan_values(self._handle, entry.encode())):
            native.plan_value(self._handle, entry.encode(), index, byref(info))
            found.append(_value(info))
        return found

    def inputs(self, entry: str = "step") -> list[Value]:
        """Inputs of an entry; of those that train, if it is "step" and the plan accumulates or has phases."""
        if entry == "step" and entry not in self.entries:
            training = [one for one in self.entries if one.startswith(("step.", "accumulate_first"))]
            found = {value.name: value for one in training for value in self.values(one) if value.role == "input"}
            if found:
                return list(found.values())
        return [value for value in self.values(entry) if value.role == "input"]

    @property
    def variables(self) -> list[Value]:
        """Parameters, buffers and the optimizer's state, as a list of Value."""
        info, found = native.Info(ctypes.sizeof(native.Info)), []
        for index in range(native.plan_variables(self._handle)):
            native.plan_variable(self._handle, index, byref(info))
            found.append(_value(info))
        return found

    def memory(self, threads: int = 0) -> tuple[int, int]:
        """(resident, transient): the bytes that a Trainer with so many threads allocates; 0: as many as may be used."""
        memory = native.Memory(ctypes.sizeof(native.Memory))
        native.plan_memory(self._handle, integer("threads", threads, 0, MOST_THREADS), byref(memory))
        return memory.resident, memory.transient

    @property
    def peak_bytes(self) -> int:
        """Bytes of state and of the values of a step together, with as many threads as this process may use."""
        return sum(self.memory())

    def report(self) -> dict[str, Any]:
        """What `tcc report --json` says of it: memory over time, kernels, parameters. Raises Error without the tcc
        program, or for a plan that was opened from bytes.
        """
        if self._path is None:
            raise native.UsageError("report: this plan is in memory; tcc reads files: open it by its path")
        done = subprocess.run([_program(), "report", self._path, "--json"], capture_output=True, text=True)
        if done.returncode:
            raise native.Error(done.stderr.strip().removeprefix("error: "))
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows: the numbers, and the memory of a step over its instructions if tcc can be run."""
        resident, transient = self.memory()
        rows = [
            ("model", self.model),
            ("target", self.target or "none that runs here"),
            ("entries", ", ".join(self.entries)),
            ("inputs", ", ".join(f"{one.name} {one.dtype}{list(one.shape)}" for one in self.inputs())),
            ("memory", f"{_drawing.size(resident)} of state and {_drawing.size(transient)} of values"),
        ]
        try:
            memory = self.report()["memory"]
        except native.Error:
            return _drawing.table(rows)
        return _drawing.table(rows) + _memory(memory, resident)

    def __repr__(self) -> str:
        return f"<tcc.Plan of {self.model}, {self.target or 'no target that runs here'}, {self.peak_bytes:,} bytes>"


def _memory(memory: Mapping[str, Any], resident: int) -> str:
    """A drawing of the bytes that are live during each instruction of the program with the largest peak."""
    timeline = memory["timeline"]
    peak = max(timeline, key=lambda one: one["live_bytes"])
    live = [(one["step"], one["live_bytes"]) for one in timeline]
    axes = _drawing.Axes((0, len(live)), (0, peak["live_bytes"]), _drawing.unit_of(peak["live_bytes"]))
    state, values = _drawing.COLOURS[1], _drawing.COLOURS[0]
    axes.area(live, resident, values, "values of a step")
    axes.area([(0, resident), (len(live) - 1, resident)], 0, state, "parameters and the optimizer's state")
    where = f"instruction {peak['step']}" + (f", node {peak['node']}" if peak["node"] else "")
    entries = [
        (f"values of {memory['program']}, at most {_drawing.size(peak['live_bytes'])} with the state: {where}", values)
    ]
    entries.append((f"state {_drawing.size(resident)}", state))
    return f"<div>{_drawing.legend(entries)}<br>{axes.svg('memory over time', 'instruction')}</div>"


def _program() -> str:
    place = os.environ.get("TCC_PROGRAM") or program("tcc")
    if place and os.access(place, os.X_OK):
        return place
    raise native.Error(
        "the compiler, tcc, is not found; install tcc-train-compiler, put tcc on the PATH, or set TCC_PROGRAM to its path"
    )


def toml(key: str, value: Any) -> str:
    """A key's value in TOML, whose strings, numbers and arrays are JSON's. Raises UsageError for what it cannot say."""
    if hasattr(value, "tolist"):  # of NumPy or torch
        value = value.tolist()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(inner)} = {toml(key, one)}" for inner, one in value.items()) + " }"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(toml(key, one) for one in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # nan, inf
    if isinstance(value, (bool, int, float, str)):
        return json.dumps(value)
    raise native.UsageError(
        f"{key}: {type(value).__name__} is no value of a recipe; give a number, a text, True, False, or a list or dict "
        "of these"
    )


def exact(name: str) -> str:
    """A glob that matches this name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


class Folder:
    """Where a plan and the files that it reads are: the caller's folder, or a temporary one that lives as long as this
    object.
    """

    def __init__(self, output: Any = None, model: str = "model"):
        """output: where the caller wants the plan; in a folder it is called as the model is."""
        if output is None:
            self.path = Path(tempfile.mkdtemp(prefix="tcc-"))
            weakref.finalize(self, shutil.rmtree, self.path, True)
            self.plan = self.path / "model.tplan"
        else:
            self.plan = Path(os.fsdecode(path("output", output)))
            if self.plan.is_dir():
                self.plan /= f"{model}.tplan"
            self.path = self.plan.parent


# What tcc says of its options, in the words of compile's arguments.
_WORDS = (
    (r"^--set: ", "recipe: "),
    (r"^node (.+?): :\d+:\d+: ", r"\1: recipe: "),  # a key that was given as one of a dict has no file
    (r"; see tcc --help", ""),
    (r"\(--shape, --dim, or --fit batch\)", '(batch=, or fit="batch")'),
    (r"--entry without step", 'entries without "train"'),
    (r"--entry\b", "entries"),
    (r"--fit batch\b", 'fit="batch"'),
    (r"--shape\b", "batch="),
    (r"--(batch|fit|host-memory|memory-budget|precision|target|threads)\b", lambda found: found[1].replace("-", "_")),
)


def _in_python(text: str) -> str:
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


# Linux limits one argument of a program to 128 KiB.
_LONG = 100_000


def run(
    model: Any, recipe: Any, folder: Folder, options: dict[str, Any], keys: Mapping[str, Any] | None = None
) -> Plan:
    """Runs the tcc program on an ONNX file. recipe: a path, or keys. keys: further ones, which win. Returns a Plan."""
    options, keys = dict(options), dict(keys or {})
    words = [
        _program(),
        os.fspath(model),
        "-o",
        str(folder.plan),
        "--entry",
        ",".join([entries] if isinstance(entries := options.pop("entries"), str) else entries),
        "--quiet",
    ]
    target = options.pop("target", None)
    if recipe is not None and not isinstance(recipe, Mapping):
        words += ["--recipe", os.fspath(recipe)]
    else:
        keys = {**(recipe or {}), **keys}
    lines = [f"{key}={toml(key, value)}" for key, value in keys.items()]
    if isinstance(recipe, Mapping) and sum(map(len, lines)) >= _LONG:
        written = folder.path / "recipe.toml"
        written.write_text("\n".join(lines) + "\n")
        words += ["--recipe", str(written)]
    else:
        words += [word for line in lines for word in ("--set", line)]
    for name in [target] if isinstance(target, str) else target or []:
        words += ["--target", name]
    for option, value in options.items():
        if value is not None:
            words += [f"--{option.replace('_', '-')}", str(value)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        text = done.stderr.strip().removeprefix("error: ") or f"tcc ended with status {done.returncode}"
        raise (native.OverBudget if done.returncode == 3 else CompileError)(_in_python(text))
    plan = Plan(folder.plan)
    plan._folder = folder
    return plan


def compile(
    model: Any,
    example: Any = None,
    *,
    recipe: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    schedule_per: str = "step",
    labels: Any = None,
    adapter: dict[str, Any] | None = None,
    phases: list[Phase] | None = None,
    outputs: list[str] | None = None,
    prove: bool = True,
    output: Any = None,
    entries: tuple[str, ...] = ("train", "evaluate", "predict"),
    target: str | list[str] | None = None,
    memory_budget: str | int | None = None,
    host_memory: str | int | None = None,
    precision: str | None = None,
    batch: int | list[int] | None = None,
    lengths: list[int] | None = None,
    fit: str | None = None,
    threads: int | None = None,
) -> Plan:
    """Compiles a model to a Plan, by the tcc program.

    model: path of an .onnx file, or a torch module. The second argument is the recipe of a file, and for a module an
    example batch.

    For both: recipe: path of a recipe in TOML, or a dict of its keys ({"optimizer.lr": 3e-4, "loss.kind":
    "cross_entropy"}). output: where the plan is kept; None: a temporary file. entries: "train", "evaluate", "predict",
    "gradients". target: "cpu:v3", "cuda:sm_90" or a list; None: this machine. memory_budget: "2GiB", "80%" or bytes.
    host_memory: "64GiB" or bytes, the most that a card's plan keeps on the host within its budget; None: no limit.
    threads: the most that a Trainer may have, for which a budget must do; None: as many as this machine has.
    precision: "bf16" or "f16". batch: samples of a batch. fit="batch": the largest batch within the memory budget. With
    either a module is exported for any number of samples, which its forward must allow.
    lengths: of a module: the lengths of samples, [64, 128, 512], for which the plan has shapes; a step takes batches of
    any length up to the last, and pads them to the next shape. The length is the second axis of the example's tensors
    that are as long as the first of them; `batch` may be a list with the samples of each.
    outputs: names of the model's outputs that each step also returns, ["logits"]; of a module ["output"], or its keys.

    For a module, which is exported in the mode (train or eval) that its parts are in, with the weights that it has:
    example: a batch as the loop's loader gives it, (x, target) or a dict; its tensors' shapes are those of the plan.
    loss: a module or a function of (what the module returns, target); None: the module returns the loss, alone, first,
    or as `.loss`. labels: the key or the place of the target; default: the last of a tuple, a dict's "labels", "label",
    "targets", "target" or "y". optimizer: a torch.optim.Optimizer that has made no update; parameters that it has not
    are frozen. scheduler: one of torch.optim.lr_scheduler, schedule_per: "step" or "epoch", when a loop would step it.
    adapter: the recipe's keys, {"targets": ["q_proj"], "rank": 8}. phases: a list of tcc.Phase. prove: compare loss and
    gradients of the example with autograd's first.

    Raises CompileError with tcc's message, or for a module that is not exported as it computes; OverBudget if nothing
    fits.
    """
    options = {
        "entries": entries,
        "target": target,
        "memory_budget": memory_budget,
        "host_memory": host_memory,
        "precision": precision,
        "batch": batch,
        "fit": fit,
        "threads": threads,
    }
    if lengths is not None:
        lengths = list(lengths)
        for one in lengths:
            integer("lengths", one, 2, 2**31 - 1)
        if not lengths:
            raise native.UsageError("lengths: the list is empty")
        if isinstance(batch, (list, tuple)) and len(batch) != len(lengths):
            raise native.UsageError(f"batch: {len(batch)} numbers for {len(lengths)} lengths")
    for size in batch if isinstance(batch, (list, tuple)) and lengths else [batch]:
        if size is not None:
            integer("batch", size, 1, 2**31 - 1)
    if adapter is not None:
        mapping("adapter", adapter, "{'targets': ['q_proj'], 'rank': 8}")
    for phase in phases or []:
        if not isinstance(phase, Phase):
            raise native.UsageError(f"phases: {type(phase).__name__} is no tcc.Phase; give a list of tcc.Phase(…)")
    extra = {f"adapter.{key}": value for key, value in (adapter or {}).items()}
    if outputs:
        extra["train.outputs"] = list(outputs)
    if not isinstance(model, (str, bytes, os.PathLike)):
        if not hasattr(model, "named_parameters"):
            raise CompileError(f"model: {type(model).__name__} is neither the path of an .onnx file nor a torch module")
        from ._torch.export import compile_module

        return compile_module(
            model,
            example,
            loss=loss,
            optimizer=optimizer,
            scheduler=scheduler,
            schedule_per=schedule_per,
            labels=labels,
            recipe=_keys(recipe) | extra,
            phases=phases or [],
            prove=prove,
            output=output,
            options=options | {"lengths": lengths},
        )
    if lengths is not None:
        raise CompileError(
            "lengths: those of an .onnx file are dimensions of the recipe: recipe={'model.dims': {'batch': 8, 'seq': "
            "[64, 128]}}"
        )
    for name, value in (("loss", loss), ("optimizer", optimizer), ("scheduler", scheduler), ("labels", labels)):
        if value is not None:
            raise CompileError(f"{name}: that of an .onnx file is given in the recipe: recipe={{'{name}.…': …}}")
    if example is not None and recipe is not None:
        raise native.UsageError("recipe: it is given twice, as the second argument and by name; give one")
    recipe = example if recipe is None else recipe
    if not isinstance(recipe, (str, os.PathLike, Mapping, type(None))):
        raise native.UsageError(f"recipe: {type(recipe).__name__} is neither a path nor a dict of keys")
    if phases:
        extra["phase"] = [phase.table() for phase in phases]
    return run(model, recipe, Folder(output, Path(os.fsdecode(model)).stem), options, extra)


class Phase:
    """One of alternating optimizers over one model, as of a GAN.

    name: in the names of losses and states. loss: a scalar that the module returns under this name, or a dict of the
    recipe's loss keys. parameters: globs of the parameters that it updates. optimizer: a torch optimizer of one group,
    or a dict of the recipe's keys; None: the optimizer of compile. every: it runs at every so many steps. others:
    further keys of the recipe's [[phase]], clip_norm=1.0.
    """

    def __init__(
        self, name: str, *, loss: Any, parameters: list[str], optimizer: Any = None, every: int = 1, **others: Any
    ):
        if isinstance(parameters, str):
            parameters = [parameters]
        self.name, self.optimizer = name, optimizer
        self._table = {"name": name, "loss": loss, "parameters": list(parameters), "every": every} | others

    def table(self, optimizer: dict[str, Any] | None = None) -> dict[str, Any]:
        """The recipe's [[phase]]. optimizer: keys read from a torch optimizer; None: those given to Phase."""
        keys = optimizer if optimizer is not None else self.optimizer
        return self._table | ({"optimizer": keys} if keys is not None else {})


def _keys(recipe: Any) -> dict[str, Any]:
    """The keys of a recipe, which may be a path."""
    if recipe is None or isinstance(recipe, Mapping):
        return dict(recipe or {})
    try:
        import tomllib
    except ImportError:
        raise CompileError(
            f"{os.fspath(recipe)}: reading a recipe beside a module needs Python 3.11; give its keys as a dict"
        ) from None
    try:
        tables = tomllib.loads(Path(recipe).read_text())
    except OSError as problem:
        raise CompileError(f"{os.fspath(recipe)}: cannot open: {problem.strerror}") from None
    except ValueError as problem:
        raise CompileError(f"{os.fspath(recipe)}: it is no TOML: {problem}") from None
    return {
        key if not isinstance(value, dict) else f"{key}.{inner}": one
        for key, value in tables.items()
        for inner, one in (value.items() if isinstance(value, dict) else [("", value)])
    }
