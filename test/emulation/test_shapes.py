"""Several shapes on a card: `test_shapes.py STANDIN`. An update in one shape is submitted while that of another still runs, and each
has the numbers that it has alone."""
import importlib.util
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import numpy as np
from common import ROOT, EndToEnd, metrics

spec = importlib.util.spec_from_file_location("shapes_on_cpu", ROOT / "test/e2e/test_shapes.py")
shapes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shapes)


class OnACard(EndToEnd):
    def test_losses_and_norms_are_those_of_a_cpu(self):
        data, model = shapes.Sentences(), shapes.sentence_model(self.folder / "m.onnx")
        rows = self.save("d.safetensors", **data.columns())
        recipe = self.write("r.toml", shapes.SHAPES + shapes.RECIPE)
        for name, words in (("plain", ()), ("accumulated", ("--set", "train.accumulate=2")), ("averaged", ("--set", "train.ema.decay=0.9"))):
            with self.subTest(name):
                lines = {}
                for device, target in (("cpu", "cpu"), ("cuda", "cuda:sm_90")):
                    plan = self.compile(model, "--recipe", recipe, "--target", target, *words, plan=f"{device}.tplan")
                    env = stand_in(mode="fast", order="seeded") if device == "cuda" else None
                    self.succeed("trun", plan, "--data", rows, "--eval-data", rows, "--eval-every", "epoch", "--epochs", 2, "--no-shuffle",
                                 "--no-release", "--device", device, "--out", f"{name}-{device}", env=env)
                    lines[device] = metrics(self.folder / f"{name}-{device}")
                for key in ("loss", "grad_norm"):
                    ours, theirs = ([line[key] for line in lines[device][0]] for device in ("cuda", "cpu"))
                    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
                self.assertGreater(len(set(round(norm, 3) for norm in theirs)), 10, "norms differ from update to update")
                np.testing.assert_allclose([line["eval_loss"] for line in lines["cuda"][1]], [line["eval_loss"] for line in lines["cpu"][1]],
                                           rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
