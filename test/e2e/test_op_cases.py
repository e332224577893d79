"""The table of op cases: values against the reference evaluator of ONNX, gradients against finite differences in f64.

Each case of op_cases/ is checked at each opset where its op's schema changed. Values: `tcc --entry predict`, `trun predict`.
Gradients: `tcc gradcheck` on a model whose differentiated inputs are initializers; at points without a derivative the case
holds PyTorch's gradients, and `trun gradients` must give the same. If a new version of an op only accepts more types, values
are checked again, gradients are not.

    test_op_cases.py --bin build/bin [--only REGEX] [-j N] [--values | --gradients] [--keep DIR] [--json FILE]
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from common import ISOLATED, compile_words, isolated  # noqa: E402
from node_tests import NAMES, read_safetensors, write_safetensors  # noqa: E402
from op_cases import every_case, judges, models  # noqa: E402

GROUP = 25


def save(path, arrays):
    """Arrays as a safetensors file."""
    write_safetensors(path, {name: (NAMES[onnx.helper.np_dtype_to_tensor_dtype(a.dtype)], a) for name, a in arrays.items()})


class Check:
    """One case at one opset."""

    def __init__(self, case, opset, folder, number):
        self.case, self.opset, self.number = case, opset, number
        self.folder = folder / f"{number:04}"
        self.name = f"{case.name} @{opset}" + (f" {case.domain}" if case.domain else "")
        self.differentiated = bool(case.differentiated) and case.formula_changes(opset)
        self.expected, self.problem = None, None

    def prepare(self):
        """Computes the expected results, and writes the models."""
        self.folder.mkdir(parents=True)
        try:
            self.expected = judges.expected(self.case, self.opset)
            model, feeds = models.value_model(self.case, self.opset, self.expected)
            onnx.save(model, self.folder / "values.onnx")
            save(self.folder / "inputs.safetensors", feeds)
            if self.differentiated:
                model, self.feeds, self.parameters = models.gradient_model(self.case, self.opset, self.expected, f"c{self.number}.")
                onnx.save(model, self.folder / "gradients.onnx")
        except Exception as problem:  # noqa: BLE001 - a case that cannot be made is a failure with a name
            self.problem = f"the case itself: {type(problem).__name__}: {str(problem)[:400]}"
        return self

    def check_values(self, trun, device):
        run = subprocess.run([trun, "predict", self.folder / "values.tplan", "--inputs", self.folder / "inputs.safetensors",
                              "--outputs", self.folder / "out.safetensors", *device], capture_output=True, text=True, timeout=300)
        if run.returncode:
            return f"trun: exit status {run.returncode}: {run.stderr.strip()[:400]}"
        results = read_safetensors(self.folder / "out.safetensors")
        names = [n for n in self.case.results or self.case.outputs if n]
        for name, expected in zip(names, self.expected):
            kind, got = results[name]
            if kind != NAMES[onnx.helper.np_dtype_to_tensor_dtype(expected.dtype)] or got.shape != expected.shape:
                return f"{name}: {kind}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
            if self.case.random:
                continue
            size = np.max(np.abs(expected), initial=0, where=np.isfinite(expected)) if expected.dtype.kind == "f" else 0
            tolerance = self.case.tolerance
            try:
                np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * min(size, 1))
            except AssertionError as problem:
                return f"{name}: " + " | ".join(str(problem).split("\n")[2:9])
        return None

    def check_convention(self, trun, device):
        """Compares gradients at points without a derivative with those that the case holds."""
        save(self.folder / "feeds.safetensors", self.feeds)
        run = subprocess.run([trun, "gradients", self.folder / "gradients.tplan", "--inputs", self.folder / "feeds.safetensors",
                              "--outputs", self.folder / "out.safetensors", *device], capture_output=True, text=True, timeout=300)
        if run.returncode:
            return f"trun gradients: exit status {run.returncode}: {run.stderr.strip()[:400]}"
        results = read_safetensors(self.folder / "out.safetensors")
        for i, expected in self.case.gradients.items():
            name = next(p for p in self.parameters if p.removesuffix(".one") == f"c{self.number}.i{i}")
            expected = np.asarray(expected, np.float32).ravel()
            # An input that provably has no influence has no gradient in the plan.
            got = results[name][1].ravel() if name in results or expected.any() else np.zeros_like(expected)
            if not np.allclose(got, expected, rtol=1e-5, atol=1e-6):
                return f"gradient by input {i}: {got.tolist()}, expected {expected.tolist()}"
        return None


def command(program, *words):
    run = subprocess.run([program, *compile_words(words)], capture_output=True, text=True, timeout=1200)
    return run.returncode, run.stdout, run.stderr


def failure(status, err):
    crash = f"crash, exit status {status}: " if status < 0 else ""
    return "tcc: " + crash + re.sub(r"/\S*/\d{4}/", "", err.strip())[:600]


def compile_group(tcc, group, model, words):
    """Compiles the checks; returns {check: message} of those that fail."""
    paths = [check.folder / model for check in group]
    command(tcc, "--quiet", *words, *paths)
    failures = {}
    for check, path in zip(group, paths):
        if (plan := path.with_suffix(".tplan")).exists():
            if ISOLATED and "--target" not in words and (problem := isolated([plan], pathlib.Path(tcc).parent)):
                failures[check] = problem
        else:
            status, _, err = command(tcc, "--quiet", *words, path)
            if status:
                failures[check] = failure(status, err)
    return failures


def wrong_block(check, text):
    """What is wrong in one model's part of gradcheck's output; None if every gradient agrees."""
    agreed = re.search(r"^(\d+) of (\d+) gradients agree", text, re.MULTILINE)
    if not agreed or agreed[1] != agreed[2]:
        return "no verdict" if not agreed else "a gradient is wrong"
    missing = [p for p in check.parameters if not re.search(rf"^{re.escape(p)} +\S.* \d", text, re.MULTILINE) or
               re.search(rf"^no gradient: {re.escape(p)} ", text, re.MULTILINE)]
    return f"no gradient by {', '.join(missing)}" if missing else None


def gradcheck_group(tcc, group):
    feeds = {}
    for check in group:
        feeds |= check.feeds
    data = group[0].folder / "group.safetensors"
    save(data, feeds)
    paths = [check.folder / "gradients.onnx" for check in group]
    _, out, _ = command(tcc, "gradcheck", "--data", data, *paths, *paths[:1])  # at least two, so that each has its heading
    blocks = dict(zip(*[iter(re.split(r"^(/.*\.onnx):\n", out, flags=re.MULTILINE)[1:])] * 2))
    failures = {}
    for check, path in zip(group, paths):
        if not (problem := wrong_block(check, blocks.get(str(path), ""))):
            continue
        status, out, err = command(tcc, "gradcheck", "--data", data, path)
        if problem := wrong_block(check, out):
            failures[check] = failure(status, err) if err.strip() else problem
    return failures


def guarded(work):
    """Turns an unexpected exception of a check into a named failure, so that the others go on."""
    def run(check):
        try:
            return work(check)
        except Exception as problem:  # noqa: BLE001
            return f"{type(problem).__name__}: {str(problem)[:300]}"
    return run


def run_checks(checks, options):
    """{name: message} of failed checks of values, and of gradients."""
    tcc, trun = options.bin / "tcc", options.bin / "trun"
    target = ["--target", options.target] if options.target else []
    device = ["--device", options.device] if options.device else []
    values, gradients = {}, {}

    def in_groups(work, selected):
        groups = [selected[i:i + GROUP] for i in range(0, len(selected), GROUP)]
        return {c: p for found in pool.map(work, groups) for c, p in found.items()}

    def one_by_one(work, selected):
        return {c: p for c, p in zip(selected, pool.map(guarded(work), selected)) if p}

    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        checks = [check.prepare() for check in checks]
        made = [check for check in checks if not check.problem]
        values = {c: c.problem for c in checks if c.problem}
        if not options.gradients:
            values |= in_groups(lambda g: compile_group(tcc, g, "values.onnx", ["--entry", "predict", *target]), made)
            values |= one_by_one(lambda c: c.check_values(trun, device), [c for c in made if c not in values])
        smooth = [c for c in made if c.differentiated and c.case.gradients is None]
        chosen = [c for c in made if c.differentiated and c.case.gradients is not None]
        if not options.values:
            gradients |= in_groups(lambda g: gradcheck_group(tcc, g), smooth)
            gradients |= in_groups(lambda g: compile_group(tcc, g, "gradients.onnx", ["--entry", "gradients", *target]), chosen)
            gradients |= one_by_one(lambda c: c.check_convention(trun, device), [c for c in chosen if c not in gradients])
    return values, gradients, len(smooth) + len(chosen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression on the case's name")
    parser.add_argument("--target", help="of tcc: cuda:sm_90; gradients without a convention are those of this machine")
    parser.add_argument("--device", help="of trun: cuda")
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--values", action="store_true", help="values alone")
    parser.add_argument("--gradients", action="store_true", help="gradients alone")
    parser.add_argument("--keep", type=pathlib.Path, help="leave models, plans and data in this folder")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or pathlib.Path(scratch)).resolve()
        cases = [case for case in every_case() if re.search(options.only, case.name)]
        checks = [Check(case, opset, folder, number)
                  for number, (case, opset) in enumerate((c, o) for c in cases for o in c.opsets)]
        values, gradients, differentiated = run_checks(checks, options)
    for kind, failures in (("values", values), ("gradients", gradients)):
        for check, problem in failures.items():
            print(f"FAIL {kind} {check.number:04} {check.name}: {problem}")
    ops = collections.Counter(case.op for case in cases)
    agree = [f"values of {len(checks) - len(values)} agree"] if not options.gradients else []
    agree += [f"gradients of {differentiated - len(gradients)} of {differentiated} agree"] if not options.values else []
    print(f"{len(cases)} cases of {len(ops)} ops at {len(checks)} versions: {', '.join(agree)}")
    if options.json:
        options.json.write_text(json.dumps({"values": {c.name: p for c, p in values.items()},
                                            "gradients": {c.name: p for c, p in gradients.items()}}, indent=1))
    return 1 if values or gradients or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
