"""One plan for several targets: the same bytes in any order of targets, each part as if compiled alone, weights stored once, and runs
that continue on another level."""
import json
import re
import unittest
from pathlib import Path

from common import EndToEnd, case, metrics

LEVELS = ("cpu:v3", "cpu:v4", "cpu:v4-bf16")


def flags():
    return set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE).group(1).split())


def needs(level):
    return {"cpu:v3": {"avx2", "fma"}, "cpu:v4": {"avx512f", "avx512bw", "avx512vl"},
            "cpu:v4-bf16": {"avx512_bf16"}}[level]


def bits(run, step):
    return (run / "checkpoints" / f"step-{step}" / "state.safetensors").read_bytes()


class Targets(EndToEnd):
    def setUp(self):
        super().setUp()
        self.levels = [level for level in LEVELS if needs(level) <= flags()]
        if len(self.levels) < 2:
            self.skipTest(f"this machine runs {self.levels} alone: a second level needs AVX-512")
        self.model, self.recipe, self.data, _ = case("small-cnn")

    def make(self, *levels, plan):
        words = [word for level in levels for word in ("--target", level)]
        return self.compile(self.model, "--recipe", self.recipe, *words, plan=plan)

    def manifest(self, run, step):
        return json.loads((run / "checkpoints" / f"step-{step}" / "manifest.json").read_text())

    def test_the_order_of_targets_changes_no_byte_and_weights_are_stored_once(self):
        one = self.make(*self.levels, plan="one.tplan").read_bytes()
        self.assertTrue(one == self.make(*reversed(self.levels), plan="two.tplan").read_bytes(), "the order shows in the plan")
        alone = [self.make(level, plan=f"{i}.tplan").stat().st_size for i, level in enumerate(self.levels)]
        self.assertLess(len(one), sum(alone))

    def test_each_part_is_what_it_is_alone(self):
        several = self.make(*self.levels, plan="several.tplan")
        for i, level in enumerate(self.levels):
            with self.subTest(level=level):
                alone = self.make(level, plan=f"{i}.tplan")
                reports = [json.loads(self.succeed("tcc", "report", plan, "--target", level, "--json").out)
                           for plan in (several, alone)]
                for report in reports:      # a process's memory depends on the size of the file
                    for measured in ("host_bytes", "library_bytes", "process_bytes"):
                        report["memory"].pop(measured, None)
                    report["memory"].pop("host", None)
                self.assertEqual(reports[0]["entries"], reports[1]["entries"])
                self.assertEqual(reports[0]["memory"], reports[1]["memory"])
                self.assertEqual(reports[0]["kernels"], reports[1]["kernels"])
                for plan in (several, alone):
                    self.succeed("tcc", "report", plan, "--target", level, "--code", f"{plan.stem}.so")
                self.assertEqual((self.folder / "several.so").read_bytes(), (self.folder / f"{i}.so").read_bytes())
                runs = [self.train(plan, self.data, "--target", level, out=f"{i}-{plan.stem}", steps=4)
                        for plan in (several, alone)]
                self.assertTrue(bits(runs[0], 4) == bits(runs[1], 4), f"{level}: other bits than alone")
                self.assertEqual(self.manifest(runs[0], 4)["target"], level)

    def test_the_best_that_runs_is_taken_and_said(self):
        plan = self.make(*self.levels, plan="several.tplan")
        done = self.succeed("trun", plan, "--data", self.data, "--steps", 1, "--out", "best")
        self.assertIn(f"target {self.levels[-1]}, of {', '.join(self.levels)}", done.err + done.out)
        self.assertEqual(self.manifest(self.folder / "best", 1)["target"], self.levels[-1])
        self.refuse(2, ["--target cpu:amx", ", ".join(self.levels)], "trun", plan, "--target", "cpu:amx", "--data", self.data)
        self.refuse(2, ["--device cuda", ", ".join(self.levels)], "trun", plan, "--device", "cuda", "--data", self.data)

    def test_a_run_goes_on_with_another_level(self):
        plan = self.make(*self.levels, plan="several.tplan")
        whole = {level: metrics(self.train(plan, self.data, "--target", level, out=f"whole-{i}", steps=8))[0]
                 for i, level in enumerate(self.levels[:2])}
        for first, then in (self.levels[:2], self.levels[1::-1]):
            with self.subTest(first=first, then=then):
                run = self.train(plan, self.data, "--target", first, out=f"from-{first[4:]}", steps=4)
                resumed = self.succeed("trun", "--resume", run, "--target", then, "--steps", 8)
                self.assertIn(f"{first} → {then}", resumed.err + resumed.out)
                self.assertEqual(self.manifest(run, 8)["target"], then)
                for got, wanted in zip(metrics(run)[0], whole[first], strict=True):
                    self.assertAlmostEqual(got["loss"], wanted["loss"], delta=1e-4 * abs(wanted["loss"]))

    def test_a_run_goes_on_with_the_plan_of_its_level_alone(self):
        level = self.levels[1]
        several, alone = self.make(*self.levels, plan="several.tplan"), self.make(level, plan="alone.tplan")
        whole = self.train(alone, self.data, out="whole", steps=8)
        run = self.train(alone, self.data, out="part", steps=4)
        self.succeed("trun", several, "--data", self.data, "--target", level, "--resume", run, "--steps", 8)
        self.assertTrue(bits(whole, 8) == bits(run, 8), "the plan for several targets gave other bits")

    def test_the_other_commands_take_one(self):
        plan = self.make(*self.levels, plan="several.tplan")
        run = self.train(plan, self.data, "--target", self.levels[0], out="run")
        self.assertTrue(self.weights(run))
        for level in self.levels:
            self.assertIn(f"{level}:", self.succeed("trun", "verify", plan).out)
            self.assertIn(f"for {level},", self.succeed("tcc", "report", plan).out)
        both = json.loads(self.succeed("tcc", "report", plan, "--json").out)
        self.assertEqual([report["target"] for report in both["targets"]], self.levels)
        self.refuse(2, ["--html", "choose one with --target"], "tcc", "report", plan, "--html", "page.html")
        self.succeed("tcc", "report", plan, "--html", "page.html", "--target", self.levels[0])
        evaluated = [json.loads(self.succeed("trun", "eval", plan, "--target", level, "--data", self.data, "--from", run).out)
                     for level in self.levels]
        self.assertAlmostEqual(evaluated[0]["eval_loss"], evaluated[1]["eval_loss"], delta=1e-4)
        profile = self.succeed("trun", "profile", plan, "--target", self.levels[0], "--data", self.data, "--json",
                               "--no-roofline", "--steps", 1, "--warmup", 0)
        self.assertEqual(json.loads(profile.out)["target"], self.levels[0])
        # Each target has its own variants: both options together.
        self.compile(self.model, "--recipe", self.recipe, "--variants", 2, *[w for l in self.levels[:2] for w in ("--target", l)],
                     plan="fat.tplan")
        self.train(self.folder / "fat.tplan", self.data, out="fat")

    def test_what_is_for_one_target_says_so(self):
        two = [word for level in self.levels[:2] for word in ("--target", level)]
        self.refuse(2, ["named twice"], "tcc", self.model, "--target", "cpu:v3", "--target", "cpu:v3")
        self.refuse(2, ["--fit batch", "one --target", "--shape"], "tcc", self.model, "--recipe", self.recipe, *two,
                    "--fit", "batch", "--memory-budget", "64MiB")


if __name__ == "__main__":
    unittest.main()
