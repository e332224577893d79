"""The contenders of test/bench/performance.py: each is started once per workload and then takes turns of a few steps.

A peer stays alive between its turns, waiting on standard input (measure.py), so that its start-up is paid once and turns can be short. Ours
starts anew each turn, as trun does, and leaves out its warm-up steps. Each turn also measures how busy other processes kept the machine:
the CPU time of all processes minus the contender's own, divided by the turn's duration, as a share of one core.
"""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """One line that says why a contender is left out."""


def machine_busy():
    """CPU seconds that all processes have used: user, nice, system, interrupts, steal."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:]]
    return (sum(v[:3]) + sum(v[5:8])) / TICKS


def cpu_of(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def call(words, environment=None):
    """Runs a command to its end and returns its standard output. Raises Failed with its name and the last line of standard error."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=os.environ | (environment or {}))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"{Path(words[0]).name}: {lines[-1][:300]}")
    return done.stdout


class Peer:
    """A script that takes turns on standard input."""

    def __init__(self, name, words, environment=None):
        self.name, self.words, self.environment = name, list(map(str, words)), environment or {}
        self.process, self.notes = None, {}

    def start(self):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=os.environ | self.environment)
        first = self.line()
        self.notes = {"first_step_s": first["first_step_s"], "losses": first["losses"]}
        return first.get("warmup_s", [])

    def line(self):
        for text in self.process.stdout:
            if text.startswith("{"):
                return json.loads(text)
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["no message"]
        raise Failed(f"ended with status {self.process.returncode}: {lines[-1][:300]}")

    def turn(self, steps):
        """(seconds of each step, share of a core that others used)."""
        busy, own, start = machine_busy(), cpu_of(self.process.pid), time.perf_counter()
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        times = self.line()["times"]
        took = time.perf_counter() - start
        return times, max(0.0, machine_busy() - busy - (cpu_of(self.process.pid) - own)) / took

    def finish(self):
        if self.process and self.process.poll() is None:
            try:
                self.process.stdin.close()
                last = self.line()
                self.notes |= {"peer": last.get("peer", self.name), "peak_bytes": last.get("peak_rss_bytes")}
                self.notes |= {k: last[k] for k in ("artifacts_s", "load_s", "parameter_bytes") if k in last}
                self.process.wait(60)
            except (Failed, OSError, subprocess.TimeoutExpired):
                self.stop()
        return self.notes

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Ours:
    """Runs tcc once, and trun anew each turn; kills trun after its last step, so that it writes no checkpoint."""

    def __init__(self, options, folder, precision, warmup, budget="", settings=(), target=None):
        self.name, self.options, self.folder, self.warmup, self.budget, self.settings = "tcc", options, folder, warmup, budget, settings
        self.target, self.trun = target, options.bin / ("trun-avx2" if target == "cpu:v3" else "trun")
        self.plan = folder / f"{precision}{budget}{len(settings) or ''}{(target or '').replace(':', '-')}.tplan"
        self.precision, self.peaks, self.firsts, self.losses, self.notes = precision, [], [], [], {}

    def compile(self):
        """Seconds of a cold and of a second compilation."""
        cache = self.options.work / "cache"
        words = [self.options.bin / "tcc", self.folder / "model.onnx", "--recipe", self.folder / "recipe.toml", "--threads",
                 self.options.threads, "-o", self.plan, "--quiet", *self.more()]
        seconds = []
        shutil.rmtree(cache, ignore_errors=True)
        for _ in range(2):
            start = time.perf_counter()
            call(words, {"TCC_CACHE_DIR": str(cache)})
            seconds.append(time.perf_counter() - start)
        self.notes |= {"tcc_cold_s": seconds[0], "tcc_again_s": seconds[1]}

    def more(self):
        return ["--entry", "train"] + (["--precision", self.precision] if self.precision != "f32" else []) \
            + (["--memory-budget", self.budget] if self.budget else []) + (["--target", self.target] if self.target else []) + [word for setting in self.settings for word in ("--set", setting)]

    def start(self):
        self.compile()
        return self.turn(1)[0]

    def turn(self, steps):
        run, wanted = self.folder / "run", self.warmup + steps
        shutil.rmtree(run, ignore_errors=True)
        words = [self.trun, self.plan, "--data", self.folder / "data.safetensors", "--no-shuffle", "--steps", wanted + 1,
                 "--out", run, "--no-release", "--threads", self.options.threads]
        busy, own = machine_busy(), resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        peak, lines, first = 0, [], None
        while process.poll() is None and len(lines) < wanted:
            time.sleep(0.002 if first is None else 0.1)    # polling takes a core from a worker: at 0.01 s a small GPT's step loses 1 ms
            try:
                text = (run / "metrics.jsonl").read_text()
                lines = [line for line in text[:text.rfind("\n") + 1].splitlines() if '"loss"' in line]
                peak = high_water(process.pid) or peak
            except OSError:
                continue
            if lines and first is None:
                first = time.perf_counter() - start
        took = time.perf_counter() - start
        process.kill()
        _, errors = process.communicate()
        if len(lines) < wanted:                                            # it ended between two polls, or failed
            try:
                lines = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
            except OSError:
                lines = []
        if len(lines) < wanted:
            raise Failed("trun: " + ((errors or "").strip().splitlines() or ["no message"])[-1][:300])
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        others = machine_busy() - busy - (used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime)
        shutil.rmtree(run, ignore_errors=True)
        entries = [json.loads(line) for line in lines[:wanted]]
        self.peaks.append(peak)
        self.firsts.append(first if first is not None else took)
        self.losses = [entry["loss"] for entry in entries]
        return [entry["seconds"] for entry in entries[self.warmup:]], max(0.0, others) / took

    def roofline(self):
        """The machine's rates at this moment: flop a second by type ("copy": bytes a second)."""
        found = self.profile("--steps", 1, "--warmup", 0)["roofline"]
        return {peak["dtype"]: peak["flops_per_s"] for peak in found["matmul"]} | {"copy": found["copy_bytes_per_s"]}

    def profile(self, *more):
        """The JSON of `trun profile` for the plan."""
        words = [self.trun, "profile", self.plan, "--data", self.folder / "data.safetensors", "--threads",
                 self.options.threads, "--json", *more]
        return json.loads(call(words))

    def finish(self):
        start = json.loads(call([self.trun, "memory", self.plan, "--threads", self.options.threads]))["process_bytes"]
        report = json.loads(call([self.options.bin / "tcc", "report", self.plan, "--json"]))
        self.notes |= {"peer": "tcc", "peak_bytes": max(self.peaks) - start, "first_step_s": self.notes["tcc_cold_s"] + min(self.firsts),
                       "trun_first_step_s": min(self.firsts), "losses": self.losses, "library": report.get("library"),
                       "planned_bytes": report["memory"]["arena_bytes"] + report["memory"]["resident_bytes"]}
        return self.notes

    def stop(self):
        pass


