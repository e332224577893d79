"""The kit for a machine with a card, run on the stand-in of the driver."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy

from common import BIN, ROOT, ZOO, EndToEnd

TOOL = ROOT / "tools/gpu-check/gpu_check.py"
sys.path.insert(0, str(TOOL.parent))
import gpu_check
STANDIN = BIN.parent / "emulation"


class GpuCheck(EndToEnd):
    def call(self, *words, driver=True, program=False):
        settings = {"LD_LIBRARY_PATH": str(STANDIN)} if driver else {"LD_LIBRARY_PATH": str(self.folder / "none")}
        return subprocess.run([*[sys.executable] * (not program), *map(str, words)], cwd=self.folder, env=os.environ | settings, capture_output=True, text=True)

    def kit(self):
        made = self.call(TOOL, "kit", "kit.tar.xz", "--bin", BIN, "--zoo", ZOO, "--models", "mlp", "--architectures", "sm_90", "sm_100",
                         "--kernels", "*/softmax*:*/gather_*")
        self.assertEqual(made.returncode, 0, made.stderr)
        with tarfile.open(self.folder / "kit.tar.xz") as archive:
            archive.extractall(self.folder)
        return self.folder / "gpu-kit"

    def test_losses_among_those_of_perturbed_starts(self):
        """Means that differ by four standard errors at most are near, others are named."""
        theirs = [[7.42, 5.51], [7.46, 5.49], [7.45, 5.53], [7.44, 5.50]]
        ours = [[7.47, 5.50, 9.0], [7.43, 5.54, 1.0], [7.45, 5.53, 2.0], [7.48, 5.49, 3.0]]
        self.assertEqual(gpu_check.leaves(ours, theirs), "")
        later = [[first, second + 0.09] for first, second, _ in ours]
        self.assertIn("step 2: 5.6050 on average over perturbed starts, where PyTorch's are 5.5075", gpu_check.leaves(later, theirs))
        self.assertIn("step 1: nan", gpu_check.leaves([[float("nan"), 5.5], *ours[1:]], theirs))
        self.assertIn("too few", gpu_check.leaves(ours[:2], theirs))

    def test_perturbed_weights(self):
        """Each weight changes by at most one rounding to bf16, and the same seed gives the same changes."""
        sys.path.insert(0, str(ROOT / "test/bench"))
        import filled
        values = filled.fill("conv.weight", [40, 50])
        one, other = (filled.perturb(values, "conv.weight", seed) for seed in (1, 2))
        changes = [abs(a / b - 1) for a, b in zip(one, values, strict=True)]
        self.assertLess(max(changes), 2**-9 * 1.001)
        self.assertGreater(sum(changes) / len(changes), 2**-11)
        self.assertNotEqual(one, other)
        self.assertEqual(one, filled.perturb(values, "conv.weight", 1))

    def test_what_a_sanitizer_finds(self):
        """The sanitizer's status decides, its summary is the message, and the report is written after each check."""
        tools = self.folder / "tools"
        tools.mkdir()
        self.write("tools/compute-sanitizer", "#!/bin/sh\nmodel=$5\ncase $2 in racecheck)\n"
                   "  echo '========= RACECHECK SUMMARY: 1 hazard displayed'; exit 9;; esac\necho '========= ERROR SUMMARY: 0 errors'\n")
        (tools / "compute-sanitizer").chmod(0o755)
        self.write("kit.json", "{}")
        options = argparse.Namespace(seconds=60, output=self.folder / "report.json")
        bench = gpu_check.Bench(self.folder, self.folder, options)
        bench.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
        with unittest.mock.patch.dict(os.environ, bench.environment):
            bench.sanitize()
        report = json.loads(options.output.read_text())
        self.assertEqual([check["ok"] for check in report["checks"]], [True, False, True])
        self.assertEqual(report["failed"], ["vit-tiny bf16 racecheck"])
        self.assertEqual(report["checks"][1]["problem"], "RACECHECK SUMMARY: 1 hazard displayed")

    def test_kit(self):
        kit = self.kit()
        good = self.call(kit / "gpu_check.py", "run")
        self.assertEqual(good.returncode, 0, good.stdout + good.stderr)
        report = json.loads((self.folder / "gpu-check.json").read_text())
        self.assertEqual([check["check"] for check in report["checks"]],
                         ["probes", "cuDNN engines", "cuBLASLt heuristics", "kernels", "mlp f32 as PyTorch", "mlp f32 again", "mlp f32 resumed", "mlp tf32 near f32", "mlp bf16 near f32",
                          "mlp f16 near f32"])
        self.assertEqual(report["failed"], [])
        self.assertGreater(report["checks"][0]["passed"], 50)
        engines = report["checks"][1]
        self.assertEqual(len(engines["answers"]), engines["taken"])
        self.assertLess(engines["worst_error"], 1e5, "TF32 rounds to 2^-11")
        products, kernels = report["checks"][2:4]
        self.assertEqual(products["cublaslt"], 130100)
        self.assertTrue(any(len(answer["algorithms"]) > 1 for answer in products["answers"]))
        self.assertGreater(kernels["agree"], 10)
        self.assertEqual(kernels["wrong"], [])
        self.assertEqual(len(report["checks"][4]["losses"]), 20)
        self.assertEqual(report["checks"][4]["libraries"], ["cuBLASLt 13.1.0"])

        # A kernel with a wrong result is found and named.
        folder = next(path.parent for path in sorted((kit / "kernels").glob("*/launches.jsonl")) if path.read_text())
        launch = json.loads((folder / "launches.jsonl").read_text().splitlines()[0])
        result = next(one for one in launch["operands"] if one["result"])
        data = bytearray((folder / "data.bin").read_bytes())
        data[result["at"]] ^= 1
        (folder / "data.bin").write_bytes(data)
        bad = self.call(kit / "bin/card-kernels", folder, program=True)
        self.assertEqual(bad.returncode, 1, bad.stdout + bad.stderr)
        self.assertIn(f"FAIL {launch['case']}, kernel {launch['kernel']}: result ", bad.stdout)
        self.assertIn("the first is number 0", bad.stdout)
        data[result["at"]] ^= 1
        (folder / "data.bin").write_bytes(data)

        # A loss curve that differs from PyTorch's is found and named.
        path = kit / "models/mlp/expected.json"
        expected = json.loads(path.read_text())
        expected["loss"][6] *= 1.01
        path.write_text(json.dumps(expected))
        bad = self.call(kit / "gpu_check.py", "run", "--output", "bad.json")
        self.assertEqual(bad.returncode, 1, bad.stdout + bad.stderr)
        self.assertRegex(bad.stdout, r"FAIL mlp f32 as PyTorch +loss of step 7: ")
        self.assertEqual(json.loads((self.folder / "bad.json").read_text())["failed"], ["mlp f32 as PyTorch"])

        # A program that cannot run gives one line.
        shutil.copy(path, kit / "models/mlp/tf32.tplan")
        path.write_text((ZOO / "mlp/expected.json").read_text())
        bad = self.call(kit / "gpu_check.py", "run", "--output", "bad.json")
        self.assertRegex(bad.stdout, r"FAIL mlp tf32 near f32 +.*tf32.tplan")

        (self.folder / "none").mkdir()
        (self.folder / "none/libcuda.so.1").write_text("no library")
        none = self.call(kit / "gpu_check.py", "run", driver=False)
        self.assertEqual(none.returncode, 2, none.stdout)
        self.assertRegex(none.stderr, r"^gpu_check: error: no card to ask: .*libcuda")

    def test_experiments(self):
        """The plans of a table are timed and compared with expected times; so is an additional plan. Plans for which no time is left are named."""
        sys.path.insert(0, str(ROOT / "test/bench"))
        import filled
        tool = self.folder / "tool"
        shutil.copytree(TOOL.parent, tool)
        self.write("tool/experiments.toml", 'precision = "bf16"\nsteps = 4\n[[workload]]\nname = "small"\nbatch = 4\ngib = 1\npeers = [["--compile"]]\nlater = [[]]\n'
                   'plan = [{ name = "default", profile = true, h100 = 7 }, { name = "tuned", like = "default", tune = true }]\n')
        source = self.folder / "exports/small-4"
        source.mkdir(parents=True)
        weight = np.frombuffer(filled.fill("w", [16, 16]), np.float32).reshape(16, 16)
        node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
        values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16]) for name in "xy"]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "small", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "w")]),
                                       opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.save_model(model, source / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
        (source / "recipe.toml").write_text('[loss]\nkind = "mse"\nof = "y"\ntarget = "t"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n')
        safetensors.numpy.save_file({name: np.full((4, 16), 1 + i, np.float32) for i, name in enumerate("xt")}, source / "data.safetensors")
        made = self.call(tool / "gpu_check.py", "kit", "kit.tar.xz", "--bin", BIN, "--zoo", ZOO, "--models", "mlp", "--architectures", "sm_90",
                         "--kernels", "", "--bench", ROOT / "test/bench", "--experiments", "exports")
        self.assertEqual(made.returncode, 0, made.stderr)
        with tarfile.open(self.folder / "kit.tar.xz") as archive:
            archive.extractall(self.folder)
        kit = self.folder / "gpu-kit"
        shutil.copy(kit / "experiments/small-4/default.tplan", kit / "experiments/small-4/another.tplan")
        # A substitute for PyTorch returns the problem's losses: right ones when compiled, wrong ones in eager mode.
        right = [float(np.mean((np.ones(16) @ weight - 2) ** 2))]
        for _ in range(3):
            y = np.ones(16) @ weight
            weight = weight - 0.1 * np.outer(np.ones(16), 2 * (y - 2) / 16)
            right.append(float(np.mean((np.ones(16) @ weight - 2) ** 2)))
        self.write("gpu-kit/torch_step.py", f"import json, sys\nlosses = {right}\nif '--compile' not in sys.argv: losses[1] *= 1.1\n"
                   "print(json.dumps({'median_s': 0.01, 'min_s': 0.01, 'first_step_s': 1, 'peak_device_bytes': 2**30, 'losses': losses}))\n")
        self.write("gpu-kit/torch.py", "")
        (self.folder / "tools").mkdir()
        self.write("tools/nvidia-smi", "#!/bin/sh\necho NVIDIA H100 80GB HBM3, 580, 81559 MiB, 9.0\n")
        (self.folder / "tools/nvidia-smi").chmod(0o755)
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}", "PYTHONPATH": str(kit)}):
            done = self.call(kit / "gpu_check.py", "experiments")
            late = self.call(kit / "gpu_check.py", "experiments", "--without-torch", "--within", "0", "--output", "late.json")
        self.assertEqual(done.returncode, 1, "eager losses differ:\n" + done.stdout + done.stderr)
        report = json.loads((self.folder / "experiments.json").read_text())
        checks = {check["check"]: check for check in report["checks"]}
        self.assertEqual(list(checks), ["small-4 default", "small-4 tuned", "small-4 torch compile", "small-4 another", "small-4 default profile",
                                        "small-4 another profile", "small-4 torch eager"])
        self.assertEqual(report["failed"], ["small-4 torch eager"])
        self.assertRegex(checks["small-4 torch eager"]["problem"], "^default: loss of step 2: .*; tuned: loss of step 2: .*; another: ")
        self.assertEqual(checks["small-4 torch compile"]["ms"], 10)
        self.assertEqual(checks["small-4 default"]["expected_ms"], 7)
        self.assertEqual(len(checks["small-4 default"]["losses"]), 4)
        self.assertGreater(checks["small-4 tuned"]["ms"], 0)
        self.assertTrue(checks["small-4 default profile"]["profile"]["kernels"])
        self.assertRegex(done.stdout, r"(?m)^small-4 +default +[\d.]+ +7 +[\d.]+$")
        self.assertEqual(late.returncode, 0, late.stdout + late.stderr)
        self.assertIn("not timed: small-4 default: no time was left", late.stdout)
        self.assertIn("not timed: small-4 default profile: no time was left", late.stdout)

    def test_a_result_that_is_a_rounding_error(self):
        """Only the sum of the result and its rounding error is compared."""
        folder = self.folder / "record"
        environment = os.environ | {"TCC_KERNEL_RECORD": str(folder), "TCC_KERNEL_ARCHITECTURE": "sm_90"}
        subprocess.run([BIN / "emulated-kernel-tests", "--gtest_filter=*attention_grad_odd*", "--gtest_brief=1"], env=environment, check=True,
                       capture_output=True)
        data, lines = (folder / "data.bin").read_bytes(), (folder / "launches.jsonl").read_text().splitlines()
        launch = next(launch for launch in map(json.loads, lines) if launch["open"] and any("rest_of" in one for one in launch["operands"]))
        rest = next(one for one in launch["operands"] if "rest_of" in one)
        values = np.frombuffer(data[rest["at"]:rest["at"] + rest["bytes"]], np.float32)
        rest["at"] = len(data)
        for shift, status in ((1e-5, 0), (1, 1)):  # of values near 1e-7, beside sums near 1
            (folder / "data.bin").write_bytes(data + (values + np.float32(shift)).tobytes())
            (folder / "launches.jsonl").write_text(json.dumps(launch) + "\n")
            repeated = self.call(BIN / "card-kernels", folder, program=True)
            self.assertEqual(repeated.returncode, status, repeated.stdout + repeated.stderr)

    def test_messages(self):
        made = self.call(TOOL, "kit", "kit.tar.xz", "--bin", BIN, "--zoo", ZOO, "--models", "mlp", "mpl")
        self.assertEqual(made.returncode, 2)
        self.assertRegex(made.stderr, r"asked for: mlp, mpl")
        self.assertEqual(self.call(TOOL, "run", "--kit", self.folder).returncode, 2)


if __name__ == "__main__":
    unittest.main()
