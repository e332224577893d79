"""Compare the speed of training with other programs: `performance.py --bin BUILD/bin [--torch PYTHON] [--jax PYTHON] [--ort PYTHON] [--llmc DIR]`.

  --torch   a Python with torch, torchvision, onnx, onnxscript, safetensors (default: this one); it also exports the models
  --jax     a Python with jax, optax, safetensors
  --ort     a Python with onnxruntime-training (ort_step.py says which versions)
  --llmc    a folder with llm.c's source: train_gpt2.c and llmc/
  --only W, --precisions f32,bf16, --peers NAME..., --rounds N, --turn SECONDS     measure less
  --render  writes the page from the results of earlier runs; nothing is measured
  --isolated  runs each plan once, its instructions between guard pages (isolated-plans); nothing is measured, no page written

Contenders of one workload and precision are alive at once and take turns: in every round each runs a few steps (about --turn seconds of
them), so that disturbances of the machine affect all of them. The order rotates from round to round. A ratio is our median step over the
peer's, over all rounds; its spread is the least and the greatest ratio of a single round. A turn during which other processes used more
than a tenth of a core is repeated up to twice, and the least disturbed one counts; rows that are still disturbed are marked. `trun profile`
measures the machine's roofline before and after each of our turns, since that of a virtual machine changes by the minute; the better of
the two is the round's roofline, and a share of the roofline is the median over the rounds. Results are kept in the work folder, part by part.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import contenders
import performance_page

HERE = Path(__file__).resolve().parent
DISTURBED = 0.1                           # share of a core


@dataclass
class Workload:
    name: str
    title: str
    model: str
    batch: int
    seq: int = 0
    warmup: int = 3                       # 1: for long steps, of which a turn has only one
    budget: str = ""                      # f32 is also measured with this memory budget


WORKLOADS = [
    Workload("gpt2-4x64", "GPT-2 124M, 4 × 64", "gpt2-124m", 4, 64, 2),
    Workload("gpt2-1x1024", "GPT-2 124M, 1 × 1024", "gpt2-124m", 1, 1024, 1),
    Workload("gpt-small", "small GPT, 16 × 128", "gpt-small", 16, 128),
    Workload("resnet50", "ResNet-50, 8 × 224²", "resnet50", 8, 0, 2, "612MiB"),
    Workload("resnet9", "ResNet-9, 64 × 32²", "resnet9", 64),
    Workload("cnn", "small CNN, 64", "cnn", 64, 0, 5),
    Workload("mlp-64", "MLP, 64 rows", "mlp", 64, 0, 20),
    Workload("mlp-8", "MLP, 8 rows", "mlp", 8, 0, 20),
    Workload("attention", "attention alone, T = 4096", "attention", 1, 4096, 2),
    Workload("adamw", "AdamW, 124M parameters", "adamw", 1, 0, 3),
]


def turns_of(options, crew):
    """rounds of {name: (seconds of each step, others)} from contenders that have started; `crew`: name → (contender, steps a turn)."""
    rows = {name: {"rounds": [], "others": []} for name in crew}
    ours, before = crew.get("tcc", (None, 0))[0], None
    for number in range(options.rounds):
        names = list(crew)
        for name in names[number % len(names):] + names[:number % len(names)]:
            contender, steps = crew[name]
            # A peer whose step takes longer than --slow gets one turn only.
            if rows[name]["rounds"] and statistics.median(rows[name]["rounds"][0]) > options.slow:
                continue
            tries = []
            while not tries or (min(others for _, others in tries) > DISTURBED and len(tries) < options.tries):
                if contender is ours:
                    before = ours.roofline()
                tries.append(contender.turn(steps))
            times, others = min(tries, key=lambda one: one[1])
            if contender is ours:
                after = ours.roofline()
                rows[name].setdefault("rooflines", []).append({what: max(rate, after[what]) for what, rate in before.items()})
            rows[name]["rounds"].append(times)
            rows[name]["others"].append(others)
        print("   " + ", ".join(f"{name} {statistics.median(row['rounds'][-1]) * 1e3:.4g} ms" for name, row in rows.items()), flush=True)
    return rows


def measure(options, workload, precision):
    folder = contenders.export(options, workload)
    print(f"{workload.title}, {precision}", flush=True)
    kind = contenders.OurGradients if workload.model == "attention" else contenders.Ours
    makers = {"tcc": lambda: kind(options, folder, precision, workload.warmup)} | contenders.peers_of(options, workload, precision)
    if workload.budget and precision == "f32":
        makers[f"tcc within {workload.budget}"] = lambda: kind(options, folder, precision, workload.warmup, workload.budget)
    crew, missing = {}, {}
    try:
        for name, make in makers.items():
            try:
                contender = make()
                crew[name] = contender, 1
                warm = contender.start()
                step = warm[-1] if warm else options.turn
                crew[name] = contender, max(1, min(2000, round(options.turn / max(step, 1e-6))))
                took = contender.notes.get("first_step_s", contender.notes.get("tcc_cold_s", 0))
                print(f"   {name}: {'compiled in' if name.startswith('tcc') else 'first step'} {took:.2f} s", flush=True)
            except contenders.Failed as problem:
                crew.pop(name, None)
                missing[name] = str(problem)
                print(f"   {name}: {problem}", flush=True)
        rows = turns_of(options, crew) if crew else {}
        for name, (contender, _) in crew.items():
            rows[name] |= contender.finish()
        ours = crew.get("tcc")
        profile = ours[0].profile() if ours else None
        result = {"rows": rows, "missing": missing, "profile": profile, "when": time.strftime("%Y-%m-%d")}
        if ours and workload.model == "attention":
            try:
                result["memory_by_length"] = attention_memory(options, precision)
            except contenders.Failed as problem:
                print(f"   memory by length: {problem}", flush=True)
        return result
    finally:
        for contender, _ in crew.values():
            contender.stop()


def attention_memory(options, precision):
    """Bytes of the plan for several lengths. They grow linearly if no score matrix is stored."""
    sizes = {}
    for length in (2048, 4096, 8192):
        workload = Workload(f"attention-{length}", "", "attention", 1, length, 1)
        ours = contenders.OurGradients(options, contenders.export(options, workload), precision, 1)
        ours.compile()
        report = json.loads(contenders.call([options.bin / "tcc", "report", ours.plan, "--json"]))
        sizes[str(length)] = report["memory"]["arena_bytes"] + report["memory"]["resident_bytes"]
    return sizes


def measure_adamw(options, workload):
    """Ours: the profile of the kernels that write the optimizer's state in a GPT-2 step, not fused into products. PyTorch: its fused optimizer
    on as many parameters."""
    gpt = WORKLOADS[0]
    folder = contenders.export(options, gpt)
    print(workload.title, flush=True)
    ours = contenders.Ours(options, folder, "f32", gpt.warmup, settings=["compiler.fuse_updates=false"])
    ours.compile()
    crew, missing = {}, {}
    for name, make in contenders.peers_of(options, workload, "f32").items():
        try:
            crew[name] = make(), max(1, round(options.turn / 0.1))
            crew[name][0].start()
        except contenders.Failed as problem:
            crew.pop(name, None)
            missing[name] = str(problem)
    rows, rounds, copies, others, profile = {}, [], [], [], None
    try:
        for _ in range(options.rounds):
            profile = ours.profile("--steps", 3)
            kernels = [k for k in profile["kernels"] if "optimizer" in k["writes"]]
            rounds.append([sum(k["seconds"] for k in kernels)])
            copies.append(profile["roofline"]["copy_bytes_per_s"])
            others.append(0.0)
            for name, (contender, steps) in crew.items():
                times, disturbed = contender.turn(steps)
                row = rows.setdefault(name, {"rounds": [], "others": []})
                row["rounds"].append(times)
                row["others"].append(disturbed)
        for name, (contender, _) in crew.items():
            rows[name] |= contender.finish()
    finally:
        for contender, _ in crew.values():
            contender.stop()
    rows["tcc"] = {"rounds": rounds, "copies": copies, "others": others, "peer": "tcc", "parameters": profile["trained_elements"]}
    for name in crew:
        rows[name]["parameters"] = rows[name].get("parameter_bytes", 0) // 4
    return {"rows": rows, "missing": missing, "profile": {"roofline": profile["roofline"]}, "when": time.strftime("%Y-%m-%d")}


def isolated(options, workload, precision):
    """Empty, or the invalid accesses of a workload's plans, including the plan with a budget."""
    kind = contenders.OurGradients if workload.model == "attention" else contenders.Ours
    try:
        folder = contenders.export(options, workload)
        for budget in {"", workload.budget if precision == "f32" else ""}:
            ours = kind(options, folder, precision, workload.warmup, budget)
            ours.compile()
            contenders.call([options.bin / "isolated-plans", ours.plan])
    except contenders.Failed as problem:
        return str(problem)
    return ""


