"""Modes: batch norm and dropout train as the export or the recipe says, and are in inference mode everywhere else."""
import unittest

import models
import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from common import EndToEnd, metrics
from onnx import helper

BATCH, CHANNELS, MOMENTUM, EPSILON = 8, 3, 0.9, 1e-5


def normalised(path, opset=17, training=True):
    """x [batch, 3, 4] → batch norm → mean over positions → prediction [batch, 1]."""
    modern = opset >= 14
    outputs = ["n"] + ((["m", "v"] if modern else ["m", "v", "sm", "sv"]) if training else [])
    attributes = {"training_mode": 1} if training and modern else {}
    nodes = [helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], outputs, "norm",
                              epsilon=EPSILON, momentum=MOMENTUM, **attributes),
             helper.make_node("Tanh", ["n"], ["t"], "tanh"),
             helper.make_node("ReduceMean", ["t"], ["r"], "pool", axes=[2], keepdims=0),
             helper.make_node("Gemm", ["r", "w", "b"], ["prediction"], "head", transB=1)]
    weights = {"scale": np.array([1, 0.5, 2], np.float32), "bias": np.array([0, 0.1, -0.2], np.float32),
               "mean": np.array([0.3, 0, -1], np.float32), "var": np.array([1, 2, 0.5], np.float32),
               "w": models.random(3, 1, CHANNELS), "b": models.random(4, 1)}
    models.save(path, nodes, {"x": [BATCH, CHANNELS, 4]}, {"prediction": [BATCH, 1]}, weights, opset=opset)
    return weights


def samples(rows, seed=5):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, CHANNELS, 4)) * [[1], [3], [0.2]] + [[0], [2], [-1]]).astype(np.float32)
    return {"x": x, "y": np.sin(x.sum((1, 2))).astype(np.float32)[:, None]}


def forward(x, w, mean, var):
    n = (x - mean[:, None]) / np.sqrt(var[:, None] + EPSILON) * w["scale"][:, None] + w["bias"][:, None]
    return np.tanh(n).mean(2) @ w["w"].T + w["b"]


def moved(running, batches):
    """PyTorch's running statistics after these batches: unbiased variance."""
    mean, var = running
    for x in batches:
        mean = MOMENTUM * mean + (1 - MOMENTUM) * x.mean((0, 2))
        var = MOMENTUM * var + (1 - MOMENTUM) * x.var((0, 2), ddof=1)
    return mean, var


