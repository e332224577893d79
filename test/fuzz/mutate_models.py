"""Random mutations of models: tcc inspects or compiles each, and must end with a message or a plan.

    python test/fuzz/mutate_models.py --bin build/bin --minutes 20 [--seed 1] [--keep FOLDER] [MODEL.onnx ...]

Without models it takes ONNX's node tests and small cases of the zoo. A finding is an exit by a signal, an exit status other
than 0, 1 and 3, a run longer than --seconds, or one that exhausts --gibibytes of address space. The script keeps findings in a
folder, and its exit status is 1 if there are any.
"""
import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [0, 1, -1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, -(2**31), -(2**63)]
FLOATS = [0.0, -1.0, 1e30, -1e30, 1e-30, float("inf"), float("-inf"), float("nan"), 0.5, 1e9]
TEXTS = [b"", b"NOTSET", b"SAME_UPPER", b"ij,jk->ik", b"...i...j->", b"nearest", b"cubic", b"\xff\x00", b"a" * 5000]


def seeds(paths):
    if paths:
        return [Path(p).read_bytes() for p in paths]
    from onnx.backend.test.loader import load_model_tests
    found = []
    for kind in ("node", "simple"):
        for case in load_model_tests(kind=kind):
            if case.model_dir and (Path(case.model_dir) / "model.onnx").exists():
                found.append((Path(case.model_dir) / "model.onnx").read_bytes())
            elif case.model is not None:
                found.append(case.model.SerializeToString())
    zoo = [p.read_bytes() for p in (ROOT / "test/e2e/zoo").glob("*/model.onnx") if p.stat().st_size < 60_000]
    return [s for s in found if len(s) < 100_000] + zoo * 20


def messages(message):
    """The message and all messages inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in value if hasattr(value, "__len__") and not hasattr(value, "DESCRIPTOR") else [value]:
            yield from messages(inner)


def number(rng):
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randint(-40, 4000)


def mutate_value(rng, field, old, strings):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT64,):
        return number(rng)
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM):
        return rng.choice([0, 1, 2, 3, 6, 7, 9, 10, 11, 16])
    if kind in (field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        return abs(number(rng)) % (2**32)
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if isinstance(old, bytes):
        return rng.choice(TEXTS) if rng.random() < 0.5 else old[:rng.randint(0, len(old))]
    return rng.choice(strings + ["", "", "\x1b[31m", "a\nb"])


def mutate(rng, model):
    """Changes one to four fields."""
    every = list(messages(model))
    strings = [n.name for n in every if isinstance(n, (onnx.ValueInfoProto, TensorProto))] or ["x"]
    nodes = [n for n in every if isinstance(n, onnx.NodeProto)]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        choice = rng.random()
        if choice < 0.25 and nodes:  # removes an input, or replaces it by another value
            node = rng.choice(nodes)
            if node.input:
                node.input[rng.randrange(len(node.input))] = rng.choice(["", rng.choice(strings)])
            continue
        if choice < 0.3 and nodes:
            node = rng.choice(nodes)
            rng.choice([lambda: node.input.append(rng.choice(strings + [""])), lambda: node.output.append("extra"),
                        lambda: node.ClearField("input"), lambda: node.ClearField("attribute")])()
            continue
        target = rng.choice(every)
        fields = [f for f in target.DESCRIPTOR.fields if f.message_type is None]
        present = [f for f, _ in target.ListFields() if f.message_type is None]
        if not fields:
            continue
        field = rng.choice(present) if present and rng.random() < 0.85 else rng.choice(fields)
        value = getattr(target, field.name)
        try:
            if hasattr(value, "append"):
                if len(value) and rng.random() < 0.7:
                    i = rng.randrange(len(value))
                    value[i] = mutate_value(rng, field, value[i], strings)
                elif len(value) and rng.random() < 0.5:
                    del value[rng.randrange(len(value))]
                else:
                    value.append(mutate_value(rng, field, b"" if field.cpp_type == field.CPPTYPE_STRING and
                                              field.type == field.TYPE_BYTES else "", strings))
            else:
                setattr(target, field.name, mutate_value(rng, field, value, strings))
        except (TypeError, ValueError):
            continue


def limited(gibibytes, seconds):
    def prepare():
        resource.setrlimit(resource.RLIMIT_AS, (gibibytes << 30,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return prepare


def run(command, folder, options):
    """The fault of a run; empty if there is none."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=6 * options.seconds, preexec_fn=limited(options.gibibytes, options.seconds))
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    if done.returncode not in (0, 1, 3):
        return f"exit status {done.returncode}"
    text = done.stderr + done.stdout
    if b"error: out of memory" in done.stderr:
        return "out of memory"
    if done.returncode and not done.stderr.strip():
        return "no message"
    return "control characters reach the terminal" if b"\x1b" in text else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--bin", default=ROOT / "build/bin")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=20, help="of processor time for one run")
    parser.add_argument("--gibibytes", type=int, default=4, help="of address space for one run")
    parser.add_argument("--keep", default="fuzz-findings")
    options = parser.parse_args()
    tcc = str(Path(options.bin).resolve() / "tcc")
    rng, corpus, end = random.Random(options.seed), seeds(options.models), time.time() + 60 * options.minutes
    print(f"{len(corpus)} seeds, seed {options.seed}", flush=True)
    runs = findings = 0
    with tempfile.TemporaryDirectory(prefix="tcc-fuzz-") as folder:
        while time.time() < end:
            model = onnx.ModelProto()
            model.ParseFromString(rng.choice(corpus))
            mutate(rng, model)
            (Path(folder) / "m.onnx").write_bytes(model.SerializeToString())
            command = [tcc, "m.onnx", "--entry", "predict", "--no-cache", "--quiet", "-o", "m.tplan"]
            if rng.random() < 0.6:
                command = [tcc, "inspect", "m.onnx"]
            command += rng.choice([[], [], [], ["--dequantize"], ["--set", 'model.quantize="observe"']])
            problem = run(command, folder, options)
            runs += 1
            if problem:
                findings += 1
                kept = Path(options.keep)
                kept.mkdir(exist_ok=True)
                name = kept / f"s{options.seed}_{runs}.onnx"
                name.write_bytes((Path(folder) / "m.onnx").read_bytes())
                print(f"{name}: {problem}: {' '.join(command)}", flush=True)
    print(f"{runs} runs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
