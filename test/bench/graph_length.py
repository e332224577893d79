"""Compile time by the length of the graph: `graph_length.py --bin BUILD/bin [--only NAME]...`.

Writes graphs of tensors 4 × 8 and compiles each without a cache, all entries. A *chain* is pointwise ops in a row, *with parameters* half
of them additions of a parameter of its own; *wide* is so many branches of one value, summed; a *tree* adds products with a parameter in
pairs; *layers* are MatMul, Add and ReLU. All but the first train. Prints processor seconds and peak memory of tcc as a table.
"""
import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPS = ["Tanh", "Sigmoid", "Neg", "Abs"]
GRAPHS = [("chain", 2000), ("chain", 20000), ("chain that trains", 2000), ("chain that trains", 4000), ("chain with parameters", 2000),
          ("wide", 2000), ("tree", 2000), ("layers", 500), ("layers", 1000)]


def build(kind, count):
    nodes, weights = [], {}

    def node(op, *inputs):
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], f"n{len(nodes)}"))
        return nodes[-1].output[0]

    def weight(*shape):
        weights[f"w{len(weights)}"] = np.full(shape, 0.5, np.float32)
        return f"w{len(weights) - 1}"

    value = "x" if kind == "chain" else node("Mul", "x", weight(8))
    if kind == "wide":
        branches = [node(OPS[i % 4], value) for i in range(count // 2)]
        value = branches[0]
        for branch in branches[1:]:
            value = node("Add", value, branch)
    elif kind == "tree":
        leaves = [node("Mul", value, weight(8)) for _ in range(count // 2)]
        while len(leaves) > 1:
            leaves = [node("Add", *leaves[i:i + 2]) if i + 1 < len(leaves) else leaves[i] for i in range(0, len(leaves), 2)]
        value = leaves[0]
    elif kind == "layers":
        for _ in range(count):
            value = node("Relu", node("Add", node("MatMul", value, weight(8, 8)), weight(8)))
    else:
        for i in range(count):
            value = node("Add", value, weight(8)) if kind == "chain with parameters" and i % 2 else node(OPS[i % 4], value)
    shape = [4, 8]
    if kind != "chain":
        nodes.append(helper.make_node("ReduceMean", [value], ["loss"], "loss", keepdims=0))
        value, shape = "loss", []
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", 1, [4, 8])], [helper.make_tensor_value_info(value, 1, shape)],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="a kind of graph")
    options = parser.parse_args()
    print("| graph | processor seconds | peak memory, MiB |\n| --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for kind, count in GRAPHS:
            if options.only and kind not in options.only:
                continue
            model = Path(folder) / "model.onnx"
            onnx.save(build(kind, count), model)
            words = [options.bin / "tcc", model, "--no-cache", "--quiet", "-o", Path(folder) / "model.tplan"]
            process = subprocess.Popen(list(map(str, words + (["--set", "loss.output=loss"] if kind != "chain" else []))))
            _, status, used = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"tcc failed on {kind}, {count}")
            print(f"| {kind}, {count:,} | {used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss / 1024:.0f} |", flush=True)


if __name__ == "__main__":
    main()
