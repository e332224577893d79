"""Time models of real size and PyTorch's in turn: `models.py --bin BUILD/bin --torch PYTHON [--only MODEL...]`.

  --torch   a Python with what requirements.txt beside this file names; it also exports the models
  --target  cpu:v3: both sides do without AVX-512; it needs `ninja -C build trun-avx2`
  --check   exports, compiles and trains a few steps in both: losses, compile time and memory, no turns
  --render  writes the page from the results of earlier runs; nothing is measured

Turns, ratios and disturbances are those of performance.py. Results are added to results.json beside this file, model by model, so that runs
on other days and levels complete the page.
"""
import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contenders                                                               # noqa: E402
import performance                                                              # noqa: E402

# name: title on the page. The makers (language.py, vision.py, others.py) define the models.
TITLES = {
    "bert-base": "BERT-base, 4 × 128", "albert-base": "ALBERT-base, 4 × 128", "gpt2": "GPT-2 124M, 4 × 64", "qwen2": "Qwen2, 6 layers, 2 × 128",
    "qwen2-lora": "Qwen2 with LoRA, 2 × 128", "mixtral": "Mixtral-like, 4 × 128", "mamba": "Mamba, 8 layers, 2 × 64", "t5-small": "T5-small, 8 × 64",
    "t5-base": "T5-base, 2 × 128", "lstm": "LSTM language model 2 × 650, 20 × 35",
    "resnet50": "ResNet-50, 8 × 224²", "vit-b16": "ViT-B/16, 8 × 224²", "swin-t": "Swin-T, 8 × 224²", "convnext-t": "ConvNeXt-T, 8 × 224²",
    "efficientnet-b0": "EfficientNet-B0, 8 × 224²", "mobilenet-v3": "MobileNetV3-L, 16 × 224²", "regnet-y": "RegNetY-800MF, 8 × 224²",
    "densenet121": "DenseNet-121, 4 × 224²", "mixer-s16": "MLP-Mixer-S/16, 8 × 224²", "deeplab-v3": "DeepLabV3-ResNet50, 2 × 256²",
    "segformer-b0": "SegFormer-B0, 2 × 256²", "detr-r50": "DETR-R50, 2 × 256²", "yolo": "YOLO-like, 4 × 256²", "unet-diffusion": "U-Net of diffusers, 4 × 32²",
    "whisper-tiny": "Whisper-tiny, 2 × 30 s", "wav2vec2": "wav2vec 2.0, 6 layers, 2 × 1 s", "dlrm-sgd": "DLRM, SGD, 512", "dlrm-adam": "DLRM, AdamW, 512",
    "graph-attention": "graph attention, 4,096 nodes", "tcn": "TCN, 16 × 1,024", "patch-tst": "PatchTST, 16 × 512", "table-transformer": "FT-Transformer, 256 rows",
}
COMMAND = "python test/bench/models/models.py --bin build/bin --torch PYTHON"
LEVELS = {"cpu:v3": " Both sides do without AVX-512: trun as trun-avx2, PyTorch by `ATEN_CPU_CAPABILITY`, `ONEDNN_MAX_CPU_ISA` and `MKL_ENABLE_INSTRUCTIONS`."}
CHECKED = 4        # steps whose losses are compared
ROUNDING = 1e-6    # of a loss; if losses differ by more, PyTorch also runs from parameters that are off by one rounding, for comparison


def export(options, name):
    folder = options.work / name
    if not (folder / "recipe.toml").is_file():
        contenders.call([options.torch, HERE / "step.py", name, "--onnx", folder])
    return folder


def peer(options, name, compiled, warmup, *more):
    words = [options.torch, HERE / "step.py", name, "--warmup", warmup, *(["--compile"] if compiled else []), *more]
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(contenders.fresh(options, "inductor")), "OMP_NUM_THREADS": str(options.threads)}
    if options.target == "cpu:v3":
        environment |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    return contenders.Peer("torch.compile" if compiled else "torch eager", words, environment)


def apart(ours, theirs):
    """The largest relative difference of two lists of losses."""
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs))


def checked(options, name, ours, peers):
    """A row of the second table; `ours`, `peers`: the notes of the contenders."""
    result = {"apart": max(apart(ours["losses"], peer["losses"]) for peer in peers), "when": time.strftime("%Y-%m-%d"),
              "memory": ours["peak_bytes"] / min(peer.get("peak_rss_bytes") or peer["peak_bytes"] for peer in peers),
              "compiled_s": ours["tcc_cold_s"]}
    if result["apart"] > ROUNDING:
        one, other = (json.loads(contenders.call(eager.words, eager.environment).strip().splitlines()[-1])["losses"]
                      for eager in (peer(options, name, False, CHECKED, "--steps", 0, *more) for more in ([], ["--perturb"])))
        result["own"] = apart(other, one)
    return result


