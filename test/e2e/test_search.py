"""trun lr-find and trun sweep try settings that need no new plan."""
import json
import signal
import subprocess
import time
import unittest

import models
from common import BIN, EndToEnd, checkpoints, metrics

SGD = models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 0.05\n'


class Search(EndToEnd):
    def prepare(self):
        self.plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe", self.write("r.toml", SGD))
        self.data = self.save("d.safetensors", **models.mlp_data(64))

    def test_lr_find(self):
        """It tries the rates asked for, with the losses of a run under that schedule, and both suggested rates train."""
        self.prepare()
        words = (self.plan, "--data", self.data, "--start", 1e-4, "--end", 100, "--steps", 60, "--json")
        found = json.loads(self.succeed("trun", "lr-find", *words).out)
        points = found["points"]
        self.assertTrue(found["diverged"], "a rate of 100 must diverge")
        for i, point in enumerate(points):
            self.assertAlmostEqual(point["lr"] / (1e-4 * (1e6 ** (i / 59))), 1, 5)
        self.succeed("trun", self.plan, "--data", self.data, "--steps", len(points), "--out", "same", "--set", "optimizer.lr=1e-4", "--set",
                     "schedule.kind=exponential", "--set", f"schedule.gamma={1e6 ** (1 / 59)}")
        for line, point in zip(metrics(self.folder / "same")[0], points):
            self.assertAlmostEqual(line["loss"], point["loss"], 5)
        self.assertLess(found["steepest_lr"], points[-1]["lr"])
        for rate in (found["steepest_lr"], found["least_lr_tenth"]):
            self.succeed("trun", self.plan, "--data", self.data, "--steps", 30, "--out", f"r{rate}", "--set", f"optimizer.lr={rate}")
            losses = [line["loss"] for line in metrics(self.folder / f"r{rate}")[0]]
            self.assertLess(sum(losses[-4:]), sum(losses[:4]))
        self.assertEqual(sorted(p.name for p in self.folder.glob("*.run*")), [])
        text = self.succeed("trun", "lr-find", *words[:-1]).out
        self.assertRegex(text, r"steepest: optimizer\.lr = ")
        self.refuse(2, ["--start"], "trun", "lr-find", self.plan, "--data", self.data, "--start", 1, "--end", 0.1)

    def test_sweep(self):
        """It lists every combination, the best first; killed and started again it gives the uninterrupted sweep's result."""
        self.prepare()
        held = self.save("e.safetensors", **models.mlp_data(24))
        words = ("sweep", self.plan, "--data", self.data, "--eval-data", held, "--eval-every", 5, "--no-release", "--set",
                 "optimizer.lr=0.01,1e9,0.1", "--set", "schedule.kind=constant,cosine", "--seeds", 2)
        done = self.succeed("trun", *words, "--steps", 20, "--out", "whole")
        summary = json.loads((self.folder / "whole" / "summary.json").read_text())
        self.assertEqual(len(summary), 12)
        self.assertEqual({(*row["settings"], row["seed"]) for row in summary},
                         {(f"optimizer.lr={lr}", f"schedule.kind={kind}", seed) for lr in ("0.01", "1e9", "0.1")
                          for kind in ("constant", "cosine") for seed in (0, 1)})
        good = [row for row in summary if not row["diverged"]]
        self.assertEqual([row["diverged"] for row in summary], [False] * len(good) + [True] * (12 - len(good)))
        self.assertEqual(len(good), 8)
        self.assertEqual([row["best"] for row in good], sorted(row["best"] for row in good))
        for row in good:
            run = self.folder / row["run"]
            values = [v["eval_loss"] for v in metrics(run)[1]]
            self.assertEqual((row["best"], row["last"]), (min(values), values[-1]))
        self.assertIn("diverged", done.out)
        self.assertNotIn("all runs", done.out)
        alone = next(row for row in good if row["settings"] == ["optimizer.lr=0.1", "schedule.kind=cosine"] and row["seed"] == 1)
        self.succeed("trun", self.plan, "--data", self.data, "--steps", 20, "--seed", 1, "--set", "optimizer.lr=0.1", "--set",
                     "schedule.kind=cosine", "--no-release", "--out", "alone")
        shard = "checkpoints/step-20/state.safetensors"
        self.assertEqual((self.folder / "alone" / shard).read_bytes(), (self.folder / alone["run"] / shard).read_bytes())

        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen([str(w) for w in (BIN / "trun", *words, "--steps", 20, "--out", "killed")], cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(process.kill)
        while not checkpoints(self.folder / "killed" / "2"):
            self.assertIsNone(process.poll(), (self.folder / "output").read_text())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        self.succeed("trun", *words, "--steps", 20, "--out", "killed")
        again = json.loads((self.folder / "killed" / "summary.json").read_text())
        self.assertEqual([(row["settings"], row["seed"], row["best"]) for row in again],
                         [(row["settings"], row["seed"], row["best"]) for row in summary])

    def test_what_all_runs_have_is_said_once(self):
        self.prepare()
        words = ("trun", "sweep", self.plan, "--data", self.data, "--steps", 3, "--no-release", "--seed", 5, "--out", "s", "--set",
                 "optimizer.lr=0.01,0.1", "--set", "schedule.kind=cosine")
        done = self.succeed(*words)
        lines = done.out.splitlines()
        self.assertEqual(lines[0], "all runs: schedule.kind=cosine, seed 5")
        self.assertEqual(lines[1].split(), ["best", "loss", "last", "run", "settings"])
        self.assertEqual(sorted(line.split()[2:] for line in lines[2:]), [["s/1", "optimizer.lr=0.01"], ["s/2", "optimizer.lr=0.1"]])
        narrow = self.succeed(*words, env={"COLUMNS": "60"}).out.splitlines()
        self.assertEqual(narrow[1:], lines[1:], "a row of a table is broken")
        self.assertNotIn("cosine", "".join(lines[1:]))

    def test_wrong_words(self):
        self.prepare()
        self.refuse(2, ["--out"], "trun", "sweep", self.plan, "--data", self.data)
        self.refuse(2, [r"optimizer\.kind.*recompile"], "trun", "sweep", self.plan, "--data", self.data, "--out", "s", "--set",
                    "optimizer.kind=sgd,adam")
        self.assertFalse((self.folder / "s").exists(), "a run began before all combinations were checked")


if __name__ == "__main__":
    unittest.main(verbosity=2)
