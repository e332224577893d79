"""Rules of the source tree that a build cannot state: `test_sources.py BUILD`.

A translation unit that includes MLIR takes half a minute to compile, so their number is the build's time: at most LIMIT.
Nothing but the compiler may include MLIR or LLVM. A pass has one file and one test, of its name. Every package that is installed is explained in DEPENDENCIES.md.
"""
import re
import subprocess
import sys
import unittest

from common import ROOT

LIMIT = 38
BUILD = sys.argv.pop(1)


def headers_of_objects():
    """object file → headers that it was compiled from, as ninja recorded them."""
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    objects = {}
    for line in listing.splitlines():
        if line and not line[0].isspace() and "#deps" in line and "(VALID)" in line:
            headers = objects.setdefault(line.split(":")[0], [])
        elif line.startswith("    "):
            headers.append(line.strip())
    return objects


class Sources(unittest.TestCase):
    def test_units_that_include_mlir(self):
        units = [o for o, headers in headers_of_objects().items() if any("/include/mlir/" in h for h in headers)]
        print(f"{len(units)} translation units include MLIR (at most {LIMIT})")
        self.assertGreater(len(units), 0)
        self.assertLessEqual(len(units), LIMIT, "\n".join(sorted(units)))

    def test_only_the_compiler_includes_mlir_and_llvm(self):
        outside = [o for o, headers in headers_of_objects().items()
                   if re.match(r"(runtime|tools/trun|compiler/planning)/", o)
                   and any("/include/mlir/" in h or "/include/llvm/" in h for h in headers)]
        self.assertEqual(outside, [])

    def test_the_runtime_includes_nothing_of_the_compiler(self):
        wrong = [f"{o}: {h}" for o, headers in headers_of_objects().items() if re.match(r"(runtime|tools/trun)/", o)
                 for h in headers if h.startswith(str(ROOT)) and
                 h[len(str(ROOT)) + 1:].split("/")[0] in ("compiler", "passes", "frontend")]
        self.assertEqual(wrong, [])

    def test_every_pass_has_a_file_and_a_test_of_its_name(self):
        passes = [n for f in (ROOT / "passes").glob("*.td") for n in re.findall(r'Pass<"([a-z0-9-]+)"', f.read_text())]
        self.assertGreater(len(passes), 0)
        for name in passes:
            self.assertTrue((ROOT / "passes" / ("".join(map(str.title, name.split("-"))) + ".cpp")).is_file(), name)
            self.assertTrue((ROOT / "test" / "lit" / "passes" / f"{name}.mlir").is_file(), f"no test of --{name}")

    def test_every_package_is_explained(self):
        text = (ROOT / "DEPENDENCIES.md").read_text()
        for line in (ROOT / "tools" / "packages.txt").read_text().splitlines():
            if not line.startswith("#"):
                self.assertEqual(text.count(f"`{line}`"), 1, line)
        for line in (ROOT / "tools" / "requirements.txt").read_text().splitlines():
            if not line.startswith("#"):
                self.assertEqual(text.count(f"`{line}`"), 1, line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