def check(options, name):
    ours = contenders.Ours(options, export(options, name), "f32", 1, target=options.target)
    ours.compile()
    ours.turn(CHECKED - 1)
    eager = peer(options, name, False, CHECKED, "--steps", 0)
    text = contenders.call(eager.words, eager.environment)
    return {"checked": checked(options, name, ours.finish(), [json.loads(text.strip().splitlines()[-1])])}


def measure(options, name):
    folder, crew, missing = export(options, name), {}, {}
    makers = {"tcc": lambda: contenders.Ours(options, folder, "f32", 2, target=options.target),
              "torch eager": lambda: peer(options, name, False, CHECKED, "--turns"),
              "torch.compile": lambda: peer(options, name, True, CHECKED, "--turns")}
    try:
        for who, maker in makers.items():
            try:
                contender = maker()
                warm = contender.start()
                crew[who] = contender, max(1, round(options.turn / max(warm[-1], 1e-6)))
            except contenders.Failed as problem:
                missing[who] = str(problem)
        rows = performance.turns_of(options, crew)
        notes = {who: contender.finish() for who, (contender, _) in crew.items()}
    finally:
        for contender, _ in crew.values():
            contender.stop()
    if "tcc" not in rows or len(rows) < 2:
        raise contenders.Failed("; ".join(f"{who}: {why}" for who, why in missing.items()))
    return {"turns": turns(rows, notes, missing),
            "checked": checked(options, name, notes["tcc"], [note for who, note in notes.items() if who != "tcc"])}


def turns(rows, notes, missing):
    """A row of the first table: medians, and the ratio to the faster peer with those of the best and the worst round."""
    median = {who: statistics.median(t for times in row["rounds"] for t in times) for who, row in rows.items()}
    best = min((who for who in rows if who != "tcc"), key=median.get)
    rounds = [statistics.median(a) / statistics.median(b) for a, b in zip(rows["tcc"]["rounds"], rows[best]["rounds"])]
    return {"seconds": median, "ratio": median["tcc"] / median[best], "rounds": [min(rounds), max(rounds)], "missing": missing,
            "others": max(share for row in rows.values() for share in row["others"]), "when": time.strftime("%Y-%m-%d"),
            "first_step_s": {who: note["first_step_s"] for who, note in notes.items()},
            "matmul_flops_per_s": statistics.median(one["f32"] for one in rows["tcc"]["rooflines"])}


