"""Fusion and threads change no bit: every case of the zoo is trained with and without fusion, on 1, 2, 3 and 8 threads."""
import unittest

from common import ZOO, EndToEnd, case, metrics

STEPS = 2
NARROW = ("mlp", "small-cnn", "lstm-lm", "nano-gpt", "hf-llama-tiny")           # again in bf16
OPTIMIZERS = ("sgd", "adam", "rmsprop", "adagrad", "lion", "lamb", "muon")      # the zoo's own recipes have adamw


class Fusion(EndToEnd):
    """Fusion of attention has a setting of its own, which is the same on both sides here: test_attention.py tests it."""

    def outcome(self, plan, data, name, *arguments):
        """Losses, and the bytes of all weights."""
        run = self.train(plan, data, *arguments, out=name, steps=STEPS)
        self.weights(run, f"{name}.safetensors")
        return [line["loss"] for line in metrics(run)[0]], (self.folder / f"{name}.safetensors").read_bytes()

    def check(self, name, *settings, threads=(2, 3, 8)):
        model, recipe, data, _ = case(name)
        name += "".join(f" {setting}" for setting in settings).replace("/", " ")
        common = ["--recipe", recipe, "--entry", "train", "--threads", 8]
        for setting in settings:
            common += ["--set", setting]
        fused = self.compile(model, *common, "--set", "compiler.fuse=true", plan=f"{name}.tplan")
        apart = self.compile(model, *common, "--set", "compiler.fuse=false", plan=f"{name}-apart.tplan")
        kernels = [len(self.report(plan)["kernels"]) for plan in (fused, apart)]
        self.assertNotEqual(*kernels, f"{name}: both plans have {kernels[0]} kernels: nothing was fused")
        losses, weights = self.outcome(apart, data, f"{name}-apart", "--threads", 2)
        self.assertEqual(len(losses), STEPS)
        for count in (1, *threads):
            found, bits = self.outcome(fused, data, f"{name}-{count}", "--threads", count)
            self.assertEqual(found, losses, f"{name}: losses, fused on {count} threads against one kernel an op")
            self.assertTrue(bits == weights, f"{name}: weights differ, fused on {count} threads against one kernel an op")

    def test_bf16(self):
        for name in NARROW:
            with self.subTest(case=name):
                self.check(name, 'train.precision="bf16"', threads=())

    def test_optimizers(self):
        for kind in OPTIMIZERS:
            with self.subTest(optimizer=kind):
                self.check("mlp", f'optimizer.kind="{kind}"', threads=())

    def test_accumulation_and_clipping(self):
        self.check("nano-gpt", "train.accumulate=2", "train.clip_norm=0.5", threads=(3,))


def add(name):
    setattr(Fusion, "test_zoo_" + name.replace("-", "_"), lambda self: self.check(name))


for folder in sorted(path for path in ZOO.iterdir() if path.is_dir()):
    add(folder.name)

if __name__ == "__main__":
    unittest.main(verbosity=2)
