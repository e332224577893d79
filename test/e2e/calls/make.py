"""Makes the exports in this folder, and PyTorch's losses: calls that do more than the ops that torch's exporter writes for them.

make.py (torch 2.15, onnx, onnxscript). The exporter's notes about the calls are kept; other notes, which hold paths, are removed.
"""
import json
import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from draws import SAMPLES, data
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
HERE = Path(__file__).resolve().parent
BATCH, RATE, EPOCHS = 8, 0.1, 2
KEPT = ("pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes", "pkg.torch.export.graph_signature.InputSpec.kind")


class Padding(nn.Module):
    """The loss is a mean over all positions, so that it also reads the padding's row."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(6, 4, padding_idx=2), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)).mean(1))


class Spectral(nn.Module):
    """Both forms of spectral_norm; the first module runs twice."""

    def __init__(self):
        super().__init__()
        self.first = parametrizations.spectral_norm(nn.Linear(6, 6))
        self.second = spectral_norm(nn.Linear(6, 5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.head(torch.tanh(self.second(self.first(h))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.all, self.head = nn.Linear(6, 18), nn.Linear(6, 3)

    def forward(self, x):
        q, k, v = (self.all(x[:, None].expand(-1, 4, -1) * self.steps()) * 2).chunk(3, -1)
        h = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], dropout_p=0.5 if self.training else 0.0)
        return self.head(h[:, 0].mean(1)) * 4

    def steps(self):
        return torch.arange(1.0, 5.0)[:, None]


class Channels(nn.Module):
    """Dropout2d, and stochastic depth as timm and torchvision write it."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.head = nn.Conv2d(1, 4, 3), nn.Dropout2d(0.25), nn.Linear(4, 3)

    def forward(self, x):
        h = self.drop(torch.relu(self.conv(x)) * 4)
        if self.training:
            h = h + torch.tanh(h) * h.new_empty(h.shape[0], 1, 1, 1).bernoulli_(0.75).div_(0.75)
        else:
            h = h + torch.tanh(h)
        return self.head(h.mean((2, 3)))


def losses(model, columns):
    """The loss of each update, and that of an evaluation after the last one."""
    x, y = torch.tensor(columns["x"]), torch.tensor(columns["target"])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    found = []
    for _ in range(EPOCHS):
        for at in range(0, SAMPLES, BATCH):
            loss = F.cross_entropy(model(x[at:at + BATCH]), y[at:at + BATCH])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    model.eval()
    return {"train": found, "evaluate": F.cross_entropy(model(x), y).item()}


def main():
    known = {}
    for name, module in (("padding", Padding), ("spectral", Spectral), ("attention", Attention), ("channels", Channels)):
        columns = data(name)
        torch.manual_seed(1)
        model = module().train()
        path = HERE / f"{name}.onnx"
        torch.onnx.export(model, (torch.tensor(columns["x"][:BATCH]),), path, dynamo=True, optimize=False,
                          external_data=False, verbose=False, input_names=["x"], output_names=["logits"],
                          # A static export would fix the batch in the shapes of its random numbers.
                          dynamic_shapes=[{0: torch.export.Dim("batch")}] if name == "channels" else None)
        file = onnx.load(path)
        for item in [*file.graph.node, *file.graph.value_info, *file.graph.initializer, *file.graph.input, file.graph, file]:
            kept = [note for note in item.metadata_props if note.key in KEPT]
            del item.metadata_props[:]
            item.metadata_props.extend(kept)
        for node in file.graph.node:
            node.doc_string = ""
        onnx.save(file, path)
        torch.manual_seed(1)
        model = module().train()
        if name in ("padding", "spectral"):
            known[name] = losses(model, columns)
        else:  # training is random: only the evaluation of the initial weights is compared
            x, y = torch.tensor(columns["x"]), torch.tensor(columns["target"])
            drawn = [F.cross_entropy(model(x), y).item() for _ in range(400)]
            model.eval()
            known[name] = {"mean": float(np.mean(drawn)), "deviation": float(np.std(drawn)),
                           "evaluate": F.cross_entropy(model(x), y).item()}
    (HERE / "calls.json").write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
