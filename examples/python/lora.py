"""LoRA on a causal language model: low-rank adapters of its query projections, written for peft."""
import tempfile
from pathlib import Path

import torch

import tcc
from common import LanguageModel, counting, next_token_loss

model, batches, folder, losses = LanguageModel(), counting(), Path(tempfile.mkdtemp()), []
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
plan = tcc.compile(model, next(iter(batches)), loss=next_token_loss, optimizer=optimizer,
                   adapter={"targets": ["q_proj"], "rank": 8, "alpha": 16})
t = tcc.Trainer(plan)
generator = torch.Generator().manual_seed(2)  # lora_torch.py draws the same numbers, so that losses can be compared
t.set_parameters({name: torch.randn(value.shape, generator=generator) / 8
                  for name, value in sorted(t.get_parameters().items()) if "lora_A" in name})
t.fit(batches, epochs=3, callbacks=[lambda event: losses.append(event.update.loss) if event.update else None])
t.export_adapter(folder / "adapter")
