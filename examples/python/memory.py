"""Will it fit? The compiler says what an update takes, the least that would do, and the largest batch of a budget."""
import torch

import tcc
from common import LanguageModel, counting, next_token_loss

model, batches, losses = LanguageModel(), counting(), []
optimizer, example = torch.optim.AdamW(model.parameters(), lr=0.01), next(iter(batches))


def compiled(**options):
    return tcc.compile(model, example, loss=next_token_loss, optimizer=optimizer, **options)


peak = compiled().peak_bytes
largest = compiled(fit="batch", memory_budget="8MiB").inputs()[0].shape[0]
try:
    compiled(memory_budget="100KiB")
except tcc.OverBudget as problem:
    smallest = problem.smallest
t = tcc.Trainer(compiled(memory_budget=smallest))
for _ in range(2):
    for batch in batches:
        losses.append(t.step(*batch).loss)
