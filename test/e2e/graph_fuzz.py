"""Compare random graphs, compiled in many ways, with PyTorch in f64: `graph_fuzz.py --bin build/bin --first 1 --count 200`.

Each graph of `graphs/generate.py` is compiled as it is, and in `--ways` other ways that its seed chooses. The loss and the
gradient of every weight are compared with PyTorch's if it is installed, else with the numbers that `--expect FILE` stored in
`graphs/expected.json`. Ways that must not change any bit (no fusion, a memory budget, other numbers of threads) are compared
bit by bit with the plain plan; others (another machine level, unfused attention, an emulated card with `--emulation`) with
PyTorch's numbers; bf16 bit by bit with bf16 without fusion, and roughly with PyTorch's numbers. Updates, also of two
micro-batches, must change each weight by its gradient. Prints a line for each disagreement, with the seed and the command
that reproduces it; exit status 1 if there are any.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import safetensors.numpy

HERE = pathlib.Path(__file__).resolve().parent / "graphs"
sys.path.insert(0, str(HERE))
import generate                                                                  # noqa: E402

try:
    import oracle
    import torch
except ImportError:
    oracle = None

GROUP = 8               # graphs that one process of tcc compiles
RECIPE = '[model]\ntrainable = ["w*"]\n[loss]\noutput = "loss"\n[optimizer]\nkind = "sgd"\nlr = 1.0\n'
TOLERANCE = 2e-4        # of a weight's largest gradient, in f32; more if rounding explains more
ROUGHLY = 0.5           # of a weight's largest gradient, in bf16: sums that cancel lose most of their digits
FLOOR = 1e-3            # of the graph's largest gradient: smaller gradients may be rounding errors of larger ones

# name: (arguments of tcc, arguments of trun, what the result must agree with). Ways without arguments of tcc use the plain plan, and come first.
WAYS = {
    "1 thread": ([], ["--threads", "1"], "bits"),
    "8 threads": ([], ["--threads", "8"], "bits"),
    "no fusion": (["--set", "compiler.fuse=false"], [], "bits"),
    "budget": (["--memory-budget", "70%"], [], "bits"),
    "attention in parts": (["--set", 'compiler.attention="unfused"'], [], "numbers"),
    "cpu:v3": (["--target", "cpu:v3"], [], "numbers"),
    "bf16": (["--precision", "bf16"], [], "bf16"),
    "a card": (["--target", "cuda:sm_90"], ["--device", "cuda"], "numbers"),
    "update": (["--entry", "train"], [], "update"),
    "two micro-batches": (["--entry", "train", "--set", "train.accumulate=2"], [], "update"),
    "update in a budget": (["--entry", "train", "--memory-budget", "80%"], [], "update"),
}


def run(words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


class Graph:
    def __init__(self, seed, folder, count=0, cards=False, way=None):
        self.seed, self.folder = seed, folder
        self.model, self.inputs, self.weights = generate.graph(seed)
        folder.mkdir(parents=True)
        (folder / "m.onnx").write_bytes(self.model.SerializeToString())
        # All micro-batches are equal, so that the mean of two is that of one.
        safetensors.numpy.save_file(self.inputs, folder / "x.safetensors")
        self.initial = {i.name: generate.numpy_helper.to_array(i) for i in self.model.graph.initializer}
        first = {x.shape[0] for x in self.inputs.values()}
        self.sampled = len(first) == 1 and all(x.ndim for x in self.inputs.values())
        if self.sampled:
            safetensors.numpy.save_file({n: np.concatenate([x, x]) for n, x in self.inputs.items()}, folder / "data.safetensors")
        ways = [w for w in WAYS if (self.sampled or WAYS[w][2] != "update") and (cards or w != "a card")]
        self.ways = random.Random(seed).sample(ways, min(count, len(ways))) if way is None else [w for w in ways if w == way]
        self.loss = self.truth = self.own = None

    def reference(self, expected):
        """Computes PyTorch's numbers. False if the graph is useless: they are not finite, or no weight is read."""
        if not self.weights:
            return False
        if oracle:
            self.loss, self.truth = oracle.evaluate(self.model, self.inputs, self.weights)
            # Cancelling sums may be exact in f32 by chance: the error is the larger of f32's error and that of random rounding.
            self.own = self.errors([oracle.evaluate(self.model, self.inputs, self.weights, torch.float32)[1], self.rounded(0, 2.0 ** -24)])
            return bool(np.isfinite(self.loss)) and all(np.isfinite(t).all() for t in self.truth.values())
        self.numbers = expected.get(str(self.seed))
        return self.numbers is not None

    def rounded(self, draw, unit):
        """Gradients in f64, with all values rounded at random by up to `unit`."""
        return oracle.evaluate(self.model, self.inputs, self.weights, rounding=oracle.Rounding(1000 * self.seed + draw, unit))[1]

    def errors(self, others):
        return {n: max(float(np.max(np.abs(other[n] - t), initial=0)) for other in others) for n, t in self.truth.items()}

    # Comparisons, which return "" or what is wrong.
    def against_bf16(self, gradients):
        """A rough comparison, rougher still if bf16's rounding decides on which side of a step a value is, as in HardSigmoid's derivative."""
        flips = self.truth and self.errors([self.rounded(draw, 2.0 ** -8) for draw in range(16)])
        return self.against_numbers(gradients, ROUGHLY / TOLERANCE, flips and {n: 2 * error for n, error in flips.items()})

    def against_numbers(self, gradients, factor=1.0, allowed=None):
        """`allowed`: the error that rounding explains, by weight."""
        if self.truth is not None:
            largest = max((np.max(np.abs(t), initial=0) for t in self.truth.values()), default=0)
            for name, t in self.truth.items():
                got = gradients.get(name, np.zeros(t.shape)).astype(np.float64)
                if got.shape != t.shape:
                    return f"gradient by {name} has shape {got.shape}, not {t.shape}"
                error = float(np.max(np.abs(got - t), initial=0)) if np.isfinite(got).all() else np.inf
                bound = max(factor * TOLERANCE * max(np.max(np.abs(t), initial=0), FLOOR * largest), (allowed or {}).get(name, 30 * factor * self.own[name]))
                if error > bound + 1e-7:
                    return f"gradient by {name} is off by {error:.2g} of {np.max(np.abs(t), initial=0):.2g} (rounding: {self.own[name]:.1g})"
            return ""
        largest = max((v[0] for v in self.numbers["gradients"].values()), default=0)
        for name, (norm, along, own) in self.numbers["gradients"].items():
            got = gradients.get(name, np.zeros(1)).astype(np.float64).ravel()
            root = max(got.size, 1) ** 0.5
            bound = max(factor * TOLERANCE * max(norm, FLOOR * largest), 30 * factor * own * root) + 1e-7
            if not (abs(np.linalg.norm(got) - norm) <= bound and abs(direction(got) - along) <= bound * root):
                return f"gradient by {name} has norm {np.linalg.norm(got):.6g} and direction {direction(got):.6g}, not {norm:.6g} and {along:.6g}"
        return ""


