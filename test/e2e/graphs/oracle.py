"""Loss and gradients of a model of `generate.py` by PyTorch, in f64: `evaluate(model, inputs, weights)`.

Each op is PyTorch's function of the same meaning, chosen by ONNX's text and independently of the compiler.
"""
import contextlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch.overrides import TorchFunctionMode


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def axes_of(operands, rank):
    axes = tuple(int(a) for a in operands[1].reshape(-1)) if len(operands) > 1 else tuple(range(rank))
    return tuple(a % rank for a in axes) if rank else ()


def reduction(name):
    def run(o, a):
        x, axes, keep = o[0], axes_of(o, o[0].dim()), bool(a.get("keepdims", 1))
        if not axes:
            return x
        return {"ReduceSum": lambda: x.sum(axes, keep), "ReduceMean": lambda: x.mean(axes, keep), "ReduceMax": lambda: x.amax(axes, keep),
                "ReduceMin": lambda: x.amin(axes, keep), "ReduceL1": lambda: x.abs().sum(axes, keep), "ReduceSumSquare": lambda: (x * x).sum(axes, keep),
                "ReduceL2": lambda: (x * x).sum(axes, keep).sqrt(), "ReduceLogSumExp": lambda: torch.logsumexp(x, axes, keep)}[name]()
    return run


def slice_(o, a):
    x, (start, end, axis, step) = o[0], ([int(v[0]) for v in o[1:]] + [1])[:4]
    return x.index_select(axis, torch.tensor(range(x.shape[axis])[slice(start, None if end < -x.shape[axis] else end, step)]))


def pad(o, a):
    x, pads, mode = o[0], [int(v) for v in o[1]], a.get("mode", b"constant").decode()
    for axis in range(x.dim()):
        low, high, n = pads[axis], pads[x.dim() + axis], x.shape[axis]
        if not low and not high:
            continue
        if mode == "constant":
            zeros = lambda k: torch.zeros(*x.shape[:axis], k, *x.shape[axis + 1:], dtype=x.dtype)
            x = torch.cat([zeros(low), x, zeros(high)], axis)
        else:
            at = np.pad(np.arange(n), (low, high), mode=mode)
            x = x.index_select(axis, torch.from_numpy(at))
    return x


def norm(x, axes, eps, scale=None, shift=None, centre=True):
    if centre and x.dtype == torch.float32:  # PyTorch's kernel has the cancellation of a kernel; single steps would cancel more
        y = F.layer_norm(x, x.shape[axes[0]:], eps=eps)
    else:
        c = x - x.mean(axes, True) if centre else x
        y = c / torch.sqrt((c * c).mean(axes, True) + eps)
    y = y if scale is None else y * scale
    return y if shift is None else y + shift


def of_channels(v, rank):
    return v.reshape([1, -1] + [1] * (rank - 2))


def group_norm(o, a):
    x, g = o[0], a["num_groups"]
    y = norm(x.reshape(x.shape[0], g, -1), (2,), a["epsilon"]).reshape(x.shape)
    return y * of_channels(o[1], x.dim()) + of_channels(o[2], x.dim())


def instance_norm(o, a):
    axes = tuple(range(2, o[0].dim()))
    return norm(o[0], axes, a["epsilon"], of_channels(o[1], o[0].dim()), of_channels(o[2], o[0].dim()))


def gemm(o, a):
    x, w = o[0].t() if a.get("transA") else o[0], o[1].t() if a.get("transB") else o[1]
    y = a.get("alpha", 1.0) * (x @ w)
    return y + a.get("beta", 1.0) * o[2] if len(o) > 2 else y


def convolution(o, a):
    d = o[0].dim() - 2
    f = (F.conv1d, F.conv2d)[d - 1]
    return f(o[0], o[1], o[2] if len(o) > 2 else None, a["strides"], a["pads"][:d], a["dilations"], a["group"])


def transposed_convolution(o, a):
    d = o[0].dim() - 2
    return (F.conv_transpose1d, F.conv_transpose2d)[d - 1](o[0], o[1], None, a["strides"], a["pads"][:d], 0, a["group"])


def pool(kind):
    def run(o, a):
        d = o[0].dim() - 2
        return getattr(F, f"{kind}_pool{d}d")(o[0], a["kernel_shape"], a["strides"])
    return run


