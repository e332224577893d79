"""A GAN: two optimizers in turn over one module that returns both losses."""
import torch
from torch import nn
from torch.nn import functional as F

import tcc

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
plan = tcc.compile(model, batches[0], phases=[
    tcc.Phase("d", loss="d_loss", parameters=["disc.*"], optimizer=torch.optim.Adam(model.disc.parameters(), 4e-3)),
    tcc.Phase("g", loss="g_loss", parameters=["gen.*"], optimizer=torch.optim.Adam(model.gen.parameters(), 1e-3))])
t = tcc.Trainer(plan)
t.fit(batches, epochs=2, callbacks=[lambda event: losses.append(event.update.loss) if event.update else None])
t.load_into(model)