def direction(gradient):
    return float(gradient.ravel() @ np.cos(0.37 * np.arange(gradient.size)))


def compile_group(options, graphs, way, more=()):
    """Compiles graphs in one process; returns {graph: message} of those that failed."""
    words = [*(WAYS[way][0] if way else []), *more]
    entry = [] if "--entry" in words else ["--entry", "gradients"]
    common = [options.bin / "tcc", "--recipe", options.recipe, "--quiet", "--no-cache", *entry, *words]
    for g in graphs:
        (g.folder / "m.tplan").unlink(missing_ok=True)
    run([*common, *(g.folder / "m.onnx" for g in graphs)])
    problems = {}
    for g in graphs:
        if not (g.folder / "m.tplan").exists():
            status, text = run([*common, g.folder / "m.onnx"])
            if status:
                problems[g] = (status, "tcc: " + text.strip()[-400:])
    return problems


def gradients_of(options, g, words):
    out = g.folder / "g.safetensors"
    out.unlink(missing_ok=True)
    status, text = run([options.bin / "trun", "gradients", g.folder / "m.tplan", "--inputs", g.folder / "x.safetensors", "--outputs", out, *words])
    if status:
        return None, f"trun gradients ends with {status}: {text.strip()[-300:]}"
    found = safetensors.numpy.load_file(out)
    return {n: v for n, v in found.items()}, ""


def update_of(options, g, words):
    """Weights before minus weights after one update with rate 1: the gradients."""
    run_folder, weights = g.folder / "run", g.folder / "w.safetensors"
    run(["rm", "-rf", run_folder, weights])
    status, text = run([options.bin / "trun", g.folder / "m.tplan", "--data", g.folder / "data.safetensors", "--no-shuffle", "--steps", "1",
                        "--out", run_folder, "--no-release", *words])
    if status:
        return None, f"trun ends with {status}: {text.strip()[-300:]}"
    status, text = run([options.bin / "trun", "export", run_folder, "-o", weights])
    if status:
        return None, f"trun export ends with {status}: {text.strip()[-300:]}"
    after = safetensors.numpy.load_file(weights)
    return {n: g.initial[n].astype(np.float64) - after[n] for n in g.weights if n in after}, ""


