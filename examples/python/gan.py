"""A GAN: two optimizers in turn over one module that returns both losses."""
import torch

import tcc
from common import Gan

torch.manual_seed(0)
model = Gan()
batches = [{"real": torch.randn(16, 2) + 2, "noise": torch.randn(16, 4)} for _ in range(10)]
losses = []
plan = tcc.compile(model, batches[0], phases=[
    tcc.Phase("d", loss="d_loss", parameters=["disc.*"], optimizer=torch.optim.Adam(model.disc.parameters(), 4e-3)),
    tcc.Phase("g", loss="g_loss", parameters=["gen.*"], optimizer=torch.optim.Adam(model.gen.parameters(), 1e-3))])
t = tcc.Trainer(plan)
t.fit(batches, epochs=2, callbacks=[lambda event: losses.append(event.update.loss) if event.update else None])
t.load_into(model)
