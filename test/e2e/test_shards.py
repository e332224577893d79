"""Sharded state: losses and weights equal those of ddp, each rank holds a part of the state, and checkpoints fit any number of ranks.
"""
import json
import os
import re
import shutil
import signal
import time
import unittest

import models
import numpy as np
import safetensors.numpy

from common import ZOO
from test_ranks import RANKS, Jobs, alive, children_of, losses


NEVER_CLIPS = "train.clip_norm=1e6"  # nano-gpt's recipe clips; the last bits of the norm depend on the order of its sum


class Sharded(Jobs):
    def shards(self, case, *settings, mode, ranks, plan="plan.tplan", entry="train"):
        place = (f"parallel.mode={mode}",) if mode in ("none", "ddp") else (f"parallel.mode={mode}", f"parallel.ranks={ranks}")
        words = [word for setting in (*place, *settings) for word in ("--set", setting)]
        self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", entry, *words, plan=plan)
        return plan

    def data(self, case):
        return ZOO / case / "data.safetensors"

    def weights(self, run):
        self.succeed("trun", "export", run, "-o", f"{run}.safetensors")
        return safetensors.numpy.load_file(self.folder / f"{run}.safetensors")

    def report(self, plan):
        return json.loads(self.succeed("tcc", "report", plan, "--json").out)


class AsPyTorch(Sharded):
    """Comparison with two ranks of PyTorch's FSDP (`fully_shard`): ranks/make_ddp.py."""

    def check(self, case):
        folder = RANKS / case
        expected = json.loads((folder / "expected.json").read_text())["loss"]
        for mode in ("full", "grad_op"):
            with self.subTest(mode=mode):
                self.compile(folder / "model.onnx", "--recipe", folder / "recipe.toml", "--entry", "train", "--set", f"parallel.mode={mode}")
                self.train("plan.tplan", folder / "data.safetensors", mode, "--steps", len(expected), nproc=2)
                np.testing.assert_allclose(losses(self.folder / mode), expected, rtol=1e-5)
                weights = self.weights(mode)
                state = safetensors.numpy.load_file(folder / "state.safetensors")
                self.assertGreater(len(state.keys() & weights.keys()), 5)
                for name in state.keys() & weights.keys():
                    np.testing.assert_allclose(weights[name], state[name], rtol=1e-4, atol=1e-5, err_msg=f"{mode}, {name}")

    def test_tied_transformer_with_clipping(self):
        self.check("sharded-tied")

    def test_convolutions(self):
        self.check("sharded-convolutions")


