"""The twin of onnx_file.py in PyTorch alone, which reads no ONNX file: the model's code is needed again."""
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from common import classifier

folder, losses = Path(tempfile.mkdtemp()), []
x = np.random.default_rng(1).standard_normal((160, 16), np.float32)
np.savez(folder / "train.npz", x=x, labels=x[:, :4].argmax(1))
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.01)
criterion = nn.CrossEntropyLoss()
data = np.load(folder / "train.npz")
batches = DataLoader(TensorDataset(torch.from_numpy(data["x"]), torch.from_numpy(data["labels"])), 32)
for epoch in range(3):
    for x, y in batches:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"epoch-{epoch}.pt")
