"""What ranks must do together if each holds a part of the parameters: evaluate, average, find a NaN, alternate optimizers."""
import json
import shutil
import unittest

import numpy as np
import safetensors.numpy

import test_phases
from common import ZOO
from test_ranks import losses
from test_shards import NEVER_CLIPS, Sharded


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Evaluations(Sharded):
    def evaluations(self, case, *settings, mode, ranks, plan="plan.tplan", more=()):
        self.shards(case, *settings, mode=mode, ranks=ranks, plan=plan, entry="train,evaluate")
        run = f"{mode}{ranks}"
        self.train(plan, self.data(case), run, "--steps", 4, "--eval-data", self.folder / "eval.safetensors", "--eval-every", 2, *more,
                   nproc=ranks)
        return [{key: value for key, value in line.items() if "eval_" in key and "seconds" not in key}
                for line in lines_of(self.folder / run) if "eval_loss" in line]

    def evaluation_data(self, case, samples):
        data = safetensors.numpy.load_file(self.data(case))
        safetensors.numpy.save_file({key: np.ascontiguousarray(value[:samples]) for key, value in data.items()},
                                    self.folder / "eval.safetensors")

    def same_as_ddp(self, case, samples, *settings, ranks):
        self.evaluation_data(case, samples)
        found = [self.evaluations(case, *settings, mode=mode, ranks=ranks) for mode in ("ddp", "full")]
        self.assertEqual(len(found[0]), 2)
        self.assertNotEqual(found[0][0]["eval_loss"], found[0][1]["eval_loss"])
        self.assertEqual(found[1], found[0])

    def test_batches_that_the_ranks_share_unevenly_with_a_short_last_one(self):
        """Four batches and five more samples on three ranks: in the second round one rank has no batch."""
        batch = self.batch("mlp")
        self.same_as_ddp("mlp", 4 * batch + 5, ranks=3)

    def test_fewer_batches_than_ranks(self):
        self.same_as_ddp("mlp", self.batch("mlp"), ranks=3)

    def test_metrics_of_a_transformer_in_small_buckets(self):
        self.same_as_ddp("nano-gpt", 3 * self.batch("nano-gpt"), NEVER_CLIPS, "parallel.bucket_bytes=4000", ranks=2)

    def batch(self, case):
        self.shards(case, mode="ddp", ranks=1, plan="batch.tplan")
        return self.report("batch.tplan")["memory"]["entries"]["train"]["programs"]["step"]["batch"]

    def test_samples_that_cannot_be_read(self):
        """If no sample of its batch can be read, one rank calls no program, and the others still end."""
        batch = self.batch("mlp")
        self.evaluation_data("mlp", 3 * batch)
        data = safetensors.numpy.load_file(self.folder / "eval.safetensors")
        data["x"][batch:2 * batch] = np.nan
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in data.items()}, self.folder / "eval.safetensors")
        allowed = ("--set", f"data.max_bad={batch}")
        found = [self.evaluations("mlp", mode=mode, ranks=2, more=allowed) for mode in ("ddp", "full")]
        self.assertEqual(len(found[0]), 2)
        self.assertEqual(found[1], found[0])

    def test_one_process_says_why_it_cannot(self):
        self.evaluation_data("mlp", 8)
        self.evaluations("mlp", mode="full", ranks=2)
        self.refuse(1, ["no process has all parameters", "--set parallel.mode=none"], "trun", "eval", "plan.tplan", "--from", "full2",
                    "--data", self.data("mlp"))
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--entry", "evaluate", "--set",
                     "parallel.mode=none", plan="eval.tplan")
        said = json.loads(self.succeed("trun", "eval", "eval.tplan", "--from", "full2", "--data", self.folder / "eval.safetensors").out)
        last = [line for line in lines_of(self.folder / "full2") if "eval_loss" in line][-1]
        self.assertAlmostEqual(said["eval_loss"], last["eval_loss"], 6)


