"""A recipe's transforms in training: the number of loader threads, a kill and a resume change no bit."""
import os
import signal
import subprocess
import tarfile
import time
import unittest

import numpy as np
import onnx
from onnx import helper
from PIL import Image

import models
from common import BIN, EndToEnd, metrics

RECIPE = """
[loss]
kind = "cross_entropy"
target = "label"
[optimizer]
kind = "sgd"
lr = 0.05
[[data.transform]]
kind = "random_resized_crop"
size = 8
[[data.transform]]
kind = "horizontal_flip"
[[data.transform]]
kind = "color_jitter"
brightness = 0.4
hue = 0.1
[[data.transform]]
kind = "resize"
size = [8, 8]
on = "eval"
[[data.transform]]
kind = "normalise"
mean = 0.5
std = [0.2, 0.3, 0.4]
"""


class Transforms(EndToEnd):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        for number in range(24):
            folder = self.folder / "images" / "ab"[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (9 + number % 4, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:02}.png")

    def model(self, inputs=()):
        nodes = [helper.make_node("Flatten", ["image"], ["flat"], "flatten"),
                 helper.make_node("Gemm", ["flat", "w", "b"], ["logits"], "linear", transB=1)]
        return models.save(self.folder / "m.onnx", nodes, {"image": [8, 3, 8, 8], **dict(inputs)}, {"logits": [8, 2]},
                           {"w": models.random(1, 2, 192), "b": models.random(2, 2)})

    def plan(self):
        return self.compile(self.model(), "--recipe", self.write("recipe.toml", RECIPE))

    def run_with(self, plan, out, *arguments, steps=7, data="images"):
        self.succeed("trun", plan, "--data", data, "--seed", 5, "--steps", steps, "--out", out, *arguments)
        run = self.folder / out
        self.weights(run, f"{out}.safetensors")
        return [u["loss"] for u in metrics(run)[0]], (self.folder / f"{out}.safetensors").read_bytes()

    def test_any_number_of_workers_gives_the_same_bits(self):
        plan = self.plan()
        expected = self.run_with(plan, "none", "--workers", 0)
        self.assertEqual(len(set(expected[0])), 7)
        for workers in (1, 2, 8):
            self.assertEqual(self.run_with(plan, f"w{workers}", "--workers", workers), expected, f"{workers} workers")
        self.assertEqual(self.run_with(plan, "default"), expected, "as many as processors")
        self.assertNotEqual(self.run_with(plan, "plain", "--set", "data.transform=[{ kind = 'resize', size = [8, 8] }]")[0],
                            expected[0])

    def shards(self):
        """Writes the images into three tars in WebDataset's layout."""
        paths = sorted((self.folder / "images").rglob("*.png"))
        for number, part in enumerate((paths[:10], paths[10:13], paths[13:])):
            with tarfile.open(self.folder / f"train-{number:03}.tar", "w") as tar:
                for path in part:
                    tar.add(path, path.name)
                    label = self.write("label", str("ab".index(path.parent.name)))
                    tar.add(label, path.stem + ".cls")

    def test_shards_with_a_window_and_a_cache(self):
        plan, whole = self.plan(), ("--set", "data.shuffle_window=9")
        self.shards()
        expected = self.run_with(plan, "none", "--workers", 0, *whole, data="train-*.tar")
        for workers in (1, 2, 8):
            self.assertEqual(self.run_with(plan, f"w{workers}", "--workers", workers, *whole, "--set", "data.cache=cache", data="train-{000..002}.tar"), expected)
        self.assertNotEqual(self.run_with(plan, "other", "--set", "data.shuffle_window=2", data="train-*.tar")[0], expected[0])
        self.assertEqual(self.run_with(plan, "order", "--no-shuffle", *whole, data="train-*.tar"), self.run_with(plan, "same", "--no-shuffle", data="train-*.tar"))
        log = (self.folder / "w1" / "log.txt").read_text()
        self.assertIn("data.cache: 24 images are in cache/", log)
        self.assertNotIn("data.cache", (self.folder / "w2" / "log.txt").read_text(), "found again")
        # If the order changed in the middle of a run, it would read samples twice.
        self.refuse(1, ["data.shuffle_window 9 . 4", "--init"], "trun", "--resume", "none", "--steps", 9, "--set", "data.shuffle_window=4")
        self.refuse(1, ["train-003.tar", "no file has such a name"], "trun", plan, "--data", "train-{000..003}.tar", "--out", "x")
        self.refuse(2, ["data.shuffle_window"], "trun", plan, "--data", "train-*.tar", *whole, "--set", "data.sampler=balanced", "--out", "x")

    def test_shards_after_a_kill(self):
        self.shards()
        self.kill_and_resume("--set", "data.shuffle_window=9", "--set", "data.cache=cache", data="train-*.tar")

    def test_after_a_kill(self):
        self.kill_and_resume()

    def kill_and_resume(self, *more, data="images"):
        plan = self.plan()
        run = self.folder / "killed"
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen([str(BIN / "trun"), str(plan), "--data", data, "--seed", "5", "--steps", str(10**9),
                                        "--out", str(run), "--checkpoint-every", "4", "--workers", "2", *more], cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(process.kill)
        while not any((run / "checkpoints").glob("step-*")) if (run / "checkpoints").exists() else True:
            self.assertIsNone(process.poll(), (self.folder / "output").read_text())
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        done = max(int(p.name.removeprefix("step-")) for p in (run / "checkpoints").glob("step-*"))
        self.succeed("trun", plan, "--data", data, "--steps", done + 5, "--resume", run, "--workers", 8)
        self.weights(run, "killed.safetensors")
        losses, weights = self.run_with(plan, "whole", "--workers", 0, *more, steps=done + 5, data=data)
        self.assertEqual([u["loss"] for u in metrics(run)[0]], losses)
        self.assertEqual((self.folder / "killed.safetensors").read_bytes(), weights)

    def test_mixed_batches(self):
        """The loss reads probabilities of classes, an input of the graph with the prediction's shape."""
        recipe = RECIPE + "[[data.transform]]\nkind = \"one_hot\"\nclasses = 2\n[[data.transform]]\nkind = \"mixup_or_cutmix\"\n"
        plan = self.compile(self.model({"label": [8, 2]}), "--recipe", self.write("mix.toml", recipe))
        expected = self.run_with(plan, "none", "--workers", 0)
        self.assertEqual(self.run_with(plan, "two", "--workers", 2), expected)
        self.assertTrue(np.isfinite(expected[0]).all())

    def test_the_loss_of_mixed_batches_is_that_of_soft_targets(self):
        """torchvision's MixUp is batch.roll(1, 0) · (1 − λ) + batch · λ, for targets likewise; PyTorch's cross_entropy with
        probabilities is the mean over samples of −Σ target · log_softmax. λ ~ Beta(10⁹, 10⁹) is 1/2 within 10⁻⁴."""
        rng = np.random.default_rng(8)
        pixels, labels = rng.integers(0, 256, (8, 3, 8, 8), dtype=np.uint8), np.array([0, 0, 1, 1, 0, 1, 0, 0])
        data = self.save("soft.safetensors", image=pixels, label=labels.astype(np.int64))
        recipe = RECIPE[:RECIPE.index("[[data.transform]]")] + """
[[data.transform]]
kind = "normalise"
mean = 0.5
std = 0.25
[[data.transform]]
kind = "one_hot"
classes = 2
smoothing = 0.2
[[data.transform]]
kind = "mixup"
alpha = 1e9
"""
        plan = self.compile(self.model({"label": [8, 2]}), "--recipe", self.write("soft.toml", recipe))
        run = self.train(plan, data, steps=1, out="soft")
        image, target = (pixels / 255 - 0.5) / 0.25, np.eye(2)[labels] * 0.8 + 0.1
        mixed, soft = (np.roll(v, 1, 0) * 0.5 + v * 0.5 for v in (image, target))
        logits = mixed.reshape(8, -1) @ models.random(1, 2, 192).astype(np.float64).T + models.random(2, 2)
        logs = logits - logits.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        expected = -(soft * logs).sum(1).mean()
        plain = -(target * logs).sum(1).mean()
        self.assertAlmostEqual(metrics(run)[0][0]["loss"] / expected, 1, delta=5e-4)
        self.assertGreater(abs(plain / expected - 1), 0.01, "unmixed targets would have shown")

    def test_samplers_and_limits(self):
        plan = self.plan()
        self.assertNotEqual(self.run_with(plan, "balanced", "--set", "data.sampler=balanced"), self.run_with(plan, "plain"))
        self.refuse(1, ["too few samples: 4"], "trun", plan, "--data", "images", "--set", "data.limit=4", "--out", "x")
        self.refuse(2, ["no-shuffle"], "trun", plan, "--data", "images", "--set", "data.sampler=balanced", "--no-shuffle",
                    "--out", "x")

    def test_mistakes(self):
        self.model()
        recipe = self.write("bad.toml", RECIPE.replace("horizontal_flip", "horizontal_flop"))
        self.refuse(1, [r"bad.toml:11:1: data.transform 2: kind .horizontal_flop. is unknown", "horizontal_flip"], "tcc", "m.onnx",
                    "--recipe", recipe, "-o", "x.tplan")
        plan = self.plan()
        for text, says in (("[{ kind = 'vertical_flip', p = 2 }]", "p: 2 is out of range"),
                           ("[{ 'kind': 'pad' }", "neither TOML"), ("[{\"kind\": \"pad\"}]", "needs padding")):
            self.refuse(2, [says], "trun", plan, "--data", "images", "--set", f"data.transform={text}", "--out", "x")
        self.refuse(1, [r"24x3x9x12", r"3x8x8"], "trun", plan, "--data", "images", "--set", "data.transform=[]", "--out", "x")

    def test_a_sheet_of_samples(self):
        plan = self.plan()
        self.succeed("trun", "data", "images", "--plan", plan, "--png", "sheet.png")
        with Image.open(self.folder / "sheet.png") as sheet:
            self.assertEqual(sheet.size, (8 * 66 + 2, 8 * 66 + 2))
            self.assertGreater(len(sheet.convert("RGB").getcolors(1 << 20)), 1000)


class Tokens(EndToEnd):
    """The model is one table, which gives each token's logits from that token alone; 16 tokens per sample."""

    def model(self, length=16):
        nodes = [helper.make_node("Gather", ["table", "ids"], ["hidden"], "embed"), helper.make_node("MatMul", ["hidden", "out"], ["logits"], "head")]
        path = models.save(self.folder / "m.onnx", nodes, {"ids": [4, length]}, {"logits": [4, length, 64]},
                           {"table": models.random(1, 64, 8), "out": models.random(2, 8, 64)})
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
        onnx.save(model, path)
        return path

    def plan(self, transform):
        rng = np.random.default_rng(4)
        self.write("t.bin", rng.integers(5, 60, 16 * 40).astype(np.uint16).tobytes())
        return self.compile(self.model(), "--recipe", self.write("r.toml", f"""
[loss]
kind = "cross_entropy"
target = "labels"
class_axis = -1
[optimizer]
kind = "sgd"
lr = 0.1
[[data.transform]]
{transform}"""))

    def losses(self, plan, out, *more, steps=25):
        self.succeed("trun", plan, "--data", "t.bin", "--seed", 3, "--steps", steps, "--out", out, *more)
        return [line["loss"] for line in metrics(self.folder / out)[0]]

    def test_masked_language_modelling(self):
        plan = self.plan('kind = "mask_tokens"\nmask = 63\nvocabulary = 64')
        expected = self.losses(plan, "none", "--workers", 0)
        for workers in (1, 2, 8):
            self.assertEqual(self.losses(plan, f"w{workers}", "--workers", workers), expected)
        self.losses(plan, "half", "--workers", 2, steps=12)
        self.succeed("trun", "--resume", "half", "--steps", 25)
        self.assertEqual([line["loss"] for line in metrics(self.folder / "half")[0]], expected)
        # If no token is chosen, none counts; if all are, the loss is that of the whole window.
        self.refuse(4, ["loss is"], "trun", plan, "--data", "t.bin", "--steps", 1, "--out", "x", "--set", "data.transform=[{ kind = 'mask_tokens', mask = 63, vocabulary = 64, p = 0 }]")
        self.save("ids.safetensors", ids=np.full((4, 16), 9, np.int64))
        self.succeed("trun", "predict", plan, "--inputs", "ids.safetensors", "--outputs", "o.safetensors")   # prediction masks no token
        self.refuse(1, ["mask = 70000", "u16"], "trun", plan, "--data", "t.bin", "--out", "y", "--set", "data.transform=[{ kind = 'mask_tokens', mask = 70000, vocabulary = 70001 }]")

    def test_the_loss_is_that_of_the_chosen_tokens(self):
        """With all tokens chosen and kept, the loss of step 1 is the cross-entropy of the window's logits with the window itself."""
        plan = self.plan('kind = "mask_tokens"\nmask = 63\nvocabulary = 64\np = 1\nkeep = 1\nrandom = 0')
        self.succeed("trun", plan, "--data", "t.bin", "--no-shuffle", "--steps", 1, "--out", "run")
        ids = np.frombuffer((self.folder / "t.bin").read_bytes(), np.uint16)[:64].astype(int)
        logits = (models.random(1, 64, 8).astype(np.float64) @ models.random(2, 8, 64))[ids]
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        self.assertAlmostEqual(metrics(self.folder / "run")[0][0]["loss"], -logs[np.arange(64), ids].mean(), places=4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
