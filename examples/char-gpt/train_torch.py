"""Trains the same model in PyTorch, from the same weights and on the same batches, and writes expected.json.

    python train_torch.py [--steps 600] [--threads 1]

Needs torch and onnx, besides what score_onnx.py needs. The weights are read from model.onnx; the recipe's numbers stand
here again, in PyTorch's words. A second run from weights moved by 3e-7 of themselves shows what rounding alone can do.
"""
import argparse
import json
import math
from pathlib import Path

import onnx
import torch
from torch.nn import functional as F

from export import CharGPT
from windows import FOLDER, batches, mean_cross_entropy, samples

LR, WARMUP, FLOOR, CLIP, SEED = 5e-3, 50, 0.1, 1.0, 1
EVAL_EVERY = 200


def rate(step, total):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = min(step - WARMUP, total - WARMUP) / (total - WARMUP)
    return LR * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * done)) / 2)


def initial_model(moved):
    model = CharGPT()
    weights = {i.name: torch.from_numpy(onnx.numpy_helper.to_array(i).copy())
               for i in onnx.load(FOLDER / "model.onnx").graph.initializer}
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.data *= 1 + moved * torch.randn(p.shape, generator=generator)
    return model


def make_optimizer(model):
    exempt = [n.endswith("bias") or "ln_" in n or n.startswith(("wte", "wpe")) for n, _ in model.named_parameters()]
    groups = [{"params": [p for p, e in zip(model.parameters(), exempt) if e == kind], "weight_decay": decay}
              for kind, decay in ((False, 0.1), (True, 0.0))]
    return torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), foreach=False)


def train(steps, moved=0.0):
    """(loss of every step, validation loss by step)."""
    model = initial_model(moved)
    optimizer = make_optimizer(model)
    train_ids, train_labels, eval_ids, eval_labels = samples()

    def evaluate():
        with torch.no_grad():
            return mean_cross_entropy(lambda batch: model(torch.from_numpy(batch)).numpy(), eval_ids, eval_labels)

    losses, evaluations = [], {}
    for step, rows in zip(range(steps), batches(len(train_ids), SEED)):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        logits = model(torch.from_numpy(train_ids[rows]))
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(train_labels[rows]).flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=False)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % EVAL_EVERY == 0 or step + 1 == steps:
            evaluations[step + 1] = evaluate()
            print(f"step {step + 1}: loss {losses[-1]:.4f}, validation {evaluations[step + 1]:.4f}", flush=True)
    return losses, evaluations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=FOLDER / "expected.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    losses, evaluations = train(options.steps)
    moved_losses, moved_evaluations = train(options.steps, moved=3e-7)
    spread = {"first_ten_losses": max(abs(a / b - 1) for a, b in zip(moved_losses[:10], losses)),
              "eval_loss": max(abs(moved_evaluations[s] / e - 1) for s, e in evaluations.items())}
    result = {"torch": torch.__version__.split("+")[0], "steps": options.steps, "threads": options.threads,
              "spread": spread, "eval_loss": evaluations, "loss": losses}
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
