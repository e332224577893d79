"""The samples at the end of an epoch that fill no batch: padded, whatever the loss, or trained in a shape that they fill.

Each padded batch is compared with the same samples in a shape of their own, which has no padding."""
import json
import shlex
import sys
import unittest

import numpy as np
import safetensors.numpy
from onnx import helper

import models
from common import ROOT, EndToEnd, metrics

sys.path.insert(0, str(ROOT / "python"))
import tcc                                                                      # noqa: E402

BATCH, SAMPLES = 8, 11
SGD = '[optimizer]\nkind = "sgd"\nlr = 0.1\n'
# Kind → what it is of, more keys, and the target of the samples.
LIKE, CLASSES, SIGNS, ROWS = (lambda rng: rng.random((SAMPLES, 4)).astype(np.float32), lambda rng: rng.integers(0, 4, SAMPLES),
                              lambda rng: rng.choice([-1.0, 1.0], (SAMPLES, 4)).astype(np.float32),
                              lambda rng: rng.choice([-1.0, 1.0], SAMPLES).astype(np.float32))
KINDS = {"cross_entropy": (["a"], "", CLASSES), "nll": (["logs"], "", CLASSES), "mse": (["a"], "", LIKE), "l1": (["a"], "", LIKE),
         "huber": (["a"], "", LIKE), "smooth_l1": (["a"], "", LIKE), "bce": (["share"], "", LIKE), "bce_with_logits": (["a"], "", LIKE),
         "kl_div": (["logs"], 'reduction = "batchmean"\n', LIKE), "focal": (["a"], "", LIKE), "dice": (["share"], "", LIKE),
         "ctc": (["steps"], 'max_target_length = 2\ntime_axis = 1\ninput = "logits"\n', lambda rng: rng.integers(1, 4, (SAMPLES, 2))),
         "cosine_embedding": (["a", "b"], "", ROWS), "triplet": (["a", "b", "c"], "", None), "margin_ranking": (["a", "b"], "", SIGNS),
         "hinge": (["a"], "", SIGNS), "hinge_embedding": (["a"], "", SIGNS), "poisson_nll": (["a"], "", LIKE),
         "gaussian_nll": (["a", "share"], "", LIKE)}


def model(path):
    """x [batch, 6] → a, b, c, share, logs [batch, 4], steps [batch, 3, 4]."""
    nodes = [node for name in "abc" for node in [helper.make_node("MatMul", ["x", f"w{name}"], [name], name)]]
    nodes += [helper.make_node("Sigmoid", ["b"], ["share"], "share"), helper.make_node("LogSoftmax", ["c"], ["logs"], "logs"),
              helper.make_node("MatMul", ["x", "ws"], ["flat"], "flat"), helper.make_node("Reshape", ["flat", "shape"], ["steps"], "steps")]
    outputs = {name: ["batch", 4] for name in ("a", "b", "c", "share", "logs")} | {"steps": ["batch", 3, 4]}
    weights = {f"w{name}": models.random(i, 6, 4) for i, name in enumerate("abc")} | {"ws": models.random(7, 6, 12), "shape": np.array([-1, 3, 4])}
    return models.save(path, nodes, {"x": ["batch", 6]}, outputs, weights)


def loss_of(kind, table="[loss]", target="t", more=""):
    of, keys, make = KINDS[kind]
    return (f'{table}\nkind = "{kind}"\nof = {json.dumps(of)}\n' + (f'target = "{target}"\n' if make else "") + keys + more)


