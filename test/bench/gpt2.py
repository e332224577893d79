"""GPT-2 124M beside PyTorch eager: `gpt2.py --bin BUILD/bin [--batch 4 --seq 64] [--rounds 3] [--work DIR]`.

Needs torch, onnx, onnxscript and safetensors in this Python. Exports the model with torch_step.py, compiles it (timed), then runs
PyTorch and trun in turn, ten updates each from the same weights on the same batch, and prints: seconds of tcc, the largest
relative difference of a loss, the median step of each side and their ratio round by round, and peak resident bytes.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WARMUP = 3


def torch_step(options, *more):
    words = [sys.executable, HERE / "torch_step.py", "gpt2-124m", "--batch", options.batch, "--seq", options.seq, "--warmup",
             WARMUP, "--steps", 10 - WARMUP, *more]
    output = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def peak_of(words):
    """Runs a command; its largest resident size in bytes."""
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{words[0]} failed: {status}")
    return usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bench-gpt2"))
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    folder = options.work / f"{options.batch}x{options.seq}"
    if not (folder / "model.onnx").is_file():
        torch_step(options, "--onnx", folder)
    plan, run = folder / "model.tplan", folder / "run"
    start = time.perf_counter()
    subprocess.run([options.bin / "tcc", folder / "model.onnx", "--recipe", folder / "recipe.toml", "--entry", "train", "-o", plan,
                    "--quiet"], check=True)
    print(f"tcc: {time.perf_counter() - start:.2f} s", flush=True)
    for number in range(options.rounds):
        # The exporting run adds a little noise to the weights first: so does this one, to start from the same.
        theirs = torch_step(options, "--onnx", folder / "again")
        subprocess.run(["rm", "-rf", run], check=True)
        peak = peak_of([options.bin / "trun", plan, "--data", folder / "data.safetensors", "--no-shuffle", "--steps", 10, "--out",
                        run, "--no-release"])
        ours = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        difference = max(abs(a["loss"] - b) / abs(b) for a, b in zip(ours, theirs["losses"]))
        step = statistics.median(entry["seconds"] for entry in ours[WARMUP:])
        print(f"round {number + 1}: ours {step:.3f} s, PyTorch {theirs['median_s']:.3f} s, ratio {step / theirs['median_s']:.2f}; "
              f"losses within {difference:.1e}; peak resident ours {peak / 2**20:.0f} MiB, PyTorch "
              f"{theirs['peak_rss_bytes'] / 2**20:.0f} MiB above its imports", flush=True)


if __name__ == "__main__":
    main()
