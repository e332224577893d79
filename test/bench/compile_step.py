"""Times an unmodified loop of PyTorch's, eager and with torch.compile(model), beside the same loop with tcc.compile_step, on
models of torchvision and transformers with random weights.

tools/setup.sh nightly; then: .venv-nightly/bin/python test/bench/compile_step.py [--small] [--steps N] [MODEL...]

Prints the table of docs/measurements/compile-step.md: milliseconds of an update (the median of --steps after the first),
seconds until a compiled loop can begin, from empty caches, and the largest relative difference to the eager loop's losses.
torch.compile needs a C++ compiler.
"""

import argparse
import copy
import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ["TCC_CACHE_DIR"] = ""  # no cached plans
import tcc  # noqa: E402


def resnet18(small):
    """torchvision's ResNet-18, 16×3×224×224"""
    import torchvision

    size, batch = (32, 4) if small else (224, 16)
    return (
        torchvision.models.resnet18(num_classes=10),
        (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))),
        nn.CrossEntropyLoss(),
    )


def mobilenet_v3(small):
    """torchvision's MobileNetV3 small, 16×3×224×224"""
    import torchvision

    size, batch = (32, 4) if small else (224, 16)
    model = torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0)
    return model, (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))), nn.CrossEntropyLoss()


def vit(small):
    """torchvision's ViT-B/16, 8×3×224×224"""
    import torchvision

    size, patch, layers, width, batch = (32, 8, 2, 48, 4) if small else (224, 16, 12, 768, 8)
    model = torchvision.models.VisionTransformer(
        size, patch, layers, width // (16 if small else 64), width, 4 * width, num_classes=10
    )
    return model, (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))), nn.CrossEntropyLoss()


def gpt2(small):
    """transformers' GPT-2, 4×256 tokens"""
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
    """transformers' BERT, 8×128 tokens"""
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


MODELS = {make.__name__: make for make in (resnet18, mobilenet_v3, vit, bert, gpt2)}


def timed(update, steps):
    """Losses of 1 + steps updates; seconds of the first one, and the median of the others."""
    losses, seconds = [], []
    for _ in range(1 + steps):
        began = time.perf_counter()
        losses.append(update().item())
        seconds.append(time.perf_counter() - began)
    return losses, seconds[0], statistics.median(seconds[1:])


def torch_loop(model, batch, loss, steps, compiled):
    """The losses, seconds until the loop can begin, and seconds of an update of PyTorch's loop with a copy of the model."""
    twin = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=1e-3)
    forward = torch.compile(twin) if compiled else twin

    def update():
        optimizer.zero_grad()
        value = forward(**batch).loss if loss is None else loss(forward(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        return value

    # Processes of the compiler may still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        torch.compiler.reset()
        losses, first, seconds = timed(update, steps)
    return losses, max(first - seconds, 0), seconds


def own_loop(model, batch, loss, steps, prove):
    """The same of tcc.compile_step."""
    began = time.perf_counter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = tcc.compile_step(model, loss, optimizer, example=batch, prove=prove)
    ready = time.perf_counter() - began
    losses, _, seconds = timed(lambda: step(*batch) if isinstance(batch, tuple) else step(batch), steps)
    return losses, ready, seconds


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default: all")
    options.add_argument("--small", action="store_true", help="a few layers, for a check of the script")
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--no-proof", action="store_true", help="compile_step without its comparison of gradients")
    options.add_argument("--no-torch-compile", action="store_true")
    given = options.parse_args()
    print(
        "| model | eager | torch.compile | compile_step | share of eager | share of torch.compile | torch.compile ready after "
        "| compile_step ready after | torch.compile's losses differ by | compile_step's losses differ by |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in given.model or MODELS:
        torch.manual_seed(0)
        model, batch, loss = MODELS[name](given.small)
        model.train()
        expected, _, eager = torch_loop(model, batch, loss, given.steps, False)

        def apart(losses, expected=expected):
            return f"{max(abs(a - b) / abs(b) for a, b in zip(losses, expected)):.1e}"

        peer, share, peer_ready, peer_apart = "–", "–", "–", "–"
        if not given.no_torch_compile:
            losses, seconds_to_compile, compiled = torch_loop(model, batch, loss, given.steps, True)
            peer, peer_ready, peer_apart = f"{compiled * 1e3:,.0f} ms", f"{seconds_to_compile:.1f} s", apart(losses)
        gc.collect()
        losses, ready, own = own_loop(model, batch, loss, given.steps, not given.no_proof)
        if not given.no_torch_compile:
            share = f"{own / compiled:.2f}"
        print(
            f"| {name + ', small' if given.small else MODELS[name].__doc__} | {eager * 1e3:,.0f} ms | {peer} | {own * 1e3:,.0f} ms | {own / eager:.2f} | {share} "
            f"| {peer_ready} | {ready:.1f} s | {peer_apart} | {apart(losses)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
