"""Rules of the source tree that a build cannot state: `test_sources.py BUILD`.

A translation unit that includes MLIR takes half a minute to compile, so their number is the build's time: at most LIMIT.
A source file has at most LONGEST lines; plan.proto, the format, is one file whatever its length. C++ of the product has at
most COLUMNS columns, as .clang-format says.
Nothing but the compiler may include MLIR or LLVM. A pass has one file and one test, of its name.
Folders include each other in no circle, as docs/design/layers.md lists; only the CPU's folders name its library, its
instructions or its workers, and general folders name nothing of a card. Messages of the libraries name no option of a
command. DEPENDENCIES.md explains every installed package.
"""
import re
import subprocess
import sys
import unittest

from common import ROOT

LIMIT = 38
LONGEST = 1500
COLUMNS = 120
BUILD = sys.argv.pop(1)


def headers_of_objects():
    """Object file → headers that it was compiled from, as ninja recorded them."""
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    objects = {}
    for line in listing.splitlines():
        if line and not line[0].isspace() and "#deps" in line and "(VALID)" in line:
            headers = objects.setdefault(line.split(":")[0], [])
        elif line.startswith("    "):
            headers.append(line.strip())
    return objects


PRODUCT = ("support", "frontend", "compiler", "passes", "runtime", "tools")

SUFFIXES = (".cpp", ".h", ".c", ".td", ".py", ".sh", ".cmake", ".js", ".css", ".html", ".mlir")

# A kind of call → its pattern, and the files that may make it, each with the reason. Lines that name /dev/null or /proc do not
# count.
CALLS = {
    "removes, renames or opens for writing": (
        re.compile(r"remove_all|remove_directories|ofstream|create_director|create_hard_link|create_symlink|copy_file|resize_file|raw_fd_"
                   r"ostream|createUnique|O_(CREAT|TRUNC|WRONLY|RDWR)|(fs|filesystem)::(remove|rename)\b|std::(remove|rename)\([^,()]*c_str|"
                   r"(?<!\w)::(unlink|unlinkat|rmdir|rename|renameat2?|mkdir|link|symlink|truncate|creat|mkstemp|mkdtemp)\("),
        {"support/OwnFiles.cpp": "the one place", "support/AtomicFile.cpp": "asks it before it replaces",
         "compiler/cache/ContentStore.cpp": "the compile cache: by descriptor, each entry with its mark",
         "support/Ptxas.cpp": "a child's output in a TemporaryFolder",
         "runtime/parallel/SharedMemory.cpp": "memory of another rank"}),
    "opens for reading": (
        re.compile(r"ifstream|fopen|O_RDONLY|MemoryBuffer::getFile|parse_file"),
        {"support/RegularFile.cpp": "the one place", "support/OwnFiles.cpp": "reads marks", "support/AtomicFile.cpp": "folders",
         "compiler/cache/ContentStore.cpp": "folders", "compiler/cache/TrustedFolder.cpp": "entries of the cache",
         "support/MachineMemory.cpp": "/proc and /sys under a root of the test's",
         "runtime/parallel/Secret.cpp": "a secret, whose rights it checks", "runtime/parallel/Host.cpp": "/proc/net"}),
    "parses or writes JSON": (
        re.compile(r"json::(parse|accept|sax_parse|from_)|\.dump\("),
        {"support/Json.cpp": "the one place", "runtime/tensors/Safetensors.cpp": "events, no values",
         "runtime/data/JsonLines.cpp": "events, no values"}),
}

# Folders, with those inside them, and what they never include: docs/design/layers.md has the reasons.
NEVER = {
    "support": ("frontend", "compiler", "passes", "runtime", "tools"),
    "runtime": ("frontend", "compiler", "passes", "tools"),
    "compiler/model": ("frontend", "passes"),
    "compiler/dialect": ("frontend", "passes", "compiler/target"),
    "frontend": ("passes", "compiler/driver", "compiler/target", "compiler/codegen", "compiler/emit", "runtime/state"),
    "passes": ("frontend", "compiler/driver", "compiler/emit", "compiler/target/cpu", "compiler/target/cuda",
               "compiler/target/registry"),
    "compiler/target": ("frontend", "compiler/driver", "compiler/emit"),
    "compiler/emit": ("frontend", "compiler/driver", "compiler/target/cpu", "compiler/target/cuda"),
}

# Where knowledge of one machine may stand; tools and trun's devices speak of threads and libraries to their users.
CPU_ROOMS = ("compiler/target/cpu/", "compiler/codegen/", "compiler/cache/")
GENERAL_ROOMS = ("passes", "compiler/dialect", "compiler/planning", "runtime/train")
CARD_WORDS = re.compile(r"warp|\bcards?\b|cuda|cublas|cudnn|\bptx", re.IGNORECASE)
CPU_WORDS = re.compile(r"onednn|dnnl|\bworkers?\b|avx|\bamx\b|cache line", re.IGNORECASE)

