"""Memory of training beside PyTorch: `memory.py --bin BUILD/bin [--workload NAME]... [--budget FRACTION]... [--write FILE.md]`.

Needs torch, torchvision, onnx, onnxscript and safetensors in this Python. Each workload is exported once by torch_step.py and
compiled as it is, with nothing recomputed (`compiler.recompute_time = 0`), with each `--budget` (a fraction of what that takes), and
with the smallest budget that is feasible. Then PyTorch (eager, with activation checkpointing block by block, compiled) and trun run in turn, from the same weights on the same batch.

Memory is resident bytes above the process before the model is there: PyTorch after its imports, trun before it opens the plan (which
`tcc report --json` measures). PyTorch's is the peak of the steps after warm-up, which leaves out what compiling took; trun's is the
peak of the whole process. Time is the median of the steps after warm-up, and CPU seconds a step, which other programs on the machine
disturb less. Results are kept in the work folder: `--render` writes the page from them without running anything. The hand-written text at the
page's end is kept.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKLOADS = {"gpt2-4x256": ("gpt2-124m", 4, 256, "GPT-2 124M, 4 × 256 tokens"),
             "resnet50-8": ("resnet50", 8, 0, "ResNet-50, 8 × 224²"),
             "unet-4": ("unet", 4, 0, "U-Net, 64 channels at the top, 4 × 256²"),
             "gpt2-1x1024": ("gpt2-124m", 1, 1024, "GPT-2 124M, 1 × 1024 tokens")}
PEERS = {"PyTorch eager": [], "PyTorch, checkpointing": ["--checkpoint"], "torch.compile": ["--compile"],
         "torch.compile, activation budget 0.5": ["--compile", "--activation-memory-budget", 0.5]}
NOTES = "## What the figures say\n"       # the page's text from this heading on is kept
COMMAND = ["```sh", "python test/bench/memory.py --bin build/bin --budget 0.8 --budget 0.65 --write docs/measurements/memory.md", "```"]
MIB = 2 ** 20
TICKS = os.sysconf("SC_CLK_TCK")


def torch_step(options, workload, *more):
    name, batch, seq, _ = WORKLOADS[workload]
    words = [sys.executable, HERE / "torch_step.py", name, "--batch", batch, "--seq", seq, "--warmup", options.warmup, "--steps",
             options.steps, *more]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{workload} {' '.join(map(str, more))}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compile_plan(options, folder, plan, budget=None, *more):
    """Compiles the plan. Returns None, or the smallest feasible budget if `budget` is too small."""
    words = [options.bin / "tcc", folder / "model.onnx", "--recipe", folder / "recipe.toml", "--entry", "train", "--threads",
             options.threads, "-o", plan, "--quiet", *more] + (["--memory-budget", budget] if budget else [])
    start = time.perf_counter()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode == 3:
        return int(re.search(r"smallest budget that does is [^(]*\((\d+) bytes\)", done.stderr)[1])
    if done.returncode:
        raise RuntimeError(done.stderr)
    print(f"  {plan.name}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    return None


def cpu_seconds(process):
    """User and system time of a running process; None once it is gone."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    except (OSError, IndexError):
        return None


