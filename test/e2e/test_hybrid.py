"""State that is sharded within a node and replicated across nodes: the losses of ddp, checkpoints for every mode."""
import json
import os
import re
import shutil
import signal
import time
import unittest

import numpy as np
import safetensors.numpy

from common import ZOO
from test_ranks import FAILURE_SECONDS, alive, children_of, flip_a_bit, losses
from test_shards import NEVER_CLIPS, Sharded


class Hybrid(Sharded):
    def nodes(self, case, *settings, node, plan="hybrid.tplan", entry="train"):
        words = [word for setting in ("parallel.mode=hybrid", f"parallel.shard_within_node={node}", *settings) for word in ("--set", setting)]
        return self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", entry, *words, plan=plan)

    def check(self, case, *settings, node=2, ranks=4, bits=True, steps=4, weights=True):
        self.shards(case, *settings, mode="ddp", ranks=ranks, plan="ddp.tplan")
        self.nodes(case, *settings, node=node)
        data = {key: np.tile(value, (2,) + (1,) * (value.ndim - 1)) for key, value in safetensors.numpy.load_file(self.data(case)).items()}
        safetensors.numpy.save_file(data, self.folder / "d.safetensors")
        for run in ("ddp", "hybrid"):
            shutil.rmtree(self.folder / run, ignore_errors=True)
            self.train(f"{run}.tplan", "d.safetensors", run, "--steps", steps, nproc=ranks)
        expected, found = losses(self.folder / "ddp"), losses(self.folder / "hybrid")
        self.assertEqual(len(expected), steps)
        self.assertGreater(np.ptp(expected), 0)
        first, second = (self.weights(run) if weights else {} for run in ("ddp", "hybrid"))
        if bits:
            self.assertEqual(found, expected)
            for name, value in first.items():
                np.testing.assert_array_equal(second[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5)
            for name, value in first.items():
                np.testing.assert_allclose(second[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    def test_two_nodes_of_two(self):
        self.check("mlp")

    def test_three_nodes_of_two_are_the_tree_of_six(self):
        self.check("mlp", ranks=6)

    def test_two_nodes_of_three(self):
        self.check("mlp", node=3, ranks=6, bits=False)

    def test_one_node_is_full_and_nodes_of_one_are_ddp(self):
        self.check("mlp", node=2, ranks=2)
        self.check("mlp", node=1, ranks=2)

    def test_a_transformer_with_accumulation_in_small_buckets(self):
        self.check("nano-gpt", "train.accumulate=2", "parallel.bucket_bytes=1000", NEVER_CLIPS)

    def test_shards_of_accumulators_are_summed_across_nodes_once(self):
        settings = ("train.accumulate=2", "optimizer.kind=sgd", "optimizer.lr=0.1")
        self.check("nano-gpt", *settings, bits=False)
        whole = losses(self.folder / "hybrid")
        self.nodes("nano-gpt", *settings, "parallel.accumulators=shards", node=2)
        self.train("hybrid.tplan", "d.safetensors", "shards", "--steps", 4, nproc=4)
        np.testing.assert_allclose(losses(self.folder / "shards"), whole, rtol=1e-6)
        sums = {program["program"]: {(one["collective"], one["tensors"] > 3) for one in program["collectives"]}
                for program in self.report("hybrid.tplan")["communication"]["programs"]}
        self.assertEqual(sums["accumulate_next"], {("all-gather", True), ("reduce-scatter", True)})
        self.assertIn(("all-reduce across nodes", True), sums["update"])

    def test_clipping_and_the_norms_of_lamb(self):
        self.check("mlp", "train.clip_norm=0.5", "optimizer.kind=lamb", "optimizer.lr=0.01", bits=False)

    def test_moments_are_rounded_alike_in_every_node(self):
        """At the end, ranks that hold the same shard compare it."""
        self.nodes("mlp", "optimizer.kind=adamw", "optimizer.moments=bf16", node=2)
        self.train("hybrid.tplan", self.data("mlp"), "run", "--steps", 5, nproc=4)
        self.assertEqual(len(losses(self.folder / "run")), 5)

    def test_matrices_that_muon_makes_orthogonal(self):
        self.check("mlp", "optimizer.kind=muon", "optimizer.lr=0.01")

    def test_batch_norm_of_each_rank(self):
        self.check("cnn-bn", "optimizer.kind=adamw")

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "some minutes; TCC_RANKS_ALL=1 runs it")
    def test_every_case_of_the_zoo(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            with self.subTest(case):
                self.check(case, bits=False, steps=3, weights=False)

    def test_a_killed_rank_of_another_node(self):
        """The ranks of its node wait for it in a sum within the node, those of the other node in one across nodes."""
        self.nodes("mlp", node=2)
        process = self.start("hybrid.tplan", "--data", self.data("mlp"), "--out", "run", "--steps", 10**7, "--nproc", 4,
                             "--checkpoint-every", 2)
        self.wait_for_updates("run")
        ranks, begun = children_of(process.pid), time.monotonic()
        os.kill(ranks[3], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err.decode(), r"trun: error: step \d+: .*rank 3 \(host .*, process \d+\) has ended")
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS)
        self.assertFalse([rank for rank in ranks if alive(rank)])
        self.succeed("trun", "--resume", "run", "--steps", 1)

    def test_each_rank_holds_the_part_of_its_node(self):
        self.nodes("nano-gpt", NEVER_CLIPS, node=2)
        self.shards("nano-gpt", NEVER_CLIPS, mode="full", ranks=2, plan="full.tplan")
        hybrid, full = (self.report(plan)["memory"] for plan in ("hybrid.tplan", "full.tplan"))
        self.assertEqual(hybrid["resident_bytes"], full["resident_bytes"])

    def test_what_runs_beside_sums_in_and_across_nodes(self):
        self.nodes("nano-gpt", NEVER_CLIPS, "parallel.bucket_bytes=40000", node=2)
        program = self.report("hybrid.tplan")["communication"]["programs"][0]
        for kind in ("reduce-scatter", "all-reduce across nodes"):
            rows = [row for row in program["collectives"] if row["collective"] == kind]
            self.assertGreater(len(rows), 4)
            self.assertGreater(sum(row["beside_ns"] > 0 for row in rows), len(rows) / 2, kind)
        sizes = {kind: sum(row["bytes"] for row in program["collectives"] if row["collective"] == kind)
                 for kind in ("reduce-scatter", "all-reduce across nodes")}
        self.assertAlmostEqual(sizes["all-reduce across nodes"], sizes["reduce-scatter"] / 2, delta=200)

    def test_checkpoints_evaluations_and_averages(self):
        settings = ("optimizer.kind=adamw", "optimizer.lr=0.01", "train.ema.decay=0.5")
        self.nodes("mlp", *settings, node=2, entry="train,evaluate")
        evaluated = ("--eval-data", self.data("mlp"), "--eval-every", 2)
        self.train("hybrid.tplan", self.data("mlp"), "run", "--steps", 4, *evaluated, nproc=4)
        self.shards("mlp", *settings, mode="ddp", ranks=4, plan="ddp.tplan", entry="train,evaluate")
        self.train("ddp.tplan", self.data("mlp"), "ddp", "--steps", 4, *evaluated, nproc=4)
        lines = [[{key: value for key, value in json.loads(line).items() if key.endswith(("eval_loss", "eval_accuracy"))}
                  for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()] for run in ("run", "ddp")]
        self.assertIn("ema_eval_loss", json.dumps(lines))
        self.assertEqual(lines[0], lines[1])
        # The first node writes.
        self.assertEqual(sorted(path.name for path in (self.folder / "run" / "checkpoints" / "step-4").iterdir()),
                         ["manifest.json", "state.rank-1.safetensors", "state.safetensors"])
        self.assertEqual((self.folder / "run" / "model.onnx").read_bytes(), (self.folder / "ddp" / "model.onnx").read_bytes())
        self.shards("mlp", *settings, mode="full", ranks=4, plan="full.tplan", entry="train,evaluate")
        self.nodes("mlp", *settings, node=3, plan="three.tplan", entry="train,evaluate")
        self.succeed("trun", "--resume", "run", "--steps", 6)
        for plan, ranks in (("ddp", 4), ("full", 4), ("three", 3), ("hybrid", 2)):
            with self.subTest(f"{plan} on {ranks}"):
                self.succeed("trun", f"{plan}.tplan", "--data", self.data("mlp"), "--resume", "run@4", "--out", f"next-{plan}", "--steps", 6,
                             "--nproc", ranks, "--no-release")
                if ranks == 4:
                    self.assertEqual(losses(self.folder / f"next-{plan}"), losses(self.folder / "run")[4:])
        # And back from a checkpoint of one rank's parts.
        self.succeed("trun", "hybrid.tplan", "--data", self.data("mlp"), "--resume", "next-ddp", "--out", "back", "--steps", 7, "--nproc", 4)

    def test_a_flipped_bit_in_another_nodes_shard(self):
        """A rate of 0 leaves the weights as they are, so that they can be found in the memory of rank 3."""
        self.nodes("mlp", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=0", node=2)
        self.train("hybrid.tplan", self.data("mlp"), "first", "--steps", 1, nproc=2)
        part = safetensors.numpy.load_file(self.folder / "first" / "checkpoints" / "step-1" / "state.rank-1.safetensors")
        name, weight = max(part.items(), key=lambda item: item[1].size)
        process = self.start("hybrid.tplan", "--data", self.data("mlp"), "--out", "run", "--steps", 10**7, "--nproc", 4)
        self.wait_for_updates("run")
        rank = children_of(process.pid)[3]
        flipped = flip_a_bit(rank, weight)
        self.assertGreater(flipped, 0)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err.decode(), rf"the ranks' state differs after update \d+: rank 3 \(host .*\) has '{re.escape(name)}' .*rank 1 has")

    def test_what_does_not_go_together_says_so(self):
        model, recipe = ZOO / "mlp" / "model.onnx", ZOO / "mlp" / "recipe.toml"
        for patterns, settings in (
                (["hybrid", "needs parallel.shard_within_node"], ["parallel.mode=hybrid"]),
                (["parallel.ranks", "any number of nodes"], ["parallel.mode=hybrid", "parallel.shard_within_node=2", "parallel.ranks=4"]),
                (["parallel.shard_within_node needs parallel.mode", "leave the key out"],
                 ["parallel.mode=full", "parallel.ranks=2", "parallel.shard_within_node=2"]),
                (["parallel.prefetch", "leave the key out"], ["parallel.mode=ddp", "parallel.prefetch=2"])):
            self.refuse(1, patterns, "tcc", model, "--recipe", recipe, "--entry", "train",
                        *[word for one in settings for word in ("--set", one)])
        self.nodes("mlp", node=2)
        self.refuse(1, ["nodes of 2 ranks", "the job has 3", "--nproc 4"], "trun", "hybrid.tplan", "--data", self.data("mlp"), "--out", "run",
                    "--nproc", 3)
        self.refuse(1, ["nodes of 2 ranks", "--nproc 4"], "trun", "profile", "hybrid.tplan", "--data", self.data("mlp"), "--nproc", 3)
        self.assertFalse((self.folder / "run").exists())
        self.train("hybrid.tplan", self.data("mlp"), "run", "--steps", 1, nproc=4)
        said = self.succeed("trun", "profile", "hybrid.tplan", "--data", self.data("mlp"), "--nproc", 4, "--no-roofline", "--steps", 2,
                            "--all").out
        self.assertRegex(said, r"all-reduce of \d+ tensors of f32 across nodes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
