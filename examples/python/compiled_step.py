"""A loop of PyTorch's in which one call replaces forward, loss, backward and optimizer.step; its scheduler stays."""
import torch
from torch import nn

import tcc
from common import classifier, loader

model, batches, losses = classifier(), loader(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
step = tcc.compile_step(model, nn.CrossEntropyLoss(), optimizer, example=next(iter(batches)))
for _ in range(4):
    for x, y in batches:
        loss = step(x, y)
        scheduler.step()
        losses.append(loss.item())
accuracy = (model.eval()(x).argmax(1) == y).float().mean().item()