def machine(options):
    cpu = {line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip() for line in
           subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines() if ":" in line}
    flags = cpu.get("Flags", "").split()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": cpu.get("Model name", platform.processor()), "family": cpu.get("CPU family"), "model": cpu.get("Model"),
            "cores": len(os.sched_getaffinity(0)), "threads": options.threads, "memory_gib": round(pages / 2 ** 30),
            "l3": cpu.get("L3 cache", "?").split(" (")[0], "linux": platform.release().split("-")[0],
            "features": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]}


def add_turns(parser, turn):
    """Adds the options for turns; `turn`: the default of --turn, in seconds."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=float, default=turn, help="seconds of steps that a contender runs in each round")
    parser.add_argument("--tries", type=int, default=3, help="of a turn that others disturb")
    parser.add_argument("--slow", type=float, default=15.0, help="seconds of a step from which a peer has a single turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder of tcc and trun")
    parser.add_argument("--torch", type=Path, default=Path(sys.executable))
    parser.add_argument("--jax", type=Path)
    parser.add_argument("--ort", type=Path)
    parser.add_argument("--llmc", type=Path)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--only", nargs="*", default=[], choices=[w.name for w in WORKLOADS], metavar="WORKLOAD")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--peers", nargs="*", default=[], help="part of a name: eager, compile, jax, onnx, llm; default: all that are given")
    add_turns(parser, turn=1.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tcc-performance")
    parser.add_argument("--docs", type=Path, default=HERE.parents[1] / "docs" / "measurements", help="folder of performance.md and images/")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--isolated", action="store_true")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    chosen = [(workload, precision) for workload in WORKLOADS if not options.only or workload.name in options.only
              for precision in (options.precisions.split(",") if workload.model != "adamw" else ["f32"])]
    kept = options.work / "results.json"
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    if not options.render:
        if not options.bin:
            parser.error("--bin: where tcc and trun are")
        options.bin = options.bin.resolve()
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        if options.isolated:
            wrong = 0
            # The workload adamw has no plan of its own: it profiles GPT-2's.
            for workload, precision in (c for c in chosen if c[0].model != "adamw"):
                problem = isolated(options, workload, precision)
                wrong += bool(problem)
                print(f"{workload.title}, {precision}: {problem or 'every access lies in its operand'}", flush=True)
            return 1 if wrong else 0
        results["machine"] = machine(options)
        for workload, precision in chosen:
            try:
                result = measure_adamw(options, workload) if workload.model == "adamw" else measure(options, workload, precision)
            except contenders.Failed as problem:
                result = {"rows": {}, "missing": {"tcc": str(problem)}, "profile": None, "when": time.strftime("%Y-%m-%d")}
                print(f"   {problem}", flush=True)
            results.setdefault(workload.name, {})[precision] = result
            kept.write_text(json.dumps(results))
    if "machine" not in results:
        parser.error(f"--render: {kept} holds no results yet")
    performance_page.write(options.docs, results, {w.name: w.title for w in WORKLOADS})
    print(options.docs / "performance.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
