"""Compile time and size of CUDA plans: `cuda_compile.py --bin BUILD/bin FOLDER[:PRECISION]...`.

Each folder has model.onnx and recipe.toml, as `torch_step.py --onnx` writes them. Compiles every entry without a cache, for one
architecture and for three, with PTX alone and with the machine code of ptxas if tcc finds it. Prints processor seconds of tcc and its
child processes, the peak memory of the largest process, and the bytes of the plan and of its PTX; large weights stay in files of their own.
"""
import argparse
import os
import subprocess
import tempfile
from pathlib import Path

TARGETS = [["cuda:sm_90"], ["cuda:sm_80", "cuda:sm_90", "cuda:sm_120"]]


def measure(words):
    """Processor seconds of a command and its child processes, and the peak memory in MiB of the largest of these processes."""
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    messages = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, words))}\n{messages}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("workloads", nargs="+")
    options = parser.parse_args()
    print("| model | precision | architectures | code | processor seconds | largest process, MiB | plan, MiB | PTX, MiB |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="tcc-compile-") as name:
        plan, code = Path(name) / "a.tplan", Path(name) / "a.ptx"
        for workload in options.workloads:
            folder, _, precision = workload.partition(":")
            for targets in TARGETS:
                for cubins in ("none", "auto"):
                    words = [options.bin / "tcc", f"{folder}/model.onnx", "--recipe", f"{folder}/recipe.toml", "-o", plan, "--no-cache",
                             "--precision", precision or "f32", "--set", f"compiler.cubins={cubins}",
                             *(word for target in targets for word in ("--target", target))]
                    seconds, peak = measure(words)
                    ptx = 0
                    for target in targets:
                        measure([options.bin / "tcc", "report", plan, "--target", target, "--code", code])
                        ptx += code.stat().st_size
                    print(f"| {Path(folder).name} | {precision or 'f32'} | {len(targets)} | {'PTX' if cubins == 'none' else 'and machine code'} "
                          f"| {seconds:.1f} | {peak:.0f} | {plan.stat().st_size / 2**20:.1f} | {ptx / 2**20:.1f} |", flush=True)


if __name__ == "__main__":
    main()
