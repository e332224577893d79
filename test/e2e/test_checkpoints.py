"""Checkpoints that are written while training goes on, and resuming without other arguments (`trun --resume RUN`)."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

import safetensors.numpy

import models
from common import BIN, EndToEnd, checkpoints, metrics

RECIPE = models.SQUARES + '[optimizer]\nkind = "adamw"\nlr = 0.01\n'
OPTIMIZERS = ["sgd", "adam", "adamw", "adagrad", "rmsprop", "lion", "lamb", "muon"]
EMA = "[train]\nema = { decay = 0.9 }\n"


class Checkpoints(EndToEnd):
    def prepare(self, text="", width=16):
        self.plan = self.compile(models.mlp(self.folder / "m.onnx", width=width), "--recipe", self.write("r.toml", RECIPE + text))
        self.data = self.save("d.safetensors", **models.mlp_data(40))
        return [self.plan, "--data", self.data, "--seed", 3, "--no-release"]

    def shard(self, run, step):
        return (run / "checkpoints" / f"step-{step}" / "state.safetensors").read_bytes()

    def test_staging_changes_no_byte(self):
        """With memory for none, part or all of the state, which includes averages on the host."""
        words = self.prepare(EMA)
        runs = []
        for staging in ("0", "700", "all"):
            run = self.folder / staging
            self.succeed("trun", *words, "--out", run, "--steps", 20, "--checkpoint-every", 1, "--set", "checkpoint.keep=0",
                         "--set", f"checkpoint.staging_bytes={staging}")
            self.assertEqual(checkpoints(run), list(range(1, 21)))
            log = (run / "log.txt").read_text()
            self.assertEqual(len(re.findall(r"checkpoint of update \d+: .*B, training waited [\d.]+ s, durable after [\d.]+ s", log)), 20)
            runs.append([self.shard(run, step) for step in range(1, 21)])
        self.assertTrue(runs[0] == runs[1] == runs[2], "a checkpoint holds state of another update")

    def test_copies_beside_training_are_the_state_of_their_step(self):
        """For each optimizer, accumulation, averages on host and device, phases and ranks: the bytes of a run that waits for its checkpoints."""
        phases = '[[phase]]\nname = "a"\nloss = "loss"\nparameters = ["w1", "b1"]\noptimizer = { kind = "adam", lr = 1e-2 }\n' \
                 '[[phase]]\nname = "b"\nloss = "loss"\nparameters = ["w2", "b2"]\noptimizer = { kind = "sgd", momentum = 0.9, lr = 1e-2 }\nevery = 2\n'
        kinds = {kind: f'[optimizer]\nkind = "{kind}"\nlr = 0.01\n' for kind in OPTIMIZERS}
        adam = kinds["adam"]
        recipes = [*kinds.items(), ("accumulated", adam + "[train]\naccumulate = 2\n"),
                   ("clipped, averages of the device", adam + '[train]\nclip_norm = 0.1\nema = { decay = 0.9, on = "device" }\n'),
                   ("averages of the host", adam + EMA), ("phases", phases), ("ranks", adam + '[parallel]\nmode = "ddp"\n')]
        self.save("d.safetensors", **models.mlp_data(80))
        models.mlp(self.folder / "m.onnx", width=3000)
        models.mlp(self.folder / "phases.onnx", width=3000, loss=True)
        for name, text in recipes:
            with self.subTest(name):
                of_phases = name == "phases"
                plan = self.compile(self.folder / ("phases.onnx" if of_phases else "m.onnx"), "--recipe",
                                    self.write("r.toml", text if of_phases else models.SQUARES + text))
                files = []
                for staging in ("0", "all"):
                    run = self.folder / f"{name}-{staging}"
                    self.succeed("trun", plan, "--data", "d.safetensors", "--seed", 3, "--no-release", "--out", run, "--steps", 6,
                                 "--checkpoint-every", 1, "--set", "checkpoint.keep=0", "--set", f"checkpoint.staging_bytes={staging}",
                                 *(["--nproc", 2] if name == "ranks" else []))
                    files.append([self.shard(run, step) for step in range(1, 7)])
                self.assertEqual(len(set(files[0])), 6, "no step changes the state")
                self.assertTrue(files[0] == files[1], "a checkpoint holds state of another update")

    def test_killed_while_it_writes(self):
        """kill -9 at many moments: the last checkpoint is whole, and the run goes on to the same bits."""
        words = self.prepare(EMA, width=3000)
        whole, more = self.folder / "whole", ["--set", "checkpoint.staging_bytes=all", "--checkpoint-every", 2]
        for attempt in range(4):
            run = self.folder / f"run{attempt}"
            with open(self.folder / "output", "wb") as output:
                process = subprocess.Popen([str(w) for w in (BIN / "trun", *words, *more, "--steps", 10**8, "--out", run)],
                                           stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            self.addCleanup(process.kill)
            while max(checkpoints(run), default=0) < 4:
                self.assertIsNone(process.poll(), (self.folder / "output").read_text())
                time.sleep(0.001)
            time.sleep(0.013 * attempt)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            last = checkpoints(run)[-1]
            self.succeed("trun", "--resume", run, "--steps", last + 3)
            shutil.rmtree(whole, ignore_errors=True)
            self.succeed("trun", *words, "--steps", last + 3, "--out", whole)
            self.assertEqual(self.shard(run, last + 3), self.shard(whole, last + 3))
            self.assertFalse([p.name for p in (run / "checkpoints").iterdir() if p.name.endswith(".tmp")])

    def test_a_full_disk(self):
        """Training goes on with one warning; the last checkpoint cannot be written, and the error says so."""
        words = self.prepare(width=20000)

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        for staging in ("0", "all"):
            run = self.folder / f"run-{staging}"
            result = self.refuse(1, ["state.safetensors.*cannot write", "training goes on"], "trun", *words, "--steps", 12,
                                 "--checkpoint-every", 1, "--set", f"checkpoint.staging_bytes={staging}", "--out", run, prepare=limit)
            self.assertEqual(result.err.count("training goes on"), 1, str(result))
            self.assertEqual(metrics(run)[0][-1]["step"], 12)
            self.assertEqual(os.listdir(run / "checkpoints"), [])

    def test_the_report_counts_the_copy(self):
        self.prepare(EMA)
        run = self.train(self.plan, self.data, steps=1)
        state = sum(v.nbytes for v in safetensors.numpy.load(self.shard(run, 1)).values())
        for staging, wanted in (("0", 0), ("700", 700), ("all", state)):
            plan = self.compile(self.folder / "m.onnx", "--recipe", self.folder / "r.toml", "--set",
                                f"checkpoint.staging_bytes={staging}", plan="other.tplan")
            self.assertEqual(self.report(plan)["memory"]["host"]["staging"], wanted)

    def test_resume_alone(self):
        """The run knows its plan, data and options, in whatever folder the command runs; options that are given again take precedence."""
        words = self.prepare()
        held = self.save("e.safetensors", **models.mlp_data(16))
        whole, parts = self.folder / "whole", self.folder / "parts"
        more = ["--eval-data", held.name, "--eval-every", 3, "--checkpoint-every", 4, "--set", "optimizer.lr=0.02"]
        self.succeed("trun", *words, *more, "--steps", 12, "--out", whole)
        self.succeed("trun", *words, *more, "--steps", 5, "--out", parts)
        self.plan.unlink()                # the run has its own
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        done = subprocess.run([BIN / "trun", "--resume", parts, "--steps", "12"], cwd=elsewhere, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"goes on after update 5: .*plan\.tplan --data .*d\.safetensors .*--steps 12 .*--eval-every 3")
        self.assertEqual(self.shard(parts, 12), self.shard(whole, 12))
        strip = lambda lines: [{k: v for k, v in line.items() if not k.endswith("_per_s") and not k.endswith("seconds") and k != "resumed"} for line in lines]  # noqa: E731
        self.assertEqual(strip(metrics(parts)[0]), strip(metrics(whole)[0]))
        self.assertEqual([v["step"] for v in metrics(parts)[1]], [3, 5, 6, 9, 12])
        self.assertFalse((parts / "model.onnx").exists(), "--no-release was an option of the run")
        # The run keeps the new number of steps, so that nothing is left to do.
        self.succeed("trun", "--resume", parts)
        self.assertEqual(metrics(parts)[0][-1]["step"], 12)
        self.succeed("trun", "--resume", parts, "--epochs", 3)
        self.assertEqual(metrics(parts)[0][-1]["step"], 15)
        self.data.unlink()
        self.refuse(1, [r"d\.safetensors"], "trun", "--resume", parts, "--steps", 20)

    def test_external_weights(self):
        """The run's copy of the plan finds the model's weights in the folder that it was compiled in."""
        import onnx
        words = self.prepare(width=3000)
        model = onnx.load(self.folder / "m.onnx")
        onnx.save(model, self.folder / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=1000)
        plan = self.compile(self.folder / "big.onnx", "--recipe", self.folder / "r.toml", plan="big.tplan")
        self.succeed("trun", plan, *words[1:], "--steps", 2, "--out", "run")
        plan.unlink()
        self.succeed("trun", "--resume", "run", "--steps", 4)

    def test_damaged_options(self):
        words = self.prepare()
        run = self.folder / "run"
        self.succeed("trun", *words, "--steps", 2, "--out", run)
        kept = json.loads((run / "run.json").read_text())
        self.assertEqual((kept["data"], kept["steps"], kept["release"]), (str(self.data), 2, False))
        (run / "run.json").write_text((run / "run.json").read_text().replace('"steps": 2', '"steps": 3'))
        self.refuse(1, [r"run\.json"], "trun", "--resume", run)
        (run / "run.json").unlink()       # as an earlier version left it
        self.refuse(2, ["without its options", "--data"], "trun", "--resume", run)
        self.succeed("trun", "--resume", run, *words[:3], "--steps", 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
