"""The twin of logger.py in PyTorch alone."""
import torch
from torch import nn

from common import Logger, classifier, loader

model, train, val, logger = classifier(), loader(), loader(96, seed=2), Logger()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
criterion, step = nn.CrossEntropyLoss(), 0
for _ in range(3):
    for x, y in train:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
        rate = scheduler.get_last_lr()[0]
        optimizer.step()
        scheduler.step()
        step += 1
        logger.log({"loss": loss.item(), "lr": rate, "grad_norm": norm}, step=step)
    model.eval()
    total = right = 0
    with torch.no_grad():
        for x, y in val:
            total += criterion(model(x), y).item() * len(x)
            right += (model(x).argmax(1) == y).sum().item()
    model.train()
    logger.log({"eval_loss": total / 96, "eval_accuracy": right / 96}, step=step)
losses = logger.column("loss")
