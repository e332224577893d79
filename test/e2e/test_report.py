"""The report has the documented keys with the right types, and its memory figure is what trun then takes."""
import json
import re
import unittest

import models
from common import EndToEnd, case

NUMBER = (int, float)
MEMORY = {"peak_bytes": int, "arena_bytes": int, "resident_bytes": int, "host_bytes": int, "library_bytes": int, "process_bytes": int,
          "lower_bound_bytes": int, "without_recompute_bytes": int, "entries": dict, "timeline": list, "buffers": list}
KEYS = {"version": int, "model": str, "target": str, "entries": list, "memory": dict, "recompute": dict, "attention": dict,
        "zero_fill": dict, "parameters": dict, "kernels": list, "flops_per_step": NUMBER}
ROWS = {                                           # lists of the report → keys of their members
    ("memory", "timeline"): {"step": int, "live_bytes": int, "instruction": str, "node": str},
    ("memory", "buffers"): {"name": str, "node": str, "bytes": int, "offset": int, "first": int, "last": int, "why_alive": str},
    ("recompute", "tensors"): {"name": str, "node": str, "bytes": int, "flops": NUMBER},
    ("attention", "fused"): {"nodes": list},
    ("attention", "near_misses"): {"node": str, "reason": str},
    ("attention", "weights_elided"): {"node": str, "bytes": int},
    ("zero_fill", "elided"): {"parameter": str, "bytes": int},
    ("zero_fill", "kept"): {"parameter": str, "bytes": int, "reason": str},
    ("parameters", "unused"): {"name": str, "reason": str, "node": str},
    ("kernels",): {"name": str, "nodes": list, "flops": NUMBER, "bytes": int, "count": int, "beside": list},
}


