"""Weight gradients in slices of rows on the stand-in of the driver: `test_slices.py STANDIN`.

Results equal those of whole gradients and the CPU's, updates run with every check on in three orders of threads, and a gradient
takes the memory of one slice.
"""
import re
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
import safetensors.numpy
import test_fuse_updates
from common import EndToEnd, metrics

SLICE = 65536                            # bytes: 48 rows of 320 f32, or 32 rows of 512; the last slices are shorter
ADAMW, MOMENTUM, EIGHTHS = (test_fuse_updates.OPTIMIZERS[kind] for kind in ("adamw", "momentum", "eighths"))
SIZES = 320, 512, 304, 10


def slices_of(report):
    """The number of a step's calls whose rows go to a kernel."""
    return sum(kernel["count"] for kernel in report["kernels"] if re.fullmatch("matmul cuBLASLt( of bf16)? k[0-9a-f]{32}", kernel["name"]))


class Slices(EndToEnd):
    def layers(self, trans=1, text=ADAMW):
        """Words for tcc, and data: three layers, whose weights `trans` stores as they are or transposed."""
        model = test_fuse_updates.FuseUpdates.model(self, 16, SIZES, trans)
        recipe = self.write(f"r{trans}{len(text)}.toml", models.CLASSES + text)
        return (model, "--recipe", recipe), self.save("d.safetensors", **models.labelled(16, 10, 320))

    def tied(self):
        """A table that a look-up and a product read: the update reads the look-up's gradient beside the slice."""
        model, x, labels = test_fuse_updates.Tables.case(self, True)
        recipe = self.write("t.toml", models.CLASSES + "class_axis = -1\n" + ADAMW)
        return (model, "--recipe", recipe), self.save("t.safetensors", x=x, labels=labels)

    ROWS, WIDTH, BATCH, LENGTH = 2048, 64, 4, 8

    def compiled(self, words, *more, slice_bytes=SLICE, plan="plan.tplan"):
        plan = self.compile(*words, "--target", "cuda:sm_90", "--entry", "train", "--set", f"compiler.slice_bytes={slice_bytes}", *more, plan=plan)
        return plan, self.report(plan)

    def test_results_of_whole_gradients(self):
        """Also those of the CPU, in f32."""
        ema = "[train]\nema = { decay = 0.5 }\n"
        for name, (words, data), more in (("layers", self.layers(), ()), ("columns first", self.layers(0, MOMENTUM + ema), ()),
                                          ("bf16", self.layers(), ("--precision", "bf16")), ("tied", self.tied(), ())):
            with self.subTest(name):
                found = {}
                for bytes_ in (SLICE, 0, None):
                    if bytes_ is None:
                        plan, env = self.compile(*words, "--entry", "train", "--target", "cpu:v3", *more, plan="cpu.tplan"), None
                    else:
                        plan, report = self.compiled(words, *more, slice_bytes=bytes_, plan=f"{bytes_}.tplan")
                        self.assertEqual(slices_of(report), 0 if bytes_ == 0 else 1 if name == "tied" else 2)
                        env = stand_in(mode="fast", order="seeded")
                    run = self.train(plan, data, "--device", "cpu" if bytes_ is None else "cuda", "--no-release", steps=3,
                                     out=f"{name}-{bytes_}", env=env)
                    weights = self.weights(run)
                    if "columns" in name:
                        self.succeed("trun", "export", run, "--ema", "-o", "ema.safetensors")
                        weights |= {f"ema of {k}": v for k, v in safetensors.numpy.load_file(self.folder / "ema.safetensors").items()}
                    found[bytes_] = [line["loss"] for line in metrics(run)[0]], [line["grad_norm"] for line in metrics(run)[0]], weights
                for other, bound in ((0, 1e-6), *(() if name == "bf16" else ((None, 1e-5),))):
                    for i in range(2):
                        np.testing.assert_allclose(found[SLICE][i], found[other][i], rtol=10 * bound if i else bound)
                    for key, value in found[other][2].items():
                        self.assertLess(np.abs(found[SLICE][2][key] - value).max(), 10 * bound * max(1, np.abs(value).max()), key)

    def test_every_check_in_every_order(self):
        """Slices use the same scratch memory one after the other, while queued work runs in any legal order."""
        for number, (words, data) in enumerate((self.layers(), self.layers(text=EIGHTHS), self.tied())):
            plan, report = self.compiled(words)
            self.assertGreater(slices_of(report), 0)
            resident = (report["memory"]["resident_bytes"] + 255) // 256 * 256
            found = set()
            for seed, order in enumerate(("ascending", "descending", "seeded"), 1):
                run = self.train(plan, data, "--device", "cuda", "--no-release", steps=2, out=f"{number}-{order}",
                                 env=stand_in(mode="checked", order=order, seed=seed, cleared=resident))
                self.weights(run)
                found.add((self.folder / "weights.safetensors").read_bytes())
            self.assertEqual(len(found), 1, "the weights depend on the order of threads")

    def test_who_else_reads_a_gradient_gets_it_whole(self):
        """Readers are the norm of all gradients, a window's sum, and a loss scale's check; the report tells slices and their launches."""
        words, _ = self.layers()
        plan, report = self.compiled(words)
        count, card = slices_of(report), report["card"]
        self.assertEqual((card["sliced_gradients"], count), (2, 2))
        calls = sum(kernel["count"] for kernel in report["kernels"])
        self.assertEqual(card["launches"], calls - count + card["slice_launches"])
        # 512 rows of 320 in slices of 48 rows; 304 rows of 512 in slices of 32.
        self.assertEqual(card["slice_launches"], 2 * (11 + 10))
        self.assertIn("2 weight gradients in slices, 1.2 MiB never stored whole: 42 launches", self.succeed("tcc", "report", plan).out)
        for more in (["--set", "train.clip_norm=1"], ["--set", "train.accumulate=2"], ["--precision", "f16"]):
            _, report = self.compiled(words, *more)
            self.assertEqual((slices_of(report), report["card"]["sliced_gradients"]), (0, 0), more)

    def test_a_large_gradient_takes_the_memory_of_a_slice(self):
        """By default a gradient of 64 MiB has two slices of 32 MiB; the recipe may ask for smaller ones, or none."""
        model = models.classifier(self.folder / "m.onnx", batch=8, features=256, classes=65536)
        recipe = self.write("r.toml", models.CLASSES + models.SGD)
        arenas = {}
        for setting in (None, 8 << 20, 0):
            words = [] if setting is None else ["--set", f"compiler.slice_bytes={setting}"]
            plan = self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--entry", "train", *words)
            report = self.report(plan)
            self.assertEqual(slices_of(report), 0 if setting == 0 else 1)
            arenas[setting] = report["memory"]["arena_bytes"]
        self.assertLess(arenas[None], arenas[0] - (30 << 20))
        self.assertLess(arenas[8 << 20], arenas[None] - (22 << 20))


if __name__ == "__main__":
    unittest.main(verbosity=2)
