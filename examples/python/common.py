"""Models and data of the scripts in this folder, made from fixed seeds. As a program it writes classifier.onnx."""
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def classifier(dropout=0.0):
    """Of points: 16 numbers to 4 classes."""
    torch.manual_seed(0)
    first = nn.Linear(16, 32, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 4))


def points(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    return TensorDataset(x, x[:, :4].argmax(1))


def loader(count=160, seed=1, batch=32, **options):
    return DataLoader(points(count, seed), batch, **options)


class Logger:
    """What wandb, mlflow, TensorBoard and others have in common: numbers by name, and the update that they are of."""

    def __init__(self):
        self.records = []

    def log(self, metrics, step):
        self.records.append((step, dict(metrics)))

    def column(self, name):
        return [metrics[name] for _, metrics in self.records if name in metrics]


class Gan(nn.Module):
    """Makes points of the plane from noise; returns the losses of both sides."""

    def __init__(self):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.disc = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, real, noise):
        fake = self.gen(noise)
        d_loss = F.softplus(self.disc(fake.detach())).mean() + F.softplus(-self.disc(real)).mean()
        return {"d_loss": d_loss, "g_loss": F.softplus(-self.disc(fake)).mean()}


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """A causal one: logits of the next token at each position."""

    def __init__(self, tokens=24, width=32, heads=4, layers=2):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.positions = nn.Embedding(tokens, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def next_token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def counting(count=64, length=16, tokens=24, batch=8):
    """Sequences that count up by one or two: batches of (tokens, the tokens that follow them)."""
    generator = torch.Generator().manual_seed(1)
    start, stride = torch.randint(tokens, (count, 1), generator=generator), torch.arange(count)[:, None] % 2 + 1
    rows = (start + stride * torch.arange(length + 1)) % tokens
    return DataLoader(TensorDataset(rows[:, :-1], rows[:, 1:]), batch)


if __name__ == "__main__":
    torch.onnx.export(classifier().train(), (torch.randn(4, 16),), Path(__file__).with_name("classifier.onnx"),
                      dynamo=True, optimize=False, external_data=False, input_names=["x"], output_names=["logits"],
                      dynamic_shapes=[{0: torch.export.Dim("batch")}])
