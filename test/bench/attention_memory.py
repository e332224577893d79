"""Memory of attention by length: `attention_memory.py --bin BUILD/bin [--lengths 1024,2048,...]`.

Compiles the gradients of one causal attention of 2 heads of 16 features, f32, fused and with compiler.attention = "unfused", and prints
the arenas that `tcc report` states as a table. Unfused attention is left out from --longest on, where its scores take gigabytes.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADS, FEATURES = 2, 16


def build(length):
    def constant(name, value):
        return helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(value))
    nodes = [helper.make_node("Mul", ["x", "w"], ["q"], "q"), helper.make_node("Transpose", ["q"], ["k"], "k", perm=[0, 1, 3, 2]),
             helper.make_node("MatMul", ["q", "k"], ["scores"], "scores"),
             constant("ones", np.ones((1, 1), np.float32)), constant("shape", np.array([length, length])), constant("none", np.float32(-np.inf)),
             constant("one", np.array(1)), helper.make_node("Expand", ["ones", "shape"], ["square"], "square"),
             helper.make_node("Trilu", ["square", "one"], ["triangle"], "triangle", upper=1),
             helper.make_node("Cast", ["triangle"], ["above"], "above", to=onnx.TensorProto.BOOL),
             helper.make_node("Where", ["above", "none", "scores"], ["masked"], "masked"),
             helper.make_node("Softmax", ["masked"], ["weights"], "weights", axis=-1),
             helper.make_node("MatMul", ["weights", "q"], ["y"], "y"), helper.make_node("ReduceMean", ["y"], ["loss"], "loss", keepdims=0)]
    shape = [1, HEADS, length, FEATURES]
    graph = helper.make_graph(nodes, "attention", [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info("loss", 1, [])],
                              [numpy_helper.from_array(np.ones(FEATURES, np.float32), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--lengths", default="1024,2048,4096,8192")
    parser.add_argument("--longest", type=int, default=8192, help="from this length on, unfused attention is left out")
    options = parser.parse_args()
    lengths = [int(word) for word in options.lengths.split(",")]
    print("| positions | " + " | ".join(map(str, lengths)) + " |\n| --- |" + " ---: |" * len(lengths))
    with tempfile.TemporaryDirectory() as folder:
        model, plan = Path(folder) / "model.onnx", Path(folder) / "model.tplan"
        for mode in ("fused", "unfused"):
            cells = []
            for length in lengths:
                if mode == "unfused" and length >= options.longest:
                    cells.append("")
                    continue
                onnx.save(build(length), model)
                subprocess.run([options.bin / "tcc", model, "--set", "loss.output=loss", "--set", f"compiler.attention={mode}", "--entry",
                                "gradients", "--quiet", "-o", plan], check=True)
                report = subprocess.run([options.bin / "tcc", "report", plan, "--json"], capture_output=True, text=True, check=True).stdout
                cells.append(f"{json.loads(report)['memory']['arena_bytes'] / 2 ** 20:.2f}")
            print(f"| arena, MiB, {mode} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
