"""Mistakes of a newcomer's first hour: options of other trainers, interrupted runs, weights from other files, wrong arguments."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import numpy_helper

import models
from common import BIN, EndToEnd, checkpoints, metrics

RECIPE = models.CLASSES + '[optimizer]\nkind = "sgd"\nlr = 0.1\n'


class FirstRun(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.classifier(self.folder / "m.onnx", 8, 5, 3)
        self.data = self.save("d.safetensors", **models.labelled(40, 3, 5))
        self.plan = self.compile(self.model, "--recipe", self.write("r.toml", RECIPE))

    def test_initial_weights_are_told(self):
        for words in (["eval", self.plan, "--data", self.data], ["predict", self.plan, "--inputs", self.data, "--outputs", "o.safetensors"]):
            told = self.succeed("trun", *words)
            self.assertIn("note: no --from: ", told.err)
            self.assertEqual(len(told.err.splitlines()), 1, str(told))
            self.assertEqual(self.succeed("trun", *words, "--quiet").err, "")
        run = self.train(self.plan, self.data)
        self.assertNotIn("no --from", self.succeed("trun", "eval", self.plan, "--data", self.data, "--from", run).err)

    def test_evaluations_need_data(self):
        words = [self.plan, "--data", self.data, "--steps", 4, "--out", "run"]
        self.refuse(2, ["--eval-every 2", "--eval-data", r"data\.eval_split"], "trun", *words, "--eval-every", 2)
        self.refuse(2, [r"evaluate\.stop", r"evaluate\.stop\.patience=0"], "trun", *words, "--set", "evaluate.stop.patience=2")
        self.assertFalse((self.folder / "run").exists())
        self.succeed("trun", *words, "--set", "evaluate.stop.patience=2", "--set", "evaluate.stop.patience=0", "--eval-every", 0)
        for text, pattern in (('best = "los"', '"los" is none of the metrics'), ('best = "f1"', r"have no eval_f1.*evaluate\.metrics"),
                              ('stop = { metric = "aucc", patience = 2 }', '"aucc" is none')):
            self.refuse(1, [r"r\.toml:\d+:\d+: ", pattern], "tcc", self.model, "-o", "p.tplan", "--recipe",
                        self.write("r.toml", RECIPE + f"[evaluate]\n{text}\n"))

    def test_other_names_of_metrics(self):
        recipe = self.write("o.toml", RECIPE + '[evaluate]\nmetrics = ["acc", "auc"]\nbest = "auc"\n')
        plan = self.compile(self.model, "--recipe", recipe, plan="o.tplan")
        line = json.loads(self.succeed("trun", "eval", plan, "--data", self.data).out)
        self.assertTrue({"eval_accuracy", "eval_auroc"} <= set(line), line)
        run = self.train(plan, self.data, "--eval-data", self.data)
        self.assertIn("eval_auroc", json.loads((run / "checkpoints" / "best.json").read_text()))

    def test_entries_and_batches(self):
        one = self.report(self.compile(self.model, "--recipe", "r.toml", "--entry", "step,train", plan="s.tplan"))
        self.assertEqual(one["entries"], self.report(self.compile(self.model, "--recipe", "r.toml", "--entry", "train", plan="t.tplan"))["entries"])
        words = ["profile", self.plan, "--data", self.data, "--json", "--no-roofline", "--steps", 1, "--warmup", 0]
        self.assertEqual(json.loads(self.succeed("trun", *words, "--entry", "train").out).keys(),
                         json.loads(self.succeed("trun", *words).out).keys())
        models.classifier(self.folder / "n.onnx", "n", 5, 3)
        for model in ("m.onnx", "n.onnx"):                   # a static batch, and a symbol of any name
            self.compile(model, "--recipe", "r.toml", "--batch", 4, plan="b.tplan")
            self.assertIn("4 a batch", self.succeed("trun", "b.tplan", "--data", self.data, "--steps", 1, "--out", model[0]).err)
        self.refuse(1, [r"train\.batch_size", "--batch N"], "tcc", self.model, "-o", "p.tplan", "--set", "train.batch_size=4")
        self.refuse(2, [r"train\.batch_size", "--batch N"], "trun", self.plan, "--data", self.data, "--set", "train.batch_size=4")
        for words in (["--steps", "-1"], ["--steps=-3"], ["--epochs", "-1"], ["--eval-every", "-2"]):
            self.refuse(2, [words[0].split("=")[0]], "trun", self.plan, "--data", self.data, "--out", "x", *words)
        self.refuse(2, ["--steps"], "trun", "lr-find", self.plan, "--data", self.data, "--steps", "-5")

    def test_torch_files(self):
        for suffix in ("pt", "pth", "bin", "ckpt"):
            path = self.write(f"w.{suffix}", b"PK\x03\x04")
            lines = ["import torch, safetensors.torch", r"save_file\(.*torch\.load\(.*w\." + suffix]
            self.refuse(1, lines, "trun", self.plan, "--data", self.data, "--out", "x", "--init", path)
            self.refuse(1, lines, "trun", "eval", self.plan, "--data", self.data, "--from", path)

    def test_confusion(self):
        plan = self.compile(self.model, "--recipe", "r.toml", "--set", 'evaluate.metrics=["f1"]', plan="c.tplan")
        columns = models.labelled(21, 3, 5)
        columns["labels"][[3, 20]] = -100
        data = self.save("c.safetensors", **columns)
        line = json.loads(self.succeed("trun", "eval", plan, "--data", data, "--confusion", "c.csv").out)
        weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.model).graph.initializer}
        best = (columns["x"] @ weights["w"].T + weights["b"]).argmax(1)
        wanted = np.zeros((3, 3), int)
        for target, guess in zip(columns["labels"], best):
            if target >= 0:
                wanted[target, guess] += 1
        rows = [row.split(",") for row in (self.folder / "c.csv").read_text().splitlines()]
        self.assertEqual(rows[0], ["target", "0", "1", "2"])
        np.testing.assert_array_equal(np.array([[int(v) for v in row[1:]] for row in rows[1:]]), wanted)
        self.assertAlmostEqual(line["eval_accuracy"], np.trace(wanted) / wanted.sum())
        self.refuse(2, [r"evaluate\.metrics=\[\"f1\"\]"], "trun", "eval", self.plan, "--data", data, "--confusion", "c.csv")

    def test_quiet(self):
        loud = self.succeed("trun", self.plan, "--data", self.data, "--out", "a", "--steps", 3)
        quiet = self.succeed("trun", self.plan, "--data", self.data, "--out", "b", "--steps", 3, "--quiet")
        self.assertIn("step 3/3", loud.err)
        self.assertEqual((quiet.out, quiet.err), ("", ""))
        self.assertIn("step 3/3", (self.folder / "b" / "log.txt").read_text())

    def test_widths(self):
        for words in (["tcc", "report", self.plan], ["tcc", "--help"], ["trun", "--help"], ["trun", "report", self.train(self.plan, self.data)]):
            narrow = self.succeed(*words, env={"COLUMNS": "72"}).out
            long = [line for line in narrow.splitlines() if len(line) > 72 and " " in line.strip()[:-1].lstrip("-")]
            self.assertFalse([line for line in long if max(map(len, line.split())) < 60], long)
            usual = self.succeed(*words, env={"COLUMNS": ""}).out
            self.assertEqual(*(re.sub(r"[\d.]+", "#", text).split() for text in (narrow, usual)))  # numbers are ignored, since some are measured


class BrokenRuns(EndToEnd):
    def setUp(self):
        super().setUp()
        self.plan = self.compile(models.classifier(self.folder / "m.onnx", 8, 5, 3), "--recipe", self.write("r.toml", RECIPE))
        self.data = self.save("d.safetensors", **models.labelled(40, 3, 5))

    def start(self, out):
        """A run that trains until it is ended."""
        process = subprocess.Popen([BIN / "trun", self.plan, "--data", self.data, "--steps", str(10**9), "--out", out], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait()))
        end = time.monotonic() + 60
        lines = self.folder / out / "metrics.jsonl"
        while not (lines.exists() and lines.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        return process

    def test_a_run_without_a_checkpoint_starts_over(self):
        process = self.start("run")
        words = ["trun", self.plan, "--data", self.data, "--steps", 3, "--out", "run"]
        self.refuse(1, [f"process {process.pid} on ", "training in this run"], *words)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(checkpoints(self.folder / "run"), [])
        self.refuse(1, ["no checkpoint", "the command that began it, with --out run, starts it over"], "trun", "--resume", "run")
        self.write("run/mine.txt", "notes")                      # a file that does not belong to a run, so that nothing is removed
        self.refuse(1, ["run: .*holds mine.txt, which trun did not write"], *words)
        (self.folder / "run" / "mine.txt").unlink()
        os.replace(self.data, self.folder / "run" / "ranks")     # an input of the command
        self.refuse(1, ["run: it holds run/ranks, which this command reads"], "trun", self.plan, "--data", "run/ranks", "--steps", 3, "--out", "run")
        os.replace(self.folder / "run" / "ranks", self.data)
        self.assertIn("begins anew", self.succeed(*words).err)
        self.assertEqual([v["step"] for v in metrics(self.folder / "run")[0]], [1, 2, 3])
        self.refuse(1, ["run: exists already", "--resume run"], *words)
        # A run that was interrupted between making its folder and writing run.json.
        for left in (("checkpoints", "lock"), ("checkpoints", "lock", "plan.tplan", "source.json")):
            shutil.rmtree(self.folder / "early", ignore_errors=True)
            (self.folder / "early").mkdir()
            for name in left:
                source = self.folder / "run" / name
                (self.folder / "early" / name).mkdir() if source.is_dir() else shutil.copy(source, self.folder / "early" / name)
            self.refuse(1, ["early: the run has no checkpoint", "with --out early, starts it over"], "trun", "--resume", "early")
            early = [*words[:-1], "early"]
            self.assertIn("begins anew", self.succeed(*early).err)
            self.assertEqual(checkpoints(self.folder / "early")[-1], 3)
        # A run that was interrupted before its folder got its final name.
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True).stdout.strip()
        for left in (".new.tcc-{}-0.tmp", ".new.tcc-{}-1.tmp"):
            (self.folder / left.format(dead) / "checkpoints").mkdir(parents=True)
            shutil.copy(self.folder / "run/lock", self.folder / left.format(dead) / "lock")
        (self.folder / f".new.tcc-{dead}-1.tmp" / "mine.txt").write_text("notes")
        self.succeed(*words[:-1], "new")
        self.assertEqual([p.name for p in self.folder.glob(".new.*")], [f".new.tcc-{dead}-1.tmp"])
        self.assertEqual((self.folder / f".new.tcc-{dead}-1.tmp" / "mine.txt").read_text(), "notes")
        # A foreign folder is not removed.
        (self.folder / "theirs/checkpoints").mkdir(parents=True)
        self.write("theirs/notes.txt", "notes")
        self.refuse(1, ["theirs: exists already"], *words[:-1], "theirs")
        self.assertEqual(sorted(p.name for p in (self.folder / "theirs").iterdir()), ["checkpoints", "notes.txt"])

    def test_patience_goes_along(self):
        """A run that is resumed in another folder stops at the update of the uninterrupted one, with its weights; so does the next resume."""
        stop = ["--eval-every", 4, "--checkpoint-every", 2, "--set", "checkpoint.keep=0", "--set", "evaluate.stop.patience=3",
                "--set", "evaluate.stop.min_change=0.05"]
        for best in ("true", "false"):
            words = ["trun", self.plan, "--data", self.data, "--eval-data", self.data, "--steps", 200, *stop, "--set", f"checkpoint.keep_best={best}"]
            self.succeed(*words, "--out", f"a-{best}")
            last = checkpoints(self.folder / f"a-{best}")[-1]
            self.assertLess(last, 200)
            wanted = self.weights(self.folder / f"a-{best}")
            for step in (6, last - 4, last - 2):
                with self.subTest(best=best, step=step):
                    self.succeed("trun", "--resume", f"a-{best}@{step}", "--out", f"b-{best}-{step}")
                    self.assertEqual(checkpoints(self.folder / f"b-{best}-{step}")[-1], last)
                    got = self.weights(self.folder / f"b-{best}-{step}")
                    for name in wanted:
                        np.testing.assert_array_equal(got[name], wanted[name])
            self.succeed("trun", "--resume", f"b-{best}-{last - 4}@{last - 2}", "--out", f"c-{best}")
            self.assertEqual(checkpoints(self.folder / f"c-{best}")[-1], last)


class OtherWeights(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "m.onnx")
        self.data = self.save("d.safetensors", **models.mlp_data(40))
        self.recipe = self.write("r.toml", models.SQUARES + models.SGD)

    def test_thaw(self):
        """The weights of a run with frozen layers initialise a plan that trains all layers, although checkpoints lack the frozen ones."""
        frozen = self.compile(self.model, "--recipe", self.recipe, "--set", 'model.frozen=["w1", "b1"]', plan="f.tplan")
        run = self.train(frozen, self.data, out="frozen")
        whole = self.compile(self.model, "--recipe", self.recipe, plan="w.tplan")
        wanted = json.loads(self.succeed("trun", "eval", frozen, "--data", self.data, "--from", run).out)
        self.assertEqual(json.loads(self.succeed("trun", "eval", whole, "--data", self.data, "--from", run).out), wanted)
        thawed = self.train(whole, self.data, "--init", run, "--eval-data", self.data, out="thawed", steps=0)
        self.assertEqual(metrics(thawed)[1][-1]["eval_loss"], wanted["eval_loss"])
        after = self.weights(self.train(whole, self.data, "--init", run, out="more"))
        before = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.model).graph.initializer}
        self.assertFalse(np.array_equal(after["w1"], before["w1"]))
        # A base with other frozen values is refused.
        other = onnx.load(self.model)
        other.graph.initializer[0].CopyFrom(numpy_helper.from_array(models.random(77, 16, 5), "w1"))
        onnx.save(other, self.folder / "o.onnx")
        self.refuse(1, ["different are 'w1'", "frozen value is another"], "trun",
                    self.compile("o.onnx", "--recipe", self.recipe, plan="o.tplan"), "--data", self.data, "--init", run, "--out", "x")

    def test_best_by_averages(self):
        """If averages decided which checkpoint is best, RUN@best means the averages, for every command."""
        plan = self.compile(self.model, "--recipe", self.recipe, "--set", "train.ema.decay=0.9")
        run = self.train(plan, self.data, "--eval-data", self.data, "--eval-every", 4, "--set", 'evaluate.best="ema_loss"', steps=12)
        best = json.loads((run / "checkpoints" / "best.json").read_text())
        line = next(v for v in metrics(run)[1] if v["step"] == best["step"])
        self.assertNotEqual(line["eval_loss"], line["ema_eval_loss"])
        told = self.succeed("trun", "eval", plan, "--data", self.data, "--from", f"{run}@best")
        self.assertEqual(json.loads(told.out)["eval_loss"], line["ema_eval_loss"])
        self.assertIn("its averaged weights", told.err)
        self.assertEqual(json.loads(self.succeed("trun", "eval", plan, "--data", self.data, "--from", f"{run}@{best['step']}").out)["eval_loss"],
                         line["eval_loss"])
        self.assertIn("its averaged weights", self.succeed("trun", "export", f"{run}@best", "-o", "b.safetensors").err)
        self.succeed("trun", "export", f"{run}@{best['step']}", "--ema", "-o", "e.safetensors")
        for name, value in safetensors.numpy.load_file(self.folder / "e.safetensors").items():
            np.testing.assert_array_equal(safetensors.numpy.load_file(self.folder / "b.safetensors")[name], value)
        started = self.succeed("trun", plan, "--data", self.data, "--init", f"{run}@best", "--eval-data", self.data, "--steps", 0, "--out", "n")
        self.assertIn("its averaged weights", started.err)
        self.assertEqual(metrics(self.folder / "n")[1][-1]["eval_loss"], line["ema_eval_loss"])


class OtherLabels(EndToEnd):
    def pictures(self, name, classes):
        """Class folders with one PNG of 4 × 4 each."""
        import struct
        import zlib

        def chunk(kind, body):
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for i, kind in enumerate(classes):
            (self.folder / name / kind).mkdir(parents=True)
            rows = b"".join(b"\0" + bytes([40 * i] * 12) for _ in range(4))
            for k in range(4):
                self.write(f"{name}/{kind}/{k}.png", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)) +
                           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        return self.folder / name

    def test_classes_of_the_weights(self):
        """The weights of a run come with its classes: with data of other classes the labels would mean other things."""
        nodes = [onnx.helper.make_node("Flatten", ["image"], ["flat"], "flat"), onnx.helper.make_node("Gemm", ["flat", "w"], ["logits"], "head", transB=1)]
        models.save(self.folder / "m.onnx", nodes, {"image": [2, 3, 4, 4]}, {"logits": [2, 3]}, {"w": models.random(1, 3, 48)})
        plan = self.compile("m.onnx", "--recipe", self.write("r.toml", models.CLASSES.replace('"labels"', '"label"')))
        run = self.train(plan, self.pictures("three", ["ant", "bee", "cat"]))
        two = self.pictures("two", ["bee", "cat"])
        for words in ([plan, "--data", two, "--init", run, "--out", "x"], ["lr-find", plan, "--data", two, "--init", run, "--steps", 3],
                      ["eval", plan, "--data", two, "--from", run], ["--resume", run, "--data", two],
                      ["sweep", plan, "--data", two, "--init", run, "--out", "s", "--set", "optimizer.lr=0.1"]):
            self.refuse(1, ["class folders are not those of", "missing are 'ant'"], "trun", *words)
        # Images without class folders get the same predictions.
        outputs = []
        for number, given in enumerate((self.folder / "three", two / "cat", two / "cat" / "1.png")):
            self.succeed("trun", "predict", plan, "--from", run, "--inputs", given, "--outputs", f"{number}.npy")
            outputs.append(np.load(self.folder / f"{number}.npy"))
        self.assertEqual([len(o) for o in outputs], [12, 4, 1])
        np.testing.assert_array_equal(outputs[1], np.repeat(outputs[2], 4, 0))
        self.refuse(1, ["'label' is missing|label"], "trun", "eval", plan, "--from", run, "--data", two / "cat")
        told = self.succeed("trun", plan, "--data", two, "--init", run, "--init-partial", "--out", "x", "--steps", 1)
        self.assertIn("warning: ", told.err)
        self.succeed("trun", plan, "--data", self.folder / "three", "--init", run, "--out", "y", "--steps", 1)

    def test_vocabulary_of_the_weights(self):
        """Text is encoded with the vocabulary of the run that the weights come from."""
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Gather", ["table", "ids"], ["logits"], "look-up")], "g",
            [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [2, 4])],
            [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [2, 4, 8])], [numpy_helper.from_array(models.random(1, 8, 8), "table")])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), self.folder / "m.onnx")
        plan = self.compile("m.onnx", "--recipe", self.write("r.toml", models.CLASSES + 'class_axis = -1\n[data]\ntokens = "chars"\n'))
        run = self.train(plan, self.write("a.txt", "abcdefgh" * 8))
        fewer = self.write("b.txt", "hgfe" * 8)                  # by itself, "e" would be token 0
        started = self.train(plan, fewer, "--init", run, out="n", steps=1)
        self.assertEqual(json.loads((started / "vocabulary.json").read_text())["characters"], list("abcdefgh"))
        self.refuse(1, ["c.txt"], "trun", plan, "--data", self.write("c.txt", "xyz!" * 16), "--init", run, "--out", "x")


if __name__ == "__main__":
    unittest.main(verbosity=2)
