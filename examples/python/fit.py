"""A run over loaders, with evaluations, an early end, a logger, and the weights back in the module."""
import torch
from torch import nn

import tcc
from common import classifier, loader

model, train, val, losses, evaluations = classifier(), loader(), loader(96, seed=2), [], []
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
plan = tcc.compile(model, next(iter(train)), loss=criterion, optimizer=optimizer, memory_budget="2GiB")
t = tcc.Trainer(plan)


def log(event):
    losses.extend([event.metrics["loss"]] if event.kind == "update" else [])
    evaluations.extend([event.metrics["eval_loss"]] if event.kind == "evaluation" else [])


t.fit(train, eval=val, epochs=20, eval_every=5, callbacks=[tcc.EarlyStopping("eval_loss", patience=3), log])
t.load_into(model)
