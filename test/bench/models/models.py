"""Models of real size beside PyTorch: `models.py --bin BUILD/bin --torch PYTHON [--only MODEL...]`.

  --torch   a Python with what requirements.txt beside this file names; it also exports the models
  --check   exports, compiles and trains a few steps in both: losses, compile time and memory, no turns; the page has these alone
  --render  writes the page from the results of earlier runs; nothing is measured

Turns, ratios and disturbances are those of performance.py. Results are kept in the work folder, model by model, so a run that ends goes on.
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

# name: what the page calls it. The makers (language.py, vision.py, others.py) say the rest.
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
CHECKED = 4        # steps whose losses are compared
ROUNDING = 1e-6    # of a loss; where losses are further apart, PyTorch's own are compared from parameters that are off by one rounding


def export(options, name):
    folder = options.work / name
    if not (folder / "recipe.toml").is_file():
        contenders.call([options.torch, HERE / "step.py", name, "--onnx", folder])
    return folder


def peer(options, name, compiled, warmup, *more):
    words = [options.torch, HERE / "step.py", name, "--warmup", warmup, *(["--compile"] if compiled else []), *more]
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(contenders.fresh(options, "inductor")), "OMP_NUM_THREADS": str(options.threads)}
    return contenders.Peer("torch.compile" if compiled else "torch eager", words, environment)


def apart(ours, theirs):
    """The largest difference of two lists of losses, as a part of the loss."""
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs))


def check(options, name):
    ours = contenders.Ours(options, export(options, name), "f32", 1)
    ours.compile()
    ours.turn(CHECKED - 1)
    result = {"ours": ours.finish(), "when": time.strftime("%Y-%m-%d")}
    eager = peer(options, name, False, CHECKED, "--steps", 0)
    text = contenders.call(eager.words, eager.environment)
    result["eager"] = json.loads(text.strip().splitlines()[-1])
    result["apart"] = apart(result["ours"]["losses"], result["eager"]["losses"])
    if result["apart"] > ROUNDING:
        text = contenders.call([*eager.words, "--perturb"], eager.environment)
        result["own"] = apart(json.loads(text.strip().splitlines()[-1])["losses"], result["eager"]["losses"])
    return result


def measure(options, name):
    folder, crew, missing = export(options, name), {}, {}
    makers = {"tcc": lambda: contenders.Ours(options, folder, "f32", 2), "torch eager": lambda: peer(options, name, False, CHECKED, "--turns"),
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
        for who, (contender, _) in crew.items():
            rows[who] |= contender.finish()
        return {"rows": rows, "missing": missing, "when": time.strftime("%Y-%m-%d"),
                "apart": {who: apart(rows["tcc"]["losses"], row["losses"]) for who, row in rows.items() if who != "tcc" and "tcc" in rows}}
    finally:
        for contender, _ in crew.values():
            contender.stop()


def summary(result):
    """(ratio to the faster peer, its least and greatest round, memory's ratio) of a measured model."""
    rows = result["rows"]
    median = {who: statistics.median(t for times in row["rounds"] for t in times) for who, row in rows.items()}
    best = min((who for who in rows if who != "tcc"), key=median.get)
    rounds = [statistics.median(a) / statistics.median(b) for a, b in zip(rows["tcc"]["rounds"], rows[best]["rounds"])]
    memory = rows["tcc"]["peak_bytes"] / min(row["peak_bytes"] for who, row in rows.items() if who != "tcc")
    return median, best, median["tcc"] / median[best], min(rounds), max(rounds), memory


def measured_on(results, machine, command):
    dates = sorted({one["when"] for name, one in results.items() if name != "machine" and "when" in one})
    return ["```sh", command, "```", "",
            f"Measured {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''} on {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['threads']} threads, {', '.join(machine['features'])}.", ""]


def checked_page(results, machine):
    lines = ["# Models of real size", "",
             "Models as their users export them, four updates of one batch in f32 by `trun` and by PyTorch's eager mode. The makers "
             "in `test/bench/models/` have every configuration. Losses differ by so much of the loss at most; where that is "
             "more than 1e-6, so do PyTorch's own, if its parameters start off by at most one rounding to f32. Memory is"
             " trun's peak above its start over PyTorch's above what it held before the model was made; compile times are of a cold compile.", "",
             *measured_on(results, machine, COMMAND + " --check"),
             "| model | losses | PyTorch's own | memory | compiled in, s |", "| --- | ---: | ---: | ---: | ---: |"]
    found = {name: results[name] for name in TITLES if name in results}
    for name, one in found.items():
        own = f"{one['own']:.0e}" if "own" in one else "–"
        lines.append(f"| {TITLES[name]} | {one['apart']:.0e} | {own} | {one['ours']['peak_bytes'] / one['eager']['peak_rss_bytes']:.2f} | "
                     f"{one['ours']['tcc_cold_s']:.1f} |")
    memory = [one["ours"]["peak_bytes"] / one["eager"]["peak_rss_bytes"] for one in found.values()]
    if memory:
        lines += ["", f"Geometric mean of {len(memory)} ratios of memory: {math.exp(statistics.fmean(map(math.log, memory))):.2f}.", "",
                  "Where PyTorch's own losses are as far apart as ours, training enlarges rounding: batch norms over few samples, long products, and "
                  "AdamW's first steps, which move a parameter by the sign of its gradient however small that is."]
    return "\n".join(lines) + "\n"


def measured_page(results, machine):
    lines = ["# Models of real size", "",
             "Training steps of models as their users export them, beside PyTorch, one batch, f32. The makers in "
             "`test/bench/models/` have every configuration. A ratio is our median step over that of the faster of PyTorch's two ways (its least and greatest round "
             "behind it); memory is ours over the smaller of theirs; losses differ by so much of the loss in the first four steps at most.", "",
             *measured_on(results, machine, COMMAND),
             "| model | tcc, ms | eager, ms | compile, ms | tcc ÷ faster | memory | tcc compiles, s | torch.compile, s | losses |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    ratios = []
    for name, title in TITLES.items():
        result = results.get(name)
        if not result or "rows" not in result or "tcc" not in result["rows"] or len(result["rows"]) < 2:
            continue
        median, _, ratio, low, high, memory = summary(result)
        ratios.append(ratio)
        ms = [f"{median[who] * 1e3:.4g}" if who in median else "–" for who in ("tcc", "torch eager", "torch.compile")]
        compiled = result["rows"].get("torch.compile", {}).get("first_step_s")
        lines.append(f"| {title} | {' | '.join(ms)} | {ratio:.2f} ({low:.2f}–{high:.2f}) | {memory:.2f} | {result['rows']['tcc']['tcc_cold_s']:.1f} | "
                     f"{'–' if compiled is None else f'{compiled:.0f}'} | {max(result['apart'].values()):.0e} |")
    if ratios:
        lines += ["", f"Geometric mean of {len(ratios)} ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}; the greatest: {max(ratios):.2f}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder of tcc and trun")
    parser.add_argument("--torch", type=Path, default=Path(sys.executable))
    parser.add_argument("--only", nargs="*", default=[], choices=TITLES, metavar="MODEL")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--render", action="store_true")
    performance.add_turns(parser, turn=2.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tcc-models")
    parser.add_argument("--page", type=Path, default=HERE.parents[2] / "docs" / "measurements" / "models.md")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / ("checked.json" if options.check else "measured.json")
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    failed = 0
    if not options.render:
        if not options.bin:
            parser.error("--bin: where tcc and trun are")
        options.bin = options.bin.resolve()
        results["machine"] = performance.machine(options)
    elif "machine" not in results:
        parser.error(f"--render: {kept} holds no results yet")
    for name in [] if options.render else options.only or TITLES:
        try:
            results[name] = (check if options.check else measure)(options, name)
            kept.write_text(json.dumps(results))
            if options.check:
                found = results[name]
                own = f" (PyTorch's own {found['own']:.1e})" if "own" in found else ""
                print(f"{name}: losses {found['apart']:.1e} apart{own}, compiled in {found['ours']['tcc_cold_s']:.1f} s, memory "
                      f"{found['ours']['peak_bytes'] / found['eager']['peak_rss_bytes']:.2f} of eager", flush=True)
        except contenders.Failed as problem:
            failed += 1
            print(f"{name}: {problem}", flush=True)
    options.page.write_text((checked_page if options.check else measured_page)(results, results["machine"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
