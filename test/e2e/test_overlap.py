"""Updates that run concurrently with the products after them: the same bits, the same arena, on any number of threads."""
import json
import unittest

import numpy as np
import onnx.helper as oh

import models
from browser import PROGRAM, Browser
from common import EndToEnd

# One separate kernel for each update: otherwise updates are fused into products, or consist of many kernels.
APART = ("--set", "compiler.fuse_updates=false", "--set", "compiler.fuse=true")
ADAMW = '[optimizer]\nkind = "adamw"\nlr = 0.01\n'


class Overlap(EndToEnd):
    def wide(self, batch=512, features=768, width=1024, classes=10):
        """Layers whose activations leave room in the arena for two gradients later."""
        sizes, nodes, weights, value = [features] + 5 * [width] + [classes], [], {}, "x"
        for i, (n, m) in enumerate(zip(sizes, sizes[1:])):
            weights[f"w{i}"] = models.random(i, m, n) / np.float32(np.sqrt(n))
            last = i == len(sizes) - 2
            nodes.append(oh.make_node("Gemm", [value, f"w{i}"], ["logits" if last else f"h{i}"], f"layer{i}", transB=1))
            value = f"h{i}"
            if not last:
                nodes.append(oh.make_node("Relu", [value], [f"a{i}"], f"relu{i}"))
                value = f"a{i}"
        return models.save(self.folder / "wide.onnx", nodes, {"x": [batch, features]}, {"logits": [batch, classes]}, weights)

    def test_same_bits_and_arena(self):
        model = self.wide()
        recipe = self.write("r.toml", models.CLASSES + ADAMW)
        data = self.save("d.safetensors", **models.labelled(512, 10, 768))
        bits, arenas = set(), set()
        for overlap in ("true", "false"):
            plan = self.compile(model, "--recipe", recipe, "--threads", 3, "--set", f"compiler.overlap={overlap}", *APART,
                                "--dump-phases-to", f"ir-{overlap}", plan=f"{overlap}.tplan")
            ir = next((self.folder / f"ir-{overlap}").glob("*-memory.mlir")).read_text()
            self.assertEqual("train.beside" in ir, overlap == "true")
            arenas.add(self.report(plan)["memory"]["arena_bytes"])
            for threads in (1, 2, 3):
                out = f"{overlap}-{threads}"
                self.weights(self.train(plan, data, "--threads", threads, out=out), f"{out}.safetensors")
                bits.add((self.folder / f"{out}.safetensors").read_bytes())
        self.assertEqual(len(bits), 1)
        self.assertEqual(len(arenas), 1)

    def test_the_report_says_what_runs_beside_what(self):
        plan = self.compile(self.wide(), "--recipe", self.write("r.toml", models.CLASSES + ADAMW), "--threads", 2, *APART)
        report = self.report(plan)
        calls = [call for kernel in report["kernels"] for call in kernel["beside"]]
        self.assertTrue(calls)
        nodes = [row["node"] for row in report["memory"]["entries"]["train"]["programs"]["step"]["timeline"]]
        for call in calls:
            self.assertEqual(call["program"], "step")
            self.assertIn(call["variable"], report["parameters"]["trainable"])
            self.assertEqual((call["node"], call["first_node"], call["last_node"]),
                             (nodes[call["step"]], nodes[call["step"] + 1], nodes[call["until"]]))
        text = self.succeed("tcc", "report", plan).out
        self.assertIn("runs beside", text)
        self.assertRegex(text, rf"updates {calls[0]['variable']} .*{calls[0]['last_node']}")
        self.succeed("tcc", "report", plan, "--html", "page.html")
        if not PROGRAM:
            self.skipTest("no Chromium: the page was written, not looked at")
        with Browser() as browser:
            browser.open(self.folder / "page.html")
            shown = browser.run('[...document.querySelectorAll("#overlap tbody tr")].map(row => [...row.cells].map(c => c.textContent))')
            self.assertEqual(len(shown), len(calls))
            for call, row in zip(sorted(calls, key=lambda call: call["step"]), shown):
                self.assertEqual((row[0], row[3]), (f"#{call['step']}", call["variable"]))
                self.assertIn(f" {call['last_node']}", row[4])
            browser.run(f"select(null, {calls[0]['step']})")
            self.assertIn("runs beside", browser.run('document.querySelector(".inspector").textContent'))
            self.assertFalse(browser.errors)

    def test_a_profile_gives_each_its_part(self):
        plan = self.compile(self.wide(), "--recipe", self.write("r.toml", models.CLASSES + ADAMW), "--threads", 2, *APART)
        data = self.save("d.safetensors", **models.labelled(512, 10, 768))
        profile = json.loads(self.succeed("trun", "profile", plan, "--data", data, "--threads", 2, "--json").out)
        updates = [k for k in profile["kernels"] if "optimizer" in k["writes"]]
        self.assertTrue(updates)
        self.assertTrue(all(i["seconds"] > 0 for i in profile["instructions"]))
        self.assertLessEqual(sum(i["seconds"] * i["calls"] for i in profile["instructions"]), profile["step_seconds"] * 1.5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