def cumsum(o, a):
    x, axis = o[0], int(o[1])
    x = x.flip(axis) if a.get("reverse") else x
    y = x.cumsum(axis)
    y = y - x if a.get("exclusive") else y
    return y.flip(axis) if a.get("reverse") else y


def attention(o, a):
    q, k, v = o[:3]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if a.get("is_causal"):
        s = s.masked_fill(~torch.ones(s.shape[2:], dtype=torch.bool).tril(), -torch.inf)
    return s.softmax(-1) @ v


def recurrent(kind):
    """One direction, ONNX's order of gates: LSTM i o f c, GRU z r h with linear_before_reset, RNN tanh."""
    def run(o, a):
        x, w, r = o[0], o[1][0], o[2][0]
        n = a["hidden_size"]
        bias = o[3][0] if len(o) > 3 else torch.zeros(2 * w.shape[0], dtype=x.dtype)
        wb, rb = bias.split(w.shape[0])
        h = torch.zeros(x.shape[1], n, dtype=x.dtype)
        c, out = h, []
        for step in x:
            i, g = step @ w.t() + wb, h @ r.t() + rb
            if kind == "LSTM":
                a_i, a_o, a_f, a_c = (i + g).split(n, 1)
                c = a_f.sigmoid() * c + a_i.sigmoid() * a_c.tanh()
                h = a_o.sigmoid() * c.tanh()
            elif kind == "GRU":
                (iz, ir, ih), (gz, gr, gh) = i.split(n, 1), g.split(n, 1)
                z, reset = (iz + gz).sigmoid(), (ir + gr).sigmoid()
                h = (1 - z) * (ih + reset * gh).tanh() + z * h
            else:
                h = (i + g).tanh()
            out.append(h)
        return torch.stack(out)[:, None]
    return run


