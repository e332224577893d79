"""The programs that wheels bring: where they are, and the commands that start them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def program(name: str) -> str | None:
    """The path of a program: in a wheel, in the source tree, or on the PATH; None if it is in none of them."""
    here = Path(__file__).resolve().parent
    for place in (here / "bin" / name, here.parents[1] / "build" / "bin" / name):
        if os.access(place, os.X_OK):
            return str(place)
    return shutil.which(name)


def _start(name: str) -> None:
    path = str(Path(__file__).resolve().parent / "bin" / name)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as problem:
        sys.exit(f"{name}: error: {path}: {problem.strerror}; install the package again")


def tcc() -> None:
    _start("tcc")


def tcc_plan() -> None:
    _start("tcc-plan")


def trun() -> None:
    _start("trun")
