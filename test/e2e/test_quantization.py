"""Quantisation-aware training: QuantizeLinear and DequantizeLinear train as PyTorch's fake quantisation does, and are exported again."""
import json
import unittest
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

import models
import quantized
from common import EndToEnd, metrics

PYTORCH = Path(__file__).resolve().parent / "fake_quantize" / "pytorch.json"
RECIPE = models.CLASSES + '[optimizer]\nkind = "adamw"\nlr = {}\nweight_decay = 0.0\n'


def initializers(path):
    return {i.name: numpy_helper.to_array(i).copy() for i in onnx.load(path).graph.initializer}


class FakeQuantization(EndToEnd):
    def test_values_and_gradients_are_pytorchs(self):
        for case in json.loads(PYTORCH.read_text()):
            with self.subTest(case["name"]):
                def array(key, dtype=np.float32):
                    return np.array(case[key], dtype)
                integers = {"INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16}[case["type"]]
                several = case["axis"] is not None
                scale, zero = array("scale"), array("zero_point", integers)
                x, g = array("x").reshape(case["shape"]), array("g").reshape(case["shape"])
                axis = {"axis": case["axis"]} if several else {}
                nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantise", **axis),
                         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "dequantise", **axis),
                         helper.make_node("Mul", ["y", "g"], ["p"], "weigh"),
                         helper.make_node("ReduceSum", ["p"], ["loss"], "sum", keepdims=0)]
                weights = {"x": x, "g": g, "s": scale if several else scale[0], "z": zero if several else zero[0]}
                models.save(self.folder / "m.onnx", nodes, {}, {"y": case["shape"], "loss": []}, weights, opset=21)
                self.compile("m.onnx", "--set", 'model.frozen=["g"]', "--entry", "gradients,predict")
                empty = self.save("none.safetensors")
                self.succeed("trun", "gradients", "plan.tplan", "--inputs", empty, "--outputs", "g.safetensors")
                self.succeed("trun", "predict", "plan.tplan", "--inputs", empty, "--outputs", "y.safetensors")
                made = safetensors.numpy.load_file(self.folder / "g.safetensors")["x"]
                np.testing.assert_array_equal(made.ravel(), array("gradient"))
                made = safetensors.numpy.load_file(self.folder / "y.safetensors")["y"]
                np.testing.assert_allclose(made.ravel(), array("y"), rtol=1e-6, atol=0)


