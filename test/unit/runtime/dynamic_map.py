"""Writes dynamic_map.txt: the numbers of bitsandbytes' 8-bit codes, and the codes that it gives to numbers around the thresholds.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch bitsandbytes==0.50.2
    /tmp/venv/bin/python test/unit/runtime/dynamic_map.py > test/unit/runtime/dynamic_map.txt

Each line is a kind of map, what it lists, and 32-bit floats in hexadecimal, those of `codes` each followed by its code. Quantised
is by the implementation that bitsandbytes registers for all devices without one of their own ("default"): that for the CPU
finds codes in a table of 2^16 evenly spaced numbers, and misses the nearest one where the map is denser. The map is torch's of a
processor with AVX2; without it, torch.linspace rounds twice.
"""
import numpy as np
import torch
from bitsandbytes import functional

BLOCK = 256
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.XLA)
quantize = torch.library.get_kernel("bitsandbytes::quantize_blockwise", "XLA")


def bits(values):
    return [f"{value:08x}" for value in np.float32(values).view(np.uint32)]


def codes_of(values, numbers):
    """Codes of values in [-1, 1]: each block begins with 1, so that its magnitude is 1."""
    result = []
    for begin in range(0, len(values), BLOCK - 1):
        block = np.append(np.float32(1), values[begin:begin + BLOCK - 1])
        codes, absmax = quantize.call_boxed(keys, torch.from_numpy(block), numbers, BLOCK)
        assert absmax.tolist() == [1]
        result += codes[1:].tolist()
    return result


for name, signed in (("signed", True), ("unsigned", False)):
    numbers = functional.create_dynamic_map(signed)
    print(name, "numbers", *bits(numbers.numpy()))
    middles = ((numbers[:-1] + numbers[1:]) / 2).numpy()
    values = np.concatenate([middles, np.nextafter(middles, np.float32(2)), np.nextafter(middles, np.float32(-2))])
    print(name, "codes", *(f"{value} {code}" for value, code in zip(bits(values), codes_of(values, numbers))))
