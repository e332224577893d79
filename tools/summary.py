"""Prints where the time of tools/test.sh went, then the line "N passed, N failed", from ctest's JUnit file.

A test that skips itself, since the machine lacks instructions that it needs, is neither: it is named on a line of its own.
"""
import argparse
import collections
import sys
import xml.etree.ElementTree as xml


def skips_itself(case):
    """GoogleTest's own word for it; a test that ctest did not run for another reason has failed."""
    skip = case.find("skipped")
    return skip is not None and "SKIP_REGULAR_EXPRESSION_MATCHED" in (skip.get("message") or "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("junit")
    parser.add_argument("--set-up", type=float, default=0, help="seconds")
    parser.add_argument("--build", type=float, default=0, help="seconds")
    options = parser.parse_args()
    passed, failed, skipped, seconds = 0, [], [], collections.Counter()
    for case in xml.parse(options.junit).getroot().iter("testcase"):
        # "e2e.zoo.mlp" and "lit.passes/Fuse.mlir" count as e2e and lit, a GoogleTest "Suite.case" as unit.
        stage = case.get("name").split(".")[0]
        seconds[stage if stage in ("e2e", "lit") else "unit"] += float(case.get("time", 0))
        if case.get("status") == "run":
            passed += 1
        elif skips_itself(case):
            skipped.append(case.get("name"))
        else:                                  # failed, timed out, not run
            failed.append(case.get("name"))
    for name in skipped:
        print(f"skipped on this machine: {name}")
    for name in failed:
        print(f"failed: {name}")
    stages = ", ".join(f"{stage} {seconds[stage]:.0f} s" for stage in sorted(seconds))
    print(f"time: set-up {options.set_up:.0f} s, build {options.build:.0f} s; tests, each on its own: {stages}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
