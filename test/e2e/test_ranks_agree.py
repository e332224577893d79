"""The ranks of a job agree on the order of sums on nodes of uneven size, and on the state that a checkpoint holds."""
import os
import re
import shutil
import socket
import subprocess
import time
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from common import BIN, ZOO
from test_ranks import Jobs, children_of, flip_a_bit, losses


def big_model(folder):
    """Model, recipe and data with 2.1 MB of gradients in one bucket: more than a block of any number of ranks."""
    random = np.random.default_rng(3)
    weights = {"a": (512, 1024), "b": (1024,), "c": (1024, 10)}
    values = [numpy_helper.from_array((random.standard_normal(shape) / 30).astype(np.float32), name)
              for name, shape in weights.items()]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Add", ["h", "b"], ["s"]),
             helper.make_node("Relu", ["s"], ["r"]), helper.make_node("MatMul", ["r", "c"], ["logits"])]
    graph = helper.make_graph(nodes, "big", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 512])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 10])], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "big.onnx")
    (folder / "big.toml").write_text('[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
                                     '[optimizer]\nkind = "sgd"\nlr = 0.05\nmomentum = 0.9\n')
    samples = 4 * 6 * 8
    safetensors.numpy.save_file({"x": random.standard_normal((samples, 512)).astype(np.float32),
                                 "labels": random.integers(0, 10, samples)}, folder / "big.safetensors")
    return folder / "big.onnx", folder / "big.toml", folder / "big.safetensors"


class UnevenNodes(Jobs):
    """Launchers may put more ranks on one machine than on another: the sums have the bits of one machine's."""

    def check(self, nodes, *settings, mode="ddp"):
        count, folder = sum(nodes), self.folder
        model, recipe, data = big_model(folder)
        for plan, words in (("plan.tplan", (f"parallel.mode={mode}", *settings)), ("one.tplan", (f"train.accumulate={count}",))):
            self.compile(model, "--recipe", recipe, "--entry", "train", *[word for one in words for word in ("--set", one)],
                         plan=plan)
        words = ["--data", data, "--no-shuffle", "--steps", 6, "--no-release", "--threads", 1]
        self.succeed("trun", "one.tplan", *words, "--out", "one")
        self.succeed("trun", "plan.tplan", *words, "--out", "same", "--nproc", count)
        for text, status in self.torchrun_like(*[["plan.tplan", *words, "--out", "uneven"]] * count, nodes=nodes):
            self.assertEqual(status, 0, text)
        self.assertEqual(losses(folder / "uneven"), losses(folder / "same"))
        np.testing.assert_allclose(losses(folder / "uneven"), losses(folder / "one"), rtol=1e-5)
        found = [self.weights(run, f"{run}.safetensors") for run in ("one", "same", "uneven")]
        for name, value in found[0].items():
            np.testing.assert_array_equal(found[2][name], found[1][name], err_msg=name)
            np.testing.assert_allclose(found[2][name], value, rtol=1e-3, atol=1e-5, err_msg=name)

    def test_two_and_one(self):
        self.check([2, 1])

    def test_four_and_two(self):
        self.check([4, 2])

    def test_nodes_of_shards(self):
        self.check([4, 2], "parallel.shard_within_node=2", mode="hybrid")

    @unittest.skipUnless(os.environ.get("TCC_RANKS_ALL"), "half a minute; TCC_RANKS_ALL=1 runs it")
    def test_other_splits_and_modes(self):
        for nodes, *settings in (([1, 2], "ddp"), ([5, 1], "ddp"), ([1, 1, 3], "ddp"), ([3, 1], "ddp", "train.virtual_ranks=4"),
                                 ([2, 1], "full", "parallel.ranks=3"), ([4, 2], "grad_op", "parallel.ranks=6"),
                                 ([2, 1, 1], "full", "parallel.ranks=4"), ([4, 2], "full", "parallel.ranks=6")):
            with self.subTest(nodes=nodes, settings=settings):
                mode, *more = settings
                if "train.virtual_ranks=4" not in more:
                    self.check(nodes, *more, mode=mode)
                    for run in ("one", "same", "uneven"):
                        shutil.rmtree(self.folder / run)
                    continue
                model, recipe, data = big_model(self.folder)
                self.compile(model, "--recipe", recipe, "--entry", "train", "--set", "parallel.mode=ddp", "--set", more[0])
                words = ["plan.tplan", "--data", data, "--no-shuffle", "--steps", 6, "--no-release", "--threads", 1]
                self.succeed("trun", *words, "--out", "one")
                for text, status in self.torchrun_like(*[[*words, "--out", "uneven"]] * 4, nodes=nodes):
                    self.assertEqual(status, 0, text)
                self.assertEqual(losses(self.folder / "uneven"), losses(self.folder / "one"))
                for run in ("one", "uneven"):
                    shutil.rmtree(self.folder / run)


