#!/usr/bin/env python3
"""Errors of gradients in bf16 relative to f32: ours on a CPU and by a CUDA plan, and PyTorch's with autocast.

    gradient_errors.py [--image 64] [--batch 8] [--residual 0.2] [--starts 3] [--stand-in build/emulation]

The network is torchvision's ResNet-50 with parameters by the rule of filled.py, each start off by at most one rounding to bf16. A
block's last scale is multiplied by --residual: with 1 the network amplifies every rounding error until the gradient is only noise. The
reference is PyTorch in f32. For each start and side it prints the loss, the median over the parameters of
|gradient - reference| / |reference|, the largest, and the share of elements with the reference's sign. With --stand-in the CUDA plan
runs on the emulated driver of that folder, else on this machine's card.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import torch_step

ROOT = Path(__file__).resolve().parents[2]


def network(options, seed):
    import torchvision
    net = torchvision.models.resnet50(num_classes=1000)
    torch_step.fill(net)
    torch_step.perturb(net, seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bn3.weight"): parameter *= options.residual
    return net.train()


def theirs(options, seed, x, labels, precision):
    """PyTorch's loss and gradients by name, with autocast and channels-last tensors, as is usual in PyTorch."""
    net = network(options, seed)
    if precision == "bf16": net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = F.cross_entropy(net(x).float(), labels)
    loss.backward()
    return loss.item(), {name: p.grad.contiguous() for name, p in net.named_parameters()}


def ours(options, folder, *target):
    plan, gradients = folder / "model.tplan", folder / "gradients.safetensors"
    subprocess.run([options.bin / "tcc", folder / "model.onnx", "--recipe", folder / "recipe.toml", "--precision", "bf16", "--entry",
                    "gradients", *target, "-o", plan], check=True, stderr=subprocess.DEVNULL)
    environment = dict(os.environ, TCC_CACHE_DIR="")
    if target and options.stand_in:
        environment |= {"LD_LIBRARY_PATH": str(options.stand_in.resolve()), "TCC_EMULATION_MODE": "fast", "TCC_EMULATION_ORDER": "seeded"}
    subprocess.run([options.bin / "trun", "gradients", plan, "--inputs", folder / "data.safetensors", "--outputs", gradients],
                   check=True, env=environment)
    found = load_file(gradients)
    return found.pop("loss").item(), found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--stand-in", type=Path)
    parser.add_argument("--target", default="cuda:sm_90")
    for name, value in (("image", 64), ("batch", 8), ("starts", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--residual", type=float, default=0.2)
    options = parser.parse_args()
    torch.manual_seed(0)
    x, labels = torch_step.filled_tensor("x", (options.batch, 3, options.image, options.image)), torch.randint(0, 1000, (options.batch,))
    for seed in range(options.starts):
        _, reference = theirs(options, seed, x, labels, "f32")
        with tempfile.TemporaryDirectory() as folder:
            export = argparse.Namespace(onnx=folder, filled=True, lr=3e-4)
            torch_step.export(network(options, seed), x, labels, export)
            sides = {"tcc, CPU": ours(options, Path(folder)), "tcc, CUDA": ours(options, Path(folder), "--target", options.target),
                     "PyTorch, autocast": theirs(options, seed, x, labels, "bf16")}
        for side, (loss, gradients) in sides.items():
            errors, signs = [], []
            for name, wanted in reference.items():
                got, wanted = gradients[name].double().reshape(wanted.shape), wanted.double()
                errors.append(((got - wanted).norm() / wanted.norm()).item())
                signs.append((got.sign() == wanted.sign()).double().mean().item())
            print(f"start {seed}  {side:18} loss {loss:.4f}  error median {statistics.median(errors):.3f} most {max(errors):.3f}  "
                  f"same sign {statistics.mean(signs):.3f}", flush=True)


if __name__ == "__main__":
    main()
