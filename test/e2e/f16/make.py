"""Writes gradscaler.json: 50 updates of two models of the zoo in PyTorch, with GradScaler.

python make.py (needs torch, onnx, safetensors). Weights, data and recipes are the zoo's. Each run is listed with its losses, the scale
of each update and the updates that were skipped.

"autocast" is torch.autocast("cpu", torch.float16), from a scale at which nothing overflows. "wide" begins at a scale so large that the
first updates overflow, and grows after eight applied updates, so that later ones overflow again. With autocast the weight gradients
overflow, which it computes in f16; tcc keeps them in f32. So "wide" uses no autocast, but products of f16 operands with f16 results
whose weight gradients are summed in f32. "f32" are the losses of a run in f32 that skips the same updates. "moments" are the losses of
nano-gpt in f32 with AdamW's moments rounded to bf16 at random after each update, from three seeds.
"""
import json
from pathlib import Path

import onnx
import safetensors.torch
import torch
import torch.nn.functional as F

HEADS = 4
ZOO = Path(__file__).parents[1] / "zoo"
STEPS = 50
SCALER = {"init_scale": 2.0**26, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 8}
QUIET = 1024.0
EPS = 9.999999747378752e-06


class HalfProduct(torch.autograd.Function):
    """product(x, w) of f16 values, rounded to f16; the gradient of x is f16, that of w is summed in f32."""

    @staticmethod
    def forward(ctx, product, x, w):
        ctx.product, ctx.types = product, (x.dtype, w.dtype)
        x, w = x.half(), w.half()
        ctx.save_for_backward(x, w)
        return product(x.float(), w.float()).half()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x, w = (v.float().requires_grad_() for v in ctx.saved_tensors)
            dx, dw = torch.autograd.grad(ctx.product(x, w), (x, w), gradient.float())
        return None, dx.half().to(ctx.types[0]), dw


class Activations(torch.autograd.Function):
    """The product of two activations: both gradients are f16."""

    @staticmethod
    def forward(ctx, x, y):
        x, y = x.half(), y.half()
        ctx.save_for_backward(x, y)
        return (x.float() @ y.float()).half()

    @staticmethod
    def backward(ctx, g):
        x, y = (v.float() for v in ctx.saved_tensors)
        return (g.float() @ y.transpose(-1, -2)).half().float(), (x.transpose(-1, -2) @ g.float()).half().float()


WIDE = False


def linear(x, w, b=None):
    if not WIDE:
        return F.linear(x, w, b)
    y = HalfProduct.apply(F.linear, x, w).float()
    return y if b is None else y + b


def conv(x, w, **more):
    return HalfProduct.apply(lambda x, w: F.conv2d(x, w, **more), x, w).float() if WIDE else F.conv2d(x, w, **more)


def multiply(x, y):
    return Activations.apply(x, y).float() if WIDE else x @ y


def gpt(p, x):
    tokens = x["ids"]
    h = p["wte.weight"][tokens] + p["wpe.weight"][:tokens.shape[1]]
    for i in range(2):
        at = lambda name: (p[f"h.{i}.{name}.weight"], p[f"h.{i}.{name}.bias"])
        n = F.layer_norm(h, (48,), *at("ln_1"))
        q, k, v = (t.reshape(*tokens.shape, HEADS, 48 // HEADS).transpose(1, 2) for t in linear(n, *at("c_attn")).split(48, dim=2))
        scores = multiply(q, k.transpose(2, 3)) / (48 // HEADS) ** 0.5
        hidden = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        y = multiply(torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1), v)
        h = h + linear(y.transpose(1, 2).reshape(*tokens.shape, 48), *at("c_proj"))
        n = F.layer_norm(h, (48,), *at("ln_2"))
        h = h + linear(F.gelu(linear(n, *at("c_fc")), approximate="tanh"), *at("c_out"))
    return linear(F.layer_norm(h, (48,), p["ln_f.weight"], p["ln_f.bias"]), p["wte.weight"])


def cnn(p, x):
    h = x["image"]
    for i, stride in enumerate((1, 2, 2)):
        h = conv(h, p[f"{i}.0.weight"], stride=stride, padding=1)
        h = F.relu(F.batch_norm(h, p[f"{i}.1.running_mean"], p[f"{i}.1.running_var"], p[f"{i}.1.weight"], p[f"{i}.1.bias"], True, 0.1, EPS))
    return linear(h.mean((2, 3)), p["5.weight"], p["5.bias"])


def adamw(p):
    exempt = [v for k, v in p.items() if k.endswith(".bias") or "ln_" in k]
    rest = [v for k, v in p.items() if not (k.endswith(".bias") or "ln_" in k)]
    return torch.optim.AdamW([{"params": rest}, {"params": exempt, "weight_decay": 0.0}], lr=0.003, betas=(0.9, 0.95), weight_decay=0.1)


def sgd(p):
    exempt = [v for k, v in p.items() if ".1." in k]
    rest = [v for k, v in p.items() if ".1." not in k]
    return torch.optim.SGD([{"params": rest}, {"params": exempt, "weight_decay": 0.0}], lr=0.05, momentum=0.9, nesterov=True,
                           weight_decay=5e-4)


CASES = {
    "nano-gpt": (gpt, adamw, 4, 1.0, lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten())),
    "cnn-bn": (cnn, sgd, 16, None, lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1)),
}


