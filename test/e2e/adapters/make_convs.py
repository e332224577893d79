"""Makes convs/: an export with convolutions and an embedding, and the results of peft's LoRA for it: make_convs.py (torch 2.15, peft 0.21).

expected.json holds 30 losses and a checksum of every merged weight; initial/ and final/ are the adapter as peft writes it.
"""
import copy
import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import make

HERE = Path(__file__).resolve().parent / "convs"
BATCH, STEPS, LR, RANK, ALPHA = 4, 30, 5e-3, 4, 8
TARGETS = ["first", "tall", "point", "line", "words", "head"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.tall = nn.Conv2d(8, 12, (3, 1), padding=(1, 0), bias=False)
        self.point = nn.Conv2d(12, 8, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.line = nn.Conv1d(8, 10, 5, stride=2)
        self.words, self.head = nn.Embedding(20, 10), nn.Linear(10, 6)

    def forward(self, image, ids):
        x = functional.silu(self.first(image))
        x = functional.silu(self.point(functional.silu(self.tall(x))))
        x = x + functional.silu(self.depthwise(x)) + functional.silu(self.dilated(x))
        x = functional.silu(self.line(x.flatten(2))).mean(2)
        return self.head(x * self.words(ids).mean(1))


def train(model, data):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        batch = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
        loss = functional.cross_entropy(model(data["image"][batch], data["ids"][batch]), data["labels"][batch])
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    HERE.mkdir(exist_ok=True)
    make.HERE = HERE
    model = Model()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    n = 4 * BATCH
    data = {"image": torch.randn(n, 3, 8, 8), "ids": torch.randint(20, (n, 5)), "labels": torch.randint(6, (n,))}
    save_file(data, HERE / "data.safetensors")
    path = HERE / "model.onnx"
    torch.onnx.export(model.eval(), (data["image"][:BATCH], data["ids"][:BATCH]), str(path), input_names=["image", "ids"],
                      output_names=["logits"], dynamo=True)
    make.strip(path)
    torch.manual_seed(1)
    peft = get_peft_model(copy.deepcopy(model).train(), LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS))
    make.keep_adapter(peft, HERE / "initial")
    expected = {"losses": train(peft, data)}
    make.keep_adapter(peft, HERE / "final")
    expected["merged"] = {name: make.checksum(t) for name, t in copy.deepcopy(peft).merge_and_unload().state_dict().items()}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
