"""--dequantize: quantised models become the floating-point models that they approximate."""
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

import models
import quantized
from common import EndToEnd, metrics

RECIPE = models.CLASSES + '[optimizer]\nkind = "adamw"\nlr = 5e-3\n'


class Dequantize(EndToEnd):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("recipe.toml", RECIPE)

    def predict(self, model, data, *arguments):
        self.compile(model, "--entry", "predict", *arguments, plan="predict.tplan")
        inputs = {n: v[:quantized.BATCH] for n, v in data.items() if n != "labels"}
        self.succeed("trun", "predict", "predict.tplan", "--inputs", self.save("in.safetensors", **inputs), "--outputs",
                     "out.safetensors")
        return next(iter(safetensors.numpy.load_file(self.folder / "out.safetensors").values()))

    def check(self, original, model, data, tolerance, weights, steps=40):
        """Without the option the model is refused with a message that offers it. With it, predictions are near those of the quantised
        model, gradients are right, and the model trains and is exported as a floating-point model that has the reported loss in
        onnxruntime."""
        self.refuse(1, ["--dequantize"], "tcc", model, "--recipe", self.recipe, "-o", "no.tplan")
        first = {n: v[:quantized.BATCH] for n, v in data.items()}
        logits = self.predict(model, data, "--dequantize")
        expected = quantized.predictions(model, first)
        self.assertLess(np.abs(logits - expected).max(), tolerance * np.abs(expected).max())
        self.succeed("tcc", "gradcheck", model, "--dequantize", "--recipe", self.recipe)
        plan = self.compile(model, "--dequantize", "--recipe", self.recipe)
        self.assertEqual(sorted(self.report(plan)["parameters"]["trainable"]), sorted(weights))
        whole = self.save("data.safetensors", **data)
        run = self.train(plan, whole, "--eval-data", whole, "--eval-every", steps, steps=steps)
        losses = [line["loss"] for line in metrics(run)[0]]
        self.assertLess(np.mean(losses[-5:]), 0.9 * np.mean(losses[:5]))
        self.succeed("trun", "export", run, "-o", "trained.onnx")
        trained = onnx.load(self.folder / "trained.onnx")
        onnx.checker.check_model(trained, full_check=True)
        self.assertEqual({i.data_type for i in trained.graph.initializer} - {TensorProto.INT64}, {TensorProto.FLOAT})
        for node in trained.graph.node:
            self.assertNotRegex(node.op_type, "Quant|Integer|QLinear|QGemm")
        reached = quantized.cross_entropy(quantized.predictions(self.folder / "trained.onnx", data), data["labels"])
        self.assertAlmostEqual(reached, metrics(run)[1][-1]["eval_loss"], delta=1e-4)
        # A weight starts within one quantisation step of the original weight.
        before = {i.name: numpy_helper.to_array(i) for i in onnx.load(original).graph.initializer}
        start = self.train(plan, whole, steps=1, out="start")
        for name, value in self.weights(start).items():
            if name in before and before[name].ndim > 1 and name in weights:
                step = (before[name].max() - before[name].min()) / 127
                # For products the quantiser writes weights as [in, out].
                value = value if value.shape == before[name].shape else value.T
                self.assertLess(np.abs(value - before[name]).max(), step + 0.01, name)

    def test_operators(self):
        source, data = quantized.cnn(self.folder / "cnn.onnx"), quantized.images(8)
        names = quantized.cnn_weights()
        self.check(source, quantized.static(source, self.folder / "q.onnx", data, "QOperator"), data, 0.05, names)

    def test_operators_by_channel(self):
        source, data = quantized.cnn(self.folder / "cnn.onnx"), quantized.images(8)
        model = quantized.static(source, self.folder / "q.onnx", data, "QOperator", per_channel=True,
                                 activation_type=quantized.QuantType.QUInt8, weight_type=quantized.QuantType.QInt8)
        self.check(source, model, data, 0.05, quantized.cnn_weights())

    def test_dynamic(self):
        source, data = quantized.cnn(self.folder / "cnn.onnx"), quantized.images(8)
        model = quantized.dynamic(source, self.folder / "q.onnx")
        self.assertIn("ConvInteger", [node.op_type for node in onnx.load(model).graph.node])
        self.check(source, model, data, 0.05, quantized.cnn_weights())

    def test_dynamic_recurrent(self):
        source, data = quantized.recurrent(self.folder / "lstm.onnx"), quantized.sentences(8)
        model = quantized.dynamic(source, self.folder / "q.onnx", per_channel=True)
        ops = [node.op_type for node in onnx.load(model).graph.node]
        self.assertTrue({"DynamicQuantizeLSTM", "MatMulInteger", "DequantizeLinear"} <= set(ops), ops)
        self.check(source, model, data, 0.05, ["table", "W", "R", "B", "head", "bias"], steps=200)

    def test_dynamic_transformer(self):
        source, data = quantized.transformer(self.folder / "attention.onnx"), quantized.sentences(8)
        data["ids"] = data["ids"].astype(np.int32)
        data["labels"] = data["ids"][:, 0] % quantized.CLASSES
        model = quantized.dynamic(source, self.folder / "q.onnx")
        ops = [node.op_type for node in onnx.load(model).graph.node]
        self.assertTrue({"QAttention", "QEmbedLayerNormalization", "MatMulInteger"} <= set(ops), ops)
        self.check(source, model, data, 0.1, ["words", "places", "gamma", "beta", "w", "b", "head"], steps=120)

    def test_pairs(self):
        source, data = quantized.cnn(self.folder / "cnn.onnx"), quantized.images(8)
        model = quantized.static(source, self.folder / "q.onnx", data, "QDQ", per_channel=True)
        plan = self.compile(model, "--dequantize", "--recipe", self.recipe)
        self.assertEqual(sorted(self.report(plan)["parameters"]["trainable"]), sorted(quantized.cnn_weights()))
        first = {n: v[:quantized.BATCH] for n, v in data.items()}
        expected = quantized.predictions(model, first)
        self.assertLess(np.abs(self.predict(model, data, "--dequantize") - expected).max(), 0.05 * np.abs(expected).max())

    def test_what_is_folded_into_a_range_stays(self):
        # The quantiser removes a Clip whose result it quantises, since the range of 8 bits clips in the same way.
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
                 helper.make_node("Clip", ["h", "low", "high"], ["logits"], "clip")]
        weights = {"w": models.random(1, 5, 4) * 4, "low": np.float32(-0.5), "high": np.float32(0.5)}
        source = models.save(self.folder / "clip.onnx", nodes, {"x": [16, 5]}, {"logits": [16, 4]}, weights)
        data = {"x": np.random.default_rng(1).standard_normal((64, 5)).astype(np.float32)}
        model = quantized.static(source, self.folder / "q.onnx", data, "QOperator")
        self.assertNotIn("Clip", [node.op_type for node in onnx.load(model).graph.node])
        logits = self.predict(model, data, "--dequantize")
        self.assertLess(np.abs(logits).max(), 0.51)
        np.testing.assert_allclose(logits, quantized.predictions(model, {"x": data["x"][:16]}), atol=0.05)

    def test_what_has_no_meaning_is_named(self):
        # An integer product's result is read before it is scaled.
        f, u = TensorProto.FLOAT, TensorProto.UINT8
        nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"),
                 helper.make_node("MatMulInteger", ["q", "w", "z"], ["p"], "product"),
                 helper.make_node("Abs", ["p"], ["y"], "surprise")]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", f, [4, 5])],
                                  [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 3])],
                                  [numpy_helper.from_array(np.ones((5, 3), np.uint8), "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / "odd.onnx")
        self.refuse(1, [r"odd\.onnx: --dequantize: surprise: Abs"], "tcc", "odd.onnx", "--dequantize")

    def test_types_that_are_not_read(self):
        for type, name in ((TensorProto.INT4, "INT4"), (TensorProto.FLOAT8E4M3FN, "FLOAT8E4M3FN")):
            nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["v"], "weight"),
                     helper.make_node("MatMul", ["x", "v"], ["y"], "product")]
            graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2])],
                                      [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])],
                                      [helper.make_tensor("w", type, [2, 2], [1, 2, 1, 0]),
                                       helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), self.folder / "m.onnx")
            self.refuse(1, [rf'initializer "w": .*{name}.*8-bit'], "tcc", "m.onnx", "--dequantize")
            if name == "INT4":
                self.compile("m.onnx")
            else:
                self.refuse(1, [rf'initializer "w": .*{name}.*8-bit'], "tcc", "m.onnx")
        nodes = [helper.make_node("MatMulBnb4", ["x", "w", "s"], ["y"], "nibbles", domain="com.microsoft", K=16, N=2, quant_type=1,
                                  block_size=16)]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])],
                                  [numpy_helper.from_array(np.zeros((2, 1, 8), np.uint8), "w"),
                                   numpy_helper.from_array(np.ones(2, np.float32), "s")])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), self.folder / "n.onnx")
        self.refuse(1, ["nibbles.*MatMulBnb4", "MatMulNBits, GatherBlockQuantized and DequantizeLinear are read"], "tcc", "n.onnx")


if __name__ == "__main__":
    unittest.main()
