"""Schedules that PyTorch has: each step's loss and rate, evaluations and trained weights against PyTorch's numbers (training/make.py);
resumes, ranks, and what is refused."""
import json
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

from common import EndToEnd, metrics

FILES = Path(__file__).resolve().parent / "training"
EXPECTED = json.loads((FILES / "expected.json").read_text())
TRAIN, EVAL = FILES / "train.safetensors", FILES / "eval.safetensors"
CLASSES = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
SGD = '[optimizer]\nkind = "sgd"\nmomentum = 0.9\nlr = 0.05\n'
HEAD = '[[optimizer.group]]\nmatch = ["classes.*"]\nlr_scale = 0.5\n'
PLATEAU = '[schedule]\nkind = "plateau"\nfactor = 0.3\npatience = 1\nthreshold = 1e-2\ncooldown = 1\nmin_lr = 1e-3\n'
VALUE = '[loss]\nkind = "mse"\nof = "value"\ntarget = "y"\n'
RECIPES = {
    "plateau": CLASSES + SGD.replace("0.05", "0.1") + HEAD + PLATEAU,
    "restarts": VALUE + SGD + HEAD + '[schedule]\nkind = "cosine_warm_restarts"\nt_0 = 3\nt_mult = 2\neta_min = 1e-3\n'}


