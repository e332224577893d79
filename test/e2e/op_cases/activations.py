"""Activation functions."""
import numpy as np

from .table import Each, F, IV, S, Table, V

case = Table("activations").case

for op in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Mish"):
    case(op, F(2, 3, 5))
case("Softplus", V([-40, -1, 0, 1, 40]), name="far out")
case("Sigmoid", V([-40, -1, 0, 1, 40]), name="far out")
case("Relu", V([-1, 0, 2]), name="at 0", gradients={0: [0, 0, 3]})
case("Relu", IV([-3, 0, 4], np.int32), name="int32", since=14)

case("LeakyRelu", F(2, 3), alpha=Each(..., 0.3, -0.2))
case("LeakyRelu", V([-1, 0, 2]), name="at 0", alpha=0.25, gradients={0: [0.25, 0.5, 3]})
case("Elu", F(2, 3), alpha=Each(..., 0.3, 2.0))
case("Selu", F(2, 3), alpha=Each(..., 1.2), gamma=Each(..., 0.8))
case("Celu", F(2, 3), alpha=Each(..., 0.4, 2.0))
case("ThresholdedRelu", F(2, 3), alpha=Each(..., 0.3, -0.5))
case("HardSigmoid", F(2, 5, lo=-4, hi=4), alpha=Each(..., 0.4), beta=Each(..., 0.1))
case("Shrink", F(2, 5), lambd=Each(..., 0.7), bias=Each(..., 0.3))
case("Gelu", F(2, 3), approximate=Each(..., "tanh"))
case("Swish", F(2, 3), alpha=Each(..., 1.7))

# Clip: the bounds are attributes until opset 10, inputs later.
case("Clip", F(2, 5), min=Each(..., -1.02), max=Each(..., 0.71), until=10)
for low, high in ((None, None), (-1.02, None), (None, 0.71), (-1.02, 0.71)):
    ends = [None if v is None else S(v, np.float32) for v in (low, high)]
    case("Clip", F(2, 5), *ends, name=f"from {low} to {high}", since=11)
case("Clip", F(2, 5), V(-1.02), V(0.71), name="ends at run time", since=11)
case("Clip", V([-3, -1, 0, 1, 3]), S(-1, np.float32), S(1, np.float32), name="at the ends", since=11, gradients={0: [0, 0, 3, 0, 0]})
case("Clip", V([-3, -1, 0, 1, 3]), name="at the ends", min=-1.0, max=1.0, until=10, gradients={0: [0, 0, 3, 0, 0]})
case("Clip", IV([-3, 0, 9], np.int64), S(-1), S(4), name="int64", since=12)

# Softmax and its relatives normalise along one axis from opset 13 on, and over all axes from the given one on before.
for op in ("Softmax", "LogSoftmax"):
    case(op, F(2, 3, 5), axis=Each(..., 0, 2, -1, -2), since=13)
    case(op, F(2, 3, 5), axis=Each(..., 0, 2), until=12, judge="onnxruntime", why="the reference knows opset 13's meaning alone")
    case(op, F(2, 3, 2, 2), name="flattened", axis=Each(..., 2, 3), until=12, judge="onnxruntime", why="as above")
    case(op, F(2, 3, 5), axis=-2, since=11, until=12, judge="onnxruntime", why="as above")
    case(op, V([[80, -80, 0], [1, 1, 1]]), name="far apart", axis=-1, since=11, judge="onnxruntime", why="as above")
case("Hardmax", F(2, 3, 5), axis=Each(..., 0, -2), since=13, differentiable=False)
case("Hardmax", F(2, 3, 5), axis=Each(..., 0), until=12, differentiable=False, judge="onnxruntime", why="the reference knows opset 13's meaning alone")

case("SwiGLU", F(2, 3, 6), F(2, 3, 6), alpha=Each(..., 1.7))
