"""Built-in losses through tcc and trun: CTC beside PyTorch's numbers, losses of values inside the graph, and their messages.

losses/ctc.safetensors holds the numbers of PyTorch and was written by losses/make.py. The formulas of the other kinds are
compared with PyTorch's in test/unit/passes/LossTest.cpp.
"""
import unittest
from pathlib import Path

import models
import numpy as np
import onnx
import safetensors.numpy
from common import EndToEnd, metrics
from onnx import helper

CTC = safetensors.numpy.load_file(Path(__file__).resolve().parent / "losses" / "ctc.safetensors")
SGD = '[optimizer]\nkind = "sgd"\nlr = 0.0\n'


def group(name):
    numbers = {key.split(".")[1]: value for key, value in CTC.items() if key.startswith(name + ".")}
    return {key: value.astype(np.int64) if value.dtype == np.uint8 else value for key, value in numbers.items()}


def mean_ctc(numbers, chosen=slice(None)):
    """The result of PyTorch's reduction "mean" with zero_infinity for the samples' losses."""
    loss = np.where(np.isinf(numbers["loss"]), 0, numbers["loss"]).astype(np.float64)
    return (loss / np.maximum(1, numbers["target_lengths"]))[chosen].mean()


def padded(numbers, value):
    """Targets whose rows are padded with `value` beyond their lengths."""
    targets = numbers["targets"]
    return np.where(np.arange(targets.shape[1]) < numbers["target_lengths"][:, None], targets, value)


