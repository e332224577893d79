"""The commands replace and remove files and folders that carry their mark, and nothing else; they open no FIFO, no device and
nothing else that blocks."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import numpy as np
import onnx
from onnx import helper
from PIL import Image

import models
from common import BIN, EndToEnd, checkpoints

SGD = models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 0.05\n'


class Ownership(EndToEnd):
    def prepare(self):
        self.model = models.mlp(self.folder / "m.onnx")
        self.recipe = self.write("r.toml", SGD)
        self.plan = self.compile(self.model, "--recipe", self.recipe)
        self.data = self.save("d.safetensors", **models.mlp_data(64))

    def sweep(self, out, *words, **options):
        return self.command("trun", "sweep", self.plan, "--data", self.data, "--set", "optimizer.lr=1e-3", "--steps", 3, "--out", out,
                            *words, **options)

    def contents(self, folder):
        """Every file below a folder with its bytes; without the lock, which names its last holder and so changes."""
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock"}

    def test_a_sweep_removes_no_folder_that_it_did_not_make(self):
        self.prepare()
        # Other programs, too, number their runs and write a run.json.
        for i in (1, 2):
            (self.folder / f"runs/{i}").mkdir(parents=True)
            self.write(f"runs/{i}/run.json", '{"status": "COMPLETED"}')
            self.write(f"runs/{i}/results.csv", "thesis")
        before = self.contents(self.folder / "runs/1") | self.contents(self.folder / "runs/2")
        self.refuse(1, ["runs/1: it exists, and is no run of this sweep"], "trun", "sweep", self.plan, "--data", self.data, "--set",
                    "optimizer.lr=1e-3,3e-4", "--steps", 3, "--out", "runs")
        self.assertEqual(self.contents(self.folder / "runs/1") | self.contents(self.folder / "runs/2"), before)
        (self.folder / "runs2").mkdir()
        self.write("runs2/lock", "thesis")
        self.assertEqual(self.sweep("runs2").status, 1)
        self.assertEqual((self.folder / "runs2/lock").read_text(), "thesis")

    def test_a_finished_run_needs_no_checkpoints(self):
        self.prepare()
        self.assertEqual(self.sweep("s").status, 0)
        first = json.loads((self.folder / "s/summary.json").read_text())
        shutil.rmtree(self.folder / "s/1/checkpoints")
        self.write("s/1/NOTES.md", "note")
        before = self.contents(self.folder / "s/1")
        self.assertEqual(self.sweep("s").status, 0)
        self.assertEqual(json.loads((self.folder / "s/summary.json").read_text()), first)
        self.assertEqual(self.contents(self.folder / "s/1"), before)
        # Without its last part the run must begin anew, and a foreign file in its folder forbids that.
        path = self.folder / "s/1/metrics.jsonl"
        path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if '"end"' not in line))
        before = self.contents(self.folder / "s/1")
        result = self.sweep("s")
        self.assertEqual(result.status, 1, result)
        self.assertIn("holds NOTES.md, which trun did not write", result.err)
        self.assertEqual(self.contents(self.folder / "s/1"), before)
        for name in ("NOTES.md", "model.onnx"):
            (self.folder / "s/1" / name).unlink()
        self.assertEqual(self.sweep("s").status, 0)
        self.assertEqual(checkpoints(self.folder / "s/1"), [3])
        other = self.command("trun", "sweep", self.plan, "--data", self.data, "--set", "optimizer.lr=0.5", "--steps", 3, "--out", "s")
        self.assertEqual(other.status, 1)
        self.assertIn("it was made with optimizer.lr=1e-3", other.err)

    def test_a_sweep_that_was_killed_at_any_place_goes_on(self):
        self.prepare()
        self.assertEqual(self.sweep("whole").status, 0)
        expected = json.loads((self.folder / "whole/summary.json").read_text())[0]["best"]
        for left in ((), ("1",), ("1/checkpoints",), ("1/checkpoints", "1/lock"), ("1/checkpoints", "1/lock", "1/plan.tplan"),
                     ("1/checkpoints", "1/lock", "1/run.json"), ("1/checkpoints", "1/lock", "1/metrics.jsonl", "1/run.json"),
                     ("1/checkpoints", "1/checkpoints/.step-3.99999.tmp", "1/lock", "1/log.txt", "1/run.json")):
            shutil.rmtree(self.folder / "u", ignore_errors=True)
            (self.folder / "u").mkdir()
            shutil.copy(self.folder / "whole/sweep.json", self.folder / "u/sweep.json")
            for name in left:
                source, target = self.folder / "whole" / name, self.folder / "u" / name
                if source.is_file():
                    shutil.copy(source, target)
                else:
                    target.mkdir(parents=True)
            result = self.sweep("u")
            self.assertEqual(result.status, 0, f"{left}: {result}")
            self.assertEqual(json.loads((self.folder / "u/summary.json").read_text())[0]["best"], expected, left)

    def test_two_processes_do_not_share_a_sweep(self):
        self.prepare()
        words = [str(w) for w in (BIN / "trun", "sweep", self.plan, "--data", self.data, "--set", "optimizer.lr=1e-3", "--steps", 10**8,
                                  "--log-every", 10**6, "--out", "t")]
        with open(self.folder / "a.log", "wb") as log:
            process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.kill)
        while not (self.folder / "t/1/plan.tplan").exists():
            self.assertIsNone(process.poll(), (self.folder / "a.log").read_text())
            time.sleep(0.01)
        before = (self.folder / "t/1/lock").stat().st_ino
        result = self.sweep("t")
        self.assertEqual(result.status, 1, result)
        self.assertIn(f"process {process.pid}", result.err)
        self.assertEqual((self.folder / "t/1/lock").stat().st_ino, before)
        process.send_signal(signal.SIGINT)
        process.wait(60)

    def test_an_output_replaces_no_input_and_nothing_foreign(self):
        self.prepare()
        run = self.train(self.plan, self.data, "--no-release")
        state = "run/checkpoints/step-3/state.safetensors"
        self.write("foreign", "treasure")
        self.save("weights.safetensors", w=np.zeros(3, np.float32))
        shutil.copy(self.data, self.folder / "e.safetensors")
        predict = ("trun", "predict", self.plan, "--inputs", self.data, "--outputs")
        for words, path in [(("tcc", self.model, "--suggest-recipe"), "m.onnx"), (("tcc", self.model, "--suggest-recipe"), "r.toml"),
                            (("tcc", self.model, "-o"), "m.onnx"), (("tcc", self.model, "--recipe", self.recipe, "-o"), "r.toml"),
                            (("tcc", self.model, "-o", "q.tplan", "--timings"), "m.onnx"),
                            (("tcc", self.model, "-o"), "foreign"), (("tcc", self.model, "-o"), "weights.safetensors"),
                            (("tcc", "report", self.plan, "--html"), "plan.tplan"), (("tcc", "report", self.plan, "--html"), "foreign"),
                            (("tcc", "report", self.plan, "--code"), "plan.tplan"),
                            (("trun", self.plan, "--data", self.data, "--steps", 2, "--out", "r2", "--trace"), "plan.tplan"),
                            (predict, "d.safetensors"), (predict, "e.safetensors"), (predict, "plan.tplan"), (predict, state),
                            (("trun", "export", "run", "-o"), state), (("trun", "export", "run", "-o"), "m.onnx"),
                            (("trun", "export", "run", "-o"), "weights.safetensors"),
                            (("trun", "report", "run", "--html"), "run/metrics.jsonl"),
                            (("trun", "report", "run", "--html"), "run/run.json")]:
            before = (self.folder / path).read_bytes()
            result = self.command(*words, path)
            self.assertIn(result.status, (1, 2), result)
            self.assertIn("another name", result.err, result)
            self.assertEqual(len([line for line in result.err.splitlines() if "another name" in line]), 1, result)
            self.assertEqual((self.folder / path).read_bytes(), before, result)
        # Our own files are replaced, also where the name given is a link to one.
        inputs = self.save("x.safetensors", x=models.mlp_data(64)["x"])
        for words, name in [(("tcc", self.model, "-o"), "a.tplan"), (("tcc", self.model, "--suggest-recipe"), "a.toml"),
                            (("tcc", self.model, "-o", "q.tplan", "--timings"), "a.json"), (("tcc", "report", self.plan, "--html"), "a.html"),
                            (("tcc", "report", self.plan, "--code"), "a.so"), (("trun", "report", "run", "--html"), "b.html"),
                            (("trun", "predict", self.plan, "--inputs", inputs, "--outputs"), "a.safetensors"),
                            (("trun", "export", "run", "-o"), "a.onnx"), (("trun", "export", "run", "-o"), "w.safetensors")]:
            self.succeed(*words, name)
            self.succeed(*words, name)
            (self.folder / ("link-" + name)).symlink_to(name)
            self.succeed(*words, "link-" + name)
            self.assertTrue((self.folder / ("link-" + name)).is_symlink())

    def test_weights_that_a_plan_reads_are_no_output(self):
        """The plan reads external data beyond 64 MiB in the model's own file; also where an earlier export wrote that model, no
        export may overwrite it."""
        model = models.mlp(self.folder / "big.onnx", width=3_400_000)
        loaded = onnx.load(model)
        loaded.metadata_props.add(key="trun.export", value="trun")
        onnx.save(loaded, model, save_as_external_data=True, location="big.onnx.data")
        plan = self.compile(model, "--recipe", self.write("r.toml", SGD))
        run = self.train(plan, self.save("d.safetensors", **models.mlp_data(8)), "--no-release", steps=1)
        size = (self.folder / "big.onnx.data").stat().st_size
        self.refuse(2, ["big.onnx.data: the plan reads initial values"], "trun", "export", run, "-o", "big.onnx")
        self.assertEqual((self.folder / "big.onnx.data").stat().st_size, size)

    def test_foreign_folders_among_checkpoints_stay(self):
        self.prepare()
        self.train(self.plan, self.data, "--checkpoint-every", 2, "--no-release", out="base", steps=6)

        def begin():
            shutil.rmtree(self.folder / "r", ignore_errors=True)
            shutil.copytree(self.folder / "base", self.folder / "r")
            return self.folder / "r/checkpoints"

        def resume(*words):
            self.succeed("trun", "--resume", *words)
            found = [p for p in (self.folder / "r").rglob("treasure")]
            self.assertEqual([p.read_text() for p in found], ["treasure"], words)
            return found[0]

        for name, words in [("step-9", ("r", "--steps", 12)), ("step-8", ("r@6", "--steps", 10, "--checkpoint-every", 2)),
                            ("step-8", ("r", "--steps", 10)), (".step-x.tmp", ("r", "--steps", 8)), (".step-9.tmp", ("r", "--steps", 8)),
                            (".step-8.4.tmp", ("r", "--steps", 8)), (".step-8.4.removed", ("r", "--steps", 8))]:
            folder = begin()
            (folder / name).mkdir()
            (folder / name / "treasure").write_text("treasure")
            resume(*words)
        for name, words in [("step-6", ("r@4", "--steps", 6, "--checkpoint-every", 2)),
                            ("step-2", ("r", "--steps", 20, "--checkpoint-every", 2))]:
            folder = begin()
            (folder / name / "treasure").write_text("treasure")
            resume(*words)
        folder = begin()
        (self.folder / "r/outside").mkdir()
        (self.folder / "r/outside/treasure").write_text("treasure")
        (folder / "step-8").symlink_to("../outside")
        self.assertEqual(resume("r@6", "--steps", 10, "--checkpoint-every", 2), self.folder / "r/outside/treasure")
        self.assertIn(8, checkpoints(self.folder / "r"))

    def images(self):
        for name in ("a", "b"):
            (self.folder / "img" / name).mkdir(parents=True)
            for i in range(4):
                Image.fromarray(np.random.default_rng(i).integers(0, 255, (10, 10, 3), np.uint8)).save(self.folder / f"img/{name}/{i}.png")
        recipe = self.write("c.toml", '[loss]\nkind = "cross_entropy"\nof = "y"\ntarget = "label"\n')
        nodes = [helper.make_node("Flatten", ["image"], ["a"]), helper.make_node("Gemm", ["a", "w"], ["y"], transB=1)]
        model = models.save(self.folder / "c.onnx", nodes, {"image": [4, 3, 8, 8]}, {"y": [4, 2]}, {"w": models.random(1, 2, 192)})
        self.compile(model, "--recipe", recipe, plan="c.tplan")
        return "c.tplan", "--data", "img", "--set", "data.cache=dc", "--set", 'data.transform=[{kind="resize", size=8}]'

    def test_the_cache_of_images_writes_through_no_link(self):
        words = self.images()
        first = self.succeed("trun", "eval", *words)
        name, = [p.name for p in (self.folder / "dc").iterdir()]
        entry, good = self.folder / "dc" / name, (self.folder / "dc" / name).read_bytes()
        self.write("foreign", "treasure")

        def check(kind):
            result = self.succeed("trun", "eval", *words)
            self.assertEqual(result.out, first.out, kind)
            self.assertEqual((self.folder / "foreign").read_text(), "treasure")

        for target in ("../foreign", "../nowhere", "/dev/full", "/dev/zero"):
            entry.unlink()
            entry.symlink_to(target)
            check(target)
            self.assertTrue(entry.is_symlink())
        self.assertFalse((self.folder / "nowhere").exists())
        entry.unlink()
        os.mkfifo(entry)
        check("FIFO")
        entry.unlink()
        entry.mkdir()
        (entry / "x").write_text("x")
        check("folder")
        self.assertTrue((entry / "x").exists())
        shutil.rmtree(entry)
        entry.write_text("treasure")
        check("file")
        self.assertEqual(entry.read_text(), "treasure")
        entry.write_bytes(good[:-10])
        self.succeed("trun", "eval", *words)
        self.assertEqual(entry.read_bytes(), good, "a damaged file of the cache is written anew")

    def test_no_file_of_a_run_blocks_or_fills_memory(self):
        self.prepare()
        self.train(self.plan, self.data, "--eval-data", self.data, "--eval-every", 2, "--checkpoint-every", 2, out="base", steps=4)
        for name in ("algorithms.json", "samples.png", "vocabulary.json"):
            self.write(f"base/{name}", "")
        names = [str(p.relative_to(self.folder / "base")) for p in (self.folder / "base").rglob("*")
                 if p.is_file() and "step-2" not in str(p)]
        self.assertGreater(len(names), 12)
        commands = [("report", "run"), ("report", "run", "--html", "o.html"), ("--resume", "run", "--steps", 6),
                    ("export", "run", "-o", "e.onnx"), ("export", "run@best", "-o", "e.safetensors"),
                    ("eval", self.plan, "--data", self.data, "--from", "run@best"), ("sweep", self.plan, "--data", self.data, "--out", "s",
                                                                                    "--steps", 4)]
        children = []
        for name in names:
            for number, words in enumerate(commands):
                # A device in place of each file only for the first command, which reads it first; metrics for all of them.
                for kind in ("fifo", "/dev/zero") if number == 0 or "metrics" in name else ("fifo",):
                    here = self.folder / f"w{len(children)}"
                    shutil.copytree(self.folder / "base", here / ("s/1" if words[0] == "sweep" else "run"), symlinks=True)
                    path = here / ("s/1" if words[0] == "sweep" else "run") / name
                    path.unlink()
                    os.mkfifo(path) if kind == "fifo" else path.symlink_to(kind)
                    children.append((name, kind, words, here))
        for name, kind, words, here in children:
            result = subprocess.run([str(w) for w in (BIN / "trun", *words)], cwd=here, stdin=subprocess.DEVNULL, capture_output=True,
                                    timeout=60, text=True, preexec_fn=bounded)
            self.assertIn(result.returncode, (0, 1), f"{name} {kind} {words}: {result.stderr[-500:]}")
            self.assertNotIn("out of memory", result.stderr, f"{name} {kind} {words}")
            shutil.rmtree(here)


def bounded():
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


if __name__ == "__main__":
    unittest.main(verbosity=2)
