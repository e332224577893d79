"""Optimizers that depend on a parameter's shape in torch (Muon, LAMB, @1d), with exports that store it differently: torch_shapes/."""
import json

from common import ROOT, EndToEnd

HERE = ROOT / "test" / "e2e" / "torch_shapes"
COMMON = ("--set", 'loss.kind="mse"', "--set", 'loss.target="target"', "--set", "optimizer.lr=0.02", "--set", "optimizer.weight_decay=0.1",
          "--entry", "train")


class TorchShapes(EndToEnd):
    def losses(self, export, *settings):
        self.setUp()
        compiled = self.succeed("tcc", HERE / f"{export}.onnx", *COMMON, *settings, "-o", "p.tplan")
        self.train(self.folder / "p.tplan", HERE / "data.safetensors", steps=12)
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line], compiled.err

    def test_losses_follow_torch(self):
        expected = json.loads((HERE / "losses.json").read_text())
        cases = {"original": ("--set", 'optimizer.kind="muon"'),
                 "match_rms_adamw": ("--set", 'optimizer.kind="muon"', "--set", 'optimizer.adjust_lr_fn="match_rms_adamw"'),
                 "lamb": ("--set", 'optimizer.kind="lamb"')}
        for export in ("dynamo", "dynamo-unoptimized", "torchscript-folded"):
            for kind, settings in cases.items():
                with self.subTest(export, kind=kind):
                    losses, said = self.losses(export, *settings)
                    # Muon iterates in bf16; even torch's own products differ by this much between machines.
                    bound = 1e-5 if kind == "lamb" else 5e-4
                    for loss, wanted in zip(losses, expected[kind], strict=True):
                        self.assertLess(abs(loss - wanted), bound * wanted)
                    # A message tells when neither notes nor names give a parameter's shape.
                    self.assertEqual("shape in torch" in said, export == "torchscript-folded")

    def test_assumptions_name_parameter_and_shape(self):
        _, said = self.losses("torchscript-folded", "--set", 'optimizer.kind="muon"')
        self.assertRegex(said, r"onnx::MatMul_\d+: \[24, 6\], the transpose of the stored matrix that /up/MatMul reads")
        _, said = self.losses("torchscript-folded", "--set", 'optimizer.kind="adamw"')
        self.assertNotIn("shape in torch", said)

    def test_vectors_stored_with_extents_of_one_are_vectors(self):
        self.succeed("tcc", HERE / "dynamo.onnx", *COMMON, "--set", 'optimizer.decay_exempt=["@1d"]', "-o", "p.tplan")
        groups = {g["name"]: g["parameters"] for g in self.report(self.folder / "p.tplan")["parameters"]["groups"]}
        # Eight matrices in torch: four of linear layers, two that products read, and the recurrent layer's for input and state.
        self.assertEqual(len(groups["default"]), 8, groups)


if __name__ == "__main__":
    import unittest
    unittest.main()
