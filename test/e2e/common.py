"""Shared by the end-to-end tests: a folder for each test, the two commands run as a user runs them, small models and data."""
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("TCC_BIN", ROOT / "build" / "bin")).resolve()
PLUGINS = BIN.parent / "lib" / "tcc"
ZOO = Path(__file__).resolve().parent / "zoo"
# Every plan is made anew, so that the compiler is tested and not a cached result. Tests of one run share the machine code of
# equal kernels, in a folder that tools/test.sh makes; without it nothing is cached.
os.environ |= {"TCC_CACHE": "kernels", "TCC_CACHE_DIR": os.environ.get("TCC_TEST_CACHE", "")}
# KEY=VALUE separated by spaces: recipe keys for every compile of the suite, unless the test itself sets them. For example,
# `TCC_TEST_SETTINGS=compiler.fuse=false` runs the whole suite without fusion (docs/design/testing.md).
SETTINGS = os.environ.get("TCC_TEST_SETTINGS", "").split()
# If set, every plan for a CPU that the suite compiles runs once, each instruction alone between guard pages (isolated-plans).
ISOLATED = bool(os.environ.get("TCC_TEST_ISOLATED"))
SECONDS = 240                            # every command takes less than a tenth of it; a limit for hangs


def compile_words(words):
    """Arguments of tcc with the suite's settings added; unchanged if tcc does not compile."""
    words = [str(word) for word in words]
    if not words or words[0] in ("report", "inspect", "ops", "keys"):
        return words
    own = {word.removeprefix("--set=").split("=")[0].strip() for word in words}
    return words + [word for setting in SETTINGS if setting.split("=")[0] not in own for word in ("--set", setting)]


def isolated(plans, bin=BIN):
    """Runs plans between guard pages. Returns "" or what is wrong. Plans for other machines are left out."""
    done = subprocess.run([bin / "isolated-plans", *map(str, plans)], capture_output=True, text=True, timeout=1200)
    return "" if done.returncode == 0 else f"isolated-plans ends with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"


class Result:
    """Exit status (negative: the signal that killed it) and both outputs of one command."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out, err

    def __str__(self):
        return f"$ {' '.join(self.command)}\nexit status {self.status}\n--- stdout\n{self.out[-2000:]}\n--- stderr\n{self.err[-4000:]}"


def arena_by_workers(report, program=0):
    """Bytes of the arena by number of workers, which are powers of two."""
    return {count["workers"]: count["arena_bytes"] for count in report["workers"]["programs"][program]["counts"]}


class EndToEnd(unittest.TestCase):
    """A test with a folder of its own, `self.folder`, where the commands run."""

    maxDiff = 2000

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="tcc-e2e-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def command(self, program, *arguments, env=None, prepare=None, seconds=None):
        """Runs build/bin/PROGRAM. `env`: variables set besides the caller's; `prepare`: called in the child before it starts; `seconds`: the
        limit for hangs, SECONDS by default."""
        words = [str(BIN / program), *(compile_words(arguments) if program == "tcc" else map(str, arguments))]
        done = subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds or SECONDS,
                              env=os.environ | (env or {}), preexec_fn=prepare, restore_signals=prepare is None)
        if ISOLATED and program == "tcc" and done.returncode == 0 and "-o" in words:
            plan = self.folder / words[words.index("-o") + 1]
            if plan.suffix == ".tplan" and plan.exists():
                self.assertEqual(isolated([plan]), "", words)
        return Result(words, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def succeed(self, program, *arguments, **options):
        result = self.command(program, *arguments, **options)
        self.assertEqual(result.status, 0, str(result))
        return result

    def refuse(self, status, patterns, program, *arguments, **options):
        """Expects that the command ends with this status and that its standard error matches every pattern (case ignored)."""
        result = self.command(program, *arguments, **options)
        self.assertEqual(result.status, status, str(result))
        for pattern in patterns:
            self.assertTrue(re.search(pattern, result.err, re.IGNORECASE), f"no '{pattern}' in the message\n{result}")
        for sign in ("terminate called", "Stack dump", "Assertion", "PLEASE submit"):
            self.assertNotIn(sign, result.err, str(result))
        return result

    def compile(self, model, *arguments, plan="plan.tplan", **options):
        self.succeed("tcc", model, "-o", plan, *arguments, **options)
        return self.folder / plan

    def case_that_grows(self, *arguments):
        """A case of the zoo whose arena is larger for two workers than for one, and its report. The machine level's kernels decide
        for which cases the workers' scratch raises the peak."""
        for name in ("small-cnn", "nano-gpt"):
            model, recipe, _, _ = case(name)
            report = self.report(self.compile(model, "--recipe", recipe, *arguments))
            arena = arena_by_workers(report)
            if arena[1] < arena[2]:
                return name, report
        self.fail("no case takes more memory with two workers")

    def train(self, plan, data, *arguments, out="run", steps=3, **options):
        self.succeed("trun", plan, "--data", data, "--no-shuffle", "--steps", steps, "--out", out, *arguments, **options)
        return self.folder / out

    def weights(self, run, name="weights.safetensors"):
        """Trained weights by initializer name."""
        self.succeed("trun", "export", run, "-o", name)
        return safetensors.numpy.load_file(self.folder / name)

    def save(self, name, **columns):
        path = self.folder / name
        safetensors.numpy.save_file({k: np.asarray(v, order="C") for k, v in columns.items()}, path)
        return path

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
        return path

    def report(self, plan):
        return json.loads(self.succeed("tcc", "report", plan, "--json").out)


# An assembler file that puts a plan into a program, for test/api/from_memory.c.
PLAN_INSIDE = '''    .section .rodata
    .balign 64
    .globl plan_begin, plan_end
plan_begin: .incbin "{}"
plan_end:
    .section .note.GNU-stack, "", @progbits
'''


def fine_tuned(program, folder, rows, start, batch=32):
    """Runs from_memory.c over `rows` from the parameters `start`, both by name in the plan's order. Returns the losses
    and the parameters at the end."""
    names, count = list(start), len(next(iter(rows.values())))
    (folder / "rows.bin").write_bytes(b"".join(value[at:at + batch].tobytes() for at in range(0, count, batch)
                                               for value in rows.values()))
    (folder / "start.bin").write_bytes(b"".join(start[name].tobytes() for name in names))
    done = subprocess.run([program, *(folder / f"{name}.bin" for name in ("rows", "start", "end"))],
                          capture_output=True, text=True, timeout=SECONDS, env={"PATH": "/usr/bin:/bin"})
    if done.returncode:
        raise AssertionError(f"{program}: exit status {done.returncode}\n{done.stderr}")
    values, end, at = np.fromfile(folder / "end.bin", np.float32), {}, 0
    for name in names:
        end[name] = values[at:at + start[name].size].reshape(start[name].shape)
        at += start[name].size
    return [float(line) for line in done.stdout.split()], end


def metrics(run):
    """(lines of updates, lines of evaluations) of a run folder."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [v for v in lines if "loss" in v], [v for v in lines if "eval_loss" in v]


def checkpoints(run):
    """Steps of the run's checkpoints, ascending. While the run trains, they change."""
    folder = Path(run) / "checkpoints"
    return sorted(int(p.name[5:]) for p in folder.glob("step-*")) if folder.is_dir() else []


def case(name):
    """(model, recipe, data, expected) of a case of the zoo."""
    folder = ZOO / name
    return (folder / "model.onnx", folder / "recipe.toml", folder / "data.safetensors",
            json.loads((folder / "expected.json").read_text()))
