"""Makes the exports in this folder: new models by torch's two exporters, called as a newcomer calls them.

make.py (torch 2.15, onnx). Notes that hold paths are removed; the exporter's other notes stay.
"""
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent


class Tied(nn.Module):
    """An embedding that is the head too, one linear layer called twice, and two norms that start equal."""

    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.norm2 = nn.Embedding(17, 8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.lin, self.head = nn.Linear(8, 8), nn.Linear(8, 17, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.lin(self.norm(x))
        x = x + self.lin(self.norm2(x))
        return self.head(x)


class Cnn(nn.Module):
    """Batch norm, dropout, and a pooled head. With `view` a Reshape fixes the batch; otherwise nothing does."""

    def __init__(self, view):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(4, 3)
        self.view = view

    def forward(self, x):
        x = torch.relu(self.b1(self.c1(x))).mean((2, 3), keepdim=True)
        x = x.view(x.size(0), -1) if self.view else x.flatten(1)
        return self.head(self.drop(x))


class Cls(nn.Module):
    """A class token in front of patches, as vision transformers have it."""

    def __init__(self):
        super().__init__()
        self.patch, self.cls = nn.Conv2d(1, 8, 4, stride=4), nn.Parameter(torch.randn(1, 1, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        return self.head(x.mean(1))


def export(name, model, args, dynamo):
    torch.manual_seed(0)
    path = HERE / f"{name}-{'dynamo' if dynamo else 'torchscript'}.onnx"
    options = {"external_data": False, "verbose": False} if dynamo else {"dynamo": False}
    torch.onnx.export(model(), args, path, **options)
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.ClearField("doc_string")
        kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes" or "folded_from" in p.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    del proto.graph.metadata_props[:], proto.metadata_props[:]
    onnx.save(proto, path)


if __name__ == "__main__":
    for dynamo in (True, False):
        export("tied", Tied, (torch.arange(6).reshape(1, 6),), dynamo)
        export("pooled", lambda: Cnn(False), (torch.randn(1, 1, 8, 8),), dynamo)
        export("viewed", lambda: Cnn(True), (torch.randn(1, 1, 8, 8),), dynamo)
        export("cls", Cls, (torch.randn(1, 1, 8, 8),), dynamo)
