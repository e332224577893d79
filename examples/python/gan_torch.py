"""The twin of gan.py in PyTorch alone."""
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.disc = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, real, noise):
        fake = self.gen(noise)
        d_loss = F.softplus(self.disc(fake.detach())).mean() + F.softplus(-self.disc(real)).mean()
        return {"d_loss": d_loss, "g_loss": F.softplus(-self.disc(fake)).mean()}


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