class QuantizationAware(EndToEnd):
    def recipe(self, rate):
        return self.write("recipe.toml", RECIPE.format(rate))

    def uneven(self):
        """A trained classifier whose channels differ so much in magnitude that one scale for all of them is coarse."""
        source, data = quantized.cnn(self.folder / "start.onnx", residual=False), quantized.images(12)
        recipe = self.recipe(1e-2)
        plan = self.compile(source, "--recipe", recipe)
        run = self.train(plan, self.save("data.safetensors", **data), steps=60, out="float")
        weights = initializers(run / "model.onnx")
        factors = (np.geomspace(1, 150, 8) / np.sqrt(150)).astype(np.float32)
        weights["conv1.weight"] *= factors[:, None, None, None]
        weights["conv1.bias"] *= factors
        weights["conv2.weight"] /= factors[None, :, None, None]
        return quantized.cnn(self.folder / "cnn.onnx", weights, residual=False), data

    def same_form(self, before, after):
        """The exported file differs from the model in numbers alone: the same nodes, and initializers of the same types and shapes."""
        first, second = onnx.load(before).graph, onnx.load(after).graph
        self.assertEqual([n.SerializeToString() for n in first.node], [n.SerializeToString() for n in second.node])
        self.assertEqual([(i.name, i.data_type, list(i.dims)) for i in first.initializer],
                         [(i.name, i.data_type, list(i.dims)) for i in second.initializer])

    def check(self, mode, **options):
        source, data = self.uneven()
        model = quantized.static(source, self.folder / "q.onnx", data, "QDQ", **options)
        labels = data["labels"]
        whole = self.save("data.safetensors", **data)
        before = quantized.cross_entropy(quantized.predictions(source, data), labels)
        logits = quantized.predictions(model, data, optimise=False)
        spoiled, wrong = quantized.cross_entropy(logits, labels), 1 - quantized.accuracy(logits, labels)
        self.assertGreater(spoiled, before + 0.2)
        plan = self.compile(model, "--recipe", self.recipe(3e-4), "--set", f'model.quantize="{mode}"')
        run = self.train(plan, whole, "--eval-data", whole, "--eval-every", 120, steps=120)
        self.assertAlmostEqual(metrics(run)[0][0]["loss"], quantized.cross_entropy(
            quantized.predictions(model, {n: v[:quantized.BATCH] for n, v in data.items()}, optimise=False),
            labels[:quantized.BATCH]), delta=2e-3 if mode == "fixed" else 0.2)
        self.succeed("trun", "export", run, "-o", "trained.onnx")
        self.same_form(model, self.folder / "trained.onnx")
        onnx.checker.check_model(self.folder / "trained.onnx", full_check=True)
        logits = quantized.predictions(self.folder / "trained.onnx", data, optimise=False)
        reached = quantized.cross_entropy(logits, labels)
        self.assertLess(reached, spoiled - 0.5 * (spoiled - before))
        self.assertLess(1 - quantized.accuracy(logits, labels), 0.5 * wrong)
        self.assertAlmostEqual(reached, metrics(run)[1][-1]["eval_loss"], delta=1e-4)
        # Integer kernels round the sums of products in another way.
        integers = quantized.cross_entropy(quantized.predictions(self.folder / "trained.onnx", data), labels)
        self.assertAlmostEqual(integers, reached, delta=0.05)
        return model, self.folder / "trained.onnx"

    def test_scales_of_the_file_stay(self):
        model, trained = self.check("fixed")
        before, after = initializers(model), initializers(trained)
        moved = {name for name in before if not np.array_equal(before[name], after[name])}
        self.assertLess({"fc.weight_quantized", "conv2.bias_quantized"}, moved)
        self.assertEqual({name for name in moved if not name.endswith("_quantized")}, set())

    def test_scales_by_channel(self):
        source, data = quantized.cnn(self.folder / "cnn.onnx"), quantized.images(4)
        model = quantized.static(source, self.folder / "q.onnx", data, "QDQ", per_channel=True)
        recipe = self.recipe(0.0)
        self.succeed("tcc", "gradcheck", model, "--recipe", recipe)
        plan = self.compile(model, "--recipe", recipe)
        self.assertEqual(len(self.report(plan)["parameters"]["trainable"]), 6)
        run = self.train(plan, self.save("data.safetensors", **data), steps=1)
        # No weight moved, so the same integers come back.
        self.same_form(model, run / "model.onnx")
        before, after = initializers(model), initializers(run / "model.onnx")
        for name, value in before.items():
            np.testing.assert_array_equal(value, after[name], name)

    def test_weights_that_are_moved_or_floating_point(self):
        # A table that is looked up before it is dequantised, a weight that is quantised in the graph.
        f, node = TensorProto.FLOAT, helper.make_node
        nodes = [node("Gather", ["table", "ids"], ["rows"], "look-up"),
                 node("DequantizeLinear", ["rows", "ts", "tz"], ["e"], "dequantise"),
                 node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], "w_q"),
                 node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "w_dq"),
                 node("MatMul", ["e", "wd"], ["h"], "product"),
                 node("QuantizeLinear", ["h", "hs", "hz"], ["hq"], "h_q"),
                 node("Reshape", ["hq", "shape"], ["hr"], "reshape"),
                 node("DequantizeLinear", ["hr", "hs", "hz"], ["logits"], "h_dq")]
        u = np.uint8
        weights = {"table": np.random.default_rng(1).integers(0, 255, (10, 6)).astype(u), "ts": np.float32(0.02),
                   "tz": u(120), "w": models.random(3, 6, 4), "ws": np.float32(0.01), "wz": np.int8(0),
                   "hs": np.float32(0.05), "hz": u(128), "shape": np.array([16, 4], np.int64)}
        models.save(self.folder / "m.onnx", nodes, {}, {"logits": [16, 4]}, weights)
        model = onnx.load(self.folder / "m.onnx")
        model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [16, 1]))
        onnx.save(model, self.folder / "m.onnx")
        data = {"ids": np.random.default_rng(2).integers(0, 10, (64, 1))}
        data["labels"] = data["ids"][:, 0] % 4
        for mode in ("fixed", "observe"):
            with self.subTest(mode):
                arguments = ("--recipe", self.recipe(2e-2), "--set", f'model.quantize="{mode}"')
                self.succeed("tcc", "gradcheck", "m.onnx", *arguments)
                plan = self.compile("m.onnx", *arguments)
                self.assertEqual(sorted(self.report(plan)["parameters"]["trainable"]), ["table", "w"])
                whole = self.save("data.safetensors", **data)
                run = self.train(plan, whole, "--eval-data", whole, "--eval-every", 40, steps=40, out=mode)
                losses = [line["loss"] for line in metrics(run)[0]]
                self.assertLess(losses[-1], 0.7 * losses[0])
                self.same_form(self.folder / "m.onnx", run / "model.onnx")
                before, after = initializers(self.folder / "m.onnx"), initializers(run / "model.onnx")
                self.assertGreater(np.count_nonzero(before["table"] != after["table"]), 30)
                for name in ("ts", "ws", "hs"):
                    self.assertEqual(before[name] == after[name], mode == "fixed", name)
                reached = quantized.cross_entropy(quantized.predictions(run / "model.onnx", data, optimise=False), data["labels"])
                self.assertAlmostEqual(reached, metrics(run)[1][-1]["eval_loss"], delta=1e-4)

    def test_as_torch_exports_it(self):
        # Weights in floating point, zero points shared through Identity, and 7 bits of 8 by a Clip of integers.
        node = helper.make_node
        nodes = [node("Identity", ["zeros"], ["zeros2"]), node("Identity", ["z"], ["z2"]),
                 node("QuantizeLinear", ["x", "xs", "z"], ["xq"], "x_q"), node("Clip", ["xq", "", "most"], ["xc"], "x_clip"),
                 node("DequantizeLinear", ["xc", "xs", "z"], ["xd"], "x_dq"),
                 node("QuantizeLinear", ["w1", "s1", "zeros"], ["q1"], "w1_q", axis=0),
                 node("DequantizeLinear", ["q1", "s1", "zeros"], ["d1"], "w1_dq", axis=0),
                 node("Gemm", ["xd", "d1", "b1"], ["h"], "first", transB=1), node("Relu", ["h"], ["r"], "relu"),
                 node("QuantizeLinear", ["r", "rs", "z2"], ["rq"], "r_q"), node("Clip", ["rq", "", "most"], ["rc"], "r_clip"),
                 node("DequantizeLinear", ["rc", "rs", "z2"], ["rd"], "r_dq"),
                 node("QuantizeLinear", ["w2", "s2", "zeros2"], ["q2"], "w2_q", axis=0),
                 node("DequantizeLinear", ["q2", "s2", "zeros2"], ["d2"], "w2_dq", axis=0),
                 node("Gemm", ["rd", "d2", "b2"], ["logits"], "second", transB=1)]
        w1, w2 = models.random(1, 4, 5), models.random(3, 4, 4)
        weights = {"w1": w1, "b1": models.random(2, 4), "w2": w2, "b2": models.random(4, 4),
                   "s1": np.abs(w1).max(1) / 127, "s2": np.abs(w2).max(1) / 127, "zeros": np.zeros(4, np.int8),
                   "xs": np.float32([0.05]), "rs": np.float32([0.02]), "z": np.uint8([64]), "most": np.uint8(127)}
        models.save(self.folder / "m.onnx", nodes, {"x": [16, 5]}, {"logits": [16, 4]}, weights)
        rng = np.random.default_rng(3)
        data = {"x": rng.standard_normal((64, 5)).astype(np.float32), "labels": rng.integers(0, 4, 64)}
        whole = self.save("data.safetensors", **data)
        for mode in ("fixed", "observe"):
            with self.subTest(mode):
                plan = self.compile("m.onnx", "--recipe", self.recipe(1e-2), "--set", f'model.quantize="{mode}"')
                self.assertEqual(sorted(self.report(plan)["parameters"]["trainable"]), ["b1", "b2", "w1", "w2"])
                run = self.train(plan, whole, "--eval-data", whole, "--eval-every", 20, steps=20, out=mode)
                self.same_form(self.folder / "m.onnx", run / "model.onnx")
                reached = quantized.cross_entropy(quantized.predictions(run / "model.onnx", data, optimise=False), data["labels"])
                self.assertAlmostEqual(reached, metrics(run)[1][-1]["eval_loss"], delta=1e-4)
                after = initializers(run / "model.onnx")
                self.assertEqual(np.array_equal(after["s1"], weights["s1"]), mode == "fixed")
                if mode == "observe":
                    np.testing.assert_allclose(after["s1"], np.abs(after["w1"]).max(1) / 127, rtol=1e-6)
        # In the floating-point model the Clip of integers is a Clip of floating-point values.
        plan = self.compile("m.onnx", "--recipe", self.recipe(1e-2), "--dequantize")
        run = self.train(plan, whole, "--eval-data", whole, "--eval-every", 1, steps=1, out="float")
        self.assertEqual({v.dtype for v in initializers(run / "model.onnx").values()}, {np.dtype(np.float32)})
        expected = quantized.cross_entropy(quantized.predictions(self.folder / "m.onnx", data), data["labels"])
        self.assertAlmostEqual(metrics(run)[0][0]["loss"], expected, delta=0.2)

    def test_scales_follow_the_values(self):
        model, trained = self.check("observe")
        before, after = initializers(model), initializers(trained)
        for name in before:
            if name.endswith("_scale"):
                self.assertFalse(np.array_equal(before[name], after[name]), name)
            # A Relu was folded into a range that starts at 0, and the range still starts there.
            if name in ("r1_zero_point", "r2_zero_point"):
                self.assertEqual(after[name], -128)
        # The largest weight reaches step 127.
        for name in ("conv1.weight_quantized", "conv2.weight_quantized", "fc.weight_quantized"):
            self.assertEqual(np.abs(after[name].astype(int)).max(), 127, name)

    def test_observed_ranges_are_pytorchs(self):
        # MovingAverageMinMaxObserver: three batches, averaging_constant 0.01, from the range that the file gives.
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantise"),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"], "dequantise"),
                 helper.make_node("MatMul", ["r", "w"], ["prediction"], "product")]
        weights = {"s": np.float32(0.02), "z": np.uint8(100), "w": models.random(1, 5, 1)}
        models.save(self.folder / "m.onnx", nodes, {"x": [4, 5]}, {"prediction": [4, 1]}, weights)
        rng = np.random.default_rng(3)
        data = {"x": (rng.standard_normal((12, 5)) * 3).astype(np.float32), "y": np.zeros((12, 1), np.float32)}
        self.write("recipe.toml", models.SQUARES + models.SGD + '[model]\nquantize = "observe"\n')
        plan = self.compile("m.onnx", "--recipe", "recipe.toml")
        run = self.train(plan, self.save("data.safetensors", **data), steps=3, out="run")
        low, high = np.float32(-100 * 0.02), np.float32(155 * 0.02)
        for batch in data["x"].reshape(3, 4, 5):
            low, high = low + 0.01 * (batch.min() - low), high + 0.01 * (batch.max() - high)
        scale = (high - low) / 255
        after = initializers(run / "model.onnx")
        self.assertAlmostEqual(float(after["s"]), scale, delta=1e-6 * scale)
        self.assertEqual(int(after["z"]), round(-low / scale))
        # The ranges' state is saved with the run: a resumed run has the ranges of an uninterrupted one.
        half = self.train(plan, self.folder / "data.safetensors", steps=2, out="half")
        self.succeed("trun", plan, "--data", "data.safetensors", "--no-shuffle", "--resume", half, "--steps", 3)
        self.assertEqual((half / "model.onnx").read_bytes(), (run / "model.onnx").read_bytes())

    def test_what_cannot_be_observed(self):
        self.refuse(1, [r"recipe\.toml:\d+:\d+: model\.quantize", "no pair of QuantizeLinear"], "tcc",
                    models.mlp(self.folder / "mlp.onnx"), "--recipe",
                    self.write("recipe.toml", models.SQUARES + '[model]\nquantize = "observe"\n'))
        self.refuse(1, ["model.quantize", "fixed", "observe"], "tcc", "mlp.onnx", "--set", 'model.quantize="observed"')


if __name__ == "__main__":
    unittest.main()