# What a program does, and a library inside another program must not: handle signals, print, fork, end the process.
PROCESS_CALLS = re.compile(r"\b(sigaction|sigprocmask|fork|vfork|_exit|_Exit|quick_exit|atexit|printf|fprintf|puts|perror)\s*\("
                           r"|\bstd::(signal|exit|abort|terminate)\b|(?<![\w.:>])(signal|exit)\(|\braise\("
                           r"|\b(stderr|stdout)\b|std::(cout|cerr|clog)\b|fmt::print|\bFILE \*|\bfopen\(|\bfwrite\(")

# Files of libraries → texts with an option that are no advice in a message; support/Advice.h marks advice.
OPTION = re.compile(r"(?<![\w-])--(?=[a-z{]|$)")
OPTIONS = {
    "support/OwnFiles.cpp": ("a file of --timings", "a table of --confusion", "tcc report --code"),  # what a file is
    "support/OwnFiles.h": ("// tcc report --code",),  # how a file begins
    "support/recipe/Keys.cpp": ("as `--shape` gives them", "`--precision` overrides it"),  # docs/guide/recipe.md
    "support/recipe/KeyTexts.cpp": ("| `trun --set` |",),  # docs/guide/recipe.md
    "support/Ptxas.cpp": ("--version",),  # of ptxas
    "runtime/parallel/Mpi.cpp": ("srun --mpi",),  # of Slurm
    "runtime/api/Api.cpp": ("tcc --",),  # a program, wherever the advice is shown
}
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:[^"\\\n]|\\.)*)"|(?<!\w)'(?:[^'\\\n]|\\.)+'""",
                   re.DOTALL)


def literals(code):
    """The string literals of C++ code, without those in comments and of included files."""
    code = re.sub(r"^#include .*", "", code, flags=re.MULTILINE)
    return [match["raw"] or match["text"] for match in TOKEN.finditer(code) if match["raw"] or match["text"]]


def layers():
    """Folder → folders of the product whose headers it includes."""
    found = {}
    for root in PRODUCT:
        for path in sorted([*(ROOT / root).rglob("*.cpp"), *(ROOT / root).rglob("*.h")]):
            folder = str(path.parent.relative_to(ROOT))
            included = found.setdefault(folder, set())
            for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
                other = header.rpartition("/")[0]
                if other and other != folder and other.split("/")[0] in PRODUCT:
                    included.add(other)
    return found