class Training(EndToEnd):
    def plan(self, name, *arguments, recipe=None, plan=None):
        recipe = self.write(f"{name}.toml", recipe or RECIPES[name])
        return self.compile(FILES / "model.onnx", "--recipe", recipe, *arguments, plan=plan or f"{name}.tplan")

    def follows(self, name, plan, *arguments, steps=None, every=5, out="run", case=None):
        """The run's numbers are PyTorch's, and so are the weights after it."""
        expected = EXPECTED[case or name]
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", every, *arguments, steps=steps or len(expected["loss"]), out=out)
        self.agrees(name, run, case)
        return run

    def agrees(self, name, run, case=None):
        expected = EXPECTED[case or name]
        lines, evaluations = metrics(run)
        np.testing.assert_allclose([v["loss"] for v in lines], expected["loss"], rtol=2e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose([v["lr"] for v in lines], expected["lr"], rtol=1e-12, err_msg=name)
        if expected["eval_loss"]:
            np.testing.assert_allclose([v["eval_loss"] for v in evaluations], expected["eval_loss"], rtol=2e-5, atol=1e-6, err_msg=name)
        after = safetensors.numpy.load_file(FILES / "after.safetensors")
        for key, value in self.weights(run, f"{name}.safetensors").items():
            np.testing.assert_allclose(value, after[f"{case or name}/{key}"], rtol=1e-4, atol=2e-6, err_msg=f"{name}: {key}")

    def state(self, run):
        newest = max((run / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))
        return (newest / "state.safetensors").read_bytes(), json.loads((newest / "manifest.json").read_text())["position"]


class Schedules(Training):
    def test_restarts(self):
        self.follows("restarts", self.plan("restarts"))

    def test_restarts_by_set(self):
        """The rate comes with each step: a plan that was compiled without the schedule runs it."""
        plan = self.plan("constant", recipe=VALUE + SGD + HEAD)
        self.follows("restarts", plan, "--set", "schedule.kind=cosine_warm_restarts", "--set", "schedule.t_0=3", "--set", "schedule.t_mult=2",
                     "--set", "schedule.eta_min=1e-3")
        self.refuse(1, ["cosine_warm_restarts", "schedule.t_0"], "trun", plan, "--data", TRAIN, "--set", "schedule.kind=cosine_warm_restarts")

    def test_plateau(self):
        run = self.follows("plateau", self.plan("plateau"), every=4)
        log = (run / "log.txt").read_text()
        self.assertIn("step 44: eval_loss is no better than 0.2707", log)
        self.assertIn("the learning rate falls from 0.1 to 0.03", log)
        self.assertIn("from 0.0027 to 0.001", log)

    def test_plateau_by_set(self):
        settings = ["schedule={kind = 'plateau', factor = 0.3, patience = 1, threshold = 1e-2, cooldown = 1, min_lr = 1e-3}"]
        plan = self.plan("constant", recipe=CLASSES + SGD.replace("0.05", "0.1") + HEAD)
        self.follows("plateau", plan, *[word for s in settings for word in ("--set", s)], every=4)

    def test_plateau_goes_on_bit_by_bit(self):
        """Wherever it is interrupted: between evaluations, at one, after a reduction; in its folder and in another."""
        plan = self.plan("plateau")
        whole = self.follows("plateau", plan, every=4)
        state, position = self.state(whole)
        self.assertGreaterEqual(position["plateau"]["reductions"], 4)
        for stop in (42, 44, 46, 120 - 4):
            out = f"part-{stop}"
            self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 4, steps=stop, out=out)
            self.succeed("trun", plan, "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--resume", out, "--steps", 120, "--out", f"{out}-other")
            self.succeed("trun", plan, "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--resume", out, "--steps", 120)
            for folder in (out, f"{out}-other"):
                again, other = self.state(self.folder / folder)
                self.assertEqual(again, state, folder)
                self.assertEqual(other["plateau"], position["plateau"], folder)

    def test_plateau_of_another_metric(self):
        plan = self.plan("accuracy", recipe=RECIPES["plateau"].replace("cooldown = 1\n", "") + '[evaluate]\nbest = "accuracy"\n')
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 4, steps=80)
        lines, evaluations = metrics(run)
        best, waited, rate, rates = None, 0, 0.1, {}
        for line in evaluations:
            value = line["eval_accuracy"]
            if best is None or value > best * 1.01:
                best, waited = value, 0
            else:
                waited += 1
            if waited > 1:
                rate, waited = max(rate * 0.3, 1e-3), 0
            rates[line["step"]] = rate
        self.assertLess(rate, 0.1)
        for line in lines:
            before = [r for step, r in rates.items() if step < line["step"]]
            self.assertAlmostEqual(line["lr"], before[-1] if before else 0.1, 12)

    def test_plateau_over_ranks(self):
        """Every rank has the rate of rank 0: their states stay equal, also after a resume."""
        plan = self.plan("ranks", recipe=RECIPES["plateau"] + '[parallel]\nmode = "ddp"\n')
        words = ("--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--no-shuffle", "--nproc", 2, "--threads", 1)
        self.succeed("trun", plan, *words, "--steps", 100, "--out", "whole")
        self.succeed("trun", plan, *words, "--steps", 62, "--out", "part")
        self.succeed("trun", plan, "--resume", "part", "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--nproc", 2, "--threads", 1, "--steps", 100)
        (state, position), (again, other) = self.state(self.folder / "whole"), self.state(self.folder / "part")
        self.assertEqual(state, again)
        self.assertGreater(position["plateau"]["reductions"], 1)
        self.assertEqual(position["plateau"], other["plateau"])

    def test_plateau_needs_evaluations(self):
        plan = self.plan("plateau")
        self.refuse(2, ["plateau", "there are none", "--eval-every", "schedule.kind=constant"], "trun", plan, "--data", TRAIN)
        self.refuse(2, ["there are none"], "trun", plan, "--data", TRAIN, "--eval-data", EVAL)
        # What the message advises works.
        self.train(plan, TRAIN, "--set", "schedule.kind=constant", out="constant")
        self.train(plan, TRAIN, "--set", "data.eval_split=0.2", "--eval-every", 2, out="split")

    def test_recipes_that_are_refused(self):
        for recipe, pattern in [
                (VALUE + '[schedule]\nkind = "cosine_warm_restarts"\n', "needs schedule.t_0"),
                (VALUE + '[schedule]\nkind = "cosine"\nT_0 = 3\n', "schedule.T_0.*schedule.t_0"),
                (VALUE + '[schedule]\nkind = "cosine"\npatience = 3\n', "schedule.patience does not apply to cosine; it belongs to plateau"),
                (VALUE + '[schedule]\nkind = "plateau"\nfactor = 1.0\n', "schedule.factor"),
                ('[[phase]]\nname = "a"\nloss = { kind = "mse", of = "value", target = "y" }\nparameters = ["trunk.*"]\n[schedule]\nkind = "plateau"\n',
                 r"bad.toml:\d+:\d+: phase 1: schedule.kind \"plateau\" does not go with \[\[phase\]\]")]:
            self.refuse(1, [pattern], "tcc", FILES / "model.onnx", "--recipe", self.write("bad.toml", recipe))


if __name__ == "__main__":
    unittest.main()
