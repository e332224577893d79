"""Prints where the time of tools/test.sh went and which tests took longest, then the line "N passed, N failed", from ctest's JUnit file.

A test that skips itself, since the machine lacks instructions that it needs, is neither: it is named on a line of its own.
A shard, which runs many cases in one process, counts as its cases: test/run_shard.py wrote their results beside the JUnit file.
"""
import argparse
import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as xml


def skips_itself(case):
    """GoogleTest's own word for it; a test that ctest did not run for another reason has failed."""
    skip = case.find("skipped")
    return skip is not None and "SKIP_REGULAR_EXPRESSION_MATCHED" in (skip.get("message") or "")


def results(junit):
    """Yields name, status and seconds of every test; of a shard's cases in place of the shard."""
    for case in xml.parse(junit).getroot().iter("testcase"):
        name = case.get("name")
        status = "passed" if case.get("status") == "run" else "skipped" if skips_itself(case) else "failed"
        seconds = float(case.get("time", 0))
        written = pathlib.Path(junit).parent / "shards" / f"{name}.jsonl"
        cases = {}
        if name.startswith("shard.") and written.exists():
            # The first line of a case says that it did not run; a later line with its result replaces it.
            for line in written.read_text().splitlines():
                inner, *result = json.loads(line)
                cases[inner] = result
        for inner, (inner_status, inner_seconds) in cases.items():
            yield inner, "failed" if inner_status == "not run" else inner_status, inner_seconds
        all_well = all(result[0] in ("passed", "skipped") for result in cases.values())
        if not name.startswith("shard."):
            yield name, status, seconds
        elif not cases or (status != "passed" and all_well):
            # It left no results, or failed outside of its cases.
            yield name, "failed", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("junit")
    parser.add_argument("--set-up", type=float, default=0, help="seconds")
    parser.add_argument("--build", type=float, default=0, help="seconds")
    options = parser.parse_args()
    passed, failed, skipped, seconds, longest = 0, [], [], collections.Counter(), collections.Counter()
    for name, status, spent in results(options.junit):
        # "e2e.zoo.mlp" and "lit.passes/Fuse.mlir" count as e2e and lit, a GoogleTest "Suite.case" as unit.
        stage = name.split(".")[0]
        seconds[stage if stage in ("e2e", "lit") else "unit"] += spent
        longest[name] = spent
        if status == "passed":
            passed += 1
        elif status == "skipped":
            skipped.append(name)
        else:                                  # failed, timed out, not run
            failed.append(name)
    for name in skipped:
        print(f"skipped on this machine: {name}")
    for name in failed:
        print(f"failed: {name}")
    stages = ", ".join(f"{stage} {seconds[stage]:.0f} s" for stage in sorted(seconds))
    print(f"time: set-up {options.set_up:.0f} s, build {options.build:.0f} s; tests, each on its own: {stages}")
    print("longest: " + ", ".join(f"{name} {spent:.0f} s" for name, spent in longest.most_common(10)))
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
