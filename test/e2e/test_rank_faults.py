"""Faults in one rank of a job: it is killed while it starts, trains or writes its part of a checkpoint; its disk is full; it is
stopped for a while. The job ends with one message that names the rank, or goes on. Resumed, the run ends with the bits of an
undisturbed one.
"""
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from common import SECONDS
from test_ranks import children_of, losses
from test_shards import Sharded

RANKS, STEPS = 3, 6
ENOSPC = 28
ALL = bool(os.environ.get("TCC_RANKS_ALL"))


class RankFaults(Sharded):
    def setUp(self):
        super().setUp()
        self.watcher = self.folder / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.watcher, Path(__file__).with_name("faults.c")], check=True)
        # Each rank writes a part of every checkpoint.
        self.plan = self.shards("mlp", "optimizer.kind=adamw", "optimizer.lr=0.01", mode="grad_op", ranks=RANKS)
        self.train(self.plan, self.data("mlp"), "whole", *self.pace(), nproc=RANKS)
        self.whole = losses(self.folder / "whole")
        self.assertEqual(len(self.whole), STEPS)

    def pace(self):
        return "--steps", STEPS, "--checkpoint-every", 2, "--no-release"

    def words(self):
        return self.plan, "--data", self.data("mlp"), "--out", "run", "--no-shuffle", *self.pace()

    def strike(self, victim, action, at):
        """Runs a job whose rank `victim` meets the fault at its file call number `at`; rank → (messages, status)."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        fault = {"LD_PRELOAD": str(self.watcher), "TCC_FAULT_ROOT": str(self.folder / "run"), "TCC_FAULT_AT": str(at),
                 "TCC_FAULT_ACTION": action, "TCC_FAULT_LOG": str(self.folder / "calls")}
        return self.torchrun_like(*[self.words()] * RANKS, env=lambda rank: fault if rank == victim else {})

    def goes_on(self, label, lines=True):
        """Does what the message advises; that ends in the state of the undisturbed run, and with its losses if the job could write
        their `lines`."""
        run = self.folder / "run"
        if not list((run / "checkpoints").glob("step-*/manifest.json")):
            refusal = self.command("trun", "--resume", "run")
            self.assertEqual(refusal.status, 1, f"{label}: {refusal}")
            self.succeed("trun", *self.words(), "--nproc", RANKS)
        # A killed rank may have left half a line.
        elif (not (run / f"checkpoints/step-{STEPS}").exists() or not (run / "metrics.jsonl").read_text().endswith("\n")
              or len(losses(run)) < STEPS):
            self.succeed("trun", "--resume", "run", "--nproc", RANKS)
        if lines:
            self.assertEqual(losses(run), self.whole, label)
        self.assertTrue(self.checkpoint("run") == self.checkpoint("whole"), label)

    def checkpoint(self, run):
        folder = self.folder / run / f"checkpoints/step-{STEPS}"
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}

    def positions(self, victim, count):
        self.strike(victim, "", 0)
        calls = int((self.folder / "calls").read_text())
        self.assertGreater(calls, 20)
        step = 3 if ALL else max(1, calls // count)
        return range(1 + step // 2, calls + 1, step)

    def test_a_rank_killed_at_a_call_of_its_files(self):
        for victim in (0, 1):
            for at in self.positions(victim, 4):
                label = f"rank {victim} killed at call {at}"
                results = self.strike(victim, "kill", at)
                self.assertEqual(results[victim][1], -signal.SIGKILL, label)
                rest = [result for rank, result in enumerate(results) if rank != victim]
                self.assertEqual(len({status for _, status in rest}), 1, f"{label}: {rest}")
                if rest[0][1] != 0:  # 0: everything was done before the kill
                    self.assertEqual(rest[0][1], 1, f"{label}: {rest}")
                    self.assertRegex(rest[0][0], rf"trun: error: .*rank {victim} \(host \S+, process \d+\) has ended", label)
                    self.assertEqual(rest[0][0].count("trun: error"), 1, rest[0][0])
                self.goes_on(label)

    def test_a_rank_whose_disk_is_full(self):
        for victim in (0, 1):
            for at in self.positions(victim, 4):
                for action in (f"error:{ENOSPC}", f"errors:{ENOSPC}"):
                    label = f"rank {victim} without space from call {at} on ({action})"
                    results = self.strike(victim, action, at)
                    statuses = {status for _, status in results}
                    self.assertLessEqual(statuses, {0, 1}, f"{label}: {results}")
                    done = (self.folder / f"run/checkpoints/step-{STEPS}/manifest.json").exists()
                    if len(statuses) == 2:  # the others had ended well before this rank failed to write the last lines
                        self.assertTrue(done, f"{label}: {results}")
                    if 1 in statuses:
                        self.assertEqual(results[0][0].count("trun: error"), 1, f"{label}: {results}")
                        self.assertIn("No space left", results[0][0], label)
                        if victim:
                            self.assertRegex(results[0][0], rf"rank {victim}\b", label)
                    self.goes_on(label, lines="metrics.jsonl: cannot write" not in results[0][0])

    def test_a_rank_killed_while_the_job_starts(self):
        """Whenever the rank dies during the start, the others end, with one message."""
        for delay in (0, 0.03, 0.08, 0.2):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start(*self.words()[:-5], "--steps", 10**7, "--nproc", RANKS)
            deadline = time.monotonic() + SECONDS
            while len(children := children_of(process.pid)) < RANKS:
                self.assertLess(time.monotonic(), deadline)
            time.sleep(delay)
            os.kill(children[1], signal.SIGKILL)
            text = process.communicate(timeout=SECONDS)[1].decode()
            self.assertEqual(process.returncode, 1, text)
            self.assertEqual(text.count("trun: error"), 1, text)
            self.assertRegex(text, r"rank 1\b")

    def test_a_rank_that_is_stopped_for_a_moment_costs_time_alone(self):
        process = self.start(*self.words()[:-5], "--steps", 3000, "--checkpoint-every", 1000, "--no-release", "--nproc", RANKS)
        self.wait_for_updates("run")
        for victim in (1, 0):
            rank = children_of(process.pid)[victim]
            os.kill(rank, signal.SIGSTOP)
            time.sleep(2)
            os.kill(rank, signal.SIGCONT)
        text = process.communicate(timeout=SECONDS)[1].decode()
        self.assertEqual(process.returncode, 0, text)
        self.train(self.plan, self.data("mlp"), "still", "--steps", 3000, "--no-release", nproc=RANKS)
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "still"))

    def test_a_rank_that_goes_on_after_the_others_gave_it_up_says_so(self):
        words = [*self.words()[:-5], "--steps", 10**7, "--checkpoint-every", 2]
        ranks = self.begin(*[words] * 2 + [words])
        self.wait_for_updates("run")
        os.kill(ranks[0].pid, signal.SIGSTOP)
        for rank in ranks[1:]:
            text = rank.communicate(timeout=SECONDS)[1].decode()
            self.assertEqual(rank.returncode, 1, text)
            self.assertRegex(text, r"rank 0 \(host \S+, process \d+\) has been silent for 6 s: it was stopped")
        os.kill(ranks[0].pid, signal.SIGCONT)
        text = ranks[0].communicate(timeout=SECONDS)[1].decode()
        self.assertEqual(ranks[0].returncode, 1, text)
        self.assertRegex(text, r"rank [12] \(host \S+, process \d+\) has ended; .*; rank 0 itself had been stopped for \d+ s")
        self.succeed("trun", "--resume", "run", "--steps", int(re.search(r"after update (\d+); go on", text).group(1)) + 1, "--nproc", RANKS)


if __name__ == "__main__":
    unittest.main()
