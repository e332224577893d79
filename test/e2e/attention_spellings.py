"""Attention as exporters and people write it: each spelling is a few ONNX nodes and the mathematics that they mean.

A spelling declares its mathematics: scale, bias and keep (arrays that broadcast to [B, H, T, T]), cap; and the report's text about it.
"""
import numpy as np
from onnx import TensorProto, numpy_helper

from attention_graph import B, CAUSAL, D, H, LOW, T, random


SPELLINGS = []


def spelling(opset, heads=H, said=None, parameters=None, domain="", **math):
    def add(build):
        SPELLINGS.append(dict(name=build.__name__.replace("_", "-"), build=build, opset=opset, heads=heads, said=said or {},
                              parameters=parameters or {}, domain=domain, math=math))
        return build
    return add


# -- scales ------------------------------------------------------------------------------------------------------------------

@spelling(13, scale=D**-0.5, said={"causal": False})
def scores_divided(g, q, k, v):
    return g.plain(q, k, v, lambda g, s: g("Div", s, g.constant(D**0.5)))


@spelling(13, scale=D**-0.5, keep=CAUSAL, said={"causal": True})
def both_scaled(g, q, k, v):
    root = g.constant(D**-0.25)
    return g.plain(g("Mul", q, root), g("Mul", root, k), v,
                   lambda g, s: g("Where", g.constant(CAUSAL, bool), s, g.constant(-np.inf)))


@spelling(13, scale=0.3, bias=-1e4 * ~CAUSAL, said={"causal": True, "bias": ""})
def query_scaled_constant_added(g, q, k, v):
    return g.plain(g("Mul", q, g.constant([0.3])), k, v, lambda g, s: g("Add", g.constant(-1e4 * ~CAUSAL), s))


@spelling(13, scale=1.0, temperature="t", parameters={"t": 1 + 0.3 * random(50, H, 1, 1)})
def trained_temperature(g, q, k, v, t):
    return g.plain(q, k, v, lambda g, s: g("Mul", s, t))


# -- layouts -----------------------------------------------------------------------------------------------------------------

@spelling(13, scale=0.5, keep=CAUSAL, said={"causal": True})
def rank_three(g, q, k, v):
    q, k, v = (g("Reshape", x, g.ints(B * H, T, D)) for x in (q, k, v))
    s = g("MatMul", g("Mul", q, g.constant(0.5)), g("Transpose", k, perm=[0, 2, 1]))
    y = g.finish(g("Add", s, g.constant(np.where(CAUSAL, 0, LOW)[None])), v)
    return g("Reshape", y, g.ints(B, H, T, D))


@spelling(18, scale=0.5)
def einsum(g, q, k, v):
    s = g("Einsum", q, k, equation="bhid,bhjd->bhij")
    w = g("Softmax", g("Mul", s, g.constant(0.5)), axis=3, name="softmax")
    return g("Einsum", w, v, equation="bhij,bhjd->bhid")


@spelling(18, scale=0.5)
def keys_times_queries(g, q, k, v):
    s = g("MatMul", k, g("Transpose", g("Mul", q, g.constant(0.5)), perm=[0, 1, 3, 2]))
    w = g("Softmax", s, axis=2, name="softmax")
    y = g("MatMul", g("Transpose", v, perm=[0, 1, 3, 2]), w)
    return g("Transpose", y, perm=[0, 1, 3, 2])


@spelling(18, scale=0.5)
def doubles_inside(g, q, k, v):
    s = g("Cast", g.scores(q, k), to=TensorProto.DOUBLE)
    w = g("Softmax", g("Mul", s, g.constant(0.5, np.float64)), axis=-1, name="softmax")
    return g("MatMul", g("Cast", w, to=TensorProto.FLOAT), v)


# -- shared heads ------------------------------------------------------------------------------------------------------------

@spelling(13, heads=2, scale=0.5, said={"key_heads": 2})
def groups_expanded(g, q, k, v):
    def repeat(x):
        wide = g("Expand", g("Unsqueeze", x, g.ints(2)), g.ints(B, 2, 2, T, D))
        return g("Reshape", wide, g.ints(B, H, T, D))
    return g.plain(g("Mul", q, g.constant(0.5)), repeat(k), repeat(v))


