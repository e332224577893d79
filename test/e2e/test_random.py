"""Random numbers: the forward and backward pass use the same mask, however a model is compiled, run and resumed."""
import unittest

import models
import numpy as np
import onnx
import safetensors.numpy
from common import EndToEnd, metrics
from onnx import TensorProto, helper, numpy_helper

RATE = 0.25


def dropped(path, opset=17, training=True, ratio=0.5):
    """x [8, 5] → Gemm → dropout → Gemm → prediction [8, 1]."""
    inputs = ["h", "ratio", "training"] if opset >= 12 else ["h"]
    attributes = {} if opset >= 12 else {"ratio": ratio}
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["g"], "first", transB=1),
             helper.make_node("Tanh", ["g"], ["h"], "tanh"),
             helper.make_node("Dropout", inputs, ["d"], "drop", **attributes),
             helper.make_node("Gemm", ["d", "w2", "b2"], ["prediction"], "second", transB=1)]
    weights = {"w1": models.random(1, 16, 5), "b1": models.random(2, 16), "w2": models.random(3, 1, 16), "b2": models.random(4, 1)}
    if opset >= 12:
        weights |= {"ratio": np.array(ratio, np.float32), "training": np.array(training)}
    return models.save(path, nodes, {"x": [8, 5]}, {"prediction": [8, 1]}, weights, opset=opset)


class Dropout(EndToEnd):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("r.toml", models.SQUARES + models.SGD)
        self.data = self.save("d.safetensors", **models.mlp_data(32))
        dropped(self.folder / "m.onnx")

    def outcome(self, out, *settings, steps=4, threads=2, arguments=()):
        plan = self.compile("m.onnx", "--recipe", self.recipe, *[w for s in settings for w in ("--set", s)], plan=out + ".tplan")
        run = self.train(plan, self.data, "--threads", threads, *arguments, steps=steps, out=out)
        return [u["loss"] for u in metrics(run)[0]], {k: v.tobytes() for k, v in self.weights(run).items()}

    def test_gradient_and_loss_see_one_mask(self):
        self.assertIn("4 of 4 gradients agree", self.succeed("tcc", "gradcheck", "m.onnx", "--recipe", self.recipe).out)

    def test_bits_do_not_depend_on_how_it_is_computed(self):
        usual = self.outcome("usual")
        self.assertEqual(self.outcome("one", threads=1), usual)
        self.assertEqual(self.outcome("unfused", "compiler.fuse=false"), usual)

    def test_a_resumed_run_draws_what_the_whole_one_did(self):
        for accumulate in (1, 3):
            with self.subTest(accumulate=accumulate):
                setting = f"train.accumulate={accumulate}"
                whole = self.outcome(f"whole{accumulate}", setting)
                plan = self.folder / f"whole{accumulate}.tplan"
                parts = self.train(plan, self.data, steps=2, out=f"parts{accumulate}")
                self.succeed("trun", plan, "--data", self.data, "--steps", 4, "--resume", parts)
                self.assertEqual([u["loss"] for u in metrics(parts)[0]], whole[0])
                self.assertEqual({k: v.tobytes() for k, v in self.weights(parts).items()}, whole[1])

    def test_the_seed_decides(self):
        usual = self.outcome("usual")
        self.assertNotEqual(self.outcome("other", "train.seed=1")[0], usual[0])
        self.assertEqual(self.outcome("given", arguments=("--seed", 1))[0], self.outcome("again", "train.seed=1")[0])

    def test_each_update_and_micro_batch_draws_its_own(self):
        """The same rows again and again, at rate 0: losses can differ by the mask alone."""
        row = models.mlp_data(8)
        self.data = self.save("same.safetensors", **{k: np.concatenate([v] * 4) for k, v in row.items()})
        losses = self.outcome("run", "optimizer.lr=0.0")[0]
        self.assertEqual(len(set(losses)), 4)
        pairs = self.outcome("pairs", "optimizer.lr=0.0", "train.accumulate=2", steps=2)[0]
        self.assertNotIn(pairs[0], losses)
        self.assertNotEqual(pairs[0], pairs[1])

    def test_nothing_is_dropped_outside_of_training(self):
        plain = self.folder / "plain.onnx"
        dropped(plain, training=False)
        results = []
        for model in ("m.onnx", "plain.onnx"):
            plan = self.compile(model, "--recipe", self.recipe, plan=model + ".tplan")
            out = self.succeed("trun", "eval", plan, "--data", self.data).out
            self.save("in.safetensors", x=models.mlp_data(8)["x"])
            self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
            results.append((out, (self.folder / "out.safetensors").read_bytes()))
        self.assertEqual(results[0], results[1])

    def test_the_recipe_sets_the_probability(self):
        dropped(self.folder / "m.onnx", training=False)
        none = self.outcome("none")[0]
        self.assertEqual(self.outcome("zero", "model.dropout=0.0")[0], none)
        half = self.outcome("half", "model.dropout=0.5")[0]
        self.assertNotEqual(half, none)
        dropped(self.folder / "m.onnx")
        self.assertEqual(self.outcome("exported")[0], half)
        self.assertEqual(self.outcome("exported_zero", "model.dropout=0.0")[0], none)

    def test_before_opset_12_a_node_has_no_mode(self):
        dropped(self.folder / "m.onnx", opset=11)
        result = self.succeed("tcc", "m.onnx", "--recipe", self.recipe, "-o", "p.tplan")
        self.assertRegex(result.err, "Dropout of opset 11 .* model.dropout")
        self.assertNotEqual(self.outcome("set", "model.dropout=0.5")[0], self.outcome("unset")[0])

    def test_the_export_predicts(self):
        plan = self.compile("m.onnx", "--recipe", self.recipe)
        run = self.train(plan, self.data)
        for arguments, inputs in (((), 2), (("--keep-mode",), 3)):
            self.succeed("trun", "export", run, "-o", "out.onnx", *arguments)
            node = next(n for n in onnx.load(self.folder / "out.onnx").graph.node if n.op_type == "Dropout")
            self.assertEqual(len(node.input), inputs)


