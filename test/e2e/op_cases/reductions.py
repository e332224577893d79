"""Reductions, running sums and products, TopK."""
import numpy as np

from .table import Each, F, I, IV, S, Table, V

case = Table("reductions").case

ALL = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
       "ReduceLogSumExp")
# A reduction over no axes still applies the function to each element.
ELEMENT = {"ReduceL1": np.abs, "ReduceL2": np.abs, "ReduceSumSquare": np.square, "ReduceLogSum": np.log}


def moved(op):
    """The opset since which axes are an input."""
    return 13 if op == "ReduceSum" else 18


for op in ALL:
    def x():
        return F(2, 3, 4, lo=0.3, hi=2) if op == "ReduceLogSum" else F(2, 3, 4)
    for axes in ([1], [0, 2], [-1]):
        if axes != [-1]:
            case(op, x(), name=f"attribute {axes}", axes=axes, keepdims=Each(..., 0), until=moved(op) - 1)
        case(op, x(), S(axes), name=f"input {axes}", keepdims=Each(..., 0), since=moved(op))
    case(op, x(), name="negative axis, attribute", axes=[-2], since=11, until=moved(op) - 1)
    case(op, x(), name="all", keepdims=Each(..., 0))
    case(op, x(), S([]), name="no axes", keepdims=Each(..., 0), since=moved(op))
    case(op, x(), S([]), name="no axes, nothing reduced", noop_with_empty_axes=1, since=moved(op),
         values=lambda a, *_, op=op: ELEMENT.get(op, lambda v: v)(a[0]), why="the reference forgets the function of one element")
    case(op, x(), S([1]), name="an axis of extent 1", since=moved(op), before=[("Unsqueeze", ["i0", "i1"], ["b0"], {})])
case("ReduceSum", F(3, 0, 2), S([1]), name="an axis of no element", since=13, differentiable=False)
case("ReduceProd", F(3, 0, 2), S([1]), name="an axis of no element", since=18, differentiable=False)
for op in ("ReduceSum", "ReduceMax", "ReduceMin"):
    case(op, I(3, 4, above=-9, below=9, dtype=np.int32), S([1]), name="int32", since=max(moved(op), 13))

# Products with factors of 0: the gradient is the product of the other factors, not the product divided by the element.
case("ReduceProd", V([[2, 3, 4], [0, 3, 4], [0, 0, 4], [0, 0, 0]]), S([1]), name="through zeros", since=18)
case("ReduceProd", V([[2, 0], [5, 3], [1, 7]]), name="through zero, all", keepdims=0)
# With two factors of 0, finite differences are useless: they are as large as the step.
case("ReduceProd", V([[2, 0], [5, 3], [0, 7]]), name="through zeros, all", keepdims=0, gradients={0: np.zeros((3, 2))})
# Ties of many share the gradient, as torch.amax has it.
for op, top in (("ReduceMax", 7), ("ReduceMin", -7)):
    case(op, V([[top, top, 1], [top, top, top], [1, 2 * top, 3]]), S([1]), name="ties", since=18,
         gradients={0: [[0.5, 0.5, 0], [2 / 3, 2 / 3, 2 / 3], [0, 3, 0]]})
case("ReduceL1", V([[1, 0, -2]]), name="at 0", gradients={0: [[1, 0, -1]]})
# PyTorch: the norm of zeros has the gradient 0.
case("ReduceL2", V([[0, 0, 0], [3, 4, 0]]), name="of zeros", axes=[1], until=17, gradients={0: [[0, 0, 0], [1.2, 1.6, 0]]})
case("ReduceL2", V([[0, 0, 0], [3, 4, 0]]), S([1]), name="of zeros", since=18, gradients={0: [[0, 0, 0], [1.2, 1.6, 0]]})
case("ReduceLogSumExp", V([[900, 899, 1], [-900, -901, -990]]), S([1]), name="far out", since=18)

