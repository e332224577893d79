"""A memory budget is obeyed, the smaller one never gives a larger or cheaper plan, and no bit of a result depends on it.

`test_budget.py --all` takes eight models and twenty budgets each, measures steps of the different plans in turn, and prints a
table; with `--write` it goes into docs/measurements/budgets.md.
"""
import json
import os
import re
import statistics
import sys
import unittest

import numpy as np
import safetensors.numpy

import models
from common import ROOT, EndToEnd, arena_by_workers, case, metrics

# The plain test takes three of these, with six budgets.
CASES = ("resnet-tiny", "nano-gpt", "lstm-lm", "cnn-bn", "unet-tiny", "vit-tiny", "hf-bert-tiny", "hf-llama-tiny")
ALL = "--all" in sys.argv
BUDGETS = 20 if ALL else 6
TURNS, STEPS = 7, 12                     # of measuring; the first steps of each are left out
ROWS = []


class BudgetChecks(EndToEnd):
    """Checks of budgets for every target."""
    target, device, env = [], [], {}                # words for tcc and trun, variables for trun

    def points(self, name):
        """(resident bytes, points of the training step) as tcc frontier says."""
        model, recipe, _, _ = case(name)
        frontier = json.loads(self.succeed("tcc", "frontier", model, "--recipe", recipe, "--entry", "train", *self.target, "--json").out)
        self.assertEqual(set(frontier["programs"]), {"step"})
        return frontier["resident_bytes"], frontier["programs"]["step"]["points"]

    def check_models(self, names, least_recomputed):
        recomputed = 0
        for name in names:
            with self.subTest(case=name):
                recomputed += self.check_budgets(name)
        self.assertGreaterEqual(recomputed, least_recomputed, "most models can be made smaller by recomputing")

    def check_budgets(self, name):
        model, recipe, data, _ = case(name)
        resident, points = self.points(name)
        arenas, costs = [p["arena_bytes"] for p in points], [p["cost"] for p in points]
        self.assertEqual(arenas, sorted(set(arenas), reverse=True))
        self.assertEqual(costs, sorted(set(costs)))
        for point in points:
            self.assertLessEqual(point["lower_bound_cost"], point["cost"])
        most, least = resident + arenas[0], resident + arenas[-1]
        budgets = sorted({int(b) for b in np.linspace(least, most, BUDGETS)})
        previous, runs, plans = None, {}, {}
        for budget in budgets:
            plan = self.compile(model, "--recipe", recipe, "--entry", "train", *self.target, "--memory-budget", budget,
                                plan=f"{name}-{budget}.tplan")
            report = self.report(plan)
            memory, cost = report["memory"], report["recompute"]["extra_cost_fraction"]
            taken = memory["arena_bytes"] + memory["resident_bytes"]
            self.assertLessEqual(taken, budget)
            self.assertEqual(memory["budget_bytes"], budget)
            if previous:
                self.assertGreaterEqual(taken, previous[0])
                self.assertLessEqual(cost, previous[1])
            previous = (taken, cost)
            if taken not in runs:
                runs[taken] = self.results(plan, data, f"{name}-{taken}")
                plans[taken] = (plan, cost)
        self.assertEqual(previous, (most, 0.0), "the largest budget is met without recomputation")
        reference = runs[most]
        for taken, result in runs.items():
            self.assertEqual(result[0], reference[0], f"losses at {taken} bytes")
            for parameter, value in reference[1].items():
                self.assertEqual(value.tobytes(), result[1][parameter].tobytes(), f"{parameter} at {taken} bytes")
        if ALL:
            self.check_seconds(name, plans, data, len(budgets))
        return len(runs) > 1

    def check_seconds(self, name, plans, data, budgets):
        """Times steps of all plans in turn: a plan with less cost must not be slower than the spread between turns explains."""
        seconds = {taken: [] for taken in plans}
        for turn in range(TURNS):
            for taken, (plan, _) in plans.items():
                run = self.train(plan, data, out=f"{name}-{taken}-{turn}", steps=STEPS)
                seconds[taken].append(statistics.median(line["seconds"] for line in metrics(run)[0][2:]))
        median = {taken: statistics.median(times) for taken, times in seconds.items()}
        order = sorted(plans)                                # ascending memory, so descending cost
        apart = lambda i, j: (min(seconds[j]) - median[i]) / median[i]      # j is cheaper than i
        worst = max((apart(i, j) for n, i in enumerate(order) for j in order[n + 1:]), default=0.0)
        least, most = order[0], order[-1]
        spread = statistics.median((max(times) - min(times)) / median[taken] for taken, times in seconds.items())
        ROWS.append(f"| {name} | {budgets} | {len(plans)} | {least / most:.2f} | {100 * plans[least][1]:.1f} % | "
                    f"{1e3 * median[most]:.2f} | {1e3 * median[least]:.2f} ({median[least] / median[most]:.2f}) | {100 * spread:.0f} % | "
                    f"{100 * worst:+.0f} % |")
        self.assertLessEqual(worst, spread, f"{name}: a plan that costs less is slower: {seconds}")

    def results(self, plan, data, out):
        run = self.train(plan, data, "--no-release", *self.device, out=out, steps=3, env=self.env)
        weights = self.weights(run, f"{out}.safetensors")
        return [line["loss"] for line in metrics(run)[0]], weights