def run_plan(options, folder, plan):
    """Peak bytes of the process, losses, step seconds and CPU seconds a step after warm-up."""
    run = folder / "run"
    subprocess.run(["rm", "-rf", run], check=True)
    words = [options.bin / "trun", plan, "--data", folder / "data.safetensors", "--no-shuffle", "--steps",
             options.warmup + options.steps, "--out", run, "--no-release", "--threads", options.threads]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    marks, peak = {}, 0
    while process.poll() is None:
        time.sleep(0.005)
        try:
            found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            peak = max(peak, int(found[1]) * 1024) if found else peak
            marks.setdefault((run / "metrics.jsonl").read_text().count("\n"), cpu_seconds(process))
        except OSError:
            pass
    if process.returncode:
        raise RuntimeError(f"trun {plan}: status {process.returncode}")
    lines = [line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
    first, last = marks.get(options.warmup), marks.get(options.warmup + options.steps)
    busy = (last - first) / options.steps if first and last else None
    subprocess.run(["rm", "-rf", run], check=True)
    return {"peak_bytes": peak, "losses": [line["loss"] for line in lines], "cpu_s": busy,
            "seconds": [line["seconds"] for line in lines[options.warmup:]]}


def measure(options, workload, kept):
    folder = options.work / workload
    print(workload, flush=True)
    if not (folder / "model.onnx").is_file():
        torch_step(options, workload, "--onnx", folder)
    plan, once = folder / "all.tplan", folder / "once.tplan"
    compile_plan(options, folder, plan)
    compile_plan(options, folder, once, None, "--set", "compiler.recompute_time=0")

    def memory_of(path):
        report = subprocess.run([options.bin / "tcc", "report", path, "--json"], capture_output=True, text=True, check=True).stdout
        return json.loads(report)["memory"] | {"library": json.loads(report)["library"]}

    plans = {"tcc": plan, "tcc, nothing recomputed": once}
    memory = {name: memory_of(path) for name, path in plans.items()}
    whole = memory["tcc, nothing recomputed"]["arena_bytes"] + memory["tcc"]["resident_bytes"]
    if options.budget:
        least = compile_plan(options, folder, folder / "none.tplan", 1 << 20)
        budgets = sorted({int(whole * fraction) for fraction in options.budget if whole * fraction > least} | {least}, reverse=True)
        for budget in budgets:
            name = f"tcc, {budget / MIB:.0f} MiB" + (" (least)" if budget == least else "")
            path = folder / f"{budget}.tplan"
            if compile_plan(options, folder, path, budget) is None:
                plans[name], memory[name] = path, memory_of(path)
    rows = {name: {"peaks": [], "seconds": [], "cpu": []} for name in [*PEERS, *plans]}
    reference, state = kept.get("losses"), kept.get("state_bytes")
    if kept:
        rows |= {name: kept["rows"][name] for name in PEERS}
    for number in range(options.rounds):
        for name, more in PEERS.items():
            if name in options.without or kept:
                continue
            # The exporting run adds a little noise to the weights first: the first round's eager run does so, too, to compare losses.
            noise = ["--onnx", folder / "again"] if name == "PyTorch eager" and number == 0 and options.losses else []
            if noise:
                reference = torch_step(options, workload, *noise)["losses"]
            theirs = torch_step(options, workload, *more)
            state = theirs["parameter_bytes"] + theirs["optimizer_bytes"]
            rows[name]["peaks"].append(theirs["steady_peak_rss_bytes"])
            rows[name]["seconds"].append(theirs["median_s"])
            rows[name]["cpu"].append(theirs["cpu_s"])
            print(f"  {name}: {theirs['steady_peak_rss_bytes'] / MIB:.0f} MiB, {theirs['median_s']:.2f} s", flush=True)
        for name, path in plans.items():
            ours = run_plan(options, folder, path)
            rows[name]["peaks"].append(ours["peak_bytes"] - memory[name]["process_bytes"])
            rows[name]["seconds"] += ours["seconds"]
            rows[name]["cpu"] += [ours["cpu_s"]] if ours["cpu_s"] else []
            rows[name]["losses"] = ours["losses"]
            print(f"  {name}: {rows[name]['peaks'][-1] / MIB:.0f} MiB, {statistics.median(ours['seconds']):.2f} s", flush=True)
    for name in plans:
        keys = ("arena_bytes", "resident_bytes", "host_bytes", "library_bytes", "process_bytes")
        rows[name]["reported"] = {key: memory[name][key] for key in keys}
        rows[name]["data_bytes"] = (folder / "data.safetensors").stat().st_size
        if reference:
            rows[name]["loss_difference"] = max(abs(a - b) / abs(b) for a, b in zip(rows[name]["losses"], reference))
    return {"state_bytes": state, "losses": reference, "rows": rows, "library": memory["tcc"]["library"], "threads": options.threads,
            "in_turn": not kept, "when": time.strftime("%Y-%m-%d")}


def machine():
    cpu = {line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip() for line in
           subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines() if ":" in line}
    import torch
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    level = "AVX-512" if "avx512f" in cpu.get("Flags", "") else "AVX2"
    return (f"{cpu.get('Model name', platform.processor())} (family {cpu.get('CPU family', '?')}, model {cpu.get('Model', '?')}), "
            f"{os.cpu_count()} cores with {level}, {pages / 2 ** 30:.0f} GiB, Linux {platform.release().split('-')[0]}; "
            f"PyTorch {torch.__version__}")


def table(workload, result):
    rows, state = result["rows"], result["state_bytes"]
    peak = {name: max(row["peaks"]) for name, row in rows.items() if row["peaks"]}
    seconds = {name: statistics.median(row["seconds"]) for name, row in rows.items() if row["seconds"]}
    busy = {name: statistics.median(row["cpu"]) for name, row in rows.items() if row["cpu"]}
    eager, in_turn = "PyTorch eager", result.get("in_turn", False)
    lines = [f"### {WORKLOADS[workload][3]}", "", f"Parameters and optimizer state take {state / MIB:.0f} MiB.", "",
             "| | total, MiB | ÷ eager | without state, MiB | ÷ eager |" + (" step, s | ÷ eager |" if in_turn else "")
             + " CPU s a step | ÷ eager | explained |", "| ---" + " | ---:" * (9 if in_turn else 7) + " |"]
    for name, total in peak.items():
        rest = total - state
        explained = ""
        if reported := rows[name].get("reported"):
            explained = f"{(sum(reported.values()) + rows[name]['data_bytes']) / (total + reported['process_bytes']):.3f}"
        cpu = f"{busy[name]:.2f} | {busy[name] / busy[eager]:.2f}" if name in busy else "|"
        lines.append(f"| {name} | {total / MIB:.0f} | {total / peak[eager]:.2f} | {rest / MIB:.0f} | {rest / (peak[eager] - state):.2f} "
                     + (f"| {seconds[name]:.2f} | {seconds[name] / seconds[eager]:.2f} " if in_turn else "")
                     + f"| {cpu} | {explained} |")
    differences = [row["loss_difference"] for row in rows.values() if "loss_difference" in row]
    runs = [row["losses"] for row in rows.values() if "losses" in row]
    losses = {tuple(run[:min(map(len, runs))]) for run in runs}
    lines += ["", (f"Losses within {max(differences):.1e} of PyTorch's. " if differences else "")
              + ("Every budget gives the same losses, bit by bit." if len(losses) == 1 else "THE LOSSES DIFFER between budgets.")]
    return lines + [""]


def page(results, about, notes):
    days = sorted({result.get("when", "") for result in results.values()} - {""}) or ["on an unknown day"]
    lines = ["# Memory beside PyTorch", "",
             f"Measured {days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'} by `test/bench/memory.py`; its head says what is "
             "measured and how.", "", *COMMAND, "",
             f"Machine: {about}; {next(iter(results.values()))['library']}, AdamW, f32, "
             f"{next(iter(results.values()))['threads']} threads.", "",
             "*Total* is the peak of resident bytes above the process before the model is there; *without state* leaves out parameters "
             "and optimizer state. *Explained* is what `tcc report` says (arenas, host, library, process) and the size of the data "
             "file, over the peak of the whole process. CPU seconds are those of all threads together.", ""]
    for workload, result in results.items():
        lines += table(workload, result)
    return "\n".join(lines) + ("\n" + notes if notes else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bench-memory"))
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--budget", type=float, action="append", default=[], metavar="FRACTION")
    parser.add_argument("--without", action="append", default=[], choices=PEERS, help="a peer to leave out")
    parser.add_argument("--losses", action="store_true", help="compare losses with PyTorch's: one more run of it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep-peers", action="store_true", help="take PyTorch's figures from the last run; step times are not compared then")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--write", type=Path, help="the page to write")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    results = {}
    for workload in options.workload or WORKLOADS:
        kept = options.work / f"{workload}.json"
        if not options.render:
            peers = json.loads(kept.read_text()) if options.keep_peers and kept.is_file() else {}
            kept.write_text(json.dumps(measure(options, workload, peers)))
        if kept.is_file():
            results[workload] = json.loads(kept.read_text())
            print("\n".join(table(workload, results[workload])), flush=True)
    if options.write:
        before = options.write.read_text() if options.write.is_file() else ""
        notes = NOTES + before.split(NOTES, 1)[1] if NOTES in before else ""
        options.write.write_text(page(results, machine(), notes))


if __name__ == "__main__":
    main()
