"""Ranks started by srun, on a cluster of this machine alone: runs with TCC_RANKS_ALL=1, as root, with slurm-wlm and munge."""
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from common import BIN, ZOO
from test_mpi import MISSING, OPEN_MPI
from test_ranks import FAILURE_SECONDS, Jobs, alive, losses

NEEDED = ("srun", "slurmctld", "slurmd", "munged")
CONFIGURATION = """
ClusterName=tcc
SlurmctldHost={host}
SlurmctldPort={first}
SlurmdPort={second}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} CPUs={processors} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@unittest.skipUnless(os.environ.get("TCC_RANKS_ALL") and os.geteuid() == 0 and all(map(shutil.which, NEEDED)) and not MISSING,
                     "TCC_RANKS_ALL=1 runs it, as root, with slurm-wlm, munge and Open MPI")
class Slurm(Jobs):
    def setUp(self):
        super().setUp()
        cluster = self.folder / "cluster"
        for name in ("state", "spool"):
            (cluster / name).mkdir(parents=True)
        os.chmod(self.folder, 0o755)
        host, (first, second) = socket.gethostname().split(".")[0], free_ports(2)
        (cluster / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=cluster, first=first, second=second,
                                                                 processors=os.cpu_count()))
        (cluster / "munge.key").write_bytes(os.urandom(128))
        (cluster / "munge.key").chmod(0o400)
        self.environment = os.environ | OPEN_MPI | {"SLURM_CONF": str(cluster / "slurm.conf")}
        self.daemon("munged", "--foreground", "--force", f"--key-file={cluster}/munge.key", f"--socket={cluster}/munge.socket",
                    f"--pid-file={cluster}/munged.pid", f"--seed-file={cluster}/munged.seed", f"--log-file={cluster}/munged.log")
        self.wait(lambda: (cluster / "munge.socket").exists())
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D")
        self.wait(lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], env=self.environment, capture_output=True,
                                                   text=True).stdout)
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def daemon(self, *words):
        process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def wait(self, holds):
        deadline = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def srun(self, ranks, *arguments, mpi="pmix"):
        words = ["srun", f"--mpi={mpi}", "-n", ranks, "--overcommit", BIN / "trun", "plan.tplan", "--data", self.data, "--threads", 1,
                 "--no-shuffle", *arguments]
        process = subprocess.Popen(list(map(str, words)), cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True)
        self.addCleanup(self.end, process)
        return process

    def test_the_losses_of_ranks_over_tcp(self):
        for ranks in (2, 4):
            process = self.srun(ranks, "--out", f"slurm{ranks}", "--steps", 6)
            text = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0, text)
            self.assertIn(f"x {ranks} ranks", text)
            self.train("plan.tplan", self.data, f"tcp{ranks}", "--steps", 6, nproc=ranks)
            self.assertEqual(losses(self.folder / f"slurm{ranks}"), losses(self.folder / f"tcp{ranks}"))

    def test_a_killed_rank(self):
        process = self.srun(3, "--out", "run", "--steps", 10**7, "--checkpoint-every", 2)
        self.wait_for_updates("run")
        ranks = [int(folder) for folder in os.listdir("/proc") if folder.isdigit() and self.is_rank(folder)]
        self.assertEqual(len(ranks), 3)
        begun = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        text = process.communicate(timeout=60)[1]
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS, text)
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(text, r"step \d+: .*rank \d \(host .*process \d+\) has ended")
        self.assertFalse([rank for rank in ranks if alive(rank)], text)

    def is_rank(self, process):
        try:
            with open(f"/proc/{process}/comm") as comm, open(f"/proc/{process}/environ", "rb") as environment:
                return comm.read().strip() == "trun" and str(self.folder / "cluster").encode() in environment.read()
        except OSError:
            return False

    def test_without_pmix_one_message_says_what_to_type(self):
        process = self.srun(2, "--out", "run", "--steps", 2, mpi="none")
        text = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1, text)
        self.assertRegex(text, r"trun: error: SLURM_STEP_NUM_TASKS=2: .*srun --mpi=pmix")
        self.assertNotIn("MPI_Init", text)

    def test_one_process_needs_no_mpi(self):
        process = self.srun(1, "--out", "run", "--steps", 2, mpi="none")
        text = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, text)
        self.assertEqual(len(losses(self.folder / "run")), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
