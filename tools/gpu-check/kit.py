"""What a kit for a machine with a card holds, and how it is packed where the project is built (gpu_check.py kit)."""
import concurrent.futures
import datetime
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import experiments
from programs import fail, run

ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
PRECISIONS = {"f32": None, "tf32": 2e-2, "bf16": 5e-2, "f16": 1e-2}  # how far a loss may be from f32's; None: the case's own tolerance
# Levels of compiler.epilogues. Where a library has no algorithm for a call, the plan's kernels finish its products, and the run says so.
EPILOGUES = {f"bf16-{level}": ["--precision", "bf16", "--set", f"compiler.epilogues={level}"] for level in ("bias", "gelu", "all")}
FINISHED = ("nano-gpt", "unet-tiny")
IN_EVERY_PRECISION = ("mlp", "nano-gpt", "resnet-tiny", "unet-tiny", "vit-tiny")
# This model also trains on one rank whose collectives NCCL carries: this tests NCCL's calls on a card, though with no second rank.
RANKED = "nano-gpt"
MOST_KIT_BYTES = 64 << 20
# Found on every Linux with a driver, and tied to its kernel and loader.
SYSTEM_LIBRARIES = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "linux-vdso")
# Tables of a workload that follow no rule, such as the angles of rotary positions, are packed as they are.
MOST_TABLE_BYTES = 1 << 20


def libraries_of(program):
    status, text = run(["ldd", program], 60)
    if status:
        fail(f"ldd {program}: {text.strip()}")
    for line in text.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        path = rest.split(" (")[0]
        if arrow and path.startswith("/") and not name.startswith(SYSTEM_LIBRARIES):
            yield name, Path(path)


def record_kernels(options, kit):
    """Launches of every op's kernels with their results, which the emulation computed and compared with the reference."""
    shards = min(os.cpu_count() or 1, 8)
    oldest = min(options.architectures, key=lambda name: int(name.removeprefix("sm_")))

    def shard(number):
        folder = kit / "kernels" / str(number)
        environment = os.environ | {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(number),
                                    "TCC_KERNEL_RECORD": str(folder), "TCC_KERNEL_ARCHITECTURE": oldest}
        status, text = run([options.bin / "emulated-kernel-tests", f"--gtest_filter={options.kernels}", "--gtest_brief=1"], 3600,
                           env=environment)
        if status:
            fail(f"emulated-kernel-tests: {text.strip()[-500:]}")
        return sum(1 for _ in open(folder / "launches.jsonl")) if (folder / "launches.jsonl").exists() else 0
    with concurrent.futures.ThreadPoolExecutor(shards) as pool:
        return sum(pool.map(shard, range(shards)))


def make_kit(options):
    programs = ["trun", "probes"] + ["card-kernels"] * bool(options.kernels)
    for name in ["tcc", *programs] + ["emulated-kernel-tests"] * bool(options.kernels):
        if not (options.bin / name).exists():
            fail(f"{options.bin / name} is missing: cmake --build build --target {name}")
    cases = sorted(path.parent for path in options.zoo.glob("*/expected.json"))
    chosen = [case for case in cases if not options.models or case.name in options.models]
    if not chosen or len(chosen) < len(options.models):
        fail(f"{options.zoo} has the models {', '.join(case.name for case in cases) or 'of none'}; asked for: "
             f"{', '.join(options.models)}", 2)
    targets = [word for name in options.architectures for word in ("--target", f"cuda:{name}")]
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as folder:
        kit = Path(folder) / "gpu-kit"
        for name in ("bin", "lib", "models"):
            (kit / name).mkdir(parents=True)
        for name in programs:
            shutil.copy2(options.bin / name, kit / "bin" / name)
            for library, path in libraries_of(options.bin / name):
                shutil.copy2(path, kit / "lib" / library)
        made = []
        for case in chosen:
            to = kit / "models" / case.name
            to.mkdir()
            plans = {precision: ["--precision", precision] for precision in (PRECISIONS if case.name in IN_EVERY_PRECISION else ["f32"])}
            if case.name in FINISHED:
                plans |= EPILOGUES
            if case.name == RANKED:
                plans["ranks"] = ["--set", "parallel.mode=ddp"]
            for precision, words in plans.items():
                status, text = run([options.bin / "tcc", case / "model.onnx", "--recipe", case / "recipe.toml", "--quiet",
                                    *words, *targets, "-o", to / f"{precision}.tplan"], 900)
                if status:
                    fail(f"tcc {case.name} in {precision}: {text.strip()[:500]}")
                made.append(f"{case.name} {precision}")
            shutil.copy2(case / "data.safetensors", to)
            shutil.copy2(case / "expected.json", to)
        for workload in options.workloads:
            made += pack_workload(options, kit, "workloads", workload, targets, {name: ["--precision", name] for name in options.precisions})
        if options.experiments:
            made += pack_experiments(options, kit, targets)
        launches = record_kernels(options, kit) if options.kernels else 0
        for name in ("gpu_check.py", "kit.py", "programs.py", "experiments.py", "experiments.toml"):
            shutil.copy2(Path(__file__).resolve().parent / name, kit)
        _, version = run([options.bin / "trun", "--version"], 60)
        facts = {"made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "trun": version.strip(),
                 "architectures": options.architectures, "plans": made, "kernels": launches}
        (kit / "kit.json").write_text(json.dumps(facts, indent=1) + "\n")
        with tarfile.open(options.output, "w:xz", preset=1) as archive:
            archive.add(kit, "gpu-kit")
    size = options.output.stat().st_size
    print(f"{options.output}: {size / 1e6:.1f} MB, {len(made)} plans for {', '.join(options.architectures)}, {launches} launches of kernels")
    if size > MOST_KIT_BYTES:
        fail(f"{options.output} has {size} bytes, more than {MOST_KIT_BYTES}: pack fewer with --models")