class State(Jobs):
    def setUp(self):
        super().setUp()
        self.zoo("mlp", plan="plan.tplan")
        self.data = ZOO / "mlp" / "data.safetensors"

    def test_a_checkpoint_never_holds_state_that_differs(self):
        """Checkpoints are written between the comparisons of every 64th update. A rate of 0 keeps the model's weights unchanged."""
        self.zoo("mlp", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=0", plan="still.tplan")
        self.succeed("trun", "still.tplan", "--data", self.data, "--out", "first", "--steps", 1)
        before = self.weights("first")
        name, weight = max(before.items(), key=lambda item: item[1].size)
        for victim in (0, 1):
            run = f"run{victim}"
            process = self.start("still.tplan", "--data", self.data, "--out", run, "--steps", 10**7, "--nproc", 2,
                                 "--checkpoint-every", 1, "--set", "checkpoint.keep=1000")
            self.wait_for_updates(run)
            self.assertGreater(flip_a_bit(children_of(process.pid)[victim], weight), 0)
            err = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, 1, err)
            steps = sorted(int(path.name.removeprefix("step-")) for path in (self.folder / run / "checkpoints").glob("step-*"))
            self.assertRegex(err, rf"the ranks' state differs after update \d+: rank 1 .*'{re.escape(name)}'.*without a checkpoint.*"
                                  rf"last checkpoint whose state was compared is \S*{run}/checkpoints/step-{steps[-1]}, .*--resume")
            for step in steps:
                for key, value in self.weights(f"{run}@{step}").items():
                    np.testing.assert_array_equal(value, before[key], err_msg=f"{key} after update {step} of {steps}")
            self.succeed("trun", "--resume", run, "--steps", steps[-1] + 2)

    def test_ranks_that_begin_with_other_weights_are_told(self):
        """A file of the same name differs on two machines."""
        self.succeed("trun", "plan.tplan", "--data", self.data, "--out", "first", "--steps", 1)
        for folder in "ab":
            (self.folder / folder).mkdir()
        weights = self.weights("first", "a/w.safetensors")
        name = max(weights, key=lambda key: weights[key].size)
        safetensors.numpy.save_file({**weights, name: weights[name] * 2}, self.folder / "b" / "w.safetensors")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ranks = []
        for rank, folder in enumerate("ab"):
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            words = [self.folder / "plan.tplan", "--data", self.data, "--out", "run", "--steps", 3, "--init", "w.safetensors"]
            process = subprocess.Popen([str(BIN / "trun"), *map(str, words)], cwd=self.folder / folder, env=os.environ | place,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(self.end, process)
            ranks.append(process)
        text = ranks[0].communicate(timeout=60)[1].decode()
        self.assertEqual(ranks[0].returncode, 1, text)
        self.assertRegex(text, rf"begin with different state: rank 1 .*'{re.escape(name)}'.*--init")
        self.assertFalse(list((self.folder / "a" / "run" / "checkpoints").glob("step-*")))


class Meeting(Jobs):
    """Ranks that find each other at a port, and processes that do not belong to them."""

    def setUp(self):
        super().setUp()
        self.zoo("mlp", plan="plan.tplan")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def rank(self, number, count, *more, out="run", env=None):
        place = {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        return self.start("plan.tplan", "--data", ZOO / "mlp" / "data.safetensors", "--out", out, "--steps", 4, *more,
                          env=place | (env or {}))

    def wait_for_rank_0(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.02)
        self.fail("rank 0 does not listen")

    def text(self, process, status):
        text = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, status, text)
        return text

    def test_a_second_job_at_the_port_is_told_and_the_first_trains(self):
        ranks = [self.rank(0, 3)]
        self.wait_for_rank_0()
        ranks.append(self.rank(1, 3))
        second = [self.rank(number, 3, out="other") for number in (0, 2)]
        self.assertRegex(self.text(second[0], 1), rf"rank 0 cannot listen on port {self.port}.*MASTER_PORT of its own")
        self.assertRegex(self.text(second[1], 1), "rank 0 has the run run, it has the run other.*MASTER_PORT of its own")
        ranks.append(self.rank(2, 3))
        for process in ranks:
            self.text(process, 0)
        self.assertEqual(len(losses(self.folder / "run")), 4)

    def test_ranks_prove_the_jobs_secret(self):
        secret = {"TRUN_JOB_SECRET": "a secret of this test"}
        (self.folder / "secret").write_text("a secret of this test\n")
        (self.folder / "secret").chmod(0o600)
        first = self.rank(0, 2, env=secret)
        self.wait_for_rank_0()
        for stranger in ({}, {"TRUN_JOB_SECRET": "another one of this test"}):
            self.assertRegex(self.text(self.rank(1, 2, "--insecure-ranks", env=stranger), 1), "TRUN_JOB_SECRET_FILE")
        second = self.rank(1, 2, env={"TRUN_JOB_SECRET_FILE": str(self.folder / "secret")})
        self.assertRegex(self.text(first, 0), r"note: refused a connection from 127\.0\.0\.1: .*another secret")
        self.text(second, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
