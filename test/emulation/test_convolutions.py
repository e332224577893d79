"""Convolutions on cuDNN: `test_convolutions.py STANDIN` compiles networks and trains them on the stand-in, whose lists begin with
engines that trun must not take."""
import json
import os
import subprocess
import sys
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
import safetensors.numpy
from common import BIN, ZOO, EndToEnd, metrics

NETWORKS = ["small-cnn", "resnet-tiny", "unet-tiny"]
DIRECTIONS = {"convolution cuDNN", "convolution input gradient cuDNN", "convolution weight gradient cuDNN"}


class Convolutions(EndToEnd):
    def network(self, name, *words, plan=None):
        return self.compile(ZOO / name / "model.onnx", "--recipe", ZOO / name / "recipe.toml", "--target", "cuda:sm_90", "--entry", "train",
                            *words, plan=plan or f"{name}.tplan")

    def run_on_card(self, name, plan, *words, out="run", steps=2, **settings):
        return self.train(plan, ZOO / name / "data.safetensors", "--no-shuffle", "--device", "cuda", "--no-release", *words, out=out,
                          steps=steps, env=stand_in(**settings))

    def losses(self, run):
        return [update["loss"] for update in metrics(run)[0]]

    def resume(self, run, *words, **settings):
        return self.succeed("trun", "--resume", run, "--steps", 4, *words, env=stand_in(**settings))

    def names(self, plan):
        return {kernel["name"].split(" + ")[0] for kernel in self.report(plan)["kernels"]}

    def test_losses_are_pytorchs(self):
        check = [sys.executable, ZOO / "check.py", "--bin", BIN, "--target", "cuda:sm_90", "--device", "cuda",
                 *(ZOO / name for name in NETWORKS)]
        done = subprocess.run(check, env=os.environ | stand_in(mode="fast", order="seeded"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])

    def test_every_precision_passes_every_check(self):
        """All convolutions are calls. With tensor cores, channels are the last axis; without them, the first. (The ops between the
        U-net's convolutions keep its channels first.)"""
        for name, precisions in (("resnet-tiny", ("f32", "tf32", "bf16", "f16")), ("unet-tiny", ("f32", "bf16"))):
            losses = {}
            for precision in precisions:
                plan = self.network(name, "--precision", precision, plan=f"{name}-{precision}.tplan")
                self.assertLessEqual(DIRECTIONS, self.names(plan))
                runs = [self.run_on_card(name, plan, out=f"{name}-{precision}-{order}", mode="checked", order=order, seed=seed)
                        for order, seed in [("ascending", 1), ("seeded", 3)]]
                losses[precision], others = map(self.losses, runs)
                self.assertEqual(losses[precision], others, "the order of threads and of queued work changes no bit")
                calls = [call["call"] for call in self.convolutions(runs[0])]
                last = sum("channels last" in call for call in calls)
                if name == "resnet-tiny" or precision == "f32":
                    self.assertEqual(last, 0 if precision == "f32" else len(calls), f"{name} in {precision}: {calls}")
            for precision, most in (("tf32", 2e-3), ("bf16", 1e-2), ("f16", 2e-3)):
                if precision not in losses:
                    continue
                self.assertNotEqual(losses[precision], losses["f32"], f"{precision} rounds nothing")
                for got, exact in zip(losses[precision], losses["f32"], strict=True):
                    self.assertLess(abs(got - exact), most * exact, f"{name} in {precision}")

    def test_every_shape(self):
        """One, two and three dimensions; strides, dilations, groups, unequal pads: gradients agree with those of kernels."""
        for name, x, w, attributes in [
                ("line", [2, 4, 19], [6, 4, 5], {"pads": [2, 1], "strides": [2]}),
                ("pads", [2, 3, 9, 8], [5, 3, 3, 2], {"pads": [0, 1, 2, 0], "dilations": [2, 1]}),
                ("groups", [2, 6, 7, 7], [9, 2, 3, 3], {"group": 3, "strides": [2, 1]}),
                ("depthwise", [2, 8, 6, 6], [8, 1, 3, 3], {"group": 8, "pads": [1, 1, 1, 1]}),
                ("volume", [2, 3, 5, 6, 4], [4, 3, 3, 2, 3], {"pads": [1, 0, 1, 1, 0, 1]})]:
            spatial = len(x) - 2
            node = models.helper.make_node("Conv", ["x", "w"], ["prediction"], "conv", kernel_shape=w[2:], **attributes)
            pads, strides, dilations = (attributes.get(key, default) for key, default in
                                        (("pads", [0] * 2 * spatial), ("strides", [1] * spatial), ("dilations", [1] * spatial)))
            outputs = [(x[i + 2] + pads[i] + pads[i + spatial] - dilations[i] * (w[i + 2] - 1) - 1) // strides[i] + 1
                       for i in range(spatial)]
            y = [x[0], w[0], *outputs]
            # Because of a layer before it, the gradient of x has to be computed.
            first = models.helper.make_node("Conv", ["input", "v"], ["x"], "first")
            ones = [1] * spatial
            model = models.save(self.folder / f"{name}.onnx", [first, node], {"input": x}, {"prediction": y},
                                {"w": models.random(1, *w), "v": models.random(2, x[1], x[1], *ones)})
            recipe = self.write(f"{name}.toml", models.SQUARES)
            rng = np.random.default_rng(5)
            batch = self.save(f"{name}.safetensors", input=rng.standard_normal(x, np.float32), y=rng.standard_normal(y, np.float32))
            results = []
            for how in ("auto", "kernels"):
                plan = self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--entry", "gradients", "--set",
                                    f"compiler.convolutions={how}", plan=f"{name}-{how}.tplan")
                self.assertEqual({part for part in self.names(plan) if "cuDNN" in part}, DIRECTIONS if how == "auto" else set())
                out = self.folder / f"{name}-{how}.safetensors"
                self.succeed("trun", "gradients", plan, "--inputs", batch, "--outputs", out, "--device", "cuda", env=stand_in(mode="checked"))
                results.append(safetensors.numpy.load_file(out))
            for key in results[1]:
                with self.subTest(shape=name, gradient=key):
                    scale = np.abs(results[1][key]).max()
                    self.assertLess(np.abs(results[0][key] - results[1][key]).max(), 2e-6 * scale)

    # -- engines ------------------------------------------------------------------------------------------------------

    def convolutions(self, run):
        calls = json.loads((run / "algorithms.json").read_text())["calls"]
        return [call for call in calls if call["call"].startswith("convolution")]

    def test_engines_with_a_note_of_a_later_version(self):
        """They are taken where there are no others, with the bits that they have without it."""
        plan, losses = self.network("small-cnn"), []
        for note in (0, 77):
            run = self.train(plan, ZOO / "small-cnn/data.safetensors", "--device", "cuda", "--no-release", steps=2, out=f"note-{note}",
                             env=stand_in(dnn_note=note))
            losses.append([line["loss"] for line in metrics(run)[0]])
            said = "the last choice, since it has a property that this version does not know (numerical note 77)"
            self.assertEqual(said in (run / "algorithms.json").read_text(), note == 77)
        self.assertEqual(*losses)

    def test_a_run_records_engines_and_a_resume_takes_them(self):
        plan = self.network("small-cnn")
        whole = self.run_on_card("small-cnn", plan, out="whole", steps=4)
        record = json.loads((whole / "algorithms.json").read_text())
        self.assertEqual(record["library"], "cuBLASLt 13.1.0, cuDNN 9.26.0")
        self.assertEqual({call["algorithm"] for call in self.convolutions(whole)}, {"9 2=1"}, "the first that sums f32 in a fixed order")
        part = self.run_on_card("small-cnn", plan, out="part")
        self.resume(part)
        self.assertEqual(self.losses(part), self.losses(whole))
        said = self.refuse(1, [r"algorithms.json: .*convolutions .*cuDNN 9\.26\.0.*cuDNN 9\.27\.0.*install cuDNN 9\.26\.0.*--tune"], "trun",
                           "--resume", part, "--steps", 6, env=stand_in(dnn=92700))
        self.assertNotIn("instruction", said.err, "it concerns no single instruction")

    def test_tuning_takes_the_fastest_engine(self):
        plan = self.network("small-cnn")
        tuned, untuned = self.run_on_card("small-cnn", plan, "--tune", out="tuned", steps=4), self.run_on_card("small-cnn", plan, out="first", steps=4)
        self.assertEqual({call["algorithm"] for call in self.convolutions(tuned)}, {"9 2=2"}, "two parts take half the time")
        self.assertNotEqual(self.losses(tuned), self.losses(untuned), "another engine, other bits")
        part = self.run_on_card("small-cnn", plan, "--tune", out="part")
        self.resume(part)
        self.assertEqual(self.losses(part), self.losses(tuned))

    def test_a_resume_asks_no_heuristics(self):
        """trun makes the recorded engine from its number and settings, whatever the library lists now."""
        plan = self.network("small-cnn", "--precision", "bf16")
        whole, part = (self.run_on_card("small-cnn", plan, out=out, steps=steps) for out, steps in (("whole", 4), ("part", 2)))
        self.assertEqual({call["algorithm"] for call in self.convolutions(part)}, {"8 2=1"}, "the first on tensor cores")
        self.resume(part, engines=0)
        self.assertEqual(self.losses(part), self.losses(whole))

    # -- what is missing --------------------------------------------------------------------------------------------

    def test_without_the_library_or_its_engines(self):
        plan = self.network("small-cnn")
        words = ["--data", ZOO / "small-cnn/data.safetensors", "--device", "cuda", "--steps", 1, "--no-release"]
        alone = self.folder / "no-cudnn"
        alone.mkdir()
        for name in ("libcuda.so.1", "libcublasLt.so.13"):
            (alone / name).symlink_to(STANDIN / "libcuda.so.1")
        (alone / "libcudnn.so.9").write_text("no library")  # in the way of one that the machine may have
        without = os.environ | {"LD_LIBRARY_PATH": str(alone)}
        said = self.refuse(1, ["cuDNN", "libcudnn.so.9", "nvidia-cudnn-cu13", "compiler.convolutions=kernels"], "trun", plan, *words, env=without)
        self.assertEqual(said.err.count("error:"), 1)
        self.refuse(1, [r"instruction \d+ \(node '[^']+'\): cuDNN 9.26.0 lists \d+ engines .*none that the plan allows: "
                        "it adds in no fixed order.*compiler.convolutions=kernels"], "trun", plan, *words, env=stand_in(engines=0))
        # The way out that both messages name.
        plan = self.network("small-cnn", "--set", "compiler.convolutions=kernels", plan="kernels.tplan")
        floor = {kernel["loops"]: kernel["count"] for kernel in self.report(plan)["card"]["floor"]}
        self.assertLessEqual({"conv", "conv_input_grad", "conv_weight_grad"}, set(floor), "the report says what is slow")
        self.assertFalse(any("cuDNN" in name for name in self.names(plan)))
        self.succeed("trun", plan, *words, "--out", "kernels", env=without | {"TCC_EMULATION_MODE": "fast"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
