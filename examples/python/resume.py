"""A run that ends in the middle of an epoch, and goes on in another process from its last checkpoint."""
import tempfile
from pathlib import Path

import torch
from torch import nn

import tcc
from common import classifier, loader

run, losses = Path(tempfile.mkdtemp()) / "run", []
model, batches = classifier(), loader()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)


def log(event):
    losses.extend([event.update.loss] if event.update else [])
    return "stop" if event.update and event.step == 7 else None


plan = tcc.compile(model, next(iter(batches)), loss=nn.CrossEntropyLoss(), optimizer=optimizer)
tcc.Trainer(plan).fit(batches, epochs=4, out=run, callbacks=[log])
t = tcc.Trainer.resume(f"{run}@last")
t.fit(batches, callbacks=[log])
t.load_into(model)
