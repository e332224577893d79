"""Ranks in network name spaces that links join, as on two and three machines: runs with TCC_RANKS_ALL=1, as root."""
import os
import shutil
import subprocess
import time
import unittest

from common import BIN, ZOO
from test_ranks import FAILURE_SECONDS, Jobs, losses
from test_ranks_agree import big_model

NETWORK, NETWORK6 = "198.18.77", "fd77"  # the first of the range for benchmarks (RFC 2544), the second of local addresses
PORT = "29533"
SECRET = {"TRUN_JOB_SECRET": "a secret of these tests"}
LONG_NAME = ".".join(letter * 60 for letter in "abc")


@unittest.skipUnless(os.environ.get("TCC_RANKS_ALL") and os.geteuid() == 0 and shutil.which("ip"),
                     "TCC_RANKS_ALL=1 runs it, as root, with ip (iproute2)")
class Machines(Jobs):
    """Name spaces on one bridge, each with a host name and a hosts file of its own. A rank's place is the number of its machine."""
    COUNT = 2

    def setUp(self):
        super().setUp()
        self.spaces = [f"tcc-{os.getpid()}-{number}" for number in range(self.COUNT)]
        bridge = f"tccb{os.getpid() % 10000}"
        hub = f"tcc-{os.getpid()}-hub"
        for space in (*self.spaces, hub):
            self.ip("netns", "add", space)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", space])
        self.ip("-n", hub, "link", "add", bridge, "type", "bridge")
        self.ip("-n", hub, "link", "set", bridge, "up")
        for number, space in enumerate(self.spaces):
            self.ip("link", "add", "wire", "netns", space, "type", "veth", "peer", "name", f"end{number}", "netns", hub)
            self.ip("-n", hub, "link", "set", f"end{number}", "master", bridge, "up")
            self.ip("-n", space, "addr", "add", f"{NETWORK}.{number + 1}/24", "dev", "wire")
            self.ip("-n", space, "addr", "add", f"{NETWORK6}::{number + 1}/64", "dev", "wire", "nodad")
            for device in ("lo", "wire"):
                self.ip("-n", space, "link", "set", device, "up")
            os.makedirs(f"/etc/netns/{space}", exist_ok=True)
            self.addCleanup(shutil.rmtree, f"/etc/netns/{space}", ignore_errors=True)
        self.names("")
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def ip(self, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def names(self, first, *others):
        """Sets the line of /etc/hosts on the first machine and on each of the others (the last line holds for the rest)."""
        for number, space in enumerate(self.spaces):
            line = first if number == 0 or not others else others[min(number - 1, len(others) - 1)]
            with open(f"/etc/netns/{space}/hosts", "w") as file:
                file.write(f"127.0.0.1 localhost\n::1 localhost\n{line}\n")

    def ranks(self, *more, sizes=(1, 1), address=f"{NETWORK}.1", plan="plan.tplan", data=None, out="run", env=SECRET, hosts=None,
              only=None):
        """Starts a process for each rank, on each machine as many as `sizes` says. `address`: rank 0's, one for all or one by machine;
        `only`: start the ranks of this machine alone."""
        words = [BIN / "trun", plan, "--data", data or self.data, "--out", out, "--no-shuffle", *more]
        addresses = [address] * len(sizes) if isinstance(address, str) else address
        processes, rank = [], -1
        for number, size in enumerate(sizes):
            for local in range(size):
                rank += 1
                if only not in (None, number):
                    continue
                host = hosts[number] if hosts else f"machine{number}"
                place = {"WORLD_SIZE": str(sum(sizes)), "MASTER_ADDR": addresses[number], "MASTER_PORT": PORT,
                         "RANK": str(rank), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(size)}
                named = ["unshare", "--uts", "sh", "-c", f"hostname {host}; exec \"$@\"", "sh"]
                process = subprocess.Popen([*named, "ip", "netns", "exec", self.spaces[number], *map(str, words)], cwd=self.folder,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env=os.environ | place | env, start_new_session=True)
                self.addCleanup(self.end, process)
                processes.append(process)
        return processes

    def texts(self, processes, status=0):
        texts = [process.communicate(timeout=180)[1].decode() for process in processes]
        for process, text in zip(processes, texts):
            self.assertEqual(process.returncode, status, texts)
        return texts

    def check(self, steps=6, sizes=(1, 1), plan="plan.tplan", data=None, **options):
        """The losses equal those of the same number of ranks on one machine."""
        for folder in ("run", "one"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        self.texts(self.ranks("--steps", steps, sizes=sizes, plan=plan, data=data, **options))
        self.train(plan, data or self.data, "one", "--steps", steps, nproc=sum(sizes))
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "one"))


