"""Checks of arguments: a value that a call cannot take is a UsageError that names it, and says what to give."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ._library import UsageError

# Of names in a message.
_MOST = 8


def integer(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """The value as an int. Raises UsageError if it is none, or out of range."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        bounds = f"of at least {least:,}" if most == 2**63 - 1 else f"from {least:,} to {most:,}"
        raise UsageError(f"{name} = {value!r}: it must be an integer {bounds}")
    return found


def number(name: str, value: Any) -> float:
    """The value as a float of at least 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if isinstance(value, str) or not 0 <= found < math.inf:
        raise UsageError(f"{name} = {value!r}: it must be a number of at least 0")
    return found


def path(name: str, value: Any) -> bytes:
    """The value as a path for libtrun."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise UsageError(f"{name}: {type(value).__name__} is no path; give a text or a pathlib.Path")
    return os.fsencode(value)


def mapping(name: str, value: Any, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: {type(value).__name__} is no dict; give {example}")
    return value


def functions(value: Any) -> list[Callable[[Any], Any]]:
    """The callbacks of a call that was given one or several."""
    found = [value] if callable(value) else list(value) if isinstance(value, Iterable) else [value]
    for one in found:
        if not callable(one):
            raise UsageError(f"callbacks: {type(one).__name__} cannot be called; give functions of one Event")
    return found


def nearest(name: Any, known: list[str]) -> str:
    """Words that follow "there is no NAME": the nearest known name, or some of them."""
    close = get_close_matches(str(name), known, 1)
    if close:
        return f"the nearest is '{close[0]}'"
    return f"there is {', '.join(known[:_MOST])}" + (f" and {len(known) - _MOST} more" if len(known) > _MOST else "")
