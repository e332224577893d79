"""Models exported from Keras: predictions are Keras's, every gradient is right, and they train."""
import unittest
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy

from common import EndToEnd, metrics

MODELS = Path(__file__).resolve().parent / "keras"


class Keras(EndToEnd):
    def check(self, name):
        model, data = MODELS / f"{name}.onnx", np.load(MODELS / f"{name}.npz")
        graph = onnx.load(model).graph
        source, target = graph.input[0].name, graph.output[0].name
        shape = ["--shape", f"{source}={'x'.join(map(str, data['x'].shape))}"]
        self.compile(model, *shape, "--entry", "predict", plan="predict.tplan")
        inputs = self.save("inputs.safetensors", **{source: data["x"]})
        self.succeed("trun", "predict", "predict.tplan", "--inputs", inputs, "--outputs", "outputs.safetensors")
        outputs = safetensors.numpy.load_file(self.folder / "outputs.safetensors")
        np.testing.assert_allclose(outputs[target], data["y"], rtol=1e-4, atol=2e-6)

        recipe = ["--set", "loss.kind=mse", "--set", "loss.target=y", "--set", "optimizer.lr=3e-3"]
        self.succeed("tcc", "gradcheck", model, *shape, *recipe)
        plan = self.compile(model, *shape, *recipe)
        batch = self.save("data.safetensors", **{source: data["x"], "y": np.roll(data["y"], 1, 0) + 1})
        run = self.train(plan, batch, steps=60)
        losses = [line["loss"] for line in metrics(run)[0]]
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_convolutional(self):
        self.check("convolutional")

    def test_recurrent(self):
        self.check("recurrent")

    def test_attention(self):
        self.check("attention")


if __name__ == "__main__":
    unittest.main()
