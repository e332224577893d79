"""Trains on texts of any length: a plan of several shapes beside PyTorch, which pads each batch to its longest text.

.venv-nightly/bin/python test/bench/lengths.py [--text FILE] [--texts N] [--model classifier|gpt] [--no-compile]

Texts are the blocks of a file between empty lines, their tokens words and punctuation. Both sides train the same batches in the same
order (those of `trun --no-shuffle`) from the same weights. Prints seconds of an epoch, the largest difference of losses, memory, and the
time to compile by number of shapes. PyTorch runs eagerly and compiled with dynamic=True. It also runs eagerly on batches of
neighbouring texts, as a loader without buckets makes them.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
BUCKETS = [(64, 32), (32, 64), (16, 128), (8, 256), (4, 512)]  # batch, tokens of a text
VOCABULARY, WIDTH, HEADS, LAYERS, CLASSES, RATE = 4096, 256, 4, 4, 4, 3e-4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        heads = self.attend(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))


class Classifier(nn.Module):
    """ids, mask [batch, seq] → logits [batch, classes]."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BUCKETS[-1][1], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids, mask):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        hidden = (1.0 - mask[:, None, None, :]) * -1e9
        for block in self.blocks:
            x = block(x, hidden)
        x = self.last(x) * mask[:, :, None]
        return self.head(x.sum(1) / mask.sum(1, keepdim=True))