def measured_on(machine, rows):
    dates = sorted({one["when"] for one in rows.values()})
    return (f"measured {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''} on {machine['cpu']} (family {machine['family']}, model "
            f"{machine['model']}), {machine['cores']} cores, {machine['threads']} threads, {', '.join(machine['features'])}")


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def speed(level, machine, rows):
    rows = {name: rows[name] for name in TITLES if name in rows}
    rates = [one["matmul_flops_per_s"] / 1e9 for one in rows.values()]
    lines = [f"## Steps, {level}", "",
             f"One batch, f32, {measured_on(machine, rows)}; f32 products ran at {min(rates):.0f} to {max(rates):.0f} GFLOP/s. *tcc ÷ faster*: our median step "
             "over that of PyTorch's eager mode or torch.compile, whichever is faster; in brackets the least and the greatest ratio of a round. "
             "`!`: other processes used more than a tenth of a core in some turn." + LEVELS.get(level, ""), "",
             "| model | tcc, ms | eager, ms | compile, ms | tcc ÷ faster | tcc's first step, s | torch.compile's, s |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, one in rows.items():
        ms = [f"{one['seconds'][who] * 1e3:.4g}" if who in one["seconds"] else "–" for who in ("tcc", "torch eager", "torch.compile")]
        low, high = one["rounds"]
        first = [f"{one['first_step_s'][who]:.1f}" if who in one["first_step_s"] else "–" for who in ("tcc", "torch.compile")]
        lines.append(f"| {TITLES[name]} | {' | '.join(ms)} | {one['ratio']:.2f} ({low:.2f}–{high:.2f}){' !' if one['others'] > performance.DISTURBED else ''} | "
                     f"{' | '.join(first)} |")
    worst = max(rows, key=lambda name: rows[name]["ratio"])
    lines += ["", f"Geometric mean of {len(rows)} ratios: {mean(one['ratio'] for one in rows.values()):.2f}; the greatest: "
              f"{rows[worst]['ratio']:.2f} ({TITLES[worst]}).", ""]
    missing = [f"{TITLES[name]}, {who}: {why}" for name, one in rows.items() for who, why in one["missing"].items()]
    return lines + (["Did not run: " + "; ".join(missing) + ".", ""] if missing else [])


def accuracy(machine, rows):
    rows = {name: rows[name] for name in TITLES if name in rows}
    lines = ["## Losses, memory, compile time", "",
             f"Four updates of one batch, {measured_on(machine, rows)}. *Losses*: the largest relative difference from PyTorch's losses. "
             "*PyTorch's own*: where that is more than 1e-6, the same difference between two runs of PyTorch's eager mode whose parameters "
             "start at most one f32 rounding apart. *Memory*: trun's peak above its start, over PyTorch's peak above its size before the "
             "model was made; the smaller peak of eager mode and torch.compile counts. *Compiled in*: time of tcc without a cache.", "",
             "| model | losses | PyTorch's own | memory | compiled in, s |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, one in rows.items():
        own = f"{one['own']:.0e}" if "own" in one else "–"
        lines.append(f"| {TITLES[name]} | {one['apart']:.0e} | {own} | {one['memory']:.2f} | {one['compiled_s']:.1f} |")
    return lines + ["", f"Geometric mean of {len(rows)} ratios of memory: {mean(one['memory'] for one in rows.values()):.2f}.", "",
                    "Where PyTorch's own losses are as far apart as ours, training enlarges rounding: batch norms over few samples, long "
                    "products, and AdamW's first steps, which move a parameter by the sign of its gradient however small that is."]


def page(results):
    lines = ["# Models of real size", "",
             "Models as their users export them, trained by `trun` and by PyTorch on the CPU. The scripts in `test/bench/models/` define every "
             "configuration; `results.json` in that folder holds the measurements from which this page is made.", "",
             "```sh", COMMAND, COMMAND + " --target cpu:v3", COMMAND + " --check    # the last table alone", "```", ""]
    for level in sorted(results["levels"], reverse=True):
        lines += speed(level, results["levels"][level]["machine"], results["levels"][level]["models"])
    if results["checked"]:
        lines += accuracy(results["checked"]["machine"], results["checked"]["models"])
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder of tcc and trun")
    parser.add_argument("--torch", type=Path, default=Path(sys.executable))
    parser.add_argument("--only", nargs="*", default=[], choices=TITLES, metavar="MODEL")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--target", choices=["cpu:v3", "cpu:v4"], help="machine level of both sides; default: the machine's own")
    performance.add_turns(parser, turn=2.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tcc-models")
    parser.add_argument("--results", type=Path, default=HERE / "results.json", help="what earlier runs measured")
    parser.add_argument("--page", type=Path, default=HERE.parents[2] / "docs" / "measurements" / "models.md")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    results = json.loads(options.results.read_text()) if options.results.is_file() else {"levels": {}, "checked": {}}
    failed = 0
    if not options.render and not options.bin:
        parser.error("--bin: where tcc and trun are")
    for name in [] if options.render else options.only or TITLES:
        options.bin = options.bin.resolve()
        try:
            print(TITLES[name], flush=True)
            found = (check if options.check else measure)(options, name)
        except contenders.Failed as problem:
            failed += 1
            print(f"   {problem}", flush=True)
            continue
        one = found["checked"]
        if options.target != "cpu:v3":
            record(results["checked"], options, name, one)
        own = f" (PyTorch's own {one['own']:.1e})" if "own" in one else ""
        print(f"   losses {one['apart']:.1e} apart{own}, compiled in {one['compiled_s']:.1f} s, memory {one['memory']:.2f} of PyTorch's", flush=True)
        if "turns" in found:
            record(results["levels"].setdefault(options.target or "cpu:v4", {}), options, name, found["turns"])
            print(f"   {found['turns']['ratio']:.2f} of the faster", flush=True)
        options.results.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    options.page.write_text(page(results))
    return 1 if failed else 0


def record(table, options, name, one):
    table["machine"] = performance.machine(options)
    table.setdefault("models", {})[name] = one


if __name__ == "__main__":
    sys.exit(main())