@spelling(13, heads=1, scale=0.5, said={"key_heads": 1})
def one_head_tiled(g, q, k, v):
    k, v = (g("Tile", x, g.ints(1, H, 1, 1)) for x in (k, v))
    return g.plain(g("Mul", q, g.constant(0.5)), k, v)


@spelling(13, heads=2, scale=0.5, keep=CAUSAL, said={"key_heads": 2, "causal": True})
def heads_gathered(g, q, k, v):
    k, v = (g("Gather", x, g.ints(0, 0, 1, 1), axis=1) for x in (k, v))
    return g.plain(g("Mul", q, g.constant(0.5)), k, v,
                   lambda g, s: g("Where", g.constant(~CAUSAL, bool), g.constant(LOW), s))


# -- biases and masks ----------------------------------------------------------------------------------------------------------

@spelling(13, scale=0.5, bias="b", parameters={"b": random(51, H, T, T)}, said={"bias": f"1x{H}x{T}x{T}"})
def relative_bias(g, q, k, v, b):
    return g.plain(q, k, v, lambda g, s: g("Add", g("Mul", s, g.constant(0.5)), g("Unsqueeze", b, g.ints(0))))


ALIBI = 2.0 ** -np.arange(1, H + 1)[:, None, None] * (np.arange(T)[None, :] - np.arange(T)[:, None])


@spelling(13, scale=0.5, bias=ALIBI, keep=CAUSAL, said={"causal": True})
def alibi(g, q, k, v):
    steps = g("Range", g.constant(0, np.int64), g.constant(T, np.int64), g.constant(1, np.int64))
    row, column = g("Unsqueeze", steps, g.ints(1)), g("Unsqueeze", steps, g.ints(0))
    slopes = g.constant(2.0 ** -np.arange(1, H + 1)[:, None, None])
    bias = g("Mul", slopes, g("Cast", g("Sub", column, row), to=TensorProto.FLOAT))
    mask = g("Where", g("Greater", column, row), g.constant(-np.inf), g.constant(0.0))
    return g.plain(q, k, v, lambda g, s: g("Add", g("Add", g("Mul", s, g.constant(0.5)), bias), mask))


@spelling(18, scale=0.5, keep=CAUSAL, said={"causal": True, "mask": ""})
def triangle_of_ones(g, q, k, v):
    ones = g("ConstantOfShape", g.ints(T, T), value=numpy_helper.from_array(np.ones(1, np.float32)))
    seen = g("Cast", g("Trilu", ones, upper=0), to=TensorProto.BOOL)
    return g.plain(q, k, v, lambda g, s: g("Where", seen, g("Mul", s, g.constant(0.5)), g.constant(LOW)))


WINDOW = CAUSAL & ~np.tril(np.ones((T, T), bool), -3)


@spelling(18, scale=0.5, keep=WINDOW, said={"causal": True, "mask": f"1x1x{T}x{T}"})
def window_by_ranges(g, q, k, v):
    steps = g("Range", g.constant(0, np.int64), g.constant(T, np.int64), g.constant(1, np.int64))
    behind = g("Sub", g("Unsqueeze", steps, g.ints(1)), g("Unsqueeze", steps, g.ints(0)))
    seen = g("And", g("GreaterOrEqual", behind, g.ints(0)), g("Less", behind, g.ints(3)))
    return g.plain(g("Mul", q, g.constant(0.5)), k, v, lambda g, s: g("Where", seen, s, g.constant(-np.inf)))


@spelling(18, scale=0.5, keep="seen", said={"mask": f"{B}x1x1x{T}", "causal": False})
def padding_excluded(g, q, k, v):
    seen = g("Unsqueeze", g("Cast", "seen", to=TensorProto.BOOL), g.ints(1, 2))
    return g.plain(q, k, v, lambda g, s: g("Where", seen, g("Mul", s, g.constant(0.5)), g.constant(-np.inf)))


