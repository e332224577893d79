"""What a maker of a benchmark model gives back, and what the makers share."""
import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

# kind: what PyTorch computes of (logits, target). Class axis and the like stand in the recipe that a model brings.
LOSSES = {
    "cross_entropy": lambda logits, target, axis: F.cross_entropy(logits.movedim(axis, 1).float(), target),
    "mse": lambda prediction, target, axis: F.mse_loss(prediction.float(), target),
    "bce_with_logits": lambda logits, target, axis: F.binary_cross_entropy_with_logits(logits.float(), target),
}


@dataclass
class Made:
    """A model in training mode with one batch. `forward` takes the inputs in their order and returns what the loss is of, or the
    loss itself where `loss` is "output"."""
    net: nn.Module
    inputs: dict
    target: torch.Tensor = None
    loss: str = "cross_entropy"
    class_axis: int = -1
    optimizer: str = "adamw"
    lr: float = 1e-4
    trainable: tuple = ("*",)          # globs over the file's names, as the recipe has them
    torchscript: bool = False          # export by the older exporter: the newer one folds BatchNormalization into convolutions

    def recipe(self):
        # A file does not say what PyTorch leaves alone.
        frozen = [name for name, p in self.net.named_parameters() if not p.requires_grad] if self.trainable == ("*",) else []
        text = f"[model]\ntrainable = {json.dumps(self.trainable)}\n" + (f"frozen = {json.dumps(frozen)}\n" if frozen else "") + "\n"
        if self.loss == "output":
            text += '[loss]\noutput = "loss"\n\n'
        else:
            text += f'[loss]\nkind = "{self.loss}"\nof = "logits"\ntarget = "target"\n'
            text += f"class_axis = {self.class_axis}\n\n" if self.loss == "cross_entropy" else "\n"
        return text + f'[optimizer]\nkind = "{self.optimizer}"\nlr = {self.lr}\n'

    def loss_of(self, *inputs, target=None):
        result = self.net(*inputs)
        return result if self.loss == "output" else LOSSES[self.loss](result, target, self.class_axis)

    def update(self):
        """PyTorch's optimizer of the same words; it trains what has a gradient."""
        trained = [p for p in self.net.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=self.lr) if self.optimizer == "sgd" else torch.optim.AdamW(trained, lr=self.lr, fused=True)


class Wrapped(nn.Module):
    """A model whose forward needs keywords, or gives more than the loss needs."""

    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self, *inputs):
        return self.call(self.net, *inputs)


def tokens(vocabulary, batch, length):
    return torch.randint(0, vocabulary, (batch, length))


def images(batch, size, channels=3):
    return torch.randn(batch, channels, size, size)
