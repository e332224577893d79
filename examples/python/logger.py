"""Any logger: a callback hands it the numbers of each update and evaluation, by name."""
import torch
from torch import nn

import tcc
from common import Logger, classifier, loader

model, train, val, logger = classifier(), loader(), loader(96, seed=2), Logger()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
plan = tcc.compile(model, next(iter(train)), loss=nn.CrossEntropyLoss(), optimizer=optimizer,
                   scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
tcc.Trainer(plan).fit(train, eval=val, epochs=3, eval_every=5,
                      callbacks=[lambda event: logger.log(event.metrics, step=event.step) if event.metrics else None])
losses = logger.column("loss")
