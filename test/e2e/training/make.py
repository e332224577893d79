"""Makes the files beside it: a small model, its data, and what PyTorch makes of each case's steps.

    python make.py          (torch 2.15, onnx, safetensors)

test_training.py has a recipe for each case. Batches are read in order, again and again.
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
    """One trunk with the heads `logits` and `value`."""

    def __init__(self):
        super().__init__()
        self.trunk, self.classes, self.values = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.classes(h), self.values(h)


def export(net, path):
    """As torch.onnx.export writes it, with names that stay the same."""
    nodes = [helper.make_node("Gemm", ["x", "trunk.weight", "trunk.bias"], ["sum"], "trunk", transB=1),
             helper.make_node("Tanh", ["sum"], ["h"], "tanh"),
             helper.make_node("Gemm", ["h", "classes.weight", "classes.bias"], ["logits"], "classes", transB=1),
             helper.make_node("Gemm", ["h", "values.weight", "values.bias"], ["value"], "values", transB=1)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in (("x", [BATCH, 6]), ("logits", [BATCH, 3]), ("value", [BATCH, 2]))]
    weights = [numpy_helper.from_array(v.detach().numpy(), k) for k, v in net.named_parameters()]
    graph = helper.make_graph(nodes, "graph", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def make_data(samples, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=g)
    noise = torch.randn(samples, 2, generator=g)
    labels = (x[:, :3] + 0.3 * torch.randn(samples, 3, generator=g)).argmax(1)
    labels[torch.rand(samples, generator=g) < 0.2] = -100
    return {"x": x, "labels": labels, "y": torch.stack([torch.sin(2 * x.sum(1)), x[:, 0] * x[:, 1]], 1) + 0.1 * noise}


LOSSES = {"value": lambda logits, value, batch: F.mse_loss(value, batch["y"]),
          "classes": lambda logits, value, batch: F.cross_entropy(logits, batch["labels"])}


def train(net, data, evaluation, loss, optimizer, steps, schedule, eval_every=0):
    found = {"loss": [], "lr": [], "eval_loss": []}
    for step in range(1, steps + 1):
        begin = (step - 1) * BATCH % TRAIN
        batch = {key: column[begin:begin + BATCH] for key, column in data.items()}
        found["lr"].append(optimizer.param_groups[0]["lr"])
        value = LOSSES[loss](*net(batch["x"]), batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        found["loss"].append(value.item())
        if eval_every and step % eval_every == 0:
            with torch.no_grad():
                value = LOSSES[loss](*net(evaluation["x"]), evaluation)
            found["eval_loss"].append(value.item())
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(value)
        if not isinstance(schedule, ReduceLROnPlateau):
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


CASES = {"plateau": plateau, "restarts": restarts}

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
