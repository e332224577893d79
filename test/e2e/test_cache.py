"""The cache changes how long a compile takes, and nothing else."""
import json
import os
import re
import subprocess
import time
import unittest

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import models
from common import BIN, EndToEnd, case, compile_words

del os.environ["TCC_CACHE"]
HIT = r"\(from the cache\)"


class Cache(EndToEnd):
    def setUp(self):
        super().setUp()
        self.store = self.folder / "store"
        self.model = models.mlp(self.folder / "m.onnx")
        self.recipe = self.write("r.toml", models.SQUARES + models.SGD)
        time.sleep(0.05)                         # a file that changes while it is compiled is not kept

    def tcc(self, *arguments, plan="plan.tplan", model=None, recipe=True, **options):
        """Compiles with the test's own cache. Returns the messages and the plan's bytes."""
        words = [model or self.model, "-o", plan, *(["--recipe", self.recipe] if recipe else []), "--cache-dir", self.store]
        said = self.succeed("tcc", *words, *arguments, **options).err
        return said, (self.folder / plan).read_bytes()

    def fresh(self, *arguments, plan="fresh.tplan", **options):
        """The same without any cache."""
        said, plan = self.tcc("--no-cache", *arguments, plan=plan, **options)
        self.assertNotRegex(said, HIT)
        return plan

    def entries(self):
        return sorted(self.store.rglob("*.entry"))

    def counts(self, *arguments, **options):
        self.tcc("--timings", "t.json", *arguments, **options)
        return json.loads((self.folder / "t.json").read_text())["profile"]["counts"]

    def test_a_second_compile_takes_the_first_ones_plan(self):
        expected = self.fresh()
        self.assertFalse(self.store.exists(), "--no-cache keeps nothing")
        said, first = self.tcc()
        self.assertNotRegex(said, HIT)
        again, second = self.tcc(plan="elsewhere.tplan")
        self.assertRegex(again, HIT)
        self.assertTrue(expected == first == second, "a plan differs")
        # The same contents under other names; a plan does not contain the recipe's name.
        moved = self.folder / "moved"
        moved.mkdir()
        self.model = (moved / "m.onnx").absolute()
        self.model.write_bytes((self.folder / "m.onnx").read_bytes())
        said, third = self.tcc()
        self.assertRegex(said, HIT)
        self.assertTrue(third == expected)

    def test_warnings_are_said_again(self):
        first, _ = self.tcc(recipe=False)
        again, _ = self.tcc(recipe=False)
        self.assertRegex(again, HIT)
        self.assertIn("warning: no loss", first)
        self.assertEqual(re.findall("warning:.*", first), re.findall("warning:.*", again))

    def test_whatever_a_plan_follows_from_is_looked_at(self):
        self.tcc()
        for change in (["--set", "optimizer.lr=0.1"], ["--threads", "3"], ["--target", "cpu:v3"], ["--entry", "train"],
                       ["--memory-budget", "1GiB"], ["--shape", "x=4x5"]):
            expected = self.fresh(*change)
            for _ in range(2):
                said, plan = self.tcc(*change)
                self.assertTrue(plan == expected, f"{change}: the cache changed the plan")
        for change in (["--embed-weights"], ["--variants", "2"]):
            self.assertNotRegex(self.tcc(*change)[0], HIT, f"{change} made no difference to the key")
        self.write("r.toml", models.SQUARES + models.SGD.replace("0.05", "0.06"))
        self.assertNotRegex(self.tcc()[0], HIT, "the recipe changed")
        model = onnx.load(self.model)
        weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
        weight.flat[0] += 1
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, model.graph.initializer[0].name))
        onnx.save(model, self.model)
        said, plan = self.tcc()
        self.assertNotRegex(said, HIT, "a weight changed")
        self.assertTrue(plan == self.fresh())

    def test_kernels_are_shared_by_plans_that_differ(self):
        first = self.counts()
        self.assertGreater(first["kernels compiled"], 0)
        expected = self.fresh("--set", "optimizer.lr=0.1")
        second = self.counts("--set", "optimizer.lr=0.1")
        self.assertNotIn("kernels compiled", second, "a learning rate is in no kernel")
        self.assertEqual(second["kernels from the cache"], first["kernels compiled"])
        self.assertTrue((self.folder / "plan.tplan").read_bytes() == expected)
        # Another machine level is other code.
        other = "cpu:v4" if self.report(self.folder / "plan.tplan")["target"] == "cpu:v3" else "cpu:v3"
        self.assertNotIn("kernels from the cache", self.counts("--target", other))

    def test_a_cache_of_kernels_makes_every_plan_anew(self):
        expected = self.fresh()
        compiled = self.counts("--cache", "kernels")["kernels compiled"]
        for words, env in ((["--cache", "kernels"], {}), ([], {"TCC_CACHE": "kernels"})):
            said, plan = self.tcc("--timings", "t.json", *words, env=env)
            self.assertNotRegex(said, HIT, "a whole plan was kept")
            self.assertTrue(plan == expected)
            self.assertEqual(json.loads((self.folder / "t.json").read_text())["profile"]["counts"], {"kernels from the cache": compiled})
        # The option has precedence over the variable, --no-cache over both; another word is refused.
        self.tcc("--cache", "all", env={"TCC_CACHE": "none"})
        self.assertRegex(self.tcc(env={"TCC_CACHE": "all"})[0], HIT)
        for words in (["--cache", "none"], ["--cache", "all", "--no-cache"]):
            self.assertNotRegex(self.tcc(*words)[0], HIT)
        for words, env in ((["--cache", "plans"], {}), ([], {"TCC_CACHE": "plans"})):
            refused = self.command("tcc", self.model, "--recipe", self.recipe, *words, env=env)
            self.assertEqual(refused.status, 2, str(refused))
            self.assertRegex(refused.err, "^error: .*plans.*all.*kernels.*none")

    def test_damaged_entries_are_made_again(self):
        _, expected = self.tcc()
        for damage in (lambda b: b[:-1], lambda b: b[:20], lambda b: b"", lambda b: b + b"x",
                       lambda b: b[:-5] + bytes([b[-5] ^ 1]) + b[-4:], lambda b: bytes(len(b))):
            for entry in self.entries():
                entry.write_bytes(damage(entry.read_bytes()))
            said, plan = self.tcc()
            self.assertNotRegex(said, HIT)
            self.assertTrue(plan == expected)
            said, plan = self.tcc()
            self.assertRegex(said, HIT, "what was damaged was not replaced")
            self.assertTrue(plan == expected)

    def test_the_oldest_leave_first(self):
        plans = [["--set", f"optimizer.lr=0.{i}"] for i in range(1, 9)]
        self.tcc(*plans[0])
        limit = 2 * sum(e.stat().st_size for e in self.entries())
        for change in plans:
            self.tcc(*change, "--cache-size", limit)
            self.assertLessEqual(sum(e.stat().st_size for e in self.entries()), limit)
            # The first plan is used at every turn, so that it stays in the cache.
            self.assertRegex(self.tcc(*plans[0], "--cache-size", limit)[0], HIT)
        self.assertRegex(self.tcc(*plans[-1], "--cache-size", limit)[0], HIT)
        kept = sum(bool(re.search(HIT, self.tcc(*change, "--cache-size", limit)[0])) for change in plans[1:-2])
        self.assertLess(kept, len(plans) - 3, "nothing was removed: the limit is too large for this test")

    def test_a_folder_that_cannot_be_written_is_a_warning(self):
        self.store = self.write("file", "no folder") / "store"
        expected = self.fresh()
        said, plan = self.tcc()
        self.assertEqual(said.count("warning: the cache"), 1, said)
        self.assertTrue(plan == expected)
        self.assertNotIn("warning", self.tcc("--quiet")[0])

    def test_a_folder_that_others_may_write_to_is_not_used(self):
        """Whoever may write to the cache runs code as its user: it is ignored, with one warning and the way out."""
        _, expected = self.tcc()
        kept = {entry: entry.read_bytes() for entry in self.entries()}
        first = self.entries()[0].parent
        places = [(self.store, 0o777), (self.store, 0o720), (self.store / "v1", 0o777), (first, 0o777), (self.folder, 0o777)]
        for place, mode in places:
            before = place.stat().st_mode & 0o7777
            place.chmod(mode)
            said, plan = self.tcc("--set", "optimizer.lr=0.07")
            again, second = self.tcc()
            place.chmod(before)
            self.assertTrue(second == expected)
            for text in (said, again) if place != first else (said + again,):
                self.assertRegex(text, rf"warning: the cache is not used: .*{re.escape(str(place))}( |$).*mode 0{mode:o}.*--no-cache", place)
            if place != first:
                self.assertEqual(again.count("warning: the cache"), 1)
                self.assertNotRegex(again, HIT)
                self.assertEqual({e: e.read_bytes() for e in self.entries()}, kept, "an untrusted folder was written to")
            kept = {entry: entry.read_bytes() for entry in self.entries()}
        self.assertRegex(self.tcc()[0], HIT)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give files to others")
    def test_what_belongs_to_others_is_not_used(self):
        _, expected = self.tcc()
        for place in (self.store, self.store / "v1", self.folder):
            os.chown(place, 12345, -1)
            said, plan = self.tcc()
            os.chown(place, 0, -1)
            self.assertRegex(said, rf"warning: the cache is not used: .*{re.escape(str(place))} belongs to uid 12345")
            self.assertNotRegex(said, HIT)
            self.assertTrue(plan == expected)
        # A link to a folder of the user's own, in a sticky folder that anybody may write to.
        anybody = self.folder / "anybody"
        anybody.mkdir()
        anybody.chmod(0o1777)
        real, self.store = self.store, anybody / "link"
        self.store.symlink_to(real)
        self.assertRegex(self.tcc()[0], HIT)
        os.chown(self.store, 12345, -1, follow_symlinks=False)
        self.assertRegex(self.tcc()[0], "warning: the cache is not used: the link .*/anybody/link belongs to uid 12345")
        self.store = real
        for entry in self.entries():
            os.chown(entry, 12345, -1)
        said, plan = self.tcc()
        self.assertNotRegex(said, HIT, "another user's entry was used")
        self.assertRegex(said, "warning: the cache keeps nothing: .*entry is not a file of yours; remove it")
        self.assertTrue(plan == expected)

    def test_entries_that_are_no_files_of_the_cache_are_not_read(self):
        _, expected = self.tcc()
        copies = self.folder / "copies"
        copies.mkdir()
        for i, entry in enumerate(self.entries()):      # good bytes, but in a kind of file that tcc never makes as an entry
            copy = copies / str(i)
            copy.write_bytes(entry.read_bytes())
            entry.unlink()
            [lambda: entry.symlink_to(copy), lambda: os.link(copy, entry), lambda: os.mkfifo(entry)][i % 3]()
        said, plan = self.tcc()
        self.assertNotRegex(said, HIT)
        self.assertTrue(plan == expected)
        for entry in self.entries():
            entry.chmod(0o666) if entry.is_file() and not entry.is_symlink() else None
        self.assertNotRegex(self.tcc()[0], HIT, "an entry that others may write was used")

    def test_only_files_of_the_cache_are_removed(self):
        self.tcc()
        gone = subprocess.Popen(["true"])
        gone.wait()
        inside = self.entries()[0].parent
        outside = self.folder / "outside"
        outside.mkdir()
        digits = "0" * 30
        old = [self.store / "v1" / "thesis.tex", inside / "thesis.tex", inside / "x.entry", self.store / "v1" / (digits + ".entry"),
               inside / (digits + ".entry"), outside / "photo.jpg", outside / (digits + ".entry"),
               inside / f".thesis.tcc-{gone.pid}-1.tmp", inside / f".{digits}.entry.tcc-{os.getpid()}-1.tmp",
               inside / (digits + ".entry.a1b2c3")]
        for path in old:
            path.write_bytes(b"precious")
        left = inside / f".{digits}.entry.tcc-{gone.pid}-1.tmp"
        left.write_bytes(b"half an entry")
        (self.store / "v1" / "zz").symlink_to(outside)
        (self.store / "v1" / "ff").exists() or (self.store / "v1" / "ff").symlink_to(outside)
        for path in (*old, left):
            os.utime(path, (0, 0))
        self.tcc("--set", "optimizer.lr=0.07", "--cache-size", "200KiB")
        self.assertEqual([p.name for p in old if not p.exists() or p.read_bytes() != b"precious"], [])
        self.assertFalse(left.exists(), "what a killed compiler left behind stays")

    def test_where_it_lies(self):
        home = self.folder / "home"
        for env, place in (({"TCC_CACHE_DIR": str(home / "own"), "XDG_CACHE_HOME": str(home / "xdg")}, "own"),
                           ({"XDG_CACHE_HOME": str(home / "xdg"), "HOME": str(home)}, "xdg/tcc"),
                           ({"HOME": str(home)}, ".cache/tcc")):
            environment = {k: v for k, v in os.environ.items() if k not in ("TCC_CACHE_DIR", "XDG_CACHE_HOME", "HOME")} | env
            subprocess.run([BIN / "tcc", self.model, "--recipe", self.recipe, "-o", self.folder / "p.tplan"], check=True,
                           capture_output=True, env=environment)
            self.assertTrue(list((home / place).rglob("*.entry")), f"nothing in {place}")
        self.assertFalse((home / "own").stat().st_mode & 0o077, "others may read or write the cache")

    def test_compilers_at_once(self):
        expected = self.fresh()
        words = lambda i: compile_words([self.model, "--recipe", self.recipe, "--cache-dir", self.store, "-o", self.folder / f"{i}.tplan"])
        running = [subprocess.Popen([BIN / "tcc", *words(i)], stderr=subprocess.PIPE) for i in range(4)]
        for i, process in enumerate(running):
            _, said = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, said)
            self.assertTrue((self.folder / f"{i}.tplan").read_bytes() == expected)
        self.assertEqual([p for p in self.store.rglob("*") if p.is_file() and p.suffix != ".entry"], [])

    def test_weights_outside_the_plan(self):
        """Beyond 64 MiB weights stay in their file: the plan names it from its own folder, and holds its checksum."""
        folder = self.folder / "large"
        folder.mkdir()
        weight = np.zeros((4096, 4352), np.float32)
        weight[0] = 1
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "graph",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4352])],
                                  [numpy_helper.from_array(weight, "w")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        external_data_helper.convert_model_to_external_data(model, location="w.data")
        onnx.save(model, folder / "m.onnx")
        (self.folder / "a" / "b").mkdir(parents=True)
        time.sleep(0.05)
        options = dict(model=folder / "m.onnx", recipe=False)
        for plan in ("large/plan.tplan", "a/b/plan.tplan"):
            expected = self.fresh(plan=plan, **options)
            self.assertNotRegex(self.tcc(plan=plan, **options)[0], HIT, "other folders, other paths")
            said, found = self.tcc(plan=plan, **options)
            self.assertRegex(said, HIT)
            self.assertTrue(found == expected)
            self.succeed("trun", "verify", plan)
        self.assertIn(b"../../large/w.data", found)
        with open(folder / "w.data", "r+b") as data:
            data.write(b"\1")
        time.sleep(0.05)
        self.assertNotRegex(self.tcc(plan="a/b/plan.tplan", **options)[0], HIT, "the data changed")


if __name__ == "__main__":
    unittest.main()
