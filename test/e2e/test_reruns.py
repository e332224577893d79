"""Every file of --dump-phases-to is what tcc-opt makes of the file before it: `test_reruns.py [--all] [FOLDER...]`.

A dump's second line has the passes of the phase that follows. tcc-opt runs them on the dump, with nothing else at hand: no
recipe, no weights, no options of the compile. Its output must be the next dump, byte for byte. With --all every model of
the zoo and of the folders takes part, for every target below.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from common import BIN, ROOT, ZOO, EndToEnd
from test_phases import FILES as PHASES, RECIPES

TARGETS = ("cpu:v3", "cpu:v4", "cuda:sm_90")
# Phases whose dump does not follow from the one before, each with the reason. There are none, and none should be added:
# what a pass reads beside its options belongs into the module.
NOT_RERUN = {}

STAGED = """[[stage]]
until = 3
trainable = ["*.bias"]
[[stage]]
trainable = ["*"]
"""


def header(text):
    """The phase of a dump, the next phase and its passes (None at the end), and the module."""
    lines = text.split("\n", 2)
    phase = lines[0].removeprefix("// tcc phase ")
    following = re.fullmatch(r"// next (\w+): (builtin\.module\(.*\))", lines[1])
    if not following:
        return phase, None, None, text.split("\n", 1)[1]
    return phase, *following.groups(), lines[2]


def rerun(folder):
    """Runs the passes that each dump of a compile names; returns the phases that were checked and what differs."""
    files = sorted(folder.glob("*.mlir"), key=lambda path: int(path.name.split("-")[0]))
    dumps = [header(path.read_text()) for path in files]
    checked, wrong = [], []
    for path, (_, following, passes, _), after in zip(files, dumps, dumps[1:]):
        assert following == after[0], f"{path.name} names {following}, and {after[0]} follows"
        if following in NOT_RERUN:
            continue
        done = subprocess.run([BIN / "tcc-opt", path, "--mlir-print-debuginfo", f"--pass-pipeline={passes}"],
                              capture_output=True, text=True, timeout=600)
        checked.append(following)
        if done.returncode != 0:
            wrong.append(f"{folder}: {following}: tcc-opt ends with {done.returncode}: {done.stderr[:2000]}")
        elif done.stdout != after[3]:
            pairs = zip(done.stdout.split("\n"), after[3].split("\n"))
            first = next((f"line {n}:\n  {a[:300]}\n  {b[:300]}" for n, (a, b) in enumerate(pairs, 1) if a != b), "its length")
            wrong.append(f"{folder}: {following} differs from tcc's in {first}")
    assert dumps and dumps[-1][1] is None, f"{folder} has no last phase"
    return checked, wrong


class Reruns(EndToEnd):
    def check(self, name, *arguments, targets=TARGETS):
        """Compiles for each target and reruns every phase. Returns the phases by target."""
        found = {}
        for target in targets:
            dumps = self.folder / f"{name}-{target.replace(':', '-')}"
            self.succeed("tcc", *arguments, "--target", target, "-o", f"{dumps.name}.tplan", "--dump-phases-to", dumps)
            found[target], wrong = rerun(dumps)
            self.assertEqual(wrong, [], name)
            self.assertIn("memory", found[target])
        return found

    def zoo(self, name, *arguments, **options):
        return self.check(name, ZOO / name / "model.onnx", "--recipe", ZOO / name / "recipe.toml", *arguments, **options)

    def test_a_small_model(self):
        self.zoo("mlp")

    def test_convolutions_and_statistics(self):
        self.zoo("cnn-bn", targets=("cpu:v4", "cuda:sm_90"))

    def test_attention_in_16_bits(self):
        found = self.zoo("nano-gpt", "--precision", "bf16", targets=("cpu:v4", "cuda:sm_90"))
        self.assertIn("attention", found["cuda:sm_90"])
        self.assertIn("autocast", found["cpu:v4"])
        self.zoo("vit-tiny", "--precision", "bf16", targets=("cuda:sm_90",))  # with calls of a library, and why it has them

    def test_a_written_out_recurrence(self):
        self.assertIn("loops", self.zoo("scripted-loop", targets=("cpu:v3",))["cpu:v3"])

    def test_a_budget_and_threads(self):
        """What the command line says is in the passes' options and in the module."""
        self.zoo("small-cnn", "--threads", 2, "--memory-budget", "1GiB", "--set", "compiler.recompute_time=0.123456789",
                 targets=("cpu:v4",))

    def test_adapters_in_f16_over_ranks(self):
        found = self.zoo("mlp", "--set", "adapter.targets=['*']", "--set", "adapter.rank=1", "--set", "parallel.mode=ddp",
                         "--precision", "f16", targets=("cpu:v3",))
        self.assertLessEqual({"adapters", "widen", "distribute"}, set(found["cpu:v3"]))

    def test_two_optimizers(self):
        (self.folder / "phases.toml").write_text(RECIPES["actor-critic"])
        found = self.check("actor-critic", PHASES / "actor-critic.onnx", "--recipe", "phases.toml", targets=("cpu:v3", "cuda:sm_90"))
        self.assertLessEqual({"split", "merge"}, set(found["cpu:v3"]))

    def test_stages(self):
        recipe = (ZOO / "mlp" / "recipe.toml").read_text() + STAGED
        (self.folder / "staged.toml").write_text(recipe)
        found = self.check("staged", ZOO / "mlp" / "model.onnx", "--recipe", "staged.toml", targets=("cpu:v3",))
        self.assertLessEqual({"split", "merge"}, set(found["cpu:v3"]))

    def test_prediction_without_a_recipe(self):
        self.check("bare", ZOO / "small-cnn" / "model.onnx", targets=("cpu:v3",))


def everything(folders):
    """Every model of the zoo, of the examples and of `folders`, for every target."""
    import tempfile
    cases = [path.parent for root in (ZOO, ROOT / "examples" / "char-gpt", *folders) for path in sorted(root.rglob("model.onnx"))
             if (path.parent / "recipe.toml").exists()]

    def one(case, target):
        with tempfile.TemporaryDirectory(prefix="tcc-reruns-") as folder:
            command = [BIN / "tcc", case / "model.onnx", "--recipe", case / "recipe.toml", "--target", target, "--quiet",
                       "-o", f"{folder}/m.tplan", "--dump-phases-to", f"{folder}/{case.name}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if done.returncode != 0:
                return 0, [f"{case} for {target}: tcc ends with {done.returncode}: {done.stderr[:500]}"]
            checked, wrong = rerun(Path(folder) / case.name)
            return len(checked), [f"{target}: {line}" for line in wrong]

    phases, failures = 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(one, case, target) for case in cases for target in TARGETS]
        for job in concurrent.futures.as_completed(work):
            checked, wrong = job.result()
            phases += checked
            failures += wrong
            for line in wrong:
                print(line, flush=True)
    print(f"reruns: {len(cases)} models, {len(TARGETS)} targets, {phases} phases, {len(failures)} differ")
    return 1 if failures or not phases else 0


if __name__ == "__main__":
    if "--all" in sys.argv:
        sys.exit(everything([Path(word) for word in sys.argv[1:] if word != "--all"]))
    unittest.main(verbosity=2)
