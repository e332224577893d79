"""Which column feeds which input, along which axis, and whether a loss reads logits or probabilities: ambiguities are reported."""
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

import models
from common import EndToEnd, metrics

SEED = 20


class Columns(EndToEnd):
    def test_labels_of_one_batch_are_no_constant(self):
        """A data set with more samples but only one batch of labels is refused: every batch would learn the same labels."""
        plan = self.compile(models.classifier(self.folder / "m.onnx", 8, 5, 3), "--recipe", self.write("r.toml", models.CLASSES))
        columns = models.labelled(40, 3, 5)
        data = self.save("d.safetensors", x=columns["x"], labels=columns["labels"][:8])
        for words in (["--steps", 2, "--out", "run"], ):
            self.refuse(1, ["'labels' i64\\[8\\]", "40 samples", r"data\.constant"], "trun", plan, "--data", data, *words)
        self.refuse(1, [r"data\.constant"], "trun", "eval", plan, "--data", data)
        self.refuse(1, [r"data\.constant"], "trun", "lr-find", plan, "--data", data)
        self.succeed("trun", plan, "--data", data, "--steps", 2, "--out", "run", "--set", 'data.constant=["labels"]')
        self.refuse(2, ["no input 'label'", "labels"], "trun", plan, "--data", data, "--out", "x", "--set", "data.constant=label")

    def test_constants_are_told_once(self):
        """A table of positions is a constant by its shape; if it could also be samples, one warning says so."""
        nodes = [helper.make_node("Add", ["x", "table"], ["logits"], "add")]
        models.save(self.folder / "m.onnx", nodes, {"x": [4, 3], "table": [4, 3]}, {"logits": [4, 3]}, {"w": models.random(1, 3)})
        model = onnx.load(self.folder / "m.onnx")
        model.graph.node.insert(0, helper.make_node("Mul", ["x", "w"], ["scaled"], "scale"))
        model.graph.node[1].input[0] = "scaled"
        onnx.save(model, self.folder / "m.onnx")
        plan = self.compile(self.folder / "m.onnx", "--recipe", self.write("r.toml", models.CLASSES))
        rng = np.random.default_rng(SEED)
        data = self.save("d.safetensors", table=rng.standard_normal((4, 3)).astype(np.float32), **models.labelled(12, 3, 3))
        told = self.succeed("trun", plan, "--data", data, "--eval-data", data, "--steps", 2, "--out", "a")
        self.assertEqual(told.err.count("every batch gets the same values"), 1, str(told))
        meant = self.succeed("trun", plan, "--data", data, "--steps", 2, "--out", "b", "--set", "data.constant=table")
        self.assertNotIn("every batch gets", meant.err)
        self.assertEqual([v["loss"] for v in metrics(self.folder / "a")[0]], [v["loss"] for v in metrics(self.folder / "b")[0]])

    def test_one_meaning_along_each_axis(self):
        """y[t, b] = x[t, b]·w[t], samples along axis 1: rows of a column are samples, square or not."""
        batch = 5
        for steps in (4, 5):
            with self.subTest(steps=steps):
                w = np.arange(1, steps + 1, dtype=np.float32)[:, None]
                models.save(self.folder / "m.onnx", [helper.make_node("Mul", ["x", "w"], ["y"], "mul")], {"x": [steps, batch]},
                            {"y": [steps, batch]}, {"w": w})
                plan = self.compile(self.folder / "m.onnx", "--set", "data.batch_axis={x=1}", "--entry", "predict")
                for samples in (1, batch, 13):
                    x = np.random.default_rng(SEED).standard_normal((samples, steps)).astype(np.float32)
                    self.succeed("trun", "predict", plan, "--inputs", self.save("x.safetensors", x=x), "--outputs", "y.safetensors")
                    y = safetensors.numpy.load_file(self.folder / "y.safetensors")["y"]
                    self.assertEqual(y.shape, (steps, samples))
                    np.testing.assert_array_equal(y, x.T * w)
                turned = self.save("t.safetensors", x=np.arange(steps * batch, dtype=np.float32).reshape(steps, batch))
                words = ["trun", "predict", plan, "--inputs", turned, "--outputs", "p.safetensors"]
                if steps != batch:
                    self.refuse(1, [r"axis 1", r"f32\[5x4\]", r"data\.constant"], *words)
                else:
                    self.assertIn("its rows are the samples", self.succeed(*words).err)
                self.succeed(*words, "--set", "data.constant=x")
                x = np.arange(steps * batch, dtype=np.float32).reshape(steps, batch)
                np.testing.assert_array_equal(safetensors.numpy.load_file(self.folder / "p.safetensors")["y"], x * w)

    def test_a_static_export_predicts_any_number(self):
        """Outputs of a graph without symbols have as many samples as the data, even after a Reshape to a fixed batch; means do not."""
        nodes = [helper.make_node("Gemm", ["x", "w"], ["h"], "first", transB=1),
                 helper.make_node("Reshape", ["h", "shape"], ["y"], "reshape"),
                 helper.make_node("Transpose", ["h"], ["turned"], "turn", perm=[1, 0])]
        w = models.random(1, 6, 5)
        models.save(self.folder / "m.onnx", nodes, {"x": [4, 5]}, {"y": [4, 2, 3], "turned": [6, 4]},
                    {"w": w, "shape": np.array([4, 2, 3], np.int64)})
        plan = self.compile(self.folder / "m.onnx")
        for samples in (1, 3, 4, 9):
            x = np.random.default_rng(SEED).standard_normal((samples, 5)).astype(np.float32)
            self.succeed("trun", "predict", plan, "--inputs", self.save("x.safetensors", x=x), "--outputs", "y.safetensors")
            y = safetensors.numpy.load_file(self.folder / "y.safetensors")
            np.testing.assert_allclose(y["y"], (x @ w.T).reshape(samples, 2, 3), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(y["turned"], (x @ w.T).T, rtol=1e-5, atol=1e-6)
        models.save(self.folder / "s.onnx", nodes + [helper.make_node("ReduceMean", ["h"], ["mean"], "mean", keepdims=0)], {"x": [4, 5]},
                    {"mean": []}, {"w": w, "shape": np.array([4, 2, 3], np.int64)})
        plan = self.compile(self.folder / "s.onnx", "--entry", "predict")
        self.refuse(1, ["'mean'", "no sample axis", "4 samples"], "trun", "predict", plan, "--inputs", "x.safetensors", "--outputs", "y.safetensors")

    def test_one_number_a_sample(self):
        """[N] and [N, 1] are the same column, for inputs and targets; nothing becomes [N, N]."""
        columns = models.mlp_data(40)
        plan = self.compile(models.mlp(self.folder / "m.onnx"), "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        losses = []
        for name, y in (("a", columns["y"]), ("b", columns["y"][:, 0])):
            run = self.train(plan, self.save(f"{name}.safetensors", x=columns["x"], y=y), out=name)
            losses.append([v["loss"] for v in metrics(run)[0]])
        self.assertEqual(*losses)
        # A graph that reads its target as [N], for a prediction [N, 1].
        model = onnx.load(models.mlp(self.folder / "g.onnx"))
        model.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [8]))
        model.graph.node.append(helper.make_node("Identity", ["y"], ["same"], "same"))
        model.graph.output.append(helper.make_tensor_value_info("same", TensorProto.FLOAT, [8]))
        onnx.save(model, self.folder / "g.onnx")
        plan = self.compile(self.folder / "g.onnx", "--recipe", "r.toml", plan="g.tplan")
        run = self.train(plan, "a.safetensors", out="c")
        self.assertEqual([v["loss"] for v in metrics(run)[0]], losses[0])

    def test_negative_tokens(self):
        """Like torch's embedding, trun refuses -1, which in ONNX counts from the end."""
        nodes = [helper.make_node("Gather", ["table", "ids"], ["found"], "look-up"),
                 helper.make_node("MatMul", ["found", "w"], ["logits"], "product")]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 4])],
                                  [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, 4, 3])],
                                  [numpy_helper.from_array(models.random(1, 6, 5), "table"), numpy_helper.from_array(models.random(2, 5, 3), "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / "m.onnx")
        plan = self.compile(self.folder / "m.onnx", "--recipe", self.write("r.toml", models.CLASSES + "class_axis = -1\n"))
        ids, labels = np.zeros((4, 4), np.int64), np.zeros((4, 4), np.int64)
        ids[2, 1], labels[0, 0] = -1, -100                      # targets that the loss ignores are legal
        data = self.save("d.safetensors", ids=ids, labels=labels)
        for words in ([plan, "--steps", 1, "--out", "run", "--data", data], ["eval", plan, "--data", data],
                      ["predict", plan, "--inputs", data, "--outputs", "o.safetensors"]):
            self.refuse(1, ["sample 2, position 1: value -1", "values from 0 to 5", r"data\.negative_indices"], "trun", *words)
        self.succeed("trun", "predict", plan, "--inputs", data, "--outputs", "o.safetensors", "--set", "data.negative_indices=true")


class Losses(EndToEnd):
    def warned(self, nodes, outputs, loss, weights=None, inputs=None):
        """tcc's messages about a model with that loss."""
        models.save(self.folder / "m.onnx", nodes, inputs or {"x": [4, 5]}, outputs, weights or {"w": models.random(1, 3, 5)})
        return self.succeed("tcc", "m.onnx", "-o", "p.tplan", "--recipe", self.write("r.toml", f"[loss]\n{loss}\n"), "--entry", "train").err

    def test_probabilities_and_logits(self):
        product = helper.make_node("Gemm", ["x", "w"], ["z"], "head", transB=1)
        after = {op: [product, helper.make_node(op, ["z"], ["p"], "last")] for op in ("Softmax", "LogSoftmax", "Sigmoid", "Relu")}
        for op, kind, patterns in (
                ("Softmax", "cross_entropy", ["takes logits", "`p` holds probabilities", 'loss.of = "head"']),
                ("LogSoftmax", "cross_entropy", ["`p` holds log-probabilities", 'loss.kind = "nll"', 'loss.of = "head"']),
                ("LogSoftmax", "nll", []), ("Relu", "cross_entropy", []),
                ("Softmax", "nll", ["takes log-probabilities", "cross_entropy"]),
                ("Sigmoid", "bce_with_logits", ["takes logits", 'loss.kind = "bce"']), ("Sigmoid", "bce", []),
                ("Sigmoid", "focal", ["takes logits", 'loss.of = "head"']), ("Softmax", "kl_div", ["takes log-probabilities"])):
            with self.subTest(op=op, kind=kind):
                err = self.warned(after[op], {"p": [4, 3]}, f'kind = "{kind}"\nof = "p"\ntarget = "t"')
                self.assertEqual(err.count("warning: "), 1 if patterns else 0, err)
                for pattern in patterns:
                    self.assertIn(pattern, err)
        for kind, pattern in (("nll", 'loss.kind = "cross_entropy"'), ("bce", 'loss.kind = "bce_with_logits"'), ("dice", 'loss.input = "logits"'),
                              ("cross_entropy", ""), ("mse", "")):
            with self.subTest(op="none", kind=kind):
                err = self.warned([product], {"z": [4, 3]}, f'kind = "{kind}"\nof = "z"\ntarget = "t"')
                self.assertEqual(err.count("warning: "), 1 if pattern else 0, err)
                self.assertIn(pattern, err)
        # Following the advice compiles without a warning.
        err = self.warned(after["Softmax"], {"p": [4, 3]}, 'kind = "cross_entropy"\nof = "head"\ntarget = "t"')
        self.assertNotIn("warning", err)

    def test_class_axis(self):
        """[batch, sequence, vocabulary] is ambiguous if there are as many classes as positions; otherwise the targets' shape decides."""
        for classes in (4, 6):
            models.save(self.folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["logits"], "head")], {"x": [2, 4, 5]},
                        {"logits": [2, 4, classes]}, {"w": models.random(1, 5, classes)})
            recipe = self.write("r.toml", models.CLASSES)
            if classes == 4:
                self.refuse(1, [r"loss\.class_axis", "axis 1 or the last", "-1"], "tcc", "m.onnx", "-o", "p.tplan", "--recipe", recipe)
            else:
                self.compile("m.onnx", "--recipe", recipe, plan="p.tplan")
                data = self.save("d.safetensors", x=np.zeros((6, 4, 5), np.float32), labels=np.zeros((6, 4), np.int64))
                self.refuse(1, ["'labels'", r"tcc --set loss\.class_axis=-1"], "trun", "p.tplan", "--data", data, "--out", "run")
            plan = self.compile("m.onnx", "--recipe", recipe, "--set", "loss.class_axis=-1", plan="q.tplan")
            data = self.save("d.safetensors", x=np.zeros((6, 4, 5), np.float32), labels=np.zeros((6, 4), np.int64))
            self.succeed("trun", plan, "--data", data, "--out", f"run-{classes}", "--steps", 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
