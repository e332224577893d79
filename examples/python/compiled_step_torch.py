"""The twin of compiled_step.py in PyTorch alone."""
import torch
from torch import nn

from common import classifier, loader

model, batches, losses = classifier(), loader(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
criterion = nn.CrossEntropyLoss()
for _ in range(4):
    for x, y in batches:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
accuracy = (model.eval()(x).argmax(1) == y).float().mean().item()
