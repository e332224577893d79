"""1×1 convolutions as matrix products: their gradients are those of convolutions up to rounding, with the same bits on any number of
threads."""
import unittest

import numpy as np
import onnx.helper as oh
from safetensors.numpy import load_file

import models
from common import EndToEnd, metrics

RECIPE = models.CLASSES + '[optimizer]\nkind = "adamw"\nlr = 0.001\n'


class PointwiseConvolutions(EndToEnd):
    def setUp(self):
        super().setUp()
        nodes, weights, value = [], {}, "x"
        for i, (n, m, stride) in enumerate(((48, 512, 1), (512, 512, 1), (512, 520, 2), (520, 10, 1))):
            weights[f"w{i}"] = models.random(i, m, n, 1, 1) / np.float32(np.sqrt(n))
            nodes += [oh.make_node("Conv", [value, f"w{i}"], [f"c{i}"], f"conv{i}", kernel_shape=[1, 1], strides=[stride, stride]),
                      oh.make_node("Relu" if i < 3 else "Identity", [f"c{i}"], [f"a{i}"], f"act{i}")]
            value = f"a{i}"
        nodes.append(oh.make_node("ReduceMean", [value], ["logits"], "mean", axes=[2, 3], keepdims=0))
        self.model = models.save(self.folder / "pointwise.onnx", nodes, {"x": [4, 48, 9, 8]}, {"logits": [4, 10]}, weights)
        self.data = self.save("d.safetensors", **models.labelled(16, 10, 48, 9, 8))
        self.recipe = self.write("r.toml", RECIPE)

    def compiled(self, name, products, *words):
        """The plan, and its IR."""
        plan = self.compile(self.model, "--recipe", self.recipe, "--set", f"compiler.pointwise_convolutions={products}", *words,
                            "--dump-phases-to", f"ir-{name}", plan=f"{name}.tplan")
        return plan, next((self.folder / f"ir-{name}").glob("*-memory.mlir")).read_text()

    def trained(self, plan, name, threads=2):
        out = self.train(plan, self.data, "--threads", threads, out=name)
        self.weights(out, f"{name}.safetensors")
        return self.folder / f"{name}.safetensors", tuple((line["loss"], line["grad_norm"]) for line in metrics(out)[0])

    def check(self, precision, tolerance):
        results = {}
        for products in ("true", "false"):
            name = f"{precision}-{products}"
            plan, ir = self.compiled(name, products, "--precision", precision)
            self.assertEqual("train.matmul" in ir, products == "true")
            runs = [self.trained(plan, f"{name}-{threads}", threads) for threads in (1, 2, 3, 8)]
            self.assertEqual(len({(weights.read_bytes(), updates) for weights, updates in runs}), 1, name)
            results[products] = runs[0]
        (weights, updates), (expected, others) = results["true"], results["false"]
        np.testing.assert_allclose(np.array(updates), np.array(others), rtol=tolerance)
        # Three updates of at most lr each: where a gradient is about zero, rounding decides its sign.
        for name, value in load_file(expected).items():
            difference = np.abs(load_file(weights)[name] - value)
            self.assertLess(difference.mean(), 0.03 * tolerance, name)

    def test_f32(self):
        self.check("f32", 1e-5)

    def test_bf16(self):
        self.check("bf16", 1e-2)

    def test_predictions_and_gradients(self):
        """With the initial weights, the results of both ways differ by rounding alone."""
        first = {name: value[:4] for name, value in models.labelled(16, 10, 48, 9, 8).items()}
        for precision, tolerance in (("f32", 1e-5), ("bf16", 2e-2)):
            results = {}
            for products in ("true", "false"):
                plan, _ = self.compiled(f"all-{precision}-{products}", products, "--precision", precision, "--entry", "predict,gradients")
                for verb in ("predict", "gradients"):
                    inputs = self.save(f"{verb}.safetensors", **(first if verb == "gradients" else {"x": first["x"]}))
                    out = self.folder / f"{verb}-{precision}-{products}.safetensors"
                    self.succeed("trun", verb, plan, "--inputs", inputs, "--outputs", out)
                    results[verb, products] = load_file(out)
            for verb in ("predict", "gradients"):
                for name, expected in results[verb, "false"].items():
                    distance = np.linalg.norm(results[verb, "true"][name] - expected)
                    self.assertLessEqual(distance, tolerance * np.linalg.norm(expected), (verb, precision, name))

    def test_updates_by_rows(self):
        """There are fewer pixels than features: a gradient goes to its update row by row, which also sums its norm."""
        self.assertIn("train.rowwise", self.compiled("rows", "true", "--entry", "train", "--set", "compiler.fuse=true")[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
