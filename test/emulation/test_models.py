"""Real models trained by `trun --device cuda` on the stand-in of the driver: `test_models.py STANDIN [--all] [NAME...]`.

STANDIN is the folder of libcuda.so.1. The tests compare twenty losses and every parameter's change with PyTorch's (fast mode),
and run one update of each model with every check on, in three orders of threads and queued work. --all takes the whole zoo.
"""
import json
import os
import re
import subprocess
import sys
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
import onnx
import safetensors.numpy
import test_phases
from common import BIN, ROOT, ZOO, EndToEnd, metrics
from onnxruntime.quantization.quant_utils import QuantFormat
from test_four_bits import base_of
from test_stored_four_bits import base_model, quantised

SOME = ["mlp", "lstm-lm"]
CASES = sorted(p.parent.name for p in ZOO.glob("*/expected.json")) if "--all" in sys.argv else SOME
sys.argv = [word for word in sys.argv if word != "--all"]
ORDERS = [("ascending", 1), ("descending", 2), ("seeded", 3)]


class Models(EndToEnd):
    def test_losses_are_pytorchs(self):
        check = [sys.executable, ZOO / "check.py", "--bin", BIN, "--target", "cuda:sm_90", "--device", "cuda", "--timeout", "1200",
                 *(ZOO / case for case in CASES)]
        done = subprocess.run(check, env=os.environ | stand_in(mode="fast", order="seeded"), capture_output=True, text=True)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])

    def test_an_update_passes_every_check(self):
        for case in CASES:
            plan = self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--target", "cuda:sm_90",
                                plan=f"{case}.tplan")
            report = json.loads(self.succeed("tcc", "report", plan, "--json").out)
            resident = (report["memory"]["resident_bytes"] + 255) // 256 * 256
            losses = set()
            for order, seed in ORDERS:
                with self.subTest(case=case, order=order):
                    run = self.train(plan, ZOO / case / "data.safetensors", "--device", "cuda", "--no-release", steps=1,
                                     out=f"{case}-{order}", env=stand_in(mode="checked", order=order, seed=seed, cleared=resident))
                    losses.add((run / "metrics.jsonl").read_text().split('"loss"')[1].split(",")[0])
            self.assertEqual(len(losses), 1, f"{case}: the loss depends on the order of threads: {losses}")

    def test_weights_in_4_bits(self):
        """Files with weights in 4 bits, and matrices that the compiler rounds, with nested scales too; adapters beside them: the losses of
        the CPU, up to the order of sums."""
        rng = np.random.default_rng(5)
        data = self.save("data.safetensors", ids=rng.integers(0, 50, (24, 6)), labels=rng.integers(0, 7, (24, 6)))
        cases = [(form.name, quantised(base_model(), form, False, 32), ()) for form in QuantFormat]
        cases += [(base, base_model(), base_of(base)) for base in ("nested", "int4")]
        for case, model, words in cases:
            with self.subTest(case):
                onnx.save(model, self.folder / "model.onnx")
                losses = []
                for name, target, more, env in (("cpu", "cpu", (), {}), ("card", "cuda:sm_90", ("--device", "cuda"), stand_in(mode="fast"))):
                    plan = self.compile("model.onnx", "--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set",
                                        "loss.class_axis=-1", "--set", 'adapter.targets=["up", "down", "head"]', "--set", "adapter.rank=4",
                                        *words, "--target", target, plan=f"{name}.tplan")
                    run = self.train(plan, data, *more, steps=4, out=f"{case}-{name}", env=env)
                    losses.append([line["loss"] for line in metrics(run)[0]])
                np.testing.assert_allclose(*losses, rtol=1e-6)

    def test_moments_in_8_bits(self):
        """One update in every order of threads, with every check on: the bits are those of one order, and the codes a CPU's but for
        gradients whose sums have another order."""
        data = [str(value) for value in ("--recipe", ZOO / "nano-gpt" / "recipe.toml", "--set", 'optimizer.moments="8bit"')]
        states = []
        for name, target, more, env in [("cpu", "cpu", (), {})] + [
                (order, "cuda:sm_90", ("--device", "cuda"), stand_in(mode="checked", order=order, seed=seed)) for order, seed in ORDERS]:
            plan = self.compile(ZOO / "nano-gpt" / "model.onnx", *data, "--target", target, plan=f"{name}.tplan")
            run = self.train(plan, ZOO / "nano-gpt" / "data.safetensors", "--no-release", *more, steps=1, out=name, env=env)
            states.append(safetensors.numpy.load_file(run / "checkpoints/step-1/state.safetensors"))
        cpu, card, *others = states
        codes = [name for name, value in cpu.items() if value.dtype == np.uint8]
        self.assertGreater(len(codes), 4)
        for name, value in card.items():
            for other in others:
                np.testing.assert_array_equal(other[name], value, name)
            if name in codes:
                self.assertLess((value != cpu[name]).mean(), 0.02, name)

    def test_attention_as_one_op(self):
        """In f32, three TF32 products of tiles give the losses of products and softmax up to f32's rounding."""
        case = ZOO / "nano-gpt"
        losses = []
        for how in ("auto", "fused"):
            plan = self.compile(case / "model.onnx", "--recipe", case / "recipe.toml", "--target", "cuda:sm_90", "--set",
                                f"compiler.attention={how}", plan=f"{how}.tplan")
            code = self.folder / f"{how}.ptx"
            self.succeed("tcc", "report", plan, "--code", code)
            self.assertEqual("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in code.read_text(), how == "fused")
            run = self.train(plan, case / "data.safetensors", "--device", "cuda", "--no-release", steps=2, out=f"run-{how}",
                             env=stand_in(mode="checked"))
            losses.append([json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line])
        for one, other in zip(*losses, strict=True):
            self.assertLess(abs(one - other), 1e-5 * one)

    def test_attention_by_tiles(self):
        """Attention uses a warp's products of tiles, in the products' type; losses stay near those of products and softmax."""
        case = ZOO / "vit-tiny"
        exact = json.loads((case / "expected.json").read_text())["loss"][:3]
        for precision, tile, most in (("bf16", "m16n8k16.row.col.f32.bf16", 5e-3), ("f16", "m16n8k16.row.col.f32.f16", 1e-3),
                                      ("tf32", "m16n8k8.row.col.f32.tf32", 1e-3)):
            losses = {}
            for how in ("auto", "unfused"):
                name = f"{precision}-{how}"
                plan = self.compile(case / "model.onnx", "--recipe", case / "recipe.toml", "--target", "cuda:sm_90", "--precision", precision,
                                    "--set", f"compiler.attention={how}", "--set", "compiler.attention_calls=none", plan=f"{name}.tplan")
                code = self.folder / f"{name}.ptx"
                self.succeed("tcc", "report", plan, "--code", code)
                self.assertEqual(f"mma.sync.aligned.{tile}" in code.read_text(), how == "auto", name)
                run = self.train(plan, case / "data.safetensors", "--device", "cuda", "--no-release", steps=3, out=f"run-{name}",
                                 env=stand_in(mode="checked"))
                losses[how] = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
            for tiles, products, wanted in zip(losses["auto"], losses["unfused"], exact, strict=True):
                self.assertLess(abs(tiles - products), most * products, precision)
                self.assertLess(abs(tiles - wanted), most * wanted, precision)

    def trained(self, target, model, recipe, data, *words, steps, mode="checked"):
        """The lines of a run, and its folder."""
        device = target.split(":")[0]
        plan = self.compile(model, "--recipe", recipe, "--target", target, plan=f"{device}.tplan")
        env = stand_in(mode=mode) if device == "cuda" else None
        run = self.train(plan, data, "--device", device, *words, steps=steps, out=f"run-{device}", env=env)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line], run

    def test_alternating_optimizers(self):
        """A GAN's two phases, one at every second step: each has an entry, and both share one state. Losses, weights and averages equal
        the CPU's."""
        files = test_phases.FILES
        recipe = self.write("gan.toml", test_phases.RECIPES["gan"] + """
clip_norm = 0.5
[train]
ema = { decay = 0.8 }
""")
        lines, weights = {}, {}
        for target in ("cpu", "cuda:sm_90"):
            words = ("--eval-data", files / "gan.safetensors", "--eval-every", 4)
            lines[target], run = self.trained(target, files / "gan.onnx", recipe, files / "gan.safetensors", *words, steps=8)
            for which in ((), ("--ema",)):
                self.succeed("trun", "export", run, "-o", "weights.safetensors", *which)
                weights[target, which] = safetensors.numpy.load_file(self.folder / "weights.safetensors")
        self.assertEqual(["loss.g" in line for line in lines["cuda:sm_90"]], [False, True] * 4)
        for card, exact in zip(lines["cuda:sm_90"], lines["cpu"], strict=True):
            self.assertEqual(card.keys(), exact.keys())
            for key in exact:
                if key.startswith(("loss", "grad_norm", "lr")):
                    self.assertLessEqual(abs(card[key] - exact[key]), 1e-5 * abs(exact[key]), key)
        for which in ((), ("--ema",)):
            for name, exact in weights["cpu", which].items():
                np.testing.assert_allclose(weights["cuda:sm_90", which][name], exact, rtol=1e-5, atol=1e-6, err_msg=f"{which}: {name}")
        self.assertNotEqual(weights["cpu", ()]["generator.0.weight"].tobytes(), weights["cpu", ("--ema",)]["generator.0.weight"].tobytes())

    def test_adapters_beside_a_base_in_8_bits(self):
        """The base has filters, a table and a matrix: kernels widen the weights that cuDNN and cuBLASLt read, and lookups read rows of
        integers."""
        files = ROOT / "test" / "e2e" / "adapters" / "convs"
        recipe = self.write("convs.toml", """
[loss]
kind = "cross_entropy"
target = "labels"
[optimizer]
lr = 5e-3
[adapter]
targets = ["first", "tall", "point", "line", "words", "head"]
rank = 4
base = "int8"
""")
        losses = {target: [line["loss"] for line in self.trained(target, files / "model.onnx", recipe, files / "data.safetensors", steps=4)[0]]
                  for target in ("cpu", "cuda:sm_90")}
        for card, exact in zip(losses["cuda:sm_90"], losses["cpu"], strict=True):
            self.assertLess(abs(card - exact), 1e-5 * exact)

    def test_products_in_other_types(self):
        data = ZOO / "mlp/data.safetensors"
        losses = {}
        for precision in ("f32", "tf32", "bf16", "f16"):
            plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90", "--precision", precision,
                                plan=f"{precision}.tplan")
            run = self.train(plan, data, "--device", "cuda", "--no-release", steps=3, out=f"run-{precision}", env=stand_in(mode="checked"))
            losses[precision] = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
        for precision, most in (("tf32", 2e-3), ("bf16", 2e-2), ("f16", 2e-3)):
            self.assertNotEqual(losses[precision], losses["f32"], f"{precision} rounds nothing")
            for got, exact in zip(losses[precision], losses["f32"], strict=True):
                self.assertLess(abs(got - exact), most * exact)

    def test_rows_of_odd_length(self):
        """1,003 classes: products get padded rows that tensor cores read at full speed, and the padding has no effect."""
        batch, width, classes = 512, 512, 1003
        layers = [models.helper.make_node("Gemm", ["x", "w"], ["logits"], "head", transB=1)]
        model = models.save(self.folder / "odd.onnx", layers, {"x": [batch, width]}, {"logits": [batch, classes]},
                            {"w": models.random(1, classes, width)}, opset=20)
        rng = np.random.default_rng(7)
        labels = rng.integers(0, classes, batch)
        labels[::7] = -100
        data = self.save("odd.safetensors", x=rng.standard_normal((batch, width), np.float32), labels=labels)
        recipe = self.write("odd.toml", "[loss]\nkind = 'cross_entropy'\nof = 'logits'\ntarget = 'labels'\nlabel_smoothing = 0.1\n"
                                        "[optimizer]\nkind = 'sgd'\nlr = 0.5\n")

        def losses(name, *words, device, env=None):
            plan = self.compile(model, "--recipe", recipe, *words, plan=f"{name}.tplan")
            run = self.train(plan, data, "--device", device, "--no-release", steps=3, out=f"run-{name}", env=env)
            return run, [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]

        _, exact = losses("exact", device="cpu")
        for precision, whole, most in (("bf16", 1008, 5e-3), ("tf32", 1004, 1e-3)):
            with self.subTest(precision=precision):
                run, got = losses(precision, "--target", "cuda:sm_90", "--precision", precision, device="cuda", env=stand_in(mode="checked"))
                calls = [call["call"] for call in json.loads((run / "algorithms.json").read_text())["calls"]]
                self.assertTrue(calls and all(str(whole) in call and str(classes) not in call for call in calls), calls)
                for a, b in zip(got, exact, strict=True):
                    self.assertLess(abs(a - b), most * b)

    def test_columns_that_warps_share(self):
        """In a softmax down 320 rows, blocks of warps add up the rows of 32 columns."""
        batch, columns = 320, 64
        layers = [models.helper.make_node("Mul", ["x", "w"], ["scaled"], "scale"),
                  models.helper.make_node("Softmax", ["scaled"], ["y"], "down", axis=0)]
        model = models.save(self.folder / "down.onnx", layers, {"x": [batch, columns]}, {"y": [batch, columns]},
                            {"w": models.random(1, columns)}, opset=20)
        rng = np.random.default_rng(7)
        data = self.save("down.safetensors", x=3 * rng.standard_normal((batch, columns), np.float32),
                         y=rng.random((batch, columns), np.float32))
        recipe = self.write("down.toml", "[loss]\nkind = 'mse'\nof = 'y'\ntarget = 'y'\n[optimizer]\nkind = 'sgd'\nlr = 500.0\n")
        losses = {}
        for target in ("cpu", "cuda:sm_90"):
            plan = self.compile(model, "--recipe", recipe, "--target", target, plan=f"{target[:4]}.tplan")
            device = target.split(":")[0]
            run = self.train(plan, data, "--device", device, "--no-release", steps=4, out=f"run-{device}", env=stand_in(mode="checked"))
            losses[device] = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
        code = self.folder / "down.ptx"
        self.succeed("tcc", "report", plan, "--code", code)
        self.assertTrue("bar.sync" in code.read_text(), "no warps meet")
        self.assertNotEqual(losses["cpu"][0], losses["cpu"][-1])
        for got, exact in zip(losses["cuda"], losses["cpu"], strict=True):
            self.assertLess(abs(got - exact), 1e-6 * exact)

    def test_epilogues(self):
        """With biases, gelu and their gradients in the calls of products there are fewer launches, kernels' losses, and no more saved
        values."""
        width, batch = 24, 8
        layers = [models.helper.make_node("Gemm", ["x", "w1", "b1"], ["s"], "first", transB=1),
                  models.helper.make_node("Gelu", ["s"], ["h"], "gelu", approximate="tanh"),
                  models.helper.make_node("Gemm", ["h", "w2", "b2"], ["prediction"], "second", transB=1)]
        weights = {"w1": models.random(1, width, 5), "b1": models.random(2, width), "w2": models.random(3, 8, width), "b2": models.random(4, 8)}
        mlp = models.save(self.folder / "mlp.onnx", layers, {"x": [batch, 5]}, {"prediction": [batch, 8]}, weights, opset=20)
        rng = np.random.default_rng(7)
        data = self.save("mlp.safetensors", x=rng.standard_normal((2 * batch, 5), np.float32), y=rng.standard_normal((2 * batch, 8), np.float32))
        recipe = self.write("mlp.toml", models.SQUARES + models.SGD)
        gpt = ZOO / "nano-gpt"
        # `value`: the bytes of a value between layers.
        for name, model, recipe, data, value, kinds in [
                ("mlp", mlp, recipe, data, batch * width * 4, {"+ bias, gelu and its input", "times gelu' with sums of its rows"}),
                ("gpt", gpt / "model.onnx", gpt / "recipe.toml", gpt / "data.safetensors", 4 * 32 * 48 * 4,
                 {"+ bias, gelu and its input", "times gelu' with sums of its rows", "+ bias"})]:
            launches, losses, bytes_ = [], [], []
            for how in ("all", "exact", "none"):
                with self.subTest(model=name, epilogues=how):
                    plan = self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--set", f"compiler.epilogues={how}",
                                        plan=f"{name}-{how}.tplan")
                    report = self.report(plan)
                    launches.append(sum(kernel["count"] for kernel in report["kernels"]))
                    bytes_.append(report["memory"]["arena_bytes"])
                    named = " ".join(kernel["name"] for kernel in report["kernels"])
                    expected = {"all": kinds, "exact": kinds & {"+ bias"}, "none": set()}[how]
                    self.assertEqual({kind for kind in kinds if f"cuBLASLt {kind}" in named}, expected, named)
                    self.assertNotIn("with sums of A", named, "cuBLASLt has no algorithm for that in f32")
                    run = self.train(plan, data, "--device", "cuda", "--no-release", *["--tune"] * (name == "mlp" and how == "all"), steps=3,
                                     out=f"{name}-{how}", env=stand_in(mode="checked"))
                    losses.append([json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line])
            self.assertLess(launches[0], launches[2], name)
            self.assertLessEqual(launches[1], launches[2], name)
            self.assertLess(bytes_[0] - bytes_[2], value, f"{name}: less than a value between layers more")
            print(name, "launches", launches, "arena", bytes_)
            for all_, exact, none in zip(*losses, strict=True):
                self.assertEqual(exact, none, "a bias has the same bits in a call")
                self.assertLess(abs(all_ - none), 1e-5 * none)

    def test_a_library_without_an_epilogue(self):
        """The plan's kernels add the biases: the bits of a plan whose kernels do so anyway."""
        case, losses = ZOO / "nano-gpt", []
        for how in ("auto", "none"):
            plan = self.compile(case / "model.onnx", "--recipe", case / "recipe.toml", "--target", "cuda:sm_90", "--entry", "train", "--set",
                                f"compiler.epilogues={how}", plan=f"{how}.tplan")
            run = self.train(plan, case / "data.safetensors", "--device", "cuda", "--no-release", out=how, steps=3,
                             env=stand_in(mode="fast", epilogues=0))
            losses.append([update["loss"] for update in metrics(run)[0]])
            said = re.findall("epilogues of products: generated kernels in place of cuBLASLt: (.*)", (run / "log.txt").read_text())
            self.assertEqual(len(said), how == "auto", said)
            if said:
                self.assertRegex(said[0], "cuBLASLt 13.1.0 has no algorithm for .* epilogue BIAS .*NOT_SUPPORTED")
        self.assertEqual(*losses)

    def test_without_the_library_of_products(self):
        plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90")
        alone = self.folder / "driver-alone"
        alone.mkdir()
        (alone / "libcuda.so.1").symlink_to(STANDIN / "libcuda.so.1")
        for version in (12, 13):  # in the way of those that the machine may have
            (alone / f"libcublasLt.so.{version}").write_text("no library")
        self.refuse(1, ["cuBLASLt", "libcublasLt.so.13", "nvidia-cublas"], "trun", plan, "--data", ZOO / "mlp/data.safetensors", "--device",
                    "cuda", "--steps", 1, env=os.environ | {"LD_LIBRARY_PATH": str(alone)})

    def test_a_driver_of_cuda_12_takes_the_library_of_cuda_12(self):
        """Where both are there, that of CUDA 13 opens, but does not start."""
        plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90")
        words = [plan, "--data", ZOO / "mlp/data.safetensors", "--device", "cuda", "--steps", 1]
        self.refuse(1, ["libcublasLt.so.12", "CUDA 12 packages", "nvidia-cublas-cu12"], "trun", *words, "--out", "refused", env=stand_in(driver=12080))
        folder = self.folder / "of-12"
        folder.mkdir()
        (folder / "libcublasLt.so.12").symlink_to(STANDIN / "libcuda.so.1")
        settings = stand_in(driver=12080)
        self.succeed("trun", *words, "--out", "run", env=settings | {"LD_LIBRARY_PATH": f"{settings['LD_LIBRARY_PATH']}:{folder}"})

    def test_libraries_that_pip_installed(self):
        """In the active virtual environment they need no LD_LIBRARY_PATH."""
        plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90")
        words = [plan, "--data", ZOO / "mlp/data.safetensors", "--device", "cuda", "--steps", 1]
        alone, package = self.folder / "driver-alone", self.folder / "venv/lib/python3.11/site-packages/nvidia/cu13/lib"
        for folder in (alone, package):
            folder.mkdir(parents=True)
        (alone / "libcuda.so.1").symlink_to(STANDIN / "libcuda.so.1")
        for version in (12, 13):  # in the way of those that the machine may have
            (alone / f"libcublasLt.so.{version}").write_text("no library")
        environment = os.environ | {"LD_LIBRARY_PATH": str(alone), "VIRTUAL_ENV": str(self.folder / "venv")}
        self.refuse(1, ["libcublasLt.so.13", "into the active environment"], "trun", *words, "--out", "refused", env=environment)
        (package / "libcublasLt.so.13").symlink_to(STANDIN / "libcuda.so.1")
        self.succeed("trun", *words, "--out", "run", env=environment)

    def test_libraries_open_before_the_plan_takes_its_memory(self):
        """So a card without room for the plan and without the library is refused for the library, not for memory."""
        plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90")
        alone = self.folder / "driver-alone"
        alone.mkdir()
        (alone / "libcuda.so.1").symlink_to(STANDIN / "libcuda.so.1")
        for version in (12, 13):  # in the way of those that the machine may have
            (alone / f"libcublasLt.so.{version}").write_text("no library")
        words = [plan, "--data", ZOO / "mlp/data.safetensors", "--device", "cuda", "--steps", 1]
        self.refuse(1, ["cuBLASLt"], "trun", *words, env=stand_in(memory=4096) | {"LD_LIBRARY_PATH": str(alone)})
        said = self.refuse(1, [r"the plan takes .* has 0\.00 GiB", "--memory-budget"], "trun", *words, env=stand_in(memory=4096))
        self.assertNotIn("instruction", said.err)

    def test_messages_about_the_driver(self):
        plan = self.compile(ZOO / "mlp/model.onnx", "--recipe", ZOO / "mlp/recipe.toml", "--target", "cuda:sm_90")
        for settings, words in [({"devices": 0}, ["no .*(device|card)"]), ({"device": "sm_80"}, ["sm_90"]), ({"memory": 4096}, ["memory"]),
                                ({"driver": 11040}, ["driver"])]:
            self.refuse(1, words, "trun", plan, "--data", ZOO / "mlp/data.safetensors", "--device", "cuda", "--steps", 1,
                        env=stand_in(**settings))


if __name__ == "__main__":
    print(f"root {ROOT}, stand-in {STANDIN}")
    unittest.main(verbosity=2)
