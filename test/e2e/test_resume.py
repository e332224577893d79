"""A stopped run goes on where it stopped, with the losses and bits of an uninterrupted one."""
import json
import os
import signal
import subprocess
import time
import unittest

import models
from common import BIN, EndToEnd, case, checkpoints, metrics


class Resume(EndToEnd):
    def bits(self, run):
        self.weights(run, f"{run.name}.safetensors")
        return (self.folder / f"{run.name}.safetensors").read_bytes()

    def go_on(self, plan, data, run, steps):
        self.succeed("trun", plan, "--data", data, "--steps", steps, "--resume", run)

    def test_in_two_parts(self):
        """Shuffling, accumulation, a schedule and the end of an epoch in the run: the resumed run must take up all of it again."""
        model, recipe, data, _ = case("in-graph-loss")
        plan = self.compile(model, "--recipe", recipe)
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.succeed("trun", plan, "--data", data, "--steps", 7, "--seed", 5, "--out", whole)
        self.succeed("trun", plan, "--data", data, "--steps", 3, "--seed", 5, "--out", parts)
        self.go_on(plan, data, parts, 7)
        self.assertEqual([u["loss"] for u in metrics(whole)[0]], [u["loss"] for u in metrics(parts)[0]])
        self.assertTrue(self.bits(whole) == self.bits(parts), "weights differ after a resume")

    def test_settings_of_every_kind(self):
        """Lists, words, flags, tables and numbers are in the run's record, and a resume finds that nothing has changed."""
        words = ['schedule.kind="multi_step"', "schedule.milestones=[2, 5]", "optimizer.betas=[0.8, 0.95]", "schedule.per=step",
                 "train.ema={decay=0.9, every=2}", "data.last=pad", "checkpoint.keep_best=false", "data.map={x=\"x\"}"]
        plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe", self.write("r.toml", models.SQUARES))
        data = self.save("d.safetensors", **models.mlp_data(32))
        settings = [word for setting in words for word in ("--set", setting)]
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.succeed("trun", plan, "--data", data, "--steps", 7, "--out", whole, *settings)
        self.succeed("trun", plan, "--data", data, "--steps", 3, "--out", parts, *settings)
        again = self.succeed("trun", plan, "--data", data, "--steps", 7, "--resume", parts)
        self.assertNotIn("differ", again.err)
        self.assertEqual([u["loss"] for u in metrics(whole)[0]], [u["loss"] for u in metrics(parts)[0]])
        changed = self.succeed("trun", plan, "--data", data, "--steps", 9, "--resume", parts, "--set", "schedule.milestones=[2, 6]")
        self.assertIn("schedule.milestones [2.0,5.0] → [2.0,6.0]", changed.err)

    def test_the_seed_decides_the_order(self):
        model, recipe, data, _ = case("mlp")
        plan = self.compile(model, "--recipe", recipe)
        losses = []
        for out, seed in (("a", 1), ("b", 1), ("c", 2)):
            self.succeed("trun", plan, "--data", data, "--steps", 4, "--seed", seed, "--out", out)
            losses.append([u["loss"] for u in metrics(self.folder / out)[0]])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_after_a_signal(self):
        plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe",
                            self.write("r.toml", models.SQUARES + models.SGD))
        data = self.save("d.safetensors", **models.mlp_data(32))
        run, endless = self.folder / "run", 10**9
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen([str(BIN / "trun"), str(plan), "--data", str(data), "--steps", str(endless), "--out",
                                        str(run)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(process.kill)
        while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
            self.assertIsNone(process.poll(), (self.folder / "output").read_text())
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0, (self.folder / "output").read_text())
        done = metrics(run)[0][-1]["step"]
        self.assertTrue((run / "checkpoints" / f"step-{done}").is_dir(), os.listdir(run / "checkpoints"))
        self.go_on(plan, data, run, done + 2)
        self.assertEqual([u["step"] for u in metrics(run)[0]][-3:], [done, done + 1, done + 2])

    def test_after_a_crash(self):
        """Lines may stay in memory for a moment; those before a checkpoint are written with it."""
        plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe",
                            self.write("r.toml", models.SQUARES + models.SGD))
        data = self.save("d.safetensors", **models.mlp_data(32))
        run = self.folder / "run"
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen([str(BIN / "trun"), str(plan), "--data", str(data), "--steps", str(10**9), "--out",
                                        str(run), "--checkpoint-every", "70"], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output)
        self.addCleanup(process.kill)
        while max(checkpoints(run), default=0) < 140:
            self.assertIsNone(process.poll(), (self.folder / "output").read_text())
            time.sleep(0.001)
        process.kill()
        process.wait(60)
        last = max(int(name.name.split("-")[1]) for name in (run / "checkpoints").iterdir() if name.name[-1].isdigit())
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().split("\n")[:-1] if '"loss"' in line]
        self.assertGreaterEqual(len(steps), last)
        self.assertEqual(steps[:last], list(range(1, last + 1)))

    def test_a_damaged_checkpoint_is_refused(self):
        plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe",
                            self.write("r.toml", models.SQUARES + models.SGD))
        data = self.save("d.safetensors", **models.mlp_data(32))
        run = self.train(plan, data, steps=2)
        shard = next((run / "checkpoints" / "step-2").glob("*.safetensors"))
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(bytes(content))
        self.refuse(1, ["step-2"], "trun", plan, "--data", data, "--steps", 4, "--resume", run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