class LastBatch(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = model(self.folder / "m.onnx")
        rng = np.random.default_rng(1)
        self.x = {"x": rng.standard_normal((SAMPLES, 6)).astype(np.float32)}

    def columns(self, kind, name="t"):
        make = KINDS[kind][2]
        return {name: make(np.random.default_rng(2))} if make else {}

    def both(self, recipe, columns, name, *words):
        """The losses and weights of two epochs, padded and in shapes of their own."""
        data, results = self.save(f"{name}.safetensors", **(self.x | columns)), []
        for last, dims in (("pad", f"{BATCH}"), ("exact", f"{BATCH},{SAMPLES % BATCH}")):
            plan = self.compile(self.model, "--recipe", self.write(f"{name}.toml", recipe), "--dim", f"batch={dims}", "--entry", "train,evaluate",
                                "--set", f"data.last={last}", *words, plan=f"{name}-{last}.tplan")
            run = self.folder / f"{name}-{last}"
            self.succeed("trun", plan, "--data", data, "--epochs", 2, "--no-shuffle", "--out", run)
            evaluation = json.loads(self.succeed("trun", "eval", plan, "--data", data).out)
            self.weights(run, f"{name}-{last}.safetensors")
            results.append(([line["loss"] for line in metrics(run)[0]], evaluation,
                            safetensors.numpy.load_file(self.folder / f"{name}-{last}.safetensors")))
        return results

    def agree(self, results, updates, what=""):
        (losses, evaluation, weights), (expected, expected_evaluation, expected_weights) = results
        self.assertEqual(len(losses), updates, what)
        np.testing.assert_allclose(losses, expected, rtol=2e-5, err_msg=what)
        for key, value in expected_evaluation.items():
            self.assertAlmostEqual(evaluation[key], value, delta=2e-5 * max(1, abs(value)), msg=f"{what}: {key}")
        for key, value in expected_weights.items():
            np.testing.assert_allclose(weights[key], value, rtol=1e-4, atol=1e-6, err_msg=f"{what}: {key}")

    def test_padding_weighs_nothing_in_any_loss(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.agree(self.both(loss_of(kind) + SGD, self.columns(kind), kind), 4, kind)

    def test_every_loss_is_here(self):
        known = self.refuse(1, ["is unknown; known: "], "tcc", self.model, "--recipe", self.write("r.toml", '[loss]\nkind = "none"\ntarget = "t"\n')).err
        for kind in known.split("known: ")[1].split("\n")[0].rstrip(".").split(", "):
            self.assertIn(kind.strip(), KINDS)

    def test_padding_weighs_nothing_in_several_losses(self):
        """Its label takes a sample out of one loss, not of the other, so each has weights."""
        recipe = loss_of("cross_entropy", "[[loss]]", "labels") + loss_of("mse", "[[loss]]", "y", 'name = "y"\nscale = 0.5\nsample_weight = "w"\n')
        weights = np.linspace(0.5, 2, SAMPLES).astype(np.float32)
        columns = self.columns("cross_entropy", "labels") | self.columns("mse", "y") | {"w": weights}
        results = self.both(recipe + SGD, columns, "several")
        self.agree(results, 4)
        self.assertIn("eval_accuracy", results[0][1])

    def test_padding_weighs_nothing_in_phases(self):
        phases = "".join(f'[[phase]]\nname = "{name}"\nloss = {{ {loss} }}\nparameters = ["{name}"]\n' for name, loss in (
            ("wa", 'kind = "cross_entropy", of = "a", target = "labels"'), ("wb", 'kind = "mse", of = "b", target = "y"')))
        self.agree(self.both(phases + SGD, self.columns("cross_entropy", "labels") | self.columns("mse", "y"), "phases"), 4)

    def test_padding_in_windows_on_ranks_and_with_averages(self):
        recipe = loss_of("huber") + SGD
        self.agree(self.both(recipe, self.columns("huber"), "window", "--set", "train.accumulate=2", "--set", "train.clip_norm=0.5"), 2)
        self.agree(self.both(recipe, self.columns("huber"), "ema", "--set", "train.ema.decay=0.9"), 4)
        plan = self.compile(self.model, "--recipe", self.write("r.toml", recipe), "--dim", "batch=4", "--set", "data.last=pad", "--set",
                            "parallel.mode=ddp", plan="ranks.tplan")
        data, losses = self.folder / "ema.safetensors", []
        self.succeed("trun", plan, "--data", data, "--epochs", 2, "--no-shuffle", "--nproc", 2, "--out", "two")
        alone = self.both(recipe, self.columns("huber"), "alone")[0][0]
        np.testing.assert_allclose([line["loss"] for line in metrics(self.folder / "two")[0]], alone, rtol=2e-5)

    def test_exact_says_which_shape_is_missing(self):
        recipe = self.write("r.toml", loss_of("mse") + SGD + '[data]\nlast = "exact"\n')
        data = self.save("d.safetensors", **(self.x | self.columns("mse")))
        plan = self.compile(self.model, "--recipe", recipe, "--dim", f"batch={BATCH}")
        message = self.refuse(1, ['data.last = "exact": the last samples of an epoch fill no batch: 3', "tcc --dim batch=8,3"], "trun", plan,
                              "--data", data, "--out", "no").err
        words = shlex.split(message.split("compile with tcc ")[1].split("\n")[0])
        self.succeed("trun", self.compile(self.model, "--recipe", recipe, *words), "--data", data, "--out", "run", "--epochs", 1)
        self.assertEqual(len(metrics(self.folder / "run")[0]), 2)

    def test_exact_needs_a_symbolic_batch(self):
        network = models.mlp(self.folder / "fixed.onnx", batch=8, loss=True)
        data = self.save("fixed.safetensors", **models.mlp_data(SAMPLES))
        plan = self.compile(network, "--recipe", self.write("fixed.toml", SGD), plan="fixed.tplan")
        self.refuse(1, ["fill no batch: 3; export the model with a symbolic batch .dynamic_shapes., and compile with tcc --dim BATCH=8,3"], "trun",
                    plan, "--data", data, "--set", "data.last=exact", "--out", "no")

    def test_exact_on_ranks(self):
        """Eleven samples, batches of four for each of two ranks: three are left, one for each rank, and one that is left out."""
        recipe = self.write("r.toml", loss_of("mse") + SGD + '[data]\nlast = "exact"\n[parallel]\nmode = "ddp"\n')
        data = self.save("d.safetensors", **(self.x | self.columns("mse")))
        plan = self.compile(self.model, "--recipe", recipe, "--dim", "batch=4,1")
        done = self.succeed("trun", plan, "--data", data, "--epochs", 1, "--no-shuffle", "--nproc", 2, "--out", "two")
        self.assertIn("the last 1 samples of an epoch fill no batch of 2 ranks", done.err)
        single = self.compile(self.model, "--recipe", recipe, "--dim", "batch=8,2", "--set", "parallel.mode=none", plan="single.tplan")
        ten = self.save("ten.safetensors", **{name: rows[:10] for name, rows in (self.x | self.columns("mse")).items()})
        self.succeed("trun", single, "--data", ten, "--epochs", 1, "--no-shuffle", "--out", "one")
        np.testing.assert_allclose(*[[line["loss"] for line in metrics(self.folder / run)[0]] for run in ("one", "two")], rtol=2e-5)

    def test_drawn_samples_may_end_with_an_exact_batch(self):
        recipe = self.write("r.toml", loss_of("mse") + SGD + '[data]\nlast = "exact"\nsampler = "weighted"\nweights = "w"\n')
        data = self.save("d.safetensors", **(self.x | self.columns("mse") | {"w": np.arange(SAMPLES, dtype=np.float32)}))
        plan = self.compile(self.model, "--recipe", recipe, "--dim", f"batch={BATCH},{SAMPLES % BATCH}")
        self.succeed("trun", plan, "--data", data, "--epochs", 2, "--out", "run")
        self.assertEqual(len(metrics(self.folder / "run")[0]), 4)

    def test_statistics_of_a_batch_see_no_padding(self):
        """BatchNormalization would: its batch is refused, in files and in own loops, and exact ones are trained."""
        network = models.normalised(self.folder / "n.onnx", batch="batch")
        rng = np.random.default_rng(3)
        columns = {"x": rng.standard_normal((SAMPLES, 5)).astype(np.float32), "y": rng.standard_normal((SAMPLES, 1)).astype(np.float32)}
        data = self.save("n.safetensors", **columns)
        recipe = self.write("n.toml", '[loss]\nkind = "mse"\ntarget = "y"\n' + SGD + '[data]\nlast = "pad"\n')
        plan = self.compile(network, "--recipe", recipe, "--dim", f"batch={BATCH}", "--set", "model.batch_norm=train", plan="n.tplan")
        words = ["node 'norm' computes statistics over a batch, which padding would change"]
        self.refuse(1, words + ["--set data.last=exact", "--set data.last=drop"], "trun", plan, "--data", data, "--out", "no")
        self.succeed("trun", plan, "--data", data, "--out", "dropped", "--set", "data.last=drop")
        even = self.save("even.safetensors", **{name: rows[:BATCH] for name, rows in columns.items()})
        self.succeed("trun", plan, "--data", even, "--out", "even")
        rest = {name: rows[BATCH:] for name, rows in columns.items()}
        with self.assertRaisesRegex(tcc.Error, f"3 rows are no multiple.*{words[0]}.*batch=8,3"):
            tcc.Trainer(plan).step(**rest)
        exact = self.compile(network, "--recipe", recipe, "--dim", "batch=8,3", "--set", "data.last=exact", "--set", "model.batch_norm=train",
                             plan="exact.tplan")
        self.succeed("trun", exact, "--data", data, "--out", "run", "--epochs", 1, "--no-shuffle")
        trainer = tcc.Trainer(exact)
        own = [trainer.step(**{name: rows[:BATCH] for name, rows in columns.items()}).loss, trainer.step(**rest).loss]
        self.assertEqual([line["loss"] for line in metrics(self.folder / "run")[0]], own)

    def test_an_own_loop_takes_the_batch_that_its_rows_fill(self):
        data = self.x | self.columns("mse")
        recipe = self.write("r.toml", loss_of("mse") + SGD)
        plan = self.compile(self.model, "--recipe", recipe, "--dim", "batch=8,3", plan="two.tplan")
        one = self.compile(self.model, "--recipe", recipe, "--dim", "batch=8", plan="one.tplan")
        rest = {name: rows[BATCH:] for name, rows in data.items()}
        with self.assertRaisesRegex(tcc.Error, "3 rows are no multiple.*its loss cannot leave rows out.*data.last.*batch=8,3"):
            tcc.Trainer(one).step(**rest)
        padded = self.compile(self.model, "--recipe", recipe, "--dim", "batch=8", "--set", "data.last=pad", plan="padded.tplan")
        losses = [tcc.Trainer(plan).step(**rest).loss for plan in (plan, padded)]
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-6)
        self.assertNotIn("sample_present", [value.name for value in tcc.Plan(padded).inputs()])
        for count in (1, 3, 8, 11):
            rows = {name: rows[:count] for name, rows in data.items()}
            a = tcc.Trainer(plan).predict(x=rows["x"])["a"]
            np.testing.assert_allclose(a, rows["x"] @ models.random(0, 6, 4), rtol=1e-4, atol=1e-5)

    def test_other_commands_need_no_column_for_it(self):
        recipe = self.write("r.toml", loss_of("mse") + SGD + '[data]\nlast = "pad"\n')
        data = self.save("d.safetensors", **(self.x | self.columns("mse")))
        for words in ([], ["--data", data]):
            checked = self.succeed("tcc", "gradcheck", self.model, "--recipe", recipe, "--dim", "batch=8", *words)
            self.assertNotIn("FAIL", checked.out)
        plan = self.compile(self.model, "--recipe", recipe, "--dim", "batch=8", "--entry", "train,evaluate,predict,gradients")
        self.assertNotIn("sample_present", self.succeed("trun", "data", data, "--plan", plan).out)
        eight = {name: rows[:8] for name, rows in (self.x | self.columns("mse")).items()}
        self.succeed("trun", "gradients", plan, "--inputs", self.save("eight.safetensors", **eight), "--outputs", "g.safetensors")
        found = safetensors.numpy.load_file(self.folder / "g.safetensors")
        np.testing.assert_allclose(tcc.Trainer(plan).gradients(**eight)["wa"], found["wa"], rtol=1e-5)
        self.succeed("trun", "profile", plan, "--data", data, "--steps", 1)

    def test_a_loss_inside_the_graph_cannot_be_padded(self):
        network = models.mlp(self.folder / "inner.onnx", batch="batch", loss=True)
        data = self.save("inner.safetensors", **models.mlp_data(SAMPLES))
        plan = self.compile(network, "--recipe", self.write("inner.toml", SGD + '[data]\nlast = "pad"\n'), "--dim", "batch=8", plan="inner.tplan")
        self.refuse(1, ["the loss cannot leave a sample out", "--set data.last=exact"], "trun", plan, "--data", data, "--out", "no")
        exact = self.compile(network, "--recipe", self.folder / "inner.toml", "--dim", "batch=8,3", "--set", "data.last=exact", plan="exact.tplan")
        self.succeed("trun", exact, "--data", data, "--epochs", 1, "--out", "run")


if __name__ == "__main__":
    unittest.main()
