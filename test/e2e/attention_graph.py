"""One model with several attentions, and its results in f64 from the formulas.

Queries are x·q with a sample's x [B, H, T, D] and a parameter q [H, T, D]; keys are xk·k and values xv·v, of `heads` heads.
(There are three inputs, since the gradient of a shared input would be a difference of large numbers.)
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

B, H, T, D = 2, 4, 7, 6
CAUSAL = np.tril(np.ones((T, T), bool))
LOW = float(np.finfo(np.float32).min)


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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


def columns():
    """The data columns of two samples; the mask `none` leaves one query without keys."""
    seen = np.ones((B, T), np.float32)
    seen[1, 4:] = 0
    none = np.repeat(CAUSAL[None].astype(np.float32), B, 0)
    none[0, 2] = 0
    return {"x": random(1, B, H, T, D), "xk": random(2, B, H, T, D), "xv": random(3, B, H, T, D), "seen": seen, "none": none}


def model(spellings, opset, domains=(), gradients=True):
    """One model of several spellings: outputs `NAME.y`, and the sum of their mean squares as the loss."""
    g, losses, outputs = Graph(), [], []
    for index, entry in enumerate(spellings):
        g.begin(entry["name"])
        heads = entry["heads"]
        factors = []
        for i, name in enumerate("qkv"):
            n = H if name == "q" else heads
            x = "x" if name == "q" else f"x{name}"
            x = x if n == H else g("Slice", x, g.ints(0), g.ints(n), g.ints(1))
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
    x, xk, xv = data["x"], data["xk"][:, :heads], data["xv"][:, :heads]
    q, k, v = x * weight["q"], np.repeat(xk * weight["k"], shared, 1), np.repeat(xv * weight["v"], shared, 1)
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
    result["v"] = (share(dv) * xv).sum(0)
    return y, result