class SameAsDdp(Sharded):
    def check(self, case, *settings, ranks=2, bits=True, steps=4, modes=("grad_op", "full"), weights=True):
        found = []
        for mode in ("ddp", *modes):
            plan = self.shards(case, *settings, mode=mode, ranks=ranks, plan=f"{mode}.tplan")
            self.train(plan, self.data(case), mode, "--steps", steps, nproc=ranks)
            found.append((losses(self.folder / mode), self.weights(mode)))
        expected, first = found[0]
        self.assertEqual(len(expected), steps)
        self.assertGreater(np.ptp(expected), 0)
        for mode, (actual, second) in zip(modes, found[1:]):
            if bits:
                self.assertEqual(actual, expected, mode)
            np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=mode)
            self.assertEqual(set(second), set(first))
            for name, value in first.items() if weights else ():
                if bits:
                    np.testing.assert_array_equal(second[name], value, err_msg=f"{mode}, {name}")
                else:
                    np.testing.assert_allclose(second[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{mode}, {name}")

    def test_mlp_on_four_ranks(self):
        self.check("mlp", ranks=4)

    def test_a_transformer_with_accumulation_in_small_buckets(self):
        self.check("nano-gpt", "train.accumulate=2", "parallel.bucket_bytes=1000", NEVER_CLIPS)

    def test_a_transformer_with_clipping_on_four_ranks(self):
        self.check("nano-gpt", "train.clip_norm=0.5", "optimizer.kind=sgd", "optimizer.lr=0.1", ranks=4, bits=False)

    def test_batch_norm_of_each_rank(self):
        self.check("cnn-bn", "optimizer.kind=adamw")

    def test_parameters_without_a_gradient(self):
        self.check("unused-params", modes=("full",))

    def test_bf16_products_and_gradients_in_bf16_on_their_way(self):
        self.check("nano-gpt", "train.precision=bf16", "parallel.reduce_dtype=bf16", NEVER_CLIPS)

    def test_f16_with_a_loss_scale(self):
        self.check("mlp", "train.precision=f16", "optimizer.kind=adagrad", bits=False, modes=("grad_op",))

    def test_matrices_that_muon_makes_orthogonal(self):
        self.check("mlp", "optimizer.kind=muon", "optimizer.lr=0.01", ranks=3)

    def test_norms_of_lamb(self):
        self.check("mlp", "optimizer.kind=lamb", "optimizer.lr=0.01", bits=False, modes=("full",))

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "some minutes; TCC_RANKS_ALL=1 runs it")
    def test_every_case_of_the_zoo(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            with self.subTest(case):
                self.check(case, bits=False, steps=3, weights=False)
                for run in ("ddp", "grad_op", "full"):
                    shutil.rmtree(self.folder / run)

    def test_beside_other_instructions_no_bit_changes(self):
        found = []
        for overlap in ("true", "false"):
            self.shards("resnet-tiny", "parallel.bucket_bytes=20000", f"compiler.overlap={overlap}", mode="full", ranks=2)
            self.train("plan.tplan", self.data("resnet-tiny"), overlap, "--steps", 3, nproc=2)
            found.append(losses(self.folder / overlap))
        self.assertEqual(found[0], found[1])


class Accumulators(Sharded):
    """A window's gradients in shards: the sums of whole accumulators in another order, in the memory of shards."""
    WINDOW = ("train.accumulate=3", "parallel.bucket_bytes=4000")

    def run_of(self, case, accumulators, *settings, mode="full", ranks=2, steps=4, words=(), **options):
        plan = self.shards(case, *self.WINDOW, f"parallel.accumulators={accumulators}", *settings, mode=mode, ranks=ranks,
                           plan=f"{accumulators}.tplan")
        shutil.rmtree(self.folder / accumulators, ignore_errors=True)
        self.train(plan, self.data(case), accumulators, "--steps", steps, *words, nproc=ranks, **options)
        return losses(self.folder / accumulators), self.weights(accumulators)

    def check(self, case, *settings, rtol=1e-6, **options):
        expected, first = self.run_of(case, "whole", *settings, **options)
        found, second = self.run_of(case, "shards", *settings, **options)
        self.assertGreater(np.ptp(expected), 0)
        np.testing.assert_allclose(found, expected, rtol=rtol)
        for name, value in first.items():
            np.testing.assert_allclose(second[name], value, rtol=100 * rtol, atol=10 * rtol, err_msg=name)

    def test_the_losses_of_whole_accumulators(self):
        for mode, ranks in (("grad_op", 2), ("full", 4)):
            with self.subTest(mode):
                # Adam would make steps of the rounding errors that are the gradients of the keys' biases.
                self.check("nano-gpt", "optimizer.kind=sgd", "optimizer.lr=0.1", mode=mode, ranks=ranks)

    def test_gradients_in_bf16_on_their_way(self):
        self.check("nano-gpt", "train.precision=bf16", "parallel.reduce_dtype=bf16", rtol=1e-3)

    def test_f16_with_a_loss_scale(self):
        self.check("mlp", "train.precision=f16", "parallel.reduce_dtype=f16", mode="grad_op", rtol=1e-3)

    def test_statistics_over_all_ranks(self):
        self.check("cnn-bn", "parallel.batch_norm=sync", rtol=1e-5)

    def test_each_rank_holds_its_part(self):
        memory = {}
        for accumulators in ("whole", "shards"):
            plan = self.shards("nano-gpt", *self.WINDOW, f"parallel.accumulators={accumulators}", mode="grad_op", ranks=4)
            memory[accumulators] = self.report(plan)["memory"]
        whole, part = (memory[name]["resident"]["accumulators"] for name in ("whole", "shards"))
        self.assertLess(abs(part - whole / 4), 4 * 40, "40 tensors, each with at most a row of padding")
        # A gradient is in memory until its bucket is sent, not until the end of the backward pass.
        self.assertLess(memory["shards"]["arena_bytes"] - memory["whole"]["arena_bytes"], whole / 4)

    def test_a_budget_that_whole_ones_exceed_names_the_way_out(self):
        def words(accumulators, budget):
            settings = ("parallel.mode=full", "parallel.ranks=4", *self.WINDOW, f"parallel.accumulators={accumulators}")
            return ("tcc", ZOO / "nano-gpt" / "model.onnx", "--recipe", ZOO / "nano-gpt" / "recipe.toml", "--entry", "train",
                    "--memory-budget", budget, *[word for one in settings for word in ("--set", one)])
        message = self.command(*words("whole", "100KiB")).err
        self.assertIn('parallel.accumulators = "shards"', message)
        least = int(re.search(r"smallest budget that does is .*?\((\d+) bytes\)", message)[1])
        self.succeed(*words("shards", f"{least - 100000}B"))
        self.assertNotIn("parallel.accumulators", self.command(*words("shards", "100KiB")).err)

    def tanh_layers(self, batch):
        """Eight layers of little weight."""
        nodes, layers, width = [], 8, 48
        for i in range(layers):
            out = "prediction" if i + 1 == layers else f"h{i}"
            nodes += [models.helper.make_node("MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"s{i}"], f"layer{i}"),
                      models.helper.make_node("Tanh", [f"s{i}"], [out], f"tanh{i}")]
        return models.save(self.folder / "m.onnx", nodes, {"x": [batch, width]}, {"prediction": [batch, width]},
                           {f"w{i}": models.random(i, width, width) for i in range(layers)})

    def within(self, batch, accumulators, budget=None, refused=False):
        """Bytes, cost and notes of the layers' plan; `refused`: the smallest budget, where none fits."""
        words = (self.tanh_layers(batch), "--recipe", self.write("r.toml", models.SQUARES + models.SGD), "--entry", "train",
                 *(word for key in ("mode=full", "ranks=4", *([f"accumulators={accumulators}"] if accumulators else []))
                   for word in ("--set", f"parallel.{key}")), "--set", "train.accumulate=2", *(["--memory-budget", budget] if budget else []))
        if refused:
            message = self.refuse(3, ["no plan fits"], "tcc", *words, "-o", "p").err
            return int(re.search(r"smallest budget that does is .*?(\d+) bytes", message)[1])
        report = self.report(self.compile(*words))
        memory = report["memory"]["resident_bytes"] + report["memory"]["arena_bytes"]
        return memory, report["recompute"]["cost_ns"], [note["text"] for note in report["notes"] if note["kind"] == "accumulators"]

    def test_a_budget_decides_where_the_recipe_does_not(self):
        """The plan is that of the explicit value but for its note."""
        whole, shards = (self.within(64, kind, "1KiB", refused=True) for kind in ("whole", "shards"))
        self.assertLess(shards, whole)
        self.assertEqual(self.within(64, "", "1KiB", refused=True), shards)
        for budget, taken, reason in ((None, "whole", None), (whole * 4, "whole", None),
                                      (whole - 1, "shards", "^shards, which send .* more in an update: with whole ones, .*, no plan fits")):
            memory, cost, notes = self.within(64, "", budget)
            self.assertEqual((memory, cost), self.within(64, taken, budget)[:2])
            self.assertEqual(len(notes), bool(reason))
            if reason:
                self.assertRegex(notes[0], reason)

    def test_shards_have_to_save_more_than_they_send(self):
        """Where whole ones fit, too, but with a longer update. By computing alone shards take less time in both cases; with little to
        compute again, sending them takes longer than that."""
        for batch, less, taken in ((128, 1, "shards"), (64, 20000, "whole")):
            limit = self.within(batch, "whole")[0] - less
            costs = {kind: self.within(batch, kind, limit)[1] for kind in ("whole", "shards")}
            self.assertGreater(costs["whole"], costs["shards"])
            memory, cost, [note] = self.within(batch, "", limit)
            self.assertLessEqual(memory, limit)
            self.assertEqual(cost, costs[taken], note)
            self.assertRegex(note, rf"^{taken}: within the memory budget of .* an update takes \d.* % longer than without one if they are whole, \d.* %")

    def test_a_batch_that_only_shards_allow_is_found(self):
        model = self.tanh_layers("batch")

        def words(accumulators, budget):
            settings = ("parallel.mode=full", "parallel.ranks=4", "parallel.bucket_bytes=1000", "train.accumulate=2",
                        f"parallel.accumulators={accumulators}")
            return ("tcc", model, "--recipe", self.write("r.toml", models.SQUARES + models.SGD), "--entry", "train", "--memory-budget", budget,
                    *[word for one in settings for word in ("--set", one)], "-o", "p")

        message = self.refuse(3, ["no plan fits"], *words("whole", "1KiB"), "--dim", "batch=8").err
        least = int(re.search(r"smallest budget that does is .*?(\d+) bytes", message)[1])
        found = [int(re.search(r"a batch of (\d+) fits", self.succeed(*words(accumulators, f"{least}B"), "--fit", "batch").err)[1])
                 for accumulators in ("whole", "auto")]
        self.assertGreater(found[1], found[0])

    def test_resumes_bit_for_bit_and_ends_in_a_short_window(self):
        """An epoch of nano-gpt has 2 batches for each of 2 ranks: windows of 2 in place of 3."""
        expected, first = self.run_of("nano-gpt", "shards", steps=6)
        found, _ = self.run_of("nano-gpt", "shards", steps=3)
        self.assertEqual(found, expected[:3])
        self.succeed("trun", "--resume", "shards", "--steps", 6)
        self.assertEqual(losses(self.folder / "shards"), expected)
        for name, value in self.weights("shards").items():
            np.testing.assert_array_equal(value, first[name], err_msg=name)

    def test_a_nan_in_one_ranks_data_is_found_there(self):
        data = safetensors.numpy.load_file(self.data("mlp"))
        data["x"][32 + 7, 3] = np.nan
        safetensors.numpy.save_file(data, self.folder / "d.safetensors")
        for mode in ("grad_op", "full"):
            plan = self.shards("mlp", *self.WINDOW, "parallel.accumulators=shards", mode=mode, ranks=2)
            self.refuse(4, ["step 1", "NaN.*rank 1 \\(host|sample 39"], "trun", plan, "--data", "d.safetensors", "--out",
                        mode, "--no-shuffle", "--nproc", 2)

    def test_what_does_not_go_together_says_so(self):
        for patterns, settings in (
                (["parallel.accumulators", "grad_op"], ["parallel.mode=ddp"]),
                (["parallel.accumulators", "leave parallel.average out"], ["parallel.mode=full", "parallel.ranks=2", "parallel.average=ranks"]),
                (["train.virtual_ranks", "leave parallel.accumulators out"], ["parallel.mode=full", "parallel.ranks=2", "train.virtual_ranks=4"])):
            self.refuse(1, patterns, "tcc", ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--entry", "train",
                        *[word for one in (*settings, "parallel.accumulators=shards") for word in ("--set", one)])


class State(Sharded):
    def test_each_rank_holds_its_part(self):
        """The parts on 4 ranks add up to one rank's moments, and in mode full to its parameters, plus fewer than 4 elements of
        padding for each tensor."""
        resident, transient = {}, {}
        for mode in ("ddp", "grad_op", "full"):
            self.shards("nano-gpt", "optimizer.kind=adamw", "parallel.bucket_bytes=4000", NEVER_CLIPS, mode=mode, ranks=4,
                        plan=f"{mode}.tplan")
            memory = self.report(f"{mode}.tplan")["memory"]
            resident[mode], transient[mode] = memory["resident_bytes"], memory["arena_bytes"]
            text = self.train(f"{mode}.tplan", self.data("nano-gpt"), mode, "--steps", 1, nproc=4).err
            self.assertIn("memory: resident", text)
        state = safetensors.numpy.load_file(self.folder / "ddp" / "checkpoints" / "step-1" / "state.safetensors")
        moments = {name: value for name, value in state.items() if name.endswith(("/exp_avg", "/exp_avg_sq"))}
        self.assertGreater(len(moments), 10)
        align = lambda count: (4 * count + 63) // 64 * 64
        saved = lambda values: sum(align(value.size) - align(-(-value.size // 4)) for value in values)
        self.assertEqual(resident["ddp"] - resident["grad_op"], saved(moments.values()))
        trained = [state[name.removesuffix("/exp_avg")] for name in moments if name.endswith("/exp_avg")]
        self.assertEqual(resident["grad_op"] - resident["full"], saved(trained))
        # In memory are the gathered parameter that an instruction is using and the one that is gathered meanwhile, no others.
        self.assertLess(transient["full"] - transient["grad_op"], 2 * max(value.nbytes for value in trained))
        checkpoint = self.folder / "grad_op" / "checkpoints" / "step-1"
        parts = [safetensors.numpy.load_file(checkpoint / f"state{rank}.safetensors") for rank in ("", ".rank-1", ".rank-2", ".rank-3")]
        for name, value in moments.items():
            found = np.concatenate([part[name] for part in parts if name in part])
            np.testing.assert_array_equal(found, value.reshape(-1), err_msg=name)
            self.assertLessEqual(max(part[name].size for part in parts if name in part), -(-value.size // 4))


class Checkpoints(Sharded):
    def setUp(self):
        super().setUp()
        self.settings = ("optimizer.kind=adamw", "optimizer.lr=0.01")
        self.four = self.shards("mlp", *self.settings, mode="grad_op", ranks=4, plan="four.tplan")

    def test_resumes_on_as_many_ranks_bit_for_bit(self):
        self.train(self.four, self.data("mlp"), "whole", "--steps", 8, nproc=4)
        self.train(self.four, self.data("mlp"), "run", "--steps", 5, nproc=4)
        self.succeed("trun", "--resume", "run", "--steps", 8)
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "whole"))
        self.assertEqual([path.name for path in sorted((self.folder / "run" / "checkpoints" / "step-8").iterdir())],
                         ["manifest.json", "state.rank-1.safetensors", "state.rank-2.safetensors", "state.rank-3.safetensors",
                          "state.safetensors"])

    def test_goes_on_in_every_mode_and_number_of_ranks(self):
        self.train(self.four, self.data("mlp"), "run", "--steps", 2, nproc=4)
        before = safetensors.numpy.load_file(self.folder / "run" / "checkpoints" / "step-2" / "state.safetensors")
        self.assertTrue(before)
        for mode, ranks in (("ddp", 1), ("ddp", 4), ("grad_op", 2), ("full", 3), ("full", 4)):
            with self.subTest(f"{mode} on {ranks}"):
                plan = self.shards("mlp", *self.settings, mode=mode, ranks=ranks, plan=f"{mode}{ranks}.tplan")
                self.succeed("trun", plan, "--data", self.data("mlp"), "--resume", "run", "--out", f"{mode}{ranks}", "--steps", 4,
                             "--nproc", ranks)
                self.assertEqual(len(losses(self.folder / f"{mode}{ranks}")), 2)
        # With the same number of ranks and global batch the sums are the same, however the state is divided.
        self.succeed("trun", "--resume", "run", "--steps", 4)
        self.assertEqual(losses(self.folder / "run")[2:], losses(self.folder / "ddp4"))
        self.assertEqual(losses(self.folder / "run")[2:], losses(self.folder / "full4"))
        # Back to shards from a checkpoint that a single rank wrote.
        self.succeed("trun", self.four, "--data", self.data("mlp"), "--resume", "ddp4", "--out", "back",
                     "--steps", 6, "--nproc", 4)
        self.succeed("trun", "--resume", "run", "--steps", 6)
        self.assertEqual(losses(self.folder / "back"), losses(self.folder / "run")[4:])
        self.succeed("trun", self.four, "--data", self.data("mlp"), "--resume", "full3", "--out", "again", "--steps", 6, "--nproc", 4)

    def test_evaluates_and_exports(self):
        plan = self.shards("mlp", *self.settings, mode="grad_op", ranks=2, entry="train,evaluate")
        result = self.train(plan, self.data("mlp"), "run", "--steps", 4, "--eval-data", self.data("mlp"), "--eval-every", 2, nproc=2)
        self.assertIn("eval_loss", result.err)
        self.assertTrue((self.folder / "run" / "model.onnx").exists())
        self.succeed("trun", "eval", plan, "--from", "run@best", "--data", self.data("mlp"))

    def test_a_full_runs_model_is_made_of_the_shards(self):
        found = {}
        for mode in ("ddp", "full"):
            plan = self.shards("mlp", *self.settings, mode=mode, ranks=3, plan=f"{mode}.tplan")
            self.train(plan, self.data("mlp"), mode, "--steps", 3, nproc=3)
            found[mode] = (self.folder / mode / "model.onnx").read_bytes(), self.weights(mode)
            # Another run begins with these weights, and the plan for one rank evaluates them.
            self.train(plan, self.data("mlp"), f"{mode}2", "--steps", 1, "--init", mode, nproc=3)
        self.assertEqual(found["full"][0], found["ddp"][0])
        self.assertEqual(losses(self.folder / "full2"), losses(self.folder / "ddp2"))
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--entry", "evaluate", plan="eval.tplan")
        self.succeed("trun", "eval", "eval.tplan", "--from", "full", "--data", self.data("mlp"))

    def test_a_damaged_part_is_named(self):
        self.train(self.four, self.data("mlp"), "run", "--steps", 2, nproc=4)
        part = self.folder / "run" / "checkpoints" / "step-2" / "state.rank-2.safetensors"
        part.write_bytes(part.read_bytes()[:-4] + b"\0\0\1\0")
        self.refuse(1, ["state.rank-2.safetensors: damaged"], "trun", "--resume", "run", "--steps", 3)

    def test_a_checkpoint_that_cannot_be_written_holds_up_no_rank(self):
        process = self.start(self.four, "--data", self.data("mlp"), "--out", "run", "--steps", 10**7, "--nproc", 4)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        blocked = self.folder / "run" / "checkpoints"
        blocked.rmdir()
        blocked.touch()  # a file in place of a folder
        process.send_signal(signal.SIGUSR1)
        self.wait_for_updates("run", 40)
        time.sleep(0.5)
        self.assertIn("training goes on", (self.folder / "run" / "ranks" / "rank-2.log").read_text())
        process.terminate()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err.decode(), r"warning: .*run/checkpoints.*training goes on and tries again")
        self.assertFalse([rank for rank in ranks if alive(rank)])

    def test_a_signal_ends_all_ranks_with_one_whole_checkpoint(self):
        process = self.start(self.four, "--data", self.data("mlp"), "--out", "run", "--steps", 10**7, "--nproc", 4)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        process.terminate()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)
        self.assertFalse([rank for rank in ranks if alive(rank)])
        step = int(re.search(r"stopped by SIGTERM after update (\d+)", err.decode()).group(1))
        self.assertEqual(len(list((self.folder / "run" / "checkpoints" / f"step-{step}").iterdir())), 5)
        self.succeed("trun", "--resume", "run", "--steps", step + 1)


class Refusals(Sharded):
    def test_what_does_not_go_together_says_so(self):
        plan = self.shards("mlp", mode="grad_op", ranks=2)
        words = ("trun", plan, "--data", self.data("mlp"), "--out", "run")
        self.refuse(1, ["sharded over 2 ranks", "the job has 1", "--nproc 2", "parallel.ranks=1"], *words)
        self.refuse(1, ["sharded over 2 ranks", "the job has 3"], *words, "--nproc", 3)
        self.assertFalse((self.folder / "run").exists())
        model, recipe = ZOO / "mlp" / "model.onnx", ZOO / "mlp" / "recipe.toml"
        for patterns, settings in (
                (["grad_op", "needs parallel.ranks"], ["parallel.mode=grad_op"]),
                (["parallel.ranks needs parallel.mode", "any number of ranks"], ["parallel.mode=ddp", "parallel.ranks=2"]),
                (["--entry predict", "parallel.mode=none"], ["parallel.mode=full", "parallel.ranks=2"])):
            self.refuse(1, patterns, "tcc", model, "--recipe", recipe, "--entry", "train,predict",
                        *[word for one in settings for word in ("--set", one)])
        self.refuse(1, ["--entry evaluate", "parallel.mode=none"], "tcc", model, "--recipe", recipe, "--entry", "evaluate",
                    "--set", "parallel.mode=full", "--set", "parallel.ranks=2")
        # The refusals suggest these plans.
        self.shards("mlp", mode="grad_op", ranks=1)
        self.train("plan.tplan", self.data("mlp"), "run", "--steps", 2)
        self.shards("mlp", mode="none", ranks=1, entry="train,predict")


if __name__ == "__main__":
    unittest.main(verbosity=2)
