"""Weights by a rule that needs only a parameter's name and shape: the same values on any machine, so that they need not be copied there.

A matrix (two axes or more) gets numbers spread evenly around 0 with a standard deviation of 0.02, a vector called "weight" 1 and other
vectors 0, each with noise of 0.0001: no two parameters are equal, which exporters would merge. Python's standard library is enough;
its `random.random` gives the same numbers in every version (documentation of `random`, "Notes on Reproducibility").
"""
import array
import functools
import math
import operator
import random
import zlib

PERIOD = 1_000_003  # prime: rows of a matrix do not line up with it


@functools.lru_cache
def spread(deviation, middle):
    """PERIOD numbers, evenly spread."""
    numbers, half = random.Random(20251), deviation * math.sqrt(3)
    return array.array("f", (middle + half * (2 * numbers.random() - 1) for _ in range(PERIOD)))


@functools.lru_cache
def factors(seed):
    """PERIOD numbers near 1: multiplying by one changes a number by at most one rounding to bf16."""
    numbers = random.Random(seed)
    return array.array("f", (1 + (2 * numbers.random() - 1) * 2**-9 for _ in range(PERIOD)))


def around(name, count, turns):
    """`count` numbers of the cyclic list `turns`, beginning at an index that depends on the name."""
    start = zlib.crc32(name.encode()) % PERIOD
    turns = turns[start:] + turns[:start]
    return turns * (count // PERIOD) + turns[:count % PERIOD]


def perturb(values, name, seed):
    """Values of fill(), each off by at most one rounding to bf16."""
    return array.array("f", map(operator.mul, values, around(name, len(values), factors(seed))))


def fill(name, shape):
    """Values in f32, row by row, as an array.array."""
    matrix = len(shape) > 1
    numbers = spread(0.02, 0) if matrix else spread(1e-4, 1 if name.endswith("weight") else 0)
    return around(name, math.prod(shape), numbers)
