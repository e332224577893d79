"""Makes the files beside it: a small model, its data, and what PyTorch makes of each case's steps.

    python make.py          (torch 2.15, onnx, safetensors)

A case is a recipe (recipes.json) and the same training in PyTorch. Batches are read in order, again and again; an update's loss is
that of all samples of its window of micro-batches, and a window ends with the epoch at the latest.
"""
import json
from pathlib import Path

import numpy as np
import onnx
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ReduceLROnPlateau

HERE = Path(__file__).resolve().parent
BATCH, TRAIN, EVAL = 8, 48, 20


class Net(nn.Module):
    """One trunk with the heads `logits` and `value`, and a penalty on its activations."""

    def __init__(self):
        super().__init__()
        self.trunk, self.classes, self.values = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.classes(h), self.values(h), (h * h).mean()


def export(net, path):
    """As torch.onnx.export writes it, with names that stay the same."""
    nodes = [helper.make_node("Gemm", ["x", "trunk.weight", "trunk.bias"], ["sum"], "trunk", transB=1),
             helper.make_node("Tanh", ["sum"], ["h"], "tanh"),
             helper.make_node("Gemm", ["h", "classes.weight", "classes.bias"], ["logits"], "classes", transB=1),
             helper.make_node("Gemm", ["h", "values.weight", "values.bias"], ["value"], "values", transB=1),
             helper.make_node("Mul", ["h", "h"], ["squares"], "square"),
             helper.make_node("ReduceMean", ["squares"], ["penalty"], "mean", keepdims=0)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in (("x", [BATCH, 6]), ("logits", [BATCH, 3]), ("value", [BATCH, 2]), ("penalty", []))]
    weights = [numpy_helper.from_array(v.detach().numpy(), k) for k, v in net.named_parameters()]
    graph = helper.make_graph(nodes, "graph", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def make_data(samples, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=g)
    noise = torch.randn(samples, 2, generator=g)
    labels = (x[:, :3] + 0.3 * torch.randn(samples, 3, generator=g)).argmax(1)
    labels[torch.rand(samples, generator=g) < 0.2] = -100
    weights = torch.rand(samples, generator=g) * 2
    weights[::7] = 0
    return {"x": x, "labels": labels, "z": torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed + 100)), "y": torch.stack([torch.sin(2 * x.sum(1)), x[:, 0] * x[:, 1]], 1) + 0.1 * noise, "w": weights}


def mean(parts, w):
    """The weighted mean of losses [samples, …]."""
    w = w.reshape(-1, *[1] * (parts.dim() - 1)).expand_as(parts)
    return (w * parts).sum() / w.sum()


def counted_mean(logits, labels, w):
    return (w * F.cross_entropy(logits, labels, reduction="none")).sum() / (w * (labels != -100)).sum()


# Case → the parts of its loss, with their scales.
LOSSES = {
    "value": [("mse", 1, lambda c, v, p, b: F.mse_loss(v, b["y"]))],
    "classes": [("cross_entropy", 1, lambda c, v, p, b: F.cross_entropy(c, b["labels"]))],
    "weighed classes": [("cross_entropy", 1, lambda c, v, p, b: counted_mean(c, b["labels"], b["w"]))],
    "weighed value": [("huber", 1, lambda c, v, p, b: mean(F.huber_loss(v, b["y"], reduction="none", delta=0.5), b["w"]))],
    "shapes": [("mse", 1, lambda c, v, p, b: F.mse_loss(v, b["y"])), ("far", 0.5, lambda c, v, p, b: F.l1_loss(v, b["y"], reduction="sum") / len(v)),
               ("penalty", 0.25, lambda c, v, p, b: p)],
    "both": [("mse", 1, lambda c, v, p, b: F.mse_loss(v, b["y"])), ("scores", 0.5, lambda c, v, p, b: F.mse_loss(c, b["z"]))],
    "counts": [("cross_entropy", 1, lambda c, v, p, b: F.cross_entropy(c, b["labels"])),
               ("box", 0.5, lambda c, v, p, b: mean(F.mse_loss(v, b["y"], reduction="none"), b["w"])), ("penalty", 0.25, lambda c, v, p, b: p)]}


def windows(data, steps, micro_batches):
    """The samples of each update."""
    batches = [list(range(i, i + BATCH)) for i in range(0, TRAIN, BATCH)]
    while True:
        for i in range(0, len(batches), micro_batches):
            if steps == 0:
                return
            steps -= 1
            chosen = sum(batches[i:i + micro_batches], [])
            yield {k: v[chosen] for k, v in data.items()}


def loss_of(name, net, batch):
    outputs = net(batch["x"])
    parts = {key: (scale, part(*outputs, batch)) for key, scale, part in LOSSES[name]}
    return sum(scale * part for scale, part in parts.values()), {key: part.item() for key, (_, part) in parts.items()}


