"""The page of test/bench/performance.py: docs/measurements/performance.md with its tables and docs/measurements/images/performance.svg, from saved results."""
import statistics
from pathlib import Path

import performance_plot

MIB = 2 ** 20
DISTURBED = 0.1
ADAMW_BYTES = 28                          # a parameter, its gradient and two moments read; all but the gradient written
PRODUCT_INTENSITY = 20                    # flop a byte above which a generated kernel counts as matrix products, like fused attention
NOTES = "## What the figures say\n"       # the page's text from this heading on is kept

COMMAND = ["```sh", "python test/bench/performance.py --bin build/bin --torch PYTHON --jax PYTHON --ort PYTHON --llmc FOLDER", "```"]

# (workloads, precision, contenders compared with (best of), at most). A dictionary: by the machine's features.
STEP_GOALS = [
    (("gpt2-4x64", "gpt2-1x1024"), "f32", ("torch eager", "torch.compile", "JAX", "ONNX Runtime Training"), 0.75),
    (("gpt2-4x64", "gpt2-1x1024"), "bf16", ("torch eager", "torch.compile"), {"amx_bf16": 0.50, "": 0.70}),
    (("gpt2-4x64",), "f32", ("llm.c",), 0.20),
    (("gpt2-1x1024",), "f32", ("llm.c",), 0.09),
    (("resnet50", "resnet9"), "f32", ("torch eager", "torch.compile"), 0.75),
    (("resnet50", "resnet9"), "bf16", ("torch eager", "torch.compile"), 0.60),
    (("gpt-small",), "f32", None, 0.55),
    (("cnn",), "f32", None, 0.60),
    (("mlp-64",), "f32", None, 0.70),
    (("mlp-8",), "f32", None, 0.55),
    (("attention",), "f32", ("torch eager", "torch.compile"), 0.60),
]


def median_of(row):
    """The median step of all rounds; None if there is no row."""
    times = [t for turn in row.get("rounds", []) for t in turn]
    return statistics.median(times) if times else None


def disturbed(row):
    return any(others > DISTURBED for others in row.get("others", []))


def ratio_of(ours, theirs):
    """(ratio of the medians, least and greatest ratio of a round), or None."""
    a, b = median_of(ours), median_of(theirs)
    if not a or not b:
        return None
    # If a peer had fewer turns, the remaining rounds are compared with its last one.
    rounds = [statistics.median(x) / statistics.median(theirs["rounds"][min(i, len(theirs["rounds"]) - 1)])
              for i, x in enumerate(ours["rounds"])]
    return a / b, min(rounds), max(rounds)


def best_of(rows, names=None):
    """(name, row) of the fastest peer among these."""
    found = [(median_of(row), name, row) for name, row in rows.items()
             if not name.startswith("tcc") and median_of(row) and (names is None or name in names)]
    return min(found)[1:] if found else None


def machine_rates(results):
    """The best rate of each type and of copies over all measurements of the run."""
    rates = {}
    for name, parts in results.items():
        for result in parts.values() if name != "machine" else ():
            for round_rates in result["rows"].get("tcc", {}).get("rooflines", []):
                for what, rate in round_rates.items():
                    rates[what] = max(rates.get(what, 0), rate)
    return {what: rate for what, rate in rates.items() if what != "copy"}, rates.get("copy", 0)


def bound_seconds(profile, rates):
    """The least seconds of a step's products, convolutions and optimizer traffic at these rates."""
    products = [k for k in profile["kernels"] if k["kind"] == "library" or k["flops"] > PRODUCT_INTENSITY * max(k["bytes"], 1)]
    least = sum(k["flops"] / rates.get(k["dtype"], rates["f32"]) for k in products)
    return least + (ADAMW_BYTES * profile["trained_elements"] / rates["copy"] if "gradients" not in profile["entries"] else 0)


