"""Plans of several shapes over one state: sentences of any length, evaluation and prediction in shapes of their own.

The model averages the embeddings of a sentence's words, so NumPy can train it in double precision beside it."""
import json
import os
import re
import shlex
import subprocess
import sys
import unittest

import numpy as np
import onnx
import pyarrow
import pyarrow.parquet
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

import models
from common import BIN, ROOT, EndToEnd, metrics
from sentences import BUCKETS, CLASSES, SAMPLES, SHAPES, WIDTH, WORDS, Sentences, sentence_model, weights
from test_reruns import rerun

os.environ.setdefault("TCC_LIBRARY", str(BIN.parent / "lib" / "libtrun.so"))
os.environ.setdefault("TCC_PROGRAM", str(BIN / "tcc"))
sys.path.insert(0, str(ROOT / "python"))
import tcc                                                                      # noqa: E402

RATE = 0.1
RECIPE = models.CLASSES + f'[optimizer]\nkind = "sgd"\nlr = {RATE}\n'


class Reference:
    """The same model in double precision."""

    def __init__(self, sentences):
        self.data, self.values = sentences, {name: value.astype(np.float64) for name, value in weights().items()}

    def forward(self, samples):
        v = self.values
        means = np.stack([v["table"][self.data.of(i)].mean(0) for i in samples])
        logits = means @ v["w"].T + v["b"]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        labels = self.data.labels[samples]
        return means, shares, -np.log(shares[np.arange(len(samples)), labels])

    def gradients(self, samples):
        """Sums over the samples, and their losses."""
        means, shares, losses = self.forward(samples)
        shares[np.arange(len(samples)), self.data.labels[samples]] -= 1
        table = np.zeros_like(self.values["table"])
        for row, i in enumerate(samples):
            np.add.at(table, self.data.of(i), (shares[row] @ self.values["w"]) / self.data.lengths[i])
        return {"table": table, "w": shares.T @ means, "b": shares.sum(0)}, losses

    def update(self, window):
        """An update of several batches; returns its loss."""
        samples = [i for batch in window for i in batch]
        gradients, losses = self.gradients(samples)
        for name, gradient in gradients.items():
            self.values[name] -= RATE * gradient / len(samples)
        return losses.mean()

    def train(self, batches, epochs=1, accumulate=1):
        return [self.update(batches[at:at + accumulate]) for _ in range(epochs) for at in range(0, len(batches), accumulate)]