class Averages(Sharded):
    settings = ("train.ema.decay=0.5", "optimizer.kind=adamw", "optimizer.lr=0.01")

    def averaged(self, run):
        self.succeed("trun", "export", run, "--ema", "-o", f"{run}.ema.safetensors")
        return safetensors.numpy.load_file(self.folder / f"{run}.ema.safetensors")

    def train_with(self, mode, on, ranks=3, steps=5):
        run = f"{mode}-{on}"
        plan = self.shards("mlp", *self.settings, f"train.ema.on={on}", mode=mode, ranks=ranks, plan=f"{run}.tplan",
                           entry="train,evaluate")
        self.train(plan, self.data("mlp"), run, "--steps", steps, "--eval-data", self.data("mlp"), "--eval-every", 2, nproc=ranks)
        return run

    def test_the_same_bits_wherever_they_are(self):
        expected = None
        for mode in ("ddp", "grad_op", "full"):
            for on in ("host", "device"):
                run = self.train_with(mode, on)
                weights, averages = self.weights(run), self.averaged(run)
                evaluations = [line["ema_eval_loss"] for line in lines_of(self.folder / run) if "ema_eval_loss" in line]
                self.assertEqual(len(evaluations), 3)
                self.assertGreater(max(np.abs(weights[name] - averages[name]).max() for name in averages), 1e-3)
                if expected is None:
                    expected = losses(self.folder / run), averages, evaluations
                    continue
                self.assertEqual(losses(self.folder / run), expected[0], run)
                self.assertEqual(evaluations, expected[2], run)
                for name, value in expected[1].items():
                    np.testing.assert_array_equal(averages[name], value, err_msg=f"{run}, {name}")

    def test_each_rank_keeps_and_writes_its_part(self):
        run = self.train_with("full", "host")
        checkpoint = self.folder / run / "checkpoints" / "step-5"
        parts = [safetensors.numpy.load_file(checkpoint / f"state{rank}.safetensors") for rank in ("", ".rank-1", ".rank-2")]
        for name, value in self.averaged(run).items():
            np.testing.assert_array_equal(np.concatenate([part[name + "/ema"] for part in parts if name + "/ema" in part]),
                                          value.reshape(-1), err_msg=name)
        self.assertEqual(self.report("full-host.tplan")["memory"]["host"]["averages"],
                         sum(4 * -(-value.size // 3) for value in self.averaged(run).values()))
        # On the same number of ranks, on other numbers, and in other modes.
        for mode, on, ranks in (("full", "host", 3), ("full", "device", 2), ("ddp", "host", 2)):
            with self.subTest(f"{mode} on {ranks}"):
                plan = self.shards("mlp", *self.settings, f"train.ema.on={on}", mode=mode, ranks=ranks, plan="next.tplan",
                                   entry="train,evaluate")
                self.succeed("trun", plan, "--data", self.data("mlp"), "--resume", run, "--out", "next", "--steps", 5, "--nproc", ranks)
                for name, value in self.averaged(run).items():
                    np.testing.assert_array_equal(self.averaged("next")[name], value, err_msg=name)
                shutil.rmtree(self.folder / "next")


class NonFinite(Sharded):
    def setUp(self):
        super().setUp()
        data = safetensors.numpy.load_file(self.data("mlp"))
        data["x"][32 + 7, 3] = np.inf  # the second batch: rank 1's first
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in data.items()}, self.folder / "d.safetensors")

    def test_the_node_and_the_rank_are_those_of_ddp(self):
        said = []
        for mode in ("ddp", "full"):
            for accumulate in (1, 2):
                plan = self.shards("mlp", f"train.accumulate={accumulate}", "parallel.bucket_bytes=1000", mode=mode, ranks=2)
                result = self.refuse(4, ["step 1", "first seen at node '.+' on rank 1 \\(host"], "trun", plan, "--data", "d.safetensors",
                                     "--out", f"{mode}{accumulate}", "--no-shuffle", "--steps", 3, "--nproc", 2)
                said.append(result.err.partition("first seen at ")[2].partition(" on rank")[0])
        self.assertEqual(said[2:], said[:2])


class Phases(Sharded):
    def test_alternating_optimizers(self):
        """Each rank holds a part of both phases' parameters; the losses equal those of ddp, bit for bit."""
        for name in ("gan", "actor-critic"):
            (self.folder / "phases.toml").write_text(test_phases.RECIPES[name])
            found, exports = [], []
            for mode in ("ddp", "grad_op", "full"):
                place = [] if mode == "ddp" else ["--set", "parallel.ranks=2"]
                self.compile(test_phases.FILES / f"{name}.onnx", "--recipe", "phases.toml", "--entry", "train", "--set",
                             f"parallel.mode={mode}", *place, plan=f"{mode}.tplan")
                run = f"{name}-{mode}"
                self.train(f"{mode}.tplan", test_phases.FILES / f"{name}.safetensors", run, "--steps", 4, nproc=2)
                found.append([{key: value for key, value in line.items() if key.startswith("loss")}
                              for line in lines_of(self.folder / run) if "loss" in line])
                exports.append(self.weights(run))
                if mode == "full":  # a run resumes from its checkpoint, too
                    self.succeed("trun", "--resume", run, "--steps", 5)
            self.assertEqual(len(found[0]), 4)
            self.assertEqual(found[1], found[0])
            self.assertEqual(found[2], found[0])
            for name_, value in exports[0].items():
                np.testing.assert_array_equal(exports[2][name_], value, err_msg=name_)
            held = [self.report(f"{mode}.tplan")["memory"]["resident_bytes"] for mode in ("grad_op", "full")]
            self.assertLess(held[1], held[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
