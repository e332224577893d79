"""Plans: made of an ONNX model by the tcc program, or opened."""
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections import namedtuple
from ctypes import byref
from pathlib import Path

from . import _library as native

Value = namedtuple("Value", "name role dtype shape sample_axis nbytes")
Value.__doc__ = """What a plan says of an input, an output or a variable.

role: "input", "output", "parameter", "buffer" (frozen weights, running statistics) or "state" (the optimizer's).
dtype: a name of numpy's, "float32". sample_axis: the axis of the samples, or None. nbytes: bytes.
"""


class CompileError(native.Error):
    """tcc refuses the model or the recipe. The message is tcc's, which names the place."""


def _value(info):
    return Value(info.name.decode(), native.ROLES[info.role], native.NAMES[info.dtype], tuple(info.dims[:info.rank]),
                 None if info.sample_axis < 0 else info.sample_axis, info.bytes)


class Plan:
    """A training plan.

    Plan(path) opens a file that tcc wrote, Plan(bytes) a plan in memory. A plan holds machine code: open only plans that you
    trust. Raises Error if it is damaged or from another version.
    """

    def __init__(self, source):
        self._handle = ctypes.c_void_p()
        if isinstance(source, (bytes, bytearray, memoryview)):
            source = bytes(source)
            native.plan_open_memory(source, len(source), None, byref(self._handle))
        else:
            native.plan_open(os.fsencode(source), byref(self._handle))

    def __del__(self):
        if getattr(self, "_handle", None):
            native.plan_close(self._handle)
            self._handle = None

    @property
    def model(self):
        """The file name of the model that it was compiled from."""
        return native.plan_model(self._handle).decode()

    @property
    def target(self):
        """The target that a Trainer takes by default, "cpu:v4"; "" if none of the plan's runs here."""
        return native.plan_target(self._handle).decode()

    @property
    def entries(self):
        """Names of the programs in the plan: "step", "evaluate", "predict", …"""
        names, index = [], 0
        while (name := native.plan_entry(self._handle, index)) is not None:
            names.append(name.decode())
            index += 1
        return names

    def values(self, entry):
        """Inputs and outputs of an entry, as a list of Value."""
        if entry not in self.entries:
            raise native.UsageError(f"the plan has no entry '{entry}'; it has {', '.join(self.entries)}")
        found, info = [], native.Info(ctypes.sizeof(native.Info))
        for index in range(native.plan_values(self._handle, entry.encode())):
            native.plan_value(self._handle, entry.encode(), index, byref(info))
            found.append(_value(info))
        return found

    def inputs(self, entry="step"):
        """Inputs of an entry; of the one that trains, if it is "step" and the plan accumulates."""
        if entry == "step" and entry not in self.entries:
            entry = "accumulate_first"
        return [value for value in self.values(entry) if value.role == "input"]

    @property
    def variables(self):
        """Parameters, buffers and the optimizer's state, as a list of Value."""
        info, found = native.Info(ctypes.sizeof(native.Info)), []
        for index in range(native.plan_variables(self._handle)):
            native.plan_variable(self._handle, index, byref(info))
            found.append(_value(info))
        return found

    def memory(self, threads=0):
        """(resident, transient): the bytes that a Trainer with so many threads allocates; 0: as many as may be used."""
        memory = native.Memory(ctypes.sizeof(native.Memory))
        native.plan_memory(self._handle, threads, byref(memory))
        return memory.resident, memory.transient

    @property
    def peak_bytes(self):
        """Bytes of state and of the values of a step together, with as many threads as this process may use."""
        return sum(self.memory())

    def __repr__(self):
        return f"<tcc.Plan of {self.model}, {self.target or 'no target that runs here'}, {self.peak_bytes:,} bytes>"


def _program():
    given = os.environ.get("TCC_PROGRAM")
    here = Path(__file__).resolve()
    for place in [given] if given else [str(here.parents[2] / "build" / "bin" / "tcc"), shutil.which("tcc")]:
        if place and os.access(place, os.X_OK):
            return place
    raise native.Error("the compiler, tcc, is not found; put it on the PATH, or set TCC_PROGRAM to its path")


def _toml(value):
    """A value in TOML, whose strings, numbers and arrays are JSON's."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value)


def compile(model, recipe=None, *, output=None, entries=("train", "evaluate", "predict"), target=None, memory_budget=None,
            precision=None, batch=None, fit=None):
    """Compiles an ONNX model to a Plan, by the tcc program.

    model: path of the .onnx file. recipe: path of a recipe in TOML, or a dict of its keys ({"optimizer.lr": 3e-4, "loss.kind":
    "cross_entropy"}). output: where the plan is kept; None: in memory alone. entries: "train", "evaluate", "predict", "gradients".
    target: "cpu:v3", "cuda:sm_90" or a list; None: this machine. memory_budget: "2GiB", "80%" or bytes. precision: "bf16" or "f16".
    batch: samples of a batch. fit="batch": the largest batch within the memory budget.

    Raises CompileError with tcc's message, OverBudget if nothing fits.
    """
    with tempfile.TemporaryDirectory(prefix="tcc-") as folder:
        place = Path(output) if output else Path(folder) / "model.tplan"
        words = [_program(), os.fspath(model), "-o", str(place), "--entry", ",".join(entries), "--quiet"]
        if isinstance(recipe, dict):
            for key, value in recipe.items():
                words += ["--set", f"{key}={_toml(value)}"]
        elif recipe is not None:
            words += ["--recipe", os.fspath(recipe)]
        for name in [target] if isinstance(target, str) else target or []:
            words += ["--target", name]
        for option, value in (("--memory-budget", memory_budget), ("--precision", precision), ("--batch", batch), ("--fit", fit)):
            if value is not None:
                words += [option, str(value)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            text = done.stderr.strip().removeprefix("error: ") or f"tcc ended with status {done.returncode}"
            raise (native.OverBudget if done.returncode == 3 else CompileError)(text)
        return Plan(place) if output else Plan(place.read_bytes())
