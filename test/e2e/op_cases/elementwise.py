"""Arithmetic, comparison, logic, bits and casts, element by element, with broadcasting."""
import numpy as np
from onnx import TensorProto

from .table import B, Each, F, I, IV, S, Table, V

case = Table("elementwise").case

# Functions of one argument, each where it is smooth.
for op, lo, hi in (("Abs", -2, 2), ("Acos", -0.9, 0.9), ("Acosh", 1.2, 3), ("Asin", -0.9, 0.9), ("Asinh", -3, 3), ("Atan", -3, 3),
                   ("Atanh", -0.9, 0.9), ("Cos", -4, 4), ("Cosh", -2, 2), ("Erf", -2, 2), ("Exp", -3, 2), ("Log", 0.2, 3),
                   ("Neg", -2, 2), ("Reciprocal", 0.4, 2), ("Sin", -4, 4), ("Sinh", -2, 2), ("Sqrt", 0.3, 3), ("Tan", -1.2, 1.2),
                   ("Identity", -2, 2)):
    case(op, F(2, 3, 5, lo=lo, hi=hi))
case("Reciprocal", F(7, lo=-2, hi=-0.4), name="negative")
case("Sin", F(), name="rank 0")
case("Exp", F(3, 0, 2), name="no element", differentiable=False)
case("Neg", IV([[1, -2], [3, 0]], np.int32), name="int32")
case("Abs", IV([-7, 5, 0], np.int64), name="int64")
# PyTorch: |x| has the derivative 0 at 0, and so have max(x, 0) and the sign.
case("Abs", V([-1.5, 0, 2]), name="at 0", gradients={0: [-1, 0, 3]})

# Steps: the derivative is 0, as PyTorch has it.
for op in ("Ceil", "Floor", "Round", "Sign"):
    case(op, F(2, 9, lo=-3, hi=3), gradients={0: np.zeros(18)})
