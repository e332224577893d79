"""Calls of torch that do more than the ops of the export: tcc follows the exporter's note about the call.

calls/make.py made the exports, and PyTorch's losses beside them.
"""
import json
import statistics
import unittest
from pathlib import Path

import numpy as np
from calls.draws import SAMPLES, data
from common import EndToEnd, metrics

HERE = Path(__file__).resolve().parent / "calls"
KNOWN = json.loads((HERE / "calls.json").read_text())
BATCH, EPOCHS = 8, 2
RECIPE = '[loss]\nkind = "cross_entropy"\ntarget = "target"\n[optimizer]\nkind = "sgd"\nlr = {}\n'


class Calls(EndToEnd):
    def trained(self, name, rate, epochs):
        """The plan, the data, the losses of a run's updates, and that of its evaluation at the end."""
        recipe = self.write(f"{name}.toml", RECIPE.format(rate))
        plan = self.compile(str(HERE / f"{name}.onnx"), "--recipe", recipe, "--batch", BATCH, plan=f"{name}.tplan")
        path = self.save(f"{name}.safetensors", **data(name))
        self.succeed("trun", plan, "--data", path, "--eval-data", path, "--epochs", str(epochs), "--no-shuffle",
                      "--out", self.folder / name)
        updates, evaluations = metrics(self.folder / name)[:2]
        return plan, path, [u["loss"] for u in updates], evaluations[-1]["eval_loss"]

    def test_losses_are_those_of_pytorch(self):
        """The row of an embedding's padding_idx gets no gradient. spectral_norm iterates without one, and keeps its vector:
        its evaluation iterates once more than PyTorch's, so it agrees less closely."""
        for name, close in (("padding", 2e-6), ("spectral", 2e-3)):
            with self.subTest(name):
                _, _, losses, evaluation = self.trained(name, 0.1, EPOCHS)
                np.testing.assert_allclose(losses, KNOWN[name]["train"], atol=2e-6)
                self.assertAlmostEqual(evaluation, KNOWN[name]["evaluate"], delta=close)

    def test_masks_are_drawn_in_training_alone(self):
        """scaled_dot_product_attention's dropout_p, Dropout2d, and stochastic depth."""
        epochs = 80
        for name in ("attention", "channels"):
            with self.subTest(name):
                known = KNOWN[name]
                plan, path, losses, evaluation = self.trained(name, 0, epochs)
                self.assertAlmostEqual(evaluation, known["evaluate"], delta=2e-6)
                means = [statistics.mean(losses[i:i + SAMPLES // BATCH]) for i in range(0, len(losses), SAMPLES // BATCH)]
                self.assertEqual(len(means), epochs)
                self.assertAlmostEqual(statistics.mean(means), known["mean"], delta=4 * known["deviation"] / epochs ** 0.5)
                self.assertGreater(statistics.stdev(means), 0.7 * known["deviation"])
                self.assertLess(statistics.stdev(means), 1.4 * known["deviation"])
                # predict does not draw random numbers either: two runs give the same, with the loss of the evaluation.
                self.succeed("trun", "predict", plan, "--from", self.folder / name, "--inputs", path, "--outputs",
                              self.folder / f"{name}.npy")
                logits = np.load(self.folder / f"{name}.npy").astype(np.float64)
                self.assertEqual(logits.shape, (SAMPLES, 3))
                rest = np.log(np.exp(logits).sum(1)) - logits[np.arange(SAMPLES), data(name)["target"]]
                self.assertAlmostEqual(rest.mean(), known["evaluate"], delta=1e-5)

    def test_the_recipes_probability_holds_for_them_too(self):
        for name in ("attention", "channels"):
            recipe = self.write("none.toml", "[model]\ndropout = 0\n" + RECIPE.format(0))
            plan = self.compile(str(HERE / f"{name}.onnx"), "--recipe", recipe, "--batch", BATCH, plan=f"{name}-none.tplan")
            path = self.save("d.safetensors", **data(name))
            self.succeed("trun", plan, "--data", path, "--epochs", "1", "--no-shuffle", "--out", self.folder / f"{name}-none")
            losses = [u["loss"] for u in metrics(self.folder / f"{name}-none")[0]]
            self.assertAlmostEqual(statistics.mean(losses), KNOWN[name]["evaluate"], delta=2e-6)


if __name__ == "__main__":
    unittest.main()
