"""Measure a plan with a setting and one without in turn: `compare.py --bin BUILD/bin FOLDER --set KEY=VALUE`.

FOLDER holds model.onnx, recipe.toml and data.safetensors, as `torch_step.py WORKLOAD --onnx FOLDER` writes them. `trun profile` runs
the two plans alternately. Prints the fastest step of each and, by kind of instruction, the milliseconds of a step in that turn; --lines N
also prints N lines of either profile that the other does not have. Every other word (--precision bf16, --target cpu:v4) goes to tcc.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path


def profile(options, plan, data):
    words = [options.bin / "trun", "profile", plan, "--data", data, "--json", "--all", "--no-roofline"]
    return json.loads(subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--set", dest="setting", required=True, metavar="KEY=VALUE", help="of the second plan; the first has the recipe's")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--lines", type=int, default=0)
    options, words = parser.parse_known_args()
    options.bin = options.bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        plans = {"recipe": Path(folder) / "recipe.tplan", options.setting: Path(folder) / "setting.tplan"}
        for name, plan in plans.items():
            subprocess.run([options.bin / "tcc", options.folder / "model.onnx", "--recipe", options.folder / "recipe.toml", "--quiet",
                            "--entry", "train", "-o", plan, *words, *(["--set", name] if name != "recipe" else [])], check=True)
        best = {}
        for _ in range(options.turns):
            for name, plan in plans.items():
                found = profile(options, plan, options.folder / "data.safetensors")
                if name not in best or found["step_seconds"] < best[name]["step_seconds"]:
                    best[name] = found
    kinds = {}
    for name, found in best.items():
        for line in found["kernels"]:
            kinds.setdefault(line["kind"], dict.fromkeys(plans, 0.0))[name] += line["seconds"] * 1e3
    print("| milliseconds | " + " | ".join(plans) + " |\n| --- |" + " ---: |" * len(plans))
    print("| step | " + " | ".join(f"{best[name]['step_seconds'] * 1e3:.4g}" for name in plans) + " |")
    for kind, times in kinds.items():
        print(f"| {kind} | " + " | ".join(f"{times[name]:.3g}" for name in plans) + " |")
    if options.lines:
        names = {name: {line["what"] for line in found["kernels"]} for name, found in best.items()}
        for name, other in (list(plans), list(plans)[::-1]):
            alone = [line for line in best[name]["kernels"] if line["what"] not in names[other]]
            print(f"\n{name} alone:")
            for line in sorted(alone, key=lambda line: -line["seconds"])[:options.lines]:
                print(f"{line['seconds'] * 1e3:9.3f} ms  {line['what']}")


if __name__ == "__main__":
    main()