OPS = {
    "Relu": lambda o, a: o[0].relu(), "Tanh": lambda o, a: o[0].tanh(), "Sigmoid": lambda o, a: o[0].sigmoid(), "Erf": lambda o, a: o[0].erf(),
    "Softplus": lambda o, a: F.softplus(o[0]), "Neg": lambda o, a: -o[0], "Abs": lambda o, a: o[0].abs(), "Gelu": lambda o, a: F.gelu(o[0]),
    "LeakyRelu": lambda o, a: F.leaky_relu(o[0], 0.01), "Elu": lambda o, a: F.elu(o[0]), "HardSwish": lambda o, a: F.hardswish(o[0]),
    "Sin": lambda o, a: o[0].sin(), "Cos": lambda o, a: o[0].cos(), "Softsign": lambda o, a: F.softsign(o[0]), "Mish": lambda o, a: F.mish(o[0]),
    "Selu": lambda o, a: F.selu(o[0]), "HardSigmoid": lambda o, a: (0.2 * o[0] + 0.5).clamp(0, 1), "Celu": lambda o, a: F.celu(o[0]),
    "Identity": lambda o, a: o[0], "Sqrt": lambda o, a: o[0].sqrt(),
    "Add": lambda o, a: o[0] + o[1], "Sub": lambda o, a: o[0] - o[1], "Mul": lambda o, a: o[0] * o[1], "Div": lambda o, a: o[0] / o[1],
    "Max": lambda o, a: torch.maximum(*torch.broadcast_tensors(*o)), "Min": lambda o, a: torch.minimum(*torch.broadcast_tensors(*o)),
    "Less": lambda o, a: o[0] < o[1], "Where": lambda o, a: torch.where(o[0], o[1], o[2]), "Clip": lambda o, a: o[0].clamp(float(o[1]), float(o[2])),
    "Softmax": lambda o, a: o[0].softmax(a["axis"]), "LogSoftmax": lambda o, a: o[0].log_softmax(a["axis"]),
    "LayerNormalization": lambda o, a: norm(o[0], (-1,), 1e-5, o[1], o[2]),
    "RMSNormalization": lambda o, a: norm(o[0], (-1,), 1e-5, o[1], centre=False),
    "InstanceNormalization": instance_norm, "GroupNormalization": group_norm,
    "MatMul": lambda o, a: o[0] @ o[1], "Gemm": gemm, "Einsum": lambda o, a: torch.einsum(a["equation"].decode(), *o),
    "Conv": convolution, "ConvTranspose": transposed_convolution, "MaxPool": pool("max"), "AveragePool": pool("avg"),
    "GlobalAveragePool": lambda o, a: o[0].mean(tuple(range(2, o[0].dim())), True), "GlobalMaxPool": lambda o, a: o[0].amax(tuple(range(2, o[0].dim())), True),
    "CumSum": cumsum, "Transpose": lambda o, a: o[0].permute(*a["perm"]), "Reshape": lambda o, a: o[0].reshape([int(n) for n in o[1]]),
    "Slice": slice_, "Expand": lambda o, a: o[0].expand(torch.broadcast_shapes(o[0].shape, tuple(int(n) for n in o[1]))),
    "Concat": lambda o, a: torch.cat(o, a["axis"]), "Pad": pad,
    "Gather": lambda o, a: o[0].index_select(a.get("axis", 0), o[1].reshape(-1) % o[0].shape[a.get("axis", 0)]).reshape(
        *o[0].shape[:a.get("axis", 0)], *o[1].shape, *o[0].shape[a.get("axis", 0) + 1:]),
    "GatherElements": lambda o, a: o[0].gather(a["axis"], o[1]), "ScatterElements": lambda o, a: o[0].scatter_add(a["axis"], o[1], o[2]),
    "Squeeze": lambda o, a: o[0].squeeze(int(o[1][0])), "Unsqueeze": lambda o, a: o[0].unsqueeze(int(o[1][0])),
    "Tile": lambda o, a: o[0].repeat(*(int(n) for n in o[1])), "Trilu": lambda o, a: o[0].triu() if a.get("upper", 1) else o[0].tril(),
    "Split": lambda o, a: o[0].split([int(n) for n in o[1]], a["axis"]), "Attention": attention,
    "LSTM": recurrent("LSTM"), "GRU": recurrent("GRU"), "RNN": recurrent("RNN"),
} | {name: reduction(name) for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")}


class Rounded(torch.autograd.Function):
    """Changes each element, and each element of the gradient, by up to `unit` of it, at random."""
    @staticmethod
    def forward(ctx, x, draw, unit):
        ctx.draw, ctx.unit = draw, unit
        return x * (1 + unit * (2 * torch.rand(x.shape, generator=draw, dtype=x.dtype) - 1))

    @staticmethod
    def backward(ctx, grad):
        return Rounded.forward(ctx, grad, ctx.draw, ctx.unit), None, None


class Rounding(TorchFunctionMode):
    """Rounds the results of all PyTorch functions at random, also inside the ops above."""
    def __init__(self, seed, unit):
        super().__init__()
        self.draw, self.unit = torch.Generator().manual_seed(seed), unit

    def rounded(self, x):
        return Rounded.apply(x, self.draw, self.unit) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return self.rounded(function(*args, **(kwargs or {})))


def evaluate(model, inputs, weights, dtype=torch.float64, rounding=None):
    """(loss, gradient by weight), numpy in f64. `rounding`: a Rounding."""
    found = {}
    for i in model.graph.initializer:
        t = torch.tensor(numpy_helper.to_array(i))
        found[i.name] = t.to(dtype) if t.is_floating_point() else t
    for name in weights:
        found[name] = found[name].clone().requires_grad_()
    for name, x in inputs.items():
        t = torch.tensor(x)
        found[name] = t.to(dtype) if t.is_floating_point() else t
    with rounding or contextlib.nullcontext():
        for node in model.graph.node:
            read = [found[n] for n in node.input]
            if rounding and rounding.unit > 2.0 ** -24:     # inputs and weights are exact in f32 already
                read = [rounding.rounded(x) for x in read]
            results = OPS[node.op_type](read, attributes(node))
            found |= zip(node.output, results if len(node.output) > 1 else [results])
    loss = found["loss"]
    grads = torch.autograd.grad(loss, [found[n] for n in weights], allow_unused=True) if loss.requires_grad else [None] * len(weights)
    return float(loss.detach()), {n: (np.zeros(found[n].shape) if g is None else g.double().numpy()) for n, g in zip(weights, grads)}
