"""libtrun by ctypes: the functions of include/trun/trun.h, and errors as exceptions."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any


class Error(Exception):
    """What tcc or libtrun refuses: one line that says what is wrong, where, and what to do."""


class UsageError(Error):
    """A call is wrong: an unknown name, a tensor of another shape."""


class DataError(UsageError):
    """A tensor, a batch or a data set does not fit the plan: its shape, its dtype, a class or an index out of range."""


class OverBudget(Error):
    """No variant of the plan fits the memory budget. `smallest`: the least bytes that would do, or None."""

    # The figure in bytes is a part of each such message of tcc and libtrun.
    _SMALLEST = re.compile(
        r"(?:smallest budget that does is|it needs|takes(?: at least)?) (?:[\d.]+ \w+ \()?(\d+) bytes"
    )

    def __init__(self, message: str):
        super().__init__(message)
        found = self._SMALLEST.search(message)
        self.smallest: int | None = int(found[1]) if found else None


class NonFinite(Error):
    """The loss or a gradient is not finite. `node`: the ONNX node that first computed such a value, or ""."""

    node: str = ""


_KINDS = {1: Error, 2: UsageError, 3: OverBudget, 4: NonFinite}

# numpy's and torch's names of trun_dtype.
DTYPES = {
    "float64": 1,
    "float32": 2,
    "bfloat16": 3,
    "float16": 4,
    "int64": 5,
    "int32": 6,
    "int16": 7,
    "int8": 8,
    "uint64": 9,
    "uint32": 10,
    "uint16": 11,
    "uint8": 12,
    "bool": 13,
}
NAMES = {number: name for name, number in DTYPES.items()}
ROLES = ("input", "output", "parameter", "buffer", "state")


class Tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("data", c_void_p),
        ("dtype", c_int),
        ("rank", c_int),
        ("dims", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


class Info(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("role", c_int),
        ("dtype", c_int),
        ("rank", c_int),
        ("dims", POINTER(c_int64)),
        ("sample_axis", c_int),
        ("bytes", c_uint64),
    ]


class Memory(Structure):
    _fields_ = [("size", c_size_t), ("resident", c_uint64), ("transient", c_uint64)]


class TrainerOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("target", c_char_p),
        ("device", c_char_p),
        ("threads", c_uint),
        ("memory_budget", c_uint64),
        ("settings", POINTER(c_char_p)),
        ("setting_count", c_size_t),
        ("seed", c_int64),
        ("schedule_steps", c_double),
    ]


class StepNumbers(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_uint64),
        ("loss", c_double),
        ("learning_rate", c_double),
        ("gradient_norm", c_double),
        ("samples", c_uint64),
        ("tokens", c_uint64),
        ("loss_scale", c_double),
        ("skipped", c_int),
    ]


class EventNumbers(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("step", c_uint64),
        ("total", c_uint64),
        ("text", c_char_p),
        ("update", POINTER(StepNumbers)),
        ("results", c_void_p),
    ]


OnEvent = CFUNCTYPE(None, c_void_p, POINTER(EventNumbers))


class FitOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("data", c_char_p),
        ("eval_data", c_char_p),
        ("rows", POINTER(Tensor)),
        ("eval_rows", POINTER(Tensor)),
        ("row_count", c_size_t),
        ("eval_row_count", c_size_t),
        ("steps", c_int64),
        ("epochs", c_int64),
        ("eval_every", c_int64),
        ("checkpoint_every", c_int64),
        ("out", c_char_p),
        ("resume", c_char_p),
        ("shuffle", c_int),
        ("on_event", OnEvent),
        ("user", c_void_p),
    ]


def _open() -> ctypes.CDLL:
    here = Path(__file__).resolve().parent
    given = os.environ.get("TCC_LIBRARY")
    # In a wheel, in the source tree, and where the loader looks.
    places = (
        [given]
        if given
        else [
            *map(str, here.glob("lib*/libtrun.so.0")),
            str(here.parents[1] / "build" / "lib" / "libtrun.so"),
            "libtrun.so.0",
        ]
    )
    problems = []
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError as problem:
            problems.append(str(problem))
    raise ImportError(
        "libtrun.so cannot be opened; install tcc-train, build it (cmake --build build --target libtrun), or set "
        "TCC_LIBRARY to its path: " + "; ".join(problems)
    )


library = _open()


def _declare(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    declared: Any = getattr(library, name)
    declared.restype = result
    declared.argtypes = arguments
    function: Callable[..., Any] = declared
    return function


_code = _declare("trun_error_code", c_int, c_void_p)
_message = _declare("trun_error_message", c_char_p, c_void_p)
_node = _declare("trun_error_node", c_char_p, c_void_p)
_free = _declare("trun_error_free", None, c_void_p)


def check(error: Any) -> None:
    """Raises the error that a function returned, if it did."""
    if not error:
        return
    problem = _KINDS[_code(error)](_message(error).decode(errors="replace"))
    if isinstance(problem, NonFinite):
        problem.node = _node(error).decode(errors="replace")
    _free(error)
    try:
        raise problem
    finally:
        del problem  # else it and this frame keep each other, and what the callers hold


def _fallible(name: str, *arguments: Any) -> Callable[..., None]:
    """A function that returns an error, or null."""
    function = _declare(name, c_void_p, *arguments)

    def call(*values: Any) -> None:
        check(function(*values))

    return call


def text(value: bytes) -> str:
    """A string of libtrun's, which is UTF-8."""
    return value.decode(errors="replace")


