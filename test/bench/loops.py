"""Time recurrences that the graph writes out step by step, and PyTorch's: `loops.py --bin BUILD/bin --torch PYTHON [--only NAME]...`

A *scan* is a cell h = tanh(h·w + h V + x) in an ONNX Scan. *Linear attention* is ONNX's LinearAttention with the gated delta rule. PyTorch
runs the same arithmetic eagerly, in a Python loop over the steps. Both train by SGD on two threads. PyTorch's step and ours take turns; the
table gives medians and the spread of the ratio over the rounds. PYTHON has torch; this script itself needs onnx and numpy.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS, ROUNDS = 2, 3
SCANS = {"scan-2000": (2000, 8, 16), "scan-2000-wide": (2000, 64, 16)}                            # steps, samples, width
ATTENTIONS = {"linear-attention-4096": (4096, 2, 2, 8), "linear-attention-1024-wide": (1024, 4, 4, 32)}    # tokens, batch, heads, size


def write(name, folder):
    """model.onnx and data.npz."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    draw = np.random.default_rng(0)

    def random(*shape, scale=0.2):
        return (scale * draw.standard_normal(shape)).astype(np.float32)

    def info(table):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in table.items()]
    if name in SCANS:
        steps, rows, width = SCANS[name]
        shape, weights = [rows, steps, width], {"w": random(width), "V": random(width, width)}
        body = helper.make_graph(
            [helper.make_node("Mul", ["h", "w"], ["a"]), helper.make_node("MatMul", ["h", "V"], ["b"]), helper.make_node("Add", ["a", "b"], ["c"]),
             helper.make_node("Add", ["c", "s"], ["d"]), helper.make_node("Tanh", ["d"], ["next"]), helper.make_node("Identity", ["next"], ["part"])],
            "body", info({"h": [rows, width], "s": [rows, width]}), info({"next": [rows, width], "part": [rows, width]}))
        nodes = [helper.make_node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])]
        constants = {"zero": np.zeros((rows, width), np.float32)}
    else:
        tokens, batch, heads, size = ATTENTIONS[name]
        width = heads * size
        shape, constants = [batch, tokens, width], {}
        scale = 0.3 * width ** -0.5         # keys shorter than 1, so that the delta rule does not diverge
        weights = {n: random(width, width, scale=scale) for n in ("wq", "wk", "wv", "wd")} | {"wb": random(width, heads, scale=scale)}
        nodes = [helper.make_node("MatMul", ["x", "w" + n], [n + "0"]) for n in "qkvdb"]
        nodes += [helper.make_node("Sigmoid", ["d0"], ["d1"]), helper.make_node("Log", ["d1"], ["d"]), helper.make_node("Sigmoid", ["b0"], ["b"]),
                  helper.make_node("LinearAttention", ["q0", "k0", "v0", "", "d", "b"], ["y", "state"], update_rule="gated_delta", q_num_heads=heads,
                                   kv_num_heads=heads)]
    for i, node in enumerate(nodes):
        node.name = f"n{i}"
    nodes.append(helper.make_node("ReduceMean", ["y"], ["loss"], "loss", keepdims=0))
    frozen = 'model.frozen = ["zero"]\n' if name in SCANS else ""
    graph = helper.make_graph(nodes, "graph", info({"x": shape}), info({"loss": []}),
                              [numpy_helper.from_array(v, n) for n, v in (weights | constants).items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10), folder / "model.onnx")
    (folder / "recipe.toml").write_text(frozen + '[loss]\noutput = "loss"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n')
    np.savez(folder / "data.npz", x=draw.standard_normal(shape).astype(np.float32))
    np.savez(folder / "weights.npz", **weights)


def torch_steps(name, folder):
    """Seconds of PyTorch's steps, and the first loss."""
    import numpy as np
    import torch
    torch.set_num_threads(THREADS)
    x = torch.from_numpy(np.load(folder / "data.npz")["x"])
    weights = {n: torch.from_numpy(w).requires_grad_() for n, w in np.load(folder / "weights.npz").items()}

    def scan():
        h, parts = torch.zeros(x.shape[0], x.shape[2]), []
        for t in range(x.shape[1]):
            h = torch.tanh(h * weights["w"] + h @ weights["V"] + x[:, t])
            parts.append(h)
        return torch.stack(parts, 1)

    def attention():
        tokens, batch, heads, size = ATTENTIONS[name]
        q, k, v, d = ((x @ weights["w" + n]).view(batch, tokens, heads, size).transpose(1, 2) for n in "qkvd")
        decay, beta = torch.sigmoid(d), torch.sigmoid(x @ weights["wb"]).transpose(1, 2)
        q, state, parts = q * size ** -0.5, torch.zeros(batch, heads, size, size), []
        for t in range(tokens):
            state = state * decay[:, :, t, :, None]
            seen = (k[:, :, t, None] @ state).squeeze(2)
            update = beta[:, :, t, None] * (v[:, :, t] - seen)
            state = state + k[:, :, t, :, None] * update[:, :, None]
            parts.append((q[:, :, t, None] @ state).squeeze(2))
        return torch.stack(parts, 1)
    optimizer, times, first = torch.optim.SGD(weights.values(), 0.1), [], None
    for _ in range(3):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = (scan if name in SCANS else attention)().mean()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        first = loss.item() if first is None else first
    print(min(times[1:]), first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("build/bin"))
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--only", action="append", choices=[*SCANS, *ATTENTIONS])
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return torch_steps(options.peer[0], Path(options.peer[1]))
    print("| recurrence | compile, s | plan, KB | ours, ms | PyTorch, ms | ours ÷ PyTorch | losses differ by |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in options.only or [*SCANS, *ATTENTIONS]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write(name, folder)
            plan, data = folder / "model.tplan", folder / "data.npz"
            start = time.perf_counter()
            subprocess.run([options.bin / "tcc", folder / "model.onnx", "--recipe", folder / "recipe.toml", "-o", plan, "--no-cache", "--quiet"], check=True)
            compiled = time.perf_counter() - start
            run = subprocess.run([options.bin / "trun", plan, "--data", data, "--steps", "1", "--out", folder / "run", "--no-release"], check=True,
                                 capture_output=True, text=True)
            loss = float(re.search(r'"loss":\s*([-\d.e+]+)', (folder / "run" / "metrics.jsonl").read_text()).group(1))
            ours, theirs = [], []
            for _ in range(ROUNDS):
                text = subprocess.run([options.bin / "trun", "profile", plan, "--data", data, "--threads", str(THREADS)], check=True, capture_output=True,
                                      text=True).stdout
                ours.append(float(re.search(r"a step takes ([\d.]+) s", text).group(1)))
                text = subprocess.run([options.torch, __file__, "--peer", name, folder], check=True, capture_output=True, text=True,
                                      env=os.environ | {"OMP_NUM_THREADS": str(THREADS)}).stdout.split()
                theirs.append(float(text[0]))
            ratios = [a / b for a, b in zip(ours, theirs)]
            print(f"| {name} | {compiled:.1f} | {plan.stat().st_size / 1e3:.0f} | {1e3 * statistics.median(ours):.2f} | {1e3 * statistics.median(theirs):.0f} | "
                  f"{statistics.median(ratios):.4f} ({min(ratios):.4f}–{max(ratios):.4f}) | {abs(loss - float(text[1])) / abs(loss):.0e} |", flush=True)


if __name__ == "__main__":
    main()
