"""Makes the exports in this folder, and PyTorch's losses: how torch's exporters change parameters, buffers and constants.

make.py (torch 2.15, onnx, onnxscript, safetensors). A model computes its own loss from x and y. `dynamo` is the exporter as
a newcomer calls it, `raw` has optimize=False, `script` is the older exporter, `plain` that one without folding. Notes that
hold paths are removed; the exporters' other notes stay.
"""
import fnmatch
import json
import logging
import random
import warnings
from pathlib import Path

import onnx
import safetensors.torch
import torch
from torch import nn

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
HERE = Path(__file__).resolve().parent
STEPS, RATE = 5, 0.1
KEPT = ("name_scopes", "fx_node", "folded_from", "InputSpec.kind", "InputSpec.persistent", "original_node_name", "graph_signature")


def parameter(*values):
    return nn.Parameter(torch.tensor(values if len(values) > 1 else values[0]))


class Module(nn.Module):
    def forward(self, x, y):
        return (self.of(x) - y).square().mean()


class Scalars(Module):
    """A temperature, gates of residual branches, and a scale in the exponent: parameters of rank 0."""

    def __init__(self):
        super().__init__()
        self.f, self.temperature, self.gate, self.logit_scale = nn.Linear(4, 4), parameter(1.5), parameter(0.25), parameter(-0.5)

    def of(self, x):
        return (x + self.gate * torch.tanh(self.f(x) / self.temperature)) * torch.exp(self.logit_scale * x.mean())


class Functions(Module):
    """Functions of weights alone: exp, sigmoid, a sign, a sum and a product with a number."""

    def __init__(self):
        super().__init__()
        self.a_log, self.gate, self.w = parameter(1.0, -1.0, 0.5, 2.0), parameter(0.3, -0.2, 0.1, 0.7), nn.Parameter(torch.randn(4, 4))
        self.scale, self.small = parameter(0.1, 0.2, -0.1, 0.0), parameter(2.0, 1.0, 3.0, -2.0)

    def of(self, x):
        x = (x * self.a_log.exp() * torch.sigmoid(self.gate)) @ (-self.w)
        return torch.tanh(x * (1 + self.scale)) + self.small * 0.125


class Moved(Module):
    """Weights whose elements are only moved: transposed, sliced, reshaped, two concatenated to one matrix."""

    def __init__(self):
        super().__init__()
        self.w, self.both = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(2, 4))
        self.top, self.bottom, self.lin = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(2, 4)), nn.Linear(4, 4)

    def of(self, x):
        x = torch.tanh(x @ self.w.t()) * self.both[0].view(1, 4) + self.both[1]
        return self.lin(x[:, None])[:, 0] + x @ torch.cat([self.top, self.bottom])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 4)
        self.gamma_1, self.gamma_2 = nn.Parameter(torch.full((4,), 0.1)), nn.Parameter(torch.full((4,), 0.1))

    def forward(self, x):
        x = x + self.gamma_1 * self.f(x).tanh()
        return x + self.gamma_2 * self.g(x).tanh()


class Equal(Module):
    """Equal weights of one module, of two, and of a list."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(4)) for _ in range(2))
        self.norm = nn.LayerNorm(4)
        nn.init.zeros_(self.norm.weight)

    def of(self, x):
        for block, shift in zip(self.blocks, self.shifts):
            x = block(x + shift).tanh()
        return x + self.norm(x)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.gate = nn.Linear(4, 4), parameter(0.5)

    def forward(self, x):
        return x + self.gate * self.f(x).tanh()


class Literal(Module):
    """Gates whose initial values equal each other and a literal, and a scale whose initial value equals a mask."""

    def __init__(self):
        super().__init__()
        self.blocks, self.scale = nn.ModuleList(Gated() for _ in range(2)), nn.Parameter(torch.ones(4))
        self.register_buffer("ones", torch.ones(4))

    def of(self, x):
        for block in self.blocks:
            x = block(x) * 0.5
        return x * self.scale * self.ones


class Tied(Module):
    """One weight of two norms, and a third norm that starts equal."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.b.weight = self.a.weight

    def of(self, x):
        return self.c(self.b(self.a(x).tanh()).tanh())


class ZeroBias(Module):
    def __init__(self):
        super().__init__()
        self.f = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        for f in self.f:
            nn.init.zeros_(f.bias)

    def of(self, x):
        for f in self.f:
            x = f(x).tanh()
        return x


