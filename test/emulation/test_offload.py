"""Plans for a card that keep state and values on the host have the bits of plans that do not, within both budgets:
`test_offload.py STANDIN [--all]`."""
import os
import re
import sys
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
from common import EndToEnd, checkpoints, metrics

ALL = "--all" in sys.argv
sys.argv = [word for word in sys.argv if word != "--all"]
LAYERS, WIDTH, BATCH = 6, 160, 128
ADAMW = '[optimizer]\nkind = "adamw"\nlr = 0.01\n'
# The words after the optimizer's settings, by what they ask of the update.
SETTINGS = {
    "plain": "",
    "accumulated": "[train]\naccumulate = 3\n",
    "clipped": "[train]\nclip_norm = 0.1\n",
    "averages": '[train]\nema = { decay = 0.9, on = "device" }\n',
    "mixed": '[train]\nprecision = "bf16"\nclip_norm = 0.1\naccumulate = 2\n',
}


class Offload(EndToEnd):
    def tower(self, layers=LAYERS, batch=BATCH, width=WIDTH):
        nodes, weights = [], {}
        for i in range(layers):
            last = i + 1 == layers
            nodes.append(models.helper.make_node("MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"s{i}"], f"layer{i}"))
            nodes.append(models.helper.make_node("Tanh", [f"s{i}"], ["prediction" if last else f"h{i}"], f"tanh{i}"))
            weights[f"w{i}"] = 0.1 * models.random(i, width, width)
        return models.save(self.folder / "tower.onnx", nodes, {"x": [batch, width]}, {"prediction": [batch, width]}, weights)

    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(0).standard_normal
        self.data = self.save("d.safetensors", **{name: draw((6 * BATCH, WIDTH), np.float32) for name in "xy"})

    def plan(self, name, recipe, *words, model=None):
        return self.compile(model or self.tower(), "--recipe", self.write(f"{name}.toml", recipe), "--target", "cuda:sm_90", *words,
                            plan=f"{name}.tplan")

    def run_of(self, plan, out, *words, steps=3, **settings):
        """(losses, bytes of the checkpoint's files by name)"""
        run = self.train(plan, self.data, "--no-release", "--device", "cuda", *words, out=out, steps=steps,
                         env=stand_in(**({"mode": "checked"} | settings)))
        files = {file.name: file.read_bytes() for file in (run / "checkpoints" / f"step-{checkpoints(run)[-1]}").glob("*.safetensors")}
        return [line["loss"] for line in metrics(run)[0]], files

    def memory(self, plan):
        report = self.report(plan)
        return report["memory"]["resident_bytes"] + report["memory"]["arena_bytes"], report

    def test_state_on_the_host(self):
        """Everything that an update can do with state: bits, bytes, and the checkpoint."""
        for name, words in SETTINGS.items():
            if not ALL and name in ("plain", "accumulated"):
                continue
            with self.subTest(name):
                recipe = models.SQUARES + ADAMW + words
                kept, moved = self.plan(f"{name}-kept", recipe, "--set", "offload.what=none"), self.plan(
                    name, recipe, "--set", "offload.what=state")
                self.assertEqual(self.run_of(moved, f"{name}-run", seed=1), self.run_of(kept, f"{name}-kept-run"))
                _, report = self.memory(moved)
                _, plain = self.memory(kept)
                state = 2 * LAYERS * WIDTH * WIDTH * 4 + (LAYERS * WIDTH * WIDTH * 4 if name == "averages" else 0)
                self.assertEqual(report["offload"]["state_bytes"], state)
                self.assertEqual(report["memory"]["host"]["kept_for_card"], state)
                self.assertEqual(plain["memory"]["resident_bytes"] - report["memory"]["resident_bytes"], state)
                self.assertEqual(report["offload"]["stored_bytes"], state)
                names = {row["instruction"] for row in report["memory"]["timeline"]}
                self.assertIn("transfer between card and host", names)
                self.assertNotIn("unknown", names)

    def test_codes_on_the_host(self):
        """Of moments in 8 bits the codes move; their magnitudes, a sixty-fourth of them, are too small to."""
        width, layers = 272, 2
        draw = np.random.default_rng(0).standard_normal
        self.data = self.save("wide.safetensors", **{name: draw((3 * BATCH, width), np.float32) for name in "xy"})
        recipe = models.SQUARES + ADAMW + 'moments = "8bit"\n'
        tower = self.tower(layers, width=width)
        kept, moved = (self.plan(what, recipe, "--set", f"offload.what={what}", model=tower) for what in ("none", "state"))
        self.assertEqual(self.run_of(moved, "moved-run", seed=1), self.run_of(kept, "kept-run"))
        self.assertEqual(self.memory(moved)[1]["offload"]["state_bytes"], 2 * layers * width * width)

    def test_budgets_of_two_spaces(self):
        """Whatever fits, the bits are the same; a smaller budget never gives a cheaper plan, nor one of more bytes."""
        pairs = 0
        for name in SETTINGS if ALL else ("mixed",):
            # Updates that share a launch would need all of their state at once.
            recipe = models.SQUARES + ADAMW + SETTINGS[name] + "[compiler]\noverlap = false\n"
            most, _ = self.memory(self.plan(f"{name}-most", recipe, "--entry", "train", "--set", "offload.what=none"))
            expected = self.run_of(self.folder / f"{name}-most.tplan", f"{name}-most-run", mode="fast")
            least = int(re.search(r"smallest budget that does is .*?(\d+) bytes", self.refuse(
                3, ["with .* on the host"], "tcc", self.tower(), "--recipe", self.write("l.toml", recipe),
                "--target", "cuda:sm_90", "--entry", "train", "--memory-budget", 1 << 10, "-o", "p").err)[1])
            self.assertLess(least, 0.75 * most)
            for host in (None, "1MiB", "400KiB") if ALL else (None, "700KiB"):
                costs, moved = [], 0
                for budget in np.linspace(least, most, 6 if ALL else 3).astype(int):
                    words = ["--entry", "train", "--memory-budget", budget] + (["--host-memory", host] if host else [])
                    result = self.command("tcc", self.tower(), "--recipe", self.write("b.toml", recipe), "--target", "cuda:sm_90", *words, "-o",
                                          self.folder / "b.tplan")
                    if result.status == 3:
                        self.assertIsNotNone(host, result.err)
                        self.assertEqual(costs, [], "a larger budget is met if a smaller one is")
                        continue
                    self.assertEqual(result.status, 0, result.err)
                    taken, report = self.memory(self.folder / "b.tplan")
                    self.assertLessEqual(taken, budget)
                    self.assertLessEqual(report["memory"]["host"]["kept_for_card"], {"1MiB": 1 << 20, "700KiB": 700 << 10, "400KiB": 400 << 10}.get(host, 1 << 40))
                    costs.append(report["recompute"]["cost_ns"])
                    moved += report["memory"]["host"]["kept_for_card"] > 0
                    self.assertEqual(self.run_of(self.folder / "b.tplan", f"{name}-{host}-{budget}", seed=pairs,
                                                 mode="checked" if ALL else "fast"), expected)
                    pairs += 1
                self.assertEqual(costs, sorted(costs, reverse=True))
                if not host:
                    self.assertGreaterEqual(moved, 2)
        self.assertGreaterEqual(pairs, 12 if ALL else 4)

    def test_values_on_the_host(self):
        """Values of the forward pass alone: the optimizer's state stays on the card."""
        recipe = models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 0.1\n'
        model = self.tower(8, 6 * BATCH)
        kept = self.plan("kept", recipe, "--entry", "train", "--set", "offload.what=none", model=model)
        most, plain = self.memory(kept)
        arena = plain["memory"]["arena_bytes"]
        words = ["--entry", "train", "--memory-budget", most - arena // 4]
        moved = self.plan("moved", recipe, *words, "--set", "offload.what=activations", "--set", "offload.bytes_per_second=1e12", model=model)
        taken, report = self.memory(moved)
        self.assertLessEqual(taken, most - arena // 4)
        self.assertEqual(report["offload"]["state_bytes"], 0)
        self.assertGreater(report["offload"]["value_bytes"], 0)
        self.assertEqual({row["kind"] for row in report["offload"]["values"]}, {"value"})
        recomputed = self.plan("recomputed", recipe, *words, "--set", "offload.what=none", model=model)
        self.assertLess(report["recompute"]["cost_ns"], self.memory(recomputed)[1]["recompute"]["cost_ns"])
        self.assertEqual(self.run_of(moved, "moved-run"), self.run_of(kept, "kept-run"))
        text = self.succeed("tcc", "report", moved).out
        self.assertRegex(text, r"on the host: 0 B of state, .* of values; one update stores .* and fetches")

    def test_a_run_goes_on(self):
        """Resume, evaluation, export, staged checkpoints and a run step by step, with state that is on the host."""
        recipe = models.SQUARES + ADAMW
        moved = self.plan("moved", recipe, "--set", "offload.what=state")
        whole = self.run_of(moved, "whole", steps=5)
        self.assertIn("kept for the device 1.2 MiB", (self.folder / "whole/log.txt").read_text())
        self.run_of(moved, "part", steps=2)
        self.succeed("trun", moved, "--data", self.data, "--no-shuffle", "--steps", 5, "--resume", "part", "--no-release", "--device", "cuda",
                     env=stand_in(mode="checked"))
        files = {file.name: file.read_bytes() for file in (self.folder / "part/checkpoints/step-5").glob("*.safetensors")}
        self.assertEqual(files, whole[1])
        self.assertEqual(self.run_of(moved, "steps", "--step-by-step", steps=5), whole)
        for seed in range(3 if ALL else 1):
            self.assertEqual(self.run_of(moved, f"staged-{seed}", "--set", 'checkpoint.staging_bytes="all"', "--checkpoint-every", 1, steps=5,
                                         seed=seed), whole)

    def test_ranks(self):
        """Each rank keeps its own part on its own host; with shards that is its shard."""
        for mode, words in [("ddp", []), ("grad_op", ["--set", "parallel.ranks=2"]), ("full", ["--set", "parallel.ranks=2"])]:
            if mode == "full" and not ALL:
                continue
            with self.subTest(mode):
                files = []
                for what in ("none", "state"):
                    plan = self.plan(f"{mode}-{what}", models.SQUARES + ADAMW + "[train]\nclip_norm = 0.1\n", "--set", f"parallel.mode={mode}", *words,
                                     "--set", f"offload.what={what}", "--entry", "train", model=self.tower(2, width=256))
                    state = self.report(plan)["offload"]["state_bytes"]
                    self.assertEqual(state, 0 if what == "none" else 2 * 2 * 256 * 256 * 4 // (1 if mode == "ddp" else 2))
                    run = self.folder / f"{mode}-{what}-run"
                    wide = self.save("wide.safetensors", **{name: np.random.default_rng(1).standard_normal((4 * BATCH, 256), np.float32) for name in "xy"})
                    self.succeed("trun", plan, "--data", wide, "--no-shuffle", "--steps", 2, "--out", run, "--no-release", "--device", "cuda", "--nproc", 2,
                                 env=os.environ | stand_in(mode="checked", devices=2))
                    files.append({file.name: file.read_bytes() for file in (run / "checkpoints/step-2").glob("*.safetensors")})
                self.assertTrue(files[0])
                self.assertEqual(files[0], files[1])

    def test_phases(self):
        """Two optimizers in turn, each with state of its own on the host."""
        recipe = ADAMW + "".join(f'[[phase]]\nname = "{name}"\nparameters = {parameters}\nloss = {{ kind = "mse", of = "prediction", target = "y" }}\n'
                                 for name, parameters in (("first", '["w0", "w1"]'), ("second", '["w2"]')))
        model = self.tower(3)
        results = []
        for what in ("none", "state"):
            plan = self.plan(what, recipe, "--set", f"offload.what={what}", "--entry", "train", model=model)
            self.assertEqual(self.report(plan)["offload"]["state_bytes"], 0 if what == "none" else 2 * 3 * WIDTH * WIDTH * 4)
            results.append(self.run_of(plan, f"{what}-run", seed=2)[1])
        self.assertEqual(*results)

    def test_refusals_and_other_targets(self):
        recipe = self.write("r.toml", models.SQUARES + ADAMW)
        self.refuse(2, ["--host-memory 1GiB: cpu.* has no memory of its own"], "tcc", self.tower(), "--recipe", recipe, "--target", "cpu",
                    "--host-memory", "1GiB", "-o", "p")
        self.refuse(1, ["offload.what", "auto.*state.*activations.*none"], "tcc", self.tower(), "--recipe", recipe, "--set", "offload.what=all",
                    "-o", "p")
        self.refuse(3, ["offload.what = \"state\" keeps 1.2 MiB on the host, more than the 1.0 MiB of --host-memory"], "tcc", self.tower(),
                    "--recipe", recipe, "--target", "cuda:sm_90", "--set", "offload.what=state", "--memory-budget", "10MiB", "--host-memory", "1MiB",
                    "-o", "p")
        moved = self.plan("moved", models.SQUARES + ADAMW, "--set", "offload.what=state")
        self.refuse(1, ["the plan is for cuda:sm_90|keeps memory of a card on the host"], "trun", moved, "--data", self.data, "--device", "cpu", "--out", "o",
                    env=stand_in())
        # Beside a program for a CPU, which has no memory of its own.
        both = self.compile(self.tower(), "--recipe", recipe, "--target", "cpu:v3", "--target", "cuda:sm_90", "--set", "offload.what=state", "--entry",
                            "train", plan="both.tplan")
        self.succeed("trun", "verify", both)
        self.assertEqual(self.run_of(both, "both-run", seed=3)[0], self.run_of(moved, "moved-run")[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
