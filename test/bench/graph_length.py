"""Compile time by the length of the graph: `graph_length.py --bin BUILD/bin [--only NAME]... [--nodes N]... [--instructions]`.

Writes graphs that train, of small tensors, and compiles each without a cache, entry `train` alone. A *chain* is pointwise ops in a row, drawn by a seed, *with
parameters* half of them additions of a parameter of its own; in a *grid* each node adds its upper and its left neighbour; *wide* sums many
branches of one value; a *tree* adds products with a parameter in pairs; *layers* are MatMul, Add and ReLU, *blocks* those of a transformer,
*convolutions* with batch norms and ReLU are added to their inputs, *concatenations* join all results of their group, and a *recurrence* is
unrolled over its steps.

Prints processor seconds, seconds for each thousand nodes, and peak memory of tcc as a table. With --instructions valgrind counts instructions
instead, which other processes do not disturb: the instructions of each node between N/2 and N nodes, and of each between N/4 and N/2. Fails
if the former are more than 1.25 times the latter.
"""
import argparse
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPS = ["Tanh", "Sigmoid", "Neg", "Abs"]
ORDER = random.Random(1).choices(range(4), k=100_000)      # of a chain's ops: random, since a repeating pattern becomes a loop
WIDTH = 8
MOST = 1.25  # a node's instructions in a graph twice as long; those of a quadratic step would double


class Graph:
    """A graph whose nodes read `x` and parameters. Tensors are small, so that all the time is spent in the compiler."""

    def __init__(self, shape):
        self.shape, self.nodes, self.weights = shape, [], {}

    def node(self, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], f"n{len(self.nodes)}", **attributes))
        return self.nodes[-1].output[0]

    def weight(self, *shape, value=None):
        """A parameter, of different values: equal ones may be tied."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.random.default_rng(len(self.weights)).normal(0, 0.1, shape).astype(np.float32) if value is None else value
        return name

    def linear(self, value, inputs=WIDTH, outputs=WIDTH):
        return self.node("Add", self.node("MatMul", value, self.weight(inputs, outputs)), self.weight(outputs))

    def model(self, end):
        self.nodes.append(helper.make_node("ReduceMean", [end], ["loss"], "loss", keepdims=0))
        graph = helper.make_graph(self.nodes, "graph", [helper.make_tensor_value_info("x", 1, self.shape)],
                                  [helper.make_tensor_value_info("loss", 1, [])],
                                  [numpy_helper.from_array(np.asarray(array), name) for name, array in self.weights.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def chain(count, parameters=False):
    g = Graph([4, WIDTH])
    value = g.node("Mul", "x", g.weight(WIDTH))
    for i in range(count):
        value = g.node("Add", value, g.weight(WIDTH)) if parameters and i % 2 else g.node(OPS[ORDER[i % len(ORDER)]], value)
    return g.model(value)


def grid(count):
    g = Graph([4, WIDTH])
    side = int(count ** 0.5)
    row = [g.node("Mul", "x", g.weight(WIDTH))]
    for _ in range(side - 1):
        row.append(g.node("Tanh", row[-1]))
    for _ in range(side - 1):
        row[0] = g.node("Tanh", row[0])
        for j in range(1, side):
            row[j] = g.node("Add", row[j], row[j - 1])
    return g.model(row[-1])


def wide(count):
    g = Graph([4, WIDTH])
    value = g.node("Mul", "x", g.weight(WIDTH))
    branches = [g.node(OPS[i % 4], value) for i in range(count // 2)]
    value = branches[0]
    for branch in branches[1:]:
        value = g.node("Add", value, branch)
    return g.model(value)


def tree(count):
    g = Graph([4, WIDTH])
    value = g.node("Mul", "x", g.weight(WIDTH))
    leaves = [g.node("Mul", value, g.weight(WIDTH)) for _ in range(count // 2)]
    while len(leaves) > 1:
        leaves = [g.node("Add", *leaves[i:i + 2]) if i + 1 < len(leaves) else leaves[i] for i in range(0, len(leaves), 2)]
    return g.model(leaves[0])


def layers(count):
    g = Graph([4, WIDTH])
    value = "x"
    for _ in range(count // 3):
        value = g.node("Relu", g.linear(value))
    return g.model(value)


def blocks(count):
    g = Graph([2, 16, WIDTH])
    value, scale = "x", g.weight(value=np.float32(WIDTH ** -0.5))
    for _ in range(count // 25):
        h = g.node("LayerNormalization", value, g.weight(WIDTH), g.weight(WIDTH))
        q, k, v = (g.linear(h) for _ in range(3))
        scores = g.node("Mul", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 1])), scale)
        value = g.node("Add", value, g.linear(g.node("MatMul", g.node("Softmax", scores, axis=-1), v)))
        h = g.linear(g.node("LayerNormalization", value, g.weight(WIDTH), g.weight(WIDTH)), WIDTH, 2 * WIDTH)
        value = g.node("Add", value, g.linear(g.node("Mul", h, g.node("Sigmoid", h)), 2 * WIDTH, WIDTH))
    return g.model(value)


def convolutions(count):
    g = Graph([2, WIDTH, 6, 6])
    value = "x"
    for _ in range(count // 4):
        normed = g.node("BatchNormalization", g.node("Conv", value, g.weight(WIDTH, WIDTH, 3, 3), pads=[1, 1, 1, 1]),
                        *(g.weight(value=np.full(WIDTH, v, np.float32)) for v in (1, 0, 0, 1)))
        value = g.node("Add", value, g.node("Relu", normed))
    return g.model(value)


def concatenations(count, group=16):
    g = Graph([4, WIDTH])
    value = "x"
    for _ in range(count // (3 * group + 2)):
        parts = [value]
        for _ in range(group):
            joined = g.node("Concat", *parts, axis=1) if len(parts) > 1 else value
            parts.append(g.node("Relu", g.node("MatMul", joined, g.weight(WIDTH * len(parts), WIDTH))))
        value = g.node("MatMul", g.node("Concat", *parts, axis=1), g.weight(WIDTH * len(parts), WIDTH))
    return g.model(value)


def recurrence(count):
    steps = count // 6
    g = Graph([4, steps, WIDTH])
    inputs, state, bias = g.weight(WIDTH, WIDTH), g.weight(WIDTH, WIDTH), g.weight(WIDTH)
    h = None
    for t in range(steps):
        value = g.node("MatMul", g.node("Gather", "x", g.weight(value=np.int64(t)), axis=1), inputs)
        if h:
            value = g.node("Add", value, g.node("MatMul", h, state))
        h = g.node("Tanh", g.node("Add", value, bias))
    return g.model(h)


KINDS = {"chain": chain, "chain with parameters": lambda count: chain(count, True), "grid": grid, "wide": wide, "tree": tree, "layers": layers,
         "blocks": blocks, "convolutions": convolutions, "concatenations": concatenations, "recurrence": recurrence}


def command(options, folder, kind, count):
    """The command that compiles a graph of the kind, and the graph's number of nodes."""
    model = KINDS[kind](count)
    path = Path(folder) / "model.onnx"
    onnx.save(model, path)
    words = [options.bin / "tcc", path, "--set", "loss.output=loss", "--entry", "train", "--no-cache", "--quiet", "-o", Path(folder) / "model.tplan"]
    return list(map(str, words)), len(model.graph.node)


