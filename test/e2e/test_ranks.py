"""Several ranks: the same losses as one rank, PyTorch's losses with DistributedDataParallel, failures that name their cause.

ranks/make_ddp.py made the cases under ranks/.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

import test_phases
from common import BIN, ROOT, SECONDS, ZOO, EndToEnd

RANKS = ROOT / "test" / "e2e" / "ranks"
FAILURE_SECONDS = 10  # after which no rank may be left


def losses(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stop(process):
    """Stops all threads of a process, and waits until they have stopped: SIGCONT lets them go on."""
    os.kill(process, signal.SIGSTOP)
    while any(" T " not in (task / "stat").read_text().rpartition(")")[2][:3] for task in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.001)


def flip_a_bit(process, weight):
    """Flips the lowest bit of an array's first byte wherever the process's memory holds the array; returns how many it found.

    The process is stopped meanwhile: its threads would unmap memory between the reading of the list and of the bytes."""
    flipped = 0
    stop(process)
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            begin, end = (int(word, 16) for word in span.split("-"))
            if not rights.startswith("rw") or "[v" in line:
                continue
            memory.seek(begin)
            at = memory.read(end - begin).find(weight.tobytes())
            if at >= 0:
                memory.seek(begin + at)
                memory.write(bytes([weight.tobytes()[0] ^ 1]))
                flipped += 1
    os.kill(process, signal.SIGCONT)
    return flipped


def children_of(process):
    """Rank → process number, by the order in which the launcher started its children."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found]


