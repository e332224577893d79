"""The profile of a card: `test_card_profile.py STANDIN`. The stand-in's times are made up; the test checks what is computed from them."""
import json
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import test_fuse_updates
from common import EndToEnd

LINE = 110                               # most characters of a line on a terminal


class CardProfile(EndToEnd):
    def profile(self, plan, *words):
        return self.succeed("trun", "profile", plan, "--data", self.data, "--steps", 1, "--warmup", 1, *words,
                            env=stand_in(mode="fast")).out

    def test_times_beside_the_data_sheet(self):
        self.data = self.save("d.safetensors", **models.labelled(16, 10, 320))
        plan = self.compile(test_fuse_updates.FuseUpdates.model(self, 16, (320, 512, 304, 10)), "--recipe",
                            self.write("r.toml", models.CLASSES + test_fuse_updates.OPTIMIZERS["adamw"]), "--target", "cuda:sm_90",
                            "--device-memory", "h200", "--precision", "bf16", "--entry", "train", "--set", "compiler.slice_bytes=65536")
        report = self.report(plan)
        profile = json.loads(self.profile(plan, "--json"))
        self.assertEqual(profile["device"], "Emulated sm_90")
        sheet = profile["roofline"]
        self.assertEqual((sheet["card"], sheet["from"], sheet["bytes_per_s"]), ("h200", "plan", 4.8e12))
        kernels = profile["kernels"]
        # The least times and the launches equal the report's.
        self.assertGreater(report["card"]["sliced_gradients"], 0)
        self.assertEqual(sum(k["launches"] for k in kernels), report["card"]["launches"])
        self.assertAlmostEqual(sum(k["roofline_seconds"] for k in kernels) / report["card"]["best_seconds"], 1, places=6)
        for kernel in kernels:
            rate = sheet["bf16_flops_per_s"] if kernel["dtype"] == "bf16" else sheet["f32_flops_per_s"]
            least = max(kernel["flops"] / rate, kernel["bytes"] / sheet["bytes_per_s"])
            self.assertAlmostEqual(kernel["roofline_seconds"], least, delta=1e-6 * least, msg=kernel["what"])
            self.assertAlmostEqual(kernel["roofline_share"] * kernel["seconds"], least, delta=1e-6 * least)
            self.assertEqual(kernel["limit"], "arithmetic" if kernel["flops"] / rate > kernel["bytes"] / sheet["bytes_per_s"] else
                             "memory" if least else "")
        near = sum(k["seconds"] for k in kernels if k["roofline_share"] >= profile["at_roofline"])
        self.assertAlmostEqual(profile["at_roofline"], 1 / 1.5)
        self.assertAlmostEqual(profile["at_roofline_share"], near / profile["step_seconds"], places=9)
        self.assertAlmostEqual(profile["roofline_seconds"], sum(min(k["seconds"], k["roofline_seconds"]) for k in kernels), places=12)

        # Classes divide the step, and their expected time is the report's.
        classes = profile["classes"]
        self.assertEqual(sum(c["launches"] for c in classes), report["card"]["launches"])
        self.assertAlmostEqual(sum(c["seconds"] for c in classes), sum(k["seconds"] for k in kernels), places=9)
        expected = sum(c["expected_seconds"] for c in classes)
        self.assertAlmostEqual(expected / report["card"]["expected_seconds"], 1, places=6)
        self.assertAlmostEqual(sum(k["expected_seconds"] for k in kernels) / expected, 1, places=6)
        self.assertGreater(expected, report["card"]["best_seconds"])
        self.assertLessEqual({"products", "optimizer", "loss"}, {c["class"] for c in classes})
        self.assertTrue(profile["rates_measured"])

        text = self.profile(plan, "--all")
        for words in ("roofline, by data sheet: H200 SXM, for which the plan was made", "least ms", "launches; by the data sheet they take at least",
                      "in kernels that take at most 1.5 times their least time", "on Emulated sm_90"):
            self.assertIn(words, text)
        table = text.split("\n\n")[1].splitlines()
        self.assertEqual(len(table), len(kernels) + 2)
        self.assertLessEqual(max(map(len, table)), LINE)
        kinds = text.split("\n\n")[2].splitlines()
        self.assertEqual(kinds[0].split()[:3], ["kind", "launches", "ms"])
        self.assertEqual(len(kinds), 1 + len(classes) + 2)
        self.assertIn("by rates that an H100 and an H200 have shown", kinds[-1])
        self.assertIsNone(json.loads(self.profile(plan, "--json", "--no-roofline"))["roofline"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
