"""What reports say of ranks: bytes of each collective, instructions beside it, exposed time; the curves of a run."""
import json
import unittest

import numpy as np
import safetensors.numpy

from browser import PROGRAM, Browser
from test_report_html import data_of
from test_shards import NEVER_CLIPS, Sharded

SMALL = ("optimizer.kind=adamw", NEVER_CLIPS, "parallel.bucket_bytes=40000")


class Communication(Sharded):
    def collectives(self, plan, program="step"):
        said = self.report(plan)["communication"]
        return next(one for one in said["programs"] if one["program"] == program), said

    def trained_bytes(self):
        self.train("ddp.tplan", self.data("nano-gpt"), "ddp", "--steps", 1)
        state = safetensors.numpy.load_file(self.folder / "ddp" / "checkpoints" / "step-1" / "state.safetensors")
        return sum(value.nbytes for name, value in state.items() if name + "/exp_avg" in state)

    def test_bytes_of_the_plan(self):
        self.shards("nano-gpt", *SMALL, mode="ddp", ranks=2, plan="ddp.tplan")
        self.shards("nano-gpt", *SMALL, mode="full", ranks=4, plan="full.tplan")
        trained = self.trained_bytes()
        program, said = self.collectives("ddp.tplan")
        self.assertIsNone(said["ranks"])
        gradients = sum(row["bytes"] for row in program["collectives"] if row["collective"] == "all-reduce")
        self.assertTrue(trained <= gradients < trained + 100, (trained, gradients))
        self.assertEqual(program["sent_bytes"], sum(row["sent_bytes"] for row in program["collectives"]))
        program, said = self.collectives("full.tplan")
        self.assertEqual((said["mode"], said["ranks"]), ("full", 4))
        kinds = {kind: [row for row in program["collectives"] if row["collective"] == kind] for kind in ("reduce-scatter", "all-gather")}
        self.assertEqual(sum(row["bytes"] for row in kinds["reduce-scatter"]), trained)
        self.assertGreaterEqual(sum(row["bytes"] for row in kinds["all-gather"]), trained)
        for row in kinds["reduce-scatter"] + kinds["all-gather"]:
            self.assertAlmostEqual(row["sent_bytes"], row["bytes"] * 3 / 4, delta=1)
        self.assertEqual(program["exposed_ns"] > 0, any(row["exposed_ns"] for row in program["collectives"]))
        self.assertRegex(self.succeed("tcc", "report", "full.tplan").out, r"communication \(step\): a rank sends [\d.]+ .iB in \d+ collectives")
        self.shards("nano-gpt", mode="none", ranks=1, plan="one.tplan")
        self.assertNotIn("communication", self.report("one.tplan"))

    def test_reduce_scatters_and_gathers_run_beside_the_backward_pass(self):
        """Without overlap nothing is hidden, and the arena needs no space for sources that live longer."""
        found = {}
        for overlap in ("true", "false"):
            self.shards("nano-gpt", *SMALL, f"compiler.overlap={overlap}", mode="full", ranks=4, plan=f"{overlap}.tplan")
            program, _ = self.collectives(f"{overlap}.tplan")
            found[overlap] = program, self.report(f"{overlap}.tplan")["memory"]["arena_bytes"]
        beside = {kind: [row["beside"] for row in found["true"][0]["collectives"] if row["collective"] == kind]
                  for kind in ("reduce-scatter", "all-gather")}
        for kind, counts in beside.items():
            self.assertGreater(len(counts), 3)
            self.assertGreater(sum(count > 0 for count in counts), len(counts) / 2, kind)
        self.assertFalse(any(row["beside"] for row in found["false"][0]["collectives"]))
        self.assertLess(found["true"][0]["exposed_ns"], found["false"][0]["exposed_ns"])
        bucket = max(row["bytes"] for row in found["true"][0]["collectives"] if row["collective"] == "reduce-scatter")
        self.assertLessEqual(found["true"][1], found["false"][1] + bucket + 64 * 20)

    def test_prefetch_gathers_ahead_and_changes_no_bit(self):
        losses, hidden, arenas = [], [], []
        for prefetch in (0, 1, 3):
            plan = self.shards("nano-gpt", *SMALL, f"parallel.prefetch={prefetch}", mode="full", ranks=2, plan=f"{prefetch}.tplan")
            self.train(plan, self.data("nano-gpt"), f"run{prefetch}", "--steps", 3, nproc=2)
            losses.append([json.loads(line)["loss"] for line in (self.folder / f"run{prefetch}" / "metrics.jsonl").read_text().splitlines()
                           if '"loss"' in line])
            program, _ = self.collectives(plan)
            hidden.append(sum(row["beside_ns"] for row in program["collectives"] if row["collective"] == "all-gather"))
            arenas.append(self.report(plan)["memory"]["arena_bytes"])
        self.assertEqual(len(losses[0]), 3)
        self.assertEqual(losses[1], losses[0])
        self.assertEqual(losses[2], losses[0])
        self.assertLess(hidden[0], hidden[1])
        self.assertLess(hidden[1], hidden[2])
        self.assertLess(arenas[1], arenas[2])

    @unittest.skipUnless(PROGRAM, "no Chromium on this machine")
    def test_the_page_shows_them(self):
        self.shards("nano-gpt", *SMALL, mode="full", ranks=4, plan="full.tplan")
        self.succeed("tcc", "report", "full.tplan", "--html", "full.html")
        program, _ = self.collectives("full.tplan")
        with Browser() as browser:
            browser.open(self.folder / "full.html")
            text = browser.run("document.getElementById('communication').innerText")
            self.assertIn("state sharded over 4 ranks", text)
            self.assertIn("all-gather", text)
            self.assertEqual(browser.run("document.querySelectorAll('#communication tbody tr').length"),
                             min(20, len(program["collectives"])))
            self.assertEqual(browser.errors, [])


