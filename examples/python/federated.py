"""Federated averaging: clients start from the server's parameters, train on their own data, and send theirs back."""
import torch
from torch import nn

import tcc
from common import classifier, loader

model, losses = classifier(), []
clients = [loader(seed=seed) for seed in (1, 2, 3)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = tcc.Trainer(tcc.compile(model, next(iter(clients[0])), loss=nn.CrossEntropyLoss(), optimizer=optimizer))


def client(weights, data):
    trainer.set_parameters(weights)
    trainer.fit(data, steps=5, callbacks=[lambda event: losses.append(event.update.loss) if event.update else None])
    return trainer.get_parameters()


weights = trainer.get_parameters()
for _ in range(3):
    answers = [client(weights, data) for data in clients]
    weights = {name: sum(answer[name] for answer in answers) / len(answers) for name in weights}
