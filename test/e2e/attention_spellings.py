"""Attention as exporters and hands write it: each spelling is a few ONNX nodes and the mathematics that they mean.

Queries are x·q with a sample's x [B, H, T, D] and a parameter q [H, T, D]; keys and values likewise, of `heads` heads. A spelling
names the math: scale, bias and keep (arrays that broadcast to [B, H, T, T]), cap, and what it says of fused attention.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

B, H, T, D = 2, 4, 7, 6
CAUSAL = np.tril(np.ones((T, T), bool))
LOW = float(np.finfo(np.float32).min)


class Graph:
    """Nodes under construction, each called `spelling/op…`."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], {}, 0

    def begin(self, name):
        self.name = name

    def __call__(self, op, *inputs, outputs=1, name=None, **attributes):
        self.count += 1
        results = [f"{self.name}.{self.count}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), results, f"{self.name}/{name or op + str(self.count)}", **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, value, dtype=np.float32):
        return self("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def ints(self, *values):
        return self.constant(values, np.int64)

    def parameter(self, name, value):
        self.weights[f"{self.name}.{name}"] = value.astype(np.float32)
        return f"{self.name}.{name}"

    def scores(self, q, k):
        return self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]), name="scores")

    def finish(self, scores, v):
        return self("MatMul", self("Softmax", scores, axis=-1, name="softmax"), v, name="product")

    def plain(self, q, k, v, change=lambda g, s: s):
        return self.finish(change(self, self.scores(q, k)), v)


SPELLINGS = []


def spelling(opset, heads=H, said=None, parameters=None, domain="", **math):
    def add(build):
        SPELLINGS.append(dict(name=build.__name__.replace("_", "-"), build=build, opset=opset, heads=heads, said=said or {},
                              parameters=parameters or {}, domain=domain, math=math))
        return build
    return add


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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


@spelling(18, scale=0.5, keep="none", undefined=True)   # its gradient in the graph as it stands: 0 · NaN
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


# -- what comes close: the node that breaks it, and what is said -----------------------------------------------------------------

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


BROKEN = {broken_relu: "relu of the scores", broken_axis: "does not run along the keys", broken_cap: "bias is added inside the soft cap",
          broken_gate: "varies along the keys after the softmax", broken_fill: "become -20, which still counts"}


# -- models and the mathematics ------------------------------------------------------------------------------------------------

def columns():
    """Two samples; `none` has a query without keys."""
    seen = np.ones((B, T), np.float32)
    seen[1, 4:] = 0
    none = np.repeat(CAUSAL[None].astype(np.float32), B, 0)
    none[0, 2] = 0
    return {"x": random(1, B, H, T, D), "seen": seen, "none": none}


def model(spellings, opset, domains=(), gradients=True):
    """One model of several spellings: outputs `NAME.y`, and the sum of their mean squares as the loss."""
    g, losses, outputs = Graph(), [], []
    for index, entry in enumerate(spellings):
        g.begin(entry["name"])
        heads = entry["heads"]
        factors = []
        for i, name in enumerate("qkv"):
            n = H if name == "q" else heads
            x = "x" if n == H else g("Slice", "x", g.ints(0), g.ints(n), g.ints(1))
            factors.append(g("Mul", x, g.parameter(name, 1 + 0.3 * random(100 + 3 * index + i, n, T, D))))
        extra = [g.parameter(name, value) for name, value in entry["parameters"].items()]
        y = entry["build"](g, *factors, *extra)
        g.nodes.append(helper.make_node("Identity", [y], [f"{entry['name']}.y"], f"{entry['name']}/output"))
        outputs.append(f"{entry['name']}.y")
        losses.append(g("ReduceMean", g("Mul", y, y), keepdims=0))
    g.begin("loss")
    total = g("Sum", *losses) if len(losses) > 1 else losses[0]
    g.nodes.append(helper.make_node("Identity", [total], ["loss"], "loss/total"))
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    read = {name for node in g.nodes for name in node.input}
    inputs = [info(name, list(value.shape)) for name, value in columns().items() if name in read]
    graph = helper.make_graph(g.nodes, "attention", inputs, [info("loss", [])] + [info(name, [B, H, T, D]) for name in outputs],
                              [numpy_helper.from_array(value, name) for name, value in g.weights.items()])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), g.weights


def reference(entry, weights):
    """(y, gradients by parameter name) of the spelling's mean square, in f64 from the formulas."""
    data, math, name = {k: v.astype(np.float64) for k, v in columns().items()}, entry["math"], entry["name"]
    weight = {k: weights[f"{name}.{k}"].astype(np.float64) for k in ("q", "k", "v", *entry["parameters"])}
    heads, shared = entry["heads"], H // entry["heads"]
    x, xk = data["x"], data["x"][:, :heads]
    q, k, v = x * weight["q"], np.repeat(xk * weight["k"], shared, 1), np.repeat(xk * weight["v"], shared, 1)
    scale, cap = math["scale"], math.get("cap", 0)
    if "temperature" in math:
        scale = weight[math["temperature"]]
    raw = q @ k.swapaxes(2, 3)
    s = raw * scale
    tanh = np.tanh(s / cap) if cap else None
    s = cap * tanh if cap else s
    bias = math.get("bias", 0)
    if isinstance(bias, str):
        bias = weight[bias] if bias in weight else (1 - data[bias])[:, None, None] * -1e4
    keep = math.get("keep", np.ones((T, T), bool))
    if isinstance(keep, str):
        keep = data[keep] > 0
        keep = keep[:, None, None] if keep.ndim == 2 else keep[:, None]
    keep = np.broadcast_to(keep, s.shape)
    some = keep.any(-1, keepdims=True)
    s = np.where(keep, s + bias, -np.inf)
    s = np.where(some, s, 0)
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    if not math.get("fill"):
        p = np.where(some, p, 0)
    y = p @ v
    g = 2 * y / y.size
    dv, dp = p.swapaxes(2, 3) @ g, g @ v.swapaxes(2, 3)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    ds = np.where(keep, ds, 0)
    result = {}
    if isinstance(math.get("bias"), str) and math["bias"] in weight:
        result[math["bias"]] = ds.sum(0)
    if cap:
        ds = ds * (1 - tanh**2)
    if "temperature" in math:
        result[math["temperature"]] = (ds * raw).sum((0, 2, 3))[:, None, None]
    ds = ds * scale
    share = lambda z: z.reshape(B, heads, shared, T, D).sum(2)
    result["q"] = ((ds @ k) * x).sum(0)
    result["k"] = (share(ds.swapaxes(2, 3) @ q) * xk).sum(0)
    result["v"] = (share(dv) * xk).sum(0)
    return y, result