def enter(net, optimizer, stages, step, gamma):
    """Freezes the modules that the step's stage does not train; sets the rate, which falls by the factor `gamma` each step, times the
    stage's scale."""
    until, names, scale = next(stage for stage in stages if stage[0] is None or step <= stage[0])
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in names)
    for group in optimizer.param_groups:
        group["lr"] = optimizer.defaults["lr"] * gamma ** (step - 1) * scale


def train(net, data, evaluation, loss, optimizer, steps, micro_batches=1, schedule=None, eval_every=0, clip=None, stages=None):
    found = {"loss": [], "lr": [], "parts": {}, "eval_loss": [], "eval_parts": {}}
    for step, batch in enumerate(windows(data, steps, micro_batches), 1):
        if stages:
            enter(net, optimizer, stages, step, 0.95)
        found["lr"].append(optimizer.param_groups[0]["lr"])
        total, parts = loss_of(loss, net, batch)
        optimizer.zero_grad()
        total.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        found["loss"].append(total.item())
        for key, part in parts.items():
            found["parts"].setdefault(key, []).append(part)
        if eval_every and step % eval_every == 0:
            with torch.no_grad():
                total, parts = loss_of(loss, net, evaluation)
            found["eval_loss"].append(total.item())
            for key, part in parts.items():
                found["eval_parts"].setdefault(key, []).append(part)
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(total)
        if schedule is not None and not isinstance(schedule, ReduceLROnPlateau):
            schedule.step()
    return found


def sgd(net, lr=0.05, head=1.0):
    heads = [p for n, p in net.named_parameters() if n.startswith("classes")]
    others = [p for n, p in net.named_parameters() if not n.startswith("classes")]
    return torch.optim.SGD([{"params": others}, {"params": heads, "lr": lr * head}], lr=lr, momentum=0.9)


def plateau(net):
    optimizer = sgd(net, 0.1, 0.5)
    return {"loss": "classes", "optimizer": optimizer, "steps": 120, "eval_every": 4,
            "schedule": ReduceLROnPlateau(optimizer, factor=0.3, patience=1, threshold=1e-2, cooldown=1, min_lr=1e-3)}


def restarts(net):
    optimizer = sgd(net, 0.05, 0.5)
    return {"loss": "value", "optimizer": optimizer, "steps": 30, "schedule": CosineAnnealingWarmRestarts(optimizer, 3, 2, 1e-3)}


# (last step, the modules that are trained, scale of the rate); a module that was frozen for a while goes on with its state.
STAGES = [(4, ["classes"], 1.0), (8, ["classes", "values"], 0.5), (12, ["trunk", "values"], 1.0), (None, ["trunk", "classes", "values"], 0.25)]
CASES = {
    "plateau": plateau,
    "restarts": restarts,
    "weighed-classes": lambda net: {"loss": "weighed classes", "optimizer": sgd(net), "steps": 20, "micro_batches": 4, "eval_every": 5},
    "weighed-value": lambda net: {"loss": "weighed value", "optimizer": sgd(net), "steps": 20, "eval_every": 5},
    "weighed-ranks": lambda net: {"loss": "weighed classes", "optimizer": sgd(net), "steps": 15, "micro_batches": 2, "eval_every": 5},
    "shapes": lambda net: {"loss": "shapes", "optimizer": sgd(net), "steps": 20, "micro_batches": 4, "eval_every": 5},
    "counts": lambda net: {"loss": "counts", "optimizer": sgd(net), "steps": 20, "eval_every": 5, "clip": 0.5},
    "stages-adamw": lambda net: {"loss": "counts", "optimizer": torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1), "steps": 20,
                                 "eval_every": 5, "stages": STAGES},
    "stages-sgd": lambda net: {"loss": "both", "optimizer": torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, dampening=0.3), "steps": 18,
                               "micro_batches": 2, "clip": 0.3, "stages": STAGES},
    "counts-ranks": lambda net: {"loss": "counts", "optimizer": sgd(net), "steps": 15, "micro_batches": 2, "eval_every": 5},
}

if __name__ == "__main__":
    torch.manual_seed(5)
    net = Net()
    start = {k: v.clone() for k, v in net.state_dict().items()}
    export(net, HERE / "model.onnx")
    data, evaluation = make_data(TRAIN, 6), make_data(EVAL, 7)
    safetensors.torch.save_file(data, HERE / "train.safetensors")
    safetensors.torch.save_file(evaluation, HERE / "eval.safetensors")
    expected, after = {}, {}
    for name, case in CASES.items():
        net.load_state_dict(start)
        expected[name] = train(net, data, evaluation, **case(net))
        after |= {f"{name}/{k}": v.clone() for k, v in net.state_dict().items()}
        print(name, np.round(expected[name]["loss"][:3], 4), "rates", sorted(set(np.round(expected[name]["lr"], 6)), reverse=True)[:8])
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")
    safetensors.torch.save_file(after, HERE / "after.safetensors")