case("Round", IV([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32), name="half to even")

# Two arguments.
SHAPES = [((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 1)), ((5,), (2, 3, 5)), ((2, 1, 5), (3, 1)), ((2, 3), ()), ((), (4,))]
for op in ("Add", "Sub", "Mul", "Div"):
    for a, b in SHAPES:
        case(op, F(*a), F(*b, lo=0.4, hi=3), name=f"{list(a)} {list(b)}")
case("Div", F(2, 3), F(3, lo=-3, hi=-0.4), name="by a negative number")
case("Div", IV([7, -7, 9], np.int32), IV([2, 2, -4], np.int32), name="int32", values=lambda a, *_: np.array([3, -3, -2], np.int32),
     why="numpy's floor, where ONNX and C truncate")
case("Mul", IV([7, 200, 9], np.uint8), IV([2, 2, 4], np.uint8), name="uint8 wraps", since=14)
case("Add", F(2, 3), F(1, 3), name="one tensor twice", before=[("Identity", ["i0"], ["b1"], {})], unread=(1,))
for a, b in SHAPES:
    case("Pow", F(*a, lo=0.3, hi=2), F(*b), name=f"base and exponent {list(a)} {list(b)}")
case("Pow", F(3, 4), V([2, 3, 0, 1]).still, name="negative base, whole exponents")
case("Pow", F(2, 3, lo=0.3, hi=2), IV([2, 3, -1], np.int64), name="integer exponent", since=12)
case("Pow", V([0, 0, 2]), V([2, 1, 3]).still, name="base 0", gradients={0: [0, 2, 36]})
# 0^y: in torch the gradient of the exponent is 0 at a base of 0.
case("Pow", V([0, 0, 2]).still, V([2, 1, 3]), name="exponent over base 0", gradients={1: [0, 0, 24 * np.log(2)]})
case("Mod", F(2, 3, lo=-4, hi=4), F(3, lo=1.1, hi=2), name="fmod", fmod=1, since=10)
case("Mod", IV([-7, 7, 5, -4], np.int64), IV([3, -3, 2, 3], np.int64), fmod=Each(..., 1), name="int64", since=10)
case("PRelu", F(2, 3, 5), F(3, 1), name="slope per channel")
case("PRelu", F(2, 3, 5), F(1), name="one slope")
case("PRelu", F(2, 3, 5), F(2, 3, 5), name="slope per element", since=7)
case("PRelu", V([-2, 0, 3]), V([0.5, 0.25, 1]), name="at 0", gradients={0: [0.5, 0.5, 3], 1: [-2, 0, 0]})

# Any number of arguments; ties share the gradient, as in PyTorch.
for op in ("Sum", "Mean", "Max", "Min"):
    case(op, F(2, 3), name="one")
    case(op, F(2, 3), F(2, 3), F(2, 3), name="three")
    case(op, F(2, 3, 4), F(4), F(3, 1), F(), name="broadcast", since=8)
for op in ("Max", "Min"):
    case(op, V([1, 2, 3]), V([1, 5, 0]), name="tie of two", gradients={
        0: [0.5, 2 * (op == "Min"), 3 * (op == "Max")], 1: [0.5, 2 * (op == "Max"), 3 * (op == "Min")]})
    case(op, V([4, 1]), V([4, 1]), V([4, 2]), V([4, 0]), name="tie of many", differentiable=False)
    case(op, IV([1, -5], np.int32), IV([0, 7], np.int32), name="int32", since=12)

# Comparisons, logic, bits: no derivative, but values.
for op in ("Less", "Greater", "Equal"):
    case(op, F(2, 3), F(3), differentiable=False, since=7 if op != "Equal" else 11)
    case(op, IV([1, 2, 3]), IV([3, 2, 1]), name="int64", since=9 if op != "Equal" else 7)
for op in ("LessOrEqual", "GreaterOrEqual"):
    case(op, F(2, 3), F(3), differentiable=False)
    case(op, IV([1, 2, 3]), IV([3, 2, 1]), name="int64")
case("Equal", B(2, 3), B(3), name="bool")
for op in ("And", "Or", "Xor"):
    case(op, B(2, 3, 4), B(3, 1))
case("Not", B(2, 3))
for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(op, I(2, 3, below=200, dtype=np.uint8), I(3, below=200, dtype=np.uint8))
    case(op, I(2, 3, below=100, above=-100), I(3, below=100, above=-100), name="int64")
case("BitwiseNot", I(2, 3, below=100, above=-100, dtype=np.int32))
for direction in ("LEFT", "RIGHT"):
    case("BitShift", I(2, 3, below=200, dtype=np.uint8), I(3, below=8, dtype=np.uint8), direction=direction)
    case("BitShift", I(2, 3, below=200, dtype=np.uint64), I(3, below=60, dtype=np.uint64), direction=direction, name="uint64")
case("IsNaN", IV([1, np.nan, np.inf, -np.inf, 0], np.float32), since=9)
case("IsInf", IV([1, np.nan, np.inf, -np.inf, 0], np.float32), detect_positive=Each(..., 0), detect_negative=Each(..., 0), since=10)

# Where, with both branches broadcast.
case("Where", B(2, 3, 4), F(2, 3, 4), F(2, 3, 4), name="equal shapes")
case("Where", B(2, 3, 1), F(3, 1), F(1, 4), name="two broadcast branches")
case("Where", B(4), F(), F(2, 1), name="a scalar branch")

case("Cast", F(2, 3), name="to double", to=TensorProto.DOUBLE)
case("Cast", F(2, 3), name="to half and back", to=TensorProto.FLOAT16, then=[("Cast", ["o0"], ["r0"], {"to": TensorProto.FLOAT})],
     results=["r0"])
case("Cast", F(2, 3), name="to bfloat16 and back", to=TensorProto.BFLOAT16, since=13, differentiable=False,
     then=[("Cast", ["o0"], ["r0"], {"to": TensorProto.FLOAT})], results=["r0"])
case("Cast", F(2, 5, lo=-9, hi=9), name="to int32", to=TensorProto.INT32, differentiable=False)
case("Cast", IV([0, 1, -3, 250]), name="int64 to", to=Each(TensorProto.FLOAT, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT16))
case("Cast", B(2, 3), name="bool to float", to=TensorProto.FLOAT)
case("CastLike", F(2, 3), IV([1.0], np.float64), name="to double")
case("CastLike", F(2, 3), IV([1]), name="to int64", differentiable=False)
case("BitCast", IV([1.5, -0.0, np.nan], np.float32), to=TensorProto.INT32)
case("BitCast", IV([1, -1, 2 ** 30], np.int32), to=TensorProto.FLOAT, name="int32 to float", differentiable=False)

# IR version 3: every initializer is a graph input, too.
case("Add", F(2, 3), F(3), name="IR version 3", ir=3, since=7, until=8)
case("Reshape", F(2, 3), S([3, -1]), name="IR version 3", ir=3, since=7, until=8)
