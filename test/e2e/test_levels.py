"""Plans of every machine level against plain loops (test/support/plain): a plan's library calls train to the same losses with this
machine's kernels and with loops that have no tiles, panels or special instructions. So cpu:amx is tested on machines without AMX."""
import re
import unittest
from pathlib import Path

from common import EndToEnd, case, metrics
from test_mixed_precision import AUTOCAST, apart

FLAGS = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE).group(1).split())
# CPU features that a level's generated kernels need. In trun-plain its library calls need none.
KERNELS = {"cpu:v3": {"avx2", "fma"}, "cpu:v4": {"avx512f", "avx512bw", "avx512vl"}, "cpu:v4-bf16": {"avx512_bf16"},
           "cpu:amx": {"avx512_bf16"}}
LEVELS = [level for level, needed in KERNELS.items() if needed <= FLAGS]
# Products of all kinds, convolutions with strides, groups and transposed ones.
MODELS = ("mlp", "small-cnn", "unet-tiny", "nano-gpt")


class Levels(EndToEnd):
    def losses(self, program, plan, data, out, steps):
        self.succeed(program, plan, "--data", data, "--no-shuffle", "--steps", steps, "--out", out)
        return [line["loss"] for line in metrics(self.folder / out)[0]]

    def test_kernels_agree_with_plain_loops(self):
        for level in LEVELS:
            if level == "cpu:amx" and "amx_bf16" not in FLAGS:
                continue
            for name in MODELS:
                with self.subTest(level=level, model=name):
                    model, recipe, data, _ = case(name)
                    plan = self.compile(model, "--recipe", recipe, "--target", level)
                    ours = self.losses("trun", plan, data, f"kernels-{level}-{name}", 6)
                    plain = self.losses("trun-plain", plan, data, f"plain-{level}-{name}", 6)
                    states = [next((self.folder / f"{kind}-{level}-{name}").glob("checkpoints/*/state.safetensors")).read_bytes()
                              for kind in ("kernels", "plain")]
                    self.assertFalse(states[0] == states[1], "the same kernels ran")
                    self.assertLess(apart(ours, plain), 2e-5)

    def test_every_level_trains_by_plain_loops(self):
        """Losses are compared with PyTorch's in f32, and in bf16 with its autocast's, within rounding."""
        for level in LEVELS:
            for precision in ("f32", "bf16"):
                for name in MODELS:
                    with self.subTest(level=level, precision=precision, model=name):
                        model, recipe, data, expected = case(name)
                        if precision == "bf16" and name not in AUTOCAST:
                            continue
                        plan = self.compile(model, "--recipe", recipe, "--target", level, "--precision", precision)
                        exact = expected["loss"][:6]
                        plain = self.losses("trun-plain", plan, data, f"{level}-{precision}-{name}", 6)
                        if precision == "f32":
                            self.assertLess(apart(plain, exact), 2e-5)
                        else:
                            bound = 2 * apart(AUTOCAST[name], expected["loss"]) + 2e-4      # as test_mixed_precision has it
                            self.assertLessEqual(apart(plain, AUTOCAST[name][:6]), bound)


if __name__ == "__main__":
    unittest.main()
