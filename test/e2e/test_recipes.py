"""The pages recipes.md, losses.md and stages.md of docs/guide: the tests read recipes and commands from the pages, run them with fewer
steps, and compare the result with what the pages say."""
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import onnxruntime
import safetensors.numpy
from PIL import Image

from common import ROOT, EndToEnd, metrics

EXAMPLES = ROOT / "examples" / "recipes"


def sections(page):
    """Name of a section's recipe → (recipe, commands)."""
    found = {}
    for section in (ROOT / "docs" / "guide" / page).read_text().split("\n## "):
        if recipe := re.search(r"```toml\n# ([\w-]+)\.toml\n(.*?)```", section, re.DOTALL):
            found[recipe[1]] = (recipe[0][8:-3], re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].strip().splitlines())
    return found


SECTIONS = sections("recipes.md")             # each trains a model of its own
MORE = sections("losses.md") | sections("stages.md")


def softmax_loss(logits, labels):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]))


class Recipes(EndToEnd):
    """All tests share one folder: fine-tuning begins where the first recipe ends."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="tcc-recipes-")
        cls.addClassCleanup(holder.cleanup)
        cls.shared = Path(holder.name)
        for path in [*EXAMPLES.iterdir(), ROOT / "examples" / "char-gpt" / "shakespeare.txt"]:
            shutil.copy(path, cls.shared)
        cls.done = {}

    def setUp(self):
        self.folder = self.shared

    def follow(self, name, steps, every):
        """Does what the section says, with `steps` updates and an evaluation after each `every`. Returns (lines of updates, lines of
        evaluations)."""
        if name not in self.done:
            recipe, commands = (SECTIONS | MORE)[name]
            (self.folder / f"{name}.toml").write_text(recipe)
            self.done[name] = []
            for line in commands:
                count = steps + 4 if "--resume" in line else steps
                line = re.sub(r"--eval-every \d+", f"--eval-every {every}", re.sub(r"--(steps|epochs) \d+", f"--steps {count}", line))
                program, *words = shlex.split(line)
                if program == "python":
                    subprocess.run([sys.executable, *words], cwd=self.folder, check=True, timeout=60)
                else:
                    self.done[name].append(self.succeed(program, *words))
        return metrics(self.folder / f"{name}-run")

    def falls(self, losses, below):
        """The losses fall from the first step to the mean of the last ones, and below a value that only learning reaches."""
        self.assertLess(np.mean(losses[-8:]), below)
        self.assertGreater(losses[0], np.mean(losses[-8:]))

    def run_onnx(self, name, **inputs):
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 3
        session = onnxruntime.InferenceSession(self.folder / f"{name}-trained.onnx", quiet, providers=["CPUExecutionProvider"])
        return session.run(None, inputs)[0]

    def tensors(self, name, step="best"):
        """The weights of a run's checkpoint."""
        self.succeed("trun", "export", f"{name}-run@{step}", "-o", f"{name}.safetensors")
        return safetensors.numpy.load_file(self.folder / f"{name}.safetensors")

    def test_the_page_has_every_example(self):
        models = set(SECTIONS) - {"lora"}     # lora trains gpt's model
        self.assertEqual({p.stem for p in EXAMPLES.glob("*.onnx")}, models)
        exported = re.findall(r'^    "([\w-]+)": lambda', (EXAMPLES / "export.py").read_text(), re.MULTILINE)
        self.assertEqual(sorted(exported), sorted(models))

    def images(self):
        return self.follow("images", 120, 30)

    def test_images(self):
        updates, evaluations = self.images()
        self.falls([v["loss"] for v in updates], 1.0)
        best = max(v["eval_accuracy"] for v in evaluations)
        self.assertGreater(best, 0.7, "of four classes")
        self.assertGreater(evaluations[-1]["ema_eval_accuracy"], 0.7)
        files = sorted((self.folder / "images" / "test").rglob("*.png"))
        pixels = np.stack([np.asarray(Image.open(p)) for p in files])[:, 2:34, 2:34].transpose(0, 3, 1, 2).astype(np.float32)
        labels = np.arange(len(files)) // 40
        logits = np.concatenate([self.run_onnx("images", image=(part / 255 - 0.5) / 0.25) for part in np.split(pixels, 5)])
        self.assertAlmostEqual(np.mean(logits.argmax(1) == labels), best, delta=1.5 / 160, msg="onnxruntime scores the best checkpoint")

    def test_finetune(self):
        self.images()
        updates, evaluations = self.follow("finetune", 60, 10)
        self.falls([v["loss"] for v in updates], 0.7)
        self.assertGreater(max(v["eval_accuracy"] for v in evaluations), 0.7, "of three classes, each of them held out")
        self.assertEqual(self.done["finetune"][1].err.count("'fc.weight' (f32[4x32], the model's is f32[3x32])"), 1)
        before, after = self.tensors("images"), self.tensors("finetune")
        frozen = [n for n in before if n.startswith(("stem.", "layer1."))]
        self.assertGreater(len(frozen), 10)
        for name in frozen:
            np.testing.assert_array_equal(before[name], after[name], name)
        line = json.loads(self.succeed("trun", "eval", "finetune.tplan", "--data", "few/train", "--set", "data.limit=48", "--from", "finetune-run@best").out)
        self.assertGreater(line["eval_accuracy"], 0.8, "the frozen weights of the run, not those of the model")
        self.succeed("trun", "finetune.tplan", "--data", "few/train", "--init-partial", "--init", "images-run@best", "--set", "schedule.total_steps=12", "--eval-every", 6, "--steps", 6, "--out", "half")
        self.succeed("trun", "--resume", "half", "--steps", 12)
        self.succeed("trun", "finetune.tplan", "--data", "few/train", "--init-partial", "--init", "images-run@best", "--set", "schedule.total_steps=12", "--eval-every", 6, "--steps", 12, "--out", "whole")
        self.assertEqual([v["loss"] for v in metrics(self.folder / "half")[0]][6:], [v["loss"] for v in metrics(self.folder / "whole")[0]][6:])
        moved = [np.abs(before[n] - after[n]).max() for n in before if n.startswith("layer2.") and n.endswith("weight")]
        self.assertGreater(min(moved), 1e-4)

    def test_gpt(self):
        updates, evaluations = self.follow("gpt", 60, 30)
        losses = [v["loss"] for v in updates]
        self.assertEqual(len(losses), 64, "60 and the resumed ones")
        self.assertAlmostEqual(losses[0], np.log(65), delta=0.3)
        self.falls(losses, 3.1)
        last = evaluations[-1]
        self.assertAlmostEqual(last["eval_perplexity"] / np.exp(last["eval_loss"]), 1, 6)
        text = np.fromfile(self.folder / "text" / "test.bin", np.uint16)[:8 * 64 * 4 + 1].astype(np.int64)
        rows, targets = text[:-1].reshape(-1, 8, 64), text[1:].reshape(-1, 8, 64)
        loss = np.mean([softmax_loss(self.run_onnx("gpt", ids=r), t) for r, t in zip(rows, targets)])
        self.assertAlmostEqual(loss, last["eval_loss"], delta=0.15, msg="on a part of the test's text")

    def test_lora(self):
        self.follow("gpt", 60, 30)
        updates, evaluations = self.follow("lora", 60, 30)
        self.falls([v["loss"] for v in updates], 3.1)
        self.assertLess(evaluations[-1]["eval_loss"], updates[0]["loss"] - 0.3)
        adapter = safetensors.numpy.load_file(self.folder / "lora-adapter" / "adapter_model.safetensors")
        self.assertEqual(adapter["base_model.model.layers.0.attn.lora_A.weight"].shape, (8, 48))
        # The merged file computes the same as adapter and frozen weights side by side; all but the adapted matrices equal the base's.
        text = np.fromfile(self.folder / "capitals" / "test.bin", np.uint16)[:8 * 64 * 4 + 1].astype(np.int64)
        rows, targets = text[:-1].reshape(-1, 8, 64), text[1:].reshape(-1, 8, 64)
        loss = np.mean([softmax_loss(self.run_onnx("lora", ids=r), t) for r, t in zip(rows, targets)])
        self.assertAlmostEqual(loss, evaluations[-1]["eval_loss"], delta=0.15, msg="on a part of the test's text")
        base, merged = self.tensors("gpt", "last"), self.tensors("lora", "last")
        moved = {name for name in base if not np.array_equal(base[name], merged[name])}
        self.assertEqual({f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight" for name in moved},
                         {name for name in adapter if "lora_A" in name})

    def test_bert(self):
        updates, evaluations = self.follow("bert", 160, 40)
        self.falls([v["loss"] for v in updates], 0.6)
        self.assertGreater(evaluations[-1]["eval_f1"], 0.75)
        scales = {p: g["lr_scale"] for g in self.report("bert.tplan")["parameters"]["groups"] for p in g["parameters"]}
        self.assertAlmostEqual(scales["encoder.layers.0.fc.weight"], 0.8)
        self.assertAlmostEqual(scales["encoder.tokens.weight"], 0.64)
        test = np.load(self.folder / "bert" / "test.npz")
        ids, mask = (test[n][:16].copy() for n in ("input_ids", "attention_mask"))
        padded = self.run_onnx("bert", input_ids=ids, attention_mask=mask)
        ids[mask == 0] = 7
        np.testing.assert_allclose(self.run_onnx("bert", input_ids=ids, attention_mask=mask), padded, rtol=1e-4, atol=1e-5,
                                   err_msg="padding is not attended to")

    def test_mlm(self):
        updates, evaluations = self.follow("mlm", 160, 80)
        self.falls([v["loss"] for v in updates], 3.5)
        self.assertGreater(evaluations[-1]["eval_accuracy"], 0.14, "of 65 characters")
        self.assertLess(evaluations[-1]["eval_loss"], evaluations[0]["eval_loss"])

    def test_segmentation(self):
        updates, evaluations = self.follow("segmentation", 120, 40)
        self.falls([v["loss"] for v in updates], 0.65)
        best = max(v["eval_f1"] for v in evaluations)
        self.assertGreater(best, 0.6, "a mask that does not move with its image cannot be learned")
        test = np.load(self.folder / "segmentation" / "test.npz")
        image = (test["image"][:8, :, 2:34, 2:34].astype(np.float32) / 255 - 0.5) / 0.25
        found, mask = self.run_onnx("segmentation", image=image).argmax(1), test["mask"][:8, 2:34, 2:34]
        self.assertGreater(np.mean(found == mask), 0.8)

    def test_series(self):
        updates, evaluations = self.follow("series", 300, 100)
        self.falls([v["loss"] for v in updates], 0.02)
        test = np.load(self.folder / "series" / "test.npz")
        repeated = np.abs(test["history"][:, -1:, 0] - test["future"]).mean()
        self.assertLess(evaluations[-1]["eval_mae"], 0.3 * repeated)
        self.assertGreater(evaluations[-1]["eval_r2"], 0.9)
        forecast = safetensors.numpy.load_file(self.folder / "forecast.safetensors")["forecast"]
        best = self.run_onnx("series", history=np.load(self.folder / "series" / "one.npz")["history"])
        np.testing.assert_allclose(forecast, best, rtol=1e-4, atol=1e-5)

    def test_contrastive(self):
        updates, evaluations = self.follow("contrastive", 80, 40)
        self.falls([v["loss"] for v in updates], 3.0)
        self.assertLess(evaluations[0]["eval_agreement"], 0.999, "two views differ")
        self.assertGreater(evaluations[-1]["eval_agreement"], 0.2, "of 63 candidates")
        learned = safetensors.numpy.load_file(self.folder / "contrastive.safetensors")
        self.assertIn("encoder.0.0.weight", learned)

    def test_gan(self):
        updates, _ = self.follow("gan", 200, 0)
        for phase in ("discriminator", "generator"):
            losses = [v[f"loss.{phase}"] for v in updates]
            self.assertEqual(len(losses), 200)
            self.assertTrue(np.isfinite(losses).all())
        files = sorted((self.folder / "images" / "train").rglob("*.png"))[::8]
        real = np.stack([np.asarray(Image.open(p).resize((16, 16))) for p in files]).transpose(0, 3, 1, 2) / 127.5 - 1
        after = safetensors.numpy.load_file(self.folder / "samples.safetensors")["samples"]
        self.succeed("trun", "predict", "gan.tplan", "--inputs", "images/test", "--set", "data.limit=32", "--outputs", "before.safetensors")
        before = safetensors.numpy.load_file(self.folder / "before.safetensors")["samples"]
        # Colours within one image are alike, between images they differ: before training, the generator's images have neither property.
        spread = lambda images: images.mean((2, 3)).std(0).mean()
        self.assertLess(abs(spread(after) - spread(real)), abs(spread(before) - spread(real)))

    def test_tabular(self):
        updates, evaluations = self.follow("tabular", 200, 50)
        self.falls([v["loss"] for v in updates], 0.6)
        self.assertGreater(max(v["eval_auroc"] for v in evaluations), 0.9)
        rows = json.loads((self.folder / "tabular-sweep" / "summary.json").read_text())
        self.assertEqual(len(rows), 2)

    def test_weighted(self):
        updates, evaluations = self.follow("weighted", 200, 50)
        self.falls([v["loss"] for v in updates], 0.5)
        self.assertLess(evaluations[-1]["eval_loss"], evaluations[0]["eval_loss"])

    def test_two_losses(self):
        updates, evaluations = self.follow("two-losses", 200, 50)
        self.falls([v["loss"] for v in updates], 0.3)
        for line, key in ((updates[-1], "loss"), (evaluations[-1], "eval_loss")):
            self.assertAlmostEqual(line[key], line[f"{key}/mse"] + 0.3 * line[f"{key}/absolute"], 5)

    def test_stages(self):
        self.images()
        updates, evaluations = self.follow("stages", 60, 10)
        self.falls([v["loss"] for v in updates], 0.8)
        self.assertEqual([v["lr"] for v in updates][18:22] + [updates[-1]["lr"]], [5e-3, 5e-3, 1.5e-3, 1.5e-3, 5e-4])
        for text in (self.done["stages"][1].out, self.done["stages"][3].out):
            self.assertRegex(text, r"stage2, updates 21 to 40, lr × 0.3, trains:? ")
        self.assertGreater(max(v["eval_accuracy"] for v in evaluations), 0.6, "of three classes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
