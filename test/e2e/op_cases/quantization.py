"""Quantised tensors: each op by itself, and pairs, whose gradient passes straight through where a value is in range."""
import numpy as np

from .table import Each, F, IV, S, Table

case = Table("quantization").case


def scale(values):
    return S(values, np.float32)


def integers(*shape, low, high, dtype):
    return IV(np.linspace(low, high, int(np.prod(shape))).round().reshape(shape), dtype)


def along(values, attributes, shape):
    """One number, or one for each index of the axis, broadcast to the shape."""
    return values if np.ndim(values) == 0 else values.reshape([-1 if i == attributes.get("axis", 1) % len(shape) else 1
                                                               for i in range(len(shape))])


def dequantised(arrays, attributes, opset):
    q, steps, *zero = arrays
    zero = along(zero[0].astype(np.int64), attributes, q.shape) if zero else 0
    return ((q.astype(np.int64) - zero).astype(np.float32) * along(steps, attributes, q.shape)).astype(np.float32)


def rounded(arrays, attributes, opset):
    x, steps, zero = arrays[0], along(arrays[1], attributes, arrays[0].shape), along(arrays[2], attributes, arrays[0].shape)
    limits = np.iinfo(arrays[2].dtype)
    q = np.clip(np.rint(x / steps) + zero.astype(np.int64), limits.min, limits.max)
    return ((q - zero.astype(np.int64)) * steps).astype(np.float32)


OLD = "the reference has no DequantizeLinear of before opset 19"
DEQUANTISED = {"differentiable": False, "values": dequantised, "why": OLD}
X, ROW, COLUMN = (3, 4), [0.02, 0.5, 0.03, 1.1], [0.01, 0.2, 0.05]
case("QuantizeLinear", F(*X), scale(0.02), differentiable=False, name="no zero point")
case("QuantizeLinear", F(*X), scale(0.02), S(120, np.uint8), differentiable=False, name="uint8")
case("QuantizeLinear", F(*X), scale(0.01), S(-3, np.int8), differentiable=False, name="int8")
case("QuantizeLinear", IV([[-1.5, -0.5, 0.5, 1.5, 2.5, 70, -70]], np.float32), scale(1.0), S(7, np.int8), differentiable=False,
     name="ties")
case("QuantizeLinear", F(*X), scale(ROW), S([0, 9, 100, 255], np.uint8), since=13, differentiable=False, name="last axis", axis=Each(..., -1))
case("QuantizeLinear", F(*X), scale(COLUMN), S([0, -9, 100], np.int8), since=13, differentiable=False, name="first axis", axis=0)
case("QuantizeLinear", IV([[100, -5, 7]], np.int32), scale(3.0), S(1, np.int8), until=18, differentiable=False, name="of int32")
for integer in (np.int16, np.uint16):
    case("QuantizeLinear", F(*X), scale(1e-4), S(300, integer), since=21, differentiable=False, name=integer.__name__)
case("DequantizeLinear", integers(*X, low=0, high=255, dtype=np.uint8), scale(0.02), name="no zero point", **DEQUANTISED)
case("DequantizeLinear", integers(*X, low=-128, high=127, dtype=np.int8), scale(0.02), S(-3, np.int8), name="int8", **DEQUANTISED)
case("DequantizeLinear", integers(*X, low=-9e5, high=9e5, dtype=np.int32), scale(0.001), name="int32", **DEQUANTISED)
case("DequantizeLinear", integers(*X, low=0, high=255, dtype=np.uint8), scale(ROW), S([0, 9, 100, 255], np.uint8), since=13,
     name="last axis", axis=Each(..., -1), **DEQUANTISED)
case("DequantizeLinear", integers(*X, low=-128, high=127, dtype=np.int8), scale(COLUMN), S([0, -9, 100], np.int8), since=13,
     name="first axis", axis=0, **DEQUANTISED)
for integer in (np.int16, np.uint16):
    case("DequantizeLinear", integers(*X, low=0, high=3e4, dtype=integer), scale(1e-4), S(300, integer), since=21,
         name=integer.__name__, **DEQUANTISED)
case("DynamicQuantizeLinear", F(*X, lo=-1.0, hi=3.0), outputs=3, differentiable=False, name="both signs")
case("DynamicQuantizeLinear", F(*X, lo=0.5, hi=3.0), outputs=3, differentiable=False, name="above 0")
case("DynamicQuantizeLinear", F(*X, lo=-3.0, hi=-0.5), outputs=3, differentiable=False, name="below 0")


def pair(*steps, name, since=10, **attributes):
    """Some values lie beyond the range."""
    case("DequantizeLinear", F(*X), *steps, before=[("QuantizeLinear", ["i0", "i1", "i2"], ["b0"], attributes)], name=name, since=since,
         values=rounded, why=OLD, **attributes)


pair(scale(0.01), S(120, np.uint8), name="a pair")
pair(scale([0.01, 0.02, 0.003]), S([0, 5, -30], np.int8), axis=0, since=13, name="a pair by rows")