class OurGradients(Ours):
    """The entry gradients alone, as trun profile runs it: forward and backward without an update."""

    def more(self):
        return ["--entry", "gradients"] + (["--precision", self.precision] if self.precision != "f32" else [])

    def turn(self, steps):
        busy, own, start = machine_busy(), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        words = [self.trun, "profile", self.plan, "--data", self.folder / "data.safetensors", "--threads",
                 self.options.threads, "--json", "--no-roofline", "--entry", "gradients", "--warmup", self.warmup, "--steps", steps]
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, errors = process.communicate()
        if process.returncode:
            raise Failed("trun: " + (errors.strip().splitlines() or ["no message"])[-1][:300])
        took, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        others = machine_busy() - busy - (used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime)
        self.firsts.append(took)
        self.peaks.append(used.ru_maxrss * 1024)
        return [json.loads(out)["step_seconds"]] * steps, max(0.0, others) / took

    def profile(self, *more):
        return super().profile("--entry", "gradients", *more)

    def finish(self):
        notes = super().finish()
        # Memory is what the plan states; a profile does not measure the first step of training.
        notes |= {"peak_bytes": notes["planned_bytes"], "first_step_s": None}
        return notes


def high_water(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def torch_peer(options, workload, precision, compiled):
    words = [options.torch, HERE / "torch_step.py", workload.model, "--batch", workload.batch, "--seq", workload.seq or 64, "--precision",
             precision, "--warmup", workload.warmup, "--turns"]
    words += ["--channels-last"] if workload.model.startswith("resnet") else []
    name = "torch.compile" if compiled else "torch eager"
    return Peer(name, words + (["--compile"] if compiled else []), {"TORCHINDUCTOR_CACHE_DIR": str(fresh(options, "inductor"))})


def fresh(options, name):
    """An empty folder, so that a compiler finds no cached results."""
    folder = options.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def jax_peer(options, workload, precision):
    words = [options.jax, HERE / "jax_step.py", workload.model, "--batch", workload.batch, "--seq", workload.seq or 64, "--precision",
             precision, "--warmup", workload.warmup, "--turns"]
    return Peer("JAX", words)


def ort_peer(options, workload):
    """ONNX Runtime Training. Its graphs are made once: PyTorch exports the model, ONNX Runtime adds gradients and optimizer."""
    folder = options.work / workload.name / "ort"
    if not (folder / "training_model.onnx").is_file():
        call([options.torch, HERE / "ort_step.py", "export", workload.model, "--batch", workload.batch, "--seq", workload.seq or 64, folder])
        call([options.ort, HERE / "ort_step.py", "artifacts", folder])
    return Peer("ONNX Runtime Training", [options.ort, HERE / "ort_step.py", "step", folder, "--warmup", workload.warmup, "--turns"])


def llmc_peer(options, workload):
    """llm.c, built as by its Makefile. Weights are random, in its file format, since they do not affect its speed."""
    program, weights = options.work / "llmc_step", options.work / "gpt2_124M.bin"
    call([options.cc, "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-DTESTING", "-w", "-I", options.llmc, HERE / "llmc_step.c", "-o",
          program, "-lm"])
    if not weights.is_file():
        import random
        vocabulary, context, layers, heads, width, padded = 50257, 1024, 12, 12, 768, 50304
        count = (padded + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
        values = random.Random(0)
        block = struct.pack("<65536f", *(values.gauss(0, 0.02) for _ in range(65536)))
        with open(weights, "wb") as f:
            f.write(struct.pack("<256i", 20240326, 3, context, vocabulary, layers, heads, width, padded, *([0] * 248)))
            for written in range(0, count, 65536):
                f.write(block[:4 * min(65536, count - written)])
    # A step of a minute needs no warm-up.
    return Peer("llm.c", [program, weights, workload.batch, workload.seq, 1 if workload.seq < 512 else 0])


def peers_of(options, workload, precision):
    """Functions that make the other contenders, by name; those that are not given on the command line are left out."""
    makers = {"torch eager": lambda: torch_peer(options, workload, precision, False)}
    if workload.model != "adamw":
        makers["torch.compile"] = lambda: torch_peer(options, workload, precision, True)
    if options.jax and workload.model in ("gpt2-124m", "gpt-small", "mlp", "cnn", "resnet9"):
        makers["JAX"] = lambda: jax_peer(options, workload, precision)
    if options.ort and precision == "f32" and workload.model not in ("adamw", "attention"):
        makers["ONNX Runtime Training"] = lambda: ort_peer(options, workload)
    if options.llmc and precision == "f32" and workload.model == "gpt2-124m":
        makers["llm.c"] = lambda: llmc_peer(options, workload)
    return {name: make for name, make in makers.items() if not options.peers or any(p.lower() in name.lower() for p in options.peers)}


def export(options, workload):
    """model.onnx, recipe.toml and data.safetensors of a workload, written once."""
    folder = options.work / workload.name
    if not (folder / "data.safetensors").is_file():
        call([options.torch or sys.executable, HERE / "torch_step.py", workload.model, "--batch", workload.batch, "--seq", workload.seq or 64,
              "--warmup", 1, "--steps", 0, "--onnx", folder])
    return folder
