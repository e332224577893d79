"""Random ONNX graphs with a loss and trained weights, for `graph_fuzz.py`.

`graph(seed)` gives a model, the values of its inputs, and the names of its weights; the same seed gives the same bytes.
A graph is a random walk: each step takes existing values, some of them several times, and adds an op, a composite as exporters
write it, or a movement (broadcast, slice, transpose, reshape, concatenation, padding). From seed RECURRENCES on, it also has a
recurrence with a random step, unrolled many times. Values stay near 1, so that f32 can be compared with f64.
"""
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 23
LARGEST = 4096          # elements of a value
UNARY = ("Relu", "Tanh", "Sigmoid", "Erf", "Softplus", "Neg", "Abs", "Gelu", "LeakyRelu", "Elu", "HardSwish", "Sin", "Cos",
         "Softsign", "Mish", "Selu", "HardSigmoid", "Celu", "Identity")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceL1")


class Value:
    def __init__(self, name, shape):
        self.name, self.shape = name, tuple(shape)

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))


class Graph:
    """The graph under construction: nodes, weights, inputs, and the pool of values that later steps may read."""

    def __init__(self, seed):
        self.pick = random.Random(seed)
        self.draw = np.random.default_rng(seed)
        self.nodes, self.weights, self.constants, self.inputs, self.pool = [], {}, {}, {}, []
        self.batch = self.pick.choice((1, 2, 3, 4))

    # Names and tensors.
    def name(self, stem):
        self.count = getattr(self, "count", 0) + 1
        return f"{stem}{self.count}"

    def constant(self, array, stem="c"):
        name = self.name(stem)
        self.constants[name] = np.asarray(array)
        return name

    def integers(self, *values):
        return self.constant(np.array(values, np.int64), "i")

    def weight(self, shape, scale=None):
        """Never a scalar: without an exporter's notes those are constants."""
        shape = tuple(shape) or (1,)
        name = self.name("w")
        scale = scale if scale is not None else 1 / np.sqrt(max(shape[0] if len(shape) > 1 else 1, 1))
        self.weights[name] = (self.draw.standard_normal(shape) * scale).astype(np.float32)
        return Value(name, shape)

    def input(self, shape):
        name = self.name("x")
        self.inputs[name] = self.draw.standard_normal(shape).astype(np.float32)
        return Value(name, shape)

    def indices(self, shape, extent):
        name = self.name("n")
        self.inputs[name] = self.draw.integers(0, extent, shape).astype(np.int64)
        return Value(name, shape)

    def add(self, op, operands, shape, outputs=1, **attributes):
        names = [self.name(op[:2].lower()) for _ in range(outputs)]
        operands = [o.name if isinstance(o, Value) else o for o in operands]
        self.nodes.append(helper.make_node(op, operands, names, f"{op}_{len(self.nodes)}", **attributes))
        if outputs > 1:
            return [Value(n, s) for n, s in zip(names, shape)]
        return Value(names[0], shape)

    # Choices.
    def one_of(self, count):
        return self.pick.randrange(count) == 0

    def value(self, fits=lambda v: True):
        found = [v for v in self.pool if fits(v)]
        if not found:
            return None
        return found[max(self.pick.randrange(len(found)), self.pick.randrange(len(found)))]     # prefers recent values, so that chains form

    def axis(self, v):
        return self.pick.randrange(v.rank)

    def extent(self):
        return self.pick.choice((1, 2, 3, 4, 5, 7, 8, 12, 16))

    # Movements.
    def moved(self, v):
        """Applies a random movement, which often changes the shape."""
        kinds = [k for k in (self.transposed, self.reshaped, self.sliced, self.expanded, self.joined, self.padded, self.gathered,
                             self.reduced, self.squeezed, self.tiled)]
        return self.pick.choice(kinds)(v)

    def transposed(self, v):
        if v.rank < 2:
            return v
        order = self.pick.sample(range(v.rank), v.rank)
        return self.add("Transpose", [v], [v.shape[i] for i in order], perm=order)

    def reshaped(self, v):
        shape = list(v.shape)
        if len(shape) > 1 and self.one_of(2):
            at = self.pick.randrange(len(shape) - 1)
            shape[at:at + 2] = [shape[at] * shape[at + 1]]
        elif shape:
            at = self.pick.randrange(len(shape))
            factors = [f for f in (2, 3, 4) if shape[at] % f == 0]
            if not factors or len(shape) > 4:
                return v
            f = self.pick.choice(factors)
            shape[at:at + 1] = [f, shape[at] // f] if self.one_of(2) else [shape[at] // f, f]
        return self.add("Reshape", [v, self.integers(*shape)], shape)

    def sliced(self, v):
        if not v.rank:
            return v
        axis = self.axis(v)
        n = v.shape[axis]
        if self.one_of(3):
            shape = list(v.shape)
            return self.add("Slice", [v, self.integers(n - 1), self.integers(-n - 1), self.integers(axis), self.integers(-1)], shape)
        start, step = self.pick.randrange(n), self.pick.choice((1, 1, 1, 2))
        end = self.pick.randrange(start + 1, n + 1)
        shape = list(v.shape)
        shape[axis] = len(range(start, end, step))
        return self.add("Slice", [v, self.integers(start), self.integers(end), self.integers(axis), self.integers(step)], shape)

    def expanded(self, v):
        shape = [self.pick.choice((2, 3)) if n == 1 and self.one_of(2) else n for n in v.shape]
        if len(shape) < 4 and self.one_of(2):
            shape.insert(0, self.pick.choice((1, 2, 3)))
        if np.prod(shape) > LARGEST or tuple(shape) == v.shape:
            return v
        return self.add("Expand", [v, self.integers(*shape)], shape)

    def joined(self, v):
        if not v.rank:
            return v
        axis = self.axis(v)
        like = self.value(lambda o: o.rank == v.rank and all(a == b for i, (a, b) in enumerate(zip(o.shape, v.shape)) if i != axis)) or v
        shape = list(v.shape)
        shape[axis] += like.shape[axis]
        if np.prod(shape) > LARGEST:
            return v
        return self.add("Concat", [v, like] if self.one_of(2) else [like, v], shape, axis=axis)

    def padded(self, v):
        if not v.rank or v.rank > 4:
            return v
        axis = self.axis(v)
        mode = self.pick.choice(("constant", "edge", "reflect"))
        most = v.shape[axis] - 1 if mode == "reflect" else 2
        low, high = self.pick.randint(0, min(2, most)), self.pick.randint(0, min(2, most))
        shape = list(v.shape)
        shape[axis] += low + high
        pads = [0] * (2 * v.rank)
        pads[axis], pads[v.rank + axis] = low, high
        if np.prod(shape) > LARGEST:
            return v
        return self.add("Pad", [v, self.integers(*pads)], shape, mode=mode)

    def gathered(self, v):
        if not v.rank:
            return v
        axis = self.axis(v)
        count = self.pick.choice((1, 2, 3, 5))
        rows = self.integers(*(self.pick.randrange(-v.shape[axis], v.shape[axis]) for _ in range(count)))
        if self.one_of(2):
            rows = self.indices([count], v.shape[axis])
        shape = list(v.shape)
        shape[axis] = count
        if np.prod(shape) > LARGEST:
            return v
        return self.add("Gather", [v, rows], shape, axis=axis)

    def reduced(self, v):
        if not v.rank:
            return v
        axes = sorted(self.pick.sample(range(v.rank), self.pick.randint(1, v.rank)))
        keep = self.pick.randrange(2)
        shape = [1 if i in axes else n for i, n in enumerate(v.shape) if keep or i not in axes]
        op = self.pick.choice(REDUCTIONS)
        if op in ("ReduceSum", "ReduceL2", "ReduceSumSquare", "ReduceL1") and np.prod([v.shape[a] for a in axes]) > 12:
            op = "ReduceMean"
        axes = [a - v.rank if self.one_of(3) else a for a in axes]
        return self.add(op, [v, self.integers(*axes)], shape, keepdims=keep)

    def squeezed(self, v):
        if 1 in v.shape and self.one_of(2):
            axis = v.shape.index(1)
            return self.add("Squeeze", [v, self.integers(axis)], v.shape[:axis] + v.shape[axis + 1:])
        if v.rank > 4:
            return v
        axis = self.pick.randint(0, v.rank)
        return self.add("Unsqueeze", [v, self.integers(axis)], v.shape[:axis] + (1,) + v.shape[axis:])

    def tiled(self, v):
        if not v.rank or v.size * 2 > LARGEST:
            return v
        times = [1] * v.rank
        times[self.axis(v)] = 2
        return self.add("Tile", [v, self.integers(*times)], [n * t for n, t in zip(v.shape, times)])

    def shaped(self, v, shape):
        """A value of exactly that shape, made from `v` by movements if possible, else from a weight."""
        shape = tuple(shape)
        if v.shape == shape:
            return v
        if v.size == int(np.prod(shape)):
            return self.add("Reshape", [v, self.integers(*shape)], shape)
        if self.one_of(2):
            mean = self.add("ReduceMean", [v, self.integers(*range(v.rank))], [1] * v.rank, keepdims=1) if v.rank else v
            flat = self.add("Reshape", [mean, self.integers(*[1] * len(shape))], [1] * len(shape))
            return self.add("Mul", [flat, self.weight(shape, 0.5)], shape)
        return self.weight(shape, 0.5)

    # Ops.
    def unary(self):
        v = self.value()
        return self.add(self.pick.choice(UNARY), [v], v.shape)

    def binary(self):
        x = self.value()
        shape = list(x.shape)
        if self.one_of(2):      # the second operand is broadcast: it has only the last dimensions
            shape = [1 if self.one_of(2) else n for n in shape[self.pick.randint(0, len(shape)):]]
        y = self.value(lambda o: o.shape == tuple(shape)) if self.one_of(2) else None
        y = y or self.weight(shape, 0.7)
        op = self.pick.choice(BINARY)
        if op == "Mul" and self.one_of(3):      # division by a value of at least 1
            square = self.add("Mul", [y, y], y.shape)
            y, op = self.add("Add", [square, self.constant(np.float32(1))], y.shape), "Div"
        return self.add(op, [y, x] if op in ("Sub", "Add", "Mul") and self.one_of(2) else [x, y], np.broadcast_shapes(x.shape, y.shape))

    def choice(self):
        x = self.value()
        y = self.value(lambda o: o.shape == x.shape) or x
        mask = self.add("Less", [x, self.constant(np.float32(self.pick.uniform(-0.5, 0.5)))], x.shape)
        other = self.pick.choice((y.name, self.constant(np.float32(0))))
        return self.add("Where", [mask, x, other] if self.one_of(2) else [mask, other, x], x.shape)

    def clipped(self):
        v = self.value()
        return self.add("Clip", [v, self.constant(np.float32(-0.8)), self.constant(np.float32(0.9))], v.shape)

    def softmax(self):
        v = self.value(lambda o: o.rank)
        if not v:
            return None
        return self.add(self.pick.choice(("Softmax", "LogSoftmax", "Softmax")), [v], v.shape, axis=self.axis(v) - (v.rank if self.one_of(2) else 0))

    def norm(self):
        v = self.value(lambda o: o.rank >= 2 and o.shape[-1] > 1)
        if not v:
            return None
        scale, shift = self.weight(v.shape[-1:], 0.5), self.weight(v.shape[-1:], 0.5)
        if self.one_of(2):
            return self.add("LayerNormalization", [v, scale, shift], v.shape, axis=-1)
        if self.one_of(2):
            return self.add("RMSNormalization", [v, scale], v.shape, axis=-1)
        axes = self.integers(-1)
        mean = self.add("ReduceMean", [v, axes], v.shape[:-1] + (1,), keepdims=1)
        centred = self.add("Sub", [v, mean], v.shape)
        square = self.add("Mul", [centred, centred], v.shape)
        variance = self.add("ReduceMean", [square, axes], mean.shape, keepdims=1)
        root = self.add("Sqrt", [self.add("Add", [variance, self.constant(np.float32(1e-3))], mean.shape)], mean.shape)
        return self.add("Mul", [self.add("Div", [centred, root], v.shape), scale], v.shape)

    def channel_norm(self):
        v = self.value(lambda o: o.rank >= 3 and o.size // (o.shape[0] * o.shape[1]) > 1)
        if not v:
            return None
        c = v.shape[1]
        scale, shift = self.weight([c], 0.5), self.weight([c], 0.5)
        groups = [g for g in (1, 2, 3, 4) if c % g == 0]
        if self.one_of(3):
            return self.add("InstanceNormalization", [v, scale, shift], v.shape, epsilon=1e-3)
        return self.add("GroupNormalization", [v, scale, shift], v.shape, num_groups=self.pick.choice(groups), epsilon=1e-3)

    def product(self):
        x = self.value(lambda o: o.rank >= 2)
        if not x:
            return None
        n = self.extent()
        y = self.value(lambda o: o.rank >= 2 and o.shape[-2] == x.shape[-1] and (o.rank == 2 or o.shape[:-2] == x.shape[:-2]))
        if not y or self.one_of(2):
            y = self.weight((x.shape[-1], n) if x.rank == 2 or self.one_of(2) else x.shape[:-2] + (x.shape[-1], n))
        shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2]) + (x.shape[-2], y.shape[-1])
        if np.prod(shape) > LARGEST:
            return None
        r = self.add("MatMul", [x, y], shape)
        if not y.name.startswith("w"):
            r = self.add("Mul", [r, self.constant(np.float32(x.shape[-1] ** -0.5))], shape)
        return r

    def gemm(self):
        x = self.value(lambda o: o.rank == 2)
        if not x:
            return None
        trans_a, trans_b, n = self.pick.randrange(2), self.pick.randrange(2), self.extent()
        m, k = (x.shape[1], x.shape[0]) if trans_a else x.shape
        w = self.weight((n, k) if trans_b else (k, n), k ** -0.5)
        c = [self.weight(self.pick.choice(((n,), (m, n), (1, n), (m, 1), (1,))), 0.5)] if self.one_of(2) else []
        return self.add("Gemm", [x, w, *c], (m, n), transA=trans_a, transB=trans_b, alpha=self.pick.choice((1.0, 0.5)), beta=self.pick.choice((1.0, 2.0)))

    def einsum(self):
        x = self.value(lambda o: o.rank == 3)
        if not x:
            return None
        a, b, c = x.shape
        d = self.extent()
        return self.pick.choice((
            lambda: self.add("Einsum", [x, self.weight((c, d))], (a, d, b), equation="abc,cd->adb"),
            lambda: self.add("Einsum", [x, self.weight((b, d))], (a, c, d), equation="abc,bd->acd"),
            lambda: self.add("Einsum", [x, self.weight((a, c), 0.5)], (b, a), equation="abc,ac->ba")))()

    def convolution(self):
        x = self.value(lambda o: o.rank in (3, 4) and min(o.shape[2:]) >= 2)
        if not x:
            return None
        d, c = x.rank - 2, x.shape[1]
        groups = self.pick.choice([g for g in (1, 1, 2, c) if c % g == 0])
        features = groups * self.pick.choice((1, 2, 4))
        kernel = [self.pick.randint(1, min(3, n)) for n in x.shape[2:]]
        stride, dilation = [self.pick.choice((1, 1, 2)) for _ in range(d)], [1] * d
        pads = [self.pick.randint(0, k // 2) for k in kernel]
        if self.one_of(4) and not self.one_of(3):
            w = self.weight([c, features // groups, *kernel], 0.5)
            out = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(x.shape[2:], stride, kernel, pads)]
            if min(out) < 1 or x.shape[0] * features * np.prod(out) > LARGEST:
                return None
            return self.add("ConvTranspose", [x, w], (x.shape[0], features, *out), kernel_shape=kernel, strides=stride, pads=pads * 2, group=groups)
        w = self.weight([features, c // groups, *kernel], 0.5)
        out = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], pads, kernel, stride)]
        if min(out) < 1 or x.shape[0] * features * np.prod(out) > LARGEST:
            return None
        bias = [self.weight([features], 0.5)] if self.one_of(2) else []
        return self.add("Conv", [x, w, *bias], (x.shape[0], features, *out), kernel_shape=kernel, strides=stride, pads=pads * 2, dilations=dilation, group=groups)

    def pool_window(self):
        x = self.value(lambda o: o.rank in (3, 4) and min(o.shape[2:]) >= 2)
        if not x:
            return None
        op = self.pick.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
        if op.startswith("Global"):
            return self.add(op, [x], x.shape[:2] + (1,) * (x.rank - 2))
        kernel = [2] * (x.rank - 2)
        stride = [self.pick.choice((1, 2)) for _ in kernel]
        out = [(n - 2) // s + 1 for n, s in zip(x.shape[2:], stride)]
        return self.add(op, [x], (*x.shape[:2], *out), kernel_shape=kernel, strides=stride)

    def scan(self):
        v = self.value(lambda o: o.rank)
        if not v:
            return None
        axis = self.axis(v)
        r = self.add("CumSum", [v, self.constant(np.int64(axis))], v.shape, exclusive=self.pick.randrange(2), reverse=self.pick.randrange(2))
        return self.add("Mul", [r, self.constant(np.float32(1 / v.shape[axis]))], v.shape)

    def looked_up(self):
        rows, width, n = self.extent() + 1, self.extent(), self.pick.choice((1, 3, 6))
        return self.add("Gather", [self.weight((rows, width), 0.7), self.indices([self.batch, n], rows)], (self.batch, n, width))

    def by_element(self):
        v = self.value(lambda o: o.rank)
        if not v:
            return None
        axis = self.axis(v)
        shape = list(v.shape)
        shape[axis] = self.pick.choice((1, 2, 3))
        where = self.indices(shape, v.shape[axis])
        if self.one_of(2):
            return self.add("GatherElements", [v, where], shape, axis=axis)
        updates = self.weight(shape, 0.7)
        return self.add("ScatterElements", [v, where, updates], v.shape, axis=axis, reduction="add")

    def triangle(self):
        v = self.value(lambda o: o.rank >= 2)
        return v and self.add("Trilu", [v], v.shape, upper=self.pick.randrange(2))

    def split(self):
        v = self.value(lambda o: o.rank and any(n > 1 for n in o.shape))
        if not v:
            return None
        axis = self.pick.choice([i for i, n in enumerate(v.shape) if n > 1])
        first = self.pick.randrange(1, v.shape[axis])
        shapes = [tuple(k if i == axis else n for i, n in enumerate(v.shape)) for k in (first, v.shape[axis] - first)]
        a, b = self.add("Split", [v, self.integers(first, v.shape[axis] - first)], shapes, outputs=2, axis=axis)
        self.pool.append(a)
        return b

    def recurrent(self):
        v = self.value(lambda o: o.rank == 3 and o.shape[0] <= 8)
        if not v:
            return None
        length, batch, width = v.shape
        hidden = self.pick.choice((2, 5))
        kind, gates = self.pick.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        w, r = self.weight((1, gates * hidden, width), width ** -0.5), self.weight((1, gates * hidden, hidden), 0.4)
        bias = [self.weight((1, 2 * gates * hidden), 0.3)] if self.one_of(2) else []
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        y = self.add(kind, [v, w, r, *bias], (length, 1, batch, hidden), hidden_size=hidden, **more)
        return self.add("Squeeze", [y, self.integers(1)], (length, batch, hidden))

    def attention(self):
        """Attention as an op or as its spelling on heads made from pool values; its result is pooled, moved or read directly."""
        b, h, n, m, d, e = self.batch, self.pick.choice((1, 2, 3)), *(self.pick.choice((1, 3, 5, 6)) for _ in range(2)), self.pick.choice((2, 4, 6)), self.pick.choice((2, 4, 5))
        kv = self.pick.choice([k for k in (1, h) if h % k == 0])
        q, k, v = (self.heads(s) for s in ((b, h, n, d), (b, kv, m, d), (b, kv, m, e)))
        scale = self.constant(np.float32(d ** -0.5))
        form = self.pick.choice(("op", "op", "causal", "spelled", "masked"))
        out = (b, h, n, e)
        if form in ("op", "causal"):
            return self.add("Attention", [q, k, v], out, is_causal=int(form == "causal"))
        if kv != h:
            k, v = (self.add("Expand", [x, self.integers(b, h, *x.shape[2:])], (b, h, *x.shape[2:])) for x in (k, v))
        turned = self.add("Transpose", [k], (b, h, d, m), perm=[0, 1, 3, 2])
        if self.one_of(2):
            q = self.add("Mul", [q, scale], q.shape)
            scores = self.add("MatMul", [q, turned], (b, h, n, m))
        else:
            scores = self.add("Mul", [self.add("MatMul", [q, turned], (b, h, n, m)), scale], (b, h, n, m))
        if form == "masked":
            shape = self.pick.choice(((n, m), (1, 1, n, m), (b, 1, 1, m), (h, n, m)))
            mask = self.weight(shape, 0.7) if self.one_of(2) else self.constant(np.where(self.draw.random(shape) < 0.3, -1e4, 0).astype(np.float32))
            scores = self.add("Add", [scores, mask], (b, h, n, m))
        return self.add("MatMul", [self.add("Softmax", [scores], scores.shape, axis=-1), v], out)

    def heads(self, shape):
        """Heads as exporters and users make them; sometimes dimensions are broadcast."""
        b, h, n, d = shape
        form = self.pick.randrange(5)
        if form == 0:       # a projection, split and transposed
            x = self.value(lambda o: o.shape == (b, n, h * d)) or self.shaped(self.value(), (b, n, h * d))
            split = self.add("Reshape", [x, self.integers(b, n, h, d)], (b, n, h, d))
            return self.add("Transpose", [split], shape, perm=[0, 2, 1, 3])
        if form == 1:       # broadcast along one dimension or several
            narrow = tuple(1 if self.one_of(3) else s for s in shape)
            x = self.shaped(self.value(), narrow)
            return x if narrow == shape else self.add("Expand", [x, self.integers(*shape)], shape)
        if form == 2:       # a part of a larger tensor
            whole = (b, h, n, d + 3)
            x = self.shaped(self.value(), whole)
            return self.add("Slice", [x, self.integers(1), self.integers(d + 1), self.integers(3)], shape)
        if form == 3 and d > 1:
            a, c = self.shaped(self.value(), (b, h, n, 1)), self.weight((b, h, n, d - 1), 0.7)
            return self.add("Concat", [a, c], shape, axis=3)
        return self.shaped(self.value(), shape)

    def recurrence(self):
        """A recurrence over one or two states: one random step, unrolled many times."""
        steps = self.pick.randint(16, 40)
        full = (self.batch, *(self.extent() for _ in range(self.pick.choice((1, 2, 2)))))
        if np.prod(full) * steps > LARGEST:
            full = full[:2]
        row = (*full[:-1], 1)
        states = [self.shaped(self.value(), full) for _ in range(self.pick.choice((1, 1, 2)))]
        parts = [self.parts_of_steps(self.pick.choice((full, full, row)), steps) for _ in range(self.pick.choice((1, 2, 3)))]
        fixed = [self.weight(self.pick.choice((full[-1:], full[1:], full)), 0.7) for _ in range(self.pick.choice((1, 2)))]
        square = self.weight((full[-1], full[-1]), 0.5)
        # The ops of a step: (op, operands by their index among all values so far). Rows are broadcast to whole values.
        shapes = [v.shape for v in (*states, *(p[0] for p in parts), *fixed)]
        program = []
        for _ in range(self.pick.randint(2, 6)):
            op = self.pick.choice(("Add", "Mul", "Sub", "Max", "Tanh", "Sigmoid", "MatMul", "ReduceMean", "ReduceMax", "Softmax"))
            one, two = self.pick.randrange(len(shapes)), self.pick.randrange(len(shapes))
            if op in ("Add", "Mul", "Sub", "Max"):
                shapes.append(np.broadcast_shapes(shapes[one], shapes[two]))
            elif op == "MatMul" and len(shapes[one]) > 1 and shapes[one][-1] == full[-1]:
                shapes.append(shapes[one])
            elif op.startswith("Reduce"):
                shapes.append((*shapes[one][:-1], 1))
            else:
                op = op if op in ("Tanh", "Sigmoid") else "Tanh"
                shapes.append(shapes[one])
            program.append((op, one, two))
        first = len(shapes) - len(program)
        whole = [i for i in range(first, len(shapes)) if shapes[i] == full]
        nexts = [self.pick.choice(whole + [j for j in range(len(states)) if j != i] or [i]) for i in range(len(states))]
        if whole:
            nexts[0] = self.pick.choice(whole)
        output = self.pick.choice(range(first, len(shapes)))
        outputs, axis = [], self.pick.randrange(-1, len(shapes[output]))
        for step in range(steps):
            values = states + [p[step] for p in parts] + fixed
            for (op, one, two), shape in zip(program, shapes[first:]):
                operands = [values[one], values[two]] if op in ("Add", "Mul", "Sub", "Max") else [values[one], square] if op == "MatMul" else [values[one]]
                more = [self.axes_last()] if op.startswith("Reduce") else []
                values.append(self.add(op, operands + more, shape, **({"keepdims": 1} if more else {})))
            outputs.append(values[output])
            # The mean with the previous state, so that values stay near 1.
            states = [self.add("Mul", [self.add("Add", [values[n], s], full), self.half()], full) if n >= first else values[n]
                      for n, s in zip(nexts, states)]
        if self.one_of(3):
            outputs.reverse()
        self.pool += states
        if self.one_of(4):      # only two outputs are read
            return self.add("Add", [outputs[3], outputs[-2]], outputs[0].shape)
        if axis < 0:
            stacked = [self.add("Unsqueeze", [o, self.integers(1)], (o.shape[0], 1, *o.shape[1:])) for o in outputs]
            return self.add("Concat", stacked, (outputs[0].shape[0], steps, *outputs[0].shape[1:]), axis=1)
        shape = list(outputs[0].shape)
        shape[axis] *= steps
        return self.add("Concat", outputs, shape, axis=axis)

    def axes_last(self):
        if not hasattr(self, "last"):
            self.last = self.integers(-1)
        return self.last

    def half(self):
        if not hasattr(self, "halves"):
            self.halves = self.constant(np.float32(0.5))
        return self.halves

    def parts_of_steps(self, shape, steps):
        """A tensor's slices for each step, side by side along some axis, forwards or backwards."""
        axis = self.pick.randrange(len(shape) + 1)
        narrow = self.one_of(2) or axis == len(shape)       # a dimension of extent 1, which is removed
        whole = list(shape)
        if narrow:
            whole.insert(axis, steps)
        else:
            whole[axis] *= steps
        x = self.shaped(self.value(), tuple(whole))
        width = 1 if narrow else shape[axis]
        order = range(steps - 1, -1, -1) if self.one_of(3) else range(steps)
        parts = []
        for i in order:
            part = self.add("Slice", [x, self.integers(i * width), self.integers((i + 1) * width), self.integers(axis)],
                            (*whole[:axis], width, *whole[axis + 1:]))
            parts.append(self.add("Squeeze", [part, self.integers(axis)], shape) if narrow else part)
        return parts

    STEPS = ((unary, 6), (binary, 6), (choice, 2), (clipped, 1), (softmax, 2), (norm, 2), (channel_norm, 1), (product, 4), (gemm, 2), (einsum, 1),
             (convolution, 3), (pool_window, 1), (scan, 1), (looked_up, 1), (by_element, 2), (triangle, 1), (split, 1), (recurrent, 1),
             (attention, 3))

    def step(self):
        step = self.pick.choices([s for s, _ in self.STEPS], [w for _, w in self.STEPS])[0]
        v = step(self)
        if v is None:
            return
        while self.one_of(2):
            v = self.moved(v)
        if v.size > 256 and self.one_of(2):
            v = self.reduced(v)
        self.pool.append(v)

    def finish(self):
        """Adds the loss: weighted means of some values, including all that are not read otherwise."""
        read = {name for node in self.nodes for name in node.input}
        ends = [v for v in self.pool if v.name not in read]
        ends += [v for v in self.pool if v.name in read and self.one_of(6)]
        total = None
        for v in ends:
            coefficients = self.constant(self.draw.standard_normal(v.shape).astype(np.float32))
            part = self.add("ReduceMean", [self.add("Mul", [self.add("Tanh", [v], v.shape) if self.one_of(2) else v, coefficients], v.shape)], (), keepdims=0)
            total = part if total is None else self.add("Add", [total, part], ())
        self.nodes.append(helper.make_node("Identity", [total.name], ["loss"], "loss"))


RECURRENCES = 1_000_000_000     # from this seed on graphs have a recurrence


def graph(seed):
    """(model, inputs by name, names of weights)."""
    g = Graph(seed)
    for _ in range(g.pick.randint(1, 3)):
        rank = g.pick.choice((1, 2, 2, 3, 3))
        g.pool.append(g.input([g.batch, *(g.extent() for _ in range(rank))]))
    recurs = seed >= RECURRENCES
    for _ in range(g.pick.randint(0, 3) if recurs else g.pick.randint(3, 14)):
        g.step()
    if recurs:
        g.pool.append(g.recurrence())
        for _ in range(g.pick.randint(0, 3)):
            g.step()
    g.finish()
    used = {name for node in g.nodes for name in node.input}
    weights = {n: w for n, w in g.weights.items() if n in used}
    inputs = {n: x for n, x in g.inputs.items() if n in used}
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64 if x.dtype == np.int64 else TensorProto.FLOAT, x.shape) for n, x in inputs.items()]
    model = helper.make_model(
        helper.make_graph(g.nodes, f"graph{seed}", infos, [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
                          [numpy_helper.from_array(a, n) for n, a in (weights | {n: c for n, c in g.constants.items() if n in used}).items()]),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return model, inputs, list(weights)
