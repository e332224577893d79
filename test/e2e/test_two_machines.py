"""Ranks in two network namespaces, joined by one link, as on two machines: TCC_RANKS_ALL=1 runs it, as root."""
import os
import shutil
import subprocess
import time
import unittest

from common import BIN, ZOO
from test_ranks import FAILURE_SECONDS, Jobs, losses

ADDRESSES = ("198.18.77.1", "198.18.77.2")  # of the range for benchmarks (RFC 2544): no network has it
PORT = "29533"


@unittest.skipUnless(os.environ.get("TCC_RANKS_ALL") and os.geteuid() == 0 and shutil.which("ip"),
                     "TCC_RANKS_ALL=1 runs it, as root, with ip (iproute2)")
class TwoMachines(Jobs):
    def setUp(self):
        super().setUp()
        self.spaces = [f"tcc-{os.getpid()}-{rank}" for rank in range(2)]
        for space in self.spaces:
            self.ip("netns", "add", space)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", space])
        self.ip("link", "add", "left", "netns", self.spaces[0], "type", "veth", "peer", "name", "right", "netns", self.spaces[1])
        for space, end, address in zip(self.spaces, ("left", "right"), ADDRESSES):
            self.ip("-n", space, "addr", "add", f"{address}/30", "dev", end)
            for device in ("lo", end):
                self.ip("-n", space, "link", "set", device, "up")
        self.zoo("mlp", plan="plan.tplan")

    def ip(self, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def ranks(self, *more):
        """A rank on each machine. Both have the folder of the run, but neither has the other's memory."""
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT}
        words = [BIN / "trun", "plan.tplan", "--data", ZOO / "mlp" / "data.safetensors", "--out", "run", "--no-shuffle", *more]
        for rank, space in enumerate(self.spaces):
            named = ["unshare", "--uts", "sh", "-c", f"hostname machine{rank}; exec \"$@\"", "sh"]
            process = subprocess.Popen([*named, "ip", "netns", "exec", space, *map(str, words)], cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=os.environ | place | {"RANK": str(rank)}, start_new_session=True)
            self.addCleanup(self.end, process)
            yield process

    def test_the_losses_of_one_machine(self):
        for process in list(self.ranks("--steps", 6)):
            text = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, 0, text)
        self.train("plan.tplan", ZOO / "mlp" / "data.safetensors", "one", "--steps", 6, nproc=2)
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "one"))

    def test_a_node_of_two_machines_is_named(self):
        self.zoo("mlp", "parallel.mode=hybrid", "parallel.shard_within_node=2", plan="plan.tplan")
        texts = [process.communicate(timeout=60)[1].decode() for process in list(self.ranks("--steps", 2))]
        self.assertRegex(texts[0], r"warning: parallel\.shard_within_node is 2.*rank 0 is on machine0, rank 1 on machine1")
        self.assertNotIn("warning", texts[1])

    def test_a_link_that_goes_down(self):
        first, second = self.ranks("--steps", 10**7)
        self.wait_for_updates("run")
        begun = time.monotonic()
        self.ip("-n", self.spaces[1], "link", "set", "right", "down")
        texts = [process.communicate(timeout=60)[1].decode() for process in (first, second)]
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS, texts)
        for process, text, other in zip((first, second), texts, (1, 0)):
            self.assertEqual(process.returncode, 1, text)
            self.assertRegex(text, rf"step \d+: .*rank {other} \(host ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
