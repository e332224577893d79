"""A GPT within pairs of budgets, of the card and of its host: `test_host_gpt.py STANDIN [--all] [--model FOLDER]`.

Whatever is on the host, losses and checkpoints have the bits of the plan that keeps everything on the card, and both memories take what
the plan says. FOLDER has a model, its recipe and data, as torch_step.py --onnx writes them; without it the GPT is a small one.
"""
import hashlib
import json
import os
import shutil
import sys
import time
import unittest
from pathlib import Path

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
import safetensors.numpy
from common import EndToEnd, checkpoints, metrics

ALL = "--all" in sys.argv
FOLDER = Path(sys.argv.pop(sys.argv.index("--model") + 1)).resolve() if "--model" in sys.argv else None
sys.argv = [word for word in sys.argv if word not in ("--all", "--model")]
BATCH, LENGTH, VOCABULARY = 4, 32, 256
RECIPE = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\nclass_axis = -1\n[optimizer]\nkind = "adamw"\nlr = 0.003\n'
CARD = ["--target", "cuda:sm_90", "--entry", "train"]
HOST = ["--set", "offload.bytes_per_second=1e13"]  # a link at which moving a value costs less than computing it again
PAIRS = 12 if ALL or FOLDER else 3
# What may be on the host, pair by pair. A small batch of a large model has so little in its activations that state alone is moved as
# long as it may be.
WHAT = ["auto", "auto", "activations"] if FOLDER else ["auto"]