class Numbers(EndToEnd):
    ROWS = 20000

    def draw(self, nodes, outputs, weights=()):
        graph = helper.make_graph(nodes, "graph", [], [helper.make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
                                  [numpy_helper.from_array(v, n) for n, v in dict(weights).items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), self.folder / "m.onnx")
        plan = self.compile("m.onnx", "--entry", "predict")
        self.save("in.safetensors")
        self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        return safetensors.numpy.load_file(self.folder / "out.safetensors")

    def test_moments(self):
        """Mean, deviation and tails are within six standard errors of the distribution's."""
        shape, f32 = [self.ROWS], TensorProto.FLOAT
        drawn = self.draw([helper.make_node("RandomNormal", [], ["n"], "n", shape=shape, mean=2.0, scale=3.0),
                           helper.make_node("RandomUniform", [], ["u"], "u", shape=shape, low=-1.0, high=3.0),
                           helper.make_node("RandomUniform", [], ["w"], "w", shape=shape, low=-1.0, high=3.0),
                           helper.make_node("Bernoulli", ["p"], ["b"], "b"),
                           helper.make_node("Multinomial", ["logits"], ["k"], "k", sample_size=self.ROWS)],
                          {"n": (f32, shape), "u": (f32, shape), "w": (f32, shape), "b": (f32, shape),
                           "k": (TensorProto.INT32, [1, self.ROWS])},
                          {"p": np.full(shape, RATE, np.float32), "logits": np.log(np.array([[1, 2, 5]], np.float32))})
        error = 6 / np.sqrt(self.ROWS)
        z = (drawn["n"] - 2) / 3
        for moment, expected, deviation in ((1, 0, 1), (2, 1, np.sqrt(2)), (3, 0, np.sqrt(15)), (4, 3, np.sqrt(96))):
            self.assertAlmostEqual((z.astype(np.float64) ** moment).mean(), expected, delta=error * deviation)
        u = (drawn["u"] + 1) / 4
        self.assertTrue((u >= 0).all() and (u < 1).all())
        self.assertAlmostEqual(u.mean(), 0.5, delta=error * np.sqrt(1 / 12))
        for bucket in np.histogram(u, 10, (0, 1))[0] / self.ROWS:
            self.assertAlmostEqual(bucket, 0.1, delta=error * 0.3)
        self.assertAlmostEqual(np.corrcoef(drawn["u"], drawn["w"])[0, 1], 0, delta=error)
        self.assertEqual(set(drawn["b"]), {0, 1})
        self.assertAlmostEqual(drawn["b"].mean(), RATE, delta=error * np.sqrt(RATE * (1 - RATE)))
        for value, p in enumerate((1 / 8, 2 / 8, 5 / 8)):
            self.assertAlmostEqual((drawn["k"] == value).mean(), p, delta=error * np.sqrt(p * (1 - p)))

    def test_dropout_keeps_the_mean(self):
        shape = [self.ROWS]
        drawn = self.draw([helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], "d")],
                          {"y": (TensorProto.FLOAT, shape), "mask": (TensorProto.BOOL, shape)},
                          {"x": np.ones(shape, np.float32), "ratio": np.array(RATE, np.float32), "training": np.array(True)})
        self.assertAlmostEqual(drawn["mask"].mean(), 1 - RATE, delta=6 * np.sqrt(RATE * (1 - RATE) / self.ROWS))
        np.testing.assert_allclose(drawn["y"], drawn["mask"] / np.float32(1 - RATE), rtol=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