def pack_experiments(options, kit, targets):
    """Plans of experiments.toml's workloads: their exports are in folders of the workloads' names, such as gpt2-124m-8x1024."""
    facts, made = experiments.table(), []
    for workload in facts["workload"]:
        name = experiments.folder_of(workload)
        source = options.experiments / name
        if not (source / "model.onnx").exists():
            print(f"{source}: not there, so left out")
            continue
        shape = name.replace(f"{workload['name']}-", f"{workload['name']}:")
        variants = {plan["name"]: ["--precision", facts["precision"], *experiments.settings(plan)] for plan in workload["plan"] if "like" not in plan}
        made += pack_workload(options, kit, "experiments", f"{shape}={source}", targets, variants)
    return made


def parse_workload(text):
    """("gpt2-124m", 8, 1024, folder) of gpt2-124m:8x1024=folder; images have no second number."""
    shape, equals, folder = text.partition("=")
    name, colon, sizes = shape.partition(":")
    numbers = sizes.split("x")
    if not (equals and colon and all(number.isdigit() for number in numbers) and len(numbers) <= 2):
        fail(f"--workloads {text}: give NAME:BATCHxTOKENS=FOLDER, or NAME:BATCH=FOLDER", 2)
    return name, int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 0, Path(folder)


def read_safetensors(path):
    """(header, bytes of all tensors)."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return header, content[8 + size:]


def pack_workload(options, kit, place, text, targets, variants):
    """In the kit's folder `place`: plans of a workload, one for each variant's options of tcc, and the list of its weights, which follow a rule: filled.py makes their
    file again."""
    import onnx  # of the machine that built the project
    sys.path.insert(0, str(options.bench))
    import filled
    name, batch, tokens, source = parse_workload(text)
    to = kit / place / (f"{name}-{batch}x{tokens}" if tokens else f"{name}-{batch}")
    to.mkdir(parents=True)
    tensors, files = [], set()
    for tensor in onnx.load(source / "model.onnx", load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if not place:
            continue
        files.add(place["location"])
        one = {"name": tensor.name, "shape": list(tensor.dims), "offset": int(place.get("offset", 0)), "bytes": int(place["length"])}
        with open(source / place["location"], "rb") as file:
            file.seek(one["offset"])
            values = file.read(one["bytes"])
            if values == filled.fill(tensor.name, one["shape"]).tobytes():
                pass
            elif one["bytes"] <= MOST_TABLE_BYTES:
                one["hex"] = values.hex()
            else:
                fail(f"{source}: {tensor.name} does not follow the rule of filled.py: export with torch_step.py --filled", 2)
        tensors.append(one)
    if len(files) > 1:
        fail(f"{source}: its weights are in {len(files)} files; a workload has one", 2)
    made = []
    for variant, words in variants.items():
        status, text = run([options.bin / "tcc", source / "model.onnx", "--recipe", source / "recipe.toml", "--quiet", "--entry", "train",
                            *words, *targets, "-o", source / f"{variant}.tplan"], 1800)
        if status:
            fail(f"tcc {source} as {variant}: {text.strip()[:500]}")
        shutil.move(source / f"{variant}.tplan", to)
        made.append(f"{to.name} {variant}")
    header, values = read_safetensors(source / "data.safetensors")
    data = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        own = values[begin:end]
        follows = entry["dtype"] == "F32" and own == filled.fill(key, entry["shape"]).tobytes()
        data[key] = {"dtype": entry["dtype"], "shape": entry["shape"], "hex": None if follows else own.hex()}
    facts = {"workload": name, "batch": batch, "tokens": tokens, "file": files.pop() if files else None, "tensors": tensors, "data": data}
    (to / "workload.json").write_text(json.dumps(facts, indent=1) + "\n")
    for script in ("filled.py", "measure.py", "torch_step.py"):
        shutil.copy2(options.bench / script, kit)
    return made