class Ctc(EndToEnd):
    def model(self, batch, steps, classes, axes=(0, 1, 2), name="ctc.onnx"):
        """x + w, [batch, steps, classes] with its axes in another order: the gradient of w is that of the logits."""
        nodes = [helper.make_node("Add", ["x", "w"], ["sum"], "add"), helper.make_node("Transpose", ["sum"], ["logits"], "turn", perm=axes)]
        return models.save(self.folder / name, nodes, {"x": [batch, steps, classes]},
                           {"logits": [(batch, steps, classes)[a] for a in axes]}, {"w": np.zeros((batch, steps, classes), np.float32)})

    def recipe(self, text):
        return self.write("r.toml", f'[loss]\nkind = "ctc"\nof = "logits"\ntarget = "targets"\n{text}{SGD}')

    def check(self, numbers, text, axes, columns, mean):
        """The loss of all samples and its gradient, then the loss of each sample in a step of its own."""
        n, t, c = numbers["logits"].shape
        x = numbers["logits"].astype(np.float32)
        recipe = self.recipe(text)
        plan = self.compile(self.model(n, t, c, axes), "--recipe", recipe, "--entry", "gradients")
        data = self.save("data.safetensors", x=x, **columns)
        self.succeed("trun", "gradients", plan, "--inputs", data, "--outputs", "g.safetensors")
        got = safetensors.numpy.load_file(self.folder / "g.safetensors")
        scale = 1 / (n * np.maximum(1, numbers["target_lengths"])) if mean else np.ones(n)
        np.testing.assert_allclose(got["w"], numbers["gradient"] * scale[:, None, None], rtol=2e-4, atol=3e-6)
        finite = np.where(np.isinf(numbers["loss"]), 0, numbers["loss"])
        np.testing.assert_allclose(got["loss"], mean_ctc(numbers) if mean else finite.sum(), rtol=1e-5)
        single = self.compile(self.model(1, t, c, axes), "--recipe", recipe, "--entry", "train", plan="single.tplan")
        losses = [line["loss"] for line in metrics(self.train(single, data, steps=n))[0]]
        np.testing.assert_allclose(losses, finite / np.maximum(1, numbers["target_lengths"]) if mean else finite, rtol=2e-5, atol=2e-6)

    def test_lengths_from_padding(self):
        numbers = group("plain")
        self.check(numbers, 'input = "logits"\ntime_axis = 1\nmax_target_length = 5\nzero_infinity = true\n', (0, 1, 2),
                   {"targets": padded(numbers, -100)}, mean=True)

    def test_lengths_as_columns_and_time_first(self):
        numbers = group("lengths")
        self.check(numbers, 'input = "logits"\nmax_target_length = 4\ninput_lengths = "input_lengths"\ntarget_lengths = "target_lengths"\n'
                   'zero_infinity = true\n', (1, 0, 2), {k: numbers[k] for k in ("targets", "input_lengths", "target_lengths")}, mean=True)

    def test_targets_without_an_alignment_padded_with_the_blank(self):
        numbers = group("impossible")
        self.check(numbers, 'input = "logits"\ntime_axis = 1\nmax_target_length = 6\nblank = 5\nignore_index = 5\nreduction = "sum"\n'
                   'input_lengths = "input_lengths"\nzero_infinity = true\n', (0, 1, 2),
                   {"targets": padded(numbers, 5), "input_lengths": numbers["input_lengths"]}, mean=False)

    def test_classes_before_time(self):
        numbers = group("long")
        self.check(numbers, 'input = "logits"\ntime_axis = 2\nclass_axis = 1\nmax_target_length = 8\nblank = 2\nzero_infinity = true\n'
                   'input_lengths = "input_lengths"\ntarget_lengths = "target_lengths"\n', (0, 2, 1),
                   {k: numbers[k] for k in ("targets", "input_lengths", "target_lengths")}, mean=True)

    def test_accumulation_and_a_padded_evaluation_count_each_sample_once(self):
        numbers = group("plain")
        n, t, c = numbers["logits"].shape
        recipe = self.recipe('input = "logits"\ntime_axis = 1\nmax_target_length = 5\nzero_infinity = true\n')
        data = self.save("data.safetensors", x=numbers["logits"].astype(np.float32), targets=padded(numbers, -100))
        part = self.save("part.safetensors", x=numbers["logits"].astype(np.float32)[:47], targets=padded(numbers, -100)[:47])
        plan = self.compile(self.model(10, t, c), "--recipe", recipe, "--set", "train.accumulate=3")
        updates, evaluations = metrics(self.train(plan, data, "--eval-data", part, steps=2))
        np.testing.assert_allclose([v["loss"] for v in updates], [mean_ctc(numbers, slice(0, 30)), mean_ctc(numbers, slice(30, 60))], rtol=1e-5)
        np.testing.assert_allclose(evaluations[-1]["eval_loss"], mean_ctc(numbers, slice(0, 47)), rtol=1e-5)

    def test_an_infinite_loss_ends_the_run(self):
        numbers = group("impossible")
        first = int(np.argmax(np.isinf(numbers["loss"])))
        recipe = self.recipe('input = "logits"\ntime_axis = 1\nmax_target_length = 6\nblank = 5\nignore_index = 5\ninput_lengths = "input_lengths"\n')
        plan = self.compile(self.model(1, 8, 6), "--recipe", recipe, "--entry", "train")
        data = self.save("data.safetensors", x=numbers["logits"].astype(np.float32), targets=padded(numbers, 5), input_lengths=numbers["input_lengths"])
        self.refuse(4, [f"step {first + 1}"], "trun", plan, "--data", data, "--no-shuffle", "--steps", 50, "--out", "run")

    def test_hundreds_of_steps_are_one_kernel(self):
        recipe = self.recipe('input = "logits"\ntime_axis = 1\nmax_target_length = 60\n')
        counts = []
        for steps in (100, 400):
            plan = self.compile(self.model(2, steps, 30), "--recipe", recipe, "--entry", "train", plan=f"{steps}.tplan")
            counts.append(sum(kernel["count"] for kernel in self.report(plan)["kernels"]))
        self.assertEqual(*counts)

    def test_messages(self):
        model = self.model(4, 6, 5)
        base = 'time_axis = 1\nmax_target_length = 3\n'
        for text, message in [
                ("time_axis = 1\n", r"r\.toml:4:1: loss\.target: the graph has no input `targets`.*loss\.max_target_length"),
                (base + "class_axis = 1\n", r"r\.toml:5:1: loss\.time_axis and loss\.class_axis are both axis 1"),
                (base + "blank = 5\n", r"r\.toml:7:1: loss\.blank: 5 is no class: there are classes 0 to 4"),
                (base + "ignore_index = 2\n", r"r\.toml:7:1: loss\.ignore_index: 2 is a class"),
                (base + 'target_lengths = "x"\n', r"r\.toml:7:1: loss\.target_lengths: the graph input `x` is tensor<4x6x5xf32>, .*\[4\]"),
                (base + "margin = 1\n", r"r\.toml:7:1: loss\.margin does not apply to ctc; it belongs to cosine_embedding"),
                (base + 'input = "logit"\n', r"r\.toml:7:1: loss\.input: .*the nearest is \"logits\"")]:
            with self.subTest(text):
                self.refuse(1, [message], "tcc", model, "--recipe", self.recipe(text))
        plan = self.compile(model, "--recipe", self.recipe(base + 'input_lengths = "frames"\n'))
        x, targets, frames = np.zeros((4, 6, 5), np.float32), np.ones((4, 3), np.int64), np.full(4, 6)
        for column, position, value, message in [
                ("targets", (1, 2), 5, r"'targets', sample 1, position 2: value 5 is no class of ctc; .*from 0 to 4, and -100 does not count"),
                ("frames", (3,), 7, r"'frames', sample 3.*: value 7 is no number of time steps; .*from 0 to 6")]:
            columns = {"x": x, "targets": targets.copy(), "frames": frames.copy()}
            columns[column][position] = value
            self.refuse(1, [message], "trun", plan, "--data", self.save("bad.safetensors", **columns), "--steps", 1)


