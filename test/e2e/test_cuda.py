"""Plans for CUDA, made and checked without a card: PTX assembles and follows the rules for bits, the verifier accepts grids and
scratch, and messages. Nothing here runs a kernel."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

import models
from common import ZOO, EndToEnd, case

ARCHITECTURES = {"sm_80": "8.0", "sm_90": "8.0", "sm_120": "8.7"}     # architecture: the PTX version that is written for it
MODELS = ("mlp", "resnet-tiny", "nano-gpt")
ASSEMBLED = ("sm_90",)
if os.environ.get("TCC_CUDA_ALL"):                                     # tools/nightly.sh
    ARCHITECTURES = {"sm_80": "8.0", "sm_86": "8.0", "sm_89": "8.0", "sm_90": "8.0", "sm_100": "8.7", "sm_120": "8.7"}
    MODELS = tuple(sorted(path.parent.name for path in ZOO.glob("*/model.onnx")))
    ASSEMBLED = tuple(ARCHITECTURES)

# PTX's floating-point instructions whose result is exact or the nearest value (PTX ISA, "Floating Point Instructions"). Without a
# rounding modifier the assembler may contract a product and a sum.
ARITHMETIC = re.compile(r"\b(add|sub|mul|div|sqrt|rcp|fma|mad)((?:\.[a-z0-9]+)*\.(?:f16x2|f16|bf16x2|bf16|f32|f64))\b")
INEXACT = re.compile(r"\.approx|\.ftz|\.sat\b|\b(?:ex2|lg2|sin|cos|tanh|rsqrt)\.")
# Approximations from which exact quotients and roots are made (compiler/codegen/ExactQuotients.cpp), and their allowed readers.
NEAR = re.compile(r"\t(rcp|rsqrt)\.approx\.ftz\.f32 \t(%r\d+), (%r\d+);\n")
REFINED = {"rcp": r"fma\.rn\.f32 \t%r\d+, %r\d+, {near}, 0f3F800000;|fma\.rn\.f32 \t%r\d+, %r\d+, {near}, {near};",
           "rsqrt": r"mul\.rn\.f32 \t%r\d+, {of}, {near};|mul\.rn\.f32 \t%r\d+, {near}, 0f3F000000;"}


def without_refined(text):
    """The code without the approximations that are only read by steps of the refinement."""
    def kept(kernel):
        for name, near, of in NEAR.findall(kernel):
            steps = REFINED[name].format(near=near, of=of)
            readers = re.findall(rf"\t[^\t\n]*\t[^\n]*, {near}\b[^\n]*;", kernel)
            if len(readers) == 2 and all(re.fullmatch(rf"\t(?:{steps})", reader) for reader in readers):
                kernel = kernel.replace(f"\t{name}.approx.ftz.f32 \t{near}, {of};\n", "")
        return kernel
    return "".join(kept(kernel) for kernel in re.split(r"(?=\.visible \.entry )", text))


def find_ptxas():
    wheel = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "nvidia" / "cu13" / "bin" / "ptxas"
    for path in (wheel, Path("/usr/local/cuda/bin/ptxas")):
        if path.exists():
            return str(path)
    return shutil.which("ptxas")


class Cuda(EndToEnd):
    def ptx(self, name, architecture, *options, plan="plan.tplan"):
        model, recipe, _, _ = case(name)
        path = self.compile(model, "--recipe", recipe, "--target", f"cuda:{architecture}", *options, plan=plan)
        self.succeed("tcc", "report", path, "--code", "code.ptx")
        return path, (self.folder / "code.ptx").read_text()

    def test_models_compile_for_each_architecture(self):
        for name in MODELS:
            for architecture, version in ARCHITECTURES.items():
                with self.subTest(model=name, architecture=architecture):
                    plan, text = self.ptx(name, architecture)
                    self.assertTrue(text.startswith(f".version {version}\n.target {architecture}\n.address_size 64\n"), text[:99])
                    self.assertEqual(text.count(".version"), 1)
                    self.assertNotIn(".extern", text, "kernels call nothing")
                    self.succeed("trun", "verify", plan)
                    report = self.report(plan)
                    kernels = {kernel["name"] for kernel in report["kernels"] if kernel["name"].startswith("k")}
                    entries = re.findall(r"\.visible \.entry (\w+)\(", text)
                    self.assertEqual(len(entries), len(set(entries)))
                    self.assertLessEqual(kernels, set(entries))

    def test_arithmetic_rounds_once(self):
        """No contraction, approximation or flush to zero, as in the CPU's kernels."""
        for name in MODELS:
            _, text = self.ptx(name, "sm_90")
            text = without_refined(text)
            self.assertEqual(INEXACT.findall(text), [])
            found = ARITHMETIC.findall(text)
            self.assertTrue(found)
            self.assertEqual({op + kind for op, kind in found if ".rn" not in kind}, set(), "no rounding is named")

    def test_functions_of_16_bit_results_are_approximated(self):
        """Gelu and its derivative in bf16: the card's 2^x and 1/x, without a division; nothing else approximates."""
        _, text = self.ptx("nano-gpt", "sm_90", "--precision", "bf16")
        kernels = [kernel for kernel in re.split(r"(?=\.visible \.entry )", without_refined(text)) if "rcp.approx" in kernel]
        self.assertEqual(sum("mma.sync" not in kernel for kernel in kernels), 2, "one kernel forward and one backward")
        for kernel in kernels:
            self.assertIn("ex2.approx.ftz.f32", kernel)
            self.assertNotIn("div.rn", kernel)
        others = re.sub(r"\b(?:ex2|rcp)\.approx\.ftz\.f32", "", without_refined(text))
        self.assertEqual(INEXACT.findall(others), [])

    def test_no_sum_is_fused_that_is_not_written(self):
        """An update by plain SGD has products and sums, which are not contracted to FMAs."""
        self.write("recipe.toml", "[optimizer]\nkind = 'sgd'\nlr = 0.5\n[loss]\nkind = 'cross_entropy'\nof = 'logits'\ntarget = 'labels'\n")
        from models import classifier
        classifier(self.folder / "m.onnx", 32, 8, 4)
        plan = self.compile("m.onnx", "--recipe", "recipe.toml", "--target", "cuda:sm_90")
        self.succeed("tcc", "report", plan, "--code", "code.ptx")
        text = (self.folder / "code.ptx").read_text()
        self.assertIn("mul.rn.f32", text)
        self.assertIn("sub.rn.f32", text)

    def test_threads_of_a_warp_share_rows(self):
        """Sums of rows go through shuffles; consecutive threads read consecutive elements of global memory."""
        _, text = self.ptx("nano-gpt", "sm_90")
        self.assertIn("shfl.sync.down.b32", text)
        self.assertIn("shfl.sync.idx.b32", text)
        self.assertIn("%tid.x", text)
        self.assertIn("ld.global", text)
        self.assertEqual(re.findall(r"^\s*(?:ld|st)\.(?:b|f|u|s)\d+", text, re.MULTILINE), [], "generic addresses")

    def test_compiling_twice_gives_the_same_file(self):
        for name in MODELS:
            one, _ = self.ptx(name, "sm_90", plan="one.tplan")
            two, _ = self.ptx(name, "sm_90", plan="two.tplan")
            self.assertTrue(one.read_bytes() == two.read_bytes(), name)

    def test_the_assembler_takes_it(self):
        """Spills are memory traffic that no report counts. Only few are allowed: ptxas unrolls a sum of many short rows until it
        runs out of registers (a batch norm's gradient: 72 bytes)."""
        ptxas = find_ptxas()
        self.assertTrue(ptxas, "no ptxas: tools/setup.sh installs NVIDIA's wheel")
        for name in MODELS:
            for architecture in ASSEMBLED:
                self.ptx(name, architecture)
                done = subprocess.run([ptxas, "-v", f"-arch={architecture}", "code.ptx", "-o", "code.cubin"], cwd=self.folder,
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{name}: {done.stderr[-2000:]}")
                spills = {int(count) for count in re.findall(r"(\d+) bytes spill", done.stderr)}
                self.assertLessEqual(max(spills), 128, f"{name} for {architecture}")

    def attention(self, features, tokens=64, heads=2):
        """Queries, keys and values are columns of one product, as most models have them."""
        import models
        node, width = models.helper.make_node, heads * features
        nodes = [node("MatMul", ["x", "w"], ["all"], "in"), node("Split", ["all"], ["q", "k", "v"], "split", axis=2, num_outputs=3)]
        for name in "qkv":
            nodes += [node("Reshape", [name, "heads"], [f"{name}h"], f"{name}_heads"),
                      node("Transpose", [f"{name}h"], [f"{name}t"], f"{name}_move", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
        nodes += [node("MatMul", ["qt", "kt"], ["scores"], "scores"), node("Mul", ["scores", "scale"], ["scaled"], "scale_scores"),
                  node("Softmax", ["scaled"], ["weights"], "softmax", axis=-1), node("MatMul", ["weights", "vt"], ["o"], "mix"),
                  node("Transpose", ["o"], ["ot"], "back", perm=[0, 2, 1, 3]), node("Reshape", ["ot", "whole"], ["or"], "join"),
                  node("MatMul", ["or", "u"], ["y"], "out")]
        constants = {"w": models.random(1, width, 3 * width), "u": models.random(2, width, width),
                     "scale": np.array(features ** -0.5, np.float32), "heads": np.array([0, 0, heads, features], np.int64),
                     "whole": np.array([0, 0, width], np.int64)}
        return models.save(self.folder / f"attention{features}.onnx", nodes, {"x": [2, tokens, width]}, {"y": [2, tokens, width]}, constants, opset=20)

    # Features of a head, and the most bytes that attention's kernels may spill on any architecture (ptxas 13.0).
    SPILLS = {("bf16", 20): 0, ("f16", 128): 128, ("tf32", 36): 0, ("f32", 64): 192}
    if os.environ.get("TCC_CUDA_ALL"):
        SPILLS |= {("bf16", 128): 320, ("bf16", 256): 384, ("f16", 64): 32, ("f16", 256): 608, ("tf32", 128): 352, ("f32", 32): 0}

    def test_attention_on_tensor_cores(self):
        """Each precision multiplies tiles of its type; rows are read in the widest accesses that their alignment allows; spills are bounded."""
        recipe = self.write("attention.toml", "[loss]\nkind = 'mse'\nof = 'y'\ntarget = 'z'\n")
        tiles = {"bf16": "m16n8k16.row.col.f32.bf16.bf16.f32", "f16": "m16n8k16.row.col.f32.f16.f16.f32", "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32"}
        for (precision, features), most in self.SPILLS.items():
            fused = ("--set", "compiler.attention=fused") if precision == "f32" or features > 128 else ()
            model, row = self.attention(features), features * (2 if precision in ("bf16", "f16") else 4)
            for architecture in ASSEMBLED:
                what = f"{precision}, {features} features, {architecture}"
                plan = self.compile(model, "--recipe", recipe, "--target", f"cuda:{architecture}", "--precision", precision, *fused)
                self.succeed("tcc", "report", plan, "--code", "code.ptx")
                kernels = [kernel for kernel in re.split(r"(?=\.visible \.entry )", (self.folder / "code.ptx").read_text()) if "mma.sync" in kernel]
                self.assertEqual(len(kernels), 2, "attention and its gradient")
                for kernel in kernels:
                    self.assertIn(f"mma.sync.aligned.{tiles.get(precision, tiles['tf32'])}", kernel, what)
                    self.assertEqual("ex2.approx" in kernel, precision != "f32", what)
                    copies = set(re.findall(r"cp\.async\.\w+\.shared\.global [^;]*?, (\d+)", kernel))
                    self.assertEqual(copies, {str(min(16, row & -row))}, f"{what}: rows of {row} bytes")
                done = subprocess.run([find_ptxas(), "-v", f"-arch={architecture}", "code.ptx", "-o", "code.cubin"], cwd=self.folder,
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{what}: {done.stderr[-2000:]}")
                spills = max(int(count) for count in re.findall(r"(\d+) bytes spill stores", done.stderr))
                self.assertLessEqual(spills, most, what)

    def test_budgets_are_kept(self):
        model, recipe, _, _ = case("nano-gpt")
        plan, _ = self.ptx("nano-gpt", "sm_90")
        memory = self.report(plan)["memory"]
        whole = memory["arena_bytes"] + memory["resident_bytes"]
        smaller = self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--memory-budget", int(0.8 * whole), plan="s.tplan")
        memory = self.report(smaller)["memory"]
        self.assertLessEqual(memory["arena_bytes"] + memory["resident_bytes"], 0.8 * whole)
        self.succeed("trun", "verify", smaller)

    def test_long_reductions_are_cut_into_parts(self):
        """A bias's gradient over 4 x 32 rows of 48 columns is computed in four parts and their sum. On a CPU it is not split."""
        model, recipe, _, _ = case("nano-gpt")
        for target, is_cut in (("cuda:sm_90", True), ("cpu:v4", False)):
            phases = self.folder / target.replace(":", "-")
            self.compile(model, "--recipe", recipe, "--target", target, "--dump-phases-to", phases, plan=f"{phases.name}.tplan")
            text = next(phases.glob("*-kernels.mlir")).read_text()
            self.assertEqual(bool(re.search(r"train.reduce sum %\S+ \[1, 2\] : tensor<4x1x32x48xf32>", text)), is_cut, target)
            self.assertEqual(bool(re.search(r"train.reduce sum %\S+ \[0, 1\] : tensor<4x32x48xf32>", text)), not is_cut, target)

    def test_a_card_recomputes_only_what_it_is_asked_to(self):
        """A plan for a CPU spends up to 1.5 % more time to save memory; a plan for a card does so only on request."""
        recipe = self.write("r.toml", models.CLASSES + models.SGD)
        model = models.swish_tower(self.folder / "m.onnx", batch=16, channels=32, size=64, layers=6)
        found = {}
        for name, words in (("default", []), ("share", ["--set", "compiler.recompute_time=0.2"])):
            plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--target", "cuda:sm_90", *words, plan=f"{name}.tplan")
            report = self.report(plan)
            found[name] = (report["recompute"]["extra_cost_fraction"], report["memory"]["arena_bytes"])
        self.assertEqual(found["default"][0], 0)
        self.assertTrue(0 < found["share"][0] <= 0.2, found)
        self.assertLess(found["share"][1], found["default"][1])

    def test_a_card_by_name(self):
        """Percentages refer to the named card, and the report uses its rates."""
        plan, _ = self.ptx("mlp", "sm_90", "--device-memory", "H200", "--memory-budget", "60%")
        card = self.report(plan)["card"]
        self.assertEqual((card["name"], card["architecture"], card["named"]), ("h200", "sm_90", True))
        self.assertGreater(card["launches"], 5)
        self.assertGreater(card["best_seconds"], 0)
        self.assertLessEqual(card["best_seconds_on_tensor_cores"], card["best_seconds"])
        text = self.succeed("tcc", "report", plan).out
        self.assertIn("H200 SXM (sm_90): one update takes at least", text)
        self.assertRegex(text, r"\n  expected: [\d.]+ ms by rates that an H100 and an H200 have shown.*\n    by kind, in ms: ")
        usual, _ = self.ptx("nano-gpt", "sm_90")
        usual = self.report(usual)
        card = usual["card"]
        self.assertEqual((card["name"], card["named"]), ("h100", False))
        self.assertEqual([], card["floor"])
        recurrent, _ = self.ptx("lstm-lm", "sm_90", plan="lstm.tplan")
        self.assertEqual({"recurrent", "recurrent_grad"}, {kernel["loops"] for kernel in self.report(recurrent)["card"]["floor"]})
        slower, _ = self.ptx("nano-gpt", "sm_80", "--device-memory", "a100-40gb")
        report = self.report(slower)
        self.assertGreater(report["card"]["best_seconds"], card["best_seconds"])
        # The expected time is above the bound, and says that no A100 was measured. Decisions rest on rates of the architecture.
        for one, measured in ((report["card"], False), (card, True)):
            self.assertGreater(one["expected_seconds"], one["best_seconds"])
            self.assertEqual(one["rates_measured"], measured)
            self.assertLessEqual({"products", "rows", "loss", "optimizer", "launches"}, set(one["expected_classes"]))
        self.assertIn("no card of sm_80 has been measured", self.succeed("tcc", "report", slower).out)
        self.assertGreater(report["recompute"]["cost_ns"], usual["recompute"]["cost_ns"])

    def test_messages(self):
        model, recipe, _, _ = case("mlp")
        def refuse(patterns, *arguments):
            self.refuse(2, patterns, "tcc", model, "--recipe", recipe, "-o", "p.tplan", *arguments)
        refuse(["--target cuda: .*needs an architecture", "cuda:sm_80", "cuda:sm_120"], "--target", "cuda")
        refuse(["--target cuda:sm_70", "cuda:sm_90"], "--target", "cuda:sm_70")
        refuse(["--memory-budget 60%: the card's memory is not known", "--device-memory", "h200"], "--target", "cuda:sm_90", "--memory-budget", "60%")
        refuse(["--device-memory h300", "h200", "rtx4090"], "--target", "cuda:sm_90", "--device-memory", "h300")
        refuse(["a100", "sm_80", "--target cuda:sm_80"], "--target", "cuda:sm_90", "--device-memory", "a100")
        refuse(["--device-memory 80GiB", "--target cuda:sm_90"], "--device-memory", "80GiB")
        refuse(["--variants 3", "cuda:sm_90", "--memory-budget"], "--target", "cuda:sm_90", "--variants", 3)
        refuse(["--threads 4", "fixed number of slots"], "--target", "cuda:sm_90", "--threads", 4)

    def test_without_a_driver(self):
        """One message, even if the machine has a driver: a folder with a broken library is searched first."""
        _, _, data, _ = case("mlp")
        plan, _ = self.ptx("mlp", "sm_90")
        (self.folder / "none").mkdir()
        self.write("none/libcuda.so.1", "no library")
        self.refuse(1, ["--device cuda: no CUDA driver", "libcuda.so.1", "nvidia-smi"], "trun", plan, "--data", data,
                    "--steps", 1, "--out", "run", env={"LD_LIBRARY_PATH": str(self.folder / "none")})
        self.refuse(2, ["--threads 2", "cuda:sm_90"], "trun", plan, "--data", data, "--steps", 1, "--out", "run", "--threads", 2)
        self.refuse(1, ["plan.tplan", "cuda:sm_90"], "trun", plan, "--data", data, "--steps", 1, "--out", "run", "--device", "cpu")
        own = self.compile(*case("mlp")[:1], "--recipe", case("mlp")[1], plan="own.tplan")
        self.refuse(1, ["own.tplan", "tcc --target cuda:sm_90"], "trun", own, "--data", data, "--steps", 1, "--out", "run",
                    "--device", "cuda")


if __name__ == "__main__":
    unittest.main()