class Gpt(nn.Module):
    """ids [batch, seq] → logits [batch, seq, vocabulary]."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BUCKETS[-1][1], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, None)
        return self.head(self.last(x))


def read_texts(path, most):
    """Lists of token numbers, each at least 8 and at most 512 long."""
    blocks = [re.findall(r"\w+|[^\w\s]", block.lower()) for block in Path(path).read_text(errors="replace").split("\n\n")]
    blocks = [block[: BUCKETS[-1][1]] for block in blocks if len(block) >= 8]
    blocks = [blocks[i * len(blocks) // most] for i in range(min(most, len(blocks)))]
    common = collections.Counter(word for block in blocks for word in block).most_common(VOCABULARY - 1)
    numbers = {word: i + 1 for i, (word, _) in enumerate(common)}
    return [np.array([numbers.get(word, 0) for word in block]) for block in blocks]


def grouped(texts):
    """The batches of `trun --no-shuffle`."""
    open_, batches = [[] for _ in BUCKETS], []
    for i, text in enumerate(texts):
        shape = next(s for s, (_, longest) in enumerate(BUCKETS) if len(text) <= longest)
        open_[shape].append(i)
        if len(open_[shape]) == BUCKETS[shape][0]:
            batches.append(open_[shape])
            open_[shape] = []
    return batches


class Task:
    def __init__(self, kind, texts):
        self.kind, self.texts = kind, texts
        self.labels = [int(text[0] + text[-1]) % CLASSES for text in texts]

    def model(self):
        torch.manual_seed(1)
        return Classifier() if self.kind == "classifier" else Gpt()

    def batch(self, samples):
        """Padded to the longest."""
        longest = max(len(self.texts[i]) for i in samples)
        ids, mask = torch.zeros(len(samples), longest, dtype=torch.int64), torch.zeros(len(samples), longest)
        targets = torch.full((len(samples), longest), -100)
        for row, i in enumerate(samples):
            text = torch.from_numpy(self.texts[i])
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
            targets[row, : len(text) - 1] = text[1:]
        if self.kind == "classifier":
            return (ids, mask), torch.tensor([self.labels[i] for i in samples])
        return (ids,), targets

    def loss(self, logits, target):
        return F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=-100)

    def write(self, folder):
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in self.texts])])
        ids = np.concatenate(self.texts)
        columns = {"ids": ids, "ids.offsets": offsets}
        if self.kind == "classifier":
            columns |= {"mask": np.ones(len(ids), np.float32), "mask.offsets": offsets, "labels": np.array(self.labels)}
        else:
            columns |= {"labels": np.concatenate([np.append(text[1:], -100) for text in self.texts]), "labels.offsets": offsets}
        safetensors.numpy.save_file(columns, folder / "data.safetensors")
        model, (inputs, _) = self.model().train(), self.batch([0, 1])
        dims = {0: torch.export.Dim("batch", max=1 << 16), 1: torch.export.Dim("seq", min=4, max=BUCKETS[-1][1])}
        names = ["ids", "mask"][: len(inputs)]
        torch.onnx.export(model, inputs, folder / "model.onnx", dynamo=True, optimize=False, external_data=False, verbose=False,
                          input_names=names, output_names=["logits"], dynamic_shapes=[dims for _ in inputs])
        axis = "class_axis = -1\n" if self.kind == "gpt" else ""
        (folder / "recipe.toml").write_text(f'[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n{axis}'
                                            f'[optimizer]\nkind = "adamw"\nlr = {RATE}\nweight_decay = 0.01\n')


def torch_epochs(task, batches, epochs, compiled=False):
    """Losses of the first epoch and seconds of the last."""
    model = task.model().train()
    run = torch.compile(model, dynamic=True) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    losses, seconds = [], 0
    for epoch in range(epochs):
        begun = time.perf_counter()
        for samples in batches:
            inputs, target = task.batch(samples)
            optimizer.zero_grad()
            loss = task.loss(run(*inputs), target)
            loss.backward()
            optimizer.step()
            if epoch == 0:
                losses.append(loss.item())
        seconds = time.perf_counter() - begun
    return losses, seconds


def compile_plan(folder, buckets, name):
    shapes = ", ".join(f"{{ batch = {batch}, seq = {seq} }}" for batch, seq in buckets)
    begun = time.perf_counter()
    subprocess.run([ROOT / "build/bin/tcc", folder / "model.onnx", "--recipe", folder / "recipe.toml", "--set", f"model.buckets=[{shapes}]",
                    "--entry", "train", "--no-cache", "-o", folder / name], check=True, capture_output=True)
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=ROOT / "examples/char-gpt/shakespeare.txt")
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--model", choices=("classifier", "gpt"), default="classifier")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    task = Task(options.model, read_texts(options.text, options.texts))
    lengths = np.array([len(text) for text in task.texts])
    batches = grouped(task.texts)
    print(f"{len(task.texts)} texts of {lengths.min()} to {lengths.max()} tokens, {lengths.mean():.0f} on average; {len(batches)} batches")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task.write(folder)
        print("compile: " + ", ".join(f"{n} shapes {compile_plan(folder, BUCKETS[:n], 'plan.tplan'):.2f} s" for n in range(1, len(BUCKETS) + 1)))
        report = json.loads(subprocess.run([ROOT / "build/bin/tcc", "report", folder / "plan.tplan", "--json"], check=True, capture_output=True).stdout)
        ours = []
        for turn in range(2):
            subprocess.run([ROOT / "build/bin/trun", folder / "plan.tplan", "--data", folder / "data.safetensors", "--no-shuffle", "--epochs", "2",
                            "--out", folder / f"run{turn}"], check=True, capture_output=True)
            lines = [json.loads(line) for line in (folder / f"run{turn}/metrics.jsonl").read_text().splitlines()]
            lines = [line for line in lines if "loss" in line]
            ours.append(sum(line["seconds"] for line in lines[len(batches):]))
            if turn == 0:
                expected, eager = torch_epochs(task, batches, 2)
                losses = [line["loss"] for line in lines[:len(batches)]]
        again = torch_epochs(task, batches, 1)[1]
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
        print(f"losses: first {losses[0]:.6f} and {expected[0]:.6f}, last {losses[-1]:.6f} and {expected[-1]:.6f}, largest difference {difference:.1e}")
        eager = min(eager, again)
        rows = [("tcc, several shapes", min(ours)), ("PyTorch, the same batches", eager)]
        if not options.no_compile:
            rows.append(("PyTorch compiled, dynamic", torch_epochs(task, batches, 2, compiled=True)[1]))
        size = round(len(task.texts) / len(batches))
        rows.append((f"PyTorch, {size} texts in their order", torch_epochs(task, [list(range(at, min(at + size, len(task.texts)))) for at in
                                                                                  range(0, len(task.texts), size)], 1)[1]))
        for name, seconds in rows:
            print(f"{name:32} {seconds:7.2f} s an epoch   {min(ours) / seconds:5.2f}")
        arenas = report["memory"]["arena_bytes"] + report["memory"]["resident_bytes"]
        programs = report["memory"]["entries"]["train"]["programs"].values()
        sizes = [f"{(report['memory']['resident_bytes'] + program['arena_bytes']) / 2**20:.0f}" for program in programs]
        print(f"memory of the plan: {arenas / 2**20:.0f} MiB for all shapes, {' '.join(sizes)} MiB for each alone")


if __name__ == "__main__":
    sys.exit(main())
