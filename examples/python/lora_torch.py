"""The twin of lora.py in PyTorch alone, with a linear layer of its own."""
import json
import tempfile
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from common import LanguageModel, counting, next_token_loss


class LowRank(nn.Module):
    def __init__(self, base, rank, alpha, generator):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        with torch.no_grad():
            self.lora_A.weight.copy_(torch.randn(rank, base.in_features, generator=generator) / 8)
            self.lora_B.weight.zero_()

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_B(self.lora_A(x))


model, batches, folder, losses = LanguageModel().requires_grad_(False), counting(), Path(tempfile.mkdtemp()), []
generator = torch.Generator().manual_seed(2)
for layer in model.layers:
    layer.attention.q_proj = LowRank(layer.attention.q_proj, 8, 16, generator)
trained = {name: value for name, value in model.named_parameters() if "lora_" in name}
optimizer = torch.optim.AdamW(trained.values(), lr=0.02)
for _ in range(3):
    for x, y in batches:
        optimizer.zero_grad()
        loss = next_token_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
(folder / "adapter").mkdir()
safetensors.torch.save_file({f"base_model.model.{name}": value.data for name, value in trained.items()},
                            folder / "adapter/adapter_model.safetensors")
(folder / "adapter/adapter_config.json").write_text(json.dumps({
    "peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}))
