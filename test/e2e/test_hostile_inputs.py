"""Models and recipes made to take memory, to wait for ever or to write to the terminal: the commands refuse them, or take
them as they are, within a bound on memory."""
import os
import resource
import unittest

import onnx
from onnx import TensorProto, helper

import models
from common import EndToEnd

LIMIT = 3 << 30  # address space, of which the program's own code and libraries take a third of a gibibyte


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def tensor(name, kind, shape, values):
    return helper.make_tensor(name, kind, shape, values)


class HostileInputs(EndToEnd):
    def model(self, nodes, inputs=(("x", [2, 4]),), initializers=(), opset=17, name="m.onnx", **extra):
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(initializers), **extra)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        path = self.folder / name
        path.write_bytes(made.SerializeToString())
        return path

    def refused(self, model, *patterns):
        self.refuse(1, patterns, "tcc", model, "--entry", "predict", "-o", "out.tplan", prepare=bounded)
        inspected = self.command("tcc", "inspect", model, prepare=bounded)
        self.assertIn(inspected.status, (0, 1), str(inspected))
        self.assertFalse((self.folder / "out.tplan").exists())

    def test_memory_is_bounded_by_the_input(self):
        """Each takes a few hundred bytes and asked for gigabytes."""
        node = helper.make_node
        with self.subTest("a sparse tensor of 2^30 elements"):
            sparse = helper.make_sparse_tensor(tensor("w", TensorProto.FLOAT, [1], [1.0]),
                                               tensor("i", TensorProto.INT64, [1], [0]), [1 << 30])
            self.refused(self.model([node("Add", ["x", "w"], ["y"])], sparse_initializer=[sparse]), '"w"', "256 MiB")
        with self.subTest("a grid of 2^62 points"):
            size = tensor("s", TensorProto.INT64, [4], [1, 1, 1 << 31, 1 << 31])
            self.refused(self.model([node("AffineGrid", ["t", "s"], ["y"], name="grid")], [("t", [1, 2, 3])], [size], 20),
                         "grid", "at most 33554432")
        with self.subTest("a one-hot row of 2^62 elements"):
            initializers = [tensor("i", TensorProto.INT64, [1], [1]), tensor("d", TensorProto.INT64, [], [1 << 62]),
                            tensor("v", TensorProto.FLOAT, [2], [0, 1])]
            self.refused(self.model([node("OneHot", ["i", "d", "v"], ["y"], name="hot")], [], initializers), "hot", "depth")
        with self.subTest("an input of 2^62 rows"):
            self.refused(self.model([node("Relu", ["x"], ["y"])], [("x", [1 << 62, 4])]), "input x", "1 TiB")

    def test_a_billion_equal_elements_are_a_number_when_compiling(self):
        node = helper.make_node
        shape = tensor("s", TensorProto.INT64, [1], [1_000_000_000])
        model = self.model([node("ConstantOfShape", ["s"], ["k"]), node("ReduceSum", ["k"], ["r"], keepdims=0),
                            node("Add", ["x", "r"], ["y"])], initializers=[shape])
        self.succeed("tcc", model, "--entry", "predict", "-o", "out.tplan", prepare=bounded)

    def test_chains_of_any_length_are_no_recursion(self):
        """A loop over more nodes than a plan may have, and one just below that compiles on a small stack."""
        node = helper.make_node
        body = helper.make_graph(
            [node("Identity", ["c"], ["d"]), node("Sin", ["v"], ["w"])], "body",
            [helper.make_tensor_value_info("i", TensorProto.INT64, []),
             helper.make_tensor_value_info("c", TensorProto.BOOL, []),
             helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 4])],
            [helper.make_tensor_value_info("d", TensorProto.BOOL, []),
             helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 4])])
        loop = node("Loop", ["m", "c0", "x"], ["y"], name="loop", body=body)
        going = tensor("c0", TensorProto.BOOL, [], [True])
        self.refused(self.model([loop], initializers=[tensor("m", TensorProto.INT64, [], [100_000]), going]),
                     "loop", "more than 100000 nodes")

    def test_a_fifo_is_not_waited_for(self):
        model = models.mlp(self.folder / "mlp.onnx")
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        with self.subTest("as the model"):
            self.refuse(1, ["fifo", "not a regular file"], "tcc", fifo, "-o", "out.tplan")
            self.refuse(1, ["fifo", "not a regular file"], "tcc", "inspect", fifo)
        with self.subTest("as the recipe"):
            self.refuse(1, ["fifo", "not a regular file"], "tcc", model, "--recipe", fifo, "-o", "out.tplan")
        with self.subTest("as external data"):
            loaded = onnx.load(model)
            weight = next(i for i in loaded.graph.initializer if i.name == "w1")
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="fifo")
            (self.folder / "external.onnx").write_bytes(loaded.SerializeToString())
            self.refuse(1, ["fifo", "not a regular file"], "tcc", "external.onnx", "-o", "out.tplan")

    def test_names_do_not_reach_the_terminal_as_they_are(self):
        node = helper.make_node
        name = "\x1b[31mred\u202e\u009b\x07"
        shape = tensor("s", TensorProto.INT64, [1], [7])
        model = self.model([node("Reshape", [name, "s"], ["y"], name="a\nb" + name)], [(name, [2, 4])], [shape])
        for words in (("inspect", model), (model, "--entry", "predict", "-o", "out.tplan")):
            result = self.command("tcc", *words)
            text = result.out + result.err
            self.assertIn("\\u001b[31mred\\u202e\\u009b\\u0007", text)
            for character in "\x1b\u202e\u009b\x07":
                self.assertNotIn(character, text, str(result))
            self.assertNotRegex(text, r"(?m)^b")
        good = self.model([node("Relu", [name], ["y"], name=name)], [(name, [2, 4])])
        for words in ((good, "--entry", "predict", "-o", "out.tplan"), ("inspect", good), ("report", "out.tplan"),
                      ("report", "out.tplan", "--json")):
            result = self.succeed("tcc", *words)
            self.assertNotIn("\x1b", result.out + result.err, str(result))

    def test_names_that_are_no_text(self):
        """A plan's strings are UTF-8, so that no such name can stand in it."""
        model = self.model([helper.make_node("Relu", ["AA"], ["y"])], [("AA", [2, 4])])
        model.write_bytes(model.read_bytes().replace(b"AA", b"A\xff"))
        result = self.refuse(1, [r"A\\xff.*not UTF-8"], "tcc", model, "--entry", "predict", "-o", "out.tplan")
        self.assertEqual(len(result.err.strip().splitlines()), 1, str(result))

    def test_a_recipe_that_is_no_text(self):
        model = models.mlp(self.folder / "mlp.onnx")
        for content in (b"[\0]\nk", b"[loss]\nsh\xc8\x96ift = true\n", b"a" + b".a" * 50_000 + b" = 1", b"\xff"):
            with self.subTest(content=content[:20]):
                self.write("bad.toml", content)
                result = self.refuse(1, [r"bad\.toml:\d+:\d+: "], "tcc", model, "--recipe", "bad.toml", "-o", "out.tplan",
                                     prepare=bounded)
                self.assertEqual(len(result.err.strip().splitlines()), 1, str(result))


if __name__ == "__main__":
    unittest.main()