@spelling(18, scale=0.5, bias="seen", said={"bias": f"{B}x1x1x{T}", "mask": ""})
def padding_added(g, q, k, v):
    seen = g("Unsqueeze", "seen", g.ints(1, 2))
    bias = g("Mul", g("Sub", g.constant(1.0), seen), g.constant(-1e4))
    return g.plain(q, k, v, lambda g, s: g("Add", g("Mul", s, g.constant(0.5)), bias))


@spelling(18, scale=0.5, keep="none", fill=True)
def rows_without_keys(g, q, k, v):
    seen = g("Unsqueeze", g("Cast", "none", to=TensorProto.BOOL), g.ints(1))
    return g.plain(q, k, v, lambda g, s: g("Where", seen, g("Mul", s, g.constant(0.5)), g.constant(LOW)))


@spelling(18, scale=0.5, keep="none", undefined=True)   # the gradient of the unfused graph is 0 · NaN
def nan_guarded(g, q, k, v):
    seen = g("Unsqueeze", g("Cast", "none", to=TensorProto.BOOL), g.ints(1))
    mask = g("Where", seen, g.constant(0.0), g.constant(-np.inf))
    w = g("Softmax", g("Add", g("Mul", g.scores(q, k), g.constant(0.5)), mask), axis=-1, name="softmax")
    return g("MatMul", g("Where", g("IsNaN", w), g.constant(0.0), w), v)


@spelling(18, scale=0.5, cap=2.0, keep=CAUSAL, said={"causal": True, "softcap": 2.0})
def soft_cap(g, q, k, v):
    def cap(g, s):
        s = g("Mul", g("Tanh", g("Div", g("Mul", s, g.constant(0.5)), g.constant(2.0))), g.constant(2.0))
        return g("Add", s, g.constant(np.where(CAUSAL, 0, -np.inf)))
    return g.plain(q, k, v, cap)


# -- ops of attention ----------------------------------------------------------------------------------------------------------

@spelling(23, heads=2, scale=D**-0.5, keep=CAUSAL, said={"key_heads": 2, "causal": True, "mask": ""})
def standard_causal(g, q, k, v):
    return g("Attention", q, k, v, is_causal=1, name="softmax")


@spelling(24, scale=0.4, cap=3.0, keep=CAUSAL, bias=ALIBI, said={"causal": True, "softcap": 3.0})
def standard_masked(g, q, k, v):
    return g("Attention", q, k, v, g.constant(ALIBI), is_causal=1, scale=0.4, softcap=3.0, name="softmax")


@spelling(17, scale=D**-0.5, bias=ALIBI, keep=CAUSAL, domain="com.microsoft", said={"causal": True})
def contributed(g, q, k, v):
    join = lambda x: g("Reshape", g("Transpose", x, perm=[0, 2, 1, 3]), g.ints(B, T, H * D))
    y = g("MultiHeadAttention", join(q), join(k), join(v), "", "", g.constant(ALIBI[None]), num_heads=H, unidirectional=1,
          domain="com.microsoft", name="softmax")
    return g("Transpose", g("Reshape", y, g.ints(B, T, H, D)), perm=[0, 2, 1, 3])


# -- near misses: the node that breaks the pattern, and the message -----------------------------------------------------------------

def broken_relu(g, q, k, v):
    return g.plain(q, k, v, lambda g, s: g("Relu", s, name="breaks"))


def broken_axis(g, q, k, v):
    return g("MatMul", g("Softmax", g.scores(q, k), axis=1, name="breaks"), v)


def broken_cap(g, q, k, v):
    return g.plain(q, k, v, lambda g, s: g("Tanh", g("Add", s, g.constant(ALIBI), name="breaks")))


def broken_gate(g, q, k, v):
    w = g("Softmax", g.scores(q, k), axis=-1)
    return g("MatMul", g("Mul", w, g.constant(np.linspace(0, 1, T)), name="breaks"), v)


def broken_fill(g, q, k, v):
    return g.plain(q, k, v, lambda g, s: g("Where", g.constant(CAUSAL, bool), s, g.constant(-20.0), name="breaks"))


BROKEN = {broken_relu: "relu of the scores", broken_axis: "does not run along the keys",
          broken_cap: "bias is added inside the soft cap", broken_gate: "varies along the keys after the softmax",
          broken_fill: "become -20, which still counts"}