class InnerValues(EndToEnd):
    """A model that ends in a Softmax and further nodes, trained with the logits before the Softmax."""

    def model(self, post_processing=True):
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["scores"], "head", transB=1),
                 helper.make_node("Softmax", ["scores"], ["p"], "softmax", axis=1),
                 helper.make_node("Mul", ["p", "unused"], ["probabilities"], "weigh")]
        weights = {"w": models.random(1, 3, 4), "b": models.random(2, 3), "unused": np.ones(3, np.float32)}
        if post_processing:
            return models.save(self.folder / "whole.onnx", nodes, {"x": [6, 4]}, {"probabilities": [6, 3]}, weights)
        del weights["unused"]
        return models.save(self.folder / "cut.onnx", nodes[:1], {"x": [6, 4]}, {"scores": [6, 3]}, weights)

    def setUp(self):
        super().setUp()
        self.x, self.labels = models.random(3, 12, 4), np.arange(12) % 3
        self.data = self.save("data.safetensors", x=self.x, labels=self.labels)

    def losses(self, model, of, name):
        recipe = self.write("r.toml", f'[loss]\nkind = "cross_entropy"\nof = "{of}"\ntarget = "labels"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n')
        plan = self.compile(model, "--recipe", recipe, plan=f"{name}.tplan")
        return plan, [line["loss"] for line in metrics(self.train(plan, self.data, out=name))[0]]

    def test_of_a_value_or_a_node_trains_the_graph_up_to_there(self):
        _, expected = self.losses(self.model(post_processing=False), "scores", "cut")
        for of in ("scores", "head"):
            plan, losses = self.losses(self.model(), of, of)
            self.assertEqual(losses, expected)
            self.assertIn("unused", [v["name"] for v in self.report(plan)["parameters"]["unused"]])
            inputs = self.save("x.safetensors", x=self.x[:6])
            self.succeed("trun", "predict", plan, "--inputs", inputs, "--outputs", "p.safetensors", "--from", self.folder / of)
            predicted = safetensors.numpy.load_file(self.folder / "p.safetensors")
            self.assertEqual(list(predicted), ["probabilities"])
            np.testing.assert_allclose(predicted["probabilities"].sum(1), 1, rtol=1e-6)

    def test_nodes_behind_the_loss_need_no_importer(self):
        """An op of another domain reads the probabilities: the loss does not need it, and predict computes the other outputs."""
        self.model()
        model = onnx.load(self.folder / "whole.onnx")
        model.graph.node.append(helper.make_node("Suppress", ["probabilities"], ["boxes"], "suppress", domain="vision"))
        model.graph.output.append(helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, ["n", 4]))
        model.opset_import.append(helper.make_opsetid("vision", 1))
        onnx.save(model, self.folder / "detector.onnx")
        _, expected = self.losses(self.model(post_processing=False), "scores", "cut")
        plan, losses = self.losses(self.folder / "detector.onnx", "scores", "detector")
        self.assertEqual(losses, expected)
        inputs = self.save("x.safetensors", x=self.x[:6])
        self.succeed("trun", "predict", plan, "--inputs", inputs, "--outputs", "p.safetensors", "--from", self.folder / "detector")
        self.assertEqual(list(safetensors.numpy.load_file(self.folder / "p.safetensors")), ["probabilities"])
        recipe = self.folder / "r.toml"
        told = self.succeed("tcc", "detector.onnx", "--recipe", recipe)
        self.assertRegex(told.err, r"suppress.*Suppress[\s\S]*loss\.of needs none of this, so the rest is compiled; predict leaves out boxes")
        self.refuse(1, ["suppress.*Suppress"], "tcc", "detector.onnx", "--recipe", recipe, "--set", "loss.of=boxes")
        # Without a remaining output there is no entry predict.
        del model.graph.output[0]
        onnx.save(model, self.folder / "boxes.onnx")
        plan, losses = self.losses(self.folder / "boxes.onnx", "scores", "boxes")
        self.assertEqual(losses, expected)
        self.refuse(1, ["predict has nothing to compute"], "tcc", "boxes.onnx", "--recipe", recipe, "--entry", "train,predict")

    def test_labels_are_checked(self):
        plan, _ = self.losses(self.model(), "scores", "good")
        bad = self.save("bad.safetensors", x=self.x, labels=np.where(np.arange(12) == 5, 3, self.labels))
        self.refuse(1, [r"'labels', sample 5: value 3 is no class; .*from 0 to 2, and -100 does not count"], "trun", plan, "--data", bad, "--steps", 1)

    def test_the_nearest_value_is_named(self):
        recipe = self.write("r.toml", '[loss]\nkind = "cross_entropy"\nof = "score"\ntarget = "labels"\n')
        self.refuse(1, [r"r\.toml:3:1: loss\.of: the graph has no output `score`, and no node computes it; the nearest is `scores`; the outputs are probabilities"],
                    "tcc", self.model(), "--recipe", recipe)


    def test_each_of_several_losses_names_its_line(self):
        table = '[[loss]]\nkind = "cross_entropy"\nof = "scores"\ntarget = "labels"\n\n[[loss]]\n'
        for more, line, pattern in (('kind = "mse"\nof = "score"\ntarget = "aim"\n', 8, r"loss\.of: the graph has no output `score`, and no node computes it; the nearest is `scores`"),
                                    ('output = "score"\n', 7, r"loss\.output: the graph has no output `score`")):
            recipe = self.write("r.toml", table + more)
            self.refuse(1, [rf"error: r\.toml:{line}:1: {pattern}"], "tcc", self.model(), "--recipe", "r.toml")

    def test_several_losses_may_be_of_values_inside_the_graph(self):
        recipe = self.write("r.toml", '[[loss]]\nkind = "mse"\nof = "probabilities"\ntarget = "aim"\n\n[[loss]]\nkind = "cross_entropy"\nof = "scores"\ntarget = "labels"\n')
        self.assertRegex(self.succeed("tcc", "gradcheck", self.model(), "--recipe", recipe).out, r"(\d+) of \1 gradients agree")