def find_cycle(graph):
    """The folders along a cycle, or nothing."""
    done = set()

    def walk(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        for other in sorted(graph.get(folder, ())):
            if cycle := walk(other, path + [folder]):
                return cycle
        done.add(folder)
        return None

    return next((cycle for folder in sorted(graph) if (cycle := walk(folder, []))), None)


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
        passes = [n for f in [*(ROOT / "passes").glob("*.td"), *(ROOT / "compiler/target").glob("*/passes/*.td")] for n in re.findall(r'Pass<"([a-z0-9-]+)"', f.read_text())]
        self.assertGreater(len(passes), 0)
        for name in passes:
            file = "".join(map(str.title, name.split("-"))) + ".cpp"
            found = [*(ROOT / "passes").rglob(file), *(ROOT / "compiler/target").rglob(file)]
            self.assertEqual(len(found), 1, name)
            self.assertTrue((ROOT / "test" / "lit" / "passes" / f"{name}.mlir").is_file(), f"no test of --{name}")

    def test_no_folders_include_each_other_in_a_circle(self):
        self.assertIsNone(find_cycle(layers()))
        self.assertEqual(find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}), ["b", "c", "b"])

    def test_the_table_of_layers_is_what_the_folders_include(self):
        table = "".join(f"| `{folder}` | {', '.join(f'`{other}`' for other in sorted(others))} |\n"
                        for folder, others in sorted(layers().items()))
        page = (ROOT / "docs/design/layers.md").read_text()
        self.assertIn(table, page, f"docs/design/layers.md differs from the includes; its rows should be\n{table}")

    def test_no_layer_includes_one_above_it(self):
        def within(folder, roots):
            return any(folder == root or folder.startswith(root + "/") for root in roots)

        wrong = [f"{folder} includes {other}" for folder, others in sorted(layers().items()) for other in sorted(others)
                 for room, never in NEVER.items() if within(folder, (room,)) and within(other, never)]
        self.assertEqual(wrong, [])

    def lines_with(self, words, roots, rooms=()):
        """The lines under `roots`, but not in `rooms`, that have one of the words."""
        paths = [path for root in roots for path in sorted((ROOT / root).rglob("*")) if path.suffix in (".cpp", ".h", ".td")]
        self.assertGreater(len(paths), 0)
        return [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path in paths
                if not str(path.relative_to(ROOT)).startswith(rooms)
                for number, line in enumerate(path.read_text().splitlines(), 1)
                if words.search(line) and not line.startswith("#include")]

    def test_only_the_cpus_rooms_speak_of_the_cpu(self):
        wrong = self.lines_with(CPU_WORDS, ("compiler", "passes", "frontend"), CPU_ROOMS)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_general_rooms_do_not_speak_of_cards(self):
        wrong = self.lines_with(CARD_WORDS, GENERAL_ROOMS)
        self.assertEqual(wrong, [], "\n".join(wrong))
        for word in ("a warp's", "groupTiles of WarpTile", "CudaDevice", "the card", "cuBLASLt", "PTX"):
            self.assertTrue(CARD_WORDS.search(word), word)
        for word in ("discards", "cardinality", "a lane group"):
            self.assertIsNone(CARD_WORDS.search(word), word)

    def test_only_tools_behave_as_a_process(self):
        wrong = [line for line in self.lines_with(PROCESS_CALLS, ("runtime", "support"))
                 if PROCESS_CALLS.search(line.split(": ", 1)[1].split("//")[0])]
        self.assertEqual(wrong, [], "\n".join(wrong))
        for word in ("::fork()", "std::fprintf(stderr", "sigaction(number", "_exit(1)", "std::exit(2)", "  exit(3);", "std::FILE *out"):
            self.assertTrue(PROCESS_CALLS.search(word), word)
        for word in ("session.ranks->abort(", "snprintf(", "fork", "exitStatusOf(status)", "on_exit(x)"):
            self.assertIsNone(PROCESS_CALLS.search(word), word)

    def test_files_are_opened_removed_and_parsed_in_one_place(self):
        for what, (pattern, allowed) in CALLS.items():
            found = {}
            for root in PRODUCT:
                for path in [*(ROOT / root).rglob("*.cpp"), *(ROOT / root).rglob("*.h")]:
                    name = str(path.relative_to(ROOT))
                    for number, line in enumerate(path.read_text().splitlines(), 1):
                        code = line.split("//")[0]
                        if pattern.search(code) and "/dev/null" not in line and '"/proc/' not in line and not code.startswith("#include"):
                            found.setdefault(name, []).append(f"{name}:{number}: {line.strip()}")
            for name in found.keys() - allowed.keys():
                self.fail(f"{what}, which {next(iter(allowed))} does for all:\n" + "\n".join(found[name]))
            self.assertEqual(set(allowed) - set(found), set(), f"no longer {what}")

    def test_messages_of_libraries_name_no_option(self):
        wrong, seen = [], {name: set() for name in OPTIONS}
        for path in [path for root in ("runtime", "support") for end in ("cpp", "h") for path in sorted((ROOT / root).rglob(f"*.{end}"))]:
            name = str(path.relative_to(ROOT))
            for text in literals(path.read_text()):
                for known in OPTIONS.get(name, ()):
                    if known in text:
                        seen[name].add(known)
                        text = text.replace(known, "")
                if OPTION.search(text):
                    wrong.append(f"{name}: {text}")
        self.assertEqual(wrong, [], "give advice by support/Advice.h")
        self.assertEqual({name: set(known) for name, known in OPTIONS.items()}, seen, "no longer there")
        code = '''#include "a--b.h"  // "--comment"
            /* "--comment" */ char quote = '"'; f(R"(--raw)", "--one=\\"--two", 1'000, "a--b", "--{}", "--", "-- --three");'''
        self.assertEqual(literals(code), ["--raw", '--one=\\"--two', "a--b", "--{}", "--", "-- --three"])
        self.assertEqual([bool(OPTION.search(text)) for text in literals(code)], [True, True, False, True, True, True])

    def test_no_file_is_too_long(self):
        lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for folder in (*PRODUCT, "cmake", "test")
                   for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES}
        self.assertGreater(len(lengths), 1000)
        self.assertEqual({name: lines for name, lines in lengths.items() if lines > LONGEST}, {}, "split by meaning")

    def test_lines_are_short(self):
        long = [f"{path.relative_to(ROOT)}:{number}" for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*"))
                if path.suffix in (".cpp", ".h") for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > COLUMNS]
        self.assertEqual(long, [], f"more than {COLUMNS} columns: clang-format --lines=N:N")

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