class TwoMachines(Machines):
    def test_the_losses_of_one_machine(self):
        self.check()

    def test_nodes_of_uneven_size(self):
        model, recipe, data = big_model(self.folder)
        for mode, splits in (("ddp", ((2, 1), (1, 2), (4, 2), (5, 1))), ("full", ((4, 2),)), ("grad_op", ((2, 1),)),
                             ("hybrid", ((4, 2),))):
            for sizes in splits:
                ranks = ["--set", f"parallel.ranks={sum(sizes)}"] if mode in ("full", "grad_op") else []
                node = ["--set", "parallel.shard_within_node=2"] if mode == "hybrid" else []
                self.compile(model, "--recipe", recipe, "--set", f"parallel.mode={mode}", *ranks, *node, plan="big.tplan")
                with self.subTest(mode=mode, sizes=sizes):
                    self.check(sizes=sizes, plan="big.tplan", data=data)

    def test_a_name_that_is_a_loopback_address_on_its_own_machine(self):
        self.names("127.0.1.1 node0", f"{NETWORK}.1 node0")
        self.check(sizes=(2, 2), address="node0")

    def test_localhost_on_its_own_machine(self):
        self.names("", f"{NETWORK}.1 node0")
        self.check(sizes=(2, 2), address=("localhost", "node0"))

    def test_ipv6(self):
        self.check(sizes=(2, 2), address=f"{NETWORK6}::1")
        self.names(f"{NETWORK6}::1 node0")
        self.check(sizes=(2, 2), address="node0")

    def test_long_names(self):
        self.names(f"{NETWORK}.1 {LONG_NAME}")
        self.check(sizes=(2, 2), address=LONG_NAME, hosts=("h" * 63 + "a", "h" * 63 + "b"))

    def test_without_a_secret(self):
        begun = time.monotonic()
        for text in self.texts(self.ranks("--steps", 2, env={}), status=1):
            self.assertRegex(text, r"1 of the 2 ranks are on this machine.*TRUN_JOB_SECRET_FILE.*--insecure-ranks")
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS)
        self.texts(self.ranks("--steps", 2, "--insecure-ranks", env={}))

    def test_a_stranger_on_the_network(self):
        """A stranger with another secret, or none, is turned away; strangers that send nothing, or noise, delay no rank."""
        first = self.ranks("--steps", 6, only=0)
        script = ("import os,socket,time\n"
                  f"links=[socket.create_connection(('{NETWORK}.1',{PORT}),timeout=2) for _ in range(100)]\n"
                  "[link.sendall(os.urandom(300)) for link in links[:50]]\n"
                  "print('there',flush=True);time.sleep(60)\n")
        deadline, there = time.monotonic() + 20, b""
        while time.monotonic() < deadline and not there:  # rank 0 does not listen yet
            process = subprocess.Popen(["ip", "netns", "exec", self.spaces[1], shutil.which("python3"), "-c", script],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            there = process.stdout.readline()
        self.assertTrue(there)
        for secret in ({}, {"TRUN_JOB_SECRET": "another secret of these"}):
            text, = self.texts(self.ranks("--steps", 6, "--insecure-ranks", only=1, env=secret), status=1)
            self.assertIn("TRUN_JOB_SECRET_FILE", text)
        first_text, _ = self.texts([*first, *self.ranks("--steps", 6, only=1)])
        self.assertRegex(first_text, r"refused a connection from 198\.18\.77\.2")
        self.assertEqual(len(losses(self.folder / "run")), 6)

    def test_a_node_of_two_machines_is_named(self):
        self.zoo("mlp", "parallel.mode=hybrid", "parallel.shard_within_node=2", plan="plan.tplan")
        texts = self.texts(self.ranks("--steps", 2))
        self.assertRegex(texts[0], r"warning: parallel\.shard_within_node is 2.*rank 0 is on machine0, rank 1 on machine1")
        self.assertNotIn("warning", texts[1])

    def test_a_link_that_goes_down(self):
        first, second = self.ranks("--steps", 10**7)
        self.wait_for_updates("run")
        begun = time.monotonic()
        self.ip("-n", self.spaces[1], "link", "set", "wire", "down")
        texts = [process.communicate(timeout=60)[1].decode() for process in (first, second)]
        self.assertLess(time.monotonic() - begun, FAILURE_SECONDS, texts)
        for process, text, other in zip((first, second), texts, (1, 0)):
            self.assertEqual(process.returncode, 1, text)
            self.assertRegex(text, rf"step \d+: .*rank {other} \(host ")


class ThreeMachines(Machines):
    COUNT = 3

    def test_nodes_of_uneven_size(self):
        model, recipe, data = big_model(self.folder)
        self.compile(model, "--recipe", recipe, "--set", "parallel.mode=ddp", plan="big.tplan")
        for sizes in ((2, 1, 1), (1, 2, 3), (3, 1, 2)):
            with self.subTest(sizes=sizes):
                self.check(sizes=sizes, plan="big.tplan", data=data)

    def test_names_of_the_first_machine(self):
        """Ranks 1 and 2 reach each other at the addresses that rank 0 saw them come from, and ranks on rank 0's machine at the address
        at which rank 0 itself is reached."""
        self.names("127.0.1.1 node0", f"{NETWORK}.1 node0", f"{NETWORK6}::1 node0")
        self.check(sizes=(2, 1, 1), address=("node0", "node0", f"{NETWORK}.1"))
        self.check(sizes=(2, 1, 1), address=("localhost", f"{NETWORK}.1", f"{NETWORK}.1"))
        self.check(sizes=(1, 2, 1), address=f"{NETWORK6}::1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