def share_of(result, row):
    """(median, least, greatest) over the rounds of the bound at the round's rates divided by its median step; None if there is no profile."""
    rooflines = result["rows"].get("tcc", {}).get("rooflines", [])
    if not row or not rooflines or not (result.get("profile") or {}).get("kernels"):
        return None
    shares = [bound_seconds(result["profile"], rates) / statistics.median(times) for rates, times in zip(rooflines, row["rounds"])]
    return statistics.median(shares), min(shares), max(shares)


def seconds_text(seconds):
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def judge(measured, limit, at_most=True):
    if measured is None:
        return "not there"
    return "met" if (measured <= limit if at_most else measured >= limit) else "**not met**"


def limit_for(goal, features):
    if not isinstance(goal, dict):
        return goal
    return next(limit for feature, limit in goal.items() if feature == "" or feature in features)


def step_goals(results, titles, features):
    """(label, workload, precision, ratio, limit) of every line of STEP_GOALS."""
    for names, precision, peers, goal in STEP_GOALS:
        for name in names:
            rows = results.get(name, {}).get(precision, {}).get("rows", {})
            best = best_of(rows, peers)
            against = peers[0] if peers and len(peers) == 1 else best[0] if best else "best peer"
            ratio = ratio_of(rows["tcc"], best[1]) if best and "tcc" in rows else None
            yield f"{titles.get(name, name)}, {precision} ÷ {against}", name, precision, ratio, limit_for(goal, features)


def goal_table(results, titles):
    lines = ["| goal | measured | at most | |", "| --- | ---: | ---: | --- |"]
    features = results["machine"]["features"]

    def add(label, text, goal, verdict):
        lines.append(f"| {label} | {text} | {goal} | {verdict} |")

    for label, _, _, ratio, limit in step_goals(results, titles, features):
        add(label, f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else "", f"{limit:.2f}", judge(ratio and ratio[0], limit))
    for name in ("gpt2-4x64", "gpt2-1x1024"):
        result = results.get(name, {}).get("f32")
        share = share_of(result, result["rows"].get("tcc")) if result else None
        add(f"{titles.get(name, name)}, f32: products and optimizer at the roofline, share of the step",
            f"{share[0]:.2f} ({share[1]:.2f} to {share[2]:.2f})" if share else "", "at least 0.90", judge(share and share[0], 0.9, False))
    for row, name in [(results.get("adamw", {}).get("f32", {}).get("rows", {}).get("tcc"), "adamw")]:
        # A virtual machine's bandwidth changes by the minute: each round is compared with the copy measured in the same run.
        shares = [ADAMW_BYTES * row["parameters"] / turn[0] / beside for turn, beside in zip(row["rounds"], row.get("copies", []))] if row else []
        share = statistics.median(shares) if shares else None
        add(f"{titles.get(name, name)}: share of the bandwidth of a copy in the same run, at {ADAMW_BYTES} bytes each",
            f"{share:.2f} ({min(shares):.2f} to {max(shares):.2f})" if shares else "", "at least 0.90", judge(share, 0.9, False))
    sizes = results.get("attention", {}).get("f32", {}).get("memory_by_length")
    growth = sizes["8192"] / sizes["4096"] if sizes else None
    add("attention alone: memory at T = 8192 ÷ T = 4096 (linear: 2)", number(growth), "2.10", judge(growth, 2.1))
    for name, limit in (("gpt2-4x64", 0.65), ("resnet50", 0.5)):
        rows = results.get(name, {}).get("f32", {}).get("rows", {})
        ours, eager = (rows.get(who, {}).get("peak_bytes") for who in ("tcc", "torch eager"))
        share = ours / eager if ours and eager else None
        add(f"{titles.get(name, name)}, f32: peak resident memory ÷ torch eager", number(share), f"{limit:.2f}", judge(share, limit))
        for within in (who for who in rows if who.startswith("tcc within")):
            share = rows[within]["peak_bytes"] / eager if eager else None
            slower = ratio_of(rows[within], rows["torch eager"]) if "torch eager" in rows else None
            add(f"the same, {within.removeprefix('tcc ')} (step ÷ torch eager: {number(slower and slower[0])})", number(share),
                f"{limit:.2f}", judge(share, limit))
    rows = results.get("gpt2-4x64", {}).get("f32", {}).get("rows", {})
    cold, again = (rows.get("tcc", {}).get(key) for key in ("tcc_cold_s", "tcc_again_s"))
    compiled = rows.get("torch.compile", {}).get("first_step_s")
    add("`tcc` GPT-2 124M, cold", seconds_text(cold), "3 s", judge(cold, 3))
    add("`tcc` GPT-2 124M, again", seconds_text(again), "0.5 s", judge(again, 0.5))
    add("`tcc` GPT-2 124M, cold ÷ first step of torch.compile", number(cold / compiled if cold and compiled else None), "0.10",
        judge(cold / compiled if cold and compiled else None, 0.1))
    return lines + [""]


