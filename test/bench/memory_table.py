"""How well plans use their arenas: `memory_table.py --bin BUILD/bin [--tcc-option WORD]... MODEL_FOLDER...`

A folder holds model.onnx and recipe.toml, or folders that do. Prints for each program of each plan: instructions, the packed arena,
the most bytes live at once (a lower bound of every packing), the ratio of both, and the same for best-fit packing, largest buffer
first. Then the median ratio and the share of programs at 1.00, and the user time of tcc in seconds.
"""
import argparse
import json
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

ALIGNMENT = 64


def aligned(size):
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def blocks_of(buffers):
    """(bytes, first, last) of each piece of the arena. A result that overwrites a dying operand in place is one piece with it."""
    blocks = []                                       # [offset, bytes, first, last]
    for buffer in sorted((b for b in buffers if b["arena"] == "transient"), key=lambda b: (b["first"], b["last"])):
        size = aligned(buffer["bytes"])
        for block in blocks:
            if block[0] == buffer["offset"] and block[1] == size and block[3] == buffer["first"]:
                block[3] = buffer["last"]
                break
        else:
            blocks.append([buffer["offset"], size, buffer["first"], buffer["last"]])
    return [tuple(block[1:]) for block in blocks]


def most_live(blocks):
    change = {}
    for size, first, last in blocks:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    live = most = 0
    for time in sorted(change):
        live += change[time]
        most = max(most, live)
    return most


def best_fit(blocks):
    """Bytes of a best-fit packing: largest buffer first, each into the smallest gap that holds it, else on top."""
    placed, top = [], 0
    for size, first, last in sorted(blocks, key=lambda block: (-block[0], block[1], block[2])):
        end, best = 0, None
        for start, length in sorted((p[0], p[1]) for p in placed if p[2] <= last and first <= p[3]):
            if start - end >= size and (best is None or start - end < best[0]):
                best = (start - end, end)
            end = max(end, start + length)
        offset = best[1] if best else end
        placed.append((offset, size, first, last))
        top = max(top, offset + size)
    return top


def models_in(folder):
    if (folder / "model.onnx").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/model.onnx"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--tcc-option", action="append", default=[], help="passed on to tcc, e.g. --tcc-option=--threads=4")
    parser.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    packed_ratios, greedy_ratios, total = [], [], 0.0
    print(f"{'model':22}{'program':18}{'instr.':>7}{'arena':>12}{'live':>12}{'packed':>8}{'best-fit':>9}")
    with tempfile.TemporaryDirectory() as work:
        for model in (model for folder in options.folders for model in models_in(folder)):
            plan = Path(work) / "model.tplan"
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run([options.bin / "tcc", model / "model.onnx", "--recipe", model / "recipe.toml", "-o", plan, "--quiet",
                            *options.tcc_option], check=True)
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            total += seconds
            report = json.loads(subprocess.run([options.bin / "tcc", "report", "--json", plan], check=True, capture_output=True,
                                               text=True).stdout)
            for entry in report["memory"]["entries"].values():
                for name, program in entry["programs"].items():
                    blocks = blocks_of(program["buffers"])
                    live = most_live(blocks)
                    if not live:
                        continue
                    packed, greedy = program["arena_bytes"] / live, best_fit(blocks) / live
                    packed_ratios.append(packed)
                    greedy_ratios.append(greedy)
                    print(f"{model.name:22}{name:18}{program['instructions']:7}{program['arena_bytes']:12}{live:12}{packed:8.4f}"
                          f"{greedy:9.4f}", flush=True)
    for name, ratios in (("packed", packed_ratios), ("best-fit", greedy_ratios)):
        exact = sum(ratio < 1.00005 for ratio in ratios) / len(ratios)
        print(f"{name}: median {statistics.median(ratios):.4f}, at 1.00: {100 * exact:.0f} % of {len(ratios)} programs")
    print(f"tcc: {total:.1f} s of user time")


if __name__ == "__main__":
    main()
