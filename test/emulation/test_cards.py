"""Several ranks on emulated cards: `test_cards.py STANDIN [--all] [NAME...]`; STANDIN is the folder of libcuda.so.1.

Each rank has a card of its own, and NCCL's stand-in connects them. Losses are those of one card with the same global batch. If
ranks end, libraries are missing or there are too few cards, one message says so, and no rank waits in vain.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import numpy as np
import safetensors.numpy
from common import BIN, PLUGINS, ZOO
from test_ranks import FAILURE_SECONDS, Jobs, alive, children_of, losses

ALL = "--all" in sys.argv
sys.argv = [word for word in sys.argv if word != "--all"]


class CardJobs(Jobs):
    def plan(self, case, *settings, mode="ddp", ranks=1, name="plan.tplan", entries="train"):
        words = ["parallel.mode=" + mode] * (mode != "none") + [f"parallel.ranks={ranks}"] * (mode in ("grad_op", "full"))
        words += ["parallel.shard_within_node=2"] * (mode == "hybrid")
        self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", entries, "--target", "cuda:sm_90",
                     *[word for setting in (*words, *settings) for word in ("--set", setting)], plan=name)
        return name

    def run_cards(self, plan, case, out, *more, nproc=1, steps=5, **settings):
        settings = {"mode": "fast", "devices": nproc} | settings
        result = self.succeed("trun", plan, "--data", ZOO / case / "data.safetensors", "--out", out, "--no-shuffle", "--device", "cuda",
                              "--no-release", "--steps", steps, "--nproc", nproc, *more, env=os.environ | stand_in(**settings))
        self.assertNotIn("emulation:", result.err)
        return result


class SameAsOneCard(CardJobs):
    """The global batch is 4 batches of the model: by 4, 2 or 1 micro-batches on 1, 2 or 4 ranks."""

    def check(self, case, *settings, jobs, tolerance=1e-5, steps=5, weights=True):
        expected, trained = None, {}
        for mode, ranks in [("none", 1), *jobs]:
            with self.subTest(case=case, mode=mode, ranks=ranks):
                words = [setting for setting in settings if mode != "none" or not setting.startswith("parallel")]
                plan = self.plan(case, f"train.accumulate={4 // ranks}", *words, mode=mode, ranks=ranks)
                run = f"{case}-{mode}{ranks}"
                self.run_cards(plan, case, run, nproc=ranks, steps=steps)
                found = losses(self.folder / run)
                expected = expected or found
                self.assertEqual(len(found), steps)
                np.testing.assert_allclose(found, expected, rtol=tolerance)
                if not weights:
                    continue
                self.succeed("trun", "export", run, "-o", f"{run}.safetensors")
                own = safetensors.numpy.load_file(self.folder / f"{run}.safetensors")
                trained = trained or own
                for name, value in own.items():
                    if "running" not in name and "num_batches" not in name:
                        np.testing.assert_allclose(value, trained[name], rtol=100 * tolerance, atol=10 * tolerance, err_msg=name)
        self.assertGreater(np.ptp(expected), 0)

    def test_mlp_in_every_mode(self):
        self.check("mlp", jobs=[("ddp", 1), ("ddp", 2), ("ddp", 4), ("grad_op", 2), ("grad_op", 4), ("full", 2), ("full", 4)])

    def test_two_nodes_that_each_have_all_shards(self):
        self.check("mlp", jobs=[("hybrid", 4)])
        self.check("nano-gpt", "train.clip_norm=0.5", "parallel.bucket_bytes=1000", jobs=[("hybrid", 4)], steps=3)

    def test_three_ranks_divide_nothing_equally(self):
        """Broadcasts and reductions carry shards of unequal size."""
        runs = []
        for mode in ("ddp", "grad_op", "full"):
            self.run_cards(self.plan("mlp", mode=mode, ranks=3), "mlp", mode, nproc=3)
            runs.append(losses(self.folder / mode))
        np.testing.assert_allclose(runs[1:], runs[:1] * 2, rtol=1e-5)

    def test_a_transformer_with_clipping_in_small_buckets(self):
        self.check("nano-gpt", "train.clip_norm=0.5", "parallel.bucket_bytes=1000", jobs=[("ddp", 2), ("full", 4)], steps=4)

    def test_accumulators_in_shards(self):
        self.check("nano-gpt", "parallel.accumulators=shards", "parallel.bucket_bytes=4000",
                   jobs=[("grad_op", 2), ("full", 2)], steps=3)

    def test_batch_norm_of_each_rank(self):
        self.check("cnn-bn", jobs=[("ddp", 2)], steps=3)

    def test_gradients_in_bf16_on_their_way(self):
        self.check("mlp", "parallel.reduce_dtype=bf16", jobs=[("ddp", 2)], tolerance=1e-3)

    def test_what_ranks_do_within_a_step_is_as_on_cpus(self):
        """Statistics over all ranks, and each rank's denominators, compared with the same number of ranks on CPUs."""
        for case, setting in (("cnn-bn", "parallel.batch_norm=sync"), ("mlp", "parallel.average=ranks")):
            found = []
            self.run_cards(self.plan(case, setting), case, f"{case}-cards", nproc=2, steps=2)
            found.append(losses(self.folder / f"{case}-cards"))
            self.zoo(case, setting, plan="cpu.tplan")
            self.train("cpu.tplan", ZOO / case / "data.safetensors", f"{case}-cpus", "--steps", 2, "--no-release", nproc=2)
            found.append(losses(self.folder / f"{case}-cpus"))
            np.testing.assert_allclose(*found, rtol=1e-5, err_msg=case)

    @unittest.skipUnless(ALL, "--all takes the whole zoo")
    def test_every_case_of_the_zoo(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            self.check(case, jobs=[("ddp", 2), ("full", 2)], steps=3, weights=False)


class VirtualRanks(CardJobs):
    def check(self, case, *settings, mode="ddp", least=1):
        plan, data = f"{mode}.tplan", ZOO / case / "data.safetensors"
        found, weights = [], []
        for ranks in (1, 2, 4):
            if ranks < least:
                continue
            if mode != "ddp" or not found:
                self.plan(case, "train.virtual_ranks=4", *settings, mode=mode, ranks=ranks, name=plan)
            self.run_cards(plan, case, f"{mode}{ranks}", nproc=ranks, steps=3)
            self.succeed("trun", "export", f"{mode}{ranks}", "-o", "weights.safetensors")
            found.append(losses(self.folder / f"{mode}{ranks}"))
            weights.append((self.folder / "weights.safetensors").read_bytes())
        self.assertEqual(found, found[:1] * len(found))
        self.assertEqual(weights, weights[:1] * len(weights))
        self.zoo(case, "parallel.mode=ddp", "train.virtual_ranks=4", *settings, plan="cpu.tplan")
        self.train("cpu.tplan", data, f"{mode}-cpu", "--steps", 3, "--no-release", nproc=2)
        np.testing.assert_allclose(found[0], losses(self.folder / f"{mode}-cpu"), rtol=1e-5)

    def test_the_same_bits_on_any_number_of_ranks(self):
        self.check("nano-gpt", "train.clip_norm=0.5", "parallel.bucket_bytes=1000")

    def test_with_shards(self):
        """The cards' reduce-scatters add in an order of their own, so that every rank gets whole sums and keeps its part."""
        self.check("mlp", mode="full", least=2)
        report = self.succeed("tcc", "report", "full.tplan").out
        self.assertIn("all-reduce", report)
        self.assertNotIn("reduce-scatter", report)


class Runs(CardJobs):
    def test_every_check_in_several_orders_gives_the_same_bits(self):
        """With collectives beside other instructions; each seed runs the work of both streams in another order."""
        for mode in ("ddp", "full", "hybrid"):
            plan = self.plan("nano-gpt", "parallel.bucket_bytes=1000", mode=mode, ranks=2)
            report = json.loads(self.succeed("tcc", "report", plan, "--json").out)
            resident = (report["memory"]["resident_bytes"] + 255) // 256 * 256
            found = set()
            for order, seed in (("ascending", 1), ("seeded", 3)):
                run = f"{mode}-{order}"
                self.run_cards(plan, "nano-gpt", run, nproc=2, steps=2, order=order, seed=seed, cleared=resident, mode="checked")
                found.add(tuple(losses(self.folder / run)))
            self.assertEqual(len(found), 1, found)

    def test_collectives_beside_other_instructions_change_no_bit(self):
        found = []
        for overlap in ("true", "false"):
            plan = self.plan("nano-gpt", "parallel.bucket_bytes=1000", f"compiler.overlap={overlap}")
            self.run_cards(plan, "nano-gpt", overlap, nproc=2, steps=3)
            found.append(losses(self.folder / overlap))
        self.assertEqual(*found)

    def test_resumes_bit_for_bit_and_evaluates(self):
        data = ZOO / "mlp" / "data.safetensors"
        plan = self.plan("mlp", mode="grad_op", ranks=2, entries="train,evaluate")
        evaluation = ["--eval-data", data, "--eval-every", 2]
        self.run_cards(plan, "mlp", "whole", *evaluation, nproc=2, steps=6)
        self.run_cards(plan, "mlp", "broken", *evaluation, nproc=2, steps=3)
        env = os.environ | stand_in(mode="fast", devices=2)
        self.succeed("trun", "--resume", "broken", "--steps", 6, env=env)
        self.assertEqual(losses(self.folder / "broken"), losses(self.folder / "whole"))
        evaluations = [[json.loads(line)["eval_loss"] for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()
                        if '"eval_loss"' in line] for run in ("whole", "broken")]
        self.assertEqual(evaluations[0][-1], evaluations[1][-1])

    def test_profile_lists_collectives(self):
        plan = self.plan("mlp")
        out = self.succeed("trun", "profile", plan, "--data", ZOO / "mlp" / "data.safetensors", "--nproc", 2, "--json",
                           env=os.environ | stand_in(mode="fast", devices=2)).out
        collectives = json.loads(out)["collectives"]
        self.assertTrue(collectives)
        self.assertTrue(all(one["seconds"] > 0 for one in collectives), collectives)

    @unittest.skipUnless(shutil.which("mpirun") and (PLUGINS / "trun-mpi.so").exists(), "needs Open MPI")
    def test_ranks_that_mpi_starts(self):
        plan = self.plan("mlp")
        env = os.environ | stand_in(mode="fast", devices=2) | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run(["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", BIN / "trun", plan, "--data",
                        ZOO / "mlp" / "data.safetensors", "--out", "mpi", "--no-shuffle", "--device", "cuda", "--no-release", "--steps", "3"],
                       cwd=self.folder, env=env, check=True, capture_output=True, timeout=120)
        self.run_cards(plan, "mlp", "own", nproc=2, steps=3)
        self.assertEqual(losses(self.folder / "mpi"), losses(self.folder / "own"))

    def test_memory_of_nccl_is_told(self):
        result = self.run_cards(self.plan("mlp"), "mlp", "run", nproc=2, steps=1)
        self.assertRegex(result.err, r"together .* on the device with 1 worker, and 16\.\d MiB of libraries")


class Failures(CardJobs):
    data = ZOO / "mlp" / "data.safetensors"

    def job(self, *more, ranks=3, mode="ddp", **settings):
        plan = self.plan("mlp", mode=mode)
        return self.start(plan, "--data", self.data, "--out", "run", "--steps", 10**7, "--device", "cuda", "--nproc", ranks,
                          "--checkpoint-every", 2, *more, env=stand_in(**{"mode": "fast", "devices": ranks} | settings))

    def ended(self, process, begun, ranks, pattern):
        _, err = process.communicate(timeout=60)
        taken = time.monotonic() - begun
        text = err.decode()
        self.assertEqual(process.returncode, 1, text)
        self.assertLess(taken, FAILURE_SECONDS, text)
        self.assertRegex(text, pattern)
        self.assertEqual(text.count("trun: error:"), 1, text)
        self.assertFalse([rank for rank in ranks if alive(rank)])
        return text

    def stricken(self, rank, number, pattern):
        process = self.job()
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        begun = time.monotonic()
        os.kill(ranks[rank], number)
        text = self.ended(process, begun, ranks, pattern)
        self.assertRegex(text, r"holds the state after update \d+; go on with: .*trun --resume run")

    def test_a_killed_rank(self):
        """If it dies between two updates, where ranks agree on a checkpoint, the message has no entry to name."""
        self.stricken(1, signal.SIGKILL, r"error: step \d+: (entry 'step': )?rank 1 \(host .*\) has ended; its last sign of life was in step \d+")

    def test_a_killed_rank_of_a_node(self):
        """Every communicator ends: the other ranks wait in their node's, or in the one across nodes."""
        process = self.job(mode="hybrid", ranks=4)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        begun = time.monotonic()
        os.kill(ranks[3], signal.SIGKILL)
        self.ended(process, begun, ranks, r"rank 3 \(host .*\) has ended")

    def test_a_stopped_rank(self):
        self.stricken(2, signal.SIGSTOP, r"rank 2 \(host .*\) has been silent for 6 s")

    def test_a_killed_first_rank(self):
        process = self.job()
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        begun = time.monotonic()
        os.kill(ranks[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS)
        self.assertRegex(err.decode(), r"rank 0 \(process \d+\) was ended by signal 9")
        self.assertFalse([rank for rank in ranks if alive(rank)])

    def test_a_rank_that_ends_while_all_join(self):
        begun = time.monotonic()
        self.ended(self.job(nccl_leaves=1), begun, [], r"rank 1 \(host .*\) has ended")

    def test_an_error_of_nccl_ends_the_job(self):
        process = self.job(nccl_fails=40)
        begun = time.monotonic()
        self.ended(process, begun, [], r"rank \d \(host .*\): a collective: remote error.*\(NCCL 2\.30\.7\)")

    def test_a_signal_ends_all_ranks_with_one_checkpoint(self):
        process = self.job()
        self.wait_for_updates("run")
        process.terminate()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(err.decode(), r"stopped by SIGTERM after update \d+")

    def test_a_nan_in_one_ranks_data_is_found_there(self):
        data = safetensors.numpy.load_file(self.data)
        data["x"][32 + 7, 3] = np.nan  # the second batch: rank 1's first
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in data.items()}, self.folder / "d.safetensors")
        self.refuse(4, ["step 1", "NaN.*rank 1 \\(host|sample 39"], "trun", self.plan("mlp"), "--data", "d.safetensors", "--out", "run",
                    "--no-shuffle", "--steps", 3, "--device", "cuda", "--nproc", 2, env=os.environ | stand_in(mode="fast", devices=2))

    def test_a_learning_rate_that_is_too_large(self):
        """Each rank searches for the faulty node by itself, without the others."""
        self.refuse(4, [r"step \d+", "node|norm"], "trun", self.plan("mlp", "optimizer.lr=1e30"), "--data", self.data, "--out", "run",
                    "--no-shuffle", "--steps", 9, "--device", "cuda", "--nproc", 2, env=os.environ | stand_in(mode="checked", devices=2))

    def test_without_nccl(self):
        alone = self.folder / "driver-alone"
        alone.mkdir()
        for name in ("libcuda.so.1", "libcublasLt.so.13"):
            (alone / name).symlink_to(STANDIN / "libcuda.so.1")
        (alone / "libnccl.so.2").write_text("no library")
        env = os.environ | stand_in(devices=2, mode="fast") | {"LD_LIBRARY_PATH": str(alone)}
        words = ["trun", self.plan("mlp"), "--data", self.data, "--device", "cuda", "--steps", 1]
        result = self.refuse(1, ["NCCL", "libnccl.so.2", "libnccl2", "nvidia-nccl-cu13"], *words, "--nproc", 2, env=env)
        self.assertEqual(result.err.count("NCCL, which"), 1, result.err)
        self.succeed(*words, "--out", "alone", env=env)  # one rank needs none

    def test_an_old_nccl(self):
        self.refuse(1, ["NCCL|libnccl", "2.12.10", "too old", "2.16"], "trun", self.plan("mlp"), "--data", self.data, "--device", "cuda",
                    "--steps", 1, "--nproc", 2, env=os.environ | stand_in(devices=2, mode="fast", nccl=21210))

    def test_cards_that_are_too_few(self):
        words = ["trun", self.plan("mlp"), "--data", self.data, "--device", "cuda", "--steps", 1, "--nproc"]
        self.refuse(1, ["rank 0 .*rank 1 .*run on one card, GPU-", "--nproc"], *words, 2, env=os.environ | stand_in(devices=1, mode="fast"))
        self.refuse(1, ["rank 2 of this machine needs a card of its own", "shows 2"], *words, 3,
                    env=os.environ | stand_in(devices=2, mode="fast"))

    def launched(self, *ranks):
        """Runs two ranks as a launcher would, each with its words and settings; returns their messages and exit statuses."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = [self.start(*words, "--data", self.data, "--out", "run", "--steps", 3, "--no-release", "--device", "cuda",
                                env=stand_in(**{"devices": 2, "mode": "fast"} | settings)
                                | {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                     for rank, (words, settings) in enumerate(ranks)]
        texts = [process.communicate(timeout=60)[1].decode() for process in processes]
        return texts, [process.returncode for process in processes]

    def test_another_plan_on_a_rank(self):
        self.plan("mlp", name="one.tplan")
        self.plan("mlp", "optimizer.lr=0.125", name="two.tplan")
        texts, codes = self.launched((["one.tplan"], {}), (["two.tplan"], {}))
        self.assertEqual(codes, [1, 1], texts)
        self.assertRegex(texts[0], r"the ranks of the job differ: rank 1 .* has plan [0-9a-f]{16} .*, rank 0 has")

    def test_algorithms_are_those_of_rank_0(self):
        plan = self.plan("mlp")
        texts, codes = self.launched(([plan, "--tune"], {}), ([plan], {}))
        self.assertEqual(codes, [0, 0], texts)
        shutil.rmtree(self.folder / "run")
        texts, codes = self.launched(([plan], {}), ([plan], {"blas": 130000}))
        self.assertEqual(codes, [1, 1], texts)
        self.assertRegex(texts[0], r"rank 1 .*: the run's products were computed by cuBLASLt 13\.1\.0, this machine has cuBLASLt 13\.0\.0"
                                   r".*give all ranks the same libraries and cards")


if __name__ == "__main__":
    print(f"stand-in {STANDIN}, commands {BIN}")
    unittest.main(verbosity=2)