class Runs(Sharded):
    def test_the_curves_and_times_of_a_run(self):
        self.shards("mlp", mode="ddp", ranks=2)
        self.train("plan.tplan", self.data("mlp"), "run", "--steps", 5, nproc=2)
        said = json.loads(self.succeed("trun", "report", "run", "--json").out)
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
        np.testing.assert_allclose(said["updates"]["communication_seconds"], [line["communication_seconds"] for line in lines])
        np.testing.assert_allclose(said["updates"]["exposed_seconds"], [line["exposed_seconds"] for line in lines])
        self.assertAlmostEqual(said["times"]["ranks"], sum(line["exposed_seconds"] for line in lines), 9)
        self.assertIn("waiting for other ranks", self.succeed("trun", "report", "run").out)
        self.succeed("trun", "report", "run", "--html", "run.html")
        self.assertEqual(data_of((self.folder / "run.html").read_text())["times"], said["times"])
        if PROGRAM:
            with Browser() as browser:
                browser.open(self.folder / "run.html")
                self.assertIn("waiting for other ranks", browser.run("document.getElementById('overview').innerText"))
                self.assertIn("of it exposed", browser.run("document.getElementById('time').innerText"))
                self.assertEqual(browser.errors, [])

    def test_the_parameters_are_those_of_all_ranks(self):
        counts = []
        for mode in ("ddp", "full"):
            self.shards("mlp", mode=mode, ranks=2)
            self.train("plan.tplan", self.data("mlp"), mode, "--steps", 1, nproc=2)
            counts.append(json.loads(self.succeed("trun", "report", mode, "--json").out)["parameters"])
        self.assertGreater(counts[0], 100)
        self.assertEqual(counts[1], counts[0])

    def test_a_run_of_one_rank_says_nothing_of_others(self):
        self.shards("mlp", mode="none", ranks=1)
        self.train("plan.tplan", self.data("mlp"), "run", "--steps", 2)
        self.assertNotIn("other ranks", self.succeed("trun", "report", "run").out)
        said = json.loads(self.succeed("trun", "report", "run", "--json").out)
        self.assertEqual(said["updates"]["communication_seconds"], [None, None])


if __name__ == "__main__":
    unittest.main(verbosity=2)
