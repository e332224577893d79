"""LoRA on a base in 4 bits beside peft with bitsandbytes: `lora.py --bin BUILD/bin [--model llama-1b] [--budget 1.28GiB]`.

Needs torch, transformers, peft, bitsandbytes, onnxscript and safetensors in this Python. lora_model.py writes the model once, with weights
by rule. Each precision is compiled without a budget and with --budget; `trun` writes the start of the adapters for peft. Then
lora_peft.py and the plans take turns of --steps updates on the same samples, one after another, --rounds times; trun starts anew each turn,
and its first update is left out.

Prints for each: the median step and its share of peft's in the same round, the memory that the plan announces, the peak of the
process, the largest difference of a loss from peft's, and what compiling took. --write also stores them as JSON.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import contenders
import lora_model

HERE = Path(__file__).resolve().parent
GIB = 2 ** 30


class Plan(contenders.Ours):
    """A plan that is compiled once, with the memory and time of that."""

    def compile(self):
        words = [self.options.bin / "tcc", self.folder / "model.onnx", "--recipe", self.folder / "recipe.toml", "--threads",
                 self.options.threads, "-o", self.plan, "--quiet", *self.more()]
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True)
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise contenders.Failed(f"tcc: {errors.strip()[-300:]}")
        self.compiled = {"seconds": time.perf_counter() - start, "peak_bytes": used.ru_maxrss * 1024}

    def result(self):
        memory = json.loads(contenders.call([self.options.bin / "tcc", "report", self.plan, "--json"]))
        base = memory["adapters"]["base"]
        memory = memory["memory"]
        return {"announced_bytes": memory["arena_bytes"] + memory["resident_bytes"],
                "explained_bytes": sum(memory[k] for k in ("arena_bytes", "resident_bytes", "host_bytes", "library_bytes", "process_bytes")),
                "peak_bytes": max(self.peaks), "widened": base["widened"], "plan_bytes": self.plan.stat().st_size, "compile": self.compiled}


def write_start(options, folder, plan):
    """The start of the adapters, which follows from the recipe's seed, in peft's format."""
    run = folder / "start"
    subprocess.run(["rm", "-rf", run, folder / "adapter"], check=True)
    contenders.call([options.bin / "trun", plan, "--data", folder / "data.safetensors", "--steps", 0, "--out", run, "--no-release"])
    contenders.call([options.bin / "trun", "export", run, "-o", folder / "adapter", "--adapter", "--root", "net"])
    subprocess.run(["rm", "-rf", run], check=True)


def measure(options, folder, precision):
    plans = {"tcc": Plan(options, folder, precision, 1)}
    if options.budget:
        settings = [f"compiler.chunk_bytes={options.chunk_bytes}"] if options.chunk_bytes else []
        plans[f"tcc, {options.budget}"] = Plan(options, folder, precision, 1, options.budget, settings)
    for name, plan in plans.items():
        plan.compile()
        print(f"  {name}: compiled in {plan.compiled['seconds']:.0f} s and {plan.compiled['peak_bytes'] / GIB:.2f} GiB", flush=True)
    write_start(options, folder, plans["tcc"].plan)
    words = [sys.executable, HERE / "lora_peft.py", options.model, folder, "--precision", precision, "--threads", options.threads,
             "--warmup", 1, "--turns"] + (["--checkpoint"] if options.checkpoint else [])
    peer = contenders.Peer("peft", words)
    peer.start()
    seconds = {name: [] for name in ("peft", *plans)}
    ratios = {name: [] for name in plans}
    try:
        for number in range(options.rounds):
            theirs, busy = peer.turn(options.steps)
            seconds["peft"] += theirs
            print(f"  round {number}: peft {statistics.median(theirs):.1f} s (others {busy:.0%} of a core)", flush=True)
            for name, plan in plans.items():
                ours, busy = plan.turn(options.steps)
                seconds[name] += ours
                ratios[name].append(statistics.median(ours) / statistics.median(theirs))
                print(f"  round {number}: {name} {statistics.median(ours):.1f} s (others {busy:.0%} of a core)", flush=True)
        peer.process.stdin.close()
        last = peer.line()
        peer.process.wait(60)
    finally:
        peer.stop()
    rows = {"peft": {"seconds": seconds["peft"], "peak_bytes": last["whole_peak_bytes"], "steady_bytes": last["steady_peak_rss_bytes"],
                     "losses": last["losses"], "peer": last["peer"]}}
    for name, plan in plans.items():
        rows[name] = plan.result() | {"seconds": seconds[name], "ratios": ratios[name], "losses": plan.losses}
        rows[name]["difference"] = max(abs(a - b) for a, b in zip(plan.losses, last["losses"]))
    profile = plans["tcc"].profile("--no-roofline", "--steps", 1, "--warmup", 1, "--all")
    kinds = collections.Counter()
    for line in profile["kernels"]:
        kinds[line["kind"]] += line["seconds"]
    rows["tcc"]["profile"] = kinds | {"step": profile["step_seconds"]}
    return rows


def table(precision, rows):
    lines = [f"### {precision}", "", "| | step, s | ÷ peft | announced, GiB | peak of the process, GiB | loss − peft's, at most | compiled in, s | "
             "in, GiB |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, row in rows.items():
        step, peak = statistics.median(row["seconds"]), row["peak_bytes"] / GIB
        if name == "peft":
            lines.append(f"| {row['peer']} | {step:.1f} | 1 | | {peak:.2f} | | | |")
        else:
            lines.append(f"| {name} | {step:.2f} | {statistics.median(row['ratios']):.2f} | {row['announced_bytes'] / GIB:.3f} | {peak:.3f} | "
                         f"{row['difference']:.1e} | {row['compile']['seconds']:.0f} | {row['compile']['peak_bytes'] / GIB:.2f} |")
    lines += ["", f"Losses: {', '.join(f'{loss:.5f}' for loss in rows['tcc']['losses'])}; peft's "
              f"{', '.join(f'{loss:.5f}' for loss in rows['peft']['losses'][:len(rows['tcc']['losses'])])}.", ""]
    kinds = rows["tcc"]["profile"]
    lines.append("Of a step without a budget: " + ", ".join(f"{kind} {took / kinds['step']:.1%}" for kind, took in kinds.items() if kind != "step"))
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bench-lora"))
    parser.add_argument("--model", choices=lora_model.SIZES, default="llama-1b")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--precision", action="append", choices=["bf16", "f32"])
    parser.add_argument("--budget", default="", help="a --memory-budget to compile for, too")
    parser.add_argument("--chunk-bytes", type=int, help="compiler.chunk_bytes of the plan with a budget")
    parser.add_argument("--checkpoint", action="store_true", help="peft with activation checkpointing")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="updates of a turn")
    parser.add_argument("--write", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    folder = options.work / f"{options.model}-{options.length}"
    if not (folder / "model.onnx").is_file():
        subprocess.run([sys.executable, HERE / "lora_model.py", folder, options.model, "--length", str(options.length)], check=True)
    results = {}
    for precision in options.precision or ["bf16", "f32"]:
        print(precision, flush=True)
        results[precision] = measure(options, folder, precision)
        print("\n".join(table(precision, results[precision])), flush=True)
    if options.write:
        options.write.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
