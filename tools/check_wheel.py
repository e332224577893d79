#!/usr/bin/env python3
"""Checks what a wheel promises: `tools/check_wheel.py WHEEL` prints its sizes and the newest symbols that it asks a system for.

Fails if it is larger than its bound, needs a newer glibc or C++ library than manylinux_2_34 has (by auditwheel, too), or a library
that neither the system nor the wheel has, or lacks licences.
"""
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MEGABYTE = 1_000_000
# Of the whole wheel, of which oneDNN is 11.4 MB, and of it without the bundled libraries.
BOUNDS = {"tcc_train": (17.5 * MEGABYTE, 4 * MEGABYTE), "tcc_train_compiler": (33 * MEGABYTE, 33 * MEGABYTE)}
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"}
# The runtime's wheel brings these, also for the compiler's, whose files lie beside its own.
BUNDLED = {"libbz2.so.1.0", "libdnnl.so.2", "libgomp.so.1", "libjpeg.so.62", "libnettle.so.8", "libOpenCL.so.1", "libpng16.so.16",
           "libprotobuf.so.32", "libz.so.1"}
# Plug-ins are opened where these are there.
OPTIONAL = {"trun-mpi.so": r"libmpi\.so\.40", "trun-arrow.so": r"lib(arrow|parquet)\.so\.\d+"}


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def audited(wheel):
    """The tag that auditwheel gives the symbols. It looks nowhere for libraries: those of plug-ins are this system's (Open MPI)."""
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", "/nonexistent", wheel],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["sym_tag"]


def check(wheel):
    name, problems = wheel.name.split("-")[0], []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        packed = {entry.filename: entry.compress_size for entry in archive.infolist()}
        executable = {entry.filename for entry in archive.infolist() if entry.external_attr >> 16 & 0o100}
        files = elf_files(Path(folder))
        versions, inside = {}, {path.name for path in files} | (BUNDLED if name == "tcc_train_compiler" else set())
        for path in files:
            relative = str(path.relative_to(folder))
            if path.parent.name == "bin" and relative not in executable:
                problems.append(f"{relative} is not executable")
            for needed in re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout):
                if needed not in SYSTEM | inside and not re.fullmatch(OPTIONAL.get(path.name, "-"), needed):
                    problems.append(f"{relative} needs {needed}, which no system has")
            symbols = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
            for kind, text in re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([\d.]+)\)", symbols):
                version = tuple(map(int, text.split(".")))
                versions[kind] = max(versions.get(kind, ()), version)
                if version > NEWEST[kind]:
                    problems.append(f"{relative} needs {kind}_{text}")
            print(f"{path.stat().st_size:11,} bytes, packed {packed[relative]:11,}  {relative}")
        licences = [one for one in packed if "/licences/" in one]
        if len(licences) < 15:
            problems.append(f"only {len(licences)} licences")
    tag = audited(wheel)
    if tuple(map(int, re.findall(r"\d+", tag)[:2])) > NEWEST["GLIBC"]:
        problems.append(f"auditwheel finds symbols of {tag}")
    size = wheel.stat().st_size
    own = size - sum(count for path, count in packed.items() if Path(path).name in BUNDLED)
    newest = ", ".join(f"{kind}_{'.'.join(map(str, version))}" for kind, version in sorted(versions.items()))
    print(f"{wheel.name}: {size / MEGABYTE:.2f} MB, {own / MEGABYTE:.2f} MB without bundled libraries, {len(licences)} licences; "
          f"auditwheel: {tag}; newest symbols {newest}")
    for count, bound in zip((size, own), BOUNDS[name]):
        if count > bound:
            problems.append(f"{count} bytes are more than {bound}")
    return sorted(set(problems))


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(bool(found))
