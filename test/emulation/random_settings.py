#!/usr/bin/env python3
"""Models of the zoo under random settings, trained on the stand-in of CUDA's driver beside a CPU: `random_settings.py STANDIN`.

Each round draws a model and settings that by design do not interact: optimizer, accumulation, clipping, averages, attention,
epilogues, slices, chunks, convolutions, overlap, budget, precision. It checks that in f32 the losses and gradient norms of four
updates are those of the CPU plan of the same recipe; that in other types they stay near them; and that in each type another
order of threads and queued work gives the same bits. --seed SEED --rounds 1 reproduces a round.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("standin")
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--seed", type=int, default=0, help="of the first round; each further one takes the next number")
parser.add_argument("--models", nargs="+", help="names of the zoo; all of them by default")
parser.add_argument("--mode", default="fast", choices=["fast", "checked"])
options = parser.parse_args()
sys.argv = [sys.argv[0], options.standin]

from standin import stand_in  # noqa: E402: it takes its argument
from common import BIN, ZOO  # noqa: E402

UPDATES = 4
# Bounds for the relative difference of losses and of gradient norms: the CPU's kernels sum in another order.
NEAR = {"f32": (2e-5, 2e-3), "tf32": (1e-2, None), "bf16": (5e-2, None), "f16": (1e-2, None)}
MUON_NEAR = 1e-3                         # Muon's iterations round to bf16, whatever the precision
SECONDS = 900

SETTINGS = {
    "train.precision": ["f32", "f32", "f32", "tf32", "bf16", "f16"],
    "train.accumulate": [1, 1, 2],
    "train.clip_norm": [None, None, 0.5],
    "train.ema.decay": [None, 0.9],
    "train.ema.on": ["host", "device"],
    "optimizer.kind": [None, "sgd", "adamw", "rmsprop", "lion", "lamb", "muon", "adagrad"],
    "compiler.attention": ["auto", "fused", "unfused"],
    "compiler.attention_calls": ["auto", "none", "forward", "both"],
    "compiler.epilogues": ["auto", "none", "exact", "bias", "gelu", "all"],
    "compiler.slice_bytes": [0, 1024, 16384, 33554432],
    "compiler.chunk_bytes": [0, 4096, 65536, 67108864],
    "compiler.convolutions": ["auto", "kernels"],
    "compiler.fuse_updates": ["true", "true", "false"],
    "compiler.fuse": ["true", "true", "true", "false"],
    "compiler.overlap": ["true", "false"],
    "compiler.recompute_time": [0, 0.015, 0.5],
}
# Settings that a CPU has as well: the reference gets them, too.
SHARED = ("train.accumulate", "train.clip_norm", "optimizer.kind")


class Failed(Exception):
    pass


def run(folder, *words, env=None):
    done = subprocess.run([str(word) for word in words], cwd=folder, env=os.environ | (env or {}), capture_output=True, text=True,
                          timeout=SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"$ {' '.join(map(str, words))}\nexit status {done.returncode}\n{done.stderr[-3000:]}")
    return done


def trained(folder, name, case, words, device, env=None):
    """Losses and gradient norms by update, as the run wrote them."""
    plan = folder / f"{name}.tplan"
    if not plan.exists():
        run(folder, BIN / "tcc", case / "model.onnx", "--recipe", case / "recipe.toml", "-o", plan, *words)
    out = folder / f"run-{name}"
    shutil.rmtree(out, ignore_errors=True)
    run(folder, BIN / "trun", plan, "--data", case / "data.safetensors", "--no-shuffle", "--steps", UPDATES, "--out", out,
        "--no-release", "--device", device, env=env)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line.get("grad_norm")) for line in lines if "loss" in line]


def smaller(folder, case, words, share):
    """Words of a budget that leaves the arena `share` of its size without one; none if recomputation cannot save that much."""
    whole = folder / "whole.tplan"
    run(folder, BIN / "tcc", case / "model.onnx", "--recipe", case / "recipe.toml", "-o", whole, *words)
    memory = json.loads(run(folder, BIN / "tcc", "report", whole, "--json").stdout)["memory"]
    budget = ["--memory-budget", str(memory["resident_bytes"] + int(share * memory["arena_bytes"]))]
    try:
        run(folder, BIN / "tcc", case / "model.onnx", "--recipe", case / "recipe.toml", "-o", folder / "cuda.tplan", *words, *budget)
    except Failed as refusal:
        if "no plan fits into the memory budget" not in str(refusal):
            raise
        return []
    return budget


def apart(one, other):
    return abs(one - other) / max(abs(other), 1e-3)


def check(seed, folder):
    """Runs one round; raises Failed if something does not hold. Returns the round's settings, as words for tcc."""
    draw = random.Random(seed)
    names = options.models or sorted(path.parent.name for path in ZOO.glob("*/expected.json"))
    case = ZOO / draw.choice(names)
    settings = {key: draw.choice(values) for key, values in SETTINGS.items()}
    share = draw.choice([1, 1, 0.85, 0.7])
    if settings["train.ema.decay"] is None:
        del settings["train.ema.on"]
    words = lambda keys: [word for key in keys if settings.get(key) is not None for word in ("--set", f"{key}={settings[key]}")]
    told = f"{case.name} {' '.join(words(settings)[1::2])}{f' arena {share}' if share < 1 else ''}"
    print(f"seed {seed}: {told}", flush=True)
    # With a loss scale, both may skip the first updates.
    own = ["--precision", "f16"] if settings["train.precision"] == "f16" else []
    if settings["optimizer.kind"]: # in place of the recipe's, at a rate at which no optimizer diverges
        own += ["--set", "optimizer.lr=1e-3"]
        if "one_cycle" in (case / "recipe.toml").read_text():
            own += ["--set", "schedule.cycle_momentum=false"]
    exact = trained(folder, "cpu", case, [*words(SHARED), *own], "cpu")
    card = [*words(settings), *own, "--target", "cuda:sm_90"]
    if share < 1:
        card += smaller(folder, case, card, share)
    orders = [("ascending", seed + 1), ("seeded", seed + 2)]
    found = [trained(folder, "cuda", case, card, "cuda", stand_in(mode=options.mode, order=order, seed=number)) for order, number in orders]
    if found[0] != found[1]:
        raise Failed(f"the order of threads changes bits: {found[0]}, {found[1]}")
    near, norms_near = NEAR[settings["train.precision"]]
    if settings["optimizer.kind"] == "muon":
        near, norms_near = max(near, MUON_NEAR), None
    for update, ((loss, norm), (wanted, wanted_norm)) in enumerate(zip(found[0], exact, strict=True), 1):
        if not apart(loss, wanted) <= near:
            raise Failed(f"update {update}: loss {loss}, on a CPU {wanted}")
        if norms_near and norm is not None and wanted_norm is not None and not apart(norm, wanted_norm) <= norms_near:
            raise Failed(f"update {update}: gradient norm {norm}, on a CPU {wanted_norm}")


failures = 0
for seed in range(options.seed, options.seed + options.rounds):
    with tempfile.TemporaryDirectory(prefix="tcc-random-") as folder:
        try:
            check(seed, Path(folder))
        except Failed as problem:
            failures += 1
            print(f"seed {seed} FAILED: {problem}", flush=True)
print(f"random settings: {options.rounds} rounds, {failures} failed")
sys.exit(1 if failures else 0)
