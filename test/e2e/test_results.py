"""trun's results are right: gradients, predictions, evaluations and exported models are compared with independent answers."""
import json
import math
import subprocess
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy

import models
from common import BIN, EndToEnd, case, metrics


def run_onnx(path, **inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3                        # no remarks on constants that onnxruntime does not fold
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))


def cross_entropy(logits, labels):
    """The mean over all axes but the last one, in f64."""
    logits = logits.astype(np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, labels[..., None].astype(np.int64), -1)[..., 0]
    return float((np.log(np.exp(logits).sum(-1)) - chosen).mean())


class Gradients(EndToEnd):
    def gradients(self, name, batch):
        model, recipe, data, expected = case(name)
        columns = {k: v[:batch] for k, v in safetensors.numpy.load_file(data).items()}
        plan = self.compile(model, "--recipe", recipe, "--entry", "gradients")
        inputs = self.save("in.safetensors", **columns)
        self.succeed("trun", "gradients", plan, "--inputs", inputs, "--outputs", "g.safetensors")
        return safetensors.numpy.load_file(self.folder / "g.safetensors"), expected, model, columns

    def norms_agree(self, name, batch):
        """Each parameter's gradient has the norm of PyTorch's gradient."""
        gradients, expected, _, _ = self.gradients(name, batch)
        self.assertAlmostEqual(float(gradients["loss"]), expected["loss"][0], delta=1e-4 * abs(expected["loss"][0]))
        largest = max(want["grad_norm"] for want in expected["parameters"].values())
        for parameter, want in expected["parameters"].items():
            norm = float(np.linalg.norm(gradients[parameter].astype(np.float64)))
            self.assertAlmostEqual(norm, want["grad_norm"], delta=1e-3 * want["grad_norm"] + 1e-6 * largest, msg=parameter)

    def test_norms_of_mlp(self):
        self.norms_agree("mlp", 32)

    def test_norms_of_small_cnn(self):
        self.norms_agree("small-cnn", 16)

    def test_norms_of_nano_gpt(self):
        self.norms_agree("nano-gpt", 4)

    def test_norms_of_hf_gpt2_tiny(self):
        self.norms_agree("hf-gpt2-tiny", 4)

    def test_gradients_predict_the_loss_of_a_small_step(self):
        """For a small step in a random direction, onnxruntime's loss changes by gradient · direction."""
        gradients, _, model, columns = self.gradients("mlp", 32)
        rng, step = np.random.default_rng(0), 1e-3
        graph = onnx.load(model)
        directions = {n: rng.standard_normal(g.shape) for n, g in gradients.items() if n != "loss"}

        def loss(factor):
            moved = onnx.ModelProto()
            moved.CopyFrom(graph)
            for tensor in moved.graph.initializer:
                if tensor.name in directions:
                    value = onnx.numpy_helper.to_array(tensor) + factor * directions[tensor.name]
                    tensor.CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float32), tensor.name))
            onnx.save(moved, self.folder / "moved.onnx")
            out = run_onnx(self.folder / "moved.onnx", x=columns["x"])["prediction"]
            return float(((out.astype(np.float64) - columns["y"]) ** 2).mean())
        slope = (loss(step) - loss(-step)) / (2 * step)
        expected = sum(float((gradients[n].astype(np.float64) * d).sum()) for n, d in directions.items())
        self.assertGreater(abs(expected), 1e-2)
        self.assertAlmostEqual(slope, expected, delta=5e-3 * abs(expected))


class Predictions(EndToEnd):
    def agree(self, name, batch, prepare=lambda columns: columns):
        model, recipe, data, _ = case(name)
        names = {i.name for i in onnx.load(model).graph.input}
        inputs = {k: v[:batch] for k, v in safetensors.numpy.load_file(data).items() if k in names}
        plan = self.compile(model, "--recipe", recipe)
        self.succeed("trun", "predict", plan, "--inputs", self.save("in.safetensors", **inputs), "--outputs", "out.safetensors")
        got, want = safetensors.numpy.load_file(self.folder / "out.safetensors"), run_onnx(model, **inputs)
        self.assertEqual(sorted(got), sorted(want))
        for output, value in want.items():
            self.assertEqual(got[output].shape, value.shape)
            error = np.abs(got[output].astype(np.float64) - value).max() / max(1.0, np.abs(value).max())
            self.assertLess(error, 1e-5, f"{name}: {output}")

    def test_mlp(self):
        self.agree("mlp", 32)

    def test_small_cnn(self):
        self.agree("small-cnn", 16)

    def test_nano_gpt(self):
        self.agree("nano-gpt", 4)

    def test_hf_gpt2_tiny(self):
        self.agree("hf-gpt2-tiny", 4)


    def test_more_samples_than_a_batch(self):
        """The exported batch dimension has a name: 11 samples in batches of 4, the last batch not full."""
        model = models.mlp(self.folder / "named.onnx", batch="batch")
        plan = self.compile(model, "--dim", "batch=4")
        x = models.mlp_data(11)["x"]
        self.succeed("trun", "predict", plan, "--inputs", self.save("in.safetensors", x=x), "--outputs", "out.safetensors")
        got = safetensors.numpy.load_file(self.folder / "out.safetensors")["prediction"]
        np.testing.assert_allclose(got, run_onnx(model, x=x)["prediction"], atol=1e-5)

    def test_without_a_loss_a_plan_only_predicts(self):
        model, _, data, _ = case("small-cnn")
        result = self.succeed("tcc", model, "-o", "plan.tplan")
        self.assertIn("can only predict", result.err)
        self.assertEqual(self.report(self.folder / "plan.tplan")["entries"], ["predict"])
        self.refuse(1, ["no scalar floating-point output", "loss.kind"], "tcc", model, "-o", "p2.tplan", "--entry", "train")


