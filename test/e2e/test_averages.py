"""Averaged weights (train.ema): the formula, checkpoints, resume, evaluation and export of either set."""
import json
import signal
import subprocess
import time
import unittest

import numpy as np
import safetensors.numpy

import models
from common import BIN, EndToEnd, checkpoints, metrics

STEPS = 50
RECIPE = models.SQUARES + '[optimizer]\nkind = "adamw"\nlr = 0.01\n'


def ema(decay=0.9, **others):
    words = ", ".join([f"decay = {decay}", *(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in others.items())])
    return f"[train]\nema = {{ {words} }}\n"


class Averages(EndToEnd):
    def plan_of(self, setting, make=models.mlp, accumulate=1, name="plan.tplan"):
        text = RECIPE + setting + ("" if accumulate == 1 else f"accumulate = {accumulate}\n")
        return self.compile(make(self.folder / "m.onnx"), "--recipe", self.write("r.toml", text), plan=name)

    def state(self, run, step):
        return safetensors.numpy.load_file(run / "checkpoints" / f"step-{step}" / "state.safetensors")

    def every_step(self, plan, *arguments, data=None, out="run"):
        data = data or self.save("d.safetensors", **models.mlp_data(40))
        return self.train(plan, data, "--checkpoint-every", 1, "--set", "checkpoint.keep=0", "--no-release", *arguments, steps=STEPS,
                          out=out)

    def follows(self, run, initial, decays):
        """Each checkpoint's averages are torch's `decay * ema + (1 - decay) * weight` of the checkpoint before, to 1e-6."""
        average = {name: initial[name].astype(np.float64) for name in initial}
        for step in range(1, STEPS + 1):
            state, d = self.state(run, step), decays(step)
            for name in average:
                average[name] = d * average[name] + (1 - d) * state[name].astype(np.float64)
                np.testing.assert_allclose(state[name + "/ema"], average[name], rtol=1e-6, atol=1e-6, err_msg=f"{name}, update {step}")
        moved = max(np.abs(state[name] - average[name]).max() for name in average)
        self.assertGreater(moved, 1e-3, "the weights did not move: the averages could be anything")

    def initial(self):
        import onnx
        from onnx import numpy_helper
        return {t.name: numpy_helper.to_array(t) for t in onnx.load(self.folder / "m.onnx").graph.initializer}

    def test_formula(self):
        for on in ("host", "device"):
            for accumulate in (1, 2):
                with self.subTest(on=on, accumulate=accumulate):
                    plan = self.plan_of(ema(on=on), accumulate=accumulate)
                    self.follows(self.every_step(plan, out=f"{on}{accumulate}"), self.initial(), lambda step: 0.9)

    def test_every_and_warmup(self):
        def decays(step):
            n = step // 3
            return min(0.95, (1 + n) / (5 + n)) if step % 3 == 0 else 1
        for on in ("host", "device"):
            with self.subTest(on=on):
                plan = self.plan_of(ema(0.95, every=3, warmup=5, on=on))
                self.follows(self.every_step(plan, out=on), self.initial(), decays)

    def test_host_and_device_agree_with_any_threads(self):
        """Both round three times; the number of threads does not change the result."""
        states = []
        for on in ("host", "device"):
            plan = self.plan_of(ema(0.97, warmup=10, on=on))
            for threads in (1, 2):
                run = self.every_step(plan, "--threads", threads, out=f"{on}{threads}")
                states.append({name: bits.tobytes() for name, bits in self.state(run, STEPS).items()})
        for other in states[1:]:
            self.assertTrue(states[0] == other, "bits differ")

    def test_settings_at_run_time(self):
        plan = self.plan_of("")
        run = self.every_step(plan, "--set", "train.ema={decay=0.8, every=2}")
        self.follows(run, self.initial(), lambda step: 0.8 if step % 2 == 0 else 1)
        data = self.folder / "d.safetensors"
        self.refuse(2, [r"train\.ema", "decay"], "trun", plan, "--data", data, "--set", "train.ema.every=2", "--out", "x")
        self.refuse(2, ["tcc --set train.ema.on=device"], "trun", plan, "--data", data, "--set", "train.ema.on=device", "--out", "x")

    def test_after_a_kill(self):
        """kill -9 and resume: weights and averages have the bits of an uninterrupted run."""
        data = self.save("d.safetensors", **models.mlp_data(40))
        for on in ("host", "device"):
            plan = self.plan_of(ema(0.99, warmup=3, every=2, on=on), accumulate=2)
            words = [BIN / "trun", plan, "--data", data, "--seed", 3, "--checkpoint-every", 7, "--no-release", "--out"]
            run, whole = self.folder / f"{on}-killed", self.folder / f"{on}-whole"
            with open(self.folder / "output", "wb") as output:
                process = subprocess.Popen([str(w) for w in [*words, run, "--steps", 10**8]], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=output)
            self.addCleanup(process.kill)
            while max(checkpoints(run), default=0) < 14:
                self.assertIsNone(process.poll(), (self.folder / "output").read_text())
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            last = checkpoints(run)[-1]
            steps = last + 9
            self.succeed("trun", plan, "--data", data, "--steps", steps, "--no-release", "--resume", run)
            self.succeed("trun", plan, "--data", data, "--seed", 3, "--steps", steps, "--no-release", "--out", whole)
            a, b = self.state(run, steps), self.state(whole, steps)
            self.assertEqual(a.keys(), b.keys())
            self.assertIn("w1/ema", a)
            for name in a:
                self.assertEqual(a[name].tobytes(), b[name].tobytes(), f"{on}: {name}")

    def test_resume_without_averages(self):
        data = self.save("d.safetensors", **models.mlp_data(40))
        plan = self.plan_of("")
        run = self.train(plan, data, steps=3)
        self.refuse(1, ["averaged", "train.ema"], "trun", "export", run, "-o", "w.safetensors", "--ema")
        result = self.succeed("trun", plan, "--data", data, "--steps", 4, "--resume", run, "--set", "train.ema.decay=0.5")
        self.assertIn("start as those of update 3", result.err)
        before, after = self.state(run, 3), self.state(run, 4)
        np.testing.assert_allclose(after["w1/ema"], 0.5 * before["w1"] + 0.5 * after["w1"], rtol=1e-6, atol=1e-7)
        # Later resumes keep the setting.
        self.succeed("trun", plan, "--data", data, "--steps", 5, "--resume", run)
        last = self.state(run, 5)
        np.testing.assert_allclose(last["w1/ema"], 0.5 * after["w1/ema"] + 0.5 * last["w1"], rtol=1e-6, atol=1e-7)

    def test_evaluation_and_export_of_either_set(self):
        """With running statistics: the averaged set has the statistics of the weights."""
        data = self.save("d.safetensors", **models.mlp_data(40))
        for on in ("host", "device"):
            with self.subTest(on=on):
                plan = self.plan_of(ema(0.9, on=on), make=models.normalised)
                run = self.train(plan, data, "--eval-data", data, "--eval-every", 10, steps=20, out=f"run-{on}")
                lines = metrics(run)[1]
                self.assertEqual([v["step"] for v in lines], [10, 20])
                for flags, key, file in ((["--ema"], "ema_eval_loss", "a.safetensors"), ([], "eval_loss", "w.safetensors")):
                    alone = json.loads(self.succeed("trun", "eval", plan, "--data", data, "--from", run, *flags).out)["eval_loss"]
                    self.assertEqual(alone, lines[-1][key], key)
                    self.succeed("trun", "export", run, "-o", file, *flags)
                    exported = json.loads(self.succeed("trun", "eval", plan, "--data", data, "--from", file).out)["eval_loss"]
                    self.assertEqual(exported, alone, key)
                self.assertNotEqual(lines[-1]["eval_loss"], lines[-1]["ema_eval_loss"])
                averages, weights, state = (safetensors.numpy.load_file(self.folder / "a.safetensors"),
                                            safetensors.numpy.load_file(self.folder / "w.safetensors"), self.state(run, 20))
                for name in ("mean", "variance"):
                    np.testing.assert_array_equal(averages[name], weights[name])
                    self.assertNotIn(name + "/ema", state)
                for name in ("w1", "w2", "scale", "shift"):
                    np.testing.assert_array_equal(averages[name], state[name + "/ema"])
                # An evaluation in between changes nothing of the training.
                plain = self.train(plan, data, steps=20, out=f"plain-{on}")
                for name, value in self.state(plain, 20).items():
                    self.assertEqual(value.tobytes(), state[name].tobytes(), name)

    def test_the_report_counts_their_memory(self):
        none, host, device = (self.report(self.plan_of(text, name=name))["memory"] for text, name in
                              (("", "none.tplan"), (ema(), "host.tplan"), (ema(on="device"), "device.tplan")))
        parameters = none["resident"]["parameters"]
        self.assertEqual((none["host"]["averages"], host["host"]["averages"], device["host"]["averages"]), (0, parameters, 0))
        self.assertEqual((none["resident"]["averages"], host["resident"]["averages"], device["resident"]["averages"]),
                         (0, 0, parameters))

    def test_wrong_words(self):
        model = models.mlp(self.folder / "m.onnx")
        for text, pattern in (("[train]\nema = { every = 2 }\n", r"r\.toml:\d+:\d+: train\.ema\.every needs train\.ema\.decay"),
                              ("[train]\nema = { decay = 1.5 }\n", r"train\.ema\.decay: 1\.5 is out of range"),
                              ("[train]\nema = { decay = 0.9, on = \"gpu\" }\n", r"train\.ema\.on.*host, device"),
                              ("[train]\nema = 0.9\n", r"train\.ema: expected a table")):
            self.refuse(1, [pattern], "tcc", model, "-o", "p.tplan", "--recipe", self.write("r.toml", RECIPE + text))
        plan = self.plan_of(ema())
        data = self.save("d.safetensors", **models.mlp_data(16))
        self.refuse(2, ["--ema", "--from RUN"], "trun", "eval", plan, "--data", data, "--ema")


if __name__ == "__main__":
    unittest.main(verbosity=2)
