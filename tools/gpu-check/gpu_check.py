#!/usr/bin/env python3
"""Checks CUDA plans on a machine with a card, with what a kit brings along: Python's standard library is enough.

    gpu_check.py kit gpu-kit.tar.xz     on the machine that built the project: packs trun, probes, plans and data
    tar xf gpu-kit.tar.xz && gpu-kit/gpu_check.py run      on the machine with a card: a table, and gpu-check.json

`run` ends with status 0 if everything holds, 1 if something does not, 2 if there is no card to ask.

A kit also takes large workloads, whose weights are made anew on the machine with the card (test/bench/filled.py):

    test/bench/torch_step.py gpt2-124m --batch 8 --seq 1024 --filled --steps 1 --onnx g8      needs torch
    gpu_check.py kit gpu-kit.tar.xz --workloads gpt2-124m:8x1024=g8

`run` times them, and the same steps in PyTorch where a python3 there has it. `experiments` times what experiments.toml lists, beside what
was expected of it:

    gpu_check.py kit gpu-kit.tar.xz --experiments exports --models mlp
    gpu-kit/gpu_check.py experiments                                     a table, and experiments.json
"""
import argparse
import concurrent.futures
import datetime
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import experiments
from kit import ARCHITECTURES, EPILOGUES, PRECISIONS, make_kit
from programs import fail, last_line, run, torch_step

STEPS = 20
RESUMED_AT = 8
# compute-sanitizer, where it is on the path, watches two updates of this model. Its kernels use shared memory, asynchronous copies
# and tensor cores.
SANITIZED = ("vit-tiny", "bf16")
SANITIZERS = ("memcheck", "racecheck", "synccheck")
# Features that no device has run, listed beside the results of this run.
NEVER_CHECKED = ["several cards: the plans do not use them"]
WORKLOAD_STEPS = 20
# A workload's first losses may differ from PyTorch's by this much of themselves; later ones drift apart, since large models that
# learn one batch by heart multiply each difference of rounding.
COMPARED_STEPS = 5
WORKLOAD_TOLERANCE = {"f32": 1e-3, "tf32": 1e-2, "bf16": 1e-2}
# How much one rounding changes the losses depends on the network: those of ResNet-50 in bf16 differ by up to 1.7 % between two
# runs of PyTorch whose parameters differ by one rounding. So where a workload's losses leave the tolerance, both run from
# PERTURBED_STARTS perturbed starts, and the means of their losses may differ by MOST_DEVIATIONS standard errors.
PERTURBED_STARTS = 6
MOST_DEVIATIONS = 4


def package_libraries():
    """Folders of CUDA's libraries among Python's packages: a machine's own cuDNN may be older than PyTorch's."""
    status, text = run([sys.executable, "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')"], 60)
    roots = map(Path, text.splitlines()) if status == 0 else []
    return [str(path) for root in roots for path in sorted(root.glob("*/lib"))]


