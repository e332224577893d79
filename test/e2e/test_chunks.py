"""Logits computed in chunks of rows: gradients against formulas in f64 and an unchunked plan, threads, budgets, and reports."""
import json
import unittest

import numpy as np
import safetensors.numpy
from onnx import helper

import models
from common import EndToEnd, arena_by_workers, metrics

BATCH, LENGTH, WIDTH, CLASSES = 4, 200, 24, 301          # 800 rows: chunks of 224, 224, 224 and 128
CHUNKED = ("--set", "compiler.chunk_bytes=1024", "--set", "compiler.fuse=true")
WHOLE = ("--set", "compiler.chunk_bytes=0", "--set", "compiler.fuse=true")
LOSS = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
EVERYTHING = f"ignore_index = 7\nlabel_smoothing = 0.1\nweight = [{', '.join(str(0.5 + c % 5) for c in range(CLASSES))}]\n"


def language_model(path, classes_first=False, w=None, b=None):
    """x of token numbers → tanh(rows of w) · wᵀ + b: the head is tied to the embedding."""
    nodes = [helper.make_node("Cast", ["x"], ["tokens"], "cast", to=7), helper.make_node("Gather", ["w", "tokens"], ["e"], "embedding"),
             helper.make_node("Tanh", ["e"], ["h"], "tanh"), helper.make_node("Transpose", ["w"], ["t"], "transposed", perm=[1, 0]),
             helper.make_node("MatMul", ["h", "t"], ["p"], "head"),
             helper.make_node("Add", ["p", "b"], ["q" if classes_first else "logits"], "bias")]
    if classes_first:
        nodes.append(helper.make_node("Transpose", ["q"], ["logits"], "turned", perm=[0, 2, 1]))
    w, b = (W, B) if w is None else (w, b)
    shape = [BATCH, len(b), LENGTH] if classes_first else [BATCH, LENGTH, len(b)]
    return models.save(path, nodes, {"x": [BATCH, LENGTH]}, {"logits": shape}, {"w": w, "b": b})


W, B = models.random(1, CLASSES, WIDTH) * 3, models.random(2, CLASSES)


def data(batches=1):
    rng = np.random.default_rng(3)
    rows = BATCH * batches
    return {"x": rng.integers(0, CLASSES, (rows, LENGTH)).astype(np.float32), "labels": rng.integers(0, CLASSES, (rows, LENGTH))}


def expected(x, labels, smoothing=0.0, weight=None, ignored=-100):
    """The loss and its gradients by w and b, by their formulas in f64."""
    tokens, labels = x.astype(int).ravel(), labels.ravel()
    w, b, each = W.astype(float), B.astype(float), np.ones(CLASSES) if weight is None else np.asarray(weight, float)
    h = np.tanh(w[tokens])
    logits = h @ w.T + b
    lse = np.log(np.exp(logits).sum(1, keepdims=True))
    soft, hot, valid = np.exp(logits - lse), np.eye(CLASSES)[labels], (labels != ignored)[:, None]
    target = each[labels][:, None] * (1 - smoothing) * hot + smoothing / CLASSES * each
    loss = (valid * target * (lse - logits)).sum()
    count = (valid[:, 0] * each[labels]).sum()
    d = valid * (target.sum(1, keepdims=True) * soft - target) / count
    dw = d.T @ h
    np.add.at(dw, tokens, (d @ w) * (1 - h * h))
    return loss / count, dw, d.sum(0)