def seconds(options, folder, kind):
    for count in options.nodes or [1000, 10000, 50000]:
        words, nodes = command(options, folder, kind, count)
        process = subprocess.Popen(words)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"tcc failed on {kind}, {count}")
        time = used.ru_utime + used.ru_stime
        print(f"| {kind} | {nodes:,} | {time:.1f} | {1000 * time / nodes:.1f} | {used.ru_maxrss / 1024:.0f} |", flush=True)


def instructions(options, folder, kind):
    """True if a node takes about as many instructions in the longer graph."""
    counts, sizes = [], []
    largest = (options.nodes or [1000])[0]
    for count in [largest // 4, largest // 2, largest]:
        words, nodes = command(options, folder, kind, count)
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        run = subprocess.run(valgrind + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = re.findall(r"I +refs: +([\d,]+)", run.stdout)  # one count for tcc and for each process that it starts
        if run.returncode or not found:
            raise SystemExit(f"{' '.join(valgrind + words)} failed:\n{run.stdout}")
        counts.append(sum(int(refs.replace(",", "")) for refs in found))
        sizes.append(nodes)
    shorter, longer = ((counts[i + 1] - counts[i]) / (sizes[i + 1] - sizes[i]) / 1e6 for i in range(2))
    print(f"| {kind} | {sizes[-1]:,} | {shorter:.2f} | {longer:.2f} | {longer / shorter:.2f} |", flush=True)
    return longer / shorter <= MOST


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a kind of graph")
    parser.add_argument("--nodes", type=int, action="append", help="of a graph, about; 1,000, 10,000 and 50,000 unless told, with --instructions 1,000")
    parser.add_argument("--instructions", action="store_true", help="count them instead of seconds")
    options = parser.parse_args()
    if options.instructions:
        print("| graph | nodes | million instructions a node, shorter | longer | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    else:
        print("| graph | nodes | processor seconds | for 1,000 nodes | peak memory, MiB |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        good = [(instructions if options.instructions else seconds)(options, folder, kind) for kind in options.only or KINDS]
    if options.instructions and not all(good):
        raise SystemExit(f"a node takes more than {MOST} times as many instructions in a graph twice as long")


if __name__ == "__main__":
    main()
