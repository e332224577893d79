"""Shared by the scripts of all peers: memory, CPU time, and turns.

A peer runs its warm-up steps, prints one JSON line, and then, with --turns, waits: each line "N" on standard input asks for N steps and is
answered with a JSON line of their seconds, so that a caller can let peers take turns on one machine. At the end of input the peer prints a
JSON line of its measurements. Without --turns it runs --steps steps at once.
"""
import json
import resource
import statistics
import sys
import time


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def high_water(reset=False):
    """The largest resident size of this process so far, in bytes; reset: from here on (Linux, clear_refs 5)."""
    if reset:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Peak:
    """Peak resident bytes above those at construction, which happens before the model is made."""
    def __init__(self):
        self.before = rss()
        high_water(reset=True)
        self.whole = 0

    def warm(self):
        """Begins the measurement of the peak after warm-up."""
        self.whole = high_water()
        high_water(reset=True)

    def report(self):
        steady = high_water()
        return {"peak_rss_bytes": max(self.whole, steady) - self.before, "steady_peak_rss_bytes": steady - self.before}


def add_arguments(parser, steps=10, warmup=3):
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--warmup", type=int, default=warmup)
    parser.add_argument("--turns", action="store_true", help="numbers of steps come on standard input")


def run(options, step, peak, about, load_seconds=0.0):
    """Calls step() -> loss as the options say and prints the JSON lines. `about`: a function that returns further keys, called at the end."""
    times, losses = [], []

    def several(count):
        for _ in range(count):
            start = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - start)
            losses.append(float(loss))
        return times[len(times) - count:]

    several(max(options.warmup, 1))
    times[0] += load_seconds
    peak.warm()
    busy, before = cpu_seconds(), len(times)
    if options.turns:
        print(json.dumps({"first_step_s": times[0], "warmup_s": times[1:], "losses": losses}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"times": several(int(line))}), flush=True)
    else:
        several(options.steps)
    measured = times[before:] or times
    print(json.dumps({"median_s": statistics.median(measured), "min_s": min(measured), "max_s": max(measured), "first_step_s": times[0],
                      **peak.report(), "cpu_s": (cpu_seconds() - busy) / max(len(times) - before, 1), "peak_device_bytes": None,
                      "losses": losses, **about()}), flush=True)
