"""Evaluations: metrics against their formulas, the best checkpoint by any of them, early stopping, and --max-time."""
import json
import time
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import helper, numpy_helper

import models
from common import EndToEnd, metrics

CLASSES = models.CLASSES + '[optimizer]\nkind = "sgd"\nlr = 0.1\n'


def ranks(scores):
    """Ranks from 1, the mean of them for equal scores."""
    order = np.argsort(scores, kind="stable")
    result = np.empty(len(scores))
    result[order] = np.arange(1, len(scores) + 1)
    for value in np.unique(scores):
        result[scores == value] = result[scores == value].mean()
    return result


def auroc(scores, positive):
    """Mann and Whitney's statistic by ranks."""
    p, n = positive.sum(), (~positive).sum()
    return (ranks(scores)[positive].sum() - p * (p + 1) / 2) / (p * n)


def f1(predicted, present):
    return 2 * (predicted & present).sum() / (predicted.sum() + present.sum())


class Evaluation(EndToEnd):
    def evaluate(self, model, recipe, data, *arguments):
        """(the line of `trun eval`, the graph's outputs for the data) of the untrained model."""
        plan = self.compile(model, "--recipe", self.write("r.toml", recipe), *arguments)
        line = json.loads(self.succeed("trun", "eval", plan, "--data", data).out)
        x = safetensors.numpy.load_file(data)["x"]
        parts = []
        for first in range(0, len(x), 8):                    # the model's batch is fixed: the last one repeats a row
            rows = np.minimum(np.arange(first, first + 8), len(x) - 1)
            self.succeed("trun", "predict", plan, "--inputs", self.save("part.safetensors", x=x[rows]), "--outputs", "o.safetensors")
            parts.append(safetensors.numpy.load_file(self.folder / "o.safetensors"))
        return line, {name: np.concatenate([part[name] for part in parts])[:len(x)] for name in parts[0]}

    def test_classes(self):
        """21 samples in batches of 8: the last batch is padded. Some targets do not count."""
        for classes in (7, 2):
            columns = models.labelled(21, classes, 5)
            columns["labels"][[3, 20]] = -100
            line, outputs = self.evaluate(models.classifier(self.folder / "m.onnx", 8, 5, classes), CLASSES +
                                          '[evaluate]\nmetrics = ["accuracy", "top5", "perplexity", "f1", "auroc"]\n',
                                          self.save("d.safetensors", **columns))
            keep = columns["labels"] >= 0
            logits, labels = outputs["logits"][keep].astype(np.float64), columns["labels"][keep]
            best = logits.argmax(1)
            shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            top = np.argsort(-logits, 1, kind="stable")[:, :5]
            loss = -np.log(shares[np.arange(len(labels)), labels]).mean()
            seen = [c for c in range(classes) if (best == c).any() or (labels == c).any()]
            both = [c for c in range(classes) if (labels == c).any() and not (labels == c).all()]
            wanted = {"eval_accuracy": (best == labels).mean(), "eval_top5": (top == labels[:, None]).any(1).mean(),
                      "eval_perplexity": np.exp(loss), "eval_f1": np.mean([f1(best == c, labels == c) for c in seen]),
                      "eval_auroc": np.mean([auroc(shares[:, c], labels == c) for c in both])}
            for key, value in wanted.items():
                self.assertAlmostEqual(line[key], value, 5, f"{key} of {classes} classes")

    def test_labels(self):
        """Several labels a sample, each on or off."""
        rng = np.random.default_rng(3)
        x, y = rng.standard_normal((21, 5)).astype(np.float32), (rng.random((21, 3)) < 0.4).astype(np.float32)
        recipe = '[loss]\nkind = "bce_with_logits"\nof = "logits"\ntarget = "y"\n[evaluate]\nmetrics = ["accuracy", "f1", "auroc"]\n'
        line, outputs = self.evaluate(models.classifier(self.folder / "m.onnx", 8, 5, 3), recipe, self.save("d.safetensors", x=x, y=y))
        logits, on = outputs["logits"], y > 0.5
        self.assertAlmostEqual(line["eval_accuracy"], ((logits > 0) == on).mean(), 6)
        self.assertAlmostEqual(line["eval_f1"], np.mean([f1(logits[:, i] > 0, on[:, i]) for i in range(3)]), 6)
        self.assertAlmostEqual(line["eval_auroc"], np.mean([auroc(logits[:, i], on[:, i]) for i in range(3)]), 6)

    def test_a_confusion_matrix_of_one_label(self):
        rng = np.random.default_rng(4)
        x, y = rng.standard_normal((21, 5)).astype(np.float32), (rng.random((21, 1)) < 0.4).astype(np.float32)
        data = self.save("d.safetensors", x=x, y=y)
        recipe = '[loss]\nkind = "bce_with_logits"\nof = "logits"\ntarget = "y"\n[evaluate]\nmetrics = ["f1"]\n'
        _, outputs = self.evaluate(models.classifier(self.folder / "m.onnx", 8, 5, 1), recipe, data)
        self.succeed("trun", "eval", "plan.tplan", "--data", data, "--confusion", "c.csv")
        on, predicted = y[:, 0] > 0.5, outputs["logits"][:, 0] > 0
        wanted = [[int((predicted[on == i] == j).sum()) for j in (0, 1)] for i in (0, 1)]
        self.assertEqual((self.folder / "c.csv").read_text(), "target,0,1\n" + "".join(f"{i},{a},{b}\n" for i, (a, b) in enumerate(wanted)))
        self.evaluate(models.classifier(self.folder / "m3.onnx", 8, 5, 3), recipe, self.save("d3.safetensors", x=x, y=np.repeat(y, 3, 1)))
        self.refuse(2, ["a sample has 3 labels of its own"], "trun", "eval", "plan.tplan", "--data", "d3.safetensors", "--confusion", "c3.csv")

    def test_at_each_epochs_end(self):
        """Epochs of five updates, of which the last takes one micro-batch alone; resumed in the middle of one."""
        plan, data, words = self.training("--eval-every", "epoch", recipe=CLASSES + "[train]\naccumulate = 2\n")
        data = self.save("d.safetensors", **models.labelled(72, 3, 5))   # nine micro-batches
        self.succeed("trun", *words, "--epochs", 3, "--out", "whole")
        self.assertEqual([line["step"] for line in metrics(self.folder / "whole")[1]], [5, 10, 15])
        self.succeed("trun", *words, "--steps", 8, "--out", "part")
        self.succeed("trun", "--resume", "part", "--steps", 15)
        whole, part = ({line["step"]: line["eval_loss"] for line in metrics(self.folder / run)[1]} for run in ("whole", "part"))
        self.assertEqual(sorted(part), [5, 8, 10, 15])
        self.assertEqual({step: part[step] for step in whole}, whole)
        self.succeed("trun", "--resume", "part", "--steps", 21, "--eval-every", 3)
        self.assertEqual(sorted({line["step"] for line in metrics(self.folder / "part")[1]}), [5, 8, 10, 15, 18, 21])
        for wrong in ("epochs", "-1", "2.5"):
            self.refuse(2, ["--eval-every", "a number of updates, at least 0, or `epoch`, not " + wrong], "trun", *words[:-2], f"--eval-every={wrong}")

    def test_regression_and_graph_outputs(self):
        """A graph output is averaged over the samples, also one that the graph has averaged over its batch already."""
        model = onnx.load(models.mlp(self.folder / "m.onnx"))
        model.graph.node.extend([helper.make_node("Abs", ["prediction"], ["size"], "size"),
                                 helper.make_node("ReduceMean", ["size"], ["mean_size"], "mean", keepdims=0)])
        for name, shape in (("size", [8, 1]), ("mean_size", [])):
            model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        onnx.save(model, self.folder / "m.onnx")
        columns = models.mlp_data(21)
        recipe = models.SQUARES + '[evaluate]\nmetrics = ["mae", "r2", "size", "mean_size"]\n'
        plan = self.compile(self.folder / "m.onnx", "--recipe", self.write("r.toml", recipe))
        line = json.loads(self.succeed("trun", "eval", plan, "--data", self.save("d.safetensors", **columns)).out)
        weights = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
        y = np.tanh(columns["x"] @ weights["w1"].T + weights["b1"]) @ weights["w2"].T + weights["b2"]
        miss = y - columns["y"]
        self.assertAlmostEqual(line["eval_mae"], np.abs(miss).mean(), 5)
        self.assertAlmostEqual(line["eval_r2"], 1 - (miss**2).sum() / ((columns["y"] - columns["y"].mean())**2).sum(), 5)
        self.assertAlmostEqual(line["eval_size"], np.abs(y).mean(), 5)
        self.assertAlmostEqual(line["eval_mean_size"], np.abs(y).mean(), 5)

    def training(self, *settings, recipe=CLASSES + '[evaluate]\nmetrics = ["f1"]\n'):
        plan = self.compile(models.classifier(self.folder / "m.onnx", 8, 5, 3), "--recipe", self.write("r.toml", recipe))
        data = self.save("d.safetensors", **models.labelled(40, 3, 5))
        held = self.save("e.safetensors", **{k: v[::-1][:16] for k, v in models.labelled(60, 3, 5).items()})
        return plan, data, [plan, "--data", data, "--eval-data", held, "--no-shuffle", *settings]

    def test_best_by_any_metric(self):
        for metric, key, choose in (("", "eval_loss", min), ("f1", "eval_f1", max), ("eval_accuracy", "eval_accuracy", max)):
            with self.subTest(metric=metric):
                _, _, words = self.training("--eval-every", 4, "--steps", 60, "--set", "checkpoint.keep=0", "--set", "optimizer.lr=3")
                run = self.folder / f"run-{key}"
                self.succeed("trun", *words, "--out", run, *(["--set", f"evaluate.best={metric}"] if metric else []))
                lines = metrics(run)[1]
                best = choose(v[key] for v in lines)
                first = next(v["step"] for v in lines if v[key] == best)
                noted = json.loads((run / "checkpoints" / "best.json").read_text())
                self.assertEqual((noted["step"], noted[key]), (first, best))

    def test_before_the_first_update(self):
        """As `trun eval` of the initial weights; from the recipe or from --set, once in a run that is resumed."""
        for given in ("recipe", "set"):
            with self.subTest(given=given):
                recipe = CLASSES + "[evaluate]\nat_start = true\n" * (given == "recipe")
                words = ["--eval-every", 4] + ["--set", "evaluate.at_start=true"] * (given == "set")
                plan, _, words = self.training(*words, recipe=recipe)
                run = self.folder / given
                self.succeed("trun", *words, "--steps", 4, "--out", run)
                self.succeed("trun", "--resume", run, "--steps", 8)
                lines = metrics(run)[1]
                self.assertEqual([line["step"] for line in lines], [0, 4, 8])
                initial = json.loads(self.succeed("trun", "eval", plan, "--data", "e.safetensors").out)
                self.assertEqual(lines[0]["eval_loss"], initial["eval_loss"])
        self.assertIn("no evaluation data", self.succeed("trun", *words[:3], "--steps", 1, "--set", "evaluate.at_start=true").err)

    def test_early_stop(self):
        """Keras's rule: training ends after `patience` evaluations in a row without a better value; a resume keeps the count."""
        stop = ["--set", "evaluate.stop={metric=\"accuracy\", patience=3, min_change=0.01}", "--set", "optimizer.lr=0"]
        _, _, words = self.training("--eval-every", 2, *stop)
        run = self.folder / "run"
        result = self.succeed("trun", *words, "--out", run, "--steps", 100)
        self.assertIn("stopped early after update 8", result.err)
        self.assertEqual([v["step"] for v in metrics(run)[1]], [2, 4, 6, 8])
        self.assertTrue((run / "model.onnx").exists())
        parts = self.folder / "parts"
        self.succeed("trun", *words, "--out", parts, "--steps", 5)
        self.succeed("trun", "--resume", parts, "--steps", 100)
        self.assertEqual([v["step"] for v in metrics(parts)[1]], [2, 4, 5, 6])
        # A stopped run stays stopped until it gets more patience.
        self.succeed("trun", "--resume", run)
        self.assertEqual(metrics(run)[0][-1]["step"], 8)
        self.succeed("trun", "--resume", run, "--steps", 10, "--set", "evaluate.stop.patience=50")
        self.assertEqual(metrics(run)[0][-1]["step"], 10)

    def test_max_time(self):
        plan, data, words = self.training()
        run, begun = self.folder / "run", time.monotonic()
        result = self.succeed("trun", *words, "--out", run, "--steps", 10**8, "--max-time", "1.5s")
        self.assertLess(time.monotonic() - begun, 60)
        self.assertIn("stopped by --max-time after update", result.err)
        done = metrics(run)[0][-1]["step"]
        self.assertTrue((run / "checkpoints" / f"step-{done}").is_dir())
        for text in ("90", "2x", "0s", "1m1h", ""):
            self.refuse(2, ["--max-time"], "trun", *words, "--out", "x", f"--max-time={text}")

    def test_wrong_words(self):
        model = models.classifier(self.folder / "m.onnx", 8, 5, 3)
        for text, pattern in (('metrics = ["r2"]\n', r"r\.toml:\d+:\d+: evaluate\.metrics: r2 belongs to the losses mse.*cross_entropy"),
                              ('metrics = ["f11"]\n', r"evaluate\.metrics: `f11` is neither a metric.*the nearest is `f1`"),
                              ("stop = { metric = \"loss\" }\n", r"evaluate\.stop\.metric needs evaluate\.stop\.patience")):
            self.refuse(1, [pattern], "tcc", model, "-o", "p.tplan", "--recipe", self.write("r.toml", CLASSES + "[evaluate]\n" + text))
        _, data, words = self.training("--out", "x", "--steps", 4)
        self.refuse(2, [r"evaluate\.best: evaluations of this plan have no eval_auroc", "tcc --set 'evaluate.metrics"],
                    "trun", *words, "--set", "evaluate.best=auroc")
        self.refuse(2, [r"ema_eval_loss", r"train\.ema\.decay"], "trun", *words, "--set", "evaluate.best=ema_eval_loss")
        self.refuse(2, [r"\"los\" is none of the metrics", "min:los"], "trun", *words, "--set", "evaluate.best=los")
        self.refuse(2, [r"evaluate\.stop.*--eval-every"], "trun", *words, "--set", "evaluate.stop.patience=2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