class Budget(BudgetChecks):
    def test_budgets_from_least_to_most(self):
        self.check_models(CASES if ALL else CASES[:3], 6 if ALL else 2)

    def test_a_part_of_a_kernel_that_looks_rows_up_costs_what_the_ladder_says(self):
        """tcc compares the ladder's cost with that of the plan, in which a kernel with several results and a lookup is repeated in part."""
        model, recipe, _, _ = case("hf-bert-tiny")
        resident, points = self.points("hf-bert-tiny")
        most, partial = points[0]["arena_bytes"], 0
        for target in ("cpu:v3", "cuda:sm_90"):
            for share in (0.9, 0.8, 0.7):
                plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--target", target, "--memory-budget", resident + int(share * most))
                partial += self.report(plan)["recompute"]["extra_cost_fraction"] > 0
        self.assertGreaterEqual(partial, 4)

    def test_a_budget_that_nothing_meets_names_the_least_and_what_forces_it(self):
        model, recipe, _, _ = case("nano-gpt")
        resident, points = self.points("nano-gpt")
        least = resident + points[-1]["arena_bytes"]
        result = self.refuse(3, [f"smallest budget that does is .*{least} bytes", "of state .*parameter", "live at its peak",
                                 "ways out"],
                             "tcc", model, "--recipe", recipe, "--entry", "train", "--memory-budget", least - 1, "-o", "p")
        self.assertTrue(re.search(r"iB  \S*(node|/|blocks|MatMul|logits)", result.err), result.err)
        self.assertFalse((self.folder / "p").exists())
        self.succeed("tcc", model, "--recipe", recipe, "--entry", "train", "--memory-budget", least, "-o", "p.tplan")

    def test_the_frontier_of_a_precision(self):
        """In bf16 activations take less; the largest point is the plan's arena without a budget."""
        model, recipe, _, _ = case("nano-gpt")
        arenas = {}
        for precision in ("f32", "bf16"):
            words = ["--recipe", recipe, "--entry", "train", "--precision", precision]
            frontier = json.loads(self.succeed("tcc", "frontier", model, *words, "--json").out)
            self.assertEqual(frontier["precision"], precision)
            arenas[precision] = frontier["programs"]["step"]["points"][0]["arena_bytes"]
            self.assertIn(f" in {precision}: ", self.succeed("tcc", "frontier", model, *words).out)
            plan = self.compile(model, *words, plan=f"{precision}.tplan")
            report = json.loads(self.succeed("tcc", "report", plan, "--json").out)
            self.assertEqual(report["memory"]["entries"]["train"]["programs"]["step"]["arena_bytes"], arenas[precision])
        self.assertLess(arenas["bf16"], arenas["f32"])

    def test_no_point_of_a_frontier_is_beaten_by_another(self):
        """Points with memory of the host are found for each choice of state there; the frontier compares all of them."""
        model = models.gpt(self.folder / "gpt.onnx", 2, 16, 1, 64, 2, 64)
        recipe = self.write("gpt.toml", '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\nclass_axis = -1\n'
                                        '[optimizer]\nkind = "adamw"\nlr = 0.003\n[train]\nclip_norm = 0.1\n')
        programs = json.loads(self.succeed("tcc", "frontier", model, "--recipe", recipe, "--target", "cuda:sm_90", "--entry", "train", "--set",
                                           "offload.bytes_per_second=1e13", "--json").out)["programs"]
        rows = [(row["total_bytes"], row.get("host_bytes", 0), row["cost"])
                for row in programs["step"]["points"] + programs["step"]["points_with_host"]]
        self.assertEqual([], [(row, other) for row in rows for other in rows
                              if row is not other and all(b <= a for a, b in zip(row, other))])

    def test_less_memory_for_a_share_of_the_time(self):
        """Entries with much memory become smaller, entries with little stay as they are, and no bit changes."""
        recipe = self.write("r.toml", models.CLASSES + models.SGD)
        model = models.swish_tower(self.folder / "m.onnx", batch=16, channels=32, size=64, layers=6)
        data = self.save("data.safetensors", **models.labelled(16, 32, 32, 64, 64))
        small = models.swish_tower(self.folder / "small.onnx", batch=4, channels=32, size=64, layers=6)
        share = lambda value: ["--set", f"compiler.recompute_time={value}"]
        plans = {name: self.compile(graph, "--recipe", recipe, "--entry", "train", *words, plan=f"{name}.tplan")
                 for name, graph, words in (("none", model, share(0)), ("default", model, []), ("some", model, share(0.025)),
                                            ("more", model, share(0.2)), ("small", small, share(0.2)),
                                            ("ranks", model, ["--set", "parallel.mode=ddp"]))}
        reports = {name: self.report(plan) for name, plan in plans.items()}
        arena = {name: report["memory"]["arena_bytes"] for name, report in reports.items()}
        time = {name: report["recompute"]["extra_cost_fraction"] for name, report in reports.items()}
        self.assertGreater(arena["none"], 64 << 20)
        self.assertLess(arena["default"], 0.95 * arena["none"])
        self.assertLess(arena["some"], 0.9 * arena["none"])
        self.assertLess(arena["more"], arena["some"])
        self.assertEqual((time["none"], time["small"], time["ranks"]), (0, 0, 0))
        self.assertTrue(0 < time["default"] <= 0.015, time)
        self.assertTrue(0 < time["some"] <= 0.025 < time["more"] <= 0.2, time)
        self.assertIn("compiler.recompute_time = 0 recomputes nothing", self.succeed("tcc", "report", plans["some"]).out)
        losses, weights = self.results(plans["none"], data, "none")
        again, others = self.results(plans["some"], data, "some")
        self.assertEqual(losses, again)
        for parameter, value in weights.items():
            self.assertEqual(value.tobytes(), others[parameter].tobytes(), parameter)

    def test_no_more_workers_run_than_fit(self):
        name, report = self.case_that_grows("--entry", "train")
        model, recipe, data, _ = case(name)
        plan = self.compile(model, "--recipe", recipe, "--entry", "train")
        resident, arena = report["memory"]["resident_bytes"], arena_by_workers(report)
        run = lambda out, *words: self.train(plan, data, "--no-release", *words, out=out, steps=2)
        expected = metrics(run("free", "--threads", 8))[0][-1]["loss"]          # no budget: any number of threads
        # The requested number of threads does not fit: the message names one that does, and that works.
        budget = resident + arena[1]
        refused = self.refuse(3, ["--threads 2 takes", "use --threads 1"], "trun", plan, "--data", data, "--steps", 2,
                              "--threads", 2, "--memory-budget", budget, "--out", "no")
        words = re.search(r"use (--threads \d+)", refused.err)[1].split()
        self.assertEqual(metrics(run("one", *words, "--memory-budget", budget))[0][-1]["loss"], expected)
        # No number was requested: trun takes as many threads as fit, and says so.
        run("limited", "--memory-budget", budget)
        log = (self.folder / "limited" / "log.txt").read_text()
        processors = len(os.sched_getaffinity(0))
        self.assertIn("with 1 worker;", log)
        self.assertEqual(f"1 of {processors} processors" in log, processors > 1, log)
        # The plan's own budget holds for the number of workers that it was compiled for. (Compiled for one, more may fit.)
        own = self.compile(model, "--recipe", recipe, "--entry", "train", "--threads", 1, "--memory-budget", budget,
                           plan="own.tplan")
        own_report = json.loads(self.succeed("tcc", "report", own, "--json").out)
        least, arena = own_report["memory"]["resident_bytes"], arena_by_workers(own_report)
        own = self.compile(model, "--recipe", recipe, "--entry", "train", "--threads", 1, "--memory-budget", least + arena[1],
                           plan="own.tplan")
        many = next(workers for workers in arena if arena[workers] > arena[1])
        self.refuse(3, [f"--threads {many} takes", r"use --threads \d+"], "trun", own, "--data", data, "--steps", 2,
                    "--threads", many, "--out", "no")
        self.succeed("trun", own, "--data", data, "--steps", 2, "--threads", many, "--memory-budget", "1GiB", "--out", "more")

    def test_sizes_as_people_type_them(self):
        model, recipe, _, _ = case("mlp")
        for size in ("1GiB", "1024 MiB", "1073741824", "100%"):
            self.compile(model, "--recipe", recipe, "--memory-budget", size)
        for size, why in (("1GB", "GiB"), ("-1", "expected a size"), ("much", "expected a size"), ("0", "expected a size"),
                          ("120%", "more than everything")):
            self.refuse(2, ["--memory-budget", why], "tcc", model, "--recipe", recipe, f"--memory-budget={size}")
        self.refuse(2, ["--fit batch", "--memory-budget"], "tcc", model, "--recipe", recipe, "--fit", "batch")

    def test_gradients_take_memory_on_request_alone(self):
        """Training needs a gradient only until its update. Only a plan with the entry `gradients` needs memory for all of them."""
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        model = models.mlp(self.folder / "m.onnx", batch=1, width=8192)
        fused = ["--set", "compiler.fuse=true"]              # without fusion the step also keeps gradients next to updates
        peak = {}
        for entry, words in (("default", []), ("all", ["--entry", "train,evaluate,predict,gradients"])):
            report = self.report(self.compile(model, "--recipe", recipe, *fused, *words, plan=f"{entry}.tplan"))
            peak[entry] = report["memory"]["arena_bytes"]
            self.assertEqual("gradients" in report["memory"]["entries"], entry == "all")
        self.assertGreater(peak["all"], peak["default"])
        self.refuse(1, ["gradients", "--entry gradients"], "trun", "gradients", "default.tplan", "--inputs",
                    self.save("in.safetensors", **models.mlp_data(1)), "--outputs", "g.safetensors")
        budget = report["memory"]["resident_bytes"] + peak["default"]
        self.succeed("tcc", model, "--recipe", recipe, *fused, "--memory-budget", budget, "-o", "p.tplan")
        self.refuse(3, ["smallest budget", "`gradients`"], "tcc", model, "--recipe", recipe, *fused, "--memory-budget",
                    budget, "--entry", "train,gradients", "-o", "q.tplan")

    def test_the_largest_batch(self):
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        model = models.mlp(self.folder / "m.onnx", batch=4, width=256)
        budget = 4 << 20
        result = self.succeed("tcc", model, "--recipe", recipe, "--memory-budget", budget, "--fit", "batch", "-o", "p.tplan")
        batch = int(re.search(r"a batch of (\d+) fits", result.err)[1])
        self.assertGreater(batch, 16)
        self.assertEqual(self.report("p.tplan")["memory"]["entries"]["train"]["programs"]["step"]["batch"], batch)
        shapes = lambda n: ["--shape", f"x={n}x5"]
        self.compile(model, "--recipe", recipe, "--memory-budget", budget, *shapes(batch))
        self.refuse(3, ["smallest budget"], "tcc", model, "--recipe", recipe, "--memory-budget", budget, *shapes(batch + 1),
                    "-o", "q.tplan")
        self.refuse(3, ["not even a batch of 1"], "tcc", model, "--recipe", recipe, "--memory-budget", "4KiB", "--fit", "batch")

    def test_the_largest_batch_of_a_model_that_takes_no_single_sample(self):
        """Batch normalization of one value per channel has no variance."""
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        model = models.normalised(self.folder / "m.onnx", batch=4, width=256)
        budget = ["--memory-budget", "1MiB"]
        self.refuse(1, ["no variance"], "tcc", model, "--recipe", recipe, *budget, "--batch", 1, "-o", "p.tplan")
        result = self.succeed("tcc", model, "--recipe", recipe, *budget, "--fit", "batch", "-o", "p.tplan")
        self.assertGreater(int(re.search(r"a batch of (\d+) fits", result.err)[1]), 4)
        self.refuse(3, ["not even a batch of 2"], "tcc", model, "--recipe", recipe, "--memory-budget", "4KiB", "--fit", "batch")

    def test_variants_in_one_plan(self):
        model, recipe, data, _ = case("resnet-tiny")
        plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--variants", 4)
        single = self.compile(model, "--recipe", recipe, "--entry", "train", plan="single.tplan")
        resident, points = self.points("resnet-tiny")
        self.succeed("trun", "verify", plan)
        expected = self.results(single, data, "single")
        sizes = []
        for budget in (resident + points[0]["arena_bytes"], resident + points[-1]["arena_bytes"]):
            out = f"run{budget}"
            self.train(plan, data, "--memory-budget", budget, "--no-release", out=out, steps=3)
            log = (self.folder / out / "log.txt").read_text()
            sizes.append(re.search(r"variant (\d) of (\d)", log).groups())
            self.assertEqual([line["loss"] for line in metrics(self.folder / out)[0]], expected[0])
        self.assertEqual(sizes[0][0], "1")
        self.assertEqual(*sizes[1], "the least memory is the last variant")
        self.refuse(3, ["at least", "--memory-budget allows"], "trun", plan, "--data", data, "--steps", 1, "--out", "no",
                    "--memory-budget", resident)
        # Without a budget, the fastest that fits into free memory.
        self.train(plan, data, "--no-release", out="free", steps=1)
        self.assertIn("free on this machine", (self.folder / "free" / "log.txt").read_text())


def table():
    return "\n".join([
        "| model | budgets | plans | least / most bytes | extra cost at least | ms a step at most memory | at least (ratio) | spread | worst |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", *ROWS])


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word not in ("--all", "--write")], verbosity=2, exit=not ALL)
    if ALL:
        print(table())
    if ALL and "--write" in sys.argv:
        page = ROOT / "docs" / "measurements" / "budgets.md"
        begin, end = "<!-- twenty budgets -->\n", "<!-- end of twenty budgets -->"
        before, rest = page.read_text().split(begin)
        page.write_text(before + begin + table() + "\n" + rest[rest.index(end):])