class Bench:
    """Runs the kit's programs and collects what they show."""

    def __init__(self, kit, work, options):
        self.kit, self.work, self.seconds, self.output = kit, work, options.seconds, options.output
        self.started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.card, self.results, self.gaps, self.lock = card(), [], list(NEVER_CHECKED), threading.Lock()
        paths = [str(kit / "lib"), *package_libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = os.environ | {"LD_LIBRARY_PATH": ":".join(reversed([path for path in paths if path]))}

    def write(self):
        wrong = [result["check"] for result in self.results if not result["ok"]]
        report = {"started": self.started, "card": self.card, "kit": json.loads((self.kit / "kit.json").read_text()),
                  "checks": self.results, "failed": wrong, "never_checked": self.gaps}
        with self.lock:
            self.output.write_text(json.dumps(report, indent=1) + "\n")

    def forget(self, out):
        shutil.rmtree(self.work / out, ignore_errors=True)

    def program(self, name, *words):
        return run([self.kit / "bin" / name, *words], self.seconds, env=self.environment)

    def record(self, check, problem, **facts):
        """`problem`: what is wrong, in one line; empty if nothing is. The report so far is written, for a run that is cut off."""
        self.results.append({"check": check, "ok": not problem, "problem": problem, **facts})
        self.write()
        shown = ", ".join(f"{key} {value}" for key, value in facts.items() if not isinstance(value, (list, dict)))
        print(f"{'ok  ' if not problem else 'FAIL'} {check:<34} {problem or shown}", flush=True)
        return not problem

    def probes(self):
        status, text = self.program("probes")
        failed = [line for line in text.splitlines() if line.startswith("FAIL")]
        passed = sum(line.startswith("ok ") for line in text.splitlines())
        problem = "" if status == 0 else f"{len(failed)} of {passed + len(failed)} fail: " + "; ".join(failed[:3])
        if status != 0 and not failed:
            problem = last_line(text, status)
        self.record("probes", problem, passed=passed, failed=failed, output=text.splitlines() if status else [])

    def engines(self):
        """Records the engines that cuDNN's heuristics list on this card, and measures those that trun would take."""
        status, text = self.program("probes", "--engines")
        lines = []
        for line in text.splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                pass
        head, answers = (lines[0], lines[1:]) if lines else ({}, [])
        taken = [answer["taken"] for answer in answers if answer.get("taken")]
        unsteady = sum(not engine.get("repeats", True) for engine in taken)
        problem = "" if status == 0 else last_line(text, status)
        if not problem and unsteady:
            problem = f"{unsteady} of {len(taken)} engines give other bits when run again"
        self.record("cuDNN engines", problem, cudnn=head.get("cudnn"), taken=len(taken),
                    worst_error=max((engine.get("error", 0) for engine in taken), default=None), answers=answers)

    def products(self):
        """Records the algorithms that cuBLASLt's heuristics list on this card: TCC_EMULATION_PRODUCTS=gpu-check.json replays them."""
        status, text = self.program("probes", "--products")
        answers = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        asked = [answer for answer in answers if "product" in answer]
        problem = last_line(text, status) if status != 0 or not asked else ""
        self.record("cuBLASLt heuristics", problem, cublaslt=next((one["cublaslt"] for one in answers if "cublaslt" in one), None),
                    asked=len(asked), without_algorithm=sum(not answer["algorithms"] for answer in asked), answers=asked)

    def kernels(self):
        """Every op's kernels give the bits that the emulation computed, from the same operands."""
        agree = within = 0
        wrong, problem = [], ""
        for folder in sorted((self.kit / "kernels").iterdir()):
            if not (folder / "launches.jsonl").exists():
                continue
            status, text = self.program("card-kernels", folder)
            summary = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
            if not summary:
                problem = problem or last_line(text, status)
                continue
            agree += summary[-1]["agree"]
            within += summary[-1]["within_a_hundredth"]
            wrong += summary[-1]["wrong"]
        if wrong and not problem:
            problem = f"{len(wrong)} of {agree + len(wrong)} launches differ: " + "; ".join(wrong[:3])
        self.record("kernels", problem, agree=agree, within_a_hundredth=within, wrong=wrong)

    def algorithms(self, out):
        """The record of a run: libraries with versions, and each call's algorithm."""
        path = self.work / out / "algorithms.json"
        if not path.exists():
            return {}
        record = json.loads(path.read_text())
        return {"libraries": [record["library"]], "algorithms": [{key: call[key] for key in ("call", "algorithm", "about")} for call in record["calls"]]}

    def train(self, folder, precision, out, *words):
        """(problem, lines of metrics, output)."""
        target = [folder / f"{precision}.tplan", "--data", folder / "data.safetensors", "--no-shuffle", "--device", "cuda",
                  "--out", self.work / out]
        status, text = self.program("trun", *target, *words)
        if status != 0:
            return last_line(text, status), [], text
        lines = [json.loads(line) for line in (self.work / out / "metrics.jsonl").read_text().splitlines()]
        return "", [line for line in lines if "loss" in line], text

    def model(self, model):
        folder = self.kit / "models" / model
        expected = json.loads((folder / "expected.json").read_text())
        problem, lines, text = self.train(folder, "f32", f"{model}-f32", "--steps", STEPS)
        worst = 0.0
        if not problem:
            problem, worst = compare([line["loss"] for line in lines], expected["loss"], expected["tolerance"])
        seconds = [line["seconds"] for line in lines[STEPS // 2:]]
        memory = [line.removeprefix("memory: ") for line in text.splitlines() if line.startswith("memory:")]
        if not self.record(f"{model} f32 as PyTorch", problem, error=f"{worst:.0e}",
                           ms_a_step=f"{1e3 * statistics.median(seconds):.3f}" if seconds else None, memory=memory,
                           losses=[line["loss"] for line in lines], **self.algorithms(f"{model}-f32")):
            return
        problem, again, _ = self.train(folder, "f32", f"{model}-again", "--steps", STEPS, "--checkpoint-every", RESUMED_AT)
        self.record(f"{model} f32 again", problem or differs(lines, again))
        problem, rest, _ = self.train(folder, "f32", f"{model}-rest", "--resume", f"{self.work / f'{model}-again'}@{RESUMED_AT}")
        self.record(f"{model} f32 resumed", problem or differs(lines[RESUMED_AT:], rest[-(STEPS - RESUMED_AT):]))
        if (folder / "ranks.tplan").exists():
            self.rank(folder, model, lines)
        for precision, most in (PRECISIONS | dict.fromkeys(EPILOGUES, PRECISIONS["bf16"])).items():
            if most is None or not (folder / f"{precision}.tplan").exists():
                continue
            problem, other, _ = self.train(folder, precision, f"{model}-{precision}", "--steps", STEPS)
            worst = 0.0
            if not problem:
                problem, worst = compare([line["loss"] for line in other], [line["loss"] for line in lines], most)
                if not problem and worst == 0:
                    problem = "every loss is f32's: nothing was rounded"
            self.record(f"{model} {precision} near f32", problem, error=f"{worst:.0e}", **self.algorithms(f"{model}-{precision}"))


    def rank(self, folder, model, lines):
        problem, alone, text = self.train(folder, "ranks", f"{model}-ranks", "--steps", STEPS, "--nproc", 1)
        if "nvidia-nccl" in text:
            self.gaps.append("NCCL: its library is not where the loader finds it")
            return
        self.record(f"{model} one rank over NCCL", problem or differs(lines, alone))

    def sanitize(self):
        """Looks for accesses outside of allocations, races in shared memory and barriers that not all threads reach."""
        model, precision = SANITIZED
        folder = self.kit / "models" / model
        for tool in SANITIZERS:
            words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, self.kit / "bin/trun", folder / f"{precision}.tplan",
                     "--data", folder / "data.safetensors", "--no-shuffle", "--device", "cuda", "--out", self.work / tool, "--steps", 2]
            status, text = run(words, self.seconds, env=self.environment)
            summary = next((line.strip("= ") for line in text.splitlines() if "SUMMARY" in line), "")
            self.record(f"{model} {precision} {tool}", "" if status == 0 else summary or last_line(text, status), summary=summary,
                        output=text.splitlines()[-200:] if status else [])

    def workload(self, name, options):
        """Times a workload's plans; beside them the same steps in PyTorch, on the same weights."""
        folder = self.kit / "workloads" / name
        facts = json.loads((folder / "workload.json").read_text())
        make_weights(folder, facts)
        for plan in sorted(folder.glob("*.tplan")):
            precision = plan.stem
            problem, lines, text = self.train(folder, precision, f"{name}-{precision}", "--steps", WORKLOAD_STEPS)
            seconds = sorted(line["seconds"] for line in lines[WORKLOAD_STEPS // 4:])
            memory = [line.removeprefix("memory: ") for line in text.splitlines() if line.startswith("memory:")]
            losses = [line["loss"] for line in lines]
            self.record(f"{name} {precision}", problem, ms_a_step=f"{1e3 * statistics.median(seconds):.2f}" if seconds else None,
                        loss=losses[-1] if losses else None, losses=losses, memory=memory, seconds=seconds)
            if problem:
                continue
            status, text = self.program("trun", "profile", plan, "--data", folder / "data.safetensors", "--json")
            try:
                profile = json.loads(text[text.index("{"):])
            except ValueError:
                profile = {}
            self.record(f"{name} {precision} profile", "" if profile else last_line(text, status), profile=profile)
            for mode in options.torch if has_torch() else []:
                words = [*torch_step(self.kit, facts["workload"], facts["batch"], facts["tokens"], precision), "--steps", WORKLOAD_STEPS - 3]
                words += {"eager": [], "compile": ["--compile"], "max-autotune": ["--compile", "--mode", "max-autotune"]}[mode]
                status, text = run(words, self.seconds)
                try:
                    peer = json.loads(text.splitlines()[-1])
                except (ValueError, IndexError):
                    self.record(f"{name} {precision} torch {mode}", last_line(text, status))
                    continue
                wrong, worst = compare_first(losses, peer["losses"], precision)
                ours, spread = [], []
                if wrong and precision == "bf16":
                    ours = [losses[:COMPARED_STEPS]] + list(self.perturbed_plans(folder, facts, precision, name))
                    spread = [peer["losses"][:COMPARED_STEPS]] + list(self.perturbed(words))
                    wrong = leaves(ours, spread)
                self.record(f"{name} {precision} torch {mode}", wrong, ms_a_step=f"{1e3 * peer['median_s']:.2f}",
                            loss=peer["losses"][-1], error=f"{worst:.0e}", peer=[peer], spread=spread, ours=ours)
        if facts["file"]:
            (folder / facts["file"]).unlink()

    def perturbed_plans(self, folder, facts, precision, name):
        """The first losses of the plan from weights that are off by one rounding."""
        for seed in range(PERTURBED_STARTS):
            make_weights(folder, facts, seed)
            problem, lines, _ = self.train(folder, precision, f"{name}-{precision}-{seed}", "--steps", COMPARED_STEPS)
            if not problem:
                yield [line["loss"] for line in lines]
        make_weights(folder, facts)

    def perturbed(self, words):
        """The first losses of the same command from parameters that are off by one rounding."""
        for seed in range(PERTURBED_STARTS):
            status, text = run([*words, "--steps", max(COMPARED_STEPS - 3, 1), "--perturb", seed], self.seconds)
            try:
                yield json.loads(text.splitlines()[-1])["losses"]
            except (ValueError, IndexError, KeyError):
                continue


def leaves(ours, theirs):
    """The first step whose mean over perturbed starts differs by more than chance (Welch's standard error), in words; empty if none does."""
    steps = min([COMPARED_STEPS, *map(len, ours), *map(len, theirs)])
    if min(len(ours), len(theirs)) < 3 or steps == 0:
        return "too few perturbed runs to compare"
    for step in range(steps):
        samples = [[one[step] for one in runs] for runs in (ours, theirs)]
        mine, peer = map(statistics.mean, samples)
        error = math.sqrt(sum(statistics.variance(sample) / len(sample) for sample in samples))
        if not abs(mine - peer) <= MOST_DEVIATIONS * error:
            return f"step {step + 1}: {mine:.4f} on average over perturbed starts, where PyTorch's are {peer:.4f}, ± {error:.4f}"
    return ""


def has_torch():
    """Without PyTorch on the machine, no peer is timed."""
    return run([sys.executable, "-c", "import torch"], 120)[0] == 0


def make_weights(folder, facts, seed=None):
    """The files of weights and data, which follow the rule; with a seed, weights are off by one rounding to bf16."""
    sys.path.insert(0, str(folder.parents[1]))
    import filled
    header, values = {}, bytearray()
    for key, tensor in facts["data"].items():
        own = bytes.fromhex(tensor["hex"]) if tensor["hex"] is not None else filled.fill(key, tensor["shape"]).tobytes()
        header[key] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [len(values), len(values) + len(own)]}
        values += own
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "data.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + values)
    if facts["file"]:
        with open(folder / facts["file"], "wb") as file:
            for tensor in facts["tensors"]:
                file.seek(tensor["offset"])
                if "hex" in tensor:
                    file.write(bytes.fromhex(tensor["hex"]))
                    continue
                values = filled.fill(tensor["name"], tensor["shape"])
                file.write((values if seed is None else filled.perturb(values, tensor["name"], seed)).tobytes())


def compare(got, expected, tolerance):
    """(problem, largest relative error)."""
    if len(got) < len(expected):
        return f"{len(got)} losses of {len(expected)}", math.inf
    worst = 0.0
    for step, (a, b) in enumerate(zip(got, expected), 1):
        error = abs(a - b) / max(abs(b), 1e-12)
        if not error <= tolerance:
            return f"loss of step {step}: {a:.7g} instead of {b:.7g}", error
        worst = max(worst, error)
    return "", worst


def compare_first(ours, theirs, precision):
    """As compare(), of a workload's first losses."""
    return compare(ours[:COMPARED_STEPS], theirs[:COMPARED_STEPS], WORKLOAD_TOLERANCE[precision])


def differs(lines, again):
    if len(lines) != len(again):
        return f"{len(again)} losses instead of {len(lines)}"
    for one, other in zip(lines, again):
        if one["loss"] != other["loss"]:
            return f"loss of step {one['step']}: {other['loss']!r} instead of {one['loss']!r}"
    return ""


def card():
    fields = "name,driver_version,memory.total,compute_cap"
    status, text = run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 60)
    return dict(zip(fields.split(","), map(str.strip, text.splitlines()[0].split(",")))) if status == 0 and text.strip() else None


def check(options):
    kit = options.kit.resolve()
    if not (kit / "kit.json").is_file():
        fail(f"{kit} is no kit: 'gpu_check.py kit' makes one", 2)
    models = sorted(path.name for path in (kit / "models").iterdir())
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        bench = Bench(kit, Path(work), options)
        status, text = bench.program("probes", "ThePrimaryContextIsOne")
        if status and any(sign in text for sign in ("no device", "libcuda")):
            fail(f"no card to ask: {text.splitlines()[0]}; nvidia-smi shows the cards that a driver knows", 2)
        if "probes" not in options.without:
            bench.probes()
        if "engines" not in options.without:
            bench.engines()
        if "products" not in options.without:
            bench.products()
        if not (kit / "kernels").is_dir():
            bench.gaps.insert(0, "single kernels: the kit has none")
        elif "kernels" not in options.without:
            bench.kernels()
        for workload in sorted(path.name for path in (kit / "workloads").glob("*")):
            bench.workload(workload, options)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(bench.model, models))
        if SANITIZED[0] not in models or not shutil.which("compute-sanitizer"):
            bench.gaps.append("compute-sanitizer: it is not on the path, or the kit has no " + SANITIZED[0])
        elif "sanitizer" not in options.without:
            bench.sanitize()
    bench.write()
    wrong = [result["check"] for result in bench.results if not result["ok"]]
    named = bench.card["name"] if bench.card else "a card that nvidia-smi does not name"
    print(f"\n{named}: {len(bench.results) - len(wrong)} of {len(bench.results)} checks hold; {options.output}")
    for gap in bench.gaps:
        print(f"not checked: {gap}")
    return 1 if wrong else 0


def try_out(options):
    """Experiments are no checks: status 0 if all of them that found time ended."""
    kit = options.kit.resolve()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        bench = Bench(kit, Path(work), options)
        if not bench.card:
            fail("no card to ask: nvidia-smi shows the cards that a driver knows", 2)
        bench.gaps = []
        experiments.Experiments(bench, options.within, compare_first).all(not options.without_torch and has_torch())
    for gap in bench.gaps:
        print(f"not timed: {gap}")
    return 1 if any(not result["ok"] for result in bench.results) else 0


def main():
    root = Path(__file__).resolve().parents[2] if len(Path(__file__).resolve().parents) > 2 else Path.cwd()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    kit = commands.add_parser("kit", help="pack what the check needs")
    kit.add_argument("output", type=Path)
    kit.add_argument("--bin", type=Path, default=root / "build/bin")
    kit.add_argument("--zoo", type=Path, default=root / "test/e2e/zoo", help="folder of models with expected.json")
    kit.add_argument("--models", nargs="*", default=[], help="some of them; default: all")
    kit.add_argument("--architectures", nargs="*", default=ARCHITECTURES)
    kit.add_argument("--workloads", nargs="*", default=[], metavar="NAME:BATCHxTOKENS=FOLDER", help="folders that torch_step.py --onnx wrote")
    kit.add_argument("--kernels", default="*", metavar="FILTER", help="of emulated-kernel-tests: whose kernels to pack; '': none")
    kit.add_argument("--precisions", nargs="*", default=["bf16"], choices=list(WORKLOAD_TOLERANCE), help="of workloads")
    kit.add_argument("--bench", type=Path, default=root / "test/bench", help="folder of torch_step.py")
    kit.add_argument("--experiments", type=Path, metavar="FOLDER", help="pack the experiments, too; FOLDER has their workloads' exports")
    timed = commands.add_parser("experiments", help="time plans beside PyTorch")
    timed.add_argument("--within", type=float, default=560, metavar="SECONDS", help="what finds no time is left out, and named")
    timed.add_argument("--without-torch", action="store_true")
    test = commands.add_parser("run", help="check this machine's card")
    for command, report in ((test, "gpu-check.json"), (timed, "experiments.json")):
        command.add_argument("--kit", type=Path, default=Path(__file__).resolve().parent)
        command.add_argument("--output", type=Path, default=Path(report))
        command.add_argument("--seconds", type=float, default=120, help="limit of each program")
    test.add_argument("--jobs", type=int, default=1, help="models at a time; their times are worth nothing then")
    test.add_argument("--without", nargs="*", default=[], choices=["probes", "engines", "products", "kernels", "sanitizer"], help="checks to leave out")
    test.add_argument("--torch", nargs="*", default=["eager", "compile"], choices=["eager", "compile", "max-autotune"],
                      help="how PyTorch runs beside workloads")
    options = parser.parse_args()
    if options.command == "kit":
        make_kit(options)
        return 0
    return try_out(options) if options.command == "experiments" else check(options)


if __name__ == "__main__":
    sys.exit(main())