class Jobs(EndToEnd):
    def zoo(self, case, *settings, plan):
        words = [word for setting in ("parallel.mode=ddp", *settings) for word in ("--set", setting)]
        self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", "train", *words, plan=plan)

    def train(self, plan, data, out, *more, nproc=1, **options):
        return self.succeed("trun", plan, "--data", data, "--out", out, "--no-shuffle", "--nproc", nproc, *more, **options)

    def start(self, *arguments, env=None):
        """Starts a command that runs on while the test does something to it."""
        process = subprocess.Popen([str(BIN / "trun"), *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | (env or {}),
                                   start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def begin(self, *commands, nodes=None, env=lambda rank: {}):
        """Starts ranks as another launcher would, each with its own arguments and variables. `nodes`: number of ranks of each
        machine; by default one machine has all."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        places = [(local, size) for size in nodes or [len(commands)] for local in range(size)]
        return [self.start(*words, env={"RANK": str(rank), "WORLD_SIZE": str(len(commands)), "LOCAL_RANK": str(local),
                                        "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} | env(rank))
                for rank, (words, (local, size)) in enumerate(zip(commands, places, strict=True))]

    def torchrun_like(self, *commands, **how):
        """begin, and waits until they have ended: their messages and statuses."""
        return [(rank.communicate(timeout=SECONDS)[1].decode(), rank.returncode) for rank in self.begin(*commands, **how)]

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()

    def wait_for_updates(self, run, count=3):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            file = self.folder / run / "metrics.jsonl"
            if file.is_file() and file.read_text().count("\n") >= count:
                return
            time.sleep(0.02)
        self.fail("the run makes no updates")


class SameAsOneRank(Jobs):
    """The global batch is 4 batches of the model: by 4, 2 or 1 micro-batches on 1, 2 or 4 ranks."""

    def check(self, case, *settings, tolerance=1e-5, weight_tolerance=1e-3, weights=True):
        expected = None
        for ranks in (1, 2, 4):
            plan = f"{ranks}.tplan"
            self.zoo(case, f"train.accumulate={4 // ranks}", *settings, plan=plan)
            self.train(plan, ZOO / case / "data.safetensors", f"run{ranks}", "--steps", 5, "--no-release", nproc=ranks)
            self.succeed("trun", "export", f"run{ranks}", "-o", f"w{ranks}.safetensors")
            found = losses(self.folder / f"run{ranks}")
            trained = safetensors.numpy.load_file(self.folder / f"w{ranks}.safetensors")
            self.assertEqual(len(found), 5)
            if expected is None:
                expected, first = found, trained
                continue
            np.testing.assert_allclose(found, expected, rtol=tolerance, err_msg=f"{ranks} ranks")
            for name, value in trained.items() if weights else ():
                if "running" not in name and "num_batches" not in name:
                    np.testing.assert_allclose(value, first[name], rtol=weight_tolerance, atol=0.1 * weight_tolerance,
                                               err_msg=f"{ranks} ranks, {name}")
        self.assertGreater(np.ptp(expected), 0)

    def test_mlp(self):
        self.check("mlp")

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "a minute and a half; TCC_RANKS_ALL=1 runs it")
    def test_every_case_of_the_zoo(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            with self.subTest(case):
                self.check(case, weights=False)
                for run in self.folder.glob("run*"):
                    shutil.rmtree(run)

    def test_batch_norm_of_each_rank(self):
        self.check("cnn-bn")

    def test_parameters_without_a_gradient(self):
        self.check("unused-params")

    def test_a_transformer_with_clipping_in_small_buckets(self):
        self.check("nano-gpt", "train.clip_norm=0.5", "parallel.bucket_bytes=1000")

    def test_collectives_beside_other_instructions_change_no_bit(self):
        found = []
        for overlap in ("true", "false"):
            self.zoo("resnet-tiny", "parallel.bucket_bytes=20000", f"compiler.overlap={overlap}", plan=f"{overlap}.tplan")
            self.train(f"{overlap}.tplan", ZOO / "resnet-tiny" / "data.safetensors", overlap, "--steps", 4, nproc=2)
            found.append(losses(self.folder / overlap))
            profile = self.succeed("trun", "profile", f"{overlap}.tplan", "--data", ZOO / "resnet-tiny" / "data.safetensors",
                                   "--all", "--no-roofline", "--steps", 1, "--warmup", 0).out
            self.assertIn("over the ranks", profile)
            self.assertEqual("beside the next" in profile, overlap == "true")
        self.assertEqual(found[0], found[1])

    def test_averages_of_the_weights_on_the_device(self):
        self.check("mlp", "train.ema.decay=0.9", "train.ema.on=device")

    def test_f16_with_a_loss_scale(self):
        self.check("nano-gpt", "train.precision=f16", "parallel.reduce_dtype=f16", tolerance=1e-2,
                   weights=False)  # Adam moves the keys' bias although its gradient is nothing but rounding

    def test_recurrent_layers(self):
        self.check("lstm-lm")

    def test_moments_are_rounded_alike_on_every_rank(self):
        self.check("mlp", "optimizer.kind=adamw", "optimizer.lr=0.01", "optimizer.moments=bf16")

    def test_dropout_has_the_masks_of_one_rank(self):
        self.check("mlp", "adapter.targets=[\"*.weight\"]", "adapter.rank=1", "adapter.dropout=0.3", "adapter.train=[\"*.bias\"]")

    def test_gradients_in_bf16_on_their_way(self):
        self.check("mlp", "parallel.reduce_dtype=bf16", tolerance=2e-2, weight_tolerance=2e-2)

    def test_alternating_optimizers(self):
        found = []
        (self.folder / "gan.toml").write_text(test_phases.RECIPES["gan"])
        for ranks in (1, 2):
            self.compile(test_phases.FILES / "gan.onnx", "--recipe", "gan.toml", "--entry", "train", "--set", "parallel.mode=ddp",
                         "--set", f"train.accumulate={2 // ranks}")
            self.train("plan.tplan", test_phases.FILES / "gan.safetensors", f"run{ranks}", "--steps", 4, nproc=ranks)
            lines = [json.loads(line) for line in (self.folder / f"run{ranks}" / "metrics.jsonl").read_text().splitlines()]
            found.append([line[key] for line in lines for key in ("loss.d", "loss.g", "grad_norm.g") if key in line])
        self.assertEqual(len(found[0]), 4 + 2 + 2)
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5)

    def test_one_batch_of_all_samples(self):
        """Three ranks with a third of the samples each give the losses of one rank with a batch of all."""
        data = safetensors.numpy.load_file(ZOO / "mlp" / "data.safetensors")
        rows = next(iter(data.values())).shape[0]
        self.zoo("mlp", plan="ranks.tplan")
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--entry", "train", "--shape",
                     "x=96x20", plan="whole.tplan")
        self.train("ranks.tplan", ZOO / "mlp" / "data.safetensors", "ranks", "--steps", 4, nproc=3)
        self.train("whole.tplan", ZOO / "mlp" / "data.safetensors", "whole", "--steps", 4)
        self.assertGreaterEqual(rows, 96)
        np.testing.assert_allclose(losses(self.folder / "ranks"), losses(self.folder / "whole"), rtol=1e-5)


class AsPyTorch(Jobs):
    def check(self, case):
        folder = RANKS / case
        self.compile(folder / "model.onnx", "--recipe", folder / "recipe.toml", "--entry", "train")
        self.train("plan.tplan", folder / "data.safetensors", "run", "--steps", 8, nproc=2)
        expected = json.loads((folder / "expected.json").read_text())["loss"]
        np.testing.assert_allclose(losses(self.folder / "run"), expected, rtol=1e-5)
        self.succeed("trun", "export", "run", "-o", "w.safetensors")
        weights = safetensors.numpy.load_file(self.folder / "w.safetensors")
        for name, value in safetensors.numpy.load_file(folder / "state.safetensors").items():
            if name in weights:
                np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        return weights

    def test_batch_norm_keeps_the_statistics_of_rank_0(self):
        self.assertIn("body.1.running_var", self.check("batch-norm"))

    def test_unused_parameters_and_targets_that_do_not_count(self):
        self.check("unused")

    def test_attention_with_clipping(self):
        self.check("attention")


class Data(Jobs):
    def test_a_remainder_is_left_out_and_told(self):
        shape = safetensors.numpy.load_file(ZOO / "mlp" / "data.safetensors")
        self.zoo("mlp", plan="plan.tplan")
        count = 64 + 10
        safetensors.numpy.save_file({key: np.ascontiguousarray(value[:count]) for key, value in shape.items()},
                                    self.folder / "d.safetensors")
        result = self.train("plan.tplan", "d.safetensors", "run", "--epochs", 2, nproc=2)
        self.assertEqual(len(losses(self.folder / "run")), 2)
        self.assertIn("the last 10 samples of an epoch fill no batch of 2 ranks", result.err)

    def test_shuffled_epochs_are_those_of_one_rank(self):
        self.zoo("mlp", "train.accumulate=2", plan="one.tplan")
        self.zoo("mlp", plan="two.tplan")
        data = ZOO / "mlp" / "data.safetensors"
        self.succeed("trun", "one.tplan", "--data", data, "--out", "one", "--epochs", 2, "--seed", 3)
        self.succeed("trun", "two.tplan", "--data", data, "--out", "two", "--epochs", 2, "--seed", 3, "--nproc", 2)
        np.testing.assert_allclose(losses(self.folder / "two"), losses(self.folder / "one"), rtol=1e-5)

    def test_padded_ends_weigh_what_they_hold(self):
        folder = RANKS / "unused"
        whole = safetensors.numpy.load_file(folder / "data.safetensors")
        safetensors.numpy.save_file({key: value[:4 * 2 * 2 + 3] for key, value in whole.items()}, self.folder / "d.safetensors")
        found = []
        for ranks in (1, 2):
            self.compile(folder / "model.onnx", "--recipe", folder / "recipe.toml", "--entry", "train", "--set",
                         "parallel.average=exact", "--set", f"train.accumulate={2 // ranks}")
            self.train("plan.tplan", "d.safetensors", f"run{ranks}", "--epochs", 2, "--set", "data.last=pad", nproc=ranks)
            found.append(losses(self.folder / f"run{ranks}"))
        self.assertEqual(len(found[0]), 6)
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


class Runs(Jobs):
    def setUp(self):
        super().setUp()
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def test_the_same_bits_again_and_on_as_many_ranks_after_a_resume(self):
        for name in ("first", "second"):
            self.train("plan.tplan", self.data, name, "--steps", 9, nproc=4)
        self.train("plan.tplan", self.data, "broken", "--steps", 4, "--checkpoint-every", 4, nproc=4)
        self.succeed("trun", "--resume", "broken", "--steps", 9)
        options = json.loads((self.folder / "broken" / "run.json").read_text())
        self.assertEqual(options["nproc"], 4)
        whole = losses(self.folder / "first")
        self.assertEqual(losses(self.folder / "second"), whole)
        self.assertEqual(losses(self.folder / "broken"), whole)
        for name in ("first", "second", "broken"):
            self.succeed("trun", "export", name, "-o", f"{name}.safetensors")
        weights = [(self.folder / f"{name}.safetensors").read_bytes() for name in ("first", "second", "broken")]
        self.assertEqual(weights[1], weights[0])
        self.assertEqual(weights[2], weights[0])

    def test_resumes_on_other_numbers_of_ranks(self):
        self.train("plan.tplan", self.data, "run", "--steps", 2, nproc=4)
        for ranks in (1, 2, 3):
            shutil.copytree(self.folder / "run", self.folder / f"run{ranks}")
            result = self.succeed("trun", "--resume", f"run{ranks}", "--steps", 4, "--nproc", ranks)
            self.assertIn(f"the number of ranks differs from the run's: 4 → {ranks}", result.err)
            self.assertEqual(len(losses(self.folder / f"run{ranks}")), 4)

    def test_rank_0_alone_speaks_and_every_rank_keeps_a_log(self):
        result = self.train("plan.tplan", self.data, "run", "--steps", 3, nproc=3)
        self.assertEqual(result.err.count("3 updates"), 2, result)  # the lines at the run's start and end
        self.assertIn("x 3 ranks", result.err)
        logs = sorted(path.name for path in (self.folder / "run" / "ranks").iterdir())
        self.assertEqual(logs, ["rank-1.log", "rank-2.log"])
        self.assertIn("3 updates", (self.folder / "run" / "ranks" / "rank-2.log").read_text())

    def test_evaluation_and_early_stop_are_rank_0s(self):
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--set", "parallel.mode=ddp",
                     "--set", "evaluate.stop.patience=1", "--set", "optimizer.lr=0")
        result = self.train("plan.tplan", self.data, "run", "--steps", 20, "--eval-data", self.data, "--eval-every", 2, nproc=2)
        self.assertIn("stopped early after update 4", result.err)

    def test_a_signal_ends_all_ranks_with_one_checkpoint(self):
        process = self.start("plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7, "--nproc", 3)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        self.assertEqual(len(ranks), 3)
        process.terminate()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(err.decode(), r"stopped by SIGTERM after update \d+; .*--resume")
        self.assertFalse([rank for rank in ranks if alive(rank)])
        self.assertEqual(len(list((self.folder / "run" / "checkpoints").glob("step-*"))), 1)

    def test_a_nan_in_one_ranks_data_is_found_there(self):
        data = safetensors.numpy.load_file(self.data)
        data["x"][32 + 7, 3] = np.nan  # the second batch: rank 1's first
        data = {key: np.ascontiguousarray(value) for key, value in data.items()}
        safetensors.numpy.save_file(data, self.folder / "d.safetensors")
        self.refuse(4, ["step 1", "NaN.*rank 1 \\(host|sample 39"], "trun", "plan.tplan", "--data", "d.safetensors", "--out",
                    "run", "--no-shuffle", "--steps", 3, "--nproc", 2, "--set", "data.max_bad=0")

    def test_the_null_device_checks_what_any_number_of_ranks_does(self):
        data = {key: np.tile(value, (4,) + (1,) * (value.ndim - 1))
                for key, value in safetensors.numpy.load_file(self.data).items()}
        safetensors.numpy.save_file(data, self.folder / "d.safetensors")
        result = self.succeed("trun", "plan.tplan", "--data", "d.safetensors", "--device", "null", "--nproc", 16, "--steps", 1,
                              "--out", "run")
        self.assertIn("x 16 ranks", result.err)

    def test_the_report_tells_what_ranks_sum(self):
        report = json.loads(self.succeed("tcc", "report", "plan.tplan", "--json").out)
        notes = [note["text"] for note in report.get("notes", []) if note.get("kind") == "parallel"]
        self.assertTrue(any(re.search(r"ranks sum \d+ tensors, .* in 1 bucket", note) for note in notes), report.get("notes"))
        self.assertIn("all-reduce", json.dumps(report))


class Failures(Jobs):
    def setUp(self):
        super().setUp()
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def stricken(self, rank, number, pattern):
        """A job of three ranks of which one gets a signal: the job ends in time, says why, and leaves no process behind."""
        process = self.start("plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7, "--nproc", 3,
                             "--checkpoint-every", 2)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        begun = time.monotonic()
        os.kill(ranks[rank], number)
        _, err = process.communicate(timeout=60)
        taken = time.monotonic() - begun
        text = err.decode()
        self.assertEqual(process.returncode, 1, text)
        self.assertRegex(text, pattern)
        self.assertLess(taken, FAILURE_SECONDS, text)
        self.assertFalse([rank for rank in ranks if alive(rank)], text)
        return text, ranks

    def test_a_killed_rank(self):
        text, ranks = self.stricken(1, signal.SIGKILL, r"trun: error: step \d+: .*rank 1 \(host .*, process \d+\) has ended")
        self.assertIn(f"process {ranks[1]}", text)
        self.assertEqual(text.count("trun: error"), 1, text)
        self.assertRegex(text, r"go on with: .*--resume")
        self.succeed("trun", "--resume", "run", "--steps", 1)

    def test_a_killed_first_rank(self):
        self.stricken(0, signal.SIGKILL, r"trun: error: rank 0 \(process \d+\) was ended by signal 9")

    def test_a_stopped_rank(self):
        self.stricken(2, signal.SIGSTOP, r"trun: error: step \d+: .*rank 2 \(host .*\) has been silent .*sign of life was in step \d+")

    def test_a_stopped_first_rank(self):
        process = self.start("plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7, "--nproc", 2)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        begun = time.monotonic()
        os.kill(ranks[0], signal.SIGSTOP)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS)
        self.assertFalse([rank for rank in ranks if alive(rank)])
        log = (self.folder / "run" / "ranks" / "rank-1.log").read_text()
        self.assertRegex(log, r"rank 0 \(host .*\) has been silent")

    def test_a_launcher_that_is_killed_leaves_no_ranks(self):
        process = self.start("plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7, "--nproc", 2)
        self.wait_for_updates("run")
        ranks = children_of(process.pid)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while any(alive(rank) for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse([rank for rank in ranks if alive(rank)])

    def test_a_flipped_bit_in_a_replica(self):
        """A rate of 0 keeps the weights unchanged, so that the test can find them in rank 1's memory."""
        self.zoo("mlp", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=0", plan="still.tplan")
        self.succeed("trun", "still.tplan", "--data", self.data, "--out", "first", "--steps", 1)
        self.succeed("trun", "export", "first", "-o", "w.safetensors")
        name, weight = max(safetensors.numpy.load_file(self.folder / "w.safetensors").items(), key=lambda item: item[1].size)
        process = self.start("still.tplan", "--data", self.data, "--out", "run", "--steps", 10**7, "--nproc", 2)
        self.wait_for_updates("run")
        rank = children_of(process.pid)[1]
        flipped = flip_a_bit(rank, weight)
        self.assertGreater(flipped, 0)
        begun = time.monotonic()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err.decode(), rf"the ranks' state differs after update \d+: rank 1 \(host .*\) has '{re.escape(name)}'")
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS)
        self.assertFalse((self.folder / "run" / "checkpoints").exists() and list((self.folder / "run" / "checkpoints").iterdir()))

    def words(self, *more, plan="plan.tplan", data=None):
        return [plan, "--data", data or self.data, "--out", "run", "--steps", 3, *more]

    def test_torchruns_variables_start_ranks(self):
        for text, status in self.torchrun_like(self.words(), self.words()):
            self.assertEqual(status, 0, text)
        self.assertEqual(len(losses(self.folder / "run")), 3)

    def differing(self, other, *patterns):
        (text, status), (quiet, second) = self.torchrun_like(self.words(), other)
        self.assertEqual((status, second), (1, 1), text + quiet)
        for pattern in ("the ranks of the job differ: rank 1 \\(host", *patterns):
            self.assertRegex(text, pattern)
        self.assertFalse((self.folder / "run").exists())

    def test_a_rank_with_another_plan_is_named(self):
        self.zoo("mlp", "optimizer.momentum=0.8", plan="other.tplan")
        self.differing(self.words(plan="other.tplan"), "has plan [0-9a-f]{16} .*rank 0 has [0-9a-f]{16}")

    def test_a_rank_with_other_data_is_named(self):
        data = {key: np.ascontiguousarray(value * 2) for key, value in safetensors.numpy.load_file(self.data).items()}
        safetensors.numpy.save_file(data, self.folder / "other.safetensors")
        self.differing(self.words(data="other.safetensors"), "has checksum of the data")

    def test_a_rank_with_one_other_value_is_named(self):
        data = {key: value.copy() for key, value in safetensors.numpy.load_file(self.data).items()}
        first = sorted(data)[0]
        data[first].reshape(-1).view(np.uint8)[data[first].nbytes // 3] ^= 1
        safetensors.numpy.save_file(data, self.folder / "other.safetensors")
        self.differing(self.words(data="other.safetensors"), "has checksum of the data")

    def test_a_rank_with_another_seed_is_named(self):
        self.differing(self.words("--seed", 4), "has seed 4, rank 0 has 0")

    def test_a_rank_that_cannot_begin_ends_the_others(self):
        results = self.torchrun_like(self.words(), self.words(data="absent.safetensors"))
        for text, status in results:
            self.assertEqual(status, 1, text)
        self.assertRegex(results[0][0], "rank 1 .*absent.safetensors")

    def test_a_first_rank_that_cannot_begin_tells_it_alone(self):
        (text, status), (quiet, second) = self.torchrun_like(self.words(data="absent.safetensors"), self.words())
        self.assertEqual((status, second), (1, 1), text + quiet)
        self.assertRegex(text, "trun: error: .*absent.safetensors")
        self.assertEqual(quiet, "")


class Wire:
    """A link between two hosts: forwards what arrives at `port`, until it is cut, or falls silent with both ends open."""

    def __init__(self, target):
        self.target, self.silent, self.ends = target, False, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                if self.silent:
                    return  # both ends stay open
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        for end in (self.server, *self.ends):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class TwoHosts(Jobs):
    def broken_by(self, action, *patterns):
        """Rank 1 reaches rank 0 over a link that breaks in mid-run: both ranks end in time, and each names the other."""
        self.zoo("mlp", plan="plan.tplan")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = ["plan.tplan", "--data", ZOO / "mlp" / "data.safetensors", "--out", "run", "--steps", 10**7]
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        first = self.start(*words, env=place | {"RANK": "0", "MASTER_PORT": str(port)})
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        wire = Wire(port)
        self.addCleanup(wire.cut)
        second = self.start(*words, env=place | {"RANK": "1", "MASTER_PORT": str(wire.port)})
        self.wait_for_updates("run")
        begun = time.monotonic()
        action(wire)
        texts = [rank.communicate(timeout=60)[1].decode() for rank in (first, second)]
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS, texts)
        self.assertEqual([first.returncode, second.returncode], [1, 1], texts)
        for text, other, pattern in zip(texts, (1, 0), patterns):
            self.assertRegex(text, rf"step \d+: .*rank {other} \(host .*{pattern}")

    def test_a_link_that_is_cut(self):
        self.broken_by(Wire.cut, "has ended", "has ended")

    def test_a_link_that_goes_silent(self):
        self.broken_by(lambda wire: setattr(wire, "silent", True), "silent for 6 s", "silent for 6 s")


class Refusals(Jobs):
    def test_what_does_not_go_together_says_so(self):
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", plan="alone.tplan")
        data = ZOO / "mlp" / "data.safetensors"
        self.refuse(1, ["for one rank, the job has 2", "parallel.mode=ddp"], "trun", "alone.tplan", "--data", data, "--out", "run",
                    "--nproc", 2)
        self.assertFalse((self.folder / "run").exists())
        self.refuse(2, ["--nproc", "sweep"], "trun", "sweep", "alone.tplan", "--data", data, "--out", "s", "--nproc", 2)
        self.refuse(1, ["MASTER_PORT is not set"], "trun", "alone.tplan", "--data", data,
                    env={"RANK": "0", "WORLD_SIZE": "2"})
        self.refuse(1, ["RANK=2 of WORLD_SIZE=2"], "trun", "alone.tplan", "--data", data,
                    env={"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
        model = ZOO / "mlp" / "model.onnx"
        recipe = ZOO / "mlp" / "recipe.toml"
        self.refuse(1, ["parallel.mode", "hybrid"], "tcc", model, "--recipe", recipe, "--set", "parallel.mode=hybrid")
        self.refuse(1, ["parallel.average needs parallel.mode"], "tcc", model, "--recipe", recipe, "--set",
                    "parallel.average=ranks")
        self.refuse(1, ["reduce_dtype", "bf16"], "tcc", model, "--recipe", recipe, "--set", "parallel.mode=ddp", "--set",
                    "parallel.reduce_dtype=f16")

    def test_one_rank_runs_a_plan_for_many(self):
        self.zoo("mlp", plan="plan.tplan")
        self.compile(ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", plan="alone.tplan")
        for plan, run in (("plan.tplan", "many"), ("alone.tplan", "one")):
            self.train(plan, ZOO / "mlp" / "data.safetensors", run, "--steps", 4)
        self.assertEqual(losses(self.folder / "many"), losses(self.folder / "one"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
