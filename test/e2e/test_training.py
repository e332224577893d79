"""PyTorch's schedules, sample weights, several losses, and stages: each step's loss, rate and parts, evaluations and trained weights
are compared with PyTorch's (training/make.py); also resumes, ranks and refusals."""
import json
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

from common import EndToEnd, metrics

FILES = Path(__file__).resolve().parent / "training"
EXPECTED = json.loads((FILES / "expected.json").read_text())
TRAIN, EVAL = FILES / "train.safetensors", FILES / "eval.safetensors"
CLASSES = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
SGD = '[optimizer]\nkind = "sgd"\nmomentum = 0.9\nlr = 0.05\n'
HEAD = '[[optimizer.group]]\nmatch = ["classes.*"]\nlr_scale = 0.5\n'
PLATEAU = '[schedule]\nkind = "plateau"\nfactor = 0.3\npatience = 1\nthreshold = 1e-2\ncooldown = 1\nmin_lr = 1e-3\n'
VALUE = '[loss]\nkind = "mse"\nof = "value"\ntarget = "y"\n'
WEIGHED = CLASSES + 'sample_weight = "w"\n'
RECIPES = {
    "plateau": CLASSES + SGD.replace("0.05", "0.1") + HEAD + PLATEAU,
    "restarts": VALUE + SGD + HEAD + '[schedule]\nkind = "cosine_warm_restarts"\nt_0 = 3\nt_mult = 2\neta_min = 1e-3\n',
    "weighed-classes": WEIGHED + SGD + "[train]\naccumulate = 4\n",
    "weighed-value": '[loss]\nkind = "huber"\nof = "value"\ntarget = "y"\ndelta = 0.5\nsample_weight = "w"\n' + SGD,
    "weighed-ranks": WEIGHED + SGD + '[parallel]\nmode = "ddp"\n'}
PENALTY = '[[loss]]\noutput = "penalty"\nscale = 0.25\n'
SHAPES = ('[[loss]]\nkind = "mse"\nof = "value"\ntarget = "y"\n'
          '[[loss]]\nname = "far"\nkind = "l1"\nof = "value"\ntarget = "y"\nscale = SCALE\n' + PENALTY)
COUNTS = CLASSES.replace("[loss]", "[[loss]]") + '[[loss]]\nname = "box"\nkind = "mse"\nof = "value"\ntarget = "y"\nsample_weight = "w"\nscale = 0.5\n' + PENALTY

STAGES = ('[[stage]]\nuntil = 4\ntrainable = ["classes.*"]\n[[stage]]\nuntil = 8\ntrainable = ["classes.*", "values.*"]\nlr_scale = 0.5\n'
          '[[stage]]\nuntil = 12\ntrainable = ["trunk.*", "values.*"]\n[[stage]]\ntrainable = ["*"]\nlr_scale = 0.25\n')
FALLS = '[schedule]\nkind = "exponential"\ngamma = 0.95\n'
ADAMW = '[optimizer]\nkind = "adamw"\nlr = 1e-2\nweight_decay = 0.1\n'
BOTH = ('[[loss]]\nkind = "mse"\nof = "value"\ntarget = "y"\n[[loss]]\nname = "scores"\nkind = "mse"\nof = "logits"\ntarget = "z"\nscale = 0.5\n')
RECIPES |= {"stages-adamw": COUNTS + ADAMW + FALLS + STAGES,
            "stages-sgd": BOTH + SGD + "dampening = 0.3\n" + FALLS + "[train]\naccumulate = 2\nclip_norm = 0.3\n" + STAGES}


