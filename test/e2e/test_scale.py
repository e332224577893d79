"""Long and wide graphs: compile time and memory grow with the number of nodes, not with its square.

The tests measure no time. If a step becomes quadratic again, these models exceed the suite's limit of minutes, or the limit on
memory that each compile gets here.
"""
import random
import resource
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from common import EndToEnd

MEMORY = 4 << 30                       # of address space: LLVM's libraries and the threads' stacks take a good part of it
LARGEST_KERNEL = 256                   # ops of a generated kernel (passes/fusion/FuseKernels.cpp)
OPS = ["Tanh", "Sigmoid", "Neg", "Abs"]
ORDER = random.Random(1).choices(range(4), k=6000)    # of a chain's ops, at random since a repeating sequence becomes a loop
NUMPY = [np.tanh, lambda x: 1 / (1 + np.exp(-x)), np.negative, np.abs]


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Scale(EndToEnd):
    def model(self, name, nodes, inputs, outputs, weights=()):
        def infos(table):
            return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in table]
        for i, node in enumerate(nodes):
            node.name = f"n{i}"
        graph = helper.make_graph(nodes, "graph", infos(inputs), infos(outputs),
                                  [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in weights])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / name)
        return self.folder / name

    def chain(self, count, trained):
        """x → count pointwise ops → v; if `trained`, x·w comes first, and the loss is the mean of the last value."""
        nodes, value = [], "x"
        if trained:
            nodes, value = [helper.make_node("Mul", ["x", "w"], ["v"])], "v"
        for i in range(count):
            nodes.append(helper.make_node(OPS[ORDER[i]], [value], [f"v{i}"]))
            value = f"v{i}"
        if trained:
            nodes.append(helper.make_node("ReduceMean", [value], ["loss"], keepdims=0))
        output = ("loss", []) if trained else (value, [4, 8])
        return self.model(f"chain{count}.onnx", nodes, [("x", [4, 8])], [output], [("w", np.ones(8))] if trained else [])

    def compile_within(self, model, *arguments, plan="plan.tplan"):
        return self.compile(model, *arguments, plan=plan, prepare=limit)

    def test_a_chain_of_6000_nodes(self):
        self.compile_within(self.chain(6000, False))
        kernels = self.report("plan.tplan")["kernels"]
        self.assertTrue(all(len(k["nodes"]) <= LARGEST_KERNEL * k["count"] for k in kernels))
        self.succeed("trun", "verify", "plan.tplan")

    def test_a_chain_in_several_kernels_computes_the_same(self):
        model = self.chain(1000, False)
        self.compile_within(model)
        x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
        self.succeed("trun", "predict", "plan.tplan", "--inputs", self.save("x.safetensors", x=x), "--outputs", "y.safetensors")
        expected = x.astype(np.float64)
        for i in range(1000):
            expected = NUMPY[ORDER[i]](expected)
        got = safetensors.numpy.load_file(self.folder / "y.safetensors")["v999"]
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        first = (self.folder / "plan.tplan").read_bytes()
        self.compile_within(model)
        self.assertTrue((self.folder / "plan.tplan").read_bytes() == first, "two compiles differ")

    def test_training_a_chain(self):
        plan = self.compile_within(self.chain(1000, True), "--entry", "train")
        self.train(plan, self.save("d.safetensors", x=np.ones((8, 8), np.float32)), "--no-release", steps=2)

    def test_20000_inputs(self):
        """This once took 8 GiB: each attribute of one argument copied the list of all arguments' attributes."""
        count = 20000
        nodes = [helper.make_node("Sum", [f"x{j}" for j in range(i, min(i + 100, count))], [f"s{i}"]) for i in range(0, count, 100)]
        nodes.append(helper.make_node("Sum", [n.output[0] for n in nodes], ["y"]))
        self.compile_within(self.model("in.onnx", nodes, [(f"x{i}", [2, 2]) for i in range(count)], [("y", [2, 2])]))

    def test_readers_of_one_value(self):
        """A sum of thousands of parallel branches: fusion could ask of each pair whether it makes one kernel."""
        count = 2000
        nodes = [helper.make_node("Mul", ["x", "w"], ["v"])]
        nodes += [helper.make_node(OPS[i % 2], ["v"], [f"b{i}"]) for i in range(count)]
        nodes += [helper.make_node("Sum", [f"b{i}" for i in range(count)], ["s"]),
                  helper.make_node("ReduceMean", ["s"], ["loss"], keepdims=0)]
        self.compile_within(self.model("wide.onnx", nodes, [("x", [4, 8])], [("loss", [])], [("w", np.ones(8))]), "--entry", "train")

    def test_training_many_layers(self):
        nodes, value, weights = [], "x", []
        for i in range(200):
            weights += [(f"w{i}", np.eye(8)), (f"b{i}", np.zeros(8))]
            nodes += [helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]), helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
                      helper.make_node("Relu", [f"a{i}"], [f"v{i}"])]
            value = f"v{i}"
        nodes.append(helper.make_node("ReduceMean", [value], ["loss"], keepdims=0))
        self.compile_within(self.model("deep.onnx", nodes, [("x", [4, 8])], [("loss", [])], weights), "--entry", "train")


if __name__ == "__main__":
    unittest.main()