# Axes 0 and -1 of a scalar are valid, as if it were a vector: docs/guide/ops-differences.md.
SCALAR = {"ReduceL1": np.abs, "ReduceL2": np.abs, "ReduceSumSquare": np.square, "ReduceLogSum": np.log}
for op in ALL:
    for axis in (0, -1):
        def made(a, *_, op=op):
            return SCALAR.get(op, lambda v: v)(a[0])
        x = V(np.float32(1.7 if op == "ReduceLogSum" else -1.7))
        if axis == 0 or op == "ReduceSum":
            case(op, x, name=f"scalar, attribute {axis}", axes=[axis], keepdims=Each(..., 0), since=11, until=moved(op) - 1, values=made,
                 why="it refuses")
        case(op, x, S([axis]), name=f"scalar, input {axis}", keepdims=Each(..., 0), since=moved(op), values=made, why="it refuses")
for op, value in (("Softmax", 1), ("LogSoftmax", 0), ("Hardmax", 1)):
    for axis in (0, -1):
        case(op, V(np.float32(-1.7)).still, name=f"scalar {axis}", axis=axis, since=11, values=lambda a, *_, v=value: np.float32(v), why="not all run",
             differentiable=False)
for op in ("ArgMax", "ArgMin"):
    for axis in (0, -1):
        case(op, V(np.float32(-1.7)).still, name=f"scalar {axis}", axis=axis, keepdims=Each(..., 0), since=11, values=lambda a, *_: np.int64(0),
             why="not all run", differentiable=False)
for op, empty in (("CumSum", 0), ("CumProd", 1)):
    for axis in (0, -1):
        case(op, V(np.float32(-1.7)), S(axis), name=f"scalar {axis}", values=lambda a, *_: a[0], why="it returns a vector")
        case(op, V(np.float32(-1.7)).still, S(axis), name=f"scalar {axis}, exclusive", exclusive=1, reverse=Each(..., 1),
             values=lambda a, *_, v=empty: np.float32(v), why="it fails", differentiable=False)

for op in ("ArgMax", "ArgMin"):
    case(op, F(2, 3, 4), axis=Each(..., 1, 2), keepdims=Each(..., 0), differentiable=False)
    case(op, IV([[1, 1, 0], [0, 1, 1]], np.float32), name="ties", axis=-1, select_last_index=Each(..., 1), since=12)

for op in ("CumSum", "CumProd"):
    for axis in (0, 1, -1):
        case(op, F(2, 3, 4, lo=0.3, hi=2), S(axis), name=f"axis {axis}", exclusive=Each(..., 1), reverse=Each(..., 1))
    case(op, I(3, 4, below=4, dtype=np.int32), S(1), name="int32")
case("CumProd", V([[2, 0, 3, 4], [0, 0, 5, 6], [1, 2, 3, 0]]), S(1), name="through zeros", exclusive=Each(..., 1), reverse=Each(..., 1))

# TopK: k is an attribute until opset 9.
case("TopK", F(2, 5), name="attribute", k=3, outputs=2, until=9)
case("TopK", F(4, 3), name="attribute", k=2, axis=0, outputs=2, until=9)
case("TopK", F(2, 5), S([3]), outputs=2, since=10, axis=Each(..., 1, -1))
case("TopK", F(4, 3), S([2]), outputs=2, since=10, axis=0, name="axis 0")
case("TopK", F(2, 5), S([3]), outputs=2, since=11, largest=Each(..., 0), name="largest")
case("TopK", F(2, 5), S([3]), outputs=2, since=11, largest=Each(..., 0), sorted=0, name="unsorted", then=[
    ("ReduceSum", ["o0"], ["r0"], {"keepdims": 0})], results=["r0"])
# ONNX: the lower index wins.
case("TopK", V([[1, 3, 3, 3, 2]]), S([2]), outputs=2, since=11, name="ties", gradients={0: [[0, 1, 2, 0, 0]]})
case("TopK", I(3, 6, below=50), S([3]), outputs=2, since=11, name="int64")