def workload_table(parts):
    lines = ["| | median step | ours ÷ it | of rounds | share of roofline | first step | peak memory | others |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for precision, result in parts.items():
        rows, missing = result["rows"], result["missing"]
        for name in ["tcc"] + sorted((n for n in rows if n != "tcc"), key=lambda n: median_of(rows[n]) or 0):
            row = rows.get(name)
            seconds = median_of(row) if row else None
            if seconds is None:
                continue
            ours = name.startswith("tcc")
            ratio = ratio_of(rows["tcc"], row) if not ours and "tcc" in rows else None
            share = share_of(result, row)
            first = seconds_text(row.get("first_step_s") or None)
            memory = f"{row['peak_bytes'] / MIB:.0f} MiB" if row.get("peak_bytes") else ""
            mark = " !" if disturbed(row) else ""
            lines.append(f"| {name.replace('tcc', '**tcc**', 1) if ours else row.get('peer', name)}, {precision} | {seconds_text(seconds)}{mark} "
                         f"| {number(ratio and ratio[0])} | {f'{ratio[1]:.2f} to {ratio[2]:.2f}' if ratio else ''} "
                         f"| {number(share and share[0])} | {first} | {memory} | {max(row['others'], default=0):.2f} |")
        losses = [rows[name]["losses"][0] for name in ("tcc", "torch eager") if name in rows and rows[name].get("losses")]
        if len(losses) == 2 and abs(losses[0] - losses[1]) > 0.02 * abs(losses[1]):
            lines.append(f"| **the first losses differ, {precision}** | {losses[0]:.4f} and {losses[1]:.4f} | | | | | | |")
        for name, why in missing.items():
            lines.append(f"| {name}, {precision} | not there | | | | | | {why.replace('|', '/')[:160]} |")
    return lines + [""]


def limits_text(parts):
    """The text about kernels that take more than 3 % of a step and run below 90 % of their roofline, from profiles."""
    lines = []
    for precision, result in parts.items():
        profile = result.get("profile")
        if not profile or not profile.get("kernels") or not profile.get("roofline"):
            continue
        step = profile["step_seconds"]
        lines.append(f"By profile, {precision}: {100 * profile['at_roofline_share']:.0f} % of a step of {seconds_text(step)} in kernels at 90 % "
                     f"of their roofline or more; instructions are {100 * profile['instruction_seconds'] / step:.0f} % of the step.")
        slow = [k for k in profile["kernels"] if k["share"] > 0.03 and k["roofline_share"] < 0.9]
        if slow:
            lines += ["", "| above 3 % of the step and below 90 % of its roofline | node | calls | % of step | % of roofline | limited by |",
                      "| --- | --- | ---: | ---: | ---: | --- |"]
            for k in slow:
                node = k["nodes"][0] + (f" +{len(k['nodes']) - 1}" if len(k["nodes"]) > 1 else "")
                lines.append(f"| `{k['what']}` | `{node}` | {k['calls']} | {100 * k['share']:.1f} | {100 * k['roofline_share']:.0f} "
                             f"| {k['limit']} |")
        lines.append("")
    return lines


def adamw_table(result):
    copy = statistics.median(result["rows"]["tcc"]["copies"])
    lines = ["| | median | GB/s at 28 bytes | share of copy |", "| --- | ---: | ---: | ---: |"]
    for name, row in result["rows"].items():
        seconds = median_of(row)
        if seconds and row.get("parameters"):
            rate = ADAMW_BYTES * row["parameters"] / seconds
            lines.append(f"| {'**tcc**, kernels of a GPT-2 step' if name == 'tcc' else row.get('peer', name)} | {seconds_text(seconds)} "
                         f"| {rate / 1e9:.1f} | {number(copy and rate / copy)} |")
    return lines + [""]


def versions(results):
    names = set()
    for name, parts in results.items():
        for result in parts.values() if name != "machine" else ():
            for row in result["rows"].values():
                names.add(row.get("library") or "")
                names.add(row.get("peer", "").replace(" eager", "").replace(" compile", "").replace(" fused AdamW", ""))
    return ", ".join(sorted(names - {"", "tcc"}))


def dates(results):
    """The days of the first and of the last measurement."""
    days = sorted({result["when"] for name, parts in results.items() if name != "machine" for result in parts.values()})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def write(docs, results, titles):
    docs, path = Path(docs), Path(docs) / "performance.md"
    rates, copy = machine_rates(results)
    about = results["machine"]
    lines = ["# Speed beside others", "", f"Measured {dates(results)} by `test/bench/performance.py`; its head says what is measured and how.", "",
             *COMMAND, "",
             f"Machine: {about['cpu']} (family {about['family']}, model {about['model']}), {about['cores']} cores with "
             f"{', '.join(about['features'])}, {about['l3']} of L3, {about['memory_gib']} GiB, Linux {about['linux']}; {about['threads']} threads. "
             f"{versions(results)}.", "",
             "Roofline, the best that `trun profile` measured in the same run: "
             + ", ".join(f"{name} matmul {rate / 1e9:.0f} GFLOP/s" for name, rate in rates.items()) + f", copy {copy / 1e9:.1f} GB/s.", "",
             "![Our step over the fastest peer's](images/performance.svg)", "", "## Goals", "",
             "Ratios are our median step over the peer's, in brackets the least and greatest of a round.", ""]
    lines += goal_table(results, titles)
    lines += ["## Workloads", "",
              "*Share of roofline*: the time that the products (attention's in a generated kernel, too) and convolutions of our plan take at the machine's matmul rate, and 28 bytes a "
              "parameter at its copy bandwidth, over the step; both rates are measured before and after each of our turns, and it is the median of the rounds (above 1 where a small model's state stays in cache). *First step*: for tcc the compiler without a cache, trun's start and its first "
              "step; for the others from an imported library to the end of the first step. *Peak memory*: resident bytes above the process "
              "before the model is there. *Others*: the share of a core that other processes used meanwhile, in the worst turn; `!` marks "
              "rows above 0.1, which are not to be trusted.", ""]
    for name, title in titles.items():
        if name not in results:
            continue
        lines += [f"### {title}", ""]
        if name == "adamw":
            lines += adamw_table(results[name]["f32"])
            continue
        lines += workload_table(results[name]) + limits_text(results[name])
        for precision, result in results[name].items():
            if sizes := result.get("memory_by_length"):
                lines += [f"Arenas by length, {precision}: " + ", ".join(f"T = {t}: {size / MIB:.0f} MiB" for t, size in sizes.items()) + ".", ""]
    notes = ""
    if path.is_file() and NOTES in path.read_text():
        notes = NOTES + path.read_text().split(NOTES, 1)[1]
    path.write_text("\n".join(lines) + notes)
    bars = []
    for name, title in titles.items():
        for precision, result in results.get(name, {}).items():
            best = best_of(result["rows"])
            ratio = ratio_of(result["rows"]["tcc"], best[1]) if best and "tcc" in result["rows"] and name != "adamw" else None
            if ratio:
                limits = [goal[4] for goal in step_goals(results, titles, about["features"]) if goal[1] == name and goal[2] == precision
                          and "llm.c" not in goal[0]]
                bars.append((f"{title}, {precision}", best[0], ratio, limits[0] if limits else None))
    (docs / "images").mkdir(exist_ok=True)
    (docs / "images" / "performance.svg").write_text(performance_plot.draw(bars))
