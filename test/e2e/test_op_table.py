"""No op is missing by accident: each op of ONNX is supported or listed with a reason, has cases, and is in docs/guide/ops.md."""
import json
import re
import unittest

from common import ROOT, EndToEnd
from compare_judges import differing
from onnx import defs
from op_cases import every_case
from op_cases.scope import NO_DERIVATIVE, OUT_OF_SCOPE, reason


def full_name(op, domain):
    return f"{domain}::{op}" if domain else op


class Ops(EndToEnd):
    def known(self):
        return json.loads(self.succeed("tcc", "ops", "--json").out)

    def test_every_op_of_onnx_is_read_or_listed(self):
        known = {op["op"] for op in self.known() if not op["domain"]}
        all_ops = {s.name for s in defs.get_all_schemas_with_history() if not s.domain and not s.deprecated}
        unexplained = sorted(op for op in all_ops - known if not reason(OUT_OF_SCOPE, op))
        self.assertEqual(unexplained, [], "neither read nor listed in op_cases/scope.py")
        self.assertEqual(sorted(op for op in known if reason(OUT_OF_SCOPE, op)), [], "read, though listed as out of scope")

    def test_versions_have_no_holes(self):
        """An op is supported in all opsets from 7 to 28 that have it."""
        read = {}
        for op in self.known():
            if not op["domain"]:
                read.setdefault(op["op"], set()).update(range(op["since"], op["until"] + 1))
        onnx_ops = {s.name for s in defs.get_all_schemas_with_history() if not s.domain}
        for op, versions in read.items():
            if op not in onnx_ops:
                continue                 # onnxruntime registers one of its own ops in ONNX's domain
            there = set()
            for version in range(7, 29):
                if defs.has(op, version) and not defs.get_schema(op, version).deprecated:
                    there.add(version)
            self.assertEqual(versions & set(range(7, 29)), there, op)

    def test_every_op_has_cases_of_its_gradient(self):
        gradients, values = set(), set()
        for case in every_case():
            values |= case.ops
            if case.differentiated:
                gradients |= case.ops
        known = {full_name(op["op"], op["domain"]) for op in self.known()}
        flat = {op for op in known if reason(NO_DERIVATIVE, op)}
        self.assertEqual(sorted(known - flat - gradients), [], "no case with a gradient, and no reason in op_cases/scope.py")
        own = {full_name(case.op, case.domain) for case in every_case() if case.differentiated}
        self.assertEqual(sorted(flat & own), [], "listed as having no derivative, though a case differentiates it")
        self.assertEqual(sorted(op for op in flat - values if "preview.training" not in op), [], "no case of its value")

    def test_the_page_is_of_this_version(self):
        """docs/guide/ops.md lists the ops and versions that tcc reads."""
        page, _, _ = (ROOT / "docs" / "guide" / "ops.md").read_text().partition("## Not read")
        rows = re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", page, re.MULTILINE)
        versions = {}
        for op in self.known():
            text = f"{op['since']}" if op["since"] == op["until"] else f"{op['since']}–{op['until']}"
            versions.setdefault(full_name(op["op"], op["domain"]), []).append(text)
        self.assertEqual({op: text.strip() for op, text in rows}, {op: ", ".join(v) for op, v in versions.items()},
                         "tools/ops_page.py --bin build/bin writes it anew")

    def test_differences_of_the_judges_are_documented(self):
        """docs/guide/ops-differences.md has a row for each op of a case on which ONNX's reference and onnxruntime differ."""
        page, _, _ = (ROOT / "docs" / "guide" / "ops-differences.md").read_text().partition("## Scalars")
        rows = {op for cell in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for op in re.findall(r"`(\w+)`", cell)}
        self.assertEqual(sorted({case.op for case, _ in differing()} - rows), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
