"""Peak memory is a contract: trun maps what the report says, and the process grows by what the report says it grows."""
import os
import subprocess
import unittest
from pathlib import Path

import models
from common import BIN, EndToEnd, case

PAGE = os.sysconf("SC_PAGESIZE")


def pages(size):
    return -(-size // PAGE) * PAGE


def kept_mappings(log):
    """Sizes of the anonymous mappings as the program kept them: cut to size at first, given back whole at the end."""
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

    def check(self, name):
        model, recipe, data, _ = case(name)
        plan = self.compile(model, "--recipe", recipe)
        memory = self.report(plan)["memory"]
        mapped = self.mapped(plan, plan, "--data", data, "--steps", 3, "--eval-data", data, "--out", f"run-{name}")
        self.assertEqual(mapped, sorted([pages(memory["arena_bytes"]), pages(memory["resident_bytes"])]))

    def test_mapped_as_reported(self):
        for name in ("mlp", "small-cnn", "nano-gpt", "in-graph-loss"):
            with self.subTest(case=name):
                self.check(name)

    def test_threads_change_nothing(self):
        model, recipe, data, _ = case("small-cnn")
        plan = self.compile(model, "--recipe", recipe, "--threads", 8)
        sizes = [self.mapped(plan, plan, "--data", data, "--steps", 1, "--threads", threads, "--out", f"run{threads}")
                 for threads in (1, 8)]
        self.assertEqual(sizes[0], sizes[1])

    def peak_resident(self, plan, data, out):
        """Largest resident size of a run, in bytes."""
        words = [BIN / "trun", plan, "--data", data, "--steps", 2, "--threads", 1, "--out", self.folder / out]
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, (self.folder / "output").read_text())
        return usage.ru_maxrss * 1024

    def test_the_process_grows_as_the_report_does(self):
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        data = self.save("d.safetensors", **models.mlp_data(4096))
        reported, resident = [], []
        for batch in (256, 4096):
            model = models.mlp(self.folder / f"{batch}.onnx", batch=batch, width=4096)
            plan = self.compile(model, "--recipe", recipe, plan=f"{batch}.tplan")
            memory = self.report(plan)["memory"]
            reported.append(sum(memory[k] for k in ("arena_bytes", "resident_bytes", "host_bytes")))
            resident.append(self.peak_resident(plan, data, f"run{batch}"))
        growth = reported[1] - reported[0]
        self.assertGreater(growth, 64 << 20)
        self.assertAlmostEqual(resident[1] - resident[0], growth, delta=0.1 * growth)


if __name__ == "__main__":
    unittest.main(verbosity=2)
