"""The twin of memory.py in PyTorch alone: a number takes updates that need the memory, and the least is not known."""
import torch

from common import LanguageModel, counting, next_token_loss

model, batches, losses = LanguageModel(), counting(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = next_token_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def measured(size):
    """Bytes of parameters and the optimizer's state, and the most that an update allocates besides."""
    model, (x, y) = LanguageModel(), next(iter(counting(count=size, batch=size)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    update(model, optimizer, x, y)
    state = [value for one in optimizer.state.values() for value in one.values()]
    kept = sum(value.nbytes for value in [*model.parameters(), *state])
    with torch.profiler.profile(profile_memory=True) as profile:
        update(model, optimizer, x, y)
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return kept + most


peak, largest = measured(8), 8
while measured(2 * largest) <= 8 << 20:
    largest *= 2
for _ in range(2):
    for x, y in batches:
        losses.append(update(model, optimizer, x, y))
