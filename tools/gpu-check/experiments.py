"""Timed experiments on a card: plans of six workloads beside PyTorch, each with what was expected beforehand (experiments.toml).

gpu_check.py kit --experiments packs the plans, gpu_check.py experiments runs them: what still fits into the time that is allowed.
"""
import concurrent.futures
import json
import math
import statistics
import sys
import threading
import time
import tomllib
from pathlib import Path

from programs import last_line, run, torch_step

TABLE = Path(__file__).resolve().parent / "experiments.toml"
# The most memory of the card, in GiB, that peers which compile at the same time may take together.
WARMING_GIB = 74
# A program starts only if about this many seconds are left.
LEAST_SECONDS = 12


def table():
    return tomllib.loads(TABLE.read_text())


def folder_of(workload):
    return f"{workload['name']}-{workload['batch']}" + (f"x{workload['tokens']}" if "tokens" in workload else "")


def settings(plan):
    return [word for one in plan.get("set", []) for word in ("--set", one)]


class Memory:
    """Lets peers in while the card has room for them."""
    def __init__(self, gib):
        self.free, self.changed = gib, threading.Condition()

    def take(self, gib):
        with self.changed:
            self.changed.wait_for(lambda: gib <= self.free)
            self.free -= gib

    def give(self, gib):
        with self.changed:
            self.free += gib
            self.changed.notify_all()


