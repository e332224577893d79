"""Steps after the first allocate nothing of ours, and at most 1 KiB in each library call.

With AVX2 alone oneDNN has for some convolutions its gemm-based kernel only, which allocates: docs/design/runtime.md names them."""
import json
import subprocess
import unittest
from pathlib import Path

from common import EndToEnd, case

MOST_BYTES_PER_CALL = 1024
GEMM_BYTES_PER_CALL = 1 << 20


class Allocations(EndToEnd):
    def counts(self, plan, data, steps):
        watcher, log = self.folder / "watch.so", self.folder / "allocations"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", watcher, Path(__file__).with_name("allocations.c")], check=True)
        log.unlink(missing_ok=True)
        # Each run has a folder of its own, since a run that begins lists the folder around it.
        self.succeed("trun", plan, "--data", data, "--no-shuffle", "--steps", steps, "--log-every", 1000, "--threads", 2,
                     "--no-release", "--out", f"{plan.stem}-{steps}/run", env={"LD_PRELOAD": str(watcher), "TCC_ALLOCATIONS": str(log)})
        return list(map(int, log.read_text().split()))

    def check(self, name):
        model, recipe, data, _ = case(name)
        plan = self.compile(model, "--recipe", recipe, "--entry", "train", plan=f"{name}.tplan")
        few, many = self.counts(plan, data, 100), self.counts(plan, data, 300)
        self.assertEqual(many[0] - few[0], 0, f"our own allocations in 200 steps of {name}")
        gemm = name == "in-graph-loss" and self.report(plan)["target"] == "cpu:v3"     # strides along one axis
        self.assertLessEqual(many[2], GEMM_BYTES_PER_CALL if gemm else MOST_BYTES_PER_CALL, f"bytes in a library call of {name}")
        calls = "oneDNN" in json.dumps(self.report(plan)["kernels"])     # with AVX2 alone, few models call the library
        self.assertEqual(many[1] > few[1], calls, f"library calls seen in {name}")

    def test_steps_allocate_nothing(self):
        for name in ("mlp", "small-cnn", "nano-gpt", "in-graph-loss"):
            with self.subTest(case=name):
                self.check(name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