version = _declare("trun_version", c_char_p)
plan_open = _fallible("trun_plan_open", c_char_p, POINTER(c_void_p))
plan_open_memory = _fallible("trun_plan_open_memory", c_char_p, c_size_t, c_char_p, POINTER(c_void_p))
plan_close = _declare("trun_plan_close", None, c_void_p)
plan_model = _declare("trun_plan_model", c_char_p, c_void_p)
plan_target = _declare("trun_plan_target", c_char_p, c_void_p)
plan_entry = _declare("trun_plan_entry", c_char_p, c_void_p, c_size_t)
plan_values = _declare("trun_plan_values", c_size_t, c_void_p, c_char_p)
plan_value = _fallible("trun_plan_value", c_void_p, c_char_p, c_size_t, POINTER(Info))
plan_variables = _declare("trun_plan_variables", c_size_t, c_void_p)
plan_variable = _fallible("trun_plan_variable", c_void_p, c_size_t, POINTER(Info))
plan_memory = _fallible("trun_plan_memory", c_void_p, c_uint, POINTER(Memory))
trainer_defaults = _declare("trun_trainer_defaults", TrainerOptions)
trainer_create = _fallible("trun_trainer_create", c_void_p, POINTER(TrainerOptions), POINTER(c_void_p))
trainer_free = _declare("trun_trainer_free", None, c_void_p)
trainer_step = _declare("trun_trainer_step", c_void_p, c_void_p, POINTER(Tensor), c_size_t, POINTER(StepNumbers))
trainer_outputs = _fallible("trun_trainer_outputs", c_void_p, POINTER(c_void_p))
trainer_rows = _declare("trun_trainer_rows", c_uint64, c_void_p)
trainer_steps = _declare("trun_trainer_steps", c_uint64, c_void_p)
trainer_set_rate = _fallible("trun_trainer_set_rate", c_void_p, c_double)
trainer_next_epoch = _fallible("trun_trainer_next_epoch", c_void_p)
trainer_set = _fallible("trun_trainer_set", c_void_p, c_char_p)
results_count = _declare("trun_results_count", c_size_t, c_void_p)
results_name = _declare("trun_results_name", c_char_p, c_void_p, c_size_t)
results_number = _declare("trun_results_number", c_double, c_void_p, c_size_t)
results_info = _declare("trun_results_info", None, c_void_p, c_size_t, POINTER(Info))
results_data = _declare("trun_results_data", c_void_p, c_void_p, c_size_t)
results_free = _declare("trun_results_free", None, c_void_p)
trainer_evaluate = _fallible("trun_trainer_evaluate", c_void_p, POINTER(Tensor), c_size_t, c_int, POINTER(c_void_p))
trainer_run = _fallible("trun_trainer_run", c_void_p, c_char_p, POINTER(Tensor), c_size_t, POINTER(c_void_p))
trainer_read = _fallible("trun_trainer_read", c_void_p, c_char_p, c_void_p, c_size_t)
trainer_write = _fallible("trun_trainer_write", c_void_p, c_char_p, c_void_p, c_size_t)
trainer_save = _fallible("trun_trainer_save", c_void_p, c_char_p)
trainer_load = _fallible("trun_trainer_load", c_void_p, c_char_p)
trainer_export = _fallible("trun_trainer_export", c_void_p, c_char_p)
trainer_export_adapter = _fallible("trun_trainer_export_adapter", c_void_p, c_char_p)
fit_defaults = _declare("trun_fit_defaults", FitOptions)
trainer_fit = _fallible("trun_trainer_fit", c_void_p, POINTER(FitOptions))
trainer_stop = _declare("trun_trainer_stop", None, c_void_p)
