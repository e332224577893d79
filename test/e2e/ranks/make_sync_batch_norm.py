"""Makes sync-batch-norm of test_virtual_ranks.py: `make_sync_batch_norm.py FOLDER` with torch and safetensors installed.

N ranks with synchronised BatchNorm and a batch of B compute the same as one process with a batch of N·B
(torch.nn.SyncBatchNorm itself needs CUDA). Model, batches and optimizer are those of the case batch-norm (make_ddp.py).
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from make_ddp import CASES, batches_of

# ranks, micro-batches of an update
RUNS = {"2 ranks": (2, 1), "4 ranks": (4, 1), "2 ranks, 2 micro-batches": (2, 2)}


def train(ranks, accumulate):
    model_class, column, make, optimizer_of, *_ = CASES["batch-norm"]
    torch.manual_seed(3)
    model = model_class().train()
    optimizer = optimizer_of(model.parameters())
    batches, losses = batches_of(make), []
    for begin in range(0, len(batches), ranks * accumulate):
        optimizer.zero_grad()
        losses.append(0.0)
        for micro in range(begin, begin + ranks * accumulate, ranks):
            whole = {key: torch.cat([batch[key] for batch in batches[micro:micro + ranks]]) for key in batches[0]}
            loss = nn.functional.cross_entropy(model(whole[column]), whole["target"]) / accumulate
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
    return losses, {key: value for key, value in model.state_dict().items() if value.is_floating_point()}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    expected, states = {"torch": torch.__version__}, {}
    for name, run in RUNS.items():
        expected[name], state = train(*run)
        states |= {f"{name}: {key}": value for key, value in state.items()}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    save_file(states, str(folder / "state.safetensors"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