class Experiments:
    def __init__(self, bench, within, compare):
        self.bench, self.compare = bench, compare
        self.end = time.monotonic() + within
        self.facts, self.rows, self.losses = table(), [], {}  # losses: of each plan that ran, by workload
        self.column = next((key for key in ("h200", "h100") if bench.card and key.upper() in bench.card["name"].upper()), None)

    def left(self):
        return self.end - time.monotonic()

    def peer_words(self, workload, how, steps, warmup):
        words = torch_step(self.bench.kit, workload["name"], workload["batch"], workload.get("tokens"), self.facts["precision"])
        return [*words, "--warmup", warmup, "--steps", steps, *how]

    def warm_up(self, workloads, torch):
        """Makes weights and lets PyTorch compile, all at once: nothing is timed yet. What it compiles is cached on disk."""
        memory = Memory(WARMING_GIB)
        begun = time.monotonic()

        def weights(workload):
            folder = self.bench.kit / "experiments" / folder_of(workload)
            code = f"import sys; sys.path.insert(0, {str(self.bench.kit)!r}); import gpu_check, json, pathlib; " \
                   f"folder = pathlib.Path({str(folder)!r}); gpu_check.make_weights(folder, json.loads((folder / 'workload.json').read_text()))"
            return run([sys.executable, "-c", code], 300)

        def compiled(workload, how):
            gib = min(workload["gib"], WARMING_GIB)
            memory.take(gib)
            try:
                return run(self.peer_words(workload, how, 1, 1), max(self.left(), 1))
            finally:
                memory.give(gib)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            jobs = [pool.submit(weights, workload) for workload in workloads]
            jobs += [pool.submit(compiled, workload, how) for workload in workloads if torch for how in workload["peers"] if "--compile" in how]
            for job in jobs:
                status, text = job.result()
                if status:
                    print(text.strip()[-600:], flush=True)
        print(f"weights made and PyTorch compiled in {time.monotonic() - begun:.0f} s", flush=True)

    def row(self, workload, who, problem, expected=None, **facts):
        self.rows.append({"workload": folder_of(workload), "who": who, "expected_ms": expected, "problem": problem, **facts})
        self.bench.record(f"{folder_of(workload)} {who}", problem, expected_ms=expected, **facts)

    def plan(self, workload, plan):
        folder, steps, who = self.bench.kit / "experiments" / folder_of(workload), self.facts["steps"], plan["name"]
        begun = time.monotonic()
        problem, lines, text = self.bench.train(folder, plan.get("like", who), "experiment", "--steps", steps, "--no-release",
                                                "--checkpoint-every", 0, *["--tune"] * plan.get("tune", False))
        seconds = sorted(line["seconds"] for line in lines[steps // 4:])
        losses = [line["loss"] for line in lines]
        memory = next((line.removeprefix("memory: ") for line in text.splitlines() if line.startswith("memory:")), None)
        if not problem:
            self.losses.setdefault(folder_of(workload), {})[who] = losses
        self.row(workload, who, problem, plan.get(self.column), ms=round(1e3 * statistics.median(seconds), 3) if seconds else None,
                 least_ms=round(1e3 * seconds[0], 3) if seconds else None, losses=losses, memory=[memory],
                 whole_s=round(time.monotonic() - begun, 1), said=text.splitlines()[-30:] if problem else [],
                 **self.bench.algorithms("experiment"))
        self.bench.forget("experiment")

    def profile(self, workload, plan):
        folder = self.bench.kit / "experiments" / folder_of(workload)
        status, text = self.bench.program("trun", "profile", folder / f"{plan['name']}.tplan", "--data", folder / "data.safetensors", "--json", "--all")
        try:
            profile = json.loads(text[text.index("{"):])
        except ValueError:
            profile = {}
        self.bench.record(f"{folder_of(workload)} {plan['name']} profile", "" if profile else last_line(text, status), profile=profile)

    def peer(self, workload, how):
        who = "torch " + (" ".join(word.lstrip("-") for word in how) or "eager")
        status, text = run(self.peer_words(workload, how, 15, 3), max(self.left(), 1))
        try:
            found = json.loads(text.splitlines()[-1])
        except (ValueError, IndexError):
            self.row(workload, who, last_line(text, status))
            return
        compared = {plan: self.compare(ours, found["losses"], self.facts["precision"]) for plan, ours in self.losses.get(folder_of(workload), {}).items()}
        problem = "; ".join(f"{plan}: {wrong}" for plan, (wrong, _) in compared.items() if wrong) if compared else "no plan ran to compare with"
        self.row(workload, who, problem, ms=round(1e3 * found["median_s"], 3), least_ms=round(1e3 * found["min_s"], 3),
                 first_step_s=round(found["first_step_s"], 1), gib=round((found["peak_device_bytes"] or 0) / 2**30, 2),
                 losses=found["losses"], error=f"{max((worst for _, worst in compared.values()), default=math.nan):.0e}")

    def all(self, torch):
        present = [one for one in self.facts["workload"] if (self.bench.kit / "experiments" / folder_of(one)).is_dir()]
        self.warm_up(present, torch)
        todo = []
        for one in present:
            todo += [(self.plan, one, plan) for plan in one["plan"]]
            todo += [(self.peer, one, how) for how in one["peers"] if torch]
        for one in present:
            todo += [(self.plan, one, plan) for plan in self.unlisted(one)]
            todo += [(self.profile, one, plan) for plan in [*one["plan"], *self.unlisted(one)] if plan.get("profile")]
        todo += [(self.peer, one, how) for one in present for how in one.get("later", []) if torch]
        for step, workload, what in todo:
            if self.left() < LEAST_SECONDS:
                name = what["name"] if isinstance(what, dict) else " ".join(["torch", *what])
                self.bench.gaps.append(f"{folder_of(workload)} {name}{' profile' * (step == self.profile)}: no time was left")
                continue
            step(workload, what)
        self.bench.write()
        self.show()

    def unlisted(self, workload):
        """Plans that were put beside those of the table; they are timed after these."""
        known = {plan.get("like", plan["name"]) for plan in workload["plan"]}
        folder = self.bench.kit / "experiments" / folder_of(workload)
        return [{"name": path.stem, "profile": True} for path in sorted(folder.glob("*.tplan")) if path.stem not in known]

    def show(self):
        print(f"\n{'workload':<22} {'who':<32} {'ms':>9} {'expected':>9} {'of best peer':>13}")
        for row in self.rows:
            best = min((one["ms"] for one in self.rows if one["workload"] == row["workload"] and one["who"].startswith("torch") and one.get("ms")),
                       default=None)
            share = f"{row['ms'] / best:.2f}" if best and row.get("ms") else ""
            print(f"{row['workload']:<22} {row['who']:<32} {row.get('ms') or row['problem'][:9]!s:>9} {row['expected_ms'] or ''!s:>9} {share:>13}")
