"""What `cmake --install` makes, moved to another folder: programs, library, plug-ins, packages of CMake and pkg-config, man pages
and completions. tools/nightly.sh packages does the same with wheels and the Debian package.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import safetensors.numpy

import models
from common import BIN, PLAN_INSIDE, PLUGINS, ROOT, fine_tuned, metrics

BUILD = BIN.parent
# Nothing of this leads to the build or to Python's packages.
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TCC_CACHE_DIR": "", "LC_ALL": "C.UTF-8"}
CLASSES = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
CONSUMER = """cmake_minimum_required(VERSION 3.20)
project(consumer C ASM)
find_package(tcc 0.1 REQUIRED)
add_executable(own own_loop.c)
target_link_libraries(own PRIVATE tcc::trun m)
add_executable(inside from_memory.c plan.S)
target_link_libraries(inside PRIVATE tcc::trun)
add_executable(alone from_memory.c plan.S)
target_link_libraries(alone PRIVATE tcc::trun_static)
message(STATUS "programs in ${tcc_PROGRAMS}")
"""
TRAINING = """
import sys
import tcc
plan = tcc.compile(sys.argv[1], {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "data.cast": "f32"})
trainer = tcc.Trainer(plan)
trainer.fit(sys.argv[2], steps=4)
print(trainer.steps, tcc.__version__)
"""
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
compopt() { :; }
"_${1//-/_}"; printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*words, check=True, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=options.pop("env", BARE),
                          timeout=600, **options)
    if check and done.returncode:
        raise AssertionError(f"{words}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="tcc-packages-")
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = Path(cls.holder.name)
        for component in ("runtime", "development", "compiler"):
            run("cmake", "--install", BUILD, "--prefix", cls.folder / "first", "--component", component)
        cls.prefix = cls.folder / "second place"
        (cls.folder / "first").rename(cls.prefix)
        cls.model = models.classifier(cls.folder / "m.onnx", 32, 16, 10)
        (cls.folder / "r.toml").write_text(CLASSES)

    def described(self, program):
        return [json.loads(line) for line in run(self.prefix / "bin" / program, "--describe").stdout.splitlines()]

    def plan(self):
        run(self.prefix / "bin" / "tcc", self.model, "--recipe", self.folder / "r.toml", "-o", self.folder / "m.tplan", "--quiet")
        return self.folder / "m.tplan"

    def test_programs_run_where_they_were_moved_to(self):
        plan = self.plan()
        version = run(self.prefix / "bin" / "trun", "--version").stdout.split()[1]
        self.assertEqual(run(self.prefix / "bin" / "tcc-plan", "--version").stdout.split()[1], version)
        self.assertTrue((self.prefix / f"lib/libtrun.so.{version}").is_file())
        self.assertEqual(os.readlink(self.prefix / "lib/libtrun.so"), "libtrun.so.0")
        run(self.prefix / "bin" / "trun", "verify", plan)

    def test_no_run_path_leads_to_the_build(self):
        for path in [*self.prefix.glob("bin/*"), *self.prefix.rglob("*.so*")]:
            dynamic = run("readelf", "-d", path).stdout
            for place in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)[:1]:
                inside = [one for one in place.split(":") if not one.startswith("$ORIGIN") and Path(one).is_relative_to(BUILD)]
                self.assertEqual(inside, [], path)

    def consume(self, words, place, **options):
        done = run(place, self.plan(), self.folder / f"run-{words}", **options)
        self.assertIn("after 300 updates", done.stdout)

    def same_as_trun(self, program):
        """The program, which has the plan inside, and the installed trun compute the same losses."""
        rows = models.labelled(96, 10, 16)
        start = {"b": models.random(1, 10), "w": models.random(2, 10, 16)}
        losses, _ = fine_tuned(program, self.folder, rows, start)
        for name, tensors in (("d", rows), ("start", start)):
            safetensors.numpy.save_file(tensors, self.folder / f"{name}.safetensors")
        run(self.prefix / "bin" / "trun", self.plan(), "--data", self.folder / "d.safetensors", "--init",
            self.folder / "start.safetensors", "--no-shuffle", "--out", self.folder / f"run-{program.name}")
        self.assertEqual(losses, [line["loss"] for line in metrics(self.folder / f"run-{program.name}")[0]])
        self.assertEqual(len(losses), 3)

    def test_a_consumer_that_cmake_builds(self):
        source = self.folder / "consumer"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(CONSUMER)
        for program in ("own_loop.c", "from_memory.c"):
            shutil.copy(ROOT / "test/api" / program, source)
        (source / "plan.S").write_text(PLAN_INSIDE.format(self.plan()))
        done = run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertIn(f"programs in {self.prefix}/bin", done.stdout)
        run("cmake", "--build", source / "build")
        self.consume("cmake", source / "build" / "own")
        for program in ("inside", "alone"):
            with self.subTest(program):
                self.same_as_trun(source / "build" / program)
        self.assertNotIn("libtrun", run("readelf", "-d", source / "build" / "alone").stdout)
        (source / "CMakeLists.txt").write_text(CONSUMER.replace("tcc 0.1", "tcc 9.1"))
        refused = run("cmake", "-S", source, "-B", source / "other", f"-DCMAKE_PREFIX_PATH={self.prefix}", check=False)
        self.assertIn("9.1", refused.stderr)
        self.assertNotEqual(refused.returncode, 0)

    def test_the_archive_has_no_symbol_that_a_program_could_meet(self):
        listed = run("nm", "--defined-only", "--extern-only", self.prefix / "lib/libtrun.a").stdout.splitlines()
        names = {line.split()[-1] for line in listed if len(line.split()) == 3}
        exported = run("nm", "--defined-only", "--dynamic", self.prefix / "lib/libtrun.so").stdout.splitlines()
        self.assertEqual(names, {name for line in exported if (name := line.split()[-1].split("@")[0]).startswith("trun_")})
        self.assertIn("trun_plan_open", names)

    def test_a_consumer_that_pkg_config_helps(self):
        # pkg-config separates words by spaces.
        prefix = self.folder / "third"
        shutil.copytree(self.prefix, prefix, symlinks=True)
        found = run("pkg-config", "--cflags", "--libs", "--exists", "--print-errors", "trun >= 0.1", env=BARE | {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"})
        words = run("pkg-config", "--cflags", "--libs", "trun", env=BARE | {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).stdout.split()
        self.assertEqual(found.stderr, "")
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", ROOT / "test/api/own_loop.c", *words, "-lm", "-o", self.folder / "own")
        self.consume("pkg-config", self.folder / "own", env=BARE | {"LD_LIBRARY_PATH": f"{prefix}/lib"})

    def test_python_trains_by_the_library_and_its_plug_in(self):
        if not (PLUGINS / "trun-arrow.so").exists():
            self.skipTest("no trun-arrow.so")
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet
        rows = models.labelled(64, 10, 16)
        pyarrow.parquet.write_table(pa.table({"x": pa.array(list(np.asarray(rows["x"], np.float32)), pa.list_(pa.float32())),
                                              "labels": rows["labels"]}), self.folder / "d.parquet")
        done = run(sys.executable, "-c", TRAINING, self.model, self.folder / "d.parquet", cwd="/", env=BARE | {
            "PYTHONPATH": str(ROOT / "python"), "TCC_LIBRARY": str(self.prefix / "lib/libtrun.so.0"),
            "TCC_PROGRAM": str(self.prefix / "bin/tcc")})
        self.assertRegex(done.stdout, r"^4 \d+\.\d+\.\d+$")

    def test_what_is_described_is_what_help_says(self):
        for program in ("tcc", "trun", "tcc-plan"):
            for command in self.described(program):
                if command["options"]:
                    words = command["command"].split()
                    text = run(self.prefix / "bin" / words[0], *words[1:], "--help").stdout
                    listed = {name for names in re.findall(r"^  (-[\w,-]+)", text, re.MULTILINE) for name in names.split(",")}
                    self.assertEqual({name for option in command["options"] for name in option["names"]}, listed, words)

    def test_settings_are_the_recipes_keys(self):
        table = json.loads(run(self.prefix / "bin/tcc", "keys", "--json").stdout)
        keys = {program: next(option["keys"] for command in self.described(program) for option in command["options"] if "keys" in option)
                for program in ("tcc", "trun")}
        self.assertEqual(keys["tcc"], [entry["key"] for entry in table])
        self.assertEqual(keys["trun"], [entry["key"] for entry in table if entry["trun"]])

    def test_man_pages_hold_every_option_and_are_valid(self):
        for program in ("tcc", "trun", "tcc-plan"):
            page = self.prefix / f"share/man/man1/{program}.1"
            done = run("man", "--warnings", "-E", "UTF-8", "-l", page, env=BARE | {"MANWIDTH": "100", "MAN_KEEP_FORMATTING": ""}) if shutil.which("man") \
                else run("cat", page)
            self.assertEqual(done.stderr, "")
            text = done.stdout.replace("\\-", "-").replace("\u2010", "-")
            for command in self.described(program):
                self.assertIn(command["command"], text)
                for option in command["options"]:
                    for name in option["names"] or [option["word"]]:
                        self.assertRegex(text, rf"(?<![\w-]){re.escape(name)}(?![\w-])", command["command"])

    def complete(self, *words):
        script = self.prefix / "share/bash-completion/completions" / words[0]
        return set(run("bash", "-c", COMPLETE, "complete", script, *words, cwd=self.folder).stdout.split())

    def test_completions(self):
        for program in ("tcc", "trun", "tcc-plan"):
            run("bash", "-n", self.prefix / "share/bash-completion/completions" / program)
            for shell, file in (("zsh", f"zsh/site-functions/_{program}"), ("fish", f"fish/vendor_completions.d/{program}.fish")):
                self.assertTrue((self.prefix / "share" / file).is_file())
                if shutil.which(shell):
                    run(shell, "-n", self.prefix / "share" / file)
        self.assertEqual(self.complete("trun", "m.tplan", "--eval-"), {"--eval-data", "--eval-every"})
        self.assertEqual(self.complete("trun", "report", "--"), {"--help", "--version", "--html", "--json"})
        self.assertEqual(self.complete("trun", "export", "run", "--names", ""), {"torch", "onnx"})
        self.assertIn("optimizer.lr=", self.complete("trun", "m.tplan", "--set", "optimizer."))
        self.assertIn("optimizer.kind=", self.complete("tcc", "m.onnx", "--set", "optimizer."))
        self.assertNotIn("optimizer.kind=", self.complete("trun", "m.tplan", "--set", "optimizer."))
        self.assertEqual(self.complete("tcc", "predict"), {"predict-scale"})
        self.assertIn("m.onnx", self.complete("tcc", "m.on"))
        self.assertIn("r.toml", self.complete("tcc", "inspect", "m.onnx", "--recipe", "r.t"))

    def test_licences_of_the_parts_are_there(self):
        folder = self.prefix / "share/doc/tcc/licences"
        for component, part in (("runtime", "nlohmann-json3-dev"), ("compiler", "onnx"), ("compiler", "libllvm22")):
            self.assertGreater(len((folder / component / f"{part}.txt").read_text()), 500)


if __name__ == "__main__":
    unittest.main()
