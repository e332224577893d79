"""The official ONNX backend node tests, through `tcc --entry predict` and `trun predict`.

The cases are code inside the onnx package. Each becomes a model file; many are compiled by one process of tcc, and each plan
runs once on the case's inputs. Cases out of scope are listed by name with the reason (--list-skipped); all others must pass at
the case's own tolerances. Inputs that decide shapes (Reshape's shape, TopK's k) are fed as initializers; the number of these
cases is printed.

    node_tests.py --bin build/bin [--only REGEX] [-j N] [--keep DIR] [--list-skipped] [--json FILE]
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from common import ISOLATED, compile_words, isolated  # noqa: E402
from node_scope import reason_to_skip, only_shapes, shape_inputs  # noqa: E402

# safetensors' names of types; numpy has no bfloat16 of its own, so its bytes travel as uint16.
NAMES = {TensorProto.FLOAT: "F32", TensorProto.DOUBLE: "F64", TensorProto.FLOAT16: "F16", TensorProto.BFLOAT16: "BF16",
         TensorProto.INT64: "I64", TensorProto.INT32: "I32", TensorProto.INT16: "I16", TensorProto.INT8: "I8",
         TensorProto.UINT64: "U64", TensorProto.UINT32: "U32", TensorProto.UINT16: "U16", TensorProto.UINT8: "U8",
         TensorProto.BOOL: "BOOL"}
NUMPY = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "I32": np.int32,
         "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
         "BOOL": np.bool_}


def as_tensor(value):
    """A case's value as TensorProto, whatever form the case holds it in."""
    return value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value))


def elements(proto):
    """(safetensors' type, array); bfloat16 as its bits."""
    array = numpy_helper.to_array(proto)
    if proto.data_type == TensorProto.BFLOAT16:
        array = array.view(np.uint16) if array.dtype.itemsize == 2 else (array.view(np.uint32) >> 16).astype(np.uint16)
    return NAMES[proto.data_type], np.asarray(array)


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, (kind, array) in tensors.items():
        data = array.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + len(data)]}
        blobs.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            array = np.frombuffer(data[8 + size + begin:8 + size + end], NUMPY[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = entry["dtype"], array
    return tensors


def widened(kind, array):
    return (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array


class Case:
    def __init__(self, case, by_name, folder):
        self.name, self.rtol, self.atol = case.name, case.rtol, case.atol
        self.folder = folder / case.name
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        inputs, outputs = case.data_sets[0]
        protos = {value.name: as_tensor(data) for value, data in zip(model.graph.input, inputs)}
        # An expanded function has the inputs of the op that it expands.
        base = by_name.get(re.sub(r"_expanded.*$", "", case.name), case).model.graph
        given = {name for node in base.node for name in shape_inputs(node)}
        self.fed_as_initializer = sorted(given & protos.keys())
        for name in self.fed_as_initializer:
            tensor = TensorProto()
            tensor.CopyFrom(protos.pop(name))
            tensor.name = name
            model.graph.initializer.append(tensor)
        kept = [value for value in model.graph.input if value.name in protos]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        self.inputs = {name: elements(proto) for name, proto in protos.items()}
        self.expected = [(value.name, *elements(as_tensor(data))) for value, data in zip(model.graph.output, outputs)]
        self.folder.mkdir(parents=True)
        onnx.save(model, self.folder / "model.onnx")
        write_safetensors(self.folder / "inputs.safetensors", self.inputs)

    def check(self, trun, device):
        """None, or what is wrong."""
        out = self.folder / "outputs.safetensors"
        run = subprocess.run([trun, "predict", self.folder / "model.tplan", "--inputs", self.folder / "inputs.safetensors",
                              "--outputs", out, *device], capture_output=True, text=True, timeout=300)
        if run.returncode:
            return f"trun: exit status {run.returncode}: {run.stderr.strip()[:500]}"
        results = read_safetensors(out)
        for name, kind, expected in self.expected:
            if not name:
                continue
            if name not in results:
                return f"no output {name}"
            got_kind, got = results[name]
            if got_kind != kind or got.shape != expected.shape:
                return f"{name}: {got_kind}{list(got.shape)}, expected {kind}{list(expected.shape)}"
            if only_shapes(self.name):
                continue
            try:
                np.testing.assert_allclose(widened(kind, got), widened(kind, expected), rtol=self.rtol, atol=self.atol)
            except AssertionError as problem:
                return f"{name}: " + " | ".join(str(problem).split("\n")[2:9])
        return None


def compile_cases(tcc, cases, target):
    """Compiles the cases; returns {name: message} of those that failed."""
    models = [case.folder / "model.onnx" for case in cases]
    words = ["--quiet", "--entry", "predict", *target]
    subprocess.run([tcc, *compile_words([*words, *models])], capture_output=True, timeout=1200)
    failures = {}
    for case, model in zip(cases, models):
        if (plan := model.with_suffix(".tplan")).exists():
            if ISOLATED and not target and (problem := isolated([plan], tcc.parent)):
                failures[case.name] = problem
            continue
        run = subprocess.run([tcc, *compile_words([*words, model])], capture_output=True, text=True,
                             timeout=300)
        if run.returncode:
            crash = f"crash, exit status {run.returncode}: " if run.returncode < 0 else ""
            failures[case.name] = "tcc: " + crash + run.stderr.strip().replace(str(case.folder), "")[:600]
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression")
    parser.add_argument("--target", help="of tcc: cuda:sm_90")
    parser.add_argument("--device", help="of trun: cuda")
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="leave models, plans and data in this folder")
    parser.add_argument("--list-skipped", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    target = ["--target", options.target] if options.target else []
    device = ["--device", options.device] if options.device else []
    from onnx.backend.test.case.node import collect_testcases
    every = collect_testcases(None)
    skipped = {case.name: reason for case in every if (reason := reason_to_skip(case))}
    if options.list_skipped:
        for name, reason in sorted(skipped.items(), key=lambda item: (item[1], item[0])):
            print(f"{reason}: {name}")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        by_name = {case.name: case for case in every}
        cases = [Case(case, by_name, folder) for case in every
                 if case.name not in skipped and re.search(options.only, case.name)]
        failures = {}
        with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
            groups = [cases[i:i + 25] for i in range(0, len(cases), 25)]
            for found in pool.map(lambda group: compile_cases(options.bin / "tcc", group, target), groups):
                failures.update(found)
            compiled = [case for case in cases if case.name not in failures]
            for case, problem in zip(compiled, pool.map(lambda case: case.check(options.bin / "trun", device), compiled)):
                if problem:
                    failures[case.name] = problem
    for name, problem in sorted(failures.items()):
        print(f"FAIL {name}: {problem}")
    fed = sum(bool(case.fed_as_initializer) for case in cases)
    print(f"{len(cases) - len(failures)} of {len(cases)} node tests pass ({fed} with shape inputs fed as initializers, "
          f"{sum(only_shapes(case.name) for case in cases)} random ones by type and shape alone); "
          f"{len(skipped)} of {len(every)} are out of scope")
    if options.json:
        options.json.write_text(json.dumps({"passed": [case.name for case in cases if case.name not in failures],
                                            "failed": failures, "skipped": skipped}, indent=1))
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