def check_way(options, g, way, base):
    _, words, kind = WAYS[way]
    if kind == "update":
        found, problem = update_of(options, g, words)
        # The difference has the rounding error of the weights.
        return problem or g.against_numbers(found, 2)
    found, problem = gradients_of(options, g, words)
    if problem:
        return problem
    if kind == "bits":
        differing = [n for n in base if found[n].tobytes() != base[n].tobytes()]
        return f"other bits of {', '.join(differing)}" if differing else ""
    if kind == "numbers":
        return g.against_numbers(found)
    problems = compile_group(options, [g], way, ["--set", "compiler.fuse=false"])
    apart, problem = (None, problems[g][1]) if g in problems else gradients_of(options, g, words)
    if problem:
        return "without fusion: " + problem
    differing = [n for n in apart if found[n].tobytes() != apart[n].tobytes()]
    return f"other bits of {', '.join(differing)} than without fusion" if differing else g.against_bf16(found)


def check_group(options, expected, seeds):
    """[(seed, way, message)] of a few graphs."""
    findings = []
    with tempfile.TemporaryDirectory(prefix="graphs-") as folder:
        graphs = [Graph(seed, pathlib.Path(folder) / str(seed), options.ways, bool(options.emulation), options.way) for seed in seeds]
        graphs = [g for g in graphs if g.reference(expected)]
        bases = {}
        for way in [None, *WAYS]:
            chosen = [g for g in graphs if way is None or (way in g.ways and g in bases)]
            if not chosen:
                continue
            problems = compile_group(options, chosen, way) if way is None or WAYS[way][0] else {}
            for g in chosen:
                if g in problems:
                    status, message = problems[g]
                    if not (status == 3 and way and "budget" in way):     # no plan fits the budget, and tcc says so
                        findings.append((g.seed, way, message))
                    continue
                if way is None:
                    found, message = gradients_of(options, g, [])
                    if not message:
                        loss = float(found.pop("loss").ravel()[0])
                        found.pop("loss_weight", None)
                        want = g.loss if g.loss is not None else g.numbers["loss"]
                        bases[g] = found
                        message = g.against_numbers(found)
                        if not message and not abs(loss - want) <= 1e-4 * max(1, abs(want)):
                            message = f"loss {loss:.7g}, not {want:.7g}"
                else:
                    message = check_way(options, g, way, bases[g])
                if message:
                    findings.append((g.seed, way, message))
    return len(graphs), findings


def expect(path, seeds):
    """Writes PyTorch's numbers: for each weight's gradient its norm, its product with one direction, and its rounding error."""
    table = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            g = Graph(seed, pathlib.Path(folder) / "g")
            if g.reference({}):
                table[seed] = {"loss": g.loss, "gradients": {n: [float(f"{v:.7g}") for v in (np.linalg.norm(t), direction(t), g.own[n])] for n, t in g.truth.items()}}
    lines = ",\n".join(f'"{seed}": {json.dumps(entry)}' for seed, entry in table.items())
    pathlib.Path(path).write_text("{\n" + lines + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--way", choices=WAYS, help="that one alone, beside the plan as it is")
    parser.add_argument("--ways", type=int, default=2, help="other ways to compile each graph")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--emulation", metavar="FOLDER", help="of the stand-in of CUDA's driver (build/emulation): compile for a card as well")
    parser.add_argument("--expect", metavar="FILE", help="write PyTorch's numbers of these seeds there, and end")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    if options.expect:
        expect(options.expect, seeds)
        return 0
    options.bin = options.bin.resolve()
    if options.emulation:
        os.environ |= {"LD_LIBRARY_PATH": str(pathlib.Path(options.emulation).resolve()), "TCC_EMULATION_MODE": "fast"}
    expected = {} if oracle else json.loads((HERE / "expected.json").read_text())
    checked, wrong = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        options.recipe = pathlib.Path(folder) / "recipe.toml"
        options.recipe.write_text(RECIPE)
        groups = [list(seeds[i:i + GROUP]) for i in range(0, len(seeds), GROUP)]
        with ThreadPoolExecutor(options.jobs) as pool:
            for count, findings in pool.map(lambda group: check_group(options, expected, group), groups):
                checked += count
                for seed, way, message in findings:
                    wrong += 1
                    print(f"seed {seed}, {way or 'as it is'}: {re.sub(r'/tmp/[^ :]*/', '', message)}", flush=True)
    print(f"{checked} graphs of {len(seeds)} seeds from {options.first} compared with PyTorch's {'gradients' if oracle else 'numbers'}, {wrong} disagree")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