class Updates(EndToEnd):
    def test_updates_that_read_each_others_variables(self):
        """The gradient of a log-scale is computed from the scale itself, so that the new scale, moment and second moment all read
        each other's old values. The test computes AdamW by hand; the loss is a·exp(2·scale)."""
        x, w = models.random(1, 8, 8), models.random(2, 8, 8)
        model = models.save(self.folder / "scaled.onnx", models.SCALED, {"x": [8, 8]}, {"loss": []},
                            {"scale": np.ones(1, np.float32), "w": w}, opset=18)
        recipe = self.write("scaled.toml", '[model]\nfrozen = ["w"]\n[optimizer]\nkind = "adamw"\nlr = 0.01\n')
        plan = self.compile(model, "--recipe", recipe)
        updates, _ = metrics(self.train(plan, self.save("x.safetensors", x=x), steps=5))
        self.assertEqual(len(updates), 5)
        a, scale, m, v = float(np.mean(np.square(x.astype(np.float64) @ w))), 1.0, 0.0, 0.0
        for t, line in enumerate(updates, 1):
            loss = a * math.exp(2 * scale)
            self.assertAlmostEqual(line["loss"] / loss, 1, delta=1e-5)
            m, v = 0.9 * m + 0.1 * 2 * loss, 0.999 * v + 0.001 * (2 * loss) ** 2
            scale = scale * (1 - 0.01 * 0.01) - 0.01 * m / (1 - 0.9 ** t) / (math.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


    def test_a_table_learns_the_same_from_several_micro_batches(self):
        """Rows whose ids a window does not contain have no gradient, whatever gradients the window before had."""
        x = np.random.default_rng(3).integers(6, size=(32, 1)).astype(np.float32)
        for tied in (False, True):
            with self.subTest(tied=tied):
                data = self.save("rows.safetensors", x=x, y=models.random(4, 32, 6 if tied else 3))
                recipe = self.write("rows.toml", models.SQUARES + models.SGD)
                losses = []
                for batch in (8, 4, 2):
                    model = models.table(self.folder / f"rows{batch}.onnx", batch, tied)
                    plan = self.compile(model, "--recipe", recipe, "--set", f"train.accumulate={8 // batch}", "--set", "optimizer.lr=0.5")
                    run = self.train(plan, data, "--no-shuffle", steps=8, out=f"run{batch}{tied}")
                    losses.append([update["loss"] for update in metrics(run)[0]])
                np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)