class Training(EndToEnd):
    def plan(self, name, *arguments, recipe=None, plan=None):
        recipe = self.write(f"{name}.toml", recipe or RECIPES[name])
        return self.compile(FILES / "model.onnx", "--recipe", recipe, *arguments, plan=plan or f"{name}.tplan")

    def follows(self, name, plan, *arguments, steps=None, every=5, out="run", case=None):
        """The run's numbers equal PyTorch's, and so do the weights after it."""
        expected = EXPECTED[case or name]
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", every, *arguments, steps=steps or len(expected["loss"]), out=out)
        self.agrees(name, run, case)
        return run

    def agrees(self, name, run, case=None):
        expected = EXPECTED[case or name]
        lines, evaluations = metrics(run)
        np.testing.assert_allclose([v["loss"] for v in lines], expected["loss"], rtol=2e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose([v["lr"] for v in lines], expected["lr"], rtol=1e-12, err_msg=name)
        if expected["eval_loss"]:
            np.testing.assert_allclose([v["eval_loss"] for v in evaluations], expected["eval_loss"], rtol=2e-5, atol=1e-6, err_msg=name)
        if len(expected["parts"]) > 1:
            for key, values in expected["parts"].items():
                np.testing.assert_allclose([v[f"loss/{key}"] for v in lines], values, rtol=2e-5, atol=1e-6, err_msg=f"{name}: {key}")
            for key, values in expected["eval_parts"].items():
                np.testing.assert_allclose([v[f"eval_loss/{key}"] for v in evaluations], values, rtol=2e-5, atol=1e-6, err_msg=f"{name}: {key}")
        after = safetensors.numpy.load_file(FILES / "after.safetensors")
        for key, value in self.weights(run, f"{name}.safetensors").items():
            np.testing.assert_allclose(value, after[f"{case or name}/{key}"], rtol=1e-4, atol=2e-6, err_msg=f"{name}: {key}")

    def state(self, run):
        newest = max((run / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))
        return (newest / "state.safetensors").read_bytes(), json.loads((newest / "manifest.json").read_text())["position"]


class Schedules(Training):
    def test_restarts(self):
        self.follows("restarts", self.plan("restarts"))

    def test_restarts_by_set(self):
        """trun gives each step its rate, so that a plan compiled without the schedule can run it."""
        plan = self.plan("constant", recipe=VALUE + SGD + HEAD)
        self.follows("restarts", plan, "--set", "schedule.kind=cosine_warm_restarts", "--set", "schedule.t_0=3", "--set", "schedule.t_mult=2",
                     "--set", "schedule.eta_min=1e-3")
        self.refuse(1, ["cosine_warm_restarts", "schedule.t_0"], "trun", plan, "--data", TRAIN, "--set", "schedule.kind=cosine_warm_restarts")

    def test_plateau(self):
        run = self.follows("plateau", self.plan("plateau"), every=4)
        log = (run / "log.txt").read_text()
        self.assertIn("step 44: eval_loss is no better than 0.2707", log)
        self.assertIn("the learning rate falls from 0.1 to 0.03", log)
        self.assertIn("from 0.0027 to 0.001", log)

    def test_plateau_by_set(self):
        settings = ["schedule={kind = 'plateau', factor = 0.3, patience = 1, threshold = 1e-2, cooldown = 1, min_lr = 1e-3}"]
        plan = self.plan("constant", recipe=CLASSES + SGD.replace("0.05", "0.1") + HEAD)
        self.follows("plateau", plan, *[word for s in settings for word in ("--set", s)], every=4)

    def test_plateau_goes_on_bit_by_bit(self):
        """The run may be interrupted anywhere: between evaluations, at one, after a reduction; and go on in its folder or another."""
        plan = self.plan("plateau")
        whole = self.follows("plateau", plan, every=4)
        state, position = self.state(whole)
        self.assertGreaterEqual(position["plateau"]["reductions"], 4)
        for stop in (42, 44, 46, 120 - 4):
            out = f"part-{stop}"
            self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 4, steps=stop, out=out)
            self.succeed("trun", plan, "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--resume", out, "--steps", 120, "--out", f"{out}-other")
            self.succeed("trun", plan, "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--resume", out, "--steps", 120)
            for folder in (out, f"{out}-other"):
                again, other = self.state(self.folder / folder)
                self.assertEqual(again, state, folder)
                self.assertEqual(other["plateau"], position["plateau"], folder)

    def test_plateau_of_another_metric(self):
        plan = self.plan("accuracy", recipe=RECIPES["plateau"].replace("cooldown = 1\n", "") + '[evaluate]\nbest = "accuracy"\n')
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 4, steps=80)
        lines, evaluations = metrics(run)
        best, waited, rate, rates = None, 0, 0.1, {}
        for line in evaluations:
            value = line["eval_accuracy"]
            if best is None or value > best * 1.01:
                best, waited = value, 0
            else:
                waited += 1
            if waited > 1:
                rate, waited = max(rate * 0.3, 1e-3), 0
            rates[line["step"]] = rate
        self.assertLess(rate, 0.1)
        for line in lines:
            before = [r for step, r in rates.items() if step < line["step"]]
            self.assertAlmostEqual(line["lr"], before[-1] if before else 0.1, 12)

    def test_plateau_over_ranks(self):
        """Every rank uses rank 0's rate: their states stay equal, also after a resume."""
        plan = self.plan("ranks", recipe=RECIPES["plateau"] + '[parallel]\nmode = "ddp"\n')
        words = ("--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--no-shuffle", "--nproc", 2, "--threads", 1)
        self.succeed("trun", plan, *words, "--steps", 100, "--out", "whole")
        self.succeed("trun", plan, *words, "--steps", 62, "--out", "part")
        self.succeed("trun", plan, "--resume", "part", "--data", TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--nproc", 2, "--threads", 1, "--steps", 100)
        (state, position), (again, other) = self.state(self.folder / "whole"), self.state(self.folder / "part")
        self.assertEqual(state, again)
        self.assertGreater(position["plateau"]["reductions"], 1)
        self.assertEqual(position["plateau"], other["plateau"])

    def test_plateau_needs_evaluations(self):
        plan = self.plan("plateau")
        self.refuse(2, ["plateau", "there are none", "--eval-every", "schedule.kind=constant"], "trun", plan, "--data", TRAIN)
        self.refuse(2, ["there are none"], "trun", plan, "--data", TRAIN, "--eval-data", EVAL)
        # Both settings that the messages advise work.
        self.train(plan, TRAIN, "--set", "schedule.kind=constant", out="constant")
        self.train(plan, TRAIN, "--set", "data.eval_split=0.2", "--eval-every", 2, out="split")

    def test_recipes_that_are_refused(self):
        for recipe, pattern in [
                (VALUE + '[schedule]\nkind = "cosine_warm_restarts"\n', "needs schedule.t_0"),
                (VALUE + '[schedule]\nkind = "cosine"\nT_0 = 3\n', "schedule.T_0.*schedule.t_0"),
                (VALUE + '[schedule]\nkind = "cosine"\npatience = 3\n', "schedule.patience does not apply to cosine; it belongs to plateau"),
                (VALUE + '[schedule]\nkind = "plateau"\nfactor = 1.0\n', "schedule.factor"),
                ('[[phase]]\nname = "a"\nloss = { kind = "mse", of = "value", target = "y" }\nparameters = ["trunk.*"]\n[schedule]\nkind = "plateau"\n',
                 r"bad.toml:\d+:\d+: phase 1: schedule.kind \"plateau\" does not go with \[\[phase\]\]"),
                ('[train]\noutputs = ["value"]\n[[phase]]\nname = "a"\nloss = { kind = "mse", of = "value", target = "y" }\nparameters = ["*"]\n',
                 r"bad.toml:2:1: train.outputs does not go with \[\[phase\]\]: .*predict")]:
            self.refuse(1, [pattern], "tcc", FILES / "model.onnx", "--recipe", self.write("bad.toml", recipe))


class SampleWeights(Training):
    def test_classes_over_micro_batches(self):
        self.follows("weighed-classes", self.plan("weighed-classes"))

    def test_elements(self):
        self.follows("weighed-value", self.plan("weighed-value"))

    def test_ranks(self):
        plan = self.plan("weighed-ranks")
        self.follows("weighed-ranks", plan, "--nproc", 2, "--threads", 1)
        sharded = self.plan("sharded", recipe=RECIPES["weighed-ranks"].replace('"ddp"', '"full"\nranks = 2'), plan="sharded.tplan")
        self.follows("weighed-ranks", sharded, "--nproc", 2, "--threads", 1, out="sharded")

    def test_virtual_ranks(self):
        plan = self.plan("virtual", recipe=RECIPES["weighed-ranks"] + "[train]\nvirtual_ranks = 2\n")
        runs = [self.follows("weighed-ranks", plan, "--nproc", n, "--threads", 1, out=f"of{n}") for n in (1, 2)]
        self.assertEqual(*[self.state(run)[0] for run in runs])

    def test_equal_weights_change_nothing(self):
        losses = []
        data = safetensors.numpy.load_file(TRAIN)
        for recipe, w in ((CLASSES + SGD, None), (WEIGHED + SGD, 0.5 + 0 * data["w"])):
            plan = self.plan("equal", recipe=recipe)
            columns = data | ({} if w is None else {"w": w})
            losses.append([v["loss"] for v in metrics(self.train(plan, self.save("data.safetensors", **columns), steps=12, out=f"run{len(losses)}"))[0]])
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)

    def test_padding_weighs_nothing(self):
        """44 samples in batches of 8: an epoch's last four slots do not count, so that its last update is that of four samples."""
        data = {k: v[:44] for k, v in safetensors.numpy.load_file(TRAIN).items()}
        padded = self.train(self.plan("padded", recipe=RECIPES["weighed-value"] + '[data]\nlast = "pad"\n'), self.save("data.safetensors", **data), steps=6)
        small = self.plan("small", "--shape", "x=4x6", recipe=RECIPES["weighed-value"])
        # The weights after five updates, then the last four samples alone.
        five = self.train(self.folder / "padded.tplan", self.folder / "data.safetensors", steps=5, out="five")
        self.weights(five, "five.safetensors")
        last = self.train(small, self.save("last.safetensors", **{k: v[40:] for k, v in data.items()}), "--init", "five.safetensors", steps=1, out="last")
        self.assertAlmostEqual(metrics(padded)[0][5]["loss"] / metrics(last)[0][0]["loss"], 1, 5)

    def test_gradients_are_checked(self):
        result = self.succeed("tcc", "gradcheck", FILES / "model.onnx", "--recipe", self.write("r.toml", RECIPES["weighed-value"]))
        self.assertNotIn("FAIL", result.out)

    def test_refused(self):
        for recipe, pattern in [
                ('[loss]\noutput = "penalty"\nsample_weight = "w"\n', r"bad.toml:3:1: loss.sample_weight needs loss.kind"),
                (VALUE + 'sample_weight = "x"\n', r"bad.toml:5:1: loss.sample_weight: the graph input `x` is tensor<8x6xf32>, but .* tensor<8xf32>; name"),
                (VALUE + 'sample_weights = "w"\n', "the nearest known one is loss.sample_weight")]:
            self.refuse(1, [pattern], "tcc", FILES / "model.onnx", "--recipe", self.write("bad.toml", recipe))
        plan = self.plan("weighed-value")
        columns = safetensors.numpy.load_file(TRAIN)
        columns.pop("w")
        self.refuse(1, ["'w'"], "trun", plan, "--data", self.save("without.safetensors", **columns))

    def test_bad_weights(self):
        plan, columns = self.plan("weighed-value"), safetensors.numpy.load_file(TRAIN)
        w = columns["w"]

        def refuse(status, patterns, **changed):
            self.refuse(status, patterns, "trun", plan, "--data", self.save("bad.safetensors", **(columns | changed)), "--no-shuffle", "--out", "bad")

        for value, text in ((-0.5, "-0.5"), (np.nan, "[Nn]a[Nn]"), (np.inf, "inf")):
            refuse(1, [f"column 'w', sample 19: .*{text}.* is no weight of a sample", "data.map.w=COLUMN"], w=np.where(np.arange(48) == 19, np.float32(value), w))
        refuse(1, ["column 'w': all weights of samples are 0"], w=0 * w)
        refuse(1, ["'w' .*is the weight of a single batch", "give 48 rows"], w=w[:8])
        refuse(4, ["step 2: the loss is .?nan: the sample weights of this update \\(input 'w'\\)", "train.accumulate"],
               w=np.where(np.arange(48) // 8 == 1, np.float32(0), w))
        # The settings that the messages advise work.
        self.succeed("trun", plan, "--data", self.save("other.safetensors", **({k: v for k, v in columns.items() if k != "w"} | {"u": w})), "--set", "data.map.w=u",
                     "--steps", 2, "--out", "mapped")
        wide = self.plan("wide", recipe=RECIPES["weighed-value"] + "[train]\naccumulate = 2\n")
        self.train(wide, self.folder / "bad.safetensors", steps=3, out="wide")

    def test_an_update_without_targets_ends_the_run(self):
        data = safetensors.numpy.load_file(TRAIN)
        data["labels"][8:16] = -100
        self.refuse(4, ["step 2: the loss is .?nan: no target of this update counts", "a larger batch"], "trun", self.plan("none", recipe=CLASSES + SGD),
                    "--data", self.save("none.safetensors", **data), "--no-shuffle")

    def test_bf16(self):
        """Weights and both sums stay f32, so that the results are near PyTorch's in f32."""
        run = self.train(self.plan("narrow", "--precision", "bf16", recipe=RECIPES["weighed-value"]), TRAIN, steps=20)
        np.testing.assert_allclose([v["loss"] for v in metrics(run)[0]], EXPECTED["weighed-value"]["loss"], rtol=0.02)


class SeveralLosses(Training):
    def test_denominators_of_shapes_accumulate(self):
        """l1's sum of two numbers a sample is twice its mean."""
        plan = self.plan("shapes", recipe=SHAPES.replace("SCALE", "1.0") + SGD + "[train]\naccumulate = 4\n")
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 5, steps=20)
        expected = EXPECTED["shapes"]
        lines, evaluations = metrics(run)
        np.testing.assert_allclose([v["loss"] for v in lines], expected["loss"], rtol=2e-5)
        np.testing.assert_allclose([v["eval_loss"] for v in evaluations], expected["eval_loss"], rtol=2e-5)
        for key, scale in (("mse", 1), ("far", 0.5), ("penalty", 1)):
            np.testing.assert_allclose([v[f"loss/{key}"] for v in lines], scale * np.array(expected["parts"][key]), rtol=2e-5, err_msg=key)
            np.testing.assert_allclose([v[f"eval_loss/{key}"] for v in evaluations], scale * np.array(expected["eval_parts"][key]), rtol=2e-5)
        after = safetensors.numpy.load_file(FILES / "after.safetensors")
        for key, value in self.weights(run).items():
            np.testing.assert_allclose(value, after[f"shapes/{key}"], rtol=1e-4, atol=2e-6, err_msg=key)

    def test_denominators_of_data(self):
        plan = self.plan("counts", recipe=COUNTS + SGD + "[train]\nclip_norm = 0.5\n")
        self.follows("counts", plan)
        report = self.succeed("tcc", "report", plan).out
        for part in ("cross_entropy", "box", "penalty"):
            self.assertIn(part, report)

    def test_ranks(self):
        for name, parallel in (("ddp", 'mode = "ddp"\n'), ("grad_op", 'mode = "grad_op"\nranks = 2\n'), ("full", 'mode = "full"\nranks = 2\n')):
            plan = self.plan(name, recipe=COUNTS + SGD + "[parallel]\n" + parallel)
            self.follows(name, plan, "--nproc", 2, "--threads", 1, out=name, case="counts-ranks")

    def test_denominators_of_shapes_over_ranks_and_micro_batches(self):
        """Two micro-batches on two ranks give the result of four on one rank."""
        recipe = SHAPES.replace("SCALE", "1.0") + SGD + '[train]\naccumulate = 2\n[parallel]\nmode = "ddp"\n'
        run = self.train(self.plan("ranks", recipe=recipe), TRAIN, "--nproc", 2, "--threads", 1, steps=1)
        line, expected = metrics(run)[0][0], EXPECTED["shapes"]
        self.assertAlmostEqual(line["loss"] / expected["loss"][0], 1, 5)
        self.assertAlmostEqual(line["loss/penalty"] / expected["parts"]["penalty"][0], 1, 5)

    def test_virtual_ranks(self):
        recipe = SHAPES.replace("SCALE", "1.0") + SGD + '[train]\naccumulate = 2\nvirtual_ranks = 2\n[parallel]\nmode = "ddp"\n'
        plan = self.plan("virtual", recipe=recipe)
        runs = [self.train(plan, TRAIN, "--nproc", n, "--threads", 1, steps=4, out=f"of{n}") for n in (1, 2)]
        self.assertEqual(*[self.state(run)[0] for run in runs])
        parts = [[[v["loss"], v["loss/far"], v["loss/penalty"]] for v in metrics(run)[0]] for run in runs]
        self.assertEqual(*parts)
        self.assertAlmostEqual(parts[0][0][0] / EXPECTED["shapes"]["loss"][0], 1, 5)

    def test_a_loss_of_which_nothing_counts_adds_nothing(self):
        data = safetensors.numpy.load_file(TRAIN)
        data["labels"][:8] = -100
        run = self.train(self.plan("counts", recipe=COUNTS + SGD), self.save("data.safetensors", **data), steps=2)
        first, second = metrics(run)[0]
        self.assertIsNone(first["loss/cross_entropy"])
        self.assertAlmostEqual(first["loss"], 0.5 * first["loss/box"] + 0.25 * first["loss/penalty"], 6)
        self.assertIsNotNone(second["loss/cross_entropy"])

    def test_one_of_several_is_that_one(self):
        losses = [[v["loss"] for v in metrics(self.train(self.plan(f"r{i}", recipe=r + SGD), TRAIN, steps=6, out=f"run{i}"))[0]]
                  for i, r in enumerate((VALUE, VALUE.replace("[loss]", "[[loss]]")))]
        self.assertEqual(losses[0], losses[1])

    def test_other_commands(self):
        recipe = self.write("r.toml", COUNTS + SGD)
        self.assertNotIn("FAIL", self.succeed("tcc", "gradcheck", FILES / "model.onnx", "--recipe", recipe).out)
        self.succeed("tcc", "frontier", FILES / "model.onnx", "--recipe", recipe)
        plan = self.plan("counts", recipe=COUNTS + SGD)
        run = self.train(plan, TRAIN, "--eval-data", EVAL, "--eval-every", 4, "--set", "evaluate.best=min:loss/box", steps=8)
        out = self.succeed("trun", "eval", plan, "--data", EVAL, "--from", f"{run}@best").out
        self.assertIn("loss/box", out)
        self.succeed("trun", plan, "--data", TRAIN, "--eval-data", EVAL, "--resume", run, "--steps", 12)
        whole = self.train(plan, TRAIN, steps=12, out="whole")
        self.assertEqual(self.state(run)[0], self.state(whole)[0])
        lines = metrics(run)[0]
        self.assertEqual([v["loss/box"] for v in lines], [v["loss/box"] for v in metrics(whole)[0]])

    def test_bf16(self):
        run = self.train(self.plan("narrow", "--precision", "bf16", recipe=COUNTS + SGD + "[train]\nclip_norm = 0.5\n"), TRAIN, steps=20)
        np.testing.assert_allclose([v["loss"] for v in metrics(run)[0]], EXPECTED["counts"]["loss"], rtol=0.03)

    def test_padding_is_refused_beside_a_loss_inside_the_graph(self):
        plan = self.plan("padded", recipe=COUNTS + SGD + '[data]\nlast = "pad"\n')
        data = {k: v[:44] for k, v in safetensors.numpy.load_file(TRAIN).items()}
        self.refuse(1, ["data.last = \"pad\": the loss cannot leave a sample out"], "trun", plan, "--data", self.save("data.safetensors", **data))
        # So is a run whose plan was compiled without padding: an ignored label does not take `y` out of the other loss.
        phases = "".join(f'[[phase]]\nname = "{name}"\nloss = {{ {loss} }}\nparameters = ["{name}.*"]\n' for name, loss in (
            ("classes", 'kind = "cross_entropy", of = "logits", target = "labels"'), ("values", 'kind = "mse", of = "value", target = "y"')))
        self.refuse(1, ["cannot leave a sample out; compile with tcc --set data.last=pad"], "trun", self.plan("phases", recipe=phases + SGD), "--data",
                    self.folder / "data.safetensors", "--out", "no", "--set", "data.last=pad")

    def test_labels_of_every_loss_are_checked(self):
        """A label beyond the classes would be read outside the scores."""
        recipe = VALUE.replace("[loss]", "[[loss]]") + CLASSES.replace("[loss]", "[[loss]]") + SGD
        data = safetensors.numpy.load_file(TRAIN)
        data["labels"][3] = 3
        self.refuse(1, ["labels", "sample 3", "3"], "trun", self.plan("labels", recipe=recipe), "--data", self.save("data.safetensors", **data))

    def test_refused(self):
        two = CLASSES.replace("[loss]", "[[loss]]") + VALUE.replace("[loss]", "[[loss]]")
        for recipe, pattern in [
                (two + "[train]\naccumulate = 2\n", r"bad.toml:1:1: loss `cross_entropy` divides by a number that the data decides .*train.accumulate = 1"),
                (two + VALUE.replace("[loss]", "[[loss]]"), r"bad.toml:9:1: two losses are called \"mse\"; give each a `name`"),
                (two + '[[loss]]\nof = "value"\n', "bad.toml:9:1: one of several losses names neither a kind"),
                (two + '[[loss]]\nname = "x"\n', "bad.toml:9:1: one of several losses names neither a kind nor the output"),
                (two + '[[loss]]\noutput = "penalty"\nname = "a b"\n', r"bad.toml:11:1: \"a b\" is no name of a loss"),
                (two + '[[loss]]\nkind = "mse"\nof = "valu"\ntarget = "y"\nname = "m"\n', "loss.of: the graph has no output `valu`, .*the nearest is `value`"),
                (CLASSES + "scale = 2.0\n", "bad.toml:5:1: loss.scale belongs to one of several losses"),
                (two + '[[phase]]\nname = "a"\nloss = "penalty"\nparameters = ["trunk.*"]\n', r"\[loss\] and \[\[phase\]\] exclude each other")]:
            self.refuse(1, [pattern], "tcc", FILES / "model.onnx", "--recipe", self.write("bad.toml", recipe))
        self.refuse(1, [r"several losses \(\[\[loss\]\]\)"], "tcc", FILES / "model.onnx", "--recipe", self.write("two.toml", two), "--set", "loss.shift=true")
        # The recipes that the messages advise work.
        self.compile(FILES / "model.onnx", "--recipe", self.write("sum.toml", two.replace('"logits"', '"logits"\nreduction = "sum"\nscale = 0.125')
                                                                  + "[train]\naccumulate = 2\n"))
        self.plan("larger", "--shape", "x=16x6", recipe=two)


class Stages(Training):
    def test_adamw(self):
        """Bias corrections count each parameter's own updates; weight decay does not change frozen parameters."""
        plan = self.plan("stages-adamw")
        self.follows("stages-adamw", plan)
        report = self.succeed("tcc", "report", plan).out
        for words in ("stage1, updates 1 to 4, lr × 1, trains: 2 tensors", "stage3, updates 9 to 12, lr × 1, trains: 4 tensors",
                      "stage4, updates 13 to the run's end, lr × 0.25, trains: 6 tensors"):
            self.assertIn(words, report)
        stages = self.report(plan)["parameters"]["stages"]
        self.assertEqual([(s["first"], s["last"]) for s in stages], [(1, 4), (5, 8), (9, 12), (13, None)])
        self.assertEqual(sorted(stages[2]["parameters"]), ["trunk.bias", "trunk.weight", "values.bias", "values.weight"])
        self.assertIn("stage2, updates 5 to 8, lr × 0.5, trains classes.", self.succeed("trun", "report", "run").out)

    def test_bf16(self):
        run = self.train(self.plan("narrow", "--precision", "bf16", recipe=RECIPES["stages-adamw"]), TRAIN, steps=20)
        np.testing.assert_allclose([v["loss"] for v in metrics(run)[0]], EXPECTED["stages-adamw"]["loss"], rtol=0.03)

    def test_memory_holds_for_every_stage(self):
        """The transient arena is as large as the largest stage's; resident memory is what a single stage would need."""
        plan = self.plan("stages-adamw")
        memory = self.report(plan)["memory"]
        steps = memory["entries"]["train"]["programs"]
        self.assertEqual(sorted(steps), [f"step.stage{i}" for i in range(1, 5)])
        self.assertEqual(max(p["arena_bytes"] for p in steps.values()), memory["arena_bytes"])
        self.assertLess(steps["step.stage1"]["peak_bytes"], steps["step.stage4"]["peak_bytes"])
        alone = self.report(self.plan("alone", recipe=COUNTS + ADAMW + FALLS))["memory"]
        self.assertEqual(memory["resident_bytes"], alone["resident_bytes"])
        self.succeed("trun", "verify", plan)

    def test_averages_go_on_through_stages(self):
        plan = self.plan("averaged", recipe=RECIPES["stages-adamw"] + "[train]\nema = { decay = 0.8 }\n")
        whole = self.train(plan, TRAIN, steps=14, out="whole")
        part = self.train(plan, TRAIN, steps=6, out="part")
        self.succeed("trun", plan, "--data", TRAIN, "--resume", part, "--steps", 14)
        averages = []
        for run in (whole, part):
            self.succeed("trun", "export", run, "-o", f"{run.name}.safetensors", "--ema")
            averages.append(safetensors.numpy.load_file(self.folder / f"{run.name}.safetensors"))
        for key, value in averages[0].items():
            np.testing.assert_array_equal(averages[1][key], value, key)

    def test_adapters(self):
        """A stage may train adapters and the parameters of adapter.train; the base is frozen in all stages."""
        adapter = '[adapter]\nrank = 2\ntargets = ["trunk"]\ntrain = ["values.*"]\n'
        recipe = VALUE + SGD + adapter + '[[stage]]\nuntil = 3\ntrainable = ["values.*"]\n[[stage]]\ntrainable = ["*"]\n'
        plan = self.plan("adapted", recipe=recipe)
        states = []
        for steps in (1, 3, 6):
            run = self.train(plan, TRAIN, steps=steps, out=f"run{steps}")
            newest = max((run / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))
            states.append(safetensors.numpy.load_file(newest / "state.safetensors"))
        for name in states[0]:
            if "lora" in name and "/" not in name:
                np.testing.assert_array_equal(states[0][name], states[1][name], name)
        self.assertTrue(any(not np.array_equal(states[1][n], states[2][n]) for n in states[0] if "lora_B" in n and "/" not in n))
        self.refuse(1, ["bad.toml:13:1: stage.trainable: `trunk.weight` matches no parameter"], "tcc", FILES / "model.onnx", "--recipe",
                    self.write("bad.toml", recipe.replace('until = 3\ntrainable = ["values.*"]', 'until = 3\ntrainable = ["trunk.weight"]')))

    def test_momentum_clipping_and_micro_batches(self):
        self.follows("stages-sgd", self.plan("stages-sgd"))

    def test_what_is_frozen_stays(self):
        plan = self.plan("stages-adamw")
        start = {k: v for k, v in self.weights(self.train(plan, TRAIN, "--set", "optimizer.lr=0", steps=1, out="none"), "start.safetensors").items()}
        after = self.weights(self.train(plan, TRAIN, steps=8))
        for key, value in after.items():
            self.assertEqual(np.array_equal(value, start[key]), key.startswith("trunk"), key)

    def test_goes_on_bit_by_bit(self):
        plan = self.plan("stages-sgd")
        state, _ = self.state(self.train(plan, TRAIN, steps=18, out="whole"))
        for stop in (3, 4, 7, 12, 13):
            self.train(plan, TRAIN, steps=stop, out=f"part{stop}")
            self.succeed("trun", plan, "--data", TRAIN, "--resume", f"part{stop}", "--steps", 18)
            self.assertEqual(self.state(self.folder / f"part{stop}")[0], state, stop)

    def test_settings_hold_in_every_stage(self):
        """A rate and a schedule given with --set act as in a plan that was compiled with them."""
        recipe = RECIPES["stages-adamw"]
        one = self.train(self.plan("one", recipe=recipe.replace("1e-2", "3e-3").replace("0.95", "0.9")), TRAIN, steps=14, out="one")
        two = self.train(self.plan("two", recipe=recipe), TRAIN, "--set", "optimizer.lr=3e-3", "--set", "schedule.gamma=0.9", steps=14, out="two")
        self.assertEqual([v["lr"] for v in metrics(one)[0]], [v["lr"] for v in metrics(two)[0]])
        self.assertEqual(self.state(one)[0], self.state(two)[0])

    def test_ranks(self):
        recipe = RECIPES["stages-sgd"].replace("accumulate = 2", "accumulate = 1") + '[parallel]\nmode = "ddp"\n'
        self.follows("ranks", self.plan("ranks", recipe=recipe), "--nproc", 2, "--threads", 1, case="stages-sgd")

    def test_other_commands(self):
        recipe = self.write("r.toml", RECIPES["stages-adamw"])
        self.assertNotIn("FAIL", self.succeed("tcc", "gradcheck", FILES / "model.onnx", "--recipe", recipe).out)
        self.succeed("tcc", "frontier", FILES / "model.onnx", "--recipe", recipe)
        plan = self.plan("stages-adamw")
        self.refuse(2, [r"stages \(\[\[stage\]\]\)", "step.stage2"], "trun", "profile", plan, "--data", TRAIN)
        self.succeed("trun", "profile", plan, "--data", TRAIN, "--entry", "step.stage2", "--steps", 2)
        self.refuse(1, ["stages", "model.trainable"], "trun", "lr-find", plan, "--data", TRAIN)

    def test_refused(self):
        base = VALUE + SGD
        for recipe, pattern in [
                (base + '[[stage]]\nuntil = 3\n[[stage]]\ntrainable = ["*"]\n', "bad.toml:9:1: stage 1: it has no `trainable`"),
                (base + '[[stage]]\nuntil = 3\ntrainable = ["*"]\n', "stage 1: the last stage runs to the end of the run: leave `until` out"),
                (base + '[[stage]]\ntrainable = ["values.*"]\n[[stage]]\ntrainable = ["*"]\n', "stage 1: it has no `until`"),
                (base + '[[stage]]\ntrainable = ["*"]\nuntill = 3\n', "unknown key untill; the nearest is until"),
                (base + '[[stage]]\nuntil = 3\ntrainable = ["values.*"]\n[[stage]]\nuntil = 3\ntrainable = ["*"]\n[[stage]]\ntrainable = ["*"]\n',
                 "until = 3, but the stage before it ends at step 3"),
                (base + '[[stage]]\ntrainable = ["value.*"]\n', "bad.toml:9:1: stage.trainable: `value.\\*` matches no parameter"),
                (base + '[[stage]]\ntrainable = ["classes.*"]\n', "bad.toml:9:1: stage 1: the loss reaches none of its parameters"),
                (base + '[[stage]]\ntrainable = ["*"]\n[train]\nprecision = "f16"\n', r"\[\[stage\]\] does not go with train.precision"),
                (base + '[[stage]]\ntrainable = ["*"]\n[parallel]\nmode = "full"\nranks = 2\n', r"does not go with parallel.mode; use \"ddp\"")]:
            self.refuse(1, [pattern], "tcc", FILES / "model.onnx", "--recipe", self.write("bad.toml", recipe))
        self.refuse(1, ["gradients: the recipe has stages"], "tcc", FILES / "model.onnx", "--recipe", self.write("s.toml", RECIPES["stages-sgd"]),
                    "--entry", "train,gradients")
        self.refuse(1, ["does not go with a loss scale"], "tcc", FILES / "model.onnx", "--recipe", self.write("s.toml", RECIPES["stages-sgd"]),
                    "--precision", "f16")


if __name__ == "__main__":
    unittest.main()
