"""A run that is killed, starved of disk or memory, or signalled at any moment can be resumed bit for bit.

`faults.c` makes one system call of a short run fail, or limits memory from there on: each call in turn, in each way. Then follows a
sweep of signals and of kill -9 by time. After each, the run is resumed until it is done; its last checkpoint, its exported model and its
losses must be those of an undisturbed run. This is done for each plan of PLANS. Without --full a fixed part of the cases runs, for CI."""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import safetensors.numpy

import models
import sentences
from common import BIN, compile_words

STEPS = 7
UPDATES = '[optimizer]\nkind = "adamw"\nlr = 0.01\n[train]\naccumulate = 2\n'
OPTIONS = ["--steps", STEPS, "--seed", 3, "--eval-every", 3, "--checkpoint-every", 2, "--threads", 1, "--set", "checkpoint.keep=2"]
SIGNALS = {name: getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR1", "SIGPIPE", "SIGTSTP")}
BAD_SIGNS = ("terminate called", "Assertion", "AddressSanitizer", "runtime error")


class Wrong(Exception):
    pass


def one_shape(path):
    """Batch normalization. Returns the recipe, and columns to train and to evaluate."""
    models.normalised(path)
    return models.SQUARES + UPDATES, models.mlp_data(44), models.mlp_data(10)


def several_shapes(path, shapes=sentences.SHAPES, last="pad"):
    """Sentences of any length: windows cross shapes, seven updates are more than an epoch, and its last batches are padded."""
    sentences.sentence_model(path)
    recipe = shapes + models.CLASSES + UPDATES + f'ema.decay = 0.9\n[evaluate]\ndims = {{ batch = 4 }}\n[data]\nlast = "{last}"\n'
    return recipe, sentences.Sentences(24).columns(), sentences.Sentences(10).columns()


def exact_shapes(path):
    """The same, with shapes that the last samples of an epoch fill."""
    return several_shapes(path, sentences.SHAPES.replace("}]", "}, { batch = 6, seq = 8 }, { batch = 2, seq = 16 }]"), "exact")


PLANS = {"one-shape": one_shape, "several-shapes": several_shapes, "exact-shapes": exact_shapes}


class Sweep:
    def __init__(self, folder, seed, plan):
        self.folder, self.random, self.counts = folder, random.Random(seed), {}
        folder.mkdir(parents=True, exist_ok=True)
        recipe, *data = PLANS[plan](folder / "m.onnx")
        (folder / "r.toml").write_text(recipe)
        for name, columns in zip("de", data):
            safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in columns.items()}, folder / f"{name}.safetensors")
        self.watcher = folder / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.watcher, Path(__file__).with_name("faults.c")], check=True)
        subprocess.run([BIN / "tcc", *compile_words([folder / "m.onnx", "-o", folder / "p.tplan", "--recipe", folder / "r.toml"])],
                       check=True)
        self.base = [str(v) for v in (BIN / "trun", folder / "p.tplan", "--data", folder / "d.safetensors",
                                      "--eval-data", folder / "e.safetensors", *OPTIONS)]
        done = self.run("whole", [])
        if done.returncode:
            raise Wrong(f"the undisturbed run failed: {done.stderr}")
        self.expected = self.results("whole")

    def run(self, name, more, env=None, prepare=None):
        return subprocess.run(self.base + (more or ["--out", str(self.folder / name)]), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, env=os.environ | (env or {}), preexec_fn=prepare)

    def results(self, name):
        """The results that must agree: state, exported model, losses."""
        run = self.folder / name
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return {"state": (run / "checkpoints" / f"step-{STEPS}" / "state.safetensors").read_bytes(),
                "model": (run / "model.onnx").read_bytes(),
                "losses": [(v["step"], v["loss"], v["grad_norm"]) for v in lines if "loss" in v],
                "evaluations": sorted({(v["step"], *(v[k] for k in sorted(v) if "eval_" in k)) for v in lines if "eval_loss" in v})}

    def resume(self, name, env=None):
        """Continues as a user would: resumes the run, or repeats the command if there is no checkpoint yet."""
        run = self.folder / name
        steps = [p for p in (run / "checkpoints").glob("step-*")] if run.exists() else []
        if not steps:
            return self.run(name, [], env)
        return self.run(name, ["--resume", str(run)], env)

    def check(self, name, what, done):
        """Checks the message of a run that ended by itself, and then the resumed run."""
        run = self.folder / name
        if done is not None:
            for sign in BAD_SIGNS:
                if sign in done.stderr:
                    raise Wrong(f"{what}: {done.stderr}")
            if done.returncode not in (0, 1):
                raise Wrong(f"{what}: exit status {done.returncode}: {done.stderr}")
            if done.returncode == 1:
                if len(re.findall(r"^trun: error: .", done.stderr, re.M)) != 1:
                    raise Wrong(f"{what}: no message, or several: {done.stderr}")
                named = re.search(r"(\S+/checkpoints/step-\d+) holds the state", done.stderr)
                if named and not Path(named[1]).is_dir():
                    raise Wrong(f"{what}: the message names a checkpoint that is not there: {done.stderr}")
        finished = done is not None and done.returncode == 0 and (run / "model.onnx").exists()
        if not finished:
            again = self.resume(name)
            if again.returncode:
                raise Wrong(f"{what}: the run cannot be resumed: {again.stderr}")
        results = self.results(name)
        for key, value in self.expected.items():
            if results[key] != value:
                raise Wrong(f"{what}: {key} differ: {results[key] if key in ('losses', 'evaluations') else ''}")
        left = [str(p) for p in (*run.rglob("*.tmp"), *self.folder.glob(f".{name}.tcc-*"))]
        if left and not (finished and "cannot remove" in done.stderr):
            raise Wrong(f"{what}: temporary files are left: {left}")
        shutil.rmtree(run)

    def faulty(self, name, at, action, more=None):
        log = self.folder / f"{name}.log"
        done = self.run(name, more or [], {"LD_PRELOAD": str(self.watcher), "TCC_FAULT_ROOT": str(self.folder / name), "TCC_FAULT_AT": str(at),
                                           "TCC_FAULT_ACTION": action, "TCC_FAULT_LOG": str(log)})
        count = int(log.read_text()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return done, count

    def one_fault(self, at, action):
        name = f"{action.replace(':', '-')}-{at}"
        done, _ = self.faulty(name, at, action)
        died = done.returncode < 0 and (action == "kill" or action.startswith("signal"))
        if done.returncode < 0 and not died:
            raise Wrong(f"{name}: ended by signal {-done.returncode}: {done.stderr}")
        self.check(name, f"call {at}, {action}", None if died else done)

    def system_calls(self, part):
        """Disturbs each system call in each way; only every `part`-th combination."""
        done, count = self.faulty("count", 0, "")
        if done.returncode or count < 100:
            raise Wrong(f"the calls cannot be counted: {count}: {done.stderr}")
        shutil.rmtree(self.folder / "count")
        ways = ["kill", "error:28", "errors:28", "error:5", "errors:5", "short", "squeeze:0", "squeeze:200"] + [f"signal:{int(v)}" for v in SIGNALS.values()
                                                                                  if v != signal.SIGTSTP]
        cases = [(at, way) for way in ways for at in range(1, count + 1)]
        self.random.shuffle(cases)
        return [(way.split(":")[0], lambda at=at, way=way: self.one_fault(at, way)) for at, way in cases[::part]]

    def one_moment(self, index, number, twice):
        """Sends a signal after a random time, then resumes until the run is done."""
        name, seconds = f"moment-{index}", self.random.uniform(0, 0.25)
        process = subprocess.Popen(self.base + ["--out", str(self.folder / name)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        process.send_signal(number)
        if number == signal.SIGTSTP:
            time.sleep(0.02)
            process.send_signal(signal.SIGCONT)
        elif twice:
            time.sleep(0.005)
            process.send_signal(number)
        out, err = process.communicate(timeout=120)
        # Before trun has installed its handlers, a signal ends it like any program.
        died = process.returncode == -number
        if process.returncode < 0 and not died:
            raise Wrong(f"{name}: ended by signal {-process.returncode}: {err}")
        self.check(name, f"{number.name} after {seconds:.3f} s", None if died else
                   subprocess.CompletedProcess([], process.returncode, out, err))

    def all(self, full):
        cases = self.system_calls(1 if full else 40)
        for index in range(400 if full else 12):
            number = [signal.SIGKILL, *SIGNALS.values()][index % (len(SIGNALS) + 1)]
            cases.append((number.name, lambda index=index, number=number: self.one_moment(index, number, index % 3 == 0)))
        problems = []

        def attempt(case):
            kind, body = case
            try:
                body()
                self.counts[kind] = self.counts.get(kind, 0) + 1
            except (Wrong, subprocess.TimeoutExpired) as problem:
                problems.append(str(problem))
                print(f"WRONG {problem}", flush=True)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(attempt, cases))
        print(f"{sum(self.counts.values())} of {len(cases)} cases went on bit for bit:",
              ", ".join(f"{v} {k}" for k, v in sorted(self.counts.items())))
        return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="every call in every way (some seven minutes of two cores a plan)")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--keep", help="folder to work in")
    parser.add_argument("plan", nargs="*", help=f"of {', '.join(PLANS)}; default: all")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    right = True
    with tempfile.TemporaryDirectory(prefix="tcc-crash-") as folder:
        for plan in arguments.plan or PLANS:
            print(f"{plan}:", flush=True)
            right &= Sweep(Path(arguments.keep or folder) / plan, arguments.seed, plan).all(arguments.full)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