class Exports(EndToEnd):
    def test_trained_model_has_the_trained_loss_in_onnxruntime(self):
        """The run's eval_loss, the loss of the exported ONNX over the same windows, and trun eval from the run are equal."""
        model, recipe, data, _ = case("nano-gpt")
        plan = self.compile(model, "--recipe", recipe)
        run = self.train(plan, data, "--eval-data", data, steps=12)
        _, evaluations = metrics(run)
        self.assertEqual(evaluations[-1]["step"], 12)
        self.succeed("trun", "export", run, "-o", "trained.onnx")
        onnx.checker.check_model(str(self.folder / "trained.onnx"), full_check=True)
        columns = safetensors.numpy.load_file(data)
        losses = [cross_entropy(run_onnx(self.folder / "trained.onnx", ids=columns["ids"][k:k + 4])["logits"],
                                columns["labels"][k:k + 4]) for k in range(0, 16, 4)]
        reported = evaluations[-1]["eval_loss"]
        self.assertAlmostEqual(float(np.mean(losses)), reported, delta=1e-5 * reported)
        self.assertLess(reported, 4.0)                    # untrained: 4.8
        said = json.loads(self.succeed("trun", "eval", plan, "--data", data, "--from", run).out)
        self.assertEqual(said["eval_loss"], reported)
        logits = np.concatenate([run_onnx(self.folder / "trained.onnx", ids=columns["ids"][k:k + 4])["logits"]
                                 for k in range(0, 16, 4)])
        self.assertAlmostEqual(said["eval_accuracy"], float((logits.argmax(-1) == columns["labels"]).mean()), delta=1e-9)

    def test_export_keeps_the_model(self):
        """Names, shapes, nodes' names and the exporter's notes are kept; only trained weights differ."""
        model, recipe, data, _ = case("nano-gpt")
        run = self.train(self.compile(model, "--recipe", recipe), data)
        self.succeed("trun", "export", run, "-o", "trained.onnx")
        weights, before, after = self.weights(run), onnx.load(model), onnx.load(self.folder / "trained.onnx")
        self.assertEqual([n.name for n in before.graph.node], [n.name for n in after.graph.node])
        self.assertEqual([i.name for i in before.graph.initializer], [i.name for i in after.graph.initializer])
        # A mark says that trun may replace the file.
        self.assertEqual(list(before.metadata_props), [p for p in after.metadata_props if p.key != "trun.export"])
        changed = 0
        for old, new in zip(before.graph.initializer, after.graph.initializer):
            old, value = onnx.numpy_helper.to_array(old), onnx.numpy_helper.to_array(new)
            self.assertEqual((old.shape, old.dtype), (value.shape, value.dtype))
            if new.name in weights:
                self.assertTrue(np.array_equal(value, weights[new.name].reshape(value.shape)), new.name)
            changed += not np.array_equal(old, value)
        self.assertGreater(changed, 20)

    def test_init_starts_from_exported_weights(self):
        """After three steps and an export, a run from those weights begins with the fourth loss of the long run (SGD without
        momentum has no other state)."""
        model = models.mlp(self.folder / "m.onnx")
        plan = self.compile(model, "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        data = self.save("d.safetensors", **models.mlp_data(8))
        long, _ = metrics(self.train(plan, data, out="long", steps=4))
        self.weights(self.train(plan, data, out="short", steps=3))
        again, _ = metrics(self.train(plan, data, "--init", "weights.safetensors", out="again", steps=1))
        self.assertEqual(again[0]["loss"], long[3]["loss"])


class Metrics(EndToEnd):
    def test_lines_have_the_documented_keys(self):
        model, recipe, data, expected = case("in-graph-loss")
        run = self.train(self.compile(model, "--recipe", recipe), data, "--eval-data", data, "--eval-every", 2, steps=4)
        updates, evaluations = metrics(run)
        self.assertEqual([u["step"] for u in updates], [1, 2, 3, 4])
        for line in updates:
            for key in ("step", "epoch", "loss", "lr", "grad_norm", "seconds", "samples_per_s"):
                self.assertIsInstance(line[key], (int, float), key)
                self.assertTrue(math.isfinite(line[key]), key)
        self.assertEqual([e["step"] for e in evaluations], [2, 4])
        # In a warm-up of 5 steps, update t has the rate lr (t + 1) / 5.
        for t, line in enumerate(updates):
            self.assertAlmostEqual(line["lr"], 0.01 * (t + 1) / 5, delta=1e-9)
        norm = math.sqrt(sum(p["grad_norm"] ** 2 for p in expected["parameters"].values()))
        self.assertAlmostEqual(updates[0]["grad_norm"], norm, delta=1e-3 * norm)

    def test_finished_run_holds_the_trained_model(self):
        model, recipe, data, _ = case("mlp")
        run = self.train(self.compile(model, "--recipe", recipe), data)
        onnx.checker.check_model(str(run / "model.onnx"))
        self.assertTrue((run / "plan.tplan").is_file())
        self.assertTrue((run / "log.txt").is_file())


class Moments(EndToEnd):
    def test_what_has_decayed_to_nothing_is_zero(self):
        """Rounding to the nearest would keep a decaying average among the subnormal numbers, with which some processors are slow."""
        settings = {"adamw": "betas = [0.5, 0.6]\n", "sgd": "momentum = 0.6\n", "rmsprop": "alpha = 0.5\nmomentum = 0.5\n"}
        columns = models.mlp_data(8 * 400)
        columns["x"][8:, 0] = 0                           # so the weights of w1 for this feature get a gradient only once
        data = self.save("d.safetensors", **columns)
        model = models.mlp(self.folder / "m.onnx")
        for kind, numbers in settings.items():
            recipe = self.write(f"{kind}.toml", models.SQUARES + f'[optimizer]\nkind = "{kind}"\nlr = 0.001\nweight_decay = 0\n' +
                                numbers)
            run = self.train(self.compile(model, "--recipe", recipe, plan=f"{kind}.tplan"), data, "--no-shuffle", out=kind, steps=400)
            shard = next((run / "checkpoints" / "step-400").glob("*.safetensors"))
            moments = {name: value for name, value in safetensors.numpy.load_file(shard).items() if name.startswith("w1/")}
            self.assertTrue(moments, kind)
            for name, moment in moments.items():
                self.assertTrue((moment[:, 0] == 0).all(), f"{kind}: {name}")
                self.assertTrue((moment[:, 1] != 0).all(), f"{kind}: {name}")


class Independence(unittest.TestCase):
    def test_trun_needs_no_compiler(self):
        libraries = subprocess.run(["ldd", str(BIN / "trun")], capture_output=True, text=True, check=True).stdout
        self.assertIn("libdnnl", libraries)               # as a control: ldd did list libraries
        for word in ("LLVM", "MLIR", "python", "clang"):
            self.assertNotIn(word.lower(), libraries.lower())


if __name__ == "__main__":
    unittest.main(verbosity=2)
