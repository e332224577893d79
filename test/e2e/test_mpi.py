"""Ranks that MPI starts: the bits of ranks over TCP, failures that are named, a message where MPI is missing."""
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

from common import BIN, PLUGINS, ZOO
from test_ranks import FAILURE_SECONDS, Jobs, alive, losses

PLUGIN = PLUGINS / "trun-mpi.so"
MPIRUN = shutil.which("mpirun")
MISSING = "" if PLUGIN.is_file() and MPIRUN else \
    f"SKIPPED: {'no mpirun' if not MPIRUN else f'no {PLUGIN}'}: install libopenmpi-dev and openmpi-bin, then build again"
if MISSING:
    print(f"test_mpi.py {MISSING}", flush=True)
# Allows root and more ranks than processors, makes waiting ranks yield, and shares memory between ranks without ptrace.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def ranks_of(process):
    """The processes of trun below mpirun, by rank."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdigit() or (folder / "comm").read_text().strip() != "trun":
                continue
            environment = dict(word.split(b"=", 1) for word in (folder / "environ").read_bytes().split(b"\0") if b"=" in word)
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                found[int(environment[b"OMPI_COMM_WORLD_RANK"])] = int(folder.name)
        except (OSError, KeyError):
            continue
    return [found[rank] for rank in sorted(found)]


@unittest.skipIf(MISSING, MISSING)
class MpiJobs(Jobs):
    def words(self, ranks, *arguments):
        return [MPIRUN, "-n", str(ranks), str(BIN / "trun"), *map(str, arguments)]

    def mpirun(self, ranks, *arguments, status=0):
        done = subprocess.run(self.words(ranks, *arguments), cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=120, env=os.environ | OPEN_MPI, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def start_by_mpi(self, ranks, *arguments):
        process = subprocess.Popen(self.words(ranks, *arguments), cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | OPEN_MPI,
                                   start_new_session=True)
        self.addCleanup(self.end, process)
        return process


class SameBitsAsOverTcp(MpiJobs):
    def check(self, case, *settings, ranks=(2, 4), steps=4):
        self.zoo(case, *settings, plan="plan.tplan")
        data = ZOO / case / "data.safetensors"
        for count in ranks:
            self.train("plan.tplan", data, f"tcp{count}", "--steps", steps, nproc=count)
            result = self.mpirun(count, "plan.tplan", "--data", data, "--out", f"mpi{count}", "--no-shuffle", "--steps", steps)
            self.assertIn(f"x {count} ranks", result.stderr)
            found = []
            for start in ("tcp", "mpi"):
                self.succeed("trun", "export", f"{start}{count}", "-o", f"{start}.safetensors")
                found.append((losses(self.folder / f"{start}{count}"), (self.folder / f"{start}.safetensors").read_bytes()))
            self.assertEqual(len(found[0][0]), steps)
            self.assertEqual(found[1], found[0], f"{case}, {count} ranks")

    def test_mlp(self):
        self.check("mlp")

    def test_a_transformer_in_small_buckets(self):
        self.check("nano-gpt", "train.clip_norm=0.5", "parallel.bucket_bytes=1000")

    def test_batch_norm_beside_collectives(self):
        self.check("cnn-bn", "parallel.bucket_bytes=20000", ranks=(2,))

    def test_gradients_in_bf16_with_accumulation(self):
        self.check("resnet-tiny", "parallel.reduce_dtype=bf16", "train.accumulate=2", ranks=(2,), steps=2)

    def test_two_nodes_that_each_have_all_shards(self):
        self.check("mlp", "parallel.mode=hybrid", "parallel.shard_within_node=2", ranks=(4,))

    def test_one_rank_is_no_job(self):
        self.zoo("mlp", plan="plan.tplan")
        self.mpirun(1, "plan.tplan", "--data", ZOO / "mlp" / "data.safetensors", "--out", "run", "--steps", 2)
        self.assertEqual(len(losses(self.folder / "run")), 2)


class EveryCase(MpiJobs):
    """The global batch is 4 batches of the model: 4, 2 or 1 micro-batches on 1, 2 or 4 ranks."""
    JOBS = ("ddp", 2), ("ddp", 4), ("grad_op", 2), ("full", 4), ("hybrid", 4)

    def settings(self, mode, ranks):
        return [f"parallel.mode={mode}", f"train.accumulate={4 // ranks}",
                *[f"parallel.ranks={ranks}"] * (mode in ("grad_op", "full")), *["parallel.shard_within_node=2"] * (mode == "hybrid")]

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "some minutes; TCC_RANKS_ALL=1 runs it")
    def test_the_losses_of_one_rank(self):
        for case in sorted(path.parent.name for path in ZOO.glob("*/model.onnx")):
            data = ZOO / case / "data.safetensors"
            self.zoo(case, *self.settings("ddp", 1), plan="one.tplan")
            self.train("one.tplan", data, "one", "--steps", 3, "--no-release")
            for mode, ranks in self.JOBS:
                with self.subTest(case=case, mode=mode, ranks=ranks):
                    self.zoo(case, *self.settings(mode, ranks), plan="plan.tplan")
                    self.mpirun(ranks, "plan.tplan", "--data", data, "--out", "many", "--no-shuffle", "--steps", 3, "--no-release")
                    np.testing.assert_allclose(losses(self.folder / "many"), losses(self.folder / "one"), rtol=1e-5)
                    shutil.rmtree(self.folder / "many")
            shutil.rmtree(self.folder / "one")


class Failures(MpiJobs):
    def setUp(self):
        super().setUp()
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def stricken(self, rank, number, pattern):
        process = self.start_by_mpi(3, "plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7,
                                    "--checkpoint-every", 2)
        self.wait_for_updates("run")
        ranks = ranks_of(process.pid)
        self.assertEqual(len(ranks), 3)
        begun = time.monotonic()
        os.kill(ranks[rank], number)
        text = process.communicate(timeout=60)[1].decode()
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS, text)
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(text, pattern)
        self.all_end(ranks, begun, text)
        return text

    def all_end(self, ranks, begun, text):
        """mpirun sends its ranks SIGKILL when one aborts, and may end before they have."""
        while any(alive(rank) for rank in ranks) and time.monotonic() - begun < FAILURE_SECONDS:
            time.sleep(0.05)
        self.assertFalse([rank for rank in ranks if alive(rank)], text)

    def test_a_killed_rank(self):
        text = self.stricken(1, signal.SIGKILL, r"trun: error: step \d+: .*rank 1 \(host .*, process \d+\) has ended")
        self.assertRegex(text, r"go on with: .*--resume")
        self.mpirun(2, "--resume", "run", "--steps", 1)

    def test_a_killed_first_rank(self):
        self.stricken(0, signal.SIGKILL, r"rank 0 \(host .*, process \d+\) has ended")

    def test_a_stopped_rank(self):
        self.stricken(2, signal.SIGSTOP, r"trun: error: step \d+: .*rank 2 \(host .*\) has been silent .*sign of life was in step \d+")

    def test_a_rank_with_other_data_is_named(self):
        data = {key: value * 2 for key, value in safetensors.numpy.load_file(self.data).items()}
        safetensors.numpy.save_file(data, self.folder / "other.safetensors")
        words = self.words(1, "plan.tplan", "--data", self.data, "--out", "run", "--steps", 3)
        words += [":", *self.words(1, "plan.tplan", "--data", "other.safetensors", "--out", "run", "--steps", 3)[1:]]
        done = subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=os.environ | OPEN_MPI, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"the ranks of the job differ: rank 1 \(host .*has checksum of the data")
        self.assertEqual(done.stderr.count("trun: error"), 1, done.stderr)

    def test_a_launcher_that_is_killed_leaves_no_ranks(self):
        process = self.start_by_mpi(2, "plan.tplan", "--data", self.data, "--out", "run", "--steps", 10**7)
        self.wait_for_updates("run")
        ranks = ranks_of(process.pid)
        process.kill()
        process.wait()
        self.all_end(ranks, time.monotonic(), "")


class WithoutMpi(Jobs):
    """Tests without a launcher: environment variables pretend that MPI started the process."""

    def test_what_is_missing_is_named_with_its_package(self):
        self.zoo("mlp", plan="plan.tplan")
        folder = self.folder / "bin"
        folder.mkdir()
        shutil.copy2(BIN / "trun", folder)
        words = ["plan.tplan", "--data", ZOO / "mlp" / "data.safetensors", "--out", "run", "--steps", 1]
        for variables in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "1", "PMI_SIZE": "2"},
                          {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}):
            done = subprocess.run([folder / "trun", *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                                  env=os.environ | variables)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"trun-mpi\.so is missing.*libopenmpi-dev and openmpi-bin.*--nproc")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        (folder / "trun-mpi.so").write_bytes(b"no library")
        done = subprocess.run([folder / "trun", *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              env=os.environ | {"PMIX_RANK": "0"})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"trun-mpi\.so.*install libopenmpi3 and openmpi-bin")

    def test_a_job_cannot_start_jobs(self):
        self.zoo("mlp", plan="plan.tplan")
        self.refuse(2, ["--nproc 2: MPI started this process", "OMPI_COMM_WORLD_SIZE=4"], "trun", "plan.tplan", "--data",
                    ZOO / "mlp" / "data.safetensors", "--nproc", 2, env={"OMPI_COMM_WORLD_SIZE": "4"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
