"""The result of a maker of a benchmark model, and helpers that the makers share."""
import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

# kind: PyTorch's loss as a function of (logits, target). The recipe of a model has further settings, such as the class axis.
LOSSES = {
    "cross_entropy": lambda logits, target, axis: F.cross_entropy(logits.movedim(axis, 1).float(), target),
    "mse": lambda prediction, target, axis: F.mse_loss(prediction.float(), target),
    "bce_with_logits": lambda logits, target, axis: F.binary_cross_entropy_with_logits(logits.float(), target),
}


@dataclass
class Made:
    """A model in training mode with one batch. `forward` takes the inputs in their order and returns the prediction, or the loss
    itself if `loss` is "output"."""
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
        # A file does not tell which parameters PyTorch does not train, so that the recipe must.
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
        """PyTorch's optimizer with the recipe's settings; it trains the parameters that require a gradient."""
        trained = [p for p in self.net.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=self.lr) if self.optimizer == "sgd" else torch.optim.AdamW(trained, lr=self.lr, fused=True)


class Wrapped(nn.Module):
    """Wraps a model whose forward needs keyword arguments, or returns more than the loss needs."""

    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self, *inputs):
        return self.call(self.net, *inputs)


def tokens(vocabulary, batch, length):
    return torch.randint(0, vocabulary, (batch, length))


def images(batch, size, channels=3):
    return torch.randn(batch, channels, size, size)