class BatchNorm(EndToEnd):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("r.toml", models.SQUARES + models.SGD)
        self.columns = samples(32)
        self.data = self.save("d.safetensors", **self.columns)
        self.batches = [self.columns["x"][i:i + BATCH] for i in range(0, 32, BATCH)]

    def test_torchs_counter_of_batches_goes_without_saying(self):
        """state_dict() contains it with the running statistics; an exported graph does not."""
        weights = normalised(self.folder / "m.onnx")
        file = onnx.load(self.folder / "m.onnx")
        names = {"mean": "n.running_mean", "var": "n.running_var", "scale": "n.weight", "bias": "n.bias"}
        for item in file.graph.initializer:
            item.name = names.get(item.name, item.name)
        for index, name in enumerate(file.graph.node[0].input):
            file.graph.node[0].input[index] = names.get(name, name)
        onnx.save(file, self.folder / "named.onnx")
        plan = self.compile("named.onnx", "--recipe", self.recipe)
        given = {names.get(k, k): v for k, v in weights.items()}
        self.save("w.safetensors", **given, **{"n.num_batches_tracked": np.array(7)})
        self.train(plan, self.data, "--init", "w.safetensors")
        self.save("o.safetensors", **given, **{"m.num_batches_tracked": np.array(7)})
        self.refuse(1, [r"the model has no 'm\.num_batches_tracked'"], "trun", plan, "--data", self.data, "--init", "o.safetensors",
                    "--out", "other")

    def losses(self, run):
        return [u["loss"] for u in metrics(self.folder / run)[0]]

    def test_trains_by_the_batch_and_keeps_running_statistics(self):
        for opset in (9, 13, 14, 17):
            with self.subTest(opset=opset):
                weights = normalised(self.folder / "m.onnx", opset)
                plan = self.compile("m.onnx", "--recipe", self.recipe)
                run = self.train(plan, self.data, steps=3, out=f"run{opset}")
                x, y = self.batches[0], self.columns["y"][:BATCH]
                first = np.mean((forward(x, weights, x.mean((0, 2)), x.var((0, 2))) - y) ** 2)
                self.assertAlmostEqual(self.losses(run)[0], first, delta=2e-6)
                trained = self.weights(run)
                mean, var = moved((weights["mean"], weights["var"]), self.batches[:3])
                np.testing.assert_allclose(trained["mean"], mean, rtol=2e-6)
                np.testing.assert_allclose(trained["var"], var, rtol=2e-6)
                # Evaluation and prediction take the running statistics.
                evaluated = self.succeed("trun", "eval", plan, "--data", self.data, "--from", run).out
                expected = forward(self.columns["x"], trained, trained["mean"], trained["var"])
                self.assertAlmostEqual(float(evaluated.split('"eval_loss":')[1].split(",")[0]),
                                       np.mean((expected - self.columns["y"]) ** 2), delta=2e-6)
                self.save("in.safetensors", x=self.batches[0])
                self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--from", run)
                predicted = safetensors.numpy.load_file(self.folder / "out.safetensors")["prediction"]
                np.testing.assert_allclose(predicted, expected[:BATCH], atol=2e-6)
                self.check_export(run, opset, expected)

    def check_export(self, run, opset, expected):
        self.succeed("trun", "export", run, "-o", "out.onnx")
        session = onnxruntime.InferenceSession(str(self.folder / "out.onnx"))
        outputs = [session.run(None, {"x": x})[0] for x in self.batches]
        np.testing.assert_allclose(np.concatenate(outputs), expected, atol=2e-6)
        self.succeed("trun", "export", run, "-o", "kept.onnx", "--keep-mode")
        kept = onnx.load(self.folder / "kept.onnx").graph.node[0]
        self.assertEqual(len(kept.output), 3 if opset >= 14 else 5)

    def test_statistics_that_are_read_are_the_running_ones_in_an_export(self):
        for opset in (9, 17):
            with self.subTest(opset=opset):
                normalised(self.folder / "m.onnx", opset)
                model = onnx.load(self.folder / "m.onnx")
                model.graph.output.append(helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [CHANNELS]))
                onnx.save(model, self.folder / "m.onnx")
                run = self.train(self.compile("m.onnx", "--recipe", self.recipe), self.data, steps=2, out=f"run{opset}")
                self.succeed("trun", "export", run, "-o", "out.onnx")
                session = onnxruntime.InferenceSession(str(self.folder / "out.onnx"))
                mean = session.run(["m"], {"x": self.batches[0]})[0]
                np.testing.assert_array_equal(mean, self.weights(run)["mean"])

    def test_statistics_move_once_a_micro_batch(self):
        weights = normalised(self.folder / "m.onnx")
        plan = self.compile("m.onnx", "--recipe", self.recipe, "--set", "train.accumulate=2")
        trained = self.weights(self.train(plan, self.data, steps=2))
        mean, var = moved((weights["mean"], weights["var"]), self.batches)
        np.testing.assert_allclose(trained["mean"], mean, rtol=2e-6)
        np.testing.assert_allclose(trained["var"], var, rtol=2e-6)

    def test_an_eval_export_trains_where_the_recipe_says_so(self):
        normalised(self.folder / "train.onnx")
        normalised(self.folder / "eval.onnx", training=False)
        both = []
        for model, setting in (("train.onnx", "as-exported"), ("eval.onnx", "train")):
            plan = self.compile(model, "--recipe", self.recipe, "--set", f'model.batch_norm="{setting}"')
            run = self.train(plan, self.data, steps=3, out=model + ".run")
            both.append((self.losses(run), {k: v.tobytes() for k, v in self.weights(run).items()}))
        self.assertEqual(both[0], both[1])
        frozen = self.compile("eval.onnx", "--recipe", self.recipe)
        run = self.train(frozen, self.data, steps=3, out="frozen")
        self.assertNotEqual(self.losses(run), both[0][0])
        np.testing.assert_array_equal(self.weights(run)["var"], np.array([1, 2, 0.5], np.float32))

    def test_the_default_changes_nothing_when_it_is_set(self):
        """If the exporter wrote the norms of a module in train() mode in inference mode, "as-exported" keeps them so."""
        normalised(self.folder / "traced.onnx", training=False)
        model = onnx.load(self.folder / "traced.onnx")
        call = "[target=torch.ops.aten._native_batch_norm_legit_functional.default](args = (%x, %s, %b, %m, %v, True, 0.1, 1e-05)"
        model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
        onnx.save(model, self.folder / "traced.onnx")
        runs = {}
        for setting in ("", "auto", "as-exported", "train"):
            chosen = ("--set", f'model.batch_norm="{setting}"', "--set", 'model.dropout="auto"') if setting else ()
            plan = self.compile("traced.onnx", "--recipe", self.recipe, *chosen)
            run = self.train(plan, self.data, steps=3, out=f"run{setting}")
            runs[setting] = (self.losses(run), {k: v.tobytes() for k, v in self.weights(run).items()})
        self.assertEqual(runs["auto"], runs[""])
        self.assertEqual(runs["train"], runs[""])
        self.assertNotEqual(runs["as-exported"], runs[""])

    def test_gradients(self):
        normalised(self.folder / "m.onnx")
        out = self.succeed("tcc", "gradcheck", "m.onnx", "--recipe", self.recipe).out
        self.assertIn("4 of 4 gradients agree", out)

    def test_a_resumed_run_keeps_its_statistics(self):
        normalised(self.folder / "m.onnx")
        plan = self.compile("m.onnx", "--recipe", self.recipe)
        whole = self.weights(self.train(plan, self.data, steps=5, out="whole"))
        parts = self.train(plan, self.data, steps=2, out="parts")
        self.succeed("trun", plan, "--data", self.data, "--no-shuffle", "--steps", 5, "--resume", parts)
        for name, value in self.weights(parts).items():
            self.assertEqual(value.tobytes(), whole[name].tobytes(), name)

    def test_without_a_recipe_the_graph_decides(self):
        weights = normalised(self.folder / "m.onnx")
        plan = self.compile("m.onnx")
        x = self.batches[1]
        self.save("in.safetensors", x=x)
        self.save("w.safetensors", **{k: weights[k] for k in ("w", "b")})
        for source, mean, var in (((), x.mean((0, 2)), x.var((0, 2))),
                                  (("--from", "w.safetensors"), weights["mean"], weights["var"])):
            self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", "out.safetensors", *source)
            predicted = safetensors.numpy.load_file(self.folder / "out.safetensors")["prediction"]
            np.testing.assert_allclose(predicted, forward(x, weights, mean, var), atol=2e-6)

    def test_what_the_export_left_out_is_named(self):
        models.mlp(self.folder / "m.onnx")
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        self.refuse(1, ["model.batch_norm", "no BatchNormalization", "torch.onnx.export"], "tcc", "m.onnx", "--recipe", recipe,
                    "--set", 'model.batch_norm="train"')
        self.refuse(1, ["model.dropout", "no Dropout", "torch.onnx.export"], "tcc", "m.onnx", "--recipe", recipe,
                    "--set", "model.dropout=0.1")
        self.compile("m.onnx", "--recipe", recipe, "--set", "model.dropout=0.0")

    def test_one_value_per_channel_has_no_variance(self):
        nodes = [helper.make_node("BatchNormalization", ["x", "s", "c", "m", "v"], ["prediction", "n", "o"], "norm", training_mode=1)]
        models.save(self.folder / "m.onnx", nodes, {"x": [1, 5]}, {"prediction": [1, 5]},
                    {k: np.ones(5, np.float32) for k in "scmv"})
        self.refuse(1, ["norm", "1 value per channel"], "tcc", "m.onnx", "--recipe", self.recipe)


