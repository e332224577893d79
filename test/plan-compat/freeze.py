"""Freezes plans of the present format version: `freeze.py BUILD/bin`.

Compiles a few models of test/e2e/zoo for cpu:v3, trains each for some updates and writes plans and losses to a folder
named after the format version. It refuses a folder that exists.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = HERE.parent / "e2e" / "zoo"
MODELS = ("mlp", "small-cnn", "nano-gpt")
STEPS = 5


def format_version(plan):
    return struct.unpack_from("<I", plan.read_bytes(), 8)[0]


def losses(trun, plan, case, out):
    """The run's losses, as texts that lose no bit, or the message with which it ended."""
    done = subprocess.run([trun, plan, "--data", ZOO / case / "data.safetensors", "--no-shuffle", "--steps", str(STEPS),
                           "--out", out], capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return [float(line["loss"]).hex() for line in lines if "loss" in line and "step" in line][:STEPS]


def main():
    binaries = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        frozen = {}
        for case in MODELS:
            plan = folder / f"{case}.tplan"
            subprocess.run([binaries / "tcc", ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml",
                            "--target", "cpu:v3", "-o", plan], check=True, capture_output=True)
            frozen[case] = losses(binaries / "trun", plan, case, folder / case)
        target = HERE / str(format_version(plan))
        target.mkdir()
        for case in MODELS:
            (target / f"{case}.tplan").write_bytes((folder / f"{case}.tplan").read_bytes())
        (target / "losses.json").write_text(json.dumps(frozen, indent=1) + "\n")
        print(f"{target}: {len(MODELS)} plans")


if __name__ == "__main__":
    main()
