"""Runs every nth case of a GoogleTest program in one process, and writes each case's result to a file for tools/summary.py.

A case that ends the process has failed; the cases after it run in another process. The results file names all cases from
the start, so that a case which did not run because of a time-out or a kill shows as missing.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# GoogleTest's lines at the start and at the end of a case. Before them may be an unfinished line that the case wrote.
START = re.compile(r"\[ RUN      \] (\S+)$")
END = re.compile(r"\[ *(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:,.*)? \((\d+) ms\)$")
STATUS = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


def cases(program):
    """Names of all cases but the disabled ones, as --gtest_filter takes them."""
    listed = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            if "DISABLED_" not in suite + word:
                names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def run(program, names, record):
    """Runs `names` in one process; returns the cases that did not run, and whether the process failed outside any case."""
    waiting, current, output, complaint = list(names), None, [], False
    with tempfile.NamedTemporaryFile("w", suffix=".flags") as flags:
        # So many names may exceed the longest command line.
        flags.write("--gtest_filter=" + ":".join(names) + "\n")
        flags.flush()
        process = subprocess.Popen([program, "--gtest_flagfile=" + flags.name, "--gtest_color=no"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        for line in process.stdout:
            output.append(line)
            if match := START.search(line.rstrip("\n")):
                current, output = match[1], [line]
            elif current and (match := END.search(line.rstrip("\n"))) and match[2] == current:
                status = STATUS[match[1]]
                record(current, status, int(match[3]) / 1000)
                if status != "passed":
                    print("".join(output), end="", flush=True)
                waiting.remove(current)
                current, output = None, []
        code = process.wait()
    if current:
        print("".join(output) + f"{current}: the process ended with status {code}", flush=True)
        record(current, "failed", 0)
        waiting.remove(current)
    elif waiting or code not in (0, 1):
        # No case caused this: the program failed before the first case or after the last one, or ended between two.
        print("".join(output) + f"the process ended with status {code}; {len(waiting)} cases did not run", flush=True)
        for name in waiting:
            record(name, "failed", 0)
        waiting, complaint = [], True
    return waiting, complaint


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--prefix", default="", help="stands before each case's name in the results")
    parser.add_argument("--shard", type=int, required=True, help="from 0")
    parser.add_argument("--of", type=int, required=True, help="number of shards")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.unlink(missing_ok=True)
    names = cases(options.program)[options.shard::options.of]
    bad = not names
    with options.results.open("w") as results:
        def record(name, status, seconds):
            nonlocal bad
            bad = bad or status == "failed"
            results.write(json.dumps([options.prefix + name, status, seconds]) + "\n")
            results.flush()
        for name in names:
            results.write(json.dumps([options.prefix + name, "not run", 0]) + "\n")
        results.flush()
        while names:
            names, complaint = run(options.program, names, record)
            bad = bad or complaint
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
