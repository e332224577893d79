"""The profile: every instruction of an update is timed, counted and named, and the trace holds them all."""
import json
import unittest

from common import EndToEnd, case


class Profile(EndToEnd):
    def setUp(self):
        super().setUp()
        model, recipe, self.data, _ = case("nano-gpt")
        self.plan = self.compile(model, "--recipe", recipe)

    def profile(self, *arguments):
        return json.loads(self.succeed("trun", "profile", self.plan, "--data", self.data, "--threads", 2, "--json", *arguments).out)

    def test_counts_and_times(self):
        profile, report = self.profile("--trace", "trace.json", "--steps", 5), self.report(self.plan)
        self.assertEqual(profile["entries"], ["step"])
        kernels = profile["kernels"]
        # Calls, arithmetic and traffic are those that tcc reports for an update.
        for key, name in (("calls", "count"), ("bytes", "bytes"), ("flops", "flops")):
            self.assertAlmostEqual(sum(k[key] for k in kernels), sum(k[name] for k in report["kernels"]), msg=key)
        self.assertEqual(sum(k["calls"] for k in kernels), len(profile["instructions"]))
        self.assertEqual(sum(k["flops"] for k in kernels), report["flops_per_step"])
        # Instructions make up the step: what is left is reading a batch and the clock. Medians of single instructions leave out what
        # disturbs a step now and then.
        self.assertAlmostEqual(sum(i["seconds"] * i["calls"] for i in profile["instructions"]), profile["instruction_seconds"], places=9)
        self.assertGreater(profile["instruction_seconds"], 0.4 * profile["step_seconds"])
        self.assertLess(profile["instruction_seconds"], 1.1 * profile["step_seconds"])
        for kernel in kernels:
            self.assertEqual(len(kernel["nodes"]), kernel["calls"], kernel["what"])
            self.assertIn(kernel["limit"], ("memory", "arithmetic", ""))
            self.assertAlmostEqual(kernel["roofline_share"] * kernel["seconds"], kernel["roofline_seconds"], places=9)
        self.assertTrue(any(k["what"].startswith("matmul ") and k["kind"] == "library" for k in kernels))
        machine = profile["roofline"]
        self.assertGreater(machine["matmul"][0]["flops_per_s"], 1e8)
        self.assertGreater(machine["copy_bytes_per_s"], 1e8)
        self.assertGreater(profile["roofline_seconds"], 0)
        self.assertLessEqual(profile["roofline_seconds"], profile["instruction_seconds"] * 1.0001)

        events = [e for e in json.loads((self.folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
        calls = [e for e in events if e["cat"] in ("library", "generated", "copy")]
        self.assertEqual([e["args"]["instruction"] for e in calls], list(range(len(profile["instructions"]))))
        self.assertEqual([e["args"]["node"] for e in calls], [i["node"] for i in profile["instructions"]])
        for before, after in zip(calls, calls[1:]):
            self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3)
        step = next(e for e in events if e["cat"] == "step")
        self.assertLessEqual(calls[-1]["ts"] + calls[-1]["dur"], step["dur"] + 1e-3)

    def test_every_type_has_its_own_roofline(self):
        """Products in bf16 are held against the rate of bf16 products where the library has them."""
        model, recipe, _, _ = case("nano-gpt")
        self.plan = self.compile(model, "--recipe", recipe, "--precision", "bf16", "--entry", "train")
        profile = self.profile("--steps", 1)
        # Attention multiplies pairs of bf16 where the machine does.
        products = [k for k in profile["kernels"] if k["what"].startswith("matmul bf16 ") or
                    k["what"].startswith("attention") and k["dtype"] == "bf16"]
        self.assertTrue(products)
        rates = {peak["dtype"]: peak["flops_per_s"] for peak in profile["roofline"]["matmul"]}
        self.assertIn("f32", rates)
        for kernel in profile["kernels"]:
            self.assertEqual(kernel["dtype"] == "bf16", kernel in products, kernel["what"])
            least = kernel["flops"] / rates.get(kernel["dtype"], rates["f32"])
            self.assertGreaterEqual(kernel["roofline_seconds"], 0.999 * least, kernel["what"])

    def test_table_and_entries(self):
        text = self.succeed("trun", "profile", self.plan, "--data", self.data, "--all", "--threads", 1).out
        for words in ("limited by", "GFLOP/s", "a step takes", "roofline, measured now: matmul", "library", "generated"):
            self.assertIn(words, text)
        self.assertEqual(self.profile("--entry", "evaluate", "--no-roofline")["entries"], ["evaluate"])
        self.refuse(2, ["--entry train", "step"], "trun", "profile", self.plan, "--data", self.data, "--entry", "train")
        self.refuse(1, ["nowhere"], "trun", "profile", self.plan, "--data", "nowhere.safetensors", "--no-roofline")
        self.refuse(2, ["--steps"], "trun", "profile", self.plan, "--data", self.data, "--steps", 0)


if __name__ == "__main__":
    unittest.main()