class InferenceExports(EndToEnd):
    """A model exported in eval() mode trains without dropout and batch norms: one warning says so, but only when it is trained."""

    def said(self, nodes, weights, shape, *arguments, producer="pytorch"):
        models.save(self.folder / "m.onnx", nodes, {"x": shape}, {"prediction": [4, 1]}, weights)
        model = onnx.load(self.folder / "m.onnx")
        model.producer_name = producer
        onnx.save(model, self.folder / "m.onnx")
        result = self.succeed("tcc", "m.onnx", "-o", "p.tplan", "--recipe", self.write("r.toml", models.SQUARES), *arguments)
        return [line for line in result.err.splitlines() if line.startswith("warning: ")]

    def test_one_warning(self):
        head = helper.make_node("Gemm", ["x", "w", "b"], ["prediction"], "head", transB=1)
        weights = {"w": models.random(1, 1, 5), "b": models.random(2, 1)}
        (said,) = self.said([head], weights, [4, 5])
        for part in ("m.onnx", "it has no dropout and no batch norm", "model.train()", "model.dropout"):
            self.assertIn(part, said)
        # No warning: after the advice that needs no new export, for other entries, for other exporters.
        self.assertEqual(self.said([head], weights, [4, 5], "--set", "model.dropout=as-exported"), [])
        self.assertEqual(self.said([head], weights, [4, 5], "--entry", "evaluate,predict"), [])
        self.assertEqual(self.said([head], weights, [4, 5], producer="keras2onnx"), [])
        # A Dropout in training mode.
        drops = [helper.make_node("Dropout", ["x", "ratio", "training"], ["d"], "drop"),
                 helper.make_node("Gemm", ["d", "w", "b"], ["prediction"], "head", transB=1)]
        self.assertEqual(self.said(drops, weights | {"ratio": np.float32(0.5), "training": np.bool_(True)}, [4, 5]), [])

    def test_norms(self):
        norm = helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["n"], "norm")
        tail = [helper.make_node("GlobalAveragePool", ["n"], ["g"], "pool"), helper.make_node("Flatten", ["g"], ["f"], "flat"),
                helper.make_node("Gemm", ["f", "w"], ["prediction"], "head", transB=1)]
        ones = np.ones(3, np.float32)
        weights = {"w": models.random(1, 1, 3)}
        (said,) = self.said([norm, *tail], weights | {"scale": ones, "bias": ones, "mean": ones, "var": ones}, [4, 3, 6])
        self.assertIn('BatchNormalization uses its running statistics (model.batch_norm = "train" trains it)', said)
        self.assertEqual(self.said([norm, *tail], weights | {"scale": ones, "bias": ones, "mean": ones, "var": ones}, [4, 3, 6],
                                   "--set", "model.batch_norm=train"), [])
        conv = helper.make_node("Conv", ["x", "onnx::Conv_12", "bias"], ["n"], "conv")
        (said,) = self.said([conv, *tail], weights | {"onnx::Conv_12": models.random(2, 3, 3, 1), "bias": ones}, [4, 3, 6])
        self.assertIn("BatchNormalization is folded into convolutions (onnx::Conv_12)", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
