"""The twin of gan.py in PyTorch alone."""
import torch

from common import Gan

torch.manual_seed(0)
model = Gan()
batches = [{"real": torch.randn(16, 2) + 2, "noise": torch.randn(16, 4)} for _ in range(10)]
losses = []
phases = [("d_loss", torch.optim.Adam(model.disc.parameters(), 4e-3)),
          ("g_loss", torch.optim.Adam(model.gen.parameters(), 1e-3))]
for _ in range(2):
    for batch in batches:
        for name, optimizer in phases:
            model.zero_grad()
            loss = model(**batch)[name]
            loss.backward()
            optimizer.step()
            if name == "d_loss":
                losses.append(loss.item())
