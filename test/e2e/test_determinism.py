"""Same input, same bits: compiling twice gives one file; threads, cores and OpenMP's variables change no weight."""
import os
import unittest

import models
from common import EndToEnd, case

os.environ["TCC_CACHE"] = "none"                 # the second plan must be compiled, too

SETTINGS = {                                     # settings that may differ between two runs of one plan
    "1 thread": dict(arguments=["--threads", 1]),
    "2 threads": dict(arguments=["--threads", 2]),
    "3 threads": dict(arguments=["--threads", 3]),
    "8 threads": dict(arguments=["--threads", 8]),
    "16 threads": dict(arguments=["--threads", 16]),    # more than memory was planned for
    "64 threads": dict(arguments=["--threads", 64]),
    "8 threads again": dict(arguments=["--threads", 8]),
    "OMP_THREAD_LIMIT=1": dict(env={"OMP_THREAD_LIMIT": "1"}),
    "OMP_NUM_THREADS=3": dict(env={"OMP_NUM_THREADS": "3"}),
    "OMP_DYNAMIC=true": dict(env={"OMP_DYNAMIC": "true"}),
    "one core": dict(prepare=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})),
}


class Determinism(EndToEnd):
    def same_weights(self, plan, data, steps):
        first = None
        for setting, how in SETTINGS.items():
            out = setting.replace(" ", "-")
            run = self.train(plan, data, *how.get("arguments", []), out=out, steps=steps, env=how.get("env"),
                             prepare=how.get("prepare"))
            self.weights(run, f"{out}.safetensors")
            bits = (self.folder / f"{out}.safetensors").read_bytes()
            first = first or bits
            self.assertTrue(bits == first, f"weights after {steps} steps differ: {setting} against 1 thread")

    def zoo(self, name, steps=4):
        model, recipe, data, _ = case(name)
        self.same_weights(self.compile(model, "--recipe", recipe, "--threads", 8), data, steps)

    def test_compiling_twice_gives_the_same_file(self):
        for name in ("mlp", "small-cnn", "nano-gpt", "in-graph-loss"):
            model, recipe, _, _ = case(name)
            one = self.compile(model, "--recipe", recipe, plan=f"{name}-1.tplan").read_bytes()
            # The plan must not depend on the folder, the time or the number of CPUs.
            (self.folder / "elsewhere").mkdir(exist_ok=True)
            two = self.compile(model, "--recipe", recipe, plan=f"elsewhere/{name}-2.tplan",
                               env={"HOME": "/", "LC_ALL": "C", "TZ": "Asia/Tokyo"}).read_bytes()
            self.assertTrue(one == two, f"{name}: two compilations differ")

    def test_mlp(self):
        self.zoo("mlp")

    def test_small_cnn(self):
        self.zoo("small-cnn")

    def test_nano_gpt(self):
        self.zoo("nano-gpt")

    def test_weight_gradient_of_few_elements_and_many_samples(self):
        """10 × 8192 × 64: a library would split the long sum by the number of threads."""
        model = models.classifier(self.folder / "m.onnx", 8192, 64, 10)
        recipe = self.write("r.toml", models.CLASSES + models.SGD)
        data = self.save("d.safetensors", **models.labelled(8192, 10, 64))
        self.same_weights(self.compile(model, "--recipe", recipe, "--threads", 8), data, 3)

    def test_convolution_of_64_channels_at_batch_32(self):
        model = models.convolution(self.folder / "m.onnx", 32, 64, 8)
        recipe = self.write("r.toml", models.CLASSES + models.SGD)
        data = self.save("d.safetensors", **models.labelled(32, 64, 64, 8, 8))
        self.same_weights(self.compile(model, "--recipe", recipe, "--threads", 8), data, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
