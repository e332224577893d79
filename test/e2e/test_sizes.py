"""Images of several sizes: each goes to the smallest shape of the plan that holds it, and is padded at the bottom and right.

A small network of convolutions classifies images of a folder or a tar, or their pixels. Every batch must have the loss that a
plan of its shape alone gives to the batch that NumPy pads."""
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import unittest

import numpy as np
import safetensors.numpy
from onnx import helper
from PIL import Image

import models
from common import BIN, ROOT, EndToEnd, metrics

os.environ.setdefault("TCC_LIBRARY", str(BIN.parent / "lib" / "libtrun.so"))
os.environ.setdefault("TCC_PROGRAM", str(BIN / "tcc"))
sys.path.insert(0, str(ROOT / "python"))
import tcc                                                                      # noqa: E402

SHAPES = [(4, 12, 12), (3, 12, 20), (2, 20, 12), (2, 20, 20)]  # batch, height, width; two of them are equally large
CLASSES, SAMPLES = 3, 50
MEAN, STD, PAD = np.float32(0.5), np.float32(0.25), -0.25
NORMALISE = f'[[data.transform]]\nkind = "normalise"\nmean = {MEAN}\nstd = {STD}\n'
BUCKETS = "[model]\nbuckets = [" + ", ".join(f"{{ n = {n}, h = {h}, w = {w} }}" for n, h, w in SHAPES) + "]\n"
RECIPE = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "label"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n'
PADS = f"[data.pad]\nimage = {PAD}\n"


def network(path, pixels):
    """image [n, 3, h, w] → logits: [n, 3] of images, or [n, 3, h, w] of pixels."""
    nodes = [helper.make_node("Conv", ["image", "w1", "b1"], ["c"], "first", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
             helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("Conv", ["r", "w2", "b2"], ["logits" if pixels else "scores"], "second", pads=[1, 1, 1, 1], kernel_shape=[3, 3])]
    if not pixels:
        nodes.append(helper.make_node("ReduceMean", ["scores", "axes"], ["logits"], "mean", keepdims=0))
    weights = {"w1": models.random(1, 8, 3, 3, 3), "b1": models.random(2, 8), "w2": models.random(3, CLASSES, 8, 3, 3), "b2": models.random(4, CLASSES)}
    return models.save(path, nodes, {"image": ["n", 3, "h", "w"]}, {"logits": ["n", CLASSES] + ["h", "w"] * pixels},
                       weights | ({} if pixels else {"axes": np.array([2, 3])}), opset=18)


def shape_of(height, width):
    """The smallest shape that holds an image, the first of equally large ones."""
    fitting = [s for s, (_, h, w) in enumerate(SHAPES) if height <= h and width <= w]
    return min(fitting, key=lambda s: (SHAPES[s][1] * SHAPES[s][2], -SHAPES[s][0]))


class Pictures:
    """Images of 3 to 20 pixels a side, with labels and masks."""

    def __init__(self, samples=SAMPLES):
        rng = np.random.default_rng(9)
        self.sizes = rng.integers(3, 21, (samples, 2))
        self.sizes[:4] = [(3, 3), (20, 20), (12, 20), (20, 12)]
        self.pixels = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in self.sizes]
        self.labels = np.sort(rng.integers(0, CLASSES, samples))  # class folders are sorted
        self.masks = [(image.astype(int).sum(2) % CLASSES).astype(np.uint8) for image in self.pixels]

    def folder(self, path):
        for i, image in enumerate(self.pixels):
            place = path / "abc"[self.labels[i]] / f"{i:03}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place)
        return path

    def tar(self, path, masks=False):
        with tarfile.open(path, "w") as tar:
            for i, image in enumerate(self.pixels):
                members = {f"{i:03}.png": png(Image.fromarray(image)), f"{i:03}.cls": str(self.labels[i]).encode()}
                if masks:
                    members = {f"{i:03}.png": members[f"{i:03}.png"], f"{i:03}.mask.png": png(Image.fromarray(self.masks[i]))}
                for name, content in members.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return path

    def arrays(self):
        """Columns of elements and of shapes."""
        return {"image": np.concatenate([image.transpose(2, 0, 1).ravel() for image in self.pixels]),
                "image.shapes": np.array([(3, h, w) for h, w in self.sizes]),
                "mask": np.concatenate([mask.ravel() for mask in self.masks]), "mask.shapes": np.array(self.sizes)}

    def image(self, i):
        return (self.pixels[i].transpose(2, 0, 1).astype(np.float32) / np.float32(255) - MEAN) / STD

    def padded(self, samples, height, width, images=None):
        made = np.full((len(samples), 3, height, width), PAD, np.float32)
        for row, i in enumerate(samples):
            image = (images or self.image)(i)[:, :height, :width]
            made[row, :, :image.shape[1], :image.shape[2]] = image
        return made

    def padded_masks(self, samples, height, width):
        made = np.full((len(samples), height, width), -100)
        for row, i in enumerate(samples):
            h, w = self.sizes[i]
            made[row, :h, :w] = self.masks[i]
        return made

    def batches(self, pad=False, sizes=None):
        """An epoch without shuffling: each batch with its shape."""
        open_, made = [[] for _ in SHAPES], []
        for i, (height, width) in enumerate(self.sizes if sizes is None else sizes):
            shape = shape_of(height, width)
            open_[shape].append(i)
            if len(open_[shape]) == SHAPES[shape][0]:
                made.append((shape, open_[shape]))
                open_[shape] = []
        return made + ([(shape, rest) for shape, rest in enumerate(open_) if rest] if pad else [])


