#!/usr/bin/env python3
"""Memory accesses and resources of a CUDA plan's kernels: `cuda_kernels.py PLAN DATA --stand-in build/emulation`.

One update runs on the emulated machine in checked mode, which counts every access to global memory. The table compares this with the
bytes of the plan's operands (each moved once, the least that a kernel needs), and adds ptxas's figures for registers, shared memory and
spills. Accesses that a cache would serve are counted as well: a row that is read twice counts twice. Prints the kernels with the most
operand bytes, without cuBLASLt's products; --json FILE writes all of them.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Limits of a multiprocessor of sm_90 (CUDA C++ Programming Guide, "Compute Capabilities").
REGISTERS, WARPS, BLOCKS, REGISTER_UNIT = 65536, 64, 32, 256


def output_of(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"cuda_kernels.py: {' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def assembled(ptxas, code, architecture):
    """kernel → registers, bytes of shared memory and of spills."""
    text = output_of(ptxas, "-v", f"-arch={architecture}", code, "-o", os.devnull)
    found = {}
    for part in text.split("Compiling entry function '")[1:]:
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        found[part.split("'")[0]] = {"registers": number(r"Used (\d+) registers"), "shared": number(r"(\d+) bytes smem"),
                                     "spilled": number(r"(\d+) bytes spill stores")}
    return found


def resident_warps(registers, threads):
    per_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    warps = threads // 32
    return min(WARPS // warps, BLOCKS, REGISTERS // (per_warp * warps)) * warps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--stand-in", type=Path, default=ROOT / "build/emulation")
    parser.add_argument("--ptxas", default=shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = json.loads(output_of(options.bin / "tcc", "report", options.plan, "--json"))
    with tempfile.TemporaryDirectory() as folder:
        code, traffic = Path(folder) / "code.ptx", Path(folder) / "traffic.jsonl"
        output_of(options.bin / "tcc", "report", options.plan, "--code", code)
        threads = {name: int(count) for name, count in
                   re.findall(r"\.entry (\w+)\((?:[^{]*?)\.maxntid (\d+)", code.read_text())}
        occupied = assembled(options.ptxas, code, report["target"].split(":")[1])
        environment = os.environ | {"LD_LIBRARY_PATH": str(options.stand_in), "TCC_EMULATION_TRAFFIC": str(traffic),
                                    "TCC_EMULATION_MEMORY": str(64 << 30)}
        output_of(options.bin / "trun", options.plan, "--data", options.data, "--steps", 1, "--device", "cuda", "--no-release",
                  "--out", Path(folder) / "run", env=environment)
        launches = [json.loads(line) for line in traffic.read_text().splitlines()]
    rows = []
    for kernel in report["kernels"]:
        mine = [launch for launch in launches if launch["kernel"] == kernel["name"]]
        if not mine:
            continue
        mean = lambda *keys: sum(launch[key] for launch in mine for key in keys) / len(mine)
        accessed, operands = mean("read_bytes", "written_bytes"), kernel["bytes"] / kernel["count"]
        block = threads[kernel["name"]]
        rows.append({"kernel": kernel["name"], "node": kernel["nodes"][-1], "calls": kernel["count"], "operand_bytes": operands,
                     "accessed_bytes": accessed, "bytes_of_an_access": accessed / max(1, mean("reads", "writes")), "block_threads": block,
                     "resident_warps": resident_warps(occupied[kernel["name"]]["registers"], block), **occupied[kernel["name"]]})
    rows.sort(key=lambda row: -row["operand_bytes"] * row["calls"])
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    print("| node | calls | MiB of operands | accessed ÷ operands | bytes an access | threads of a block | registers | spilled | "
          "shared bytes | resident warps |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows[:options.rows]:
        print(f"| {row['node']} | {row['calls']} | {row['operand_bytes'] / 2**20:.2f} | "
              f"{row['accessed_bytes'] / max(1, row['operand_bytes']):.2f} | {row['bytes_of_an_access']:.1f} | {row['block_threads']} | "
              f"{row['registers']} | {row['spilled']} | {row['shared']} | {row['resident_warps']} |")


if __name__ == "__main__":
    main()