class Report(EndToEnd):
    def plan_of(self, name, *arguments):
        model, recipe, _, _ = case(name)
        return self.compile(model, "--recipe", recipe, *arguments)

    def has(self, table, keys):
        for key, kind in keys.items():
            self.assertIn(key, table)
            self.assertIsInstance(table[key], kind, key)

    def test_elementwise_kernels_have_tiles_for_many_workers(self):
        """A million elements in tiles of 4096 occupy 256 workers; tiles of 32768 would occupy 32."""
        model = models.mlp(self.folder / "wide.onnx", batch=256, width=4096)
        plan = self.compile(model, "--recipe", self.write("wide.toml", models.SQUARES + models.SGD), plan="wide.tplan")
        program = next(p for p in self.report(plan)["workers"]["programs"] if p["program"] == "evaluate")
        efficiency = {count["workers"]: count["efficiency"] for count in program["counts"]}
        self.assertGreater(efficiency[8], 0.95)
        # Only products, and sums in one tile, keep 128 workers waiting.
        few = [found for found in program["limiting"] if found["instruction"].startswith("k") and found["tiles"] > 1]
        self.assertEqual(few, [])

    def test_keys_and_types(self):
        report = self.report(self.plan_of("nano-gpt"))
        self.has(report, KEYS)
        self.assertEqual(report["version"], 1)
        self.assertEqual(report["model"], "model.onnx")
        self.assertRegex(report["target"], r"^cpu:")
        self.has(report["memory"], MEMORY)
        self.has(report["recompute"], {"extra_flops_fraction": NUMBER, "tensors": list})
        self.has(report["parameters"], {"trainable": list, "frozen": list, "unused": list, "groups": list})
        for path, keys in ROWS.items():
            rows = report
            for key in path:
                rows = rows[key]
            for row in rows:
                self.has(row, keys)
        for path in (("memory", "timeline"), ("memory", "buffers")):
            self.assertTrue(report[path[0]][path[1]], f"{'.'.join(path)} is empty")
        self.assertTrue(report["kernels"])
        self.assertGreater(report["flops_per_step"], 0)

    def test_numbers_are_consistent(self):
        """Relations between numbers of the report alone, without the planner."""
        report = self.report(self.plan_of("nano-gpt"))
        memory = report["memory"]
        total = memory["arena_bytes"] + memory["resident_bytes"]
        self.assertLessEqual(memory["peak_bytes"], total)
        self.assertLessEqual(memory["lower_bound_bytes"], memory["peak_bytes"])
        self.assertEqual(max(row["live_bytes"] for row in memory["timeline"]), memory["peak_bytes"])
        for buffer in memory["buffers"]:
            self.assertLessEqual(buffer["offset"] + buffer["bytes"], max(memory["arena_bytes"], memory["resident_bytes"]))
        parameters = {p if isinstance(p, str) else p["name"] for p in report["parameters"]["trainable"]}
        self.assertEqual(parameters, set(case("nano-gpt")[3]["parameters"]))

    def test_names_are_the_models(self):
        """The timeline names ONNX nodes, and parameters where it updates them."""
        import onnx
        graph = onnx.load(case("nano-gpt")[0]).graph
        nodes, parameters = {n.name for n in graph.node}, {i.name for i in graph.initializer}
        report = self.report(self.plan_of("nano-gpt"))
        named = [row["node"] for row in report["memory"]["timeline"] if row["node"]]
        self.assertGreater(sum(n in nodes or n in parameters for n in named) / len(named), 0.85)
        self.assertGreater(sum(n in nodes for n in named), 60)

    def test_text(self):
        text = self.succeed("tcc", "report", self.plan_of("nano-gpt")).out
        for word in ("peak", "MiB|KiB", "wte.weight", "kernel"):
            self.assertRegex(text, f"(?i){word}")

    def test_a_summary_is_the_beginning_of_the_text(self):
        plan = self.plan_of("nano-gpt")
        summary, text = (self.succeed("tcc", "report", plan, *more).out for more in (("--summary",), ()))
        # The memory of a process that loads the plan is measured anew each time.
        lines, whole = ([line for line in one.splitlines() if not re.match("  (host|library|process) ", line)] for one in (summary, text))
        self.assertEqual(lines, whole[:len(lines)])
        self.assertIn("peak", summary)
        self.assertRegex(whole[len(lines) + 1], "^workers")
        for other in (("--json",), ("--html", "x.html"), ("--diff", plan)):
            self.refuse(2, ["--summary"], "tcc", "report", plan, "--summary", *other)

    def test_unused_parameters_are_explained(self):
        """The dead branch's weights get no gradient, and the report says so."""
        import models
        from onnx import helper
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["prediction"], "live", transB=1),
                 helper.make_node("Gemm", ["x", "v", "c"], ["other"], "dead_branch", transB=1)]
        models.save(self.folder / "m.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1], "other": [8, 1]},
                    {"w": models.random(1, 1, 5), "b": models.random(2, 1), "v": models.random(3, 1, 5), "c": models.random(4, 1)})
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        unused = {u["name"]: u for u in self.report(self.compile("m.onnx", "--recipe", recipe))["parameters"]["unused"]}
        self.assertEqual(sorted(unused), ["c", "v"])
        self.assertEqual(unused["v"]["node"], "dead_branch")

    def test_the_difference_of_two_plans(self):
        """The difference shows names and numbers of changed settings and results, and nothing else."""
        model, recipe, _, _ = case("nano-gpt")
        plan = self.compile(model, "--recipe", recipe, "--set", "optimizer.weight_decay=0.5")
        self.assertEqual(self.succeed("tcc", "report", plan, "--diff", plan).out, "no difference\n")
        self.assertTrue(json.loads(self.succeed("tcc", "report", plan, "--diff", plan, "--json").out)["identical"])

        other = self.compile(model, "--recipe", recipe, "--set", "optimizer.weight_decay=0.25", "--entry", "train", plan="other.tplan")
        difference = json.loads(self.succeed("tcc", "report", plan, "--diff", other, "--json").out)
        self.assertEqual(difference["recipe"], {"vanished": ["[optimizer] weight_decay = 0.5"], "appeared": ["[optimizer] weight_decay = 0.25"]})
        self.assertEqual({name: p.get("change") for name, p in difference["programs"].items()},
                         {"evaluate": "vanished", "predict": "vanished"})
        self.assertTrue(all("weight decay 0.25" in text for text in difference["parameters"]["groups"]["appeared"]))
        text = self.succeed("tcc", "report", plan, "--diff", other).out
        for line in ("program predict: in A alone", "- [optimizer] weight_decay = 0.5", "+ [optimizer] weight_decay = 0.25"):
            self.assertIn(line, text)
        self.refuse(1, ["missing.tplan"], "tcc", "report", plan, "--diff", "missing.tplan")

    def test_why_buffers_are_alive(self):
        """A saved buffer says which gradient, update or recomputation will read it; a waiting gradient names its parameter's update."""
        memory = self.report(self.plan_of("nano-gpt", "--set", "compiler.fuse=true"))["memory"]
        step = memory["entries"]["train"]["programs"]["step"]
        saved = [b for b in step["buffers"] if b["purpose"] == "saved"]
        self.assertGreater(len(saved), 10)
        for buffer in saved:
            self.assertRegex(buffer["why_alive"], r"^saved for (the gradient at|the update of|the recomputation of) \S+")
        self.assertTrue([b for b in step["buffers"] if re.match(r"waits for the update of \S+", b["why_alive"])])
        for name in ("evaluate", "predict"):
            program = memory["entries"][name]["programs"][name]
            self.assertFalse([b["name"] for b in program["buffers"] if b["purpose"] in ("saved", "gradient", "recomputed")])

    def test_accumulation_writes_its_buffers_instead_of_zeroing_them(self):
        report = self.report(self.plan_of("in-graph-loss"))
        elided = {row["parameter"] for row in report["zero_fill"]["elided"]}
        self.assertTrue(elided)
        self.assertFalse(elided & {row["parameter"] for row in report["zero_fill"]["kept"]})


if __name__ == "__main__":
    unittest.main(verbosity=2)
