"""Kernels that share a launch, in real models on the stand-in of the driver: `test_joined.py STANDIN`.

Losses, norms and weights have the bits of kernels with launches of their own; the memory is the same; one update runs with
every check on, in three orders of threads.
"""
import json
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import safetensors.numpy
from common import ROOT, ZOO, EndToEnd

CLIP = ["--set", "train.clip_norm=0.1"]


class Joined(EndToEnd):
    def compiled(self, case, how, *words):
        plan = self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--target", "cuda:sm_90", "--entry", "train",
                            *words, "--set", f"compiler.overlap={how}", plan=f"{case}-{how}.tplan")
        return plan, self.report(plan)

    def trained(self, case, plan, name, *, steps, **settings):
        run = self.train(plan, ZOO / case / "data.safetensors", "--device", "cuda", "--no-release", steps=steps, out=name,
                         env=stand_in(**settings))
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
        self.succeed("trun", "export", run, "-o", f"{name}.safetensors")
        weights = safetensors.numpy.load_file(self.folder / f"{name}.safetensors")
        return [(line["loss"], line.get("grad_norm")) for line in lines], {key: value.tobytes() for key, value in weights.items()}

    def test_bits_of_kernels_apart(self):
        for case, words in (("nano-gpt", CLIP), ("resnet-tiny", ["--precision", "bf16"])):
            with self.subTest(case=case):
                results = {}
                for how in ("true", "false"):
                    plan, report = self.compiled(case, how, *words)
                    launches = sum(kernel["count"] for kernel in report["kernels"])
                    shared = [kernel["name"] for kernel in report["kernels"] if kernel["name"].startswith("j")]
                    self.assertEqual(bool(shared), how == "true", shared)
                    results[how] = launches, report["memory"]["arena_bytes"], self.trained(case, plan, f"{case}-{how}", steps=3, mode="fast")
                (joined, bytes_, trained), (apart, before, expected) = results["true"], results["false"]
                print(case, "launches", joined, "of", apart, "arena", bytes_, "of", before)
                self.assertLess(joined, 0.8 * apart)
                self.assertLessEqual(bytes_, 1.001 * before + 4096)
                self.assertEqual(trained, expected)

    def test_every_check_in_every_order(self):
        plan, report = self.compiled("nano-gpt", "true", *CLIP)
        resident = (report["memory"]["resident_bytes"] + 255) // 256 * 256
        found = {order: self.trained("nano-gpt", plan, order, steps=1, mode="checked", order=order, seed=seed, cleared=resident)
                 for seed, order in enumerate(("ascending", "descending", "seeded"), 1)}
        self.assertEqual(found["ascending"], found["descending"])
        self.assertEqual(found["ascending"], found["seeded"])


if __name__ == "__main__":
    print(f"root {ROOT}, stand-in {STANDIN}")
    unittest.main(verbosity=2)
