"""Writes ctc.safetensors: 200 random problems in four groups, with PyTorch's ctc_loss of each and its gradient by the logits.

python make.py (needs torch, numpy, safetensors). Logits are stored exactly in f16 to save space. Some problems have empty targets,
repeated labels, samples of few steps, or targets without an alignment.
"""
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F

# name: (samples, steps, classes, labels, blank, fewest steps)
GROUPS = {"plain": (60, 12, 5, 5, 0, 12), "lengths": (50, 9, 4, 4, 0, 1), "impossible": (50, 8, 6, 6, 5, 3), "long": (40, 24, 5, 8, 2, 15)}

torch.manual_seed(3)
out = {}
for name, (n, t, c, s, blank, fewest) in GROUPS.items():
    logits = (2 * torch.randn(n, t, c)).half()
    classes = torch.tensor([v for v in range(c) if v != blank])
    targets = classes[torch.randint(len(classes), (n, s))]
    repeats = torch.rand(n, s) < 0.3
    repeats[:, 0] = False
    for i in range(1, s):
        targets[:, i] = torch.where(repeats[:, i], targets[:, i - 1], targets[:, i])
    steps, lengths = torch.randint(fewest, t + 1, (n,)), torch.randint(0, s + 1, (n,))
    lengths[:3] = 0
    x = logits.float().requires_grad_()
    loss = F.ctc_loss(torch.log_softmax(x, 2).transpose(0, 1), targets, steps, lengths, blank=blank, reduction="none", zero_infinity=True)
    loss.sum().backward()
    raw = F.ctc_loss(torch.log_softmax(x, 2).transpose(0, 1), targets, steps, lengths, blank=blank, reduction="none")
    print(name, int(raw.isinf().sum()), "of", n, "have no alignment,", int((lengths == 0).sum()), "are empty")
    for key, value in {"logits": logits, "targets": targets.byte(), "input_lengths": steps.byte(), "target_lengths": lengths.byte(),
                       "loss": raw.detach(), "gradient": x.grad}.items():
        out[f"{name}.{key}"] = np.ascontiguousarray(value.numpy())
safetensors.numpy.save_file(out, Path(__file__).with_name("ctc.safetensors"))
