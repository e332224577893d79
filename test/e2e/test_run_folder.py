"""What others do to a run folder: they alter files, overwrite its plan, use it from two processes, start from its weights."""
import json
import re
import signal
import subprocess
import time
import unittest

import numpy as np
import safetensors.numpy

import models
from common import BIN, EndToEnd, metrics


class RunFolder(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "m.onnx")
        self.plan = self.compile(self.model, "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        self.data = self.save("d.safetensors", **models.mlp_data(32))

    def change(self, path, edit):
        content = bytearray(path.read_bytes())
        edit(content)
        path.write_bytes(bytes(content))

    def with_optimizer(self, text, name):
        return self.compile(self.model, "--recipe", self.write(name + ".toml", models.SQUARES + text), plan=name + ".tplan")

    def test_every_reader_checks_the_checkpoint(self):
        run = self.train(self.plan, self.data, steps=2)
        checkpoint = run / "checkpoints" / "step-2"
        batch = self.save("batch.safetensors", **models.mlp_data(8))
        readers = (("trun", self.plan, "--data", self.data, "--steps", 4, "--resume", run),
                   ("trun", self.plan, "--data", self.data, "--init", run, "--out", "other"),
                   ("trun", "export", run, "-o", "w.safetensors"),
                   ("trun", "eval", self.plan, "--data", self.data, "--from", run),
                   ("trun", "predict", self.plan, "--inputs", batch, "--outputs", "o.safetensors", "--from", run))
        for name, old, new in (("manifest.json", b'"seed":0', b'"seed":1'), ("manifest.json", b'"epoch":0', b'"epoch":9'),
                               ("manifest.json", b'"step":2', b'"step":-1'), ("state.safetensors", None, None)):
            good = (checkpoint / name).read_bytes()
            bad = good.replace(old, new, 1) if old else good[:-1] + bytes([good[-1] ^ 1])
            self.assertNotEqual(good, bad)
            (checkpoint / name).write_bytes(bad)
            for reader in readers:
                with self.subTest(name=name, new=new, reader=reader[1]):
                    self.refuse(1, [re.escape(name), "damaged"], *reader)
            (checkpoint / name).write_bytes(good)
        self.assertFalse((self.folder / "other").exists())
        for reader in readers:
            self.succeed(*reader)

    def test_the_plan_may_be_overwritten(self):
        """Overwritten in place, as `cp` does, while the run trains and afterwards."""
        whole = self.train(self.plan, self.data, out="whole", steps=4)
        run = self.train(self.plan, self.data, steps=2)
        kept = run / "plan.tplan"
        self.assertEqual(kept.read_bytes(), self.plan.read_bytes())
        with open(self.plan, "r+b") as file:
            file.write(b"x" * 5000)
        self.succeed("trun", "export", run, "-o", "exported.onnx")
        self.succeed("trun", kept, "--data", self.data, "--steps", 4, "--resume", run)
        self.assertEqual((run / "model.onnx").read_bytes(), (whole / "model.onnx").read_bytes())
        with open(kept, "r+b") as file:
            file.truncate(5000)
        self.refuse(1, ["plan.tplan"], "trun", "export", run, "-o", "m2.onnx")

    def test_another_plan_in_the_run_is_noticed(self):
        run = self.train(self.plan, self.data, steps=2)
        other = self.with_optimizer(models.SGD.replace("0.05", "0.2"), "other")
        (run / "plan.tplan").write_bytes(other.read_bytes())
        self.refuse(1, ["plan.tplan", "bring that plan back"], "trun", "export", run, "-o", "exported.onnx")

    def test_differences_are_named_or_refused(self):
        run = self.train(self.plan, self.data, steps=3)
        go_on = ("--data", self.data, "--resume", run, "--steps")
        adam = self.with_optimizer('[optimizer]\nkind = "adamw"\n', "adam")
        result = self.refuse(1, ["exp_avg", "--init"], "trun", adam, *go_on, 5)
        self.assertIn("plan", result.err)
        self.assertIn("optimizer.lr 0.05 → 0.01",
                      self.succeed("trun", self.plan, *go_on, 4, "--set", "optimizer.lr=0.01").err)
        again = self.succeed("trun", self.plan, *go_on, 5, "--set", "optimizer.lr=0.05").err
        self.assertIn("optimizer.lr 0.01 → 0.05", again)
        self.assertEqual([u["lr"] for u in metrics(run)[0]], [0.05, 0.05, 0.05, 0.01, 0.05])
        # The refusal suggests this command.
        self.succeed("trun", adam, "--data", self.data, "--init", f"{run}@5", "--out", "new", "--steps", 1)
        self.succeed("trun", adam, "--data", self.data, "--resume", "new", "--steps", 2)
        self.refuse(1, ["momentum|exp_avg"], "trun", self.plan, "--data", self.data, "--resume", "new", "--steps", 3)

    def test_another_batch(self):
        """After 12 of 32 samples in batches of 4, batches of 6 can continue behind them, and batches of 8 cannot."""
        def with_batch(batch):
            return self.compile(models.mlp(self.folder / f"b{batch}.onnx", batch=batch), "--recipe", "r.toml",
                                plan=f"b{batch}.tplan")
        run = self.train(with_batch(4), self.data, steps=3)
        go_on = ("--data", self.data, "--no-shuffle", "--resume", run, "--epochs", 1)
        self.refuse(1, ["12 samples", "batches of 8"], "trun", with_batch(8), *go_on)
        result = self.succeed("trun", with_batch(6), *go_on)
        self.assertIn("4 → 6 samples", result.err)
        self.assertEqual([u["epoch"] for u in metrics(run)[0]], [1] * 6, "three batches of 4, three of 6")

    def test_two_processes(self):
        run = self.folder / "run"
        with open(self.folder / "output", "wb") as output:
            first = subprocess.Popen([str(BIN / "trun"), str(self.plan), "--data", str(self.data), "--steps", str(10**9),
                                      "--out", str(run), "--checkpoint-every", "1000", "--set", "checkpoint.keep=0"], stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=output)
        self.addCleanup(first.kill)
        while not (run / "checkpoints" / "step-1000").is_dir():
            self.assertIsNone(first.poll(), (self.folder / "output").read_text())
            time.sleep(0.01)
        again = ("trun", self.plan, "--data", self.data, "--resume", run, "--steps")
        self.refuse(1, [rf"process {first.pid} on \S+ is training"], *again, 10**9)
        self.succeed("trun", "export", f"{run}@1000", "-o", "w.safetensors")
        first.send_signal(signal.SIGKILL)
        first.wait(60)
        last = max(int(name.name.split("-")[1]) for name in (run / "checkpoints").glob("step-*"))
        self.succeed(*again, last + 2)

    def test_checkpoint_that_is_replaced_while_it_is_read(self):
        """While another process writes and removes checkpoints, a reader gets a whole one or a message."""
        run = self.train(self.plan, self.data, "--checkpoint-every", 1, steps=3)
        def swap():
            (run / "checkpoints" / "step-2").rename(run / "checkpoints" / "gone")
            time.sleep(0.002)
            (run / "checkpoints" / "gone").rename(run / "checkpoints" / "step-2")
            time.sleep(0.002)
        reader = None
        for _ in range(12):
            reader = subprocess.Popen([str(BIN / "trun"), "export", f"{run}@2", "-o", str(self.folder / "w.safetensors")],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while reader.poll() is None:
                swap()
            error = reader.stderr.read()
            reader.stderr.close(), reader.stdout.close()
            self.assertIn(reader.returncode, (0, 1), error)
            if reader.returncode:
                self.assertRegex(error, "no checkpoint of step 2|removed it|replaced it|No such file")


class Init(EndToEnd):
    def setUp(self):
        super().setUp()
        self.plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe",
                                 self.write("r.toml", models.SQUARES + models.SGD))
        self.data = self.save("d.safetensors", **models.mlp_data(8))
        self.good = self.weights(self.train(self.plan, self.data, steps=1))

    def start(self, weights, *words):
        return ("trun", self.plan, "--data", self.data, "--steps", 1, "--out", "new", "--init",
                self.save("init.safetensors", **weights), *words)

    def test_strict(self):
        names = sorted(self.good)
        first = names[0]
        missing = {k: v for k, v in self.good.items() if k != first}
        extra = self.good | {"head.extra": np.zeros(3, np.float32)}
        shape = self.good | {first: np.zeros((1, 2, 3), np.float32)}
        dtype = self.good | {first: self.good[first].astype(np.float16)}
        for weights, patterns in ((missing, [f"missing are '{first}'"]), (extra, ["no 'head.extra'"]),
                                  (shape, [first, r"f32\[1x2x3\]"]), (dtype, [first, "f16"])):
            self.refuse(1, [*patterns, "--init-partial"], *self.start(weights))
            self.assertFalse((self.folder / "new").exists())
        self.succeed(*self.start(self.good))

    def test_partial(self):
        first = sorted(self.good)[0]
        weights = {k: v + 1 for k, v in self.good.items() if k != first} | {"head.extra": np.zeros(3, np.float32)}
        result = self.succeed(*self.start(weights, "--init-partial", "--set", "optimizer.lr=0"))
        for part in (f"missing are '{first}'", "'head.extra'", f"{len(self.good) - 1} of the model's values"):
            self.assertIn(part, result.err)
        self.assertIn("'head.extra'", (self.folder / "new" / "log.txt").read_text())
        after = self.weights(self.folder / "new", "after.safetensors")
        for name in self.good:
            if name != first:
                self.assertTrue(np.array_equal(after[name], weights[name]), name)
        self.refuse(2, ["--init"], "trun", self.plan, "--data", self.data, "--init-partial")

    def test_evaluation_names_what_is_missing(self):
        first = sorted(self.good)[0]
        words = ("trun", "eval", self.plan, "--data", self.data, "--from")
        path = self.save("some.safetensors", **{k: v for k, v in self.good.items() if k != first})
        self.assertIn(f"missing are '{first}'", self.succeed(*words, path).err)
        self.assertEqual("", self.succeed(*words, self.save("all.safetensors", **self.good)).err)
        path = self.save("more.safetensors", **self.good, more=np.zeros(3, np.float32))
        self.refuse(1, ["no 'more'"], *words, path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
