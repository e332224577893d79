"""Ops that only move elements, so that every derivative is the inverse movement."""
import numpy as np
from onnx import helper, numpy_helper

from .table import B, C, Each, F, I, IV, S, Table

case = Table("shapes").case

case("Shape", F(2, 3, 5), differentiable=False)
case("Shape", F(2, 3, 5), start=Each(1, -2), end=Each(..., 2, -1), since=15, differentiable=False)
case("Size", F(2, 3, 5), differentiable=False)
case("Reshape", F(2, 3, 4), S([4, 6]))
case("Reshape", F(2, 3, 4), S([0, -1]), name="a kept axis, an inferred one")
case("Reshape", F(2, 0, 4), S([0, 3]), name="no element", allowzero=1, since=14, differentiable=False)
case("Flatten", F(2, 3, 4), axis=Each(..., 0, 2, 3))
case("Flatten", F(2, 3, 4), axis=-1, since=11)
case("Squeeze", F(2, 1, 4, 1), name="attribute", axes=Each(..., [1], [1, 3]), until=12)
case("Squeeze", F(2, 1, 4, 1), name="input, all", since=13)
case("Squeeze", F(2, 1, 4, 1), S([-1, 1]), since=13)
case("Unsqueeze", F(2, 4), name="attribute", axes=Each([0], [1, 3]), until=12)
case("Unsqueeze", F(2, 4), S([-1, 1]), since=13)
case("Transpose", F(2, 3, 4), perm=Each(..., [1, 0, 2], [2, 0, 1]))
case("Transpose", B(2, 3), name="bool")
case("Expand", F(3, 1), S([2, 1, 4]))
case("Expand", F(2, 3, 4), S([3, 1]), name="to a smaller shape")
case("Tile", F(2, 3), S([2, 3]))
case("Tile", F(2, 3, 1), S([1, 2, 4]), name="rank 3")
case("Concat", F(2, 3), F(2, 1), F(2, 4), axis=1)
case("Concat", F(2, 3), F(1, 3), axis=-2, since=11)
case("Concat", F(2, 3), C(np.zeros((0, 3)), np.float32), axis=0, name="with an empty part")
case("Concat", I(2, 2, below=9), I(2, 1, below=9), axis=1, name="int64")
case("Split", F(2, 6), outputs=3, axis=1, name="equal parts", until=17)
case("Split", F(6, 2), outputs=2, name="default axis", until=17)
case("Split", F(2, 6), outputs=3, axis=1, split=[1, 2, 3], until=12)
case("Split", F(2, 6), S([1, 2, 3]), outputs=3, axis=Each(1, -1), since=13)
case("Split", F(2, 7), outputs=3, axis=1, num_outputs=3, since=18)
case("Split", F(2, 6), outputs=3, axis=1, split=[1, 2, 3], until=12, name="a part nobody reads", read=[0, 2])
case("Split", F(2, 6), S([1, 2, 3]), outputs=3, axis=1, since=13, name="a part nobody reads", read=[0, 2])
case("Split", F(2, 6), S([1, 0, 5]), outputs=3, axis=1, since=13, name="a part of no element", read=[0, 2])
case("Slice", F(4, 6), name="attributes", starts=[1, -4], ends=[3, 1000], axes=Each(..., [0, 1]), until=9)
for label, parameters in (("two axes", ([1, -4], [3, 1000])), ("an axis", ([1], [-1], [1])), ("negative axis", ([0], [3], [-2])),
                          ("steps", ([0, 1], [4, 6], [0, 1], [2, 3])), ("backwards", ([-1, 4], [-1000, 0], [0, 1], [-1, -2])),
                          ("nothing", ([2], [2], [0]))):
    case("Slice", F(4, 6), *map(S, parameters), name=label, since=10, differentiable=label != "nothing")

# Pad: attributes until opset 10; a negative pad crops.
for mode in ("constant", "reflect", "edge"):
    case("Pad", F(3, 4), name=f"attribute {mode}", mode=mode, pads=[0, 2, 1, 1], until=10)
    case("Pad", F(3, 4), S([0, 2, 1, 1]), name=mode, mode=mode, since=11)
    case("Pad", F(2, 3, 4), S([2, 1]), None, S([-1]), name=f"{mode} of an axis", mode=mode, since=18)
case("Pad", F(3, 4), name="attribute, value", mode="constant", pads=[0, 2, 1, 1], value=1.5, until=10)
case("Pad", F(3, 4), S([0, 2, 1, 1]), S(1.5, np.float32), name="value", since=11)
case("Pad", F(3, 4), S([0, -1, 1, -1]), name="cropped", since=11, values=lambda a, *_: np.pad(a[0], [(0, 1), (0, 0)])[:, 1:3],
     why="numpy pads by nothing negative")
case("Pad", F(3, 4), S([1, 5, 2, 7]), name="wrap", mode="wrap", since=19)
case("Pad", F(3, 5), S([2, 4, 2, 3]), name="reflect as far as it goes", mode="reflect", since=11)
case("DepthToSpace", F(2, 8, 2, 3), blocksize=2, until=10)
case("DepthToSpace", F(2, 8, 2, 3), blocksize=2, mode=Each(..., "DCR", "CRD"), since=11)
case("SpaceToDepth", F(2, 3, 4, 6), blocksize=2)
case("Trilu", F(2, 4, 5), upper=Each(..., 0))
for k in (-1, 2):
    case("Trilu", F(4, 5), S(k), upper=Each(..., 0), name=f"diagonal {k}")
case("EyeLike", F(3, 4), k=Each(..., 1, -2), differentiable=False)
case("CenterCropPad", F(5, 3), S([4, 6]))
case("CenterCropPad", F(5, 3, 4), S([3, 7]), axes=Each([0, 2], [-1, 0]), name="axes")
case("ReverseSequence", F(4, 3, 2), IV([1, 4, 3]))
case("ReverseSequence", F(3, 4), IV([1, 4, 3]), batch_axis=0, time_axis=1, name="batch first")
case("Range", S(1, np.float32), S(7, np.float32), S(1.5, np.float32))
case("Range", S(10), S(1), S(-3), name="downwards")
case("Constant", name="tensor", value=numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3)))
case("Constant", name="numbers", value_floats=[1.0, 2.5], since=12)
case("Constant", name="number", value_int=7, since=12)
case("ConstantOfShape", S([2, 3]), value=Each(..., helper.make_tensor("v", 7, [1], [5])))