class Shapes(EndToEnd):
    def setUp(self):
        super().setUp()
        self.data = Sentences()
        self.model = sentence_model(self.folder / "m.onnx")

    def plan(self, *words, recipe=SHAPES + RECIPE, plan="plan.tplan"):
        return self.compile(self.model, "--recipe", self.write("r.toml", recipe), *words, plan=plan)

    def file(self, **more):
        return self.save("d.safetensors", **(self.data.columns() | more))

    def programs(self, plan):
        """Every program of the plan by name, with its sizes and dimensions."""
        entries = self.report(plan)["memory"]["entries"]
        return {name: program for entry in entries.values() for name, program in entry["programs"].items()}

    def bits(self, run):
        self.weights(run, "bits.safetensors")
        return (self.folder / "bits.safetensors").read_bytes()

    def losses(self, run="run"):
        return [line["loss"] for line in metrics(self.folder / run)[0]]

    def train(self, plan, *words, out="run", epochs=3):
        return self.succeed("trun", plan, "--data", self.file(), "--epochs", epochs, "--out", out, *words)

    def test_training_is_that_of_the_reference(self):
        plan = self.plan()
        self.train(plan, "--no-shuffle")
        expected = Reference(self.data).train(self.data.batches(), epochs=3)
        np.testing.assert_allclose(self.losses(), expected, rtol=3e-5)

    def test_what_is_left_of_each_shape_is_padded_or_left_out(self):
        plan = self.plan()
        done = self.train(plan, "--no-shuffle", epochs=1)
        left = SAMPLES - sum(map(len, self.data.batches()))
        self.assertGreater(left, 0)
        self.assertIn(f"the last {left} samples of an epoch fill no batch of their shape", done.err)
        self.train(plan, "--no-shuffle", "--set", "data.last=pad", out="all")
        batches = self.data.batches(pad=True)
        self.assertEqual(sorted(i for batch in batches for i in batch), list(range(SAMPLES)))
        np.testing.assert_allclose(self.losses("all"), Reference(self.data).train(batches, epochs=3), rtol=3e-5)

    def test_what_is_left_of_each_shape_fills_one_of_its_own(self):
        """The message says which shapes are missing. The losses are those of padded batches, in fewer computed rows."""
        message = self.refuse(1, ['data.last = "exact": the last samples of an epoch fill no batch: '], "trun", self.plan(), "--data", self.file(),
                              "--out", "no", "--set", "data.last=exact").err
        words = shlex.split(message.split("compile with tcc ")[1].split("\n")[0])
        plan = self.plan(*words)
        batches = self.data.batches(pad=True)
        expected = Reference(self.data).train(batches, epochs=2)
        for last in ("exact", "pad"):
            self.train(plan, "--no-shuffle", "--set", f"data.last={last}", out=last, epochs=2)
            np.testing.assert_allclose(self.losses(last), expected, rtol=3e-5)
        self.assertEqual(self.losses("exact"), self.losses("pad"))
        self.succeed("trun", plan, "--data", self.file(), "--steps", len(batches) + 3, "--out", "part", "--no-shuffle", "--set", "data.last=exact")
        self.succeed("trun", plan, "--data", self.file(), "--epochs", 2, "--resume", "part", "--no-shuffle", "--set", "data.last=exact")
        self.assertEqual(self.bits("part"), self.bits("exact"))

    def test_every_sample_is_seen_once_an_epoch_in_any_order(self):
        """With a rate of 0 the losses of an epoch add up to those of all samples, whatever bucket each is in."""
        plan = self.plan("--set", "optimizer.lr=0")
        expected = Reference(self.data).forward(np.arange(SAMPLES))[2].sum()
        orders = set()
        for seed in range(4):
            self.train(plan, "--seed", seed, "--set", "data.last=pad", out=f"run{seed}", epochs=1)
            lines = metrics(self.folder / f"run{seed}")[0]
            counts = [round(line["samples_per_s"] * line["seconds"]) for line in lines]
            self.assertEqual(sum(counts), SAMPLES)
            self.assertAlmostEqual(sum(n * line["loss"] for n, line in zip(counts, lines)), expected, delta=1e-4 * expected)
            orders.add(tuple(line["loss"] for line in lines))
        self.assertEqual(len(orders), 4)

    def test_windows_cross_shapes(self):
        plan = self.plan("--set", "train.accumulate=3", "--set", "train.clip_norm=1000")
        self.train(plan, "--no-shuffle")
        batches = self.data.batches()
        kinds = {tuple(len(batch) for batch in batches[at:at + 3]) for at in range(0, len(batches), 3)}
        self.assertTrue(any(len(set(kind)) > 1 for kind in kinds), kinds)
        np.testing.assert_allclose(self.losses(), Reference(self.data).train(batches, epochs=3, accumulate=3), rtol=3e-5)
        updates = [name for name in self.programs(plan) if name.startswith(("accumulate", "update"))]
        self.assertEqual(updates, ["accumulate_first", "accumulate_next", "update", "accumulate_first@1", "accumulate_next@1",
                                   "accumulate_first@2", "accumulate_next@2"])

    def test_bits_do_not_depend_on_threads_that_read_or_on_a_resume(self):
        plan = self.plan("--set", "train.ema.decay=0.9", "--set", "train.accumulate=2")
        self.train(plan)
        whole = self.bits("run")
        for workers in (1, 3):
            self.train(plan, "--set", f"data.workers={workers}", out=f"by{workers}")
            self.assertEqual(self.losses(f"by{workers}"), self.losses())
            self.assertEqual(self.bits(f"by{workers}"), whole)
        for steps in (5, 23):
            self.succeed("trun", plan, "--data", self.file(), "--steps", steps, "--out", f"part{steps}")
            self.succeed("trun", plan, "--data", self.file(), "--epochs", 3, "--resume", f"part{steps}")
            self.assertEqual(self.losses(f"part{steps}"), self.losses())
            self.assertEqual(self.bits(f"part{steps}"), whole)

    def test_ranks_take_the_same_shape(self):
        plan = self.plan("--set", "parallel.mode=ddp")
        for ranks in (2, 4):
            expected = Reference(self.data).train(self.data.batches(ranks=ranks), epochs=3)
            self.assertGreater(len(expected), 6)
            self.train(plan, "--no-shuffle", "--nproc", ranks, out=f"ddp{ranks}")
            np.testing.assert_allclose(self.losses(f"ddp{ranks}"), expected, rtol=3e-5)
            for mode in ("grad_op", "full"):
                sharded = self.plan("--set", f"parallel.mode={mode}", "--set", f"parallel.ranks={ranks}", plan=f"{mode}{ranks}.tplan")
                self.train(sharded, "--no-shuffle", "--nproc", ranks, out=f"{mode}{ranks}")
                np.testing.assert_allclose(self.losses(f"{mode}{ranks}"), expected, rtol=3e-5)
            virtual = self.plan("--set", f"train.virtual_ranks={ranks}", "--set", "parallel.mode=ddp", plan=f"virtual{ranks}.tplan")
            runs = [f"virtual{ranks}on{processes}" for processes in (1, 2, 4) if processes <= ranks]
            for run in runs:
                self.train(virtual, "--no-shuffle", "--nproc", run[-1], out=run)
                np.testing.assert_allclose(self.losses(run), expected, rtol=3e-5)
            self.assertEqual({self.bits(run) for run in runs}, {self.bits(runs[0])})

    def test_other_precisions(self):
        for precision in ("bf16", "f16"):
            plan = self.plan("--precision", precision, plan=f"{precision}.tplan")
            self.train(plan, "--no-shuffle", out=precision)
            expected = Reference(self.data).train(self.data.batches(), epochs=3)
            np.testing.assert_allclose(self.losses(precision), expected, rtol=0.05, atol=0.02)

    def test_evaluation_is_that_of_all_samples(self):
        plan = self.plan("--set", "evaluate.dims.batch=16")
        self.succeed("trun", plan, "--data", self.file(), "--eval-data", self.file(), "--eval-every", "epoch", "--epochs", 2, "--no-shuffle",
                     "--out", "run")
        reference = Reference(self.data)
        reference.train(self.data.batches(), epochs=2)
        _, shares, losses = reference.forward(np.arange(SAMPLES))
        result = metrics(self.folder / "run")[1][-1]
        self.assertAlmostEqual(result["eval_loss"], losses.mean(), delta=1e-4)
        self.assertAlmostEqual(result["eval_accuracy"], (shares.argmax(1) == self.data.labels).mean(), delta=1e-9)
        alone = json.loads(self.succeed("trun", "eval", plan, "--from", "run", "--data", self.file()).out)
        self.assertEqual(alone["eval_loss"], result["eval_loss"])
        self.assertEqual(alone["samples"], SAMPLES)
        programs = self.programs(plan)
        self.assertEqual([programs[name]["batch"] for name in ("step", "step@1", "evaluate", "evaluate@1", "evaluate@2")], [8, 4, 16, 16, 16])

    def test_evaluation_in_one_shape_of_its_own(self):
        """The longest shape for all samples, which are padded to it."""
        plan = self.plan("--set", "evaluate.dims.batch=4", "--set", "evaluate.dims.seq=32")
        self.assertEqual([name for name in self.programs(plan) if name.startswith("evaluate")], ["evaluate"])
        result = json.loads(self.succeed("trun", "eval", plan, "--data", self.file()).out)
        expected = Reference(self.data).forward(np.arange(SAMPLES))[2].mean()
        self.assertAlmostEqual(result["eval_loss"], expected, delta=1e-4)

    def test_predictions_of_all_lengths(self):
        """Each sample takes the smallest shape that holds it, the last ones a smaller batch; results are in the order of the samples."""
        nodes = [helper.make_node("Gather", ["table", "ids"], ["words"], "look-up"), helper.make_node("MatMul", ["words", "w"], ["scores"], "scores"),
                 helper.make_node("ReduceMax", ["scores"], ["best"], "best", axes=[1], keepdims=0)]
        inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])]
        outputs = [helper.make_tensor_value_info("words", TensorProto.FLOAT, ["batch", "seq", WIDTH]),
                   helper.make_tensor_value_info("best", TensorProto.FLOAT, ["batch", CLASSES])]
        table, w = models.random(1, WORDS, WIDTH), models.random(2, WIDTH, CLASSES)
        graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(table, "table"), numpy_helper.from_array(w, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / "words.onnx")
        buckets = "[" + ", ".join(f"{{ batch = {b}, seq = {s} }}" for b, s in (*BUCKETS, (1, 8), (3, 32))) + "]"
        plan = self.compile(self.folder / "words.onnx", "--entry", "predict", "--set", f"model.buckets={buckets}", "--set", "data.pad.ids=0")
        given = self.save("in.safetensors", **{name: self.data.columns()[name] for name in ("ids", "ids.offsets")})
        self.succeed("trun", "predict", plan, "--inputs", given, "--outputs", "out.safetensors")
        found = safetensors.numpy.load_file(self.folder / "out.safetensors")
        self.assertEqual(found["words"].shape, (SAMPLES, 32, WIDTH))
        for i in range(SAMPLES):
            own, length = self.data.of(i), self.data.lengths[i]
            np.testing.assert_array_equal(found["words"][i, :length], table[own])
            self.assertFalse(found["words"][i, length:].any(), "zeros follow the end of a sample")
            shape = next(longest for _, longest in BUCKETS if length <= longest)
            scores = table[np.concatenate([own, np.zeros(shape - length, np.int64)])] @ w
            np.testing.assert_allclose(found["best"][i], scores.max(0), rtol=1e-4, atol=1e-6)

    def test_predictions_one_by_one(self):
        plan = self.plan("--set", "predict.dims.batch=1")
        reference = Reference(self.data)
        for longest, name in ((8, "predict"), (16, "predict@1"), (32, "predict@2")):
            chosen = [i for i in range(SAMPLES) if self.data.lengths[i] <= longest][:9]
            rows = np.concatenate([self.data.of(i) for i in chosen])
            offsets = np.concatenate([[0], np.cumsum(self.data.lengths[chosen])])
            given = self.save("in.safetensors", **{"ids": rows, "ids.offsets": offsets, "mask": np.ones(len(rows), np.float32),
                                                   "mask.offsets": offsets})
            self.succeed("trun", "predict", plan, "--inputs", given, "--outputs", "out.safetensors")
            logits = safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"]
            means, _, _ = reference.forward(chosen)
            np.testing.assert_allclose(logits, means @ reference.values["w"].T + reference.values["b"], rtol=1e-4, atol=1e-5)

    def test_lengths_of_padded_columns(self):
        """Arrays that are padded to one length become ragged by their mask, or by a column of lengths."""
        plan = self.plan()
        self.train(plan, "--no-shuffle", epochs=1)
        padded = self.data.padded(range(SAMPLES), 40)
        for name, key in (("mask", "mask"), ("length", "length")):
            data = self.save(f"{name}.safetensors", **(padded | {"length": self.data.lengths}))
            self.succeed("trun", plan, "--data", data, "--epochs", 1, "--no-shuffle", "--out", name, "--set", f"data.lengths={key}")
            self.assertEqual(self.losses(name), self.losses())

    def test_a_mask_trims_no_column_that_is_only_as_wide(self):
        """Features as wide as the mask, or wider than the longest sample, stay whole."""
        nodes = [helper.make_node("ReduceMean", ["frames", "rows"], ["mean"], "mean", keepdims=1),
                 helper.make_node("Add", ["features", "mean"], ["shifted"], "shifted"),
                 helper.make_node("Gemm", ["shifted", "w"], ["logits"], "head", transB=1)]
        model = models.save(self.folder / "wide.onnx", nodes, {"frames": ["batch", "seq"], "features": ["batch", 12]}, {"logits": ["batch", 3]},
                            {"w": models.random(1, 3, 12), "rows": np.array([1])}, opset=18)
        rng = np.random.default_rng(8)
        rows = {"frames": np.zeros((8, 12), np.float32), "features": rng.standard_normal((8, 12)).astype(np.float32),
                "labels": rng.integers(0, 3, 8), "n": rng.integers(2, 5, 8)}
        rows["mask"] = (np.arange(12) < rows["n"][:, None]).astype(np.float32)
        plan = self.compile(model, "--recipe", self.write("wide.toml", RECIPE), "--dim", "batch=8", "--dim", "seq=6,12", plan="wide.tplan")
        logits = rows["features"] @ models.random(1, 3, 12).T
        expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(8), rows["labels"]])
        for key in ("n", "mask"):
            self.succeed("trun", plan, "--data", self.save("wide.safetensors", **rows), "--out", f"wide-{key}", "--set", f"data.lengths={key}")
            self.assertAlmostEqual(self.losses(f"wide-{key}")[0], expected, delta=1e-5)
        self.refuse(1, ['data.lengths = "n": its longest sample has 99 rows, and no column has as many'], "trun", plan, "--data",
                    self.save("long.safetensors", **(rows | {"n": np.full(8, 99)})), "--out", "no", "--set", "data.lengths=n")

    def test_lists_of_tables(self):
        """Lists of different lengths in JSON lines and Parquet train as arrays with offsets do."""
        plan = self.plan()
        self.train(plan, "--no-shuffle", epochs=1)
        rows = [{"ids": self.data.of(i).tolist(), "mask": [1.0] * int(self.data.lengths[i]), "labels": int(self.data.labels[i])}
                for i in range(SAMPLES)]
        lines = self.write("d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        table = pyarrow.table({"ids": [row["ids"] for row in rows], "labels": [row["labels"] for row in rows],
                               "mask": pyarrow.array([row["mask"] for row in rows], pyarrow.list_(pyarrow.float32()))})
        pyarrow.parquet.write_table(table, self.folder / "d.parquet")
        for data in (lines, self.folder / "d.parquet"):
            self.succeed("trun", plan, "--data", data, "--epochs", 1, "--no-shuffle", "--out", data.suffix[1:])
            self.assertEqual(self.losses(data.suffix[1:]), self.losses())
        rows[3]["ids"] = None
        gap = self.write("gap.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.refuse(1, ["column 'ids': lists of different lengths, and a row or element without a value"], "trun", plan, "--data", gap,
                    "--out", "no")

    def test_one_shape_pads_only_where_it_is_told(self):
        """A row that is too short by mistake must not become zeros."""
        plan = self.plan("--dim", "batch=4", "--dim", "seq=32", recipe=RECIPE)
        self.refuse(1, ["column 'ids': sample 0 has 2 rows, the model's input 'ids' takes 32", "--set data.pad.ids=0", "--dim NAME=N,M"],
                    "trun", plan, "--data", self.file(), "--out", "no")
        self.train(plan, "--no-shuffle", "--set", "data.pad={ids=0, mask=0}", epochs=1)
        batches = [list(range(at, at + 4)) for at in range(0, SAMPLES - 3, 4)]
        np.testing.assert_allclose(self.losses(), Reference(self.data).train(batches), rtol=3e-5)

    def test_what_follows_a_short_sample(self):
        """data.pad: here padding counts, since the mask is padded with 1."""
        plan = self.plan("--set", "optimizer.lr=0")
        self.train(plan, "--no-shuffle", "--set", "data.pad={ids=3, mask=1}", epochs=1)
        batch = self.data.batches()[0]
        _, seq = next(shape for shape in BUCKETS if shape[1] >= self.data.lengths[batch].max())
        v = Reference(self.data).values
        words = [np.concatenate([self.data.of(i), np.full(seq - self.data.lengths[i], 3)]) for i in batch]
        logits = np.stack([v["table"][one].mean(0) for one in words]) @ v["w"].T + v["b"]
        expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(batch)), self.data.labels[batch]])
        self.assertAlmostEqual(self.losses()[0], expected, delta=1e-4)

    def test_an_own_loop(self):
        """Tensors of any length go to the smallest shape that holds them."""
        plan = tcc.Plan(self.plan(recipe=SHAPES + RECIPE))
        batches, reference = self.data.batches(pad=True), Reference(self.data)
        trainer = tcc.Trainer(plan)
        for batch in batches:
            longest = int(self.data.lengths[batch].max())
            loss = trainer.step(**self.data.padded(batch, longest)).loss
            self.assertAlmostEqual(loss, reference.update([batch]), delta=1e-4)
        expected = reference.forward(np.arange(6))
        given = self.data.padded(range(6), int(self.data.lengths[:6].max()))
        self.assertAlmostEqual(trainer.evaluate(**given)["eval_loss"], expected[2].mean(), delta=1e-4)
        logits = trainer.predict(ids=given["ids"], mask=given["mask"])["logits"]
        np.testing.assert_allclose(logits, expected[0] @ reference.values["w"].T + reference.values["b"], rtol=1e-3, atol=1e-4)
        wrong = self.data.padded([0, 1], 12) | {"mask": np.ones((2, 11), np.float32)}
        with self.assertRaisesRegex(tcc.Error, r"'ids' has 12 rows and 'mask' 11 along the model's dimension seq"):
            trainer.step(**wrong)
        with self.assertRaisesRegex(tcc.Error, r"'ids' is i64\[2x33\].*the model's input is i64\[2x32\].*axis 1 may be shorter"):
            trainer.step(**self.data.padded([0, 1], 33))

    def test_memory_is_that_of_the_largest_shape(self):
        whole = self.report(self.plan())["memory"]
        one = [self.report(self.plan("--dim", f"batch={batch}", "--dim", f"seq={seq}", recipe=RECIPE, plan=f"{seq}.tplan"))["memory"]
               for batch, seq in BUCKETS]
        self.assertEqual({memory["resident_bytes"] for memory in one}, {whole["resident_bytes"]})
        self.assertEqual(whole["arena_bytes"], max(memory["arena_bytes"] for memory in one))
        self.assertEqual(whole["peak_bytes"], max(memory["peak_bytes"] for memory in one))

    def test_kernels_of_shapes_share_their_code(self):
        def shared(*words):
            self.plan("--target", "cpu:v3", "--no-cache", "--timings", self.folder / "times.json", *words)
            return json.loads((self.folder / "times.json").read_text())["profile"]["counts"].get("kernels with another one's body", 0)

        self.assertGreater(shared(), 5)
        self.assertEqual(shared("--dim", "seq=8", "--dim", "batch=4"), 0)

    def test_a_list_makes_a_shape_of_each_value(self):
        for words, recipe in ((("--dim", "batch=4", "--dim", "seq=8,16,32"), RECIPE), ((), "[model]\ndims = { batch = 4, seq = [8, 16, 32] }\n" + RECIPE)):
            programs = self.programs(self.plan(*words, recipe=recipe))
            shapes = [program["dims"] for name, program in programs.items() if name.startswith("step")]
            self.assertEqual(shapes, [{"batch": 4, "seq": seq} for seq in (8, 16, 32)])
        quotient = '[model]\ndims = { batch = "64/seq", seq = [8, 16, 100] }\n' + RECIPE
        programs = self.programs(self.plan(recipe=quotient))
        self.assertEqual([programs[name]["batch"] for name in ("step", "step@1", "step@2")], [8, 4, 1])
        self.assertEqual(self.programs(self.plan("--dim", "batch=3", recipe=quotient))["step@1"]["batch"], 3)
        one = self.programs(self.plan("--dim", "seq=8", "--dim", "batch=4"))
        self.assertEqual(list(one), ["step", "evaluate", "predict"])

    def test_the_largest_batch_of_each_shape(self):
        plan = self.folder / "fit.tplan"
        done = self.succeed("tcc", self.model, "--recipe", self.write("r.toml", RECIPE), "--dim", "seq=8,16,32", "--entry", "train", "--fit",
                            "batch", "--memory-budget", "64KiB", "-o", plan)
        fitted = dict(re.findall(r"m.onnx: (seq = \d+): a batch of (\d+) fits into 64.0 KiB", done.err + done.out))
        self.assertEqual(list(fitted), ["seq = 8", "seq = 16", "seq = 32"])
        programs = self.programs(plan)
        self.assertEqual([programs[name]["dims"]["batch"] for name in ("step", "step@1", "step@2")], [int(n) for n in fitted.values()])
        for seq, batch in zip((8, 16, 32), fitted.values()):
            for more, status in ((0, 0), (1, 3)):
                result = self.command("tcc", self.model, "--recipe", "r.toml", "--dim", f"seq={seq}", "--dim", f"batch={int(batch) + more}",
                                      "--entry", "train", "--memory-budget", "64KiB", "-o", "one.tplan")
                self.assertEqual(result.status, status, str(result))

    def test_a_plan_of_other_shapes_does_not_go_on_within_an_epoch(self):
        plan = self.plan()
        self.succeed("trun", plan, "--data", self.file(), "--steps", 3, "--out", "run")
        other = self.plan("--dim", "batch=4", "--dim", "seq=8,32", recipe=RECIPE, plan="other.tplan")
        self.refuse(1, ["done 3 batches of epoch 1 in other shapes"], "trun", other, "--data", self.file(), "--steps", 6, "--resume", "run")

    def test_every_phase_follows_from_the_dump_before_it(self):
        phases = f"""[[phase]]
name = "a"
parameters = ["table"]
loss = {{ kind = "cross_entropy", of = "logits", target = "labels" }}
[[phase]]
name = "b"
parameters = ["w", "b"]
loss = {{ kind = "cross_entropy", of = "logits", target = "labels" }}
"""
        for name, recipe in (("one", RECIPE), ("phases", phases)):
            self.plan("--dump-phases-to", self.folder / name, "--set", "predict.dims.batch=1", recipe=SHAPES + recipe)
            checked, wrong = rerun(self.folder / name)
            self.assertEqual(wrong, [])
            self.assertIn("merge", checked)
        steps = [name for name in self.programs("plan.tplan") if name.startswith("step")]
        self.assertEqual(steps, ["step.a", "step.b", "step.a@1", "step.b@1", "step.a@2", "step.b@2"])

    def test_mistakes(self):
        self.refuse(1, ["for batch = 8, seq = 8", "no input has a dimension called sequence"], "tcc", self.model, "--recipe",
                    self.write("r.toml", SHAPES + "[evaluate]\ndims = { sequence = 8 }\n" + RECIPE), "-o", "x.tplan")
        self.refuse(2, ["--dim batch=…, --dim seq=…: only one dimension", "model.buckets"], "tcc", self.model, "--dim", "batch=2,4", "--dim",
                    "seq=8,16", "--recipe", self.write("one.toml", RECIPE), "-o", "x.tplan")
        self.refuse(1, ['model.dims: batch: "64:seq" is no value of a dimension'], "tcc", self.model, "--recipe",
                    self.write("colon.toml", '[model]\ndims = { batch = "64:seq" }\n' + RECIPE), "-o", "x.tplan")
        self.refuse(1, ['colon.toml:2:1', 'batch = "64/seq": seq has no value'], "tcc", self.model, "--recipe",
                    self.write("colon.toml", '[model]\ndims = { batch = "64/seq" }\n' + RECIPE), "-o", "x.tplan")
        self.refuse(1, ['model.dims: batch = "64/batch" divides by itself: name another dimension'], "tcc", self.model, "--recipe",
                    self.write("colon.toml", '[model]\ndims = { batch = "64/batch" }\n' + RECIPE), "-o", "x.tplan")
        self.refuse(1, ["65 shapes of training: a plan has at most 64"], "tcc", self.model, "--recipe", self.write("r.toml", RECIPE), "--dim",
                    "batch=2", "--dim", "seq=" + ",".join(map(str, range(2, 67))), "-o", "x.tplan")
        self.refuse(1, ['evaluate.dims: with parallel.mode "full" evaluation gathers', "--set parallel.mode=none"], "tcc", self.model, "--recipe",
                    self.write("r.toml", SHAPES + RECIPE), "--set", "evaluate.dims.batch=2", "--set", "parallel.mode=full", "--set",
                    "parallel.ranks=2", "-o", "x.tplan")
        self.refuse(1, ["empty.toml:2:1: model.buckets: the list is empty"], "tcc", self.model, "--recipe",
                    self.write("empty.toml", "[model]\nbuckets = []\n" + RECIPE), "-o", "x.tplan")
        for words, pattern in ((("batch=64/seq", "seq=8,16"), 'batch=64/seq: "64/seq" is no extent.*a quotient is a value of model.dims'),
                               (("batch=4", "seq=8,"), 'seq=8,: "" is no extent; give integers, as in --dim seq=128,256'),
                               (("batch=4", "seq=8", "seq=16"), "--dim seq: given twice; --dim seq=N,M makes a shape for each value")):
            self.refuse(2, [pattern], "tcc", self.model, "--recipe", self.write("r.toml", RECIPE), *(word for one in words for word in ("--dim", one)),
                        "-o", "x.tplan")
        plan = self.plan("--dim", "batch=4", "--dim", "seq=8,16", recipe=RECIPE)
        data = self.file()
        self.refuse(1, ["column 'ids': sample 1 has 32 rows, the model's input 'ids' takes 16", "--set data.too_long=cut"], "trun", plan,
                    "--data", data, "--out", "no")
        self.succeed("trun", plan, "--data", data, "--out", "cut", "--set", "data.too_long=cut")
        wrong = self.data.words.copy()
        longest = int(np.argmax(self.data.lengths))
        wrong[self.data.offsets[longest]] = WORDS  # no such word, in a sample that is cut
        self.refuse(1, [f"column 'ids', sample {longest}", f"value {WORDS}"], "trun", plan, "--data", self.file(ids=wrong), "--out", "wrong", "--set",
                    "data.too_long=cut", "--set", "data.last=pad")
        falls = self.data.offsets.copy()
        falls[3] = falls[2] - 1
        for offsets, pattern in ((falls, f"'ids.offsets' falls from {falls[2]} to {falls[3]} at sample 2"),
                                 (self.data.offsets.astype(np.float32), "'ids.offsets' must be a list of integers")):
            self.refuse(1, [pattern], "trun", plan, "--data", self.file(**{"ids.offsets": offsets}), "--out", "no")
        self.refuse(1, ['data.lengths = "mask": the samples of this column differ in length already'], "trun", plan, "--data", self.file(),
                    "--out", "no", "--set", "data.lengths=mask")
        self.refuse(1, ["column 'ids.offsets' ends with 7", "offsets begin with 0"], "trun", plan, "--data",
                    self.save("bad.safetensors", **(self.data.columns() | {"ids.offsets": np.array([0, 3, 7])})), "--out", "no")
        self.refuse(2, ["data.sampler", "batches of several shapes"], "trun", plan, "--data", data, "--out", "no", "--set",
                    "data.sampler=balanced", "--set", "data.weights=labels", "--set", "data.too_long=cut")
        text = self.write("d.bin", np.arange(4000, dtype=np.uint16).tobytes())
        self.refuse(2, ["windows of one length", "--dim NAME=N", "ragged column"], "trun", plan, "--data", text, "--out", "no", "--set",
                    "data.tokens=uint16")
        self.refuse(1, ["data.lengths = \"masks\": no such column"], "trun", plan, "--data", data, "--out", "no", "--set", "data.lengths=masks")
        for settings, words in (({"data.pad.idss": 1}, "data.pad.idss: .* has no such column; .*'?ids"),
                                ({"data.pad.ids": 99}, f"data.pad.ids = 99: the value is no index of table's {WORDS} rows")):
            self.refuse(2 if "idss" in str(settings) else 1, [words], "trun", plan, "--data", data, "--out", "no", "--set", "data.too_long=cut",
                        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")))
        short = self.data.columns()
        short["mask.offsets"] = short["mask.offsets"].copy()
        short["mask.offsets"][1] += 1
        lengths = f"sample 0 has {self.data.lengths[0]} rows in column 'ids' and {self.data.lengths[0] + 1} in column 'mask'.*dimension seq"
        self.refuse(1, [lengths], "trun", plan, "--data", self.save("short.safetensors", **short), "--out", "no", "--set", "data.too_long=cut")
        few = Sentences(samples=5, longest=8)
        self.refuse(1, ["too few samples: 5 fill no batch of any shape"], "trun", self.plan(plan="many.tplan"), "--data",
                    self.save("few.safetensors", **few.columns()), "--out", "no")
        self.refuse(2, ["--fit batch finds batch, and --dim batch=. gives it"], "tcc", self.model, "--recipe", self.write("r.toml", RECIPE),
                    "--dim", "batch=4", "--dim", "seq=8", "--fit", "batch", "--memory-budget", "64KiB", "-o", "x.tplan")
        self.refuse(1, [r"buckets.toml:2:1: .*no input has a dimension called length"], "tcc", self.model, "--recipe",
                    self.write("buckets.toml", "[model]\nbuckets = [{ batch = 2, length = 8 }, { batch = 4, length = 16 }]\n" + RECIPE), "-o", "x.tplan")
        self.refuse(1, ["data.pad: column 'ids' is i64, which does not hold 0.5"], "trun", plan, "--data", data, "--out", "no", "--set",
                    "data.pad.ids=0.5")

    def test_mistakes_in_python(self):
        recipe = {"model.dims": {"batch": 4, "seq": range(8, 33, 8)}, "loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels",
                  "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        plan = tcc.compile(self.model, recipe)
        self.assertEqual([plan.inputs(entry)[0].shape for entry in ("step", "step@1", "step@2", "step@3")], [(4, 8), (4, 16), (4, 24), (4, 32)])
        trainer, rows = tcc.Trainer(plan), self.data.columns()
        for pattern, data in (("column 'ids' is i64", {name: value for name, value in rows.items() if name != "ids.offsets"}),
                              ("'labels' has 3", rows | {"labels": self.data.labels[:3]}),
                              ("column 'ids.offsets' begins with 1", rows | {"ids.offsets": self.data.offsets + 1}),
                              ("no such file", self.folder / "absent.npz")):
            with self.assertRaisesRegex(tcc.DataError, pattern):
                trainer.fit(data)


class Kinds(EndToEnd):
    """Models of other kinds: each batch has the loss that a plan of its shape alone, or of the largest, gives it."""

    def test_images_of_two_sizes(self):
        """Tensors choose the shape that holds them in both axes; evaluation has another batch, prediction one image."""
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
                 helper.make_node("Relu", ["c"], ["r"], "relu"),
                 helper.make_node("ReduceMean", ["r", "axes"], ["logits"], "mean", keepdims=0)]
        model = models.save(self.folder / "m.onnx", nodes, {"x": ["n", 3, "h", "w"]}, {"logits": ["n", 5]},
                            {"w": models.random(1, 5, 3, 3, 3), "b": models.random(2, 5), "axes": np.array([2, 3])}, opset=18)
        sizes = [{"n": 4, "h": 12, "w": 12}, {"n": 2, "h": 20, "w": 16}]
        common = {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        both = tcc.Trainer(tcc.compile(str(model), common | {"model.buckets": sizes, "evaluate.dims": {"n": 3}, "predict.dims": {"n": 1}}))
        alone = [tcc.Trainer(tcc.compile(str(model), common | {"model.dims": size})) for size in sizes]
        rng = np.random.default_rng(4)
        for turn in (0, 1, 1, 0, 1):
            size = sizes[turn]
            x = rng.standard_normal((size["n"], 3, size["h"], size["w"])).astype(np.float32)
            labels = rng.integers(0, 5, size["n"])
            alone[turn].set_parameters(both.get_parameters())
            self.assertEqual(both.step(x=x, labels=labels).loss, alone[turn].step(x=x, labels=labels).loss)
            for name, value in alone[turn].get_parameters().items():
                np.testing.assert_array_equal(both.get_parameters()[name], value)
        x = rng.standard_normal((7, 3, 20, 16)).astype(np.float32)
        labels = rng.integers(0, 5, 7)
        self.assertAlmostEqual(both.evaluate(x=x, labels=labels)["eval_loss"], alone[1].evaluate(x=x, labels=labels)["eval_loss"], places=6)
        np.testing.assert_allclose(both.predict(x=x)["logits"], alone[1].predict(x=x)["logits"], rtol=1e-6, atol=1e-7)
        x, labels = x[:2], labels[:2]
        alone[1].set_parameters(both.get_parameters())
        between = np.ascontiguousarray(x[:, :, :11, :14])
        x[:, :, 11:], x[:, :, :, 14:] = 0, 0
        self.assertEqual(both.step(x=between, labels=labels).loss, alone[1].step(x=x, labels=labels).loss)
        with self.assertRaisesRegex(tcc.Error, r"'x' is f32\[2x3x12x17\], the model's input is f32\[2x3x20x16\].* axes 2, 3 may be shorter"):
            both.step(x=np.zeros((2, 3, 12, 17), np.float32), labels=np.zeros(2, np.int64))

    def test_speech_with_lengths(self):
        """CTC over frames of recordings; the numbers of frames and of labels are columns."""
        nodes = [helper.make_node("Transpose", ["x"], ["frames"], "frames", perm=[1, 0, 2]),
                 helper.make_node("MatMul", ["frames", "w"], ["scores"], "scores"),
                 helper.make_node("LogSoftmax", ["scores"], ["log_probs"], "log_probs", axis=2)]
        model = models.save(self.folder / "m.onnx", nodes, {"x": ["n", "t", 6]}, {"log_probs": ["t", "n", 7]}, {"w": models.random(1, 6, 7) * 3})
        recipe = ('[loss]\nkind = "ctc"\nof = "log_probs"\ntarget = "labels"\ninput_lengths = "frames_of"\ntarget_lengths = "labels_of"\n'
                  'max_target_length = 4\n[optimizer]\nkind = "sgd"\nlr = 0.05\n')
        rng = np.random.default_rng(2)
        frames, labels = rng.integers(6, 41, 60), rng.integers(1, 4, 60)
        x = [rng.standard_normal((n, 6)).astype(np.float32) for n in frames]
        words = [rng.integers(1, 7, n) for n in labels]
        data = self.save("d.safetensors", **{
            "x": np.concatenate(x), "x.offsets": np.concatenate([[0], np.cumsum(frames)]), "labels": np.concatenate(words),
            "labels.offsets": np.concatenate([[0], np.cumsum(labels)]), "frames_of": frames, "labels_of": labels})
        plan = self.compile(model, "--recipe", self.write("r.toml", recipe + "[data.pad]\nlabels = 0\n"), "--dim", "n=4", "--dim", "t=10,20,40")
        self.succeed("trun", plan, "--data", data, "--no-shuffle", "--epochs", 2, "--out", "run")
        one = self.compile(model, "--recipe", "r.toml", "--dim", "n=4", "--dim", "t=40", plan="one.tplan")
        trainer, open_, batches = tcc.Trainer(tcc.Plan(one)), {10: [], 20: [], 40: []}, []
        for i, length in enumerate(frames):
            shape = open_[next(t for t in open_ if length <= t)]
            shape.append(i)
            if len(shape) == 4:
                batches.append(list(shape))
                shape.clear()
        expected = []
        for batch in batches * 2:
            given = {"x": np.zeros((4, 40, 6), np.float32), "labels": np.zeros((4, 4), np.int64), "frames_of": frames[batch], "labels_of": labels[batch]}
            for row, i in enumerate(batch):
                given["x"][row, :frames[i]], given["labels"][row, :labels[i]] = x[i], words[i]
            expected.append(trainer.step(**given).loss)
        self.assertEqual(len(expected), len(metrics(self.folder / "run")[0]))
        np.testing.assert_allclose([line["loss"] for line in metrics(self.folder / "run")[0]], expected, rtol=1e-5)

    def test_graphs_of_three_sizes(self):
        """One graph a step, its adjacency matrix [nodes, nodes]: no axis of samples, and two axes that differ."""
        nodes = [helper.make_node("MatMul", ["adjacency", "x"], ["near"], "near"),
                 helper.make_node("MatMul", ["near", "w"], ["h"], "weigh"),
                 helper.make_node("Tanh", ["h"], ["a"], "tanh"),
                 helper.make_node("Sub", ["a", "y"], ["d"], "distance"),
                 helper.make_node("Mul", ["d", "d"], ["s"], "square"),
                 helper.make_node("ReduceMean", ["s"], ["loss"], "mean", keepdims=0)]
        model = models.save(self.folder / "m.onnx", nodes, {"x": ["nodes", 4], "adjacency": ["nodes", "nodes"], "y": ["nodes", 3]}, {"loss": []},
                            {"w": models.random(1, 4, 3)})
        common = {"loss.output": "loss", "optimizer.kind": "adamw", "optimizer.lr": 0.01, "data.batch_axis": {"x": -1, "adjacency": -1, "y": -1}}
        trainer = tcc.Trainer(tcc.compile(str(model), common | {"model.dims": {"nodes": [5, 9, 14]}}))
        w, first, second, rng = models.random(1, 4, 3).astype(float), 0.0, 0.0, np.random.default_rng(3)
        for update, n in enumerate((9, 5, 14, 14, 5, 9), 1):
            x, y = rng.standard_normal((n, 4)).astype(np.float32), rng.standard_normal((n, 3)).astype(np.float32)
            adjacency = (rng.random((n, n)) < 0.4).astype(np.float32)
            near = (adjacency @ x).astype(float)
            a = np.tanh(near @ w)
            self.assertAlmostEqual(trainer.step(x=x, adjacency=adjacency, y=y).loss, ((a - y) ** 2).mean(), delta=1e-5)
            gradient = near.T @ (2 * (a - y) / a.size * (1 - a * a))
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient ** 2
            w = w * (1 - 0.01 * 0.01) - 0.01 * (first / (1 - 0.9 ** update)) / (np.sqrt(second / (1 - 0.999 ** update)) + 1e-8)


class Damaged(EndToEnd):
    def test_a_damaged_sample_is_replaced_by_one_that_fits(self):
        data = Sentences()
        rows = data.columns()
        rows["ids"] = rows["ids"].copy()
        short = int(np.argmin(data.lengths))
        rows["ids"][data.offsets[short]] = WORDS  # no such word
        plan = self.compile(sentence_model(self.folder / "m.onnx"), "--recipe", self.write("r.toml", SHAPES + RECIPE))
        path = self.save("d.safetensors", **rows)
        self.refuse(1, [f"column 'ids', sample {short}", "data.max_bad"], "trun", plan, "--data", path, "--out", "no", "--set",
                    "data.last=pad")
        runs = []
        for workers in (0, 2):
            self.succeed("trun", plan, "--data", path, "--out", f"run{workers}", "--set", "data.last=pad", "--set",
                         "data.max_bad=1", "--set", f"data.workers={workers}")
            runs.append([line["loss"] for line in metrics(self.folder / f"run{workers}")[0]])
        self.assertEqual(*runs)


class Page(EndToEnd):
    def test_the_page_runs(self):
        """Its recipe, data, commands and loop, in the order in which a reader needs them. torch_modules.py exports its model."""
        text = (ROOT / "docs/guide/shapes.md").read_text()
        (recipe, _), (commands, _), (_, data, _, loop) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "sh", "python"))
        sentence_model(self.folder / "sentences.onnx")
        self.write(recipe.split("\n")[0].removeprefix("# "), recipe)
        done = subprocess.run([sys.executable, "-c", data + loop], cwd=self.folder, check=True, capture_output=True, text=True,
                              env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
        shown = re.findall(r"^\((\d+), (\d+)\) ([\d.]+)$", done.stdout, re.M)
        self.assertEqual([int(rows) for rows, _, _ in shown], [8, 4], done.stdout)
        self.assertTrue(all(0 < float(loss) < 3 for _, _, loss in shown), done.stdout)
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            self.succeed(program, *words)
        logits = safetensors.numpy.load_file(self.folder / "one.safetensors")["logits"]
        self.assertEqual(logits.shape, (1, CLASSES))
        updates, evaluations = metrics(self.folder / "sentences-run")
        self.assertLess(np.mean([line["loss"] for line in updates[-10:]]), 0.8 * np.mean([line["loss"] for line in updates[:10]]))
        self.assertEqual(len(evaluations), 3)


if __name__ == "__main__":
    unittest.main()
