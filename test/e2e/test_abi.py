"""The binary interface of libtrun: functions, structs and enumerators of include/trun/trun.h, beside the text test/api/abi.txt.

Programs that were compiled earlier rely on each of its lines: a changed or removed one breaks them, and needs another version of
the symbols (runtime/api/exports.map) and another SONAME. New lines are fine, fields at the end of their struct.
`test_abi.py --write` writes the text.
"""
import ctypes
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from common import BIN, ROOT

HEADER = ROOT / "include/trun/trun.h"
TEXT = ROOT / "test/api/abi.txt"
LIBRARY = BIN.parent / "lib" / "libtrun.so"


def declarations():
    """The header without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.DOTALL)
    return re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.MULTILINE | re.DOTALL)


def structs():
    """Struct → names of its fields, in order."""
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", declarations(), re.DOTALL):
        fields = found[name] = []
        for field in filter(None, map(str.strip, body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)", field)
            fields += [pointer[1]] if pointer else [re.search(r"(\w+)$", part.strip())[1] for part in field.split(",")]
    return found


def enums():
    return {name: re.findall(r"\b(TRUN_\w+)\b", body) for name, body in
            re.findall(r"typedef enum (\w+) \{(.*?)\} \1;", declarations(), re.DOTALL)}


def functions():
    found = (" ".join(one.split()) for one in re.findall(r"TRUN_API ([^;]*\btrun_\w+\([^;]*\));", declarations()))
    return sorted(found, key=lambda one: re.search(r"trun_\w+(?=\()", one)[0])


def dump():
    lines = ["#include <stdio.h>", "#include <trun/trun.h>", "int main(void) {"]
    for name, values in enums().items():
        lines.append(f'printf("enum {name} size %zu\\n", sizeof({name}));')
        lines += [f'printf("  {value} = %d\\n", (int){value});' for value in values]
    for name, fields in structs().items():
        lines.append(f'printf("struct {name} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
        lines += [f'printf("  {field} at %zu size %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));' for field in fields]
    lines += ["}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "abi.c", Path(folder) / "abi"
        source.write_text("\n".join(lines))
        subprocess.run(["cc", "-std=c11", "-I", ROOT / "include", source, "-o", program], check=True)
        layout = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    symbols = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY], capture_output=True, text=True, check=True).stdout
    exported = sorted(line.split()[-1] for line in symbols.splitlines() if line.split()[-2] in "TDBRWV")
    soname = re.search(r"SONAME.*\[(.*)\]", subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout)[1]
    return (f"library {soname}\n" + layout + "".join(f"function {one}\n" for one in functions()) + "".join(f"symbol {one}\n" for one in exported))


class Abi(unittest.TestCase):
    maxDiff = None

    def test_the_interface_is_the_one_of_the_text(self):
        self.assertEqual(dump(), TEXT.read_text(), "see test_abi.py")

    def test_the_text_covers_the_header(self):
        text = declarations()
        self.assertEqual(len(structs()) + len(enums()), len(re.findall(r"^typedef (?:struct|enum) \w+ \{", text, re.MULTILINE)))
        self.assertEqual(len(functions()), len(re.findall(r"^TRUN_API", text, re.MULTILINE)))
        self.assertTrue(all(structs().values()) and all(enums().values()))

    def test_the_structs_of_python_are_those_of_the_header(self):
        sys.path.insert(0, str(ROOT / "python"))
        import tcc._library as native
        known = structs()
        pairs = {"trun_tensor": native.Tensor, "trun_info": native.Info, "trun_memory": native.Memory, "trun_step": native.StepNumbers,
                 "trun_trainer_options": native.TrainerOptions, "trun_event": native.EventNumbers, "trun_fit_options": native.FitOptions}
        self.assertEqual(set(pairs), set(known))
        text = TEXT.read_text()
        for name, struct in pairs.items():
            self.assertEqual([field[0] for field in struct._fields_], known[name], name)
            lines = [f"struct {name} size {ctypes.sizeof(struct)} align {ctypes.alignment(struct)}"]
            lines += [f"  {field} at {getattr(struct, field).offset} size {getattr(struct, field).size}" for field in known[name]]
            self.assertIn("\n".join(lines) + "\n", text, name)


if __name__ == "__main__":
    if "--write" in sys.argv:
        TEXT.write_text(dump())
    else:
        unittest.main()