class ZeroWeights(Module):
    """Two layers of zeros that read one value: the exporter keeps only one of them."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        for f in (self.a, self.b):
            nn.init.zeros_(f.weight)

    def of(self, x):
        x = x[:, None]
        return (self.a(x).tanh() + self.b(x))[:, 0]


class Hidden(Module):
    """A function of a weight whose initial value equals another weight."""

    def __init__(self):
        super().__init__()
        self.scale, self.gate = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))

    def of(self, x):
        return torch.tanh(x * self.scale) * self.gate.exp()


class Repeated(Module):
    """A token that is repeated for every sample."""

    def __init__(self):
        super().__init__()
        self.token, self.f = nn.Parameter(torch.randn(1, 4)), nn.Linear(8, 4)

    def of(self, x):
        return self.f(torch.cat([self.token.expand(8, -1), x], 1))


class WeightNorm(Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4)

    def of(self, x):
        return self.g(self.f(x).tanh())


class Buffers(Module):
    """Registered buffers: one whose name says so, and one whose name does not."""

    def __init__(self):
        super().__init__()
        self.f, self.shift = nn.Linear(4, 4), parameter(0.1, 0.2, 0.3, 0.4)
        self.register_buffer("inv_freq", torch.tensor([0.9, 0.31, 0.12, 0.77]))
        self.register_buffer("levels", torch.tensor([0.4, -0.3, 0.2, 0.9]))

    def of(self, x):
        return self.f(x * self.inv_freq) * self.levels + self.shift


CASES = {"scalars": (Scalars, "dynamo raw script plain"), "functions": (Functions, "dynamo raw script plain"),
         "moved": (Moved, "dynamo raw script"), "equal": (Equal, "dynamo raw script"), "literal": (Literal, "dynamo raw script"),
         "tied": (Tied, "dynamo raw script"), "zero-bias": (ZeroBias, "dynamo raw"), "zero-weights": (ZeroWeights, "dynamo raw"),
         "hidden": (Hidden, "dynamo raw"), "repeated": (Repeated, "dynamo raw"), "weight-norm": (WeightNorm, "dynamo raw"),
         "buffers": (Buffers, "dynamo raw script")}
HOW = {"dynamo": {"dynamo": True, "external_data": False, "verbose": False},
       "raw": {"dynamo": True, "external_data": False, "verbose": False, "optimize": False},
       "script": {"dynamo": False},
       "plain": {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}}


def export(path, model, args, how):
    torch.onnx.export(model, args, path, input_names=["x", "y"], output_names=["loss"], **HOW[how])
    proto = onnx.load(path)
    strip(proto.graph)
    del proto.metadata_props[:]
    onnx.save(proto, path)


def strip(graph):
    for holder in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        holder.ClearField("doc_string")
        kept = [note for note in holder.metadata_props if note.key.endswith(KEPT)]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)


def matches(name, globs):
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def losses(build, x, y, trainable=("*",), frozen=()):
    torch.manual_seed(1)
    model = build()
    trained = [p for name, p in model.named_parameters() if matches(name, trainable) and not matches(name, frozen)]
    optimizer, values = torch.optim.SGD(trained, lr=RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def draws(x, y, seed=7, count=20):
    """Random globs for recipes, and PyTorch's losses when it trains the parameters that they select."""
    source, result = random.Random(seed), []
    while len(result) < count:
        case = source.choice(["scalars", "equal", "literal"])
        names = [name for name, _ in CASES[case][0]().named_parameters()]
        parts = names + [f"*.{name.rpartition('.')[2]}" for name in names if "." in name] + \
            [f"{name.rpartition('.')[0]}.*" for name in names if "." in name]
        globs = {key: sorted(set(source.sample(parts, source.randint(1, 3)))) for key in ("trainable", "frozen") if source.random() < 0.6}
        if globs and any(matches(n, globs.get("trainable", ["*"])) and not matches(n, globs.get("frozen", [])) for n in names):
            result.append({"case": case, "globs": globs, "losses": losses(CASES[case][0], x, y, **globs)})
    return result


def main():
    torch.manual_seed(0)
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    safetensors.torch.save_file({"x": x, "y": y}, HERE / "data.safetensors")
    expected = {}
    for name, (build, exports) in CASES.items():
        for how in exports.split():
            torch.manual_seed(1)
            export(HERE / f"{name}-{how}.onnx", build(), (x, y), how)
        expected[name] = {"losses": losses(build, x, y)}
    expected["zero-bias"]["without biases"] = losses(ZeroBias, x, y, frozen=["*.bias"])
    expected["draws"] = draws(x, y)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
