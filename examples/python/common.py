"""Models and data of the scripts in this folder: two classes of points, made from fixed seeds."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def classifier(dropout=0.0):
    torch.manual_seed(0)
    first = nn.Linear(16, 32, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 4))


def points(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    return TensorDataset(x, x[:, :4].argmax(1))


def loader(count=160, seed=1, batch=32, **options):
    return DataLoader(points(count, seed), batch, **options)
