"""Peak memory is a contract: trun maps the bytes that the report states, and the process grows by the bytes that it states."""
import json
import os
import re
import resource
import subprocess
import time
import unittest
from pathlib import Path

import models
import numpy as np
import onnx
from common import BIN, EndToEnd, case

PAGE = os.sysconf("SC_PAGESIZE")


def pages(size):
    return -(-size // PAGE) * PAGE


def kept_mappings(log):
    """Sizes of the anonymous mappings that the program kept: after trimming their ends, before unmapping them whole."""
    mappings = []                                     # [address, bytes, unmapped pieces]
    for line in log.read_text().splitlines():
        sign, address, size = line[0], *map(int, line[2:].split())
        if sign == "+":
            mappings.append([address, size, []])
        else:
            for start, whole, pieces in reversed(mappings):
                if start <= address < start + whole:
                    pieces.append(size)
                    break
    return sorted(pieces[-1] if sum(pieces) == whole else whole - sum(pieces) for _, whole, pieces in mappings)


class Memory(EndToEnd):
    def mapped(self, plan, *arguments):
        watcher, log = self.folder / "watch.so", self.folder / "mappings"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", watcher, Path(__file__).with_name("mappings.c")], check=True)
        log.unlink(missing_ok=True)
        self.succeed("trun", *arguments, env={"LD_PRELOAD": str(watcher), "TCC_MAPPINGS": str(log)})
        return kept_mappings(log)

    @staticmethod
    def arena(report, workers):
        """Bytes of the largest program's arena with so many workers, a power of two."""
        return max(count["arena_bytes"] for program in report["workers"]["programs"] for count in program["counts"]
                   if count["workers"] == workers)

    def check(self, name):
        model, recipe, data, _ = case(name)
        plan = self.compile(model, "--recipe", recipe)
        report = self.report(plan)
        self.assertEqual(self.arena(report, 8), report["memory"]["arena_bytes"])
        for threads in (1, 8, 16):     # fewer, as many and more than memory was planned for
            mapped = self.mapped(plan, plan, "--data", data, "--steps", 3, "--eval-data", data, "--threads", threads,
                                 "--out", f"run-{name}-{threads}")
            self.assertEqual(mapped, sorted([pages(self.arena(report, threads)), pages(report["memory"]["resident_bytes"])]))

    def test_mapped_as_reported(self):
        for name in ("mlp", "small-cnn", "nano-gpt", "in-graph-loss"):
            with self.subTest(case=name):
                self.check(name)

    def test_fewer_threads_take_less(self):
        _, report = self.case_that_grows()
        self.assertLess(self.arena(report, 1), self.arena(report, 8))

    def peak_resident(self, plan, data, out):
        """Largest resident size of a run, in bytes."""
        return self.peak_of([BIN / "trun", plan, "--data", data, "--steps", 2, "--threads", 1, "--out", self.folder / out])

    def peak_of(self, words):
        """The kernel's own high-water mark, read while the command runs: wait4 would count this process as well. Without the mapped
        pages of plans, which are the system's file cache: some kernels map 2 MiB of it where one page is read."""
        peak = mapped = 0
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            while process.poll() is None:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peak = max([peak] + [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")])
                maps = Path(f"/proc/{process.pid}/smaps").read_text()
                mapped = max(mapped, sum(int(size) * 1024 for size in re.findall(r"\.tplan\n(?:.*\n)*?Rss: +(\d+) kB", maps)))
                time.sleep(0.002)
        self.assertEqual(process.returncode, 0, (self.folder / "output").read_text())
        return peak - mapped

    def test_the_process_grows_as_the_report_does(self):
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        data = self.save("d.safetensors", **models.mlp_data(4096))
        reported, resident = [], []
        for batch in (256, 4096):
            model = models.mlp(self.folder / f"{batch}.onnx", batch=batch, width=4096)
            plan = self.compile(model, "--recipe", recipe, plan=f"{batch}.tplan")
            report = self.report(plan)
            # The run has one worker; report["memory"] is that of --threads.
            reported.append(self.arena(report, 1) + sum(report["memory"][k] for k in ("resident_bytes", "host_bytes")))
            resident.append(self.peak_resident(plan, data, f"run{batch}"))
        growth = reported[1] - reported[0]
        self.assertGreater(growth, 64 << 20)
        self.assertAlmostEqual(resident[1] - resident[0], growth, delta=0.02 * growth)

    def check_explained(self, resident, plan, data):
        """Expects that arenas, host, library and process explain the resident bytes, apart from the data and a small rest."""
        memory = self.report(plan)["memory"]
        explained = sum(memory[k] for k in ("arena_bytes", "resident_bytes", "host_bytes", "library_bytes", "process_bytes"))
        for key in ("host_bytes", "process_bytes"):
            self.assertGreater(memory[key], 0, key)
        self.assertGreater(resident, 128 << 20, "the model is too small to tell")
        self.assertAlmostEqual(resident, explained + data.stat().st_size, delta=0.02 * resident)

    def test_the_report_explains_the_process(self):
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        data = self.save("d.safetensors", **models.mlp_data(4096))
        plan = self.compile(models.mlp(self.folder / "m.onnx", batch=4096, width=4096), "--recipe", recipe, "--entry", "train")
        self.check_explained(self.peak_resident(plan, data, "run"), plan, data)

    def test_what_the_library_takes_is_reported(self):
        model, recipe, _, _ = case("resnet-tiny")
        self.assertGreater(self.report(self.compile(model, "--recipe", recipe))["memory"]["library_bytes"], 0)

    def test_weights_lie_in_memory_once(self):
        """Also while they are read from the plan: a run needs no more memory at its start than later."""
        recipe = self.write("r.toml", '[loss]\nkind = "cross_entropy"\ntarget = "y"\n')
        model = models.classifier(self.folder / "m.onnx", 8, 4096, 13312)  # so large that 2 % of it exceed a run's own 3.4 MB
        x = np.random.default_rng(1).standard_normal((8, 4096)).astype(np.float32)
        data = self.save("d.safetensors", x=x, y=np.arange(8))
        plan = self.compile(model, "--recipe", recipe, "--entry", "evaluate", "--embed-weights")
        words = [BIN / "trun", "eval", plan, "--data", data, "--threads", 1]
        self.check_explained(self.peak_of(words), plan, data)

    def test_a_base_in_4_bits_is_never_widened(self):
        """A frozen head that takes 36 MiB: a copy of it in bf16 would take 128 MiB, in the arena or beside it."""
        model = models.classifier(self.folder / "m.onnx", 8, 4096, 16384)
        x = np.random.default_rng(1).standard_normal((8, 4096)).astype(np.float32)
        data = self.save("d.safetensors", x=x, y=np.arange(8))
        for precision in ("f32", "bf16"):
            with self.subTest(precision):
                plan = self.compile(model, "--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="y"', "--set",
                                    'adapter.targets=["w"]', "--set", "adapter.rank=4", "--set", 'adapter.base="nf4"', "--precision",
                                    precision, "--entry", "train")
                memory = self.report(plan)["memory"]
                explained = sum(memory[k] for k in ("arena_bytes", "resident_bytes", "host_bytes", "library_bytes", "process_bytes"))
                self.assertLess(explained, 96 << 20)
                # The codes are in memory twice while model.onnx is written, a few rows at a time.
                self.assertLess(self.peak_resident(plan, data, f"run-{precision}"), explained + data.stat().st_size + (56 << 20))
                self.assertGreater((self.folder / f"run-{precision}" / "model.onnx").stat().st_size, 4 * 4096 * 16384)

    def test_a_trained_model_is_written_within_the_report(self):
        """Weights are streamed into the checkpoint and into model.onnx, whether they were trained or frozen."""
        recipe = self.write("r.toml", '[loss]\nkind = "cross_entropy"\ntarget = "y"\n[optimizer]\nkind = "sgd"\n')
        model = models.classifier(self.folder / "m.onnx", 8, 4096, 13312)
        x = np.random.default_rng(1).standard_normal((8, 4096)).astype(np.float32)
        data = self.save("d.safetensors", x=x, y=np.arange(8))
        for name, words in (("trained", []), ("frozen", ["--set", 'model.frozen=["w"]'])):
            for place in ([], ["--embed-weights"]):
                with self.subTest(name=name, place=place):
                    out = f"run-{name}-{len(place)}"
                    plan = self.compile(model, "--recipe", recipe, "--entry", "train", *words, *place)
                    self.check_explained(self.peak_resident(plan, data, out), plan, data)
                    self.assertGreater((self.folder / out / "model.onnx").stat().st_size, 4 * 4096 * 13312)
                    onnx.checker.check_model(str(self.folder / out / "model.onnx"), full_check=True)

    def test_too_little_memory_is_said_before_the_first_step(self):
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        plan = self.compile(models.mlp(self.folder / "m.onnx", batch=16384, width=8192), "--recipe", recipe, "--entry", "train")
        needed = sum(self.report(plan)["memory"][key] for key in ("arena_bytes", "resident_bytes"))
        self.assertGreater(needed, 512 << 20)
        data = self.save("d.safetensors", **models.mlp_data(16384))
        self.refuse(1, ["not enough memory", "RLIMIT_AS", r"ulimit -v", r"tcc frontier"], "trun", plan, "--data", data, "--steps", 1,
                    "--out", "run", prepare=lambda: resource.setrlimit(resource.RLIMIT_AS, (needed, needed)))
        self.assertFalse((self.folder / "run").exists())

    def test_the_measured_process_is_that_of_trun(self):
        model, recipe, _, _ = case("small-cnn")
        plan = self.compile(model, "--recipe", recipe)
        measured = json.loads(self.succeed("trun", "memory", plan, "--threads", 1).out)
        memory = self.report(plan)["memory"]
        for key, value in measured.items():
            self.assertAlmostEqual(memory[key], value, delta=1 << 20, msg=key)
        self.refuse(2, ["variant 7", "counted from 0"], "trun", "memory", plan, "--variant", 7)
        self.refuse(1, ["cannot open the plan"], "trun", "memory", "nowhere.tplan")


if __name__ == "__main__":
    unittest.main(verbosity=2)
