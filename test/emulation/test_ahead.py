"""Training on a card does not wait for it: the next update is submitted before this one ends, and checkpoints are copied beside
updates. The log, the checkpoints and the end of a run stay as without this: `test_ahead.py STANDIN`."""
import json
import re
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
from common import EndToEnd, checkpoints, metrics

ADAMW = '[optimizer]\nkind = "adamw"\nlr = 0.01\n'
SEEDS = (1, 2, 3)


class Ahead(EndToEnd):
    def tower(self, layers=16):
        """Many layers, each with launches of its own."""
        nodes, weights = [], {}
        for i in range(layers):
            nodes.append(models.helper.make_node("MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"s{i}"], f"layer{i}"))
            nodes.append(models.helper.make_node("Tanh", [f"s{i}"], [f"h{i}" if i + 1 < layers else "prediction"], f"tanh{i}"))
            weights[f"w{i}"] = models.random(i, 5, 5 if i + 1 < layers else 1)
        return models.save(self.folder / "tower.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1]}, weights)

    def prepare(self, text="", width=16, recipe=models.SQUARES + ADAMW, target="cuda:sm_90", model=None, **data):
        self.plan = self.compile(model or models.mlp(self.folder / "m.onnx", width=width), "--recipe", self.write("r.toml", recipe + text),
                                 "--target", target, "--set", "compiler.overlap=false")
        return [self.plan, "--data", self.save("d.safetensors", **(data or models.mlp_data(40))), "--no-shuffle", "--no-release"]

    def queued(self, words, *more, out, steps=12):
        """The work that was queued on the card at each launch of a graph, if the card does nothing before the host waits for it."""
        self.succeed("trun", *words, *more, "--steps", steps, "--out", out,
                     env=stand_in(mode="fast", late=1, queued=self.folder / f"{out}.queued"))
        return [json.loads(line) for line in (self.folder / f"{out}.queued").read_text().splitlines()]

    def test_an_update_is_submitted_before_the_one_before_it_ends(self):
        """Also with clipping, a loss scale, several micro-batches and averages on the card; averages on the host wait."""
        ema = 'ema = { decay = 0.9, on = "%s" }\n'
        for name, text, ahead in [("plain", "", True), ("clipped", "[train]\nclip_norm = 0.1\n", True),
                                  ("accumulated", "[train]\naccumulate = 2\n", True),
                                  ("scaled", '[train]\nprecision = "f16"\n', True),
                                  ("averages on the card", "[train]\n" + ema % "device", True),
                                  ("averages of the host", "[train]\n" + ema % "host", False)]:
            with self.subTest(name):
                words = self.prepare(text, model=self.tower())
                busy = [one["work"] > 0 for one in self.queued(words, out=name) if one["graph"] == 0]  # each update begins with graph 0
                self.assertEqual(busy, [False] + 11 * [ahead])

    def test_step_by_step(self):
        """The same bits without graphs, and a fault of the card at its node."""
        for name, text in (("plain", ""), ("averages", "[train]\nema = { decay = 0.9, on = \"device\" }\n")):
            words = self.prepare(text, model=self.tower())
            runs = {}
            for out, more in ((f"{name}-graphs", []), (f"{name}-steps", ["--step-by-step"])):
                self.succeed("trun", *words, *more, "--steps", 4, "--out", out, env=stand_in(queued=self.folder / f"{out}.queued"))
                runs[out] = [line["loss"] for line in metrics(self.folder / out)[0]]
            self.assertEqual(*runs.values())
            self.assertTrue((self.folder / f"{name}-graphs.queued").exists())
            self.assertFalse((self.folder / f"{name}-steps.queued").exists(), "no graph was launched")
        for more, node in (([], r"step"), (["--step-by-step"], r"entry 'step', instruction \d+ \(node 'tanh\d+'\)")):
            failed = self.command("trun", *words, *more, "--steps", 2, "--out", f"fault-{len(more)}", env=stand_in(kernel_fails=6))
            self.assertNotEqual(failed.status, 0)
            self.assertRegex(failed.err, f"error: .*{node}.*CUDA_ERROR_ILLEGAL_ADDRESS")
        cpu = self.compile(self.folder / "tower.onnx", "--recipe", "r.toml", plan="cpu.tplan")
        self.refuse(2, ["--step-by-step: device cpu awaits every instruction anyway"], "trun", cpu, *words[1:], "--step-by-step", "--out", "no")

    def test_the_log_has_all_numbers_in_order(self):
        """As on a CPU; also the last update's numbers, those before an evaluation, and those at an end by --max-time."""
        lines = {}
        for target in ("cpu", "cuda:sm_90"):
            device = target.split(":")[0]
            words = self.prepare(target=target)
            held = self.save("e.safetensors", **models.mlp_data(16))
            self.succeed("trun", *words, "--steps", 9, "--eval-data", held, "--eval-every", 4, "--checkpoint-every", 3, "--out", device,
                         "--device", device, env=stand_in(mode="checked", seed=2))
            # Lines of evaluations and checkpoints have their right places between the lines of updates.
            all_lines = [json.loads(line) for line in (self.folder / device / "metrics.jsonl").read_text().splitlines()]
            lines[device] = [(next(key for key in ("loss", "eval_loss", "checkpoint_bytes", "end") if key in line), line.get("step"))
                             if any(key in line for key in ("loss", "eval_loss")) else None for line in all_lines], all_lines
        numbers = [[line for line in lines[device][1] if "loss" in line] for device in ("cpu", "cuda")]
        self.assertEqual([line["step"] for line in numbers[1]], list(range(1, 10)))
        for exact, card in zip(*numbers, strict=True):
            self.assertEqual(exact.keys(), card.keys())
            for key in ("loss", "grad_norm", "lr"):
                self.assertLessEqual(abs(card[key] - exact[key]), 1e-5 * abs(exact[key]), key)
            self.assertGreater(card["seconds"], 0)
        self.assertEqual([one for one in lines["cuda"][0] if one], [one for one in lines["cpu"][0] if one])

    def test_a_loss_that_is_not_finite(self):
        """It ends the run before that update, whatever was submitted: the state is that after the previous update."""
        data = models.mlp_data(80)
        data["y"][8 * 5 + 3] = np.nan  # the sixth update
        words = self.prepare(**data)
        self.succeed("trun", *words, "--steps", 5, "--out", "whole", env=stand_in(mode="fast"))
        for seed in SEEDS:
            self.refuse(4, ["step 6: the loss is nan", "y.*sample 43", "step-5 holds the weights before it"], "trun", *words, "--steps", 10,
                        "--out", f"run{seed}", env=stand_in(mode="checked", seed=seed))
            self.assertEqual([line["step"] for line in metrics(self.folder / f"run{seed}")[0]], [1, 2, 3, 4, 5])
            state = [(self.folder / run / "checkpoints/step-5/state.safetensors").read_bytes() for run in ("whole", f"run{seed}")]
            self.assertEqual(*state)

    def test_a_norm_that_is_not_finite(self):
        """The host learns the norm when the next update is already submitted; the run still ends, as on a CPU, at the update with
        this norm."""
        data = models.mlp_data(80)
        data["y"][8 * 5 + 3] = 1e19  # a finite loss; the squares of its gradients overflow
        found = {}
        for target in ("cpu", "cuda:sm_90"):
            device = target.split(":")[0]
            words = self.prepare(target=target, recipe=models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 1e-3\n', **data)
            result = self.refuse(4, ["step 6: the gradient's norm is inf"], "trun", *words, "--steps", 10, "--checkpoint-every", 4,
                                 "--device", device, "--out", device, env=stand_in(mode="checked"))
            found[device] = re.search(r"step 6: [^;]*; [^;]*;", result.err)[0].replace(f"{device}/", ""), \
                checkpoints(self.folder / device), [line["step"] for line in metrics(self.folder / device)[0]]
        self.assertEqual(found["cuda"], found["cpu"])
        self.assertEqual(found["cpu"][1:], ([4], [1, 2, 3, 4, 5]))

    def test_checkpoints_beside_updates(self):
        """In every order they are byte for byte those of a run that waits; updates are submitted while copies are under way."""
        ema = "[train]\nema = { decay = 0.9 }\n"
        for name, text in [("plain", ""), ("clipped", "[train]\nclip_norm = 0.1\n"), ("accumulated", "[train]\naccumulate = 2\n"),
                           ("averages of the host", ema)]:
            with self.subTest(name):
                words = self.prepare(text, width=300, model=self.tower() if name == "clipped" else None)
                files = []
                for staging, settings in [("0", {}), ("4000", {})] + [("all", {"seed": seed}) for seed in SEEDS]:
                    run = self.folder / f"{name}-{staging}-{settings.get('seed', 0)}"
                    self.succeed("trun", *words, "--steps", 6, "--checkpoint-every", 1, "--set", "checkpoint.keep=0", "--out", run, "--set",
                                 f"checkpoint.staging_bytes={staging}", env=stand_in(mode="checked", **settings))
                    self.assertEqual(checkpoints(run), list(range(1, 7)))
                    files.append([(run / f"checkpoints/step-{step}/state.safetensors").read_bytes() for step in range(1, 7)])
                self.assertEqual(len(set(files[0])), 6, "no step changes the state")
                for other in files[1:]:
                    self.assertTrue(files[0] == other, "a checkpoint holds state of another update")
        words = self.prepare(width=300)
        state = sum(array.nbytes for array in self.weights("plain-0-0").values())
        launches = self.queued(words, "--checkpoint-every", 2, "--set", "checkpoint.staging_bytes=all", out="beside")
        self.assertEqual([one["copied_bytes"] > state / 2 for one in launches if one["graph"] == 0], [False, False] + 5 * [True, False],
                         "the update after a checkpoint was not submitted while the state was copied")

    def test_a_state_that_is_not_finite_is_not_kept(self):
        """If the copy made beside training holds a NaN, writing it, some updates later, finds that."""
        data = models.mlp_data(40)
        words = self.prepare(recipe=models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 1e38\n', x=data["x"], y=100 * data["y"])
        for staging in ("0", "all"):
            self.refuse(4, ["step 2: the loss is|the state after update 1 is not finite"], "trun", *words, "--steps", 6, "--checkpoint-every", 1, "--out", f"run-{staging}", "--set",
                        f"checkpoint.staging_bytes={staging}", env=stand_in(mode="checked"))
            self.assertEqual(checkpoints(self.folder / f"run-{staging}"), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
