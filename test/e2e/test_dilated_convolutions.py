"""Convolutions whose dilation is a large part of the image: tiles on interleaved grids, a product for each tap, omitted taps. The
same convolution of an explicitly padded image uses none of these and has the same gradients within rounding."""
import unittest

import numpy as np
import onnx.helper as oh
from safetensors.numpy import load_file

import models
from common import EndToEnd

RECIPE = models.CLASSES + '[optimizer]\nkind = "adamw"\nlr = 0.001\n'
LAYERS = ((2, 128, 384), (12, 384, 384), (24, 384, 256), (36, 256, 10))      # dilation, channels, features


class DilatedConvolutions(EndToEnd):
    def model(self, name, padded):
        nodes, weights, value = [], {}, "x"
        for i, (dilation, channels, features) in enumerate(LAYERS):
            weights[f"w{i}"] = models.random(i, features, channels, 3, 3) / np.float32(np.sqrt(3 * channels))
            pads = [dilation] * 4
            if padded:
                weights[f"pads{i}"] = np.array([0, 0, dilation, dilation] * 2, np.int64)
                nodes.append(oh.make_node("Pad", [value, f"pads{i}"], [f"p{i}"], f"pad{i}"))
                value, pads = f"p{i}", [0] * 4
            nodes += [oh.make_node("Conv", [value, f"w{i}"], [f"c{i}"], f"conv{i}", kernel_shape=[3, 3], dilations=[dilation] * 2, pads=pads),
                      oh.make_node("Tanh" if i < 3 else "Identity", [f"c{i}"], [f"a{i}"], f"act{i}")]
            value = f"a{i}"
        nodes.append(oh.make_node("ReduceMean", [value], ["logits"], "mean", axes=[2, 3], keepdims=0))
        return models.save(self.folder / f"{name}.onnx", nodes, {"x": [1, 128, 32, 32]}, {"logits": [1, 10]}, weights)

    def results(self, name, padded, precision, *words, threads=2):
        recipe, inputs = self.write("r.toml", RECIPE), self.save("d.safetensors", **models.labelled(1, 10, 128, 32, 32))
        plan = self.compile(self.model(name, padded), "--recipe", recipe, "--entry", "gradients", "--precision", precision, *words,
                            "--dump-phases-to", f"ir-{name}", plan=f"{name}.tplan")
        out = self.folder / f"{name}.safetensors"
        self.succeed("trun", "gradients", plan, "--inputs", inputs, "--outputs", out, "--threads", threads)
        ir = next((self.folder / f"ir-{name}").glob("*-memory.mlir")).read_text()
        return out, ir

    def check(self, precision, tolerance):
        found, ir = self.results(f"{precision}-dilated", False, precision)
        self.assertIn("train.winograd_conv", ir)                                 # dilation 2
        self.assertGreaterEqual(ir.count("train.matmul"), 2 * 3 * 9)             # 12 and 24: nine taps, forward and both gradients
        self.assertNotIn("array<i64: 12, 12>", ir)
        # 36: the tap in the middle alone, a convolution of 1×1 or, of widened bf16, a product.
        self.assertNotRegex(ir, r"train\.conv .*x3x3x")
        expected, other = self.results(f"{precision}-padded", True, precision, "--set", "compiler.winograd=false")
        self.assertNotIn("train.winograd_conv", other)
        self.assertNotIn("train.matmul", other)
        self.assertRegex(other, r"train\.conv .*x3x3x")
        found, expected = load_file(found), load_file(expected)
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            value, ours = value.astype(np.float64), found[name].astype(np.float64)
            self.assertLessEqual(np.linalg.norm(ours - value), tolerance * np.linalg.norm(value), name)
            if name.endswith("w3"):
                middle = ours[:, :, 1:2, 1:2]
                self.assertEqual(np.count_nonzero(ours), np.count_nonzero(middle), "a tap that reads padding alone has a gradient")

    def test_f32(self):
        self.check("f32", 1e-5)

    def test_bf16(self):
        self.check("bf16", 2e-2)

    def test_f16(self):
        self.check("f16", 2e-2)

    def test_threads_change_no_bit(self):
        self.assertEqual(*(self.results(f"threads-{n}", False, "f32", threads=n)[0].read_bytes() for n in (1, 3)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
