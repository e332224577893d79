"""Seeds of the fuzz targets, and their replay.

    corpus.py make NAME FOLDER          writes the seeds of a target: real models and recipes of the zoo, small files of
                                        every data format
    corpus.py replay PROGRAM NAME       runs a replaying target over the seeds and over corpus/NAME, past findings among
                                        them, in 4 GiB of address space; --unlimited: in any
"""
import gzip
import io
import json
import os
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import onnx
from safetensors.numpy import save

HERE = Path(__file__).resolve().parent
ZOO = HERE.parent / "e2e" / "zoo"
MOST_MODEL_BYTES = 100_000


def models():
    """The smaller models of the zoo, and one graph for each construct that is rare in the zoo."""
    for file in sorted(ZOO.glob("*/model.onnx")):
        if file.stat().st_size <= MOST_MODEL_BYTES:
            yield f"{file.parent.name}.onnx", file.read_bytes()
    op = onnx.helper
    for name, nodes, functions in small_graphs():
        graph = op.make_graph(nodes, name, [op.make_tensor_value_info("x", 1, ["batch", 4])],
                              [op.make_tensor_value_info("y", 1, None)],
                              [onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")])
        model = op.make_model(graph, opset_imports=[op.make_opsetid("", 21), op.make_opsetid("local", 1)],
                              functions=functions)
        yield f"{name}.onnx", model.SerializeToString()


def small_graphs():
    """Branches, loops, functions, sequences, and ops whose results depend on constants."""
    op = onnx.helper
    node = op.make_node
    constant = lambda name, value: node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(value)))
    value = lambda name, shape=None, kind=1: op.make_tensor_value_info(name, kind, shape)
    branch = lambda name, kind: op.make_graph([node(kind, ["x"], [f"{name}_out"])], name, [], [value(f"{name}_out")])
    yield "if", [constant("c", True), node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Neg"))], []
    body = op.make_graph([node("Add", ["v", "v"], ["v2"]), node("Identity", ["k"], ["k2"])], "body",
                         [value("i", [], 7), value("k", [], 9), value("v")], [value("k2", [], 9), value("v2")])
    yield "loop", [constant("n", 3), constant("k0", True), node("Loop", ["n", "k0", "x"], ["y"], body=body)], []
    scan = op.make_graph([node("Add", ["s", "e"], ["s2"]), node("Identity", ["s2"], ["o"])], "scan",
                         [value("s"), value("e")], [value("s2"), value("o")])
    yield "scan", [constant("s0", [0.0] * 4), node("Scan", ["s0", "x"], ["last", "y"], body=scan, num_scan_inputs=1)], []
    double = op.make_function("local", "Double", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [op.make_opsetid("", 21)])
    yield "function", [node("Double", ["x"], ["y"], domain="local")], [double]
    yield "einsum", [node("Einsum", ["x", "w"], ["y"], equation="bi,ij->bj")], []
    yield "sequence", [node("SequenceConstruct", ["x", "x"], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)], []
    yield "pad", [constant("p", [0, 1, 0, 2]), node("Pad", ["x", "p"], ["y"])], []
    yield "resize", [constant("r", [1.0, 1.7]), node("Resize", ["x", "", "r"], ["y"], mode="linear")], []
    yield "onehot", [constant("d", 7), constant("v", [0.0, 1.0]), node("Cast", ["x"], ["i"], to=7), node("OneHot", ["i", "d", "v"], ["y"])], []


def recipes():
    for file in sorted(ZOO.glob("*/recipe.toml")):
        yield f"{file.parent.name}.toml", file.read_bytes()
    yield "settings.toml", b"#set optimizer.lr=1e-3\n#set model.frozen=['a*']\n[model]\ndims = { batch = 4 }\n"


def tensors():
    columns = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "label": np.arange(3), "flag": np.array([True, False, True])}
    yield "three.safetensors", save(columns, {"format": "np"})
    yield "empty.safetensors", save({})


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(compression):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("x.npy", npy(np.ones((3, 2), np.float32)))
        archive.writestr("label.npy", npy(np.arange(3)))
    return out.getvalue()


