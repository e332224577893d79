"""Models and recipes that try to exhaust memory, to block for ever or to control the terminal: the commands refuse them, or handle
them within a bound on memory."""
import ctypes
import json
import os
import resource
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper

import models
from common import EndToEnd

LIMIT = 3 << 30  # address space, of which the program's own code and libraries take a third of a gibibyte


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def checksum(text):
    """XXH3-64, as trun seals JSON with it."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits.restype, library.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return f"{library.XXH3_64bits(text.encode(), len(text.encode())):016x}"


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
        """Each input has a few hundred bytes and once needed gigabytes."""
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
        """A chain with more nodes than a plan may have is refused; one just below the limit compiles on a small stack."""
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
        """A plan's strings are UTF-8, so that it cannot contain such a name."""
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

    def test_attributes_that_onnx_does_not_allow(self):
        """AttributeRulesTest.cpp tests the rules for every op; these attributes once gave plans that computed something else."""
        node, ints = helper.make_node, lambda name, values: tensor(name, TensorProto.INT64, [len(values)], values)
        rnn = [tensor(n, TensorProto.FLOAT, s, np.zeros(s).ravel()) for n, s in (("w", [1, 9, 4]), ("r", [1, 9, 3]))]
        for nodes, inputs, initializers, words in [
                ([node("DepthToSpace", ["x"], ["y"], name="n", blocksize=2, mode="XYZ")], [1, 8, 2, 2], [], "mode is 'XYZ'.*'DCR' or 'CRD'"),
                ([node("DepthToSpace", ["x"], ["y"], name="n", blocksize=-2)], [1, 8, 2, 2], [], "blocksize is -2.*at least 1"),
                ([node("GRU", ["x", "w", "r"], ["y"], name="n", hidden_size=3, layout=-3)], [2, 1, 4], rnn, "layout is -3.*0 or 1"),
                ([node("Split", ["x"], ["y", "z"], name="n", num_outputs=3)], [4, 2], [], "num_outputs is 3, and it has 2 outputs"),
                ([node("Split", ["x", "s"], ["y", "z"], name="n", num_outputs=2)], [4, 2], [ints("s", [1, 3])], "one of them"),
                ([node("ReduceMean", ["x"], ["y"], name="n", keepdims=2)], [4, 2], [], "keepdims is 2.*0 or 1"),
                ([node("Resize", ["x", "", "k"], ["y"], name="n", nearest_mode="up")], [1, 1, 2, 2],
                 [tensor("k", TensorProto.FLOAT, [4], [1, 1, 2, 2])], "nearest_mode is 'up'")]:
            with self.subTest(words):
                opset = 18
                result = self.refuse(1, [], "tcc", self.model(nodes, [("x", inputs)], initializers, opset), "--entry", "predict", "-o",
                                     "out.tplan", prepare=bounded)
                self.assertIn("n (", result.err.replace("'n'", "n (").replace('"n"', "n ("), result)
                self.assertFalse((self.folder / "out.tplan").exists())
                self.assertRegex(result.err, words + "|[Ss]hape.?[Ii]nference|ONNX", str(result))

    def test_a_limit_on_memory_is_one_message(self):
        """Wherever memory runs out, also in LLVM, which cannot throw: exit status 1 and one message, or success."""
        model = self.model([helper.make_node("Gemm", ["x", "w"], ["a"], transB=1), helper.make_node("Softmax", ["a"], ["y"])],
                           initializers=[tensor("w", TensorProto.FLOAT, [3, 4], range(12))])
        seen = set()
        for mebibytes in range(300, 700, 12):
            def limit():
                resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            result = self.command("tcc", model, "--entry", "predict", "-o", "out.tplan", "--threads", "1", prepare=limit)
            # Memory ran out while libraries were loaded, or in their initialisation before main().
            if result.status == 127 or (result.status == -6 and not seen):
                continue
            seen.add(result.status)
            if result.status == 0:
                break
            self.assertIn(result.status, (0, 1), f"{mebibytes} MiB: {result}")
            if result.status == 1:
                self.assertEqual(len(result.err.strip().splitlines()), 1, f"{mebibytes} MiB: {result}")
                for raw in ("std::", "bad_alloc", "LLVM ERROR", "terminate"):
                    self.assertNotIn(raw, result.err, f"{mebibytes} MiB")
        self.assertIn(1, seen, "no limit was below what the compile needs")

    def test_values_of_any_depth_are_refused(self):
        """Settings, sealed manifests and graphs that are nested 30,000 to 100,000 levels deep."""
        plan = self.compile(models.mlp(self.folder / "mlp.onnx"), "--recipe", self.write("r.toml", models.SQUARES), plan="p.tplan")
        data = self.save("d.safetensors", **models.mlp_data(16))
        deep = lambda n: "[" * n + "]" * n
        for setting in ("data.transform", "data.pad", "optimizer", "data.map"):
            self.refuse(2, ["--set " + setting], "trun", plan, "--data", data, "--steps", 1, "--out", "a", "--set", f"{setting}=" + deep(30000))
            self.refuse(1, [setting], "tcc", self.folder / "mlp.onnx", "-o", "b.tplan", "--set", f"{setting}=" + deep(30000))
        self.refuse(1, ["nested deeper than 32"], "tcc", self.folder / "mlp.onnx", "-o", "b.tplan", "--recipe",
                    self.write("deep.toml", "[loss]\nkind = " + deep(100000) + "\n"))
        for text in ('{"format":1,"nodes":[{"cost":1,"bytes":1}],"edges":[' + deep(100000) + "]}",
                     '{"format":' + deep(100000) + ',"nodes":[],"edges":[]}'):
            self.refuse(1, ["g.json: nested deeper than 32 levels"], "tcc-plan", "remat", self.write("g.json", text), "--frontier")
        run = self.train(plan, data, "--set", "data.workers=0", steps=2)
        path = run / "checkpoints/step-2/manifest.json"
        manifest = json.loads(path.read_text())
        manifest.pop("xxh3")
        for settings in (["data.transform=" + deep(100000)], json.loads(deep(200))):
            manifest["settings"] = settings
            text = json.dumps(manifest, indent=1)
            text = text[:text.rindex("}")].rstrip() + ",\n"
            path.write_text(text + f'"xxh3": "{checksum(text)}"\n}}\n')
            for words in (("--resume", run, "--steps", 4), ("eval", plan, "--data", data, "--from", run), ("export", run, "-o", "e.onnx")):
                result = self.command("trun", *words, prepare=bounded)
                self.assertIn(result.status, (0, 1, 2), str(result)[:2000])
            self.assertIn(self.command("trun", "report", run).status, (0, 1))
        header = ('{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":' + deep(100000) + "}}").encode()
        path = self.write("deep.safetensors", len(header).to_bytes(8, "little") + header + bytes(4))
        self.assertIn(self.command("trun", plan, "--data", path, "--steps", 1, "--out", "c", prepare=bounded).status, (1, 2))


if __name__ == "__main__":
    unittest.main()
