"""Packages on clean systems: `check_roots.py DIST [--deb DEB] [--build BUILD]` trains with what is installed there, and takes it away again.

Each system is a folder that debootstrap makes (as root; kept in --roots) and nothing of ours is in: Debian 12, Debian 13, and Ubuntu
22.04 where its archive answers. On each: the wheels of DIST by pip, the Debian package DEB beside Debian's own tcc. On Debian 12
also what `cmake --install BUILD` makes, and programs of CMake that find it and the Debian package.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import models
from common import ROOT

# Of each: components of its archive, more packages, and the system that has the keys of its archive, if this one has not.
SYSTEMS = {
    "bookworm": ("main", "", None),
    "trixie": ("main", ",ubuntu-keyring", None),
    "jammy": ("main,universe", "", "trixie"),
}
OPTIONAL = {"jammy"} # where its archive is out of reach, it is left out
KEYS = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
# Nothing of the caller's environment gets in but the way to PyPI.
WAY = r"PIP_(EXTRA_)?INDEX_URL|PIP_DEFAULT_TIMEOUT|(https?|no)_proxy"
NETWORK = {name: value for name, value in os.environ.items() if re.fullmatch(WAY, name, re.IGNORECASE)}
INSIDE = NETWORK | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                    "PIP_CERT": f"/{CERTIFICATES}", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
KEYS_OF_LOSS = "--set loss.kind=cross_entropy --set loss.of=logits --set loss.target=labels --set optimizer.lr=0.05"

FIT = """
import sys
import time
import numpy as np
import tcc
x = np.random.default_rng(1).standard_normal((160, 16), np.float32)
np.savez("/try/d.npz", x=x, labels=x[:, :4].argmax(1))
plan = tcc.compile("/try/classifier.onnx", batch=32, recipe={
    "loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "optimizer.lr": 0.05})
updates = []
tcc.Trainer(plan).fit("/try/d.npz", epochs=20, callbacks=[lambda event: updates.append((time.time(), event.update.loss)) if event.update else None])
assert updates[-1][1] < 0.8 * updates[0][1], updates
print(f"first step after {updates[0][0] - float(sys.argv[1]):.1f} s")
"""
WHEELS = f"""
python3 -m venv /env
start=$(date +%s.%N)
/env/bin/pip install --quiet /dist/*.whl
/env/bin/python /try/fit.py $start
PATH=/env/bin:$PATH
tcc /try/classifier.onnx --batch 32 {KEYS_OF_LOSS} -o /try/m.tplan --quiet
trun /try/m.tplan --data /try/d.npz --epochs 20 --out /try/run-wheels >/dev/null
tcc-plan --version
pip uninstall --quiet --yes tcc-train tcc-train-compiler
test -z "$(find /env -type f -path '*/site-packages/tcc*' -print -quit)" # pip leaves empty folders
"""
# Debian's tcc compiles C; ours trains.
DEB = f"""
apt-get install --quiet=2 --no-install-recommends tcc >/dev/null
echo 'int main(void) {{ return 0; }}' >/try/a.c
dpkg --install /dist/*.deb >/dev/null
tcc -c /try/a.c -o /try/a.o
/opt/tcc-train/bin/tcc /try/classifier.onnx --batch 32 {KEYS_OF_LOSS} -o /try/m.tplan --quiet
/opt/tcc-train/bin/trun /try/m.tplan --data /try/d.npz --epochs 20 --out /try/run-deb >/dev/null
"""
PURGE = """
dpkg --purge tcc-train >/dev/null
test -z "$(find / -xdev -name 'tcc-train*' -not -path '/dist/*' -print -quit)"
tcc -c /try/a.c -o /try/a.o
"""
CONSUMER = """cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(tcc 0.1 REQUIRED)
add_executable(own own_loop.c)
target_link_libraries(own PRIVATE tcc::trun m)
message(STATUS "programs in ${tcc_PROGRAMS}")
"""
CONSUME = """
$prefix/bin/tcc /try/m.onnx --set loss.kind=cross_entropy --set loss.of=logits --set loss.target=labels -o /try/m.tplan --quiet
$prefix/bin/trun verify /try/m.tplan >/dev/null
rm -rf /try/build /try/run-own
cmake -S /try -B /try/build -DCMAKE_PREFIX_PATH=$prefix | grep "in $prefix/bin"
cmake --build /try/build >/dev/null
/try/build/own /try/m.tplan /try/run-own | grep 'after 300 updates'
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, words))[:300]}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def inside(root, script):
    """Runs a script of bash in the root; its standard output."""
    # /proc is mounted for this one process tree, so that nothing stays mounted.
    return run("unshare", "--mount", "--pid", "--fork", "bash", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" bash -euo pipefail -c "$1"',
               root, script, env=INSIDE, timeout=1800)


def base(roots, suite):
    """The folder of a system as debootstrap leaves it, or None if an optional one cannot be had."""
    components, more, keys = SYSTEMS[suite]
    made, work = roots / suite, roots / f"{suite}.work"
    if made.is_dir():
        return made
    shutil.rmtree(work, ignore_errors=True)
    words = ["debootstrap", "--variant=minbase", f"--components={components}", f"--include=python3,python3-venv,ca-certificates{more}"]
    words += [f"--keyring={base(roots, keys) / KEYS}"] if keys else []
    done = subprocess.run([*words, suite, work], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode and suite in OPTIONAL:
        print(f"{suite}: left out, since debootstrap fails: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        return None
    if done.returncode:
        sys.exit(f"error: debootstrap {suite}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    for file in (CERTIFICATES, "etc/resolv.conf"):
        shutil.copy(Path("/") / file, work / file)
    work.rename(made)
    return made


def owner(path):
    """Debian's package that has a file of this system. Of a merged folder dpkg may know the old name alone."""
    real = str(path.resolve())
    for spelling in (real, real.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "--search", spelling], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"error: no package has {path}")


def libraries(prefix):
    """Debian's packages with the libraries that the files in a prefix need."""
    needed = {Path(place) for path in [*prefix.glob("bin/*"), *prefix.glob("lib/*.so.*")] for place in re.findall(r"=> (/\S+)", run("ldd", path))}
    return sorted({owner(path) for path in needed if not path.is_relative_to(prefix)})


def check_consumers(root, build, deb):
    prefix = root / "opt/tree"
    for component in ("runtime", "development", "compiler"):
        run("cmake", "--install", build, "--prefix", prefix, "--component", component)
    # LLVM 22 is among Debian 12's security updates.
    sources = root / "etc/apt/sources.list"
    sources.write_text(sources.read_text() + re.sub(r"/debian/? bookworm ", "/debian-security bookworm-security ", sources.read_text()))
    needed = libraries(prefix)
    shutil.copy(ROOT / "test/api/own_loop.c", root / "try")
    (root / "try/CMakeLists.txt").write_text(CONSUMER)
    models.classifier(root / "try/m.onnx", 32, 16, 10)
    tools = "cmake make gcc g++ libc6-dev"
    inside(root, f"apt-get update --quiet=2 && apt-get install --quiet=2 --no-install-recommends {tools} {' '.join(needed)} >/dev/null")
    for place in ("/opt/tree", "/opt/tcc-train") if deb else ("/opt/tree",):
        inside(root, f"prefix={place}\n{CONSUME}")
    print(f"bookworm: programs of CMake find {'both installations' if deb else 'the installation'}; the tree uses {len(needed)} packages' libraries")


def check(system, roots, wheels, deb, build):
    made = base(roots, system)
    if made is None:
        return
    with tempfile.TemporaryDirectory(dir=roots) as folder:
        root = Path(folder) / system
        run("cp", "-a", made, root)
        for name, files in (("dist", [*wheels, *([deb] if deb else [])]), ("try", [ROOT / "examples/python/classifier.onnx"])):
            (root / name).mkdir()
            for file in files:
                shutil.copy(file, root / name)
        (root / "try/fit.py").write_text(FIT)
        print(f"{system}: {inside(root, 'getconf GNU_LIBC_VERSION').strip()}, wheels: {inside(root, WHEELS).splitlines()[0]}", flush=True)
        if deb:
            start = time.time()
            inside(root, "apt-get update --quiet=2" + DEB)
            print(f"{system}: the Debian package works beside Debian's tcc ({time.time() - start:.0f} s)", flush=True)
        if build and system == "bookworm":
            check_consumers(root, build, deb)
        if deb:
            inside(root, PURGE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--deb", type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--roots", type=Path, default=ROOT / "build-nightly/roots", help="where the systems are kept")
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    arguments = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin" # where debootstrap and chroot are
    if not shutil.which("debootstrap"):
        sys.exit("error: no debootstrap: run tools/setup.sh nightly, or apt-get install debootstrap")
    if os.geteuid():
        sys.exit("error: debootstrap and chroot need root: run this as root")
    wheels = sorted(arguments.dist.glob("*.whl"))
    assert len(wheels) == 2, f"not two wheels in {arguments.dist}: run tools/wheel.sh"
    arguments.roots.mkdir(parents=True, exist_ok=True)
    for system in arguments.system or SYSTEMS:
        check(system, arguments.roots.resolve(), wheels, arguments.deb, arguments.build)


if __name__ == "__main__":
    main()
