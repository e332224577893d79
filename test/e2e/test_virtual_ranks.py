"""Virtual ranks: a run has the same bits on any number of ranks, also if the number changes on the way."""
import json
import os
import shutil
import unittest

import numpy as np
import safetensors.numpy
from onnx import helper

import models
import test_phases
from common import ZOO
from test_ranks import Jobs, losses

TIMES = ("seconds", "data_seconds", "samples_per_s", "tokens_per_s", "communication_seconds", "exposed_seconds")


def numbers(run):
    """The lines of all updates and evaluations, without measured times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES and key != "resumed"} for line in lines
            if "loss" in line or "eval_loss" in line or any(key.startswith("loss.") for key in line)]


class SameBits(Jobs):
    def check(self, case, *settings, virtual=4, ranks=(1, 2, 4), steps=4, arguments=(), model=None, recipe=None, data=None):
        words = [word for setting in ("parallel.mode=ddp", f"train.virtual_ranks={virtual}", *settings) for word in ("--set", setting)]
        folder = ZOO / case
        self.compile(model or folder / "model.onnx", "--recipe", recipe or folder / "recipe.toml", *words)
        data = data or folder / "data.safetensors"
        found, weights = [], []
        for count in ranks:
            self.succeed("trun", "plan.tplan", "--data", data, "--out", f"run{count}", "--steps", steps, "--seed", 5, "--no-release",
                         "--nproc", count, *arguments)
            self.succeed("trun", "export", f"run{count}", "-o", f"w{count}.safetensors")
            found.append(numbers(self.folder / f"run{count}"))
            weights.append((self.folder / f"w{count}.safetensors").read_bytes())
        for count, other, state in zip(ranks, found, weights):
            self.assertEqual(other, found[0], f"{count} ranks")
            self.assertEqual(state, weights[0], f"the weights of {count} ranks")
        return found[0]

    def test_clipping_and_small_buckets(self):
        lines = self.check("nano-gpt", "parallel.bucket_bytes=1000")
        self.assertEqual(len(lines), 4)
        self.assertGreater(np.ptp([line["loss"] for line in lines]), 0)

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "two minutes; TCC_RANKS_ALL=1 runs it")
    def test_every_case_of_the_zoo(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            with self.subTest(case):
                self.check(case, virtual=2, ranks=(1, 2))
                for run in self.folder.glob("run*"):
                    shutil.rmtree(run)

    def test_running_statistics_are_those_of_the_first(self):
        self.check("cnn-bn")

    def test_state_that_forward_passes_move_and_read(self):
        """Ranges of a quantised input: each virtual rank begins with those of the last update, and those of the first virtual rank are
        kept."""
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantise"),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"], "dequantise"),
                 helper.make_node("MatMul", ["r", "w"], ["prediction"], "product")]
        weights = {"s": np.float32(0.02), "z": np.uint8(100), "w": models.random(1, 5, 1)}
        models.save(self.folder / "m.onnx", nodes, {"x": [4, 5]}, {"prediction": [4, 1]}, weights)
        (self.folder / "r.toml").write_text(models.SQUARES + models.SGD + '[model]\nquantize = "observe"\n')
        random = np.random.default_rng(3)
        safetensors.numpy.save_file({"x": random.standard_normal((48, 5), np.float32) * 3,
                                     "y": random.standard_normal((48, 1), np.float32)}, self.folder / "d.safetensors")
        lines = self.check("observe", model="m.onnx", recipe="r.toml", data="d.safetensors", steps=6)
        self.assertEqual(len({line["loss"] for line in lines}), 6)

    def test_windows_of_several_micro_batches_that_an_epoch_cuts_short(self):
        """An epoch of 4 global batches in windows of 3, with or without threads that read ahead, and with a dropout."""
        random = np.random.default_rng(3)
        safetensors.numpy.save_file({"x": random.standard_normal((512, 20), np.float32),
                                     "y": random.standard_normal((512, 1), np.float32)}, self.folder / "d.safetensors")
        dropout = ("adapter.targets=[\"*.weight\"]", "adapter.rank=1", "adapter.dropout=0.3", "adapter.train=[\"*.bias\"]")
        found = []
        for workers in (0, 2):
            found.append(self.check("mlp", "train.accumulate=3", *dropout, steps=5, data="d.safetensors",
                                    arguments=("--workers", workers)))
            for run in self.folder.glob("run*"):
                shutil.rmtree(run)
        self.assertEqual(found[0], found[1])

    def test_a_loss_scale(self):
        lines = self.check("nano-gpt", "train.precision=f16", "train.loss_scale.growth_interval=2", virtual=2, ranks=(1, 2), steps=6)
        self.assertGreater(len({line["loss_scale"] for line in lines}), 1)

    def test_moments_that_are_rounded_at_random_and_averages(self):
        self.check("mlp", "optimizer.kind=adamw", "optimizer.lr=0.01", "optimizer.moments=bf16", "train.ema.decay=0.9",
                   "train.ema.on=device", virtual=2, ranks=(1, 2))

    def test_alternating_optimizers(self):
        (self.folder / "gan.toml").write_text(test_phases.RECIPES["gan"])
        lines = self.check("gan", virtual=2, ranks=(1, 2), model=test_phases.FILES / "gan.onnx", recipe="gan.toml",
                           data=test_phases.FILES / "gan.safetensors")
        self.assertTrue(any("loss.g" in line for line in lines) and any("loss.d" in line for line in lines))

    def test_evaluations_and_an_early_stop(self):
        """Any number of ranks share the evaluation's batches, the last of which is shorter; rank 0 alone has averages."""
        data = safetensors.numpy.load_file(ZOO / "mlp" / "data.safetensors")
        safetensors.numpy.save_file({key: np.ascontiguousarray(value[:117]) for key, value in data.items()}, self.folder / "e.safetensors")
        lines = self.check("mlp", "evaluate.metrics=[\"mae\",\"r2\"]", "evaluate.best=mae", "evaluate.stop.patience=2",
                           "evaluate.stop.min_change=1000", "train.ema.decay=0.5", steps=20,
                           arguments=("--eval-data", "e.safetensors", "--eval-every", 2))
        evaluations = [line for line in lines if "eval_loss" in line]
        self.assertEqual([line["step"] for line in evaluations], [2, 4, 6], "the first is the best, and two follow")
        for line in evaluations:
            self.assertLess({"eval_mae", "eval_r2", "ema_eval_mae"}, set(line))
            self.assertNotEqual(line["eval_mae"], line["ema_eval_mae"])


