"""Weights by rule: the same values on any machine, from a parameter's name and shape alone, so that they need not be sent.

A matrix (two axes or more) gets numbers spread evenly around 0 with a standard deviation of 0.02, a vector called "weight" 1 and other
vectors 0, each with noise of 0.0001: no two parameters are equal, which exporters would merge. Python's standard library is enough;
its `random.random` gives the same numbers in every version (documentation of `random`, "Notes on Reproducibility").
"""
import array
import functools
import math
import random
import zlib

PERIOD = 1_000_003  # prime: rows of a matrix do not line up with it


@functools.lru_cache
def spread(deviation, middle):
    """PERIOD numbers, evenly spread."""
    numbers, half = random.Random(20251), deviation * math.sqrt(3)
    return array.array("f", (middle + half * (2 * numbers.random() - 1) for _ in range(PERIOD)))


def fill(name, shape):
    """Values in f32, row by row, as an array.array."""
    matrix = len(shape) > 1
    numbers = spread(0.02, 0) if matrix else spread(1e-4, 1 if name.endswith("weight") else 0)
    count, start = math.prod(shape), zlib.crc32(name.encode()) % PERIOD
    turns = numbers[start:] + numbers[:start]
    return turns * (count // PERIOD) + turns[:count % PERIOD]
