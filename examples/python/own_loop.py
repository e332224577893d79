"""An own loop over a loader: the rate of every update is the loop's."""
import torch
from torch import nn

import tcc
from common import classifier, loader

model, batches, losses = classifier(), loader(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
plan = tcc.compile(model, next(iter(batches)), loss=nn.CrossEntropyLoss(), optimizer=optimizer)
t = tcc.Trainer(plan)
for _ in range(4):
    for x, y in batches:
        losses.append(t.step(x, y, lr=0.1 * 0.9 ** t.steps).loss)
t.load_into(model)
