"""A model of attentions whose scores get the addends that exporters write: learned tables (Swin, T5), biases computed from
activations, slopes (ALiBi), windows, and padding that depends on data. Each layer adds its attention of x [B, T, C] to x."""
import models
import numpy as np
from onnx import helper, numpy_helper

B, T, H, D = 2, 20, 4, 8
C = H * D


class Layers:
    """The nodes made so far, each called `layer/…`, and the weights that they read."""

    def __init__(self, positions):
        self.nodes, self.weights, self.positions = [], {}, positions

    def __call__(self, op, *inputs, name=None, **attributes):
        result = f"{self.layer}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], f"{self.layer}/{name or op}{'' if name else len(self.nodes)}", **attributes))
        return result

    def constant(self, value):
        return self("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def parameter(self, name, *shape, scale=1.0):
        self.weights[f"{self.layer}.{name}"] = models.random(len(self.weights), *shape) * np.float32(scale)
        return f"{self.layer}.{name}"

    def heads(self, x, name, heads):
        product = self("MatMul", x, self.parameter(name, C, heads * D))
        return self("Transpose", self("Reshape", product, self.constant(np.array([0, 0, heads, D]))), perm=[0, 2, 1, 3])

    def add(self, x, change, key_heads=H):
        q, k, v = self.heads(x, "q", H), self.heads(x, "k", key_heads), self.heads(x, "v", key_heads)
        if key_heads != H:
            shape = self.constant(np.array([B, H, self.positions, D]))
            k, v = (self("Reshape", self("Expand", self("Unsqueeze", z, self.constant(np.array([2]))),
                                         self.constant(np.array([B, key_heads, H // key_heads, self.positions, D]))), shape) for z in (k, v))
        scores = self("Mul", self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2])), self.constant(np.float32(D ** -0.5)))
        weights = self("Softmax", change(scores), axis=-1, name="softmax")
        rows = self("Transpose", self("MatMul", weights, v), perm=[0, 2, 1, 3])
        flat = self("Reshape", rows, self.constant(np.array([0, 0, C])))
        return self("Add", x, self("MatMul", flat, self.parameter("o", C, C, scale=0.3)))


def table(g, x):
    """Gathers a learned number for each head and distance."""
    distance = np.arange(g.positions)[:, None] - np.arange(g.positions)[None] + g.positions - 1
    rows = g("Gather", g.parameter("table", 2 * g.positions - 1, H), g.constant(distance))
    bias = g("Unsqueeze", g("Transpose", rows, perm=[2, 0, 1]), g.constant(np.array([0])))
    return g.add(x, lambda s: g("Add", s, bias))


def shared(g, x):
    """One bias for all heads, beside a causal mask, and heads that share keys."""
    bias = g.parameter("bias", 1, 1, g.positions, g.positions, scale=4)
    causal = g.constant(np.tril(np.ones((g.positions, g.positions), bool)))
    return g.add(x, lambda s: g("Where", causal, g("Add", s, bias), g.constant(np.float32(-np.inf))), key_heads=2)


def pairs(g, x):
    """A bias computed from each sample."""
    product = g("MatMul", g("MatMul", x, g.parameter("w", C, C, scale=0.1)), g("Transpose", x, perm=[0, 2, 1]))
    bias = g("Unsqueeze", product, g.constant(np.array([1])))
    return g.add(x, lambda s: g("Add", s, bias))


def slopes(g, x):
    distance = np.abs(np.arange(g.positions)[:, None] - np.arange(g.positions)[None])
    slope = np.float32(0.5) ** np.arange(1, H + 1, dtype=np.float32)
    bias = g.constant((-slope[:, None, None] * distance).astype(np.float32)[None])
    return g.add(x, lambda s: g("Add", s, bias))


def window(g, x):
    near = np.abs(np.arange(g.positions)[:, None] - np.arange(g.positions)[None]) <= 3
    return g.add(x, lambda s: g("Where", g.constant(near), s, g.constant(np.float32(-np.inf))))


def padding(g, x):
    unseen = g("Mul", g("Sub", g.constant(np.float32(1)), "seen"), g.constant(np.float32(-10000)))
    bias = g("Unsqueeze", unseen, g.constant(np.array([1, 2])))
    return g.add(x, lambda s: g("Add", s, bias))


def plain(g, x):
    """No addend at all."""
    return g.add(x, lambda s: s)


def causal(g, x):
    """A diagonal alone, and heads that share keys."""
    seen = g.constant(np.tril(np.ones((g.positions, g.positions), bool)))
    return g.add(x, lambda s: g("Where", seen, s, g.constant(np.float32(-np.inf))), key_heads=2)


PLAIN = {"plain": plain, "causal": causal}
LAYERS = {"table": table, "shared": shared, "pairs": pairs, "slopes": slopes, "window": window, "padding": padding}


def save(path, layers, positions=T):
    g = Layers(positions)
    x = "x"
    for g.layer in layers:
        x = (LAYERS | PLAIN)[g.layer](g, x)
    g.nodes.append(helper.make_node("Identity", [x], ["prediction"], "last/identity"))
    shapes = {"x": [B, positions, C]} | ({"seen": [B, positions]} if "padding" in layers else {})
    models.save(path, g.nodes, shapes, {"prediction": [B, positions, C]}, g.weights)


def columns(samples=2 * B):
    rng = np.random.default_rng(5)
    seen = np.ones((samples, T), np.float32)
    seen[1, 13:] = 0
    return {"x": rng.standard_normal((samples, T, C), np.float32), "y": rng.standard_normal((samples, T, C), np.float32), "seen": seen}
