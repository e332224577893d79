#!/usr/bin/env python3
"""Recomputation on graphs: ours, its lower bounds, and checkpointing in segments, as a table for docs/measurements/recomputation.md.

    remat.py [--budgets 90,80,...] GRAPH.json...

test/e2e/planning/check_plan.py checks each answer. Costs are those beyond executing each node once.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("TCC_BIN", ROOT / "build" / "bin")) / "tcc-plan"


def solve(graph, budget, *options):
    """(answer or None, CPU seconds)"""
    before = os.times()
    run = subprocess.run([TOOL, "remat", graph, "--budget", f"{budget}%", "--json", *options], capture_output=True, text=True)
    seconds = os.times().children_user - before.children_user
    if run.returncode == 3:
        return None, seconds, run.stderr
    if run.returncode:
        sys.exit(run.stderr)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(run.stdout)
        file.flush()
        check = subprocess.run([sys.executable, ROOT / "test/e2e/planning/check_plan.py", "remat", graph, file.name], capture_output=True, text=True)
        if check.returncode:
            sys.exit(f"{graph} at {budget}%: {check.stdout}")
    return json.loads(run.stdout), seconds, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--budgets", default="90,80,70,60,50,40,30")
    arguments = parser.parse_args()
    print("| graph | budget | extra cost | bound, given order | bound, any order | gap | sqrt-n | greedy | CPU seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for path in arguments.graphs:
        nodes = json.loads(path.read_text())["nodes"]
        base = sum(node["cost"] for node in nodes)
        trains = any(node.get("backward") for node in nodes)
        extra = lambda answer: f"{100 * (answer['cost'] / base - 1):.2f} %" if answer else "none"
        bound = lambda answer, key: f"{100 * (answer[key] / base - 1):.2f} %"
        for budget in map(int, arguments.budgets.split(",")):
            ours, seconds, why = solve(path, budget)
            others = [extra(solve(path, budget, "--baseline", name, "--work", "1")[0]) if trains else "–" for name in ("sqrt-n", "greedy")]
            if ours:
                gap = f"{100 * (ours['cost'] / ours['lower_bound_cost_given_order'] - 1):.2f} %"
                row = [extra(ours), bound(ours, "lower_bound_cost_given_order"), bound(ours, "lower_bound_cost"), gap]
            else:
                least = why.split("is ")[-1].split("(")[-1].split(" %")[0]
                row = [f"refused: least is {least} %", "–", "–", "–"]
            print("|", " | ".join([path.stem, f"{budget} %", *row, *others, f"{seconds:.1f}"]), "|", flush=True)


if __name__ == "__main__":
    main()