class Runs(Jobs):
    def setUp(self):
        super().setUp()
        self.zoo("mlp", "train.virtual_ranks=4", "optimizer.kind=adamw", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def test_are_those_of_as_many_real_ranks(self):
        self.zoo("mlp", "optimizer.kind=adamw", plan="ddp.tplan")
        self.train("ddp.tplan", self.data, "ddp", "--steps", 5, nproc=4)
        self.train("plan.tplan", self.data, "own", "--steps", 5, nproc=2)
        np.testing.assert_allclose(losses(self.folder / "own"), losses(self.folder / "ddp"), rtol=1e-6)

    def test_a_run_moves_between_numbers_of_ranks(self):
        self.succeed("trun", "plan.tplan", "--data", self.data, "--out", "whole", "--steps", 9, "--seed", 2, "--nproc", 2)
        self.succeed("trun", "plan.tplan", "--data", self.data, "--out", "moved", "--steps", 3, "--seed", 2, "--nproc", 4)
        for steps, ranks in ((6, 1), (9, 2)):
            note = self.succeed("trun", "--resume", "moved", "--steps", steps, "--nproc", ranks).err
            self.assertNotIn("number of ranks differs", note)
        self.assertEqual(numbers(self.folder / "moved"), numbers(self.folder / "whole"))
        for name in ("whole", "moved"):
            self.succeed("trun", "export", name, "-o", f"{name}.safetensors")
        self.assertEqual((self.folder / "moved.safetensors").read_bytes(), (self.folder / "whole.safetensors").read_bytes())

    def test_shards_of_any_number_of_ranks_have_the_bits_of_one(self):
        """Compares losses and weights; norms are left out, since those of shards are summed in another order. In mid-run the job moves
        from one mode to the next."""
        places = {"one": ("ddp", (), 1), "two": ("grad_op", ("parallel.ranks=2",), 2), "four": ("full", ("parallel.ranks=4",), 4),
                  "nodes": ("hybrid", ("parallel.shard_within_node=2",), 4)}
        found = {}
        for name, (mode, place, ranks) in places.items():
            settings = (f"parallel.mode={mode}", *place, "train.virtual_ranks=4", "optimizer.kind=adamw", "optimizer.lr=0.01")
            self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--entry", "train",
                         *(word for setting in settings for word in ("--set", setting)), plan=f"{name}.tplan")
            self.succeed("trun", f"{name}.tplan", "--data", self.data, "--out", name, "--steps", 6, "--seed", 5, "--no-release", "--nproc",
                         ranks, "--set", "checkpoint.keep=0", "--checkpoint-every", 2)
            self.succeed("trun", "export", name, "-o", f"{name}.safetensors")
            found[name] = losses(self.folder / name), (self.folder / f"{name}.safetensors").read_bytes()
            self.assertEqual(len(found[name][0]), 6)
            self.assertEqual(found[name], found["one"], name)
        before = "one@2"
        for steps, name in ((4, "four"), (6, "two")):
            self.succeed("trun", f"{name}.tplan", "--data", self.data, "--resume", before, "--out", f"moved{steps}", "--steps", steps, "--nproc",
                         places[name][2], "--no-release")
            before = f"moved{steps}"
        self.succeed("trun", "export", "moved6", "-o", "moved.safetensors")
        self.assertEqual((self.folder / "moved.safetensors").read_bytes(), found["one"][1])

    def test_a_nan_is_found_in_the_data_of_a_virtual_rank(self):
        data = {key: value.copy() for key, value in safetensors.numpy.load_file(self.data).items()}
        data["x"][2 * 32 + 7, 3] = np.nan
        safetensors.numpy.save_file(data, self.folder / "d.safetensors")
        for ranks in (1, 2):
            self.refuse(4, ["step 1: the loss is nan", "NaN", "sample 71"], "trun", "plan.tplan", "--data", "d.safetensors", "--out",
                        f"run{ranks}", "--no-shuffle", "--steps", 3, "--nproc", ranks, "--set", "data.max_bad=0")

    def report(self, plan):
        return json.loads(self.succeed("tcc", "report", plan, "--json").out)

    def test_partial_sums_count_in_the_memory(self):
        """One rank holds log2(4) = 2 more sums, four or more ranks none; trun allocates what the report says."""
        self.zoo("mlp", "train.virtual_ranks=4", "optimizer.kind=adamw", "parallel.least_ranks=4", plan="wide.tplan")
        one, wide = (self.train(plan, self.data, plan + "-run", "--steps", 1, nproc=4).err for plan in ("plan.tplan", "wide.tplan"))
        self.succeed("trun", "export", "plan.tplan-run", "-o", "w.safetensors")
        weights = safetensors.numpy.load_file(self.folder / "w.safetensors")
        sums = sum(-(-value.nbytes // 64) * 64 for value in weights.values()) + 2 * 64  # each in lines of 64 bytes; and the loss's two sums
        resident = [self.report(plan)["memory"]["resident_bytes"] for plan in ("plan.tplan", "wide.tplan")]
        self.assertEqual(resident[0] - resident[1], 2 * sums)
        notes = [note["text"] for note in self.report("plan.tplan")["notes"]]
        self.assertTrue(any("4 virtual ranks, up to 4 on a rank, which then has 2 sums of gradients more" in note for note in notes), notes)
        self.assertIn("x 4 virtual ranks on 4", one)
        self.assertIn("x 4 virtual ranks on 4", wide)

    def test_the_null_device_checks_them(self):
        result = self.succeed("trun", "plan.tplan", "--data", self.data, "--device", "null", "--nproc", 2, "--steps", 2, "--out", "run")
        self.assertIn("x 4 virtual ranks on 2", result.err)

    def test_what_does_not_go_together_says_so(self):
        self.zoo("mlp", "train.virtual_ranks=4", "parallel.least_ranks=2", plan="two.tplan")
        for plan, ranks, patterns in (("plan.tplan", 3, ["4 virtual ranks .* the job has 3; use --nproc 2"]),
                                      ("plan.tplan", 8, ["the job has 8; use --nproc 4"]),
                                      ("two.tplan", 1, ["memory for 2 ranks or more, the job has 1; use --nproc 2"])):
            self.refuse(1, patterns, "trun", plan, "--data", self.data, "--out", "run", "--nproc", ranks)
            self.assertFalse((self.folder / "run").exists())
        self.train("two.tplan", self.data, "two", "--steps", 1, nproc=2)
        self.succeed("trun", "export", "two", "-o", "w.safetensors")  # in one process, whatever least_ranks says
        words = ["tcc", ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--set", "parallel.mode=ddp"]
        for settings, pattern in ((["train.virtual_ranks=6"], "no power of two.*use 4 or 8"),
                                  (["train.virtual_ranks=4", "parallel.mode=full", "parallel.ranks=3"], "sharded over 3"),
                                  (["train.virtual_ranks=4", "parallel.mode=full", "parallel.ranks=2", "train.clip_norm=1"],
                                   "clip_norm.*use parallel.mode = .ddp"),
                                  (["train.virtual_ranks=4", "parallel.average=ranks"], "leave parallel.average out"),
                                  (["train.virtual_ranks=4", "parallel.reduce_dtype=bf16"], "leave parallel.reduce_dtype out"),
                                  (["train.virtual_ranks=4", "parallel.least_ranks=3"], "1, 2, 4 … 4"),
                                  (["parallel.least_ranks=2"], "needs train.virtual_ranks"),
                                  (["train.virtual_ranks=4", "parallel.batch_norm=sync"], "leave parallel.batch_norm out"),
                                  (["train.virtual_ranks=2", "parallel.mode=none"], "needs parallel.mode")):
            self.refuse(1, [pattern], *words, *(word for setting in settings for word in ("--set", setting)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