class Lists(EndToEnd):
    def setUp(self):
        super().setUp()
        nodes = [helper.make_node("MatMul", [name, "w"], [f"{name}_vector"], f"embed-{name}") for name in ("a", "p", "n")]
        shapes = {name: [4, 5] for name in ("a", "p", "n")}
        self.model = models.save(self.folder / "m.onnx", nodes, shapes, {f"{name}_vector": [4, 3] for name in shapes}, {"w": models.random(1, 5, 3)})
        self.columns = {name: models.random(i + 2, 12, 5) for i, name in enumerate(shapes)}

    def test_triplets_need_no_target(self):
        recipe = self.write("r.toml", '[loss]\nkind = "triplet"\nof = ["a_vector", "p_vector", "n_vector"]\nmargin = 0.7\n' + SGD)
        plan = self.compile(self.model, "--recipe", recipe)
        run = self.train(plan, self.save("data.safetensors", **self.columns), steps=3)
        a, p, n = (v @ models.random(1, 5, 3) for v in self.columns.values())
        distance = lambda x, y: np.linalg.norm(x - y + 1e-6, axis=1)
        expected = np.maximum(0, 0.7 + distance(a, p) - distance(a, n)).reshape(3, 4).mean(1)
        np.testing.assert_allclose([line["loss"] for line in metrics(run)[0]], expected, rtol=1e-5)

    def test_messages(self):
        for loss, message in [
                ('kind = "triplet"\nof = ["a_vector", "p_vector"]\n', r'r\.toml:3:1: loss\.of: triplet compares 3 values, and 2 are named: set loss\.of = \["anchor", "positive", "negative"\]'),
                ('kind = "triplet"\nof = ["a_vector", "p_vector", "n_vector"]\ntarget = "y"\n', r"r\.toml:4:1: loss\.target does not apply to triplet"),
                ('kind = "margin_ranking"\ntarget = "y"\n', r"r\.toml:2:1: loss\.of: margin_ranking compares 2 values, and none is named"),
                ('kind = "mse"\nof = ["a_vector", "p_vector"]\ntarget = "y"\n', r"r\.toml:3:1: loss\.of: mse is of one value, and 2 are named")]:
            with self.subTest(loss):
                self.refuse(1, [message], "tcc", self.model, "--recipe", self.write("r.toml", "[loss]\n" + loss))


if __name__ == "__main__":
    unittest.main()