def png(image):
    memory = io.BytesIO()
    image.save(memory, "png")
    return memory.getvalue()


class Sized(EndToEnd):
    def setUp(self):
        super().setUp()
        self.data = Pictures()
        self.model = network(self.folder / "m.onnx", self.target == "mask")

    def plan(self, *words, recipe=BUCKETS + RECIPE + PADS + NORMALISE, plan="plan.tplan"):
        return self.compile(self.model, "--recipe", self.write("r.toml", recipe.replace('"label"', f'"{self.target}"')), *words, plan=plan)

    def images(self):
        return self.data.folder(self.folder / "images") if not (self.folder / "images").exists() else self.folder / "images"

    def train(self, plan, *words, data=None, out="run", epochs=2):
        return self.succeed("trun", plan, "--data", data or self.images(), "--epochs", epochs, "--out", out, *words)

    def losses(self, run="run"):
        return [line["loss"] for line in metrics(self.folder / run)[0]]

    def bits(self, run):
        self.weights(run, "bits.safetensors")
        return (self.folder / "bits.safetensors").read_bytes()

    def of_one_shape(self, epochs, batches, give, settings=None):
        """The losses of these batches, each trained by a plan of its shape alone, which takes over the weights."""
        common = {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": self.target, "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        trainers, state, losses = {}, None, []
        for shape, samples in batches * epochs:
            n, h, w = SHAPES[shape]
            if shape not in trainers:
                trainers[shape] = tcc.Trainer(tcc.compile(str(self.model), common | (settings or {}) | {"model.dims": {"n": n, "h": h, "w": w}}))
            trainer = trainers[shape]
            if state is not None:
                trainer.set_parameters(state)
            losses.append(trainer.step(**give(samples, h, w)).loss)
            state = trainer.get_parameters()
        return losses, trainer


class Images(Sized):
    target = "label"

    def give(self, samples, height, width):
        return {"image": self.data.padded(samples, height, width), "label": self.data.labels[samples]}

    def test_training_is_that_of_plans_of_one_shape(self):
        plan, batches = self.plan(), self.data.batches()
        self.assertEqual({shape for shape, _ in batches}, set(range(len(SHAPES))))
        expected, _ = self.of_one_shape(2, batches, self.give)
        tar = self.data.tar(self.folder / "d.tar")
        for name, data in (("folder", self.images()), ("tar", tar)):
            self.train(plan, "--no-shuffle", data=data, out=name)
            self.assertEqual(self.losses(name), expected, name)
        cached = self.train(plan, "--no-shuffle", "--set", "data.cache=cache", out="cached")
        self.assertIn("50 images are in cache/", cached.err)
        self.train(plan, "--no-shuffle", "--set", "data.cache=cache", out="again")
        for out in ("cached", "again"):
            self.assertEqual(self.losses(out), expected, out)

    def test_every_image_is_seen_once_an_epoch(self):
        """With a rate of 0 the losses of an epoch add up to those of all images."""
        plan = self.plan("--set", "optimizer.lr=0", "--set", "data.last=pad")
        batches = self.data.batches(pad=True)
        self.assertEqual(sorted(i for _, samples in batches for i in samples), list(range(SAMPLES)))
        losses, _ = self.of_one_shape(1, batches, self.give, settings={"optimizer.lr": 0.0, "data.last": "pad"})
        expected, orders = sum(len(samples) * loss for (_, samples), loss in zip(batches, losses)), set()
        for seed in range(3):
            self.train(plan, "--seed", seed, out=f"run{seed}", epochs=1)
            lines = metrics(self.folder / f"run{seed}")[0]
            counts = [round(line["samples_per_s"] * line["seconds"]) for line in lines]
            self.assertEqual(sum(counts), SAMPLES)
            self.assertAlmostEqual(sum(n * line["loss"] for n, line in zip(counts, lines)), expected, delta=1e-4 * expected)
            orders.add(tuple(line["loss"] for line in lines))
        self.assertEqual(len(orders), 3)

    def test_bits_do_not_depend_on_threads_or_on_a_resume(self):
        flips = '[[data.transform]]\nkind = "horizontal_flip"\n[[data.transform]]\nkind = "rotation"\ndegrees = 20\n'
        plan = self.plan("--set", "train.accumulate=2", recipe=BUCKETS + RECIPE + PADS + flips + NORMALISE)
        self.train(plan, "--set", "data.workers=0")
        whole = self.bits("run")
        for workers in (1, 3):
            self.train(plan, "--set", f"data.workers={workers}", out=f"by{workers}")
            self.assertEqual(self.losses(f"by{workers}"), self.losses())
            self.assertEqual(self.bits(f"by{workers}"), whole)
        for steps in (3, 8):
            self.succeed("trun", plan, "--data", self.images(), "--steps", steps, "--out", f"part{steps}")
            self.succeed("trun", plan, "--data", self.images(), "--epochs", 2, "--resume", f"part{steps}")
            self.assertEqual(self.losses(f"part{steps}"), self.losses())
            self.assertEqual(self.bits(f"part{steps}"), whole)

    def test_ranks_take_the_same_shape(self):
        plan = self.plan("--set", "train.virtual_ranks=2", "--set", "parallel.mode=ddp")
        self.train(plan, out="one")
        self.train(plan, "--nproc", 2, out="two")
        self.assertGreater(len(self.losses("one")), 4)
        self.assertEqual(self.losses("one"), self.losses("two"))
        self.assertEqual(self.bits("one"), self.bits("two"))

    def test_evaluation_and_prediction(self):
        """Evaluation in batches of five, prediction one by one, both in the smallest shape of each image."""
        plan = self.plan("--set", "evaluate.dims.n=5", "--set", "predict.dims.n=1")
        self.train(plan, "--no-shuffle", "--eval-data", self.images(), "--eval-every", "epoch", epochs=1)
        _, trainer = self.of_one_shape(1, self.data.batches(), self.give)
        one = tcc.Trainer(tcc.compile(str(self.model), {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "label", "optimizer.kind": "sgd",
                                                        "model.buckets": [{"n": 1, "h": h, "w": w} for _, h, w in SHAPES]}))
        one.set_parameters(trainer.get_parameters())
        logits = []
        for i in range(SAMPLES):
            _, h, w = SHAPES[shape_of(*self.data.sizes[i])]
            logits.append(one.predict(image=self.data.padded([i], h, w))["logits"][0])
        logits = np.array(logits, np.float64)
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(SAMPLES), self.data.labels]
        result = metrics(self.folder / "run")[1][-1]
        self.assertAlmostEqual(result["eval_loss"], losses.mean(), delta=1e-5)
        self.assertAlmostEqual(result["eval_accuracy"], (logits.argmax(1) == self.data.labels).mean(), delta=1e-9)
        alone = json.loads(self.succeed("trun", "eval", plan, "--from", "run", "--data", self.data.tar(self.folder / "d.tar")).out)
        self.assertEqual(alone["eval_loss"], result["eval_loss"])
        self.assertEqual(alone["samples"], SAMPLES)
        for inputs in (self.images(), self.folder / "images" / "?" / "*.png"):
            self.succeed("trun", "predict", plan, "--from", "run", "--inputs", inputs, "--outputs", "out.safetensors")
            np.testing.assert_allclose(safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"], logits, rtol=1e-5, atol=1e-6)
        for i in (0, 1, 7):  # one file
            name = next((self.folder / "images").glob(f"?/{i:03}.png"))
            self.succeed("trun", "predict", plan, "--from", "run", "--inputs", name, "--outputs", "out.safetensors")
            np.testing.assert_allclose(safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"], logits[[i]], rtol=1e-5, atol=1e-6)

    def test_the_shorter_side_and_a_limit_of_the_longer_one(self):
        """Detectors' transform. Sizes after it choose the shape."""
        recipe = BUCKETS + RECIPE + PADS + '[[data.transform]]\nkind = "resize"\nsize = 11\nmax_size = 17\n' + NORMALISE

        def resized(i):
            image = Image.fromarray(self.data.pixels[i])
            short, long = 11, int(11 * max(image.size) / min(image.size))
            if long > 17:
                short, long = int(17 * short / long), 17
            image = image.resize((short, long) if image.width <= image.height else (long, short), Image.Resampling.BILINEAR)
            return (np.asarray(image).transpose(2, 0, 1).astype(np.float32) / np.float32(255) - MEAN) / STD

        batches = self.data.batches(sizes=[resized(i).shape[1:] for i in range(SAMPLES)])
        self.assertGreater(len({shape for shape, _ in batches}), 2)
        expected, _ = self.of_one_shape(
            1, batches, lambda samples, h, w: {"image": self.data.padded(samples, h, w, resized), "label": self.data.labels[samples]})
        self.train(self.plan(recipe=recipe), "--no-shuffle", epochs=1)
        np.testing.assert_allclose(self.losses(), expected, rtol=1e-6)

    def test_one_size_after_transforms_takes_one_shape(self):
        """A crop fixes the size: the smallest shape that holds it takes all images."""
        crop = '[[data.transform]]\nkind = "center_crop"\nsize = [12, 14]\n'
        done = self.train(self.plan(recipe=BUCKETS + RECIPE + PADS + crop + NORMALISE), "--no-shuffle", epochs=1)
        self.assertEqual(len(self.losses()), SAMPLES // SHAPES[1][0], done.err)

    def test_one_shape_pads_only_where_it_is_told(self):
        words = ("--dim", "n=5", "--dim", "h=20", "--dim", "w=20")
        plain = self.plan(*words, recipe=RECIPE + NORMALISE)
        self.refuse(1, ["model's input 'image' is \\[3x20x20\\]|a sample of the model's input 'image' is f32\\[3x20x20\\]"], "trun", plain, "--data",
                    self.images(), "--out", "no")
        self.train(plain, "--no-shuffle", "--set", f"data.pad.image={PAD}", epochs=1)
        trainer = tcc.Trainer(tcc.Plan(plain))
        expected = [trainer.step(**self.give(list(range(at, at + 5)), 20, 20)).loss for at in range(0, SAMPLES, 5)]
        self.assertEqual(self.losses(), expected)

    def test_larger_images(self):
        plan = self.plan()
        (self.folder / "images" / "a").mkdir(parents=True)
        self.images()
        self.data.folder(self.folder / "images")
        Image.fromarray(np.zeros((7, 31, 3), np.uint8)).save(self.folder / "images/a/zz.png")
        last = next(i for i, label in enumerate(self.data.labels) if label)
        self.refuse(1, [rf"column 'image': sample {last} \(.*images/a/zz.png\) has 31x7 pixels, the model's input 'image' takes 12x12 or 20x12 or 12x20 or "
                        "20x20 pixels", "model.buckets, or tcc --dim NAME=N", "resize", "--set data.too_long=cut"], "trun", plan,
                    "--data", self.images(), "--out", "no")
        self.train(plan, "--set", "data.too_long=cut", epochs=1)
        resized = '[[data.transform]]\nkind = "resize"\nsize = 12\nmax_size = 20\n'
        self.train(self.plan(recipe=BUCKETS + RECIPE + resized + PADS), out="resized", epochs=1)
        self.plan("--dim", "h=20", "--dim", "w=31", plan="wide.tplan")
        self.train("wide.tplan", "--set", "data.last=pad", out="wide", epochs=1)

    def test_a_cut_image_keeps_its_top_left_part(self):
        plan = self.plan("--dim", "h=8", "--dim", "w=9", "--dim", "n=5")
        self.train(plan, "--no-shuffle", "--set", "data.too_long=cut", epochs=1)
        trainer = tcc.Trainer(tcc.Plan(plan))
        expected = [trainer.step(**self.give(list(range(at, at + 5)), 8, 9)).loss for at in range(0, SAMPLES, 5)]
        self.assertEqual(self.losses(), expected)

    def test_damaged_images(self):
        plan = self.plan("--set", "data.last=pad")
        self.images()
        broken = {3: b"no image", 10: None, 20: None}
        for i, content in broken.items():
            name = next((self.folder / "images").glob(f"?/{i:03}.png"))
            name.write_bytes(content or name.read_bytes()[:60])
        self.refuse(1, ["data.max_bad"], "trun", plan, "--data", self.images(), "--out", "no")
        runs = []
        for workers in (0, 3):
            done = self.train(plan, "--set", "data.max_bad=3", "--set", f"data.workers={workers}", out=f"run{workers}")
            self.assertIn("damaged sample 3 is left out", done.err)
            runs.append((self.losses(f"run{workers}"), self.bits(f"run{workers}")))
        self.assertEqual(*runs)
        found = self.command("trun", "data", self.images(), "--plan", plan)
        self.assertEqual(found.status, 1, str(found))
        self.assertEqual(re.findall(r"damaged sample (\d+)", found.out), ["3", "10", "20"])
        self.assertIn("sizes of image: from 3x3x3 to 3x20x20", found.out)
        self.assertEqual(re.findall(r"damaged sample (\d+)", self.command("trun", "data", self.images()).out), ["3", "10", "20"])

    def test_an_own_loop(self):
        """Batches between the shapes are padded in both axes, by data.pad."""
        trainer = tcc.Trainer(tcc.Plan(self.plan()))
        expected, _ = self.of_one_shape(1, self.data.batches(), self.give)
        for (_, samples), loss in zip(self.data.batches(), expected):
            height, width = self.data.sizes[samples].max(0)
            self.assertEqual(trainer.step(**self.give(samples, height, width)).loss, loss)
        image = self.data.padded([0, 1], 15, 9)
        strided = image.transpose(2, 3, 0, 1).copy().transpose(2, 3, 0, 1)
        whole = np.pad(image, ((0, 0), (0, 0), (0, 5), (0, 3)), constant_values=PAD)
        np.testing.assert_array_equal(trainer.predict(image=strided)["logits"], trainer.predict(image=whole)["logits"])
        with self.assertRaisesRegex(tcc.Error, r"'image' is f32\[2x3x12x21\], the model's input is f32\[2x3x20x20\].*and axes 2, 3 may be shorter"):
            trainer.step(image=np.zeros((2, 3, 12, 21), np.float32), label=np.zeros(2, np.int64))


class Masks(Sized):
    """Each pixel has a class. A mask is as large as its image and is padded with the class that the loss ignores."""

    target = "mask"

    def give(self, samples, height, width):
        return {"image": self.data.padded(samples, height, width), "mask": self.data.padded_masks(samples, height, width)}

    def test_masks_beside_images_and_in_arrays(self):
        plan = self.plan()
        expected, _ = self.of_one_shape(2, self.data.batches(), self.give)
        arrays = self.data.arrays()
        for name, data in (("tar", self.data.tar(self.folder / "d.tar", masks=True)), ("arrays", self.save("d.safetensors", **arrays))):
            self.train(plan, "--no-shuffle", data=data, out=name)
            self.assertEqual(self.losses(name), expected, name)
        tokens = [round(line["tokens_per_s"] * line["seconds"]) for line in metrics(self.folder / "tar")[0]]
        self.assertEqual(tokens, [sum(h * w for h, w in self.data.sizes[samples]) for _, samples in self.data.batches()] * 2)
        folder = self.folder / "flat"
        folder.mkdir()
        for i in range(SAMPLES):
            Image.fromarray(self.data.pixels[i]).save(folder / f"{i:03}.png")
            Image.fromarray(self.data.masks[i]).save(folder / f"{i:03}.mask.png")
        self.train(plan, "--no-shuffle", data=folder, out="folder")
        self.assertEqual(self.losses("folder"), expected)
        wrong = arrays["mask.shapes"].copy()
        odd = next(i for i, (h, w) in enumerate(self.data.sizes) if h != w)
        wrong[odd] = wrong[odd][::-1]
        h, w = self.data.sizes[odd]
        self.refuse(1, [f"sample {odd} is {w}x{h} in column 'image' and {h}x{w} in column 'mask'"], "trun", plan, "--data",
                    self.save("wrong.safetensors", **(arrays | {"mask.shapes": wrong})), "--out", "no")

    def test_outputs_are_as_large_as_the_largest_shape(self):
        """Zeros follow the end of a sample in both axes. The axes correspond although heights and widths of shapes are alike."""
        plan = self.plan("--set", "predict.dims.n=1", "--set", "evaluate.dims.n=3")
        tar = self.data.tar(self.folder / "d.tar", masks=True)
        self.succeed("trun", "predict", plan, "--inputs", tar, "--outputs", "out.safetensors")
        found = safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"]
        self.assertEqual(found.shape, (SAMPLES, CLASSES, 20, 20))
        one = tcc.Trainer(tcc.Plan(plan))
        losses = pixels = 0
        for i, (h, w) in enumerate(self.data.sizes):
            _, height, width = SHAPES[shape_of(h, w)]
            logits = one.predict(image=self.data.padded([i], height, width))["logits"][0]
            self.assertEqual(logits.shape, (CLASSES, height, width))
            np.testing.assert_array_equal(found[i, :, :h, :w], logits[:, :h, :w])
            self.assertFalse(found[i, :, h:].any() or found[i, :, :, w:].any())
            logits = logits[:, :h, :w].astype(np.float64)
            chosen = np.take_along_axis(logits, self.data.masks[i][None].astype(int), 0)[0]
            losses += (np.log(np.exp(logits).sum(0)) - chosen).sum()
            pixels += h * w
        result = json.loads(self.succeed("trun", "eval", plan, "--data", tar).out)
        self.assertAlmostEqual(result["eval_loss"], losses / pixels, delta=1e-5)
        self.assertEqual(result["samples"], SAMPLES)

    def test_square_shapes(self):
        """Heights and widths of square shapes are the same numbers."""
        recipe = "[model]\nbuckets = [{ n = 4, h = 12, w = 12 }, { n = 2, h = 20, w = 20 }]\n" + RECIPE + PADS + NORMALISE
        plan = self.plan(recipe=recipe)
        self.succeed("trun", "predict", plan, "--inputs", self.data.tar(self.folder / "d.tar", masks=True), "--outputs", "out.safetensors")
        found = safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"]
        for i, (h, w) in enumerate(self.data.sizes):
            self.assertTrue(found[i, :, :h, :w].any())
            self.assertFalse(found[i, :, h:].any() or found[i, :, :, w:].any())

    def test_masks_move_with_random_transforms(self):
        """Flips and scales of images and masks, the same with any number of threads and after a resume."""
        moves = ('[[data.transform]]\nkind = "resize"\nsize = 10\nmax_size = 18\nmask = "mask"\n'
                 '[[data.transform]]\nkind = "horizontal_flip"\nmask = "mask"\n')
        plan, tar = self.plan(recipe=BUCKETS + RECIPE + PADS + moves + NORMALISE), self.data.tar(self.folder / "d.tar", masks=True)
        for workers in (0, 2):
            self.train(plan, "--set", f"data.workers={workers}", data=tar, out=f"by{workers}")
        self.succeed("trun", plan, "--data", tar, "--steps", 5, "--out", "part")
        self.succeed("trun", plan, "--data", tar, "--epochs", 2, "--resume", "part")
        self.assertGreater(len(self.losses("by0")), 20)
        for run in ("by2", "part"):
            self.assertEqual(self.losses(run), self.losses("by0"))
            self.assertEqual(self.bits(run), self.bits("by0"))


class Page(EndToEnd):
    def test_the_page_runs(self):
        """The images of docs/guide/shapes.md: every one has a shape, and the loss falls."""
        text = (ROOT / "docs/guide/shapes.md").read_text().split("## Images of several sizes")[1].split("\n## ")[0]
        (recipe,), (commands,), (data,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "sh", "python"))
        network(self.folder / "pixels.onnx", pixels=True)
        self.write(recipe.split("\n")[0].removeprefix("# "), recipe)
        subprocess.run([sys.executable, "-c", data], cwd=self.folder, check=True)
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            self.succeed(program, *words)
        self.assertEqual(safetensors.numpy.load_file(self.folder / "pixels.safetensors")["logits"].shape, (40, CLASSES, 32, 32))
        losses = [line["loss"] for line in metrics(self.folder / "pixels-run")[0]]
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
