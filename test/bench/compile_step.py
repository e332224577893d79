"""Times an unmodified loop of PyTorch's beside the same loop with tcc.compile_step, on models of torchvision and
transformers.

test/bench/models needs test/bench/models/requirements.txt; then: python test/bench/compile_step.py [--small] [MODEL...]

Prints, for each model, milliseconds of an update (the median of --steps after one), seconds until the compiled loop can
begin, and the largest relative difference between the two loops' losses.
"""

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import tcc  # noqa: E402


def resnet18(small):
    import torchvision

    size, batch = (32, 4) if small else (224, 16)
    return (
        torchvision.models.resnet18(num_classes=10),
        (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))),
        nn.CrossEntropyLoss(),
    )


def mobilenet_v3(small):
    import torchvision

    size, batch = (32, 4) if small else (224, 16)
    model = torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0)
    return model, (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))), nn.CrossEntropyLoss()


def gpt2(small):
    import transformers

    width, layers, length = (48, 2, 32) if small else (768, 12, 256)
    config = transformers.GPT2Config(
        n_embd=width,
        n_layer=layers,
        n_head=width // (16 if small else 64),
        n_positions=length,
        use_cache=False,
        vocab_size=1000 if small else 50257,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    ids = torch.randint(config.vocab_size, (4, length))
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}, None


def bert(small):
    import transformers

    width, layers, length = (48, 2, 24) if small else (768, 12, 128)
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // (16 if small else 64),
        intermediate_size=4 * width,
        max_position_embeddings=length,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    batch = {
        "input_ids": torch.randint(config.vocab_size, (8, length)),
        "attention_mask": torch.ones(8, length, dtype=torch.int64),
        "labels": torch.randint(3, (8,)),
    }
    return transformers.BertForSequenceClassification(config), batch, None


MODELS = {make.__name__: make for make in (resnet18, mobilenet_v3, gpt2, bert)}


def timed(update, steps):
    losses, seconds = [], []
    for _ in range(1 + steps):
        began = time.perf_counter()
        losses.append(update().item())
        seconds.append(time.perf_counter() - began)
    return losses, statistics.median(seconds[1:]) * 1e3


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model", nargs="*")
    options.add_argument("--small", action="store_true", help="a few layers, for a check of the script")
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--no-proof", action="store_true")
    given = options.parse_args()
    for name in given.model or MODELS:
        torch.manual_seed(0)
        model, batch, loss = MODELS[name](given.small)
        model.train()
        twin = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(twin.parameters(), lr=1e-3)

        def eager():
            optimizer.zero_grad()
            value = twin(**batch).loss if loss is None else loss(twin(batch[0]), batch[1])
            value.backward()
            optimizer.step()
            return value

        expected, eager_ms = timed(eager, given.steps)
        began = time.perf_counter()
        step = tcc.compile_step(
            model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3), example=batch, prove=not given.no_proof
        )
        ready = time.perf_counter() - began
        losses, own_ms = timed(lambda: step(*batch) if isinstance(batch, tuple) else step(batch), given.steps)
        apart = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
        print(
            f"{name:14} eager {eager_ms:8.1f} ms  compiled {own_ms:8.1f} ms  ready after {ready:6.1f} s  losses "
            f"differ by {apart:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
