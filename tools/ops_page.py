"""Writes docs/guide/ops.md: each op that is read, from which versions, forward and backward, computed by what, tested by what.

    tools/ops_page.py --bin build/bin [--out docs/guide/ops.md]

What is read comes from `tcc ops`, gradients and counts from test/e2e/op_cases and the node tests of the onnx package, and what
computes an op from the instructions in the plans of a few of its cases. Run it after a change of the table of ops.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "e2e"))
from node_scope import reason_to_skip  # noqa: E402
from op_cases import every_case, judges, models  # noqa: E402
from op_cases.scope import NO_DERIVATIVE, OUT_OF_SCOPE, reason  # noqa: E402

HEAD = """# Ops

Written by `tools/ops_page.py`; a test fails if this page and `tcc ops` list different ops.

- **Opsets**: the versions of the op's domain that tcc reads. Of ONNX's own domain these are 7 to 28. Each is read as it is: no version is converted into another. A model of an older opset is read if none of its ops changed up to opset 7.
- **Read by**: the importer's table (`frontend/ops/`), or the function by which ONNX defines the op.
- **Backward**: *checked (N)*: finite differences in f64 confirm the gradient for N combinations of attributes and versions, and PyTorch's numbers do where mathematics leaves a choice. *none*: the reason why there is no derivative. Integer and boolean inputs have no derivative, and neither have inputs that decide shapes.
- **Computed by**: our own calls and oneDNN (*library*) for single-precision products and convolutions, kernels generated for the model (*generated*) for the rest and for all other types; *nothing* where an op only renames memory or is folded when the model is compiled.
- **Node tests, op cases**: the number of ONNX's official node tests in scope that hold the op, and of cases in `test/e2e/op_cases/`. The values of the cases are compared with ONNX's reference (or with onnxruntime where the reference is no judge) at every opset that changed the op.

Where ONNX's reference evaluator and onnxruntime differ, [ops-differences.md](ops-differences.md) lists what was compared and which of them tcc follows. In `Resize`, for example, tcc aligns corners with the last element of the output, not with a fractional length.

`RoiAlign` with a sampling_ratio of 0 takes as many samples as the size of each region needs, up to a bound. Constant regions set this bound themselves. For regions that are data, the bound is the need of a region somewhat larger than the image, and a warning names its size; larger regions get no more samples. As in torchvision, regions get no gradient.

`StopGradient` of domain `tcc` is Identity without a gradient, and so is an Identity that torch notes as `aten.detach` ([stop-gradient.md](stop-gradient.md)).

| op | opsets | read by | backward | computed by | node tests | op cases |
| --- | --- | --- | --- | --- | --- | --- |
"""


def full_name(op, domain):
    return f"{domain}::{op}" if domain else op


def node_tests():
    """Official node tests in scope, by op."""
    from onnx.backend.test.case.node import collect_testcases
    counts = collections.Counter()
    for case in collect_testcases(None):
        if not reason_to_skip(case):
            counts.update({full_name(n.op_type, "" if n.domain == "ai.onnx" else n.domain) for n in case.model.graph.node})
    return counts


def computed_by(binaries, cases, scratch):
    """{op: text}, from the plans of up to three cases of each."""
    chosen = collections.defaultdict(list)
    for case in cases:
        if len(chosen[full_name(case.op, case.domain)]) < 3:
            chosen[full_name(case.op, case.domain)].append(case)
    kinds = collections.defaultdict(set)
    paths = {}
    for op, some in chosen.items():
        for case in some:
            opset = case.opsets[-1]
            model, _ = models.value_model(case, opset, judges.expected(case, opset))
            paths[scratch / f"{len(paths)}.onnx"] = op
            onnx.save(model, list(paths)[-1])
    subprocess.run([binaries / "tcc", "--quiet", "--entry", "predict", *paths], capture_output=True)
    for path, op in paths.items():
        plan = path.with_suffix(".tplan")
        if not plan.exists():
            raise SystemExit(f"error: a case of {op} does not compile; test/e2e/test_op_cases.py says why")
        kinds[op] |= set()
        report = json.loads(subprocess.run([binaries / "tcc", "report", plan, "--json"], capture_output=True, text=True,
                                           check=True).stdout)
        for kernel in report["kernels"]:
            if re.fullmatch(r"k[0-9a-f]{32}", kernel["name"]):
                kinds[op].add("generated")
            elif not re.match("copy|fill", kernel["name"]):
                kinds[op].add("library")
    return {op: ", ".join(sorted(kind, reverse=True)) or "nothing" for op, kind in kinds.items()}


def rows(binaries):
    known = json.loads(subprocess.run([binaries / "tcc", "ops", "--json"], capture_output=True, text=True, check=True).stdout)
    ranges = collections.defaultdict(list)
    for op in known:
        ranges[full_name(op["op"], op["domain"])].append(op)
    cases = every_case()
    values, gradients = collections.Counter(), collections.Counter()
    for case in cases:
        values.update(dict.fromkeys(case.ops, len(case.opsets)))
        if case.differentiated:
            gradients.update(dict.fromkeys(case.ops, sum(case.formula_changes(o) for o in case.opsets)))
    tests = node_tests()
    with tempfile.TemporaryDirectory() as scratch:
        by = computed_by(binaries, cases, pathlib.Path(scratch))
    for name, read in sorted(ranges.items(), key=lambda item: ("::" in item[0], item[0])):
        versions = ", ".join(str(r["since"]) if r["since"] == r["until"] else f"{r['since']}–{r['until']}" for r in read)
        readers = ", ".join(dict.fromkeys("the table" if r["by"] == "importer" else "its function" for r in read))
        why = reason(NO_DERIVATIVE, name)
        backward = f"none: {why}" if why else f"checked ({gradients[name]})" if gradients[name] else "not checked"
        yield f"| `{name}` | {versions} | {readers} | {backward} | {by.get(name, 'nothing')} | {tests[name] or ''} | {values[name] or ''} |\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "guide" / "ops.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = HEAD + "".join(rows(options.bin.resolve()))
    text += "\n## Not read\nIf a model holds another op, the error says what to do.\n\n| ops of ONNX | why |\n| --- | --- |\n"
    for why, ops in sorted(OUT_OF_SCOPE.items()):
        text += f"| {', '.join(f'`{op}`' for op in ops)} | {why} |\n"
    options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
