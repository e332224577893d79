"""Transforms of signals, windows, determinants, random numbers."""
import numpy as np
from onnx import TensorProto

from .table import C, Each, F, IV, S, Table, V

case = Table("signals").case

# The last axis is 1 for real numbers, 2 for complex ones. Opset 17: the axis is an attribute.
for parts in (1, 2):
    kind = "real" if parts == 1 else "complex"
    case("DFT", F(2, 5, 3, parts), name=f"{kind}, attribute", axis=Each(..., 2), inverse=Each(..., 1), until=19)
    case("DFT", F(2, 5, 3, parts), None, S(1), name=kind, inverse=Each(..., 1), since=20)
    case("DFT", F(2, 5, 3, parts), S(4), S(-2), name=f"{kind}, shorter", since=20)
    case("DFT", F(2, 5, 3, parts), S(7), S(1), name=f"{kind}, longer", since=20)
case("DFT", F(2, 6, 3, 1), name="onesided, attribute", axis=1, onesided=1, until=19)
case("DFT", F(2, 6, 3, 1), None, S(1), name="onesided", onesided=1, since=20)
case("DFT", F(2, 5, 3, 1), None, S(1), name="onesided, odd", onesided=1, since=20)
case("STFT", F(2, 16, 1), S(3), F(6, lo=0.2, hi=1), name="window", onesided=Each(..., 0))
case("STFT", F(1, 16, 1), S(4), None, S(8), name="frame_length")
case("STFT", F(1, 12, 2), S(4), F(4, lo=0.2, hi=1), name="complex", onesided=0)
for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    case(op, S(7), periodic=Each(..., 0))
    case(op, S(6), output_datatype=TensorProto.DOUBLE, name="double")
case("MelWeightMatrix", S(4), S(32), S(8000), S(50, np.float32), S(3000, np.float32))
case("Det", F(3, 3))
case("Det", F(2, 3, 4, 4), name="batches")
case("Det", V([[[1, 2], [2, 4]], [[0, 1], [1, 0]]]), name="singular and pivoted")

# Random numbers: types and shapes are tested; inputs have no derivative.
case("RandomNormal", shape=[2, 3], mean=Each(..., 1.0), scale=Each(..., 2.0), random=True)
case("RandomUniform", shape=[2, 3], low=Each(..., -1.0), high=Each(..., 2.0), random=True)
case("RandomNormalLike", F(2, 3), random=True, differentiable=False, name="like", dtype=Each(..., TensorProto.DOUBLE))
case("RandomUniformLike", F(2, 3), random=True, differentiable=False, name="like", dtype=Each(..., TensorProto.DOUBLE))
case("Bernoulli", F(2, 3, lo=0, hi=1), random=True, differentiable=False, dtype=Each(..., TensorProto.INT32, TensorProto.BOOL))
case("Bernoulli", IV([[0, 1, 1]], np.float32), name="certain", differentiable=False, values=lambda a, *_: a[0], why="the reference draws from (0, 1]")
for kind, element in ((TensorProto.INT32, np.int32), (TensorProto.INT64, np.int64)):
    case("Multinomial", F(2, 5), sample_size=4, dtype=kind, random=True, differentiable=False, values=lambda a, *_, e=element: np.zeros((2, 4), e),
         why="the reference lacks the op")

# Ops that are supported for constants only, since extents depend on values.
case("NonZero", C([[1, 0, 2], [0, 0, 3]], np.float32))
case("Unique", C([3, 1, 2, 1, 3], np.float32), outputs=4, sorted=Each(..., 0))
case("Unique", C([[1, 2, 1], [3, 4, 3]], np.float32), outputs=4, axis=1, name="columns")
case("NonMaxSuppression", C([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]], np.float32), C([[[0.9, 0.8, 0.7]]], np.float32), C([3]),
     C([0.5], np.float32), C([0], np.float32))