class Chunks(EndToEnd):
    def gradients(self, plan, columns, name, *arguments):
        inputs = self.save(f"{name}-in.safetensors", **columns)
        self.succeed("trun", "gradients", plan, "--inputs", inputs, "--outputs", f"{name}.safetensors", *arguments)
        return safetensors.numpy.load_file(self.folder / f"{name}.safetensors")

    def notes(self, plan, kind):
        return [note for note in self.report(plan)["notes"] if note["kind"] == kind]

    def check(self, name, options="", how=CHUNKED, classes_first=False, **formula):
        model = language_model(self.folder / "m.onnx", classes_first)
        axis = "" if classes_first else "class_axis = -1\n"
        recipe = self.write("r.toml", LOSS + axis + options)
        plan = self.compile(model, "--recipe", recipe, *how, "--entry", "train,gradients", plan=f"{name}.tplan")
        columns = data()
        loss, dw, db = expected(columns["x"], columns["labels"], **formula)
        found = self.gradients(plan, columns, name)
        self.assertAlmostEqual(float(found["loss"]), loss, delta=2e-6 * abs(loss))
        # Each gradient is a sum over 800 rows, whose rounding error is far below 1e-5 of the largest.
        np.testing.assert_allclose(found["w"], dw, atol=1e-5 * np.abs(dw).max(), rtol=0)
        np.testing.assert_allclose(found["b"], db, atol=1e-5 * np.abs(db).max(), rtol=0)
        return plan, found

    def test_gradients_are_those_of_the_formulas(self):
        everything = dict(smoothing=0.1, weight=[0.5 + c % 5 for c in range(CLASSES)], ignored=7)
        for name, options, classes_first, formula in [("plain", "", False, {}), ("all", EVERYTHING, False, everything),
                                                      ("classes-first", "", True, {})]:
            with self.subTest(case=name):
                plan, found = self.check(name, options, CHUNKED, classes_first, **formula)
                self.assertEqual({note["subject"] for note in self.notes(plan, "chunked")}, {"head"})
                self.assertIn("4 chunks of 224 rows", self.notes(plan, "chunked")[0]["text"])
                whole, reference = self.check(name + "-whole", options, WHOLE, classes_first, **formula)
                self.assertEqual(self.notes(whole, "chunked"), [])
                self.assertEqual(found["loss"].tobytes(), reference["loss"].tobytes(), "a row's loss has one tree")

    def test_fuse_false_stores_the_logits(self):
        plan, _ = self.check("unfused", "", (*CHUNKED[:2], "--set", "compiler.fuse=false"))
        self.assertEqual(self.notes(plan, "chunked"), [])

    def test_logits_in_16_bits_are_widened_for_the_targets_alone(self):
        classes = 1402                                  # 4.3 MiB of f32, 2.1 MiB of bf16
        model = language_model(self.folder / "m.onnx", w=models.random(1, classes, WIDTH) * 3, b=models.random(2, classes))
        recipe, source = self.write("r.toml", LOSS + "class_axis = -1\n"), self.save("d.safetensors", **data())
        losses = []
        for name in ("fused", "stored"):
            plan = self.compile(model, "--recipe", recipe, *WHOLE[:2], "--set", f"compiler.fuse={str(name == 'fused').lower()}",
                                "--precision", "bf16", "--entry", "train", plan=f"{name}.tplan")
            self.assertEqual(arena_by_workers(self.report(plan))[1] < 4 * BATCH * LENGTH * classes, name == "fused")
            losses.append([line["loss"] for line in metrics(self.train(plan, source, steps=2, out=name))[0]])
        self.assertEqual(*losses)

    def test_threads_and_budgets_change_no_bit(self):
        model, recipe = language_model(self.folder / "m.onnx"), self.write("r.toml", LOSS + "class_axis = -1\n")
        source = self.save("d.safetensors", **data(2))
        plan = self.compile(model, "--recipe", recipe, *CHUNKED, "--entry", "train")
        memory = self.report(plan)["memory"]
        one, whole = (arena_by_workers(self.report(made))[1] for made in (plan, self.compile(
            model, "--recipe", recipe, *WHOLE, "--entry", "train", plan="whole.tplan")))   # with the scratch of one worker
        logits = 4 * BATCH * LENGTH * CLASSES
        self.assertLess(one + logits // 2, whole, "a chunk of logits is a third of all")
        runs = {f"{n} threads": self.train(plan, source, "--threads", n, out=f"t{n}") for n in (1, 2, 3, 8)}
        points = self.frontier(model, recipe)
        budget = memory["resident_bytes"] + points[-1]["arena_bytes"]
        small = self.compile(model, "--recipe", recipe, *CHUNKED, "--entry", "train", "--memory-budget", budget, plan="small.tplan")
        runs["least memory"] = self.train(small, source, out="small")
        first = None
        for name, run in runs.items():
            result = [line["loss"] for line in metrics(run)[0]], {k: v.tobytes() for k, v in self.weights(run, f"{run.name}.safetensors").items()}
            first = first or result
            self.assertEqual(result, first, name)

    def frontier(self, model, recipe):
        text = self.succeed("tcc", "frontier", model, "--recipe", recipe, *CHUNKED, "--entry", "train", "--json").out
        return json.loads(text)["programs"]["step"]["points"]

    def test_accumulation_and_evaluation(self):
        model = language_model(self.folder / "m.onnx")
        recipe = self.write("r.toml", LOSS + "class_axis = -1\n[train]\naccumulate = 2\n" + models.SGD)
        source = self.save("d.safetensors", **data(4))
        results = {}
        for name, how in (("chunked", CHUNKED), ("whole", WHOLE)):
            plan = self.compile(model, "--recipe", recipe, *how, plan=f"{name}.tplan")
            run = self.train(plan, source, "--eval-data", source, out=name, steps=3)
            updates, evaluations = metrics(run)
            results[name] = [line["loss"] for line in updates], evaluations[-1], self.weights(run, f"{name}.safetensors")
        np.testing.assert_allclose(results["chunked"][0], results["whole"][0], rtol=1e-6)
        for key in ("eval_loss", "eval_accuracy"):
            self.assertAlmostEqual(results["chunked"][1][key], results["whole"][1][key], delta=1e-6)
        for key, value in results["whole"][2].items():
            np.testing.assert_allclose(results["chunked"][2][key], value, atol=1e-6 * np.abs(value).max(), rtol=0)

    def test_a_shifted_loss(self):
        columns = data()
        later = np.concatenate([columns["labels"][:, 1:], np.full((BATCH, 1), 7)], 1)
        loss, dw, _ = expected(columns["x"], later, ignored=7)
        recipe = self.write("r.toml", LOSS + "class_axis = -1\nshift = true\nignore_index = 7\n")
        plan = self.compile(language_model(self.folder / "m.onnx"), "--recipe", recipe, *CHUNKED, "--entry", "gradients")
        self.assertTrue(self.notes(plan, "chunked"))
        found = self.gradients(plan, columns, "shift")
        self.assertAlmostEqual(float(found["loss"]), loss, delta=2e-6 * loss)
        np.testing.assert_allclose(found["w"], dw, atol=1e-5 * np.abs(dw).max(), rtol=0)

    def test_sample_weights_and_several_losses_between_ranks(self):
        """The gradients of several losses wait for the denominators of all ranks, which need no logits."""
        table = LOSS.replace("[loss]", "[[loss]]") + 'class_axis = -1\nsample_weight = "weight"\n'
        model = language_model(self.folder / "m.onnx")
        source = self.save("d.safetensors", **data(4), next=data(4)["labels"][::-1].copy(), weight=np.linspace(0.5, 2, 4 * BATCH, dtype=np.float32))
        for name, tables in (("one", LOSS + 'class_axis = -1\nsample_weight = "weight"\n'),
                             ("two", table + 'name = "a"\n' + table.replace('"labels"', '"next"') + 'name = "b"\nscale = 0.5\n')):
            recipe = self.write("r.toml", tables + models.SGD + '[parallel]\nmode = "ddp"\n')
            losses = {}
            for kind, how in (("chunked", CHUNKED), ("whole", WHOLE)):
                plan = self.compile(model, "--recipe", recipe, *how, "--entry", "train", plan=f"{name}-{kind}.tplan")
                self.assertEqual([bool(self.notes(plan, note)) for note in ("chunked", "stored")], [kind == "chunked", False], (name, kind))
                updates, _ = metrics(self.train(plan, source, "--nproc", 2, "--no-release", out=f"{name}-{kind}", steps=3))
                losses[kind] = [line["loss"] for line in updates]
            np.testing.assert_allclose(losses["chunked"], losses["whole"], rtol=1e-6)

    def test_logits_that_somebody_reads_are_stored_and_the_reader_is_named(self):
        """The graph's own loss reads all logits at once, since it subtracts their mean."""
        nodes = [helper.make_node("MatMul", ["x", "w"], ["l"], "head"), helper.make_node("ReduceMean", ["l"], ["m"], "mean", keepdims=1),
                 helper.make_node("Sub", ["l", "m"], ["d"], "centred"), helper.make_node("Exp", ["d"], ["e"], "exp"),
                 helper.make_node("ReduceSum", ["e", "last"], ["s"], "sums", keepdims=0), helper.make_node("ReduceMean", ["s"], ["loss"], "all", keepdims=0)]
        model = models.save(self.folder / "m.onnx", nodes, {"x": [800, WIDTH]}, {"loss": []},
                            {"w": W.T.copy(), "last": np.array([1], np.int64)})
        plan = self.compile(model, *CHUNKED, "--entry", "train")
        self.assertEqual(self.notes(plan, "chunked"), [])
        self.assertRegex(self.notes(plan, "stored")[0]["text"], "stored whole: (read by|.*needs all rows at once)")

if __name__ == "__main__":
    unittest.main(verbosity=2)