def png(width=4, height=3):
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes(range(3 * width)) for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def tar(mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name in ("a/1.png", "a/2.png", "b/1.png"):
            entry = tarfile.TarInfo(name)
            entry.size = len(png())
            archive.addfile(entry, io.BytesIO(png()))
    return out.getvalue()


def idx(dims, body):
    return struct.pack(">HBB", 0, 8, len(dims)) + b"".join(struct.pack(">I", dim) for dim in dims) + body


def data():
    """Files, each with the number of its kind (Data.cpp) before its bytes."""
    jpeg = (HERE / "corpus" / "tiny.jpg").read_bytes()
    files = [next(tensors())[1], npz(zipfile.ZIP_DEFLATED), npy(np.ones((3, 2))), npy(np.arange(5)), tar("w"), tar("w:gz"),
             idx([3, 2, 2], bytes(12)), gzip.compress(idx([3, 2, 2], bytes(12)), mtime=0), bytes(2 * 3073), bytes(2 * 3074),
             b"x,label\n1,0\n2.5,1\n", "größer than ascii €\n".encode() * 4, b"plain bytes " * 8,
             struct.pack("<64H", *range(64)), struct.pack("<64I", *range(64)), jpeg, png(),
             b'{"x": [1.5, 2], "c": "a", "y": 1}\n{"x": [3, 4], "y": null}\n', b'[{"x": [[1], [2]], "y": true}, {"x": [[3], [null]]}]',
             b'c;x\r\n"a;\n""b""";1\r\nNA;\r\nd;2\r\n', b"x.0,x.1,x\n1,2,3\n4,5,6\n",
             *((HERE.parent / "unit" / "data" / "tables" / f"table.{kind}").read_bytes() for kind in ("parquet", "feather"))]
    for kind, content in enumerate(files):
        yield f"kind-{kind}", bytes([kind]) + content
    yield "stream", bytes([len(files) - 1]) + (HERE.parent / "unit" / "data" / "tables" / "table.arrows").read_bytes()


def manifest():
    """The manifest of a checkpoint of version 2, with one tensor in two slices; then a zero byte, and the shard."""
    shard = save({"w": np.ones((2, 3), np.float32), "v/0": np.zeros((1, 2), np.float32), "v/1": np.ones((1, 2), np.float32),
                  "count": np.array(3)})
    piece = lambda key, start, shape: {"shard": 0, "key": key, "start": start, "shape": shape}
    tensor = lambda name, role, dtype, shape, *slices: {"name": name, "role": role, "dtype": dtype, "shape": shape, "slices": [*slices]}
    zeros = "0" * 16
    whole = {"format": "tcc checkpoint", "version": 2, "requires": [], "producer": "trun 0.1.0", "model": "m.onnx", "plan": zeros,
             "run_files": {"classes.json": zeros},
             "position": {"step": 4, "epoch": 0, "batch": 4, "seed": 7, "shuffle": True, "schedule_total": 8.0, "damaged_samples": [3]},
             "best": {"step": 2, "eval_loss": 0.5}, "settings": ["optimizer.lr=1e-3"], "training": {"optimizer.lr": 0.001},
             "frozen": {"mask": zeros},
             "data": {"samples": 32, "epoch_samples": 32, "batch": 4, "epoch_batches": 8, "columns": {"x": "f32[32x4]"}, "fingerprint": zeros},
             "shards": [{"file": "state.safetensors", "bytes": len(shard), "xxh3": zeros}],
             "tensors": [tensor("w", "parameter", "f32", [2, 3], piece("w", [0, 0], [2, 3])),
                         tensor("v", "optimizer", "f32", [2, 2], piece("v/0", [0, 0], [1, 2]), piece("v/1", [1, 0], [1, 2])),
                         tensor("count", "counter", "i64", [], piece("count", [], []))]}
    yield "version-2", json.dumps(whole).encode() + b"\0" + shard
    first = {"version": 1, "step": 4, "epoch": 0, "batch": 4, "seed": 7, "settings": [], "files": {"state.safetensors": {"xxh3": zeros}}}
    yield "version-1", json.dumps(first).encode() + b"\0" + shard


def plans():
    """Small plans of the compiler in TCC_BIN: dense layers with clipping, variants, convolutions."""
    cases = {"mlp": ["--set", "train.accumulate=2", "--set", "train.clip_norm=1.0"], "small-cnn": [],
             "mha-need-weights": ["--variants", "2"]}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in cases.items():
            file = Path(folder) / f"{name}.tplan"
            subprocess.run([os.environ["TCC_BIN"] + "/tcc", ZOO / name / "model.onnx", "--recipe", ZOO / name / "recipe.toml", "--quiet",
                            "--no-cache", *words, "-o", file], check=True, stdin=subprocess.DEVNULL)
            yield file.name, file.read_bytes()


SEEDS = {"model": models, "recipe": recipes, "safetensors": tensors, "data": data, "checkpoint": manifest, "plan": plans}


def make(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in SEEDS[name]():
        (folder / file).write_bytes(content)


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def replay(program, name, limited):
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "seeds"
        make(name, inputs)
        files = sorted(inputs.iterdir()) + sorted((HERE / "corpus" / name).glob("*"))
        ran = subprocess.run([program, *files], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                             preexec_fn=limits if limited else None, timeout=600)
    if ran.returncode:
        print(ran.stdout[-2000:], ran.stderr[-8000:], f"\n{name}: stopped with {ran.returncode} at the input printed last", sep="")
        return 1
    print(ran.stdout.splitlines()[-1])
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(replay(sys.argv[2], sys.argv[3], "--unlimited" not in sys.argv))