class HostOfAGpt(EndToEnd):
    def setUp(self):
        super().setUp()
        rows, rng = 6, np.random.default_rng(7)
        if FOLDER:
            self.model, self.recipe = FOLDER / "model.onnx", FOLDER / "recipe.toml"
            columns = safetensors.numpy.load_file(FOLDER / "data.safetensors")
            columns = {name: rng.integers(0, value.max() + 1, (rows * len(value), *value.shape[1:])) for name, value in columns.items()}
        else:
            self.model = models.gpt(self.folder / "gpt.onnx", BATCH, LENGTH, 2, 128, 4, VOCABULARY)
            self.recipe = self.write("r.toml", RECIPE)
            columns = {"x": rng.integers(0, VOCABULARY, (rows * BATCH, LENGTH)).astype(np.float32),
                       "labels": rng.integers(0, VOCABULARY, (rows * BATCH, LENGTH))}
        self.data = self.save("d.safetensors", **columns)

    def plan(self, name, *words):
        return self.compile(self.model, "--recipe", self.recipe, *CARD, *HOST, *words, plan=f"{name}.tplan", seconds=3600)

    def run_of(self, plan, *words, steps=2, seed=1, mode="fast", devices=1):
        """(losses, hash of each file of the checkpoint), after a check of both memories."""
        run, record = self.folder / "run", self.folder / "allocations"
        record.unlink(missing_ok=True)
        self.succeed("trun", plan, "--data", self.data, "--no-shuffle", "--steps", steps, "--out", run, "--no-release", "--device", "cuda", *words,
                     env=os.environ | stand_in(mode=mode, seed=seed, devices=devices, memory=16 << 30, allocations=record), seconds=3600)
        if devices == 1:
            self.check_memories(plan, [json.loads(line) for line in record.read_text().splitlines()])
        files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                 for file in (run / "checkpoints" / f"step-{checkpoints(run)[-1]}").glob("*.safetensors")}
        found = [line["loss"] for line in metrics(run)[0]]
        shutil.rmtree(run)
        self.assertEqual(len(found), steps)
        return found, files

    def check_memories(self, plan, allocations):
        """One allocation in each memory holds the plan's arenas and nothing else; libraries and staging take little beside it."""
        report = self.report(plan)
        arenas = {"device": report["memory"]["resident_bytes"] + report["memory"]["arena_bytes"],
                  "host": report["offload"]["state_bytes"] + report["offload"]["value_bytes"]}
        for home, planned in arenas.items():
            sizes = [one["bytes"] for one in allocations if one["home"] == home]
            if planned:
                self.assertTrue(any(planned <= size < planned + 4096 for size in sizes), f"{planned} is none of {sizes}")
            self.assertLess(max((one["held"] for one in allocations if one["home"] == home), default=0), planned + (64 << 20))

    def frontier(self, *words):
        """Points with memory of the host, from most to least of the card's: (card, host, cost)."""
        document = json.loads(self.succeed("tcc", "frontier", self.model, "--recipe", self.recipe, *CARD, *HOST, *words, "--json", seconds=3600).out)
        rows = document["programs"]["step"]["points_with_host"]
        return sorted({(row["total_bytes"], row["host_bytes"], row["cost"]) for row in rows}, reverse=True)

    def test_pairs_of_budgets(self):
        """Of a step, with and without clipping in turn."""
        settings = [[], ["--set", "train.clip_norm=0.1"]]
        kept = [self.plan(f"kept-{i}", "--set", "offload.what=none", *words) for i, words in enumerate(settings)]
        expected = [self.run_of(plan) for plan in kept]
        self.assertNotEqual(*expected)
        plain = [self.report(plan)["memory"] for plan in kept]
        points = {}
        most_state = most_values = 0
        for pair in range(PAIRS):
            turn, what = pair % 2, WHAT[pair % len(WHAT)]
            words = [*settings[turn], "--set", f"offload.what={what}"]
            if (turn, what) not in points:
                points[turn, what] = self.frontier(*words)
            of_these = points[turn, what]
            card, host, cost = of_these[round(pair * (len(of_these) - 1) / (PAIRS - 1))]
            with self.subTest(card=card, host=host, clipped=bool(turn), what=what):
                begin = time.time()
                plan = self.plan("pair", "--memory-budget", card, "--host-memory", host, *words)
                report = self.report(plan)
                taken = report["memory"]["resident_bytes"] + report["memory"]["arena_bytes"]
                self.assertLessEqual(taken, card)
                self.assertLessEqual(report["memory"]["host"]["kept_for_card"], host)
                self.assertLessEqual(report["recompute"]["cost_ns"], cost)
                compiled = time.time()
                self.assertEqual(self.run_of(plan, seed=pair, mode="checked" if ALL else "fast"), expected[turn])
                offload = report["offload"]
                most_state, most_values = max(most_state, offload["state_bytes"]), max(most_values, offload["value_bytes"])
                print(f"card {card / 2**20:.1f} MiB, host {host / 2**20:.1f} MiB{', clipped' if turn else ''}: takes {taken / 2**20:.1f} and "
                      f"{report['memory']['host']['kept_for_card'] / 2**20:.1f} MiB ({offload['state_bytes'] / 2**20:.1f} of state, "
                      f"{offload['value_bytes'] / 2**20:.1f} of values); everything on the card takes "
                      f"{(plain[turn]['resident_bytes'] + plain[turn]['arena_bytes']) / 2**20:.1f}; bits equal; compiled in "
                      f"{compiled - begin:.0f} s, run in {time.time() - compiled:.0f} s", flush=True)
        state = plain[0]["resident"]["optimizer"]
        self.assertGreater(most_state, 0.9 * state)
        self.assertGreater(most_values, plain[0]["arena_bytes"] / 3)

    def test_accumulation_and_phases_and_ranks(self):
        """The same at the least budget of each, which moves state and values."""
        accumulated = ["--set", "train.accumulate=2"]
        phases = self.recipe.read_text().split("[loss]\n")
        cases = [("accumulated", accumulated, [], 1), ("ranks", ["--set", "parallel.mode=ddp"], ["--nproc", "2"], 2)]
        if ALL or FOLDER:
            cases += [("shards", [*accumulated, "--set", "parallel.mode=grad_op", "--set", "parallel.ranks=2", "--set", "parallel.accumulators=shards"],
                       ["--nproc", "2"], 2)]
        for name, words, job, devices in cases:
            with self.subTest(name):
                expected = self.run_of(self.plan(f"{name}-kept", "--set", "offload.what=none", *words), *job, devices=devices)
                result = self.refuse(3, ["with .* on the host"], "tcc", self.model, "--recipe", self.recipe, *CARD, *HOST, *words,
                                     "--memory-budget", "1KiB", "-o", "p", seconds=3600)
                least = int(result.err.split("smallest budget that does is ")[1].split("(")[1].split(" bytes")[0])
                plan = self.plan(name, "--memory-budget", least, *words)
                offload = self.report(plan)["offload"]
                self.assertGreater(offload["state_bytes"], 0)
                self.assertEqual(self.run_of(plan, *job, seed=3, devices=devices), expected)
                print(f"{name}: {least / 2**20:.1f} MiB on the card, {offload['state_bytes'] / 2**20:.1f} of state and "
                      f"{offload['value_bytes'] / 2**20:.1f} of values on the host; bits equal", flush=True)
        # Two optimizers in turn, of the first blocks and of everything else.
        loss = "loss = { " + ", ".join(filter(None, phases[1].split("[optimizer]")[0].split("\n"))) + " }\n"
        names = [weight for weight in models.onnx.load(self.model, load_external_data=False).graph.initializer if len(weight.dims) == 2 and weight.name.endswith("weight")]
        first = [weight.name for weight in names[:len(names) // 2]]
        rest = [weight.name for weight in names[len(names) // 2:]]
        recipe = "[optimizer]" + phases[1].split("[optimizer]")[1] + "".join(
            f'[[phase]]\nname = "{name}"\nparameters = {json.dumps(own)}\n{loss}' for name, own in (("first", first), ("rest", rest)))
        self.recipe = self.write("phases.toml", recipe)
        expected = self.run_of(self.plan("phases-kept", "--set", "offload.what=none"))
        moved = self.plan("phases", "--set", "offload.what=state")
        self.assertGreater(self.report(moved)["offload"]["state_bytes"], 0)
        self.assertEqual(self.run_of(moved, seed=4), expected)
        print(f"phases: {self.report(moved)['offload']['state_bytes'] / 2**20:.1f} MiB of state on the host; bits equal", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