def round_at_random(x, generator):
    """Rounds x to one of the two neighbouring bf16 numbers, the nearer one with the higher probability."""
    noise = torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32)
    x.copy_(((x.view(torch.int32) + noise) & ~0xFFFF).view(torch.float32))


def train(name, how, skipped=(), seed=None):
    """how: "f32", "autocast" or "wide"."""
    global WIDE
    WIDE, half = how == "wide", how != "f32"
    forward, optimizer, batch, clip, criterion = CASES[name]
    state = {i.name: torch.from_numpy(onnx.numpy_helper.to_array(i).copy()) for i in onnx.load(ZOO / name / "model.onnx").graph.initializer}
    trained = {k: v.requires_grad_() for k, v in state.items() if v.is_floating_point() and "running" not in k}
    data = safetensors.torch.load_file(ZOO / name / "data.safetensors")
    optimizer = optimizer(trained)
    scaler = torch.amp.GradScaler("cpu", enabled=half, **(SCALER if how == "wide" else {"init_scale": QUIET, "growth_interval": 1000}))
    count = len(data["labels"]) // batch
    generator = torch.Generator().manual_seed(seed or 0)
    run = {"loss": [], "loss_scale": [], "skipped": []}
    for step in range(STEPS):
        at = slice(step % count * batch, (step % count + 1) * batch)
        with torch.autocast("cpu", dtype=torch.float16, enabled=how == "autocast"):
            output = forward(state, {k: v[at] for k, v in data.items()})
        loss = criterion(output.float(), data["labels"][at])
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(trained.values(), clip)
        if step + 1 not in skipped:
            scaler.step(optimizer)
        scaler.update()
        for state_of in optimizer.state.values() if seed is not None else ():
            for key in ("exp_avg", "exp_avg_sq"):
                round_at_random(state_of[key], generator)
        run["loss"].append(loss.item())
        if half:
            run["loss_scale"].append(scale)
            if scaler.get_scale() < scale:
                run["skipped"].append(step + 1)
    return run if half else run["loss"]


out = {"torch": torch.__version__, "scaler": SCALER, "quiet": QUIET}
distance = lambda left, right: max(abs(a - b) / b for a, b in zip(left, right))
for name in CASES:
    exact = train(name, "f32")
    apart = distance(exact, json.loads((ZOO / name / "expected.json").read_text())["loss"])
    assert apart < 1e-4, f"{name}: this is not the zoo's model: {apart}"
    autocast, wide = train(name, "autocast"), train(name, "wide")
    assert not autocast["skipped"]
    out[name] = {"autocast": {"loss": autocast["loss"], "f32": exact}, "wide": wide | {"f32": train(name, "f32", wide["skipped"])}}
    print(name, "f32 against the zoo", apart, "autocast against f32", distance(autocast["loss"], exact))
    print("  wide skips", wide["skipped"], "against f32", distance(wide["loss"], out[name]["wide"]["f32"]))
out["moments"] = {"f32": train("nano-gpt", "f32"), "bf16": [train("nano-gpt", "f32", seed=seed) for seed in range(3)]}
for losses in out["moments"]["bf16"]:
    print("moments in bf16 against f32", distance(losses, out["moments"]["f32"]))
text = json.dumps(out).replace('{"loss"', '\n{"loss"').replace('"f32":', '\n"f32":').replace('"moments"', '\n"moments"')
Path(__file__).with_name("gradscaler.json").write_text(text + "\n")
