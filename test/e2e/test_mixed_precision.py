"""--precision bf16: losses as close to PyTorch's autocast as rounding allows, the same bits for any number of threads.

autocast_losses.json holds the losses of the zoo's cases in PyTorch 2.15 under torch.autocast("cpu", torch.bfloat16), from the
same weights and data as expected.json has them in f32.
"""
import json
import unittest

import numpy as np
import onnx

import attention_graph as graphs
from common import ROOT, EndToEnd, case, metrics

AUTOCAST = json.loads((ROOT / "test/e2e/autocast_losses.json").read_text())


def apart(left, right):
    return max(abs(a - b) / abs(b) for a, b in zip(left, right, strict=True))


class MixedPrecision(EndToEnd):
    def losses(self, plan, data, *arguments, out="run", steps=20):
        return [line["loss"] for line in metrics(self.train(plan, data, *arguments, out=out, steps=steps))[0]]

    def test_losses_are_those_of_autocast(self):
        """Two trainings in bf16 differ by rounding, as each differs from f32. The bound is twice PyTorch's own distance from f32."""
        for name, theirs in AUTOCAST.items():
            with self.subTest(name):
                model, recipe, data, expected = case(name)
                exact = expected["loss"]
                ours = self.losses(self.compile(model, "--recipe", recipe, "--precision", "bf16", plan=f"{name}.tplan"), data,
                                   out=name)
                self.assertLessEqual(apart(ours, theirs), 2 * apart(theirs, exact) + 2e-4)
                self.assertGreater(apart(ours, exact), 1e-6, "nothing was rounded")

    def test_threads_change_no_bit(self):
        model, recipe, data, _ = case("vit-tiny")
        plan = self.compile(model, "--recipe", recipe, "--precision", "bf16")
        runs = [self.losses(plan, data, "--threads", n, out=f"threads-{n}", steps=4) for n in (1, 2, 3, 8)]
        self.assertTrue(all(run == runs[0] for run in runs), runs)

    def test_levels_without_bf16_widen(self):
        model, recipe, data, expected = case("nano-gpt")
        for target in ("cpu:v3", "cpu:v4"):
            plan = self.compile(model, "--recipe", recipe, "--precision", "bf16", "--target", target, plan=f"{target[4:]}.tplan")
            report = self.report(plan)
            self.assertEqual((report["target"], report["precision"]), (target, "bf16"))
            run = self.command("trun", plan, "--data", data, "--no-shuffle", "--steps", 20, "--out", target[4:], "--no-release")
            if run.status == 1 and "this machine cannot run" in run.err:
                continue
            ours = [line["loss"] for line in metrics(self.folder / target[4:])[0]]
            self.assertLessEqual(apart(ours, AUTOCAST["nano-gpt"]), 2 * apart(AUTOCAST["nano-gpt"], expected["loss"]) + 2e-4)

    def test_activations_take_half_the_memory(self):
        model, recipe, _, _ = case("resnet-tiny")
        wide, narrow = (self.report(self.compile(model, "--recipe", recipe, "--precision", precision, "--entry", "train",
                                                 "--set", "compiler.fuse=true", plan=f"{precision}.tplan")) for precision in ("f32", "bf16"))
        self.assertEqual(narrow["memory"]["resident_bytes"], wide["memory"]["resident_bytes"], "weights and moments stay f32")
        self.assertLess(narrow["memory"]["arena_bytes"], 0.8 * wide["memory"]["arena_bytes"])

    def profile(self, plan, data):
        """The profile of one step. Skips the test if this machine lacks the plan's instructions."""
        done = self.command("trun", "profile", plan, "--data", data, "--steps", 1, "--no-roofline", "--all", "--json")
        if done.status and "this machine cannot run" in done.err:
            self.skipTest(done.err)
        self.assertEqual(done.status, 0, done)
        return json.loads(done.out)

    def test_products_round_weights_as_they_read_them(self):
        """No kernel makes copies in bf16 of the large layers' weights."""
        width, rows = 1024, 64
        g = graphs.Graph()
        g.begin("mlp")
        x = "x"
        for i in range(3):
            weight = np.random.default_rng(i).normal(size=(width, width)).astype(np.float32) / 32
            x = g("Tanh", g("MatMul", x, g.parameter(f"w{i}", weight)))
        g.nodes.append(onnx.helper.make_node("ReduceMean", [x], ["loss"], "loss", keepdims=0))
        graph = onnx.helper.make_graph(
            g.nodes, "mlp", [onnx.helper.make_tensor_value_info("x", 1, [rows, width])],
            [onnx.helper.make_tensor_value_info("loss", 1, [])],
            [onnx.numpy_helper.from_array(value, name) for name, value in g.weights.items()])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
                  self.folder / "mlp.onnx")
        data = self.save("data.safetensors", x=np.random.default_rng(9).normal(size=(rows, width)).astype(np.float32))
        plan = self.folder / "pairs.tplan"
        compiled = self.command("tcc", "mlp.onnx", "--set", "loss.output=loss", "--precision", "bf16", "--target", "cpu:v4-bf16",
                                "--entry", "train", "-o", plan)
        if compiled.status and "this machine cannot run" in compiled.err:
            self.skipTest(compiled.err)
        self.assertEqual(compiled.status, 0, compiled)
        profile = self.profile(plan, data)
        products = [kernel for kernel in profile["kernels"] if kernel["what"].startswith("matmul")]
        reading = sum(kernel["calls"] for kernel in products if "rounds_b" in kernel["what"])
        self.assertEqual(reading, 3 + 2, "forward, and gradients of all layers' inputs but the first's")
        # A copy reads 4 and writes 2 bytes for each element, and is no product.
        copies = [kernel for kernel in profile["kernels"] if not kernel["what"].startswith("matmul")
                  and kernel["bytes"] == kernel["calls"] * 6 * width * width]
        self.assertEqual(copies, [])

    def test_attention_in_pairs_is_held_against_the_rate_of_bf16(self):
        model, recipe, data, _ = case("hf-gpt2-tiny")
        for target, wanted in (("cpu:v4-bf16", "bf16"), ("cpu:v4", "f32")):
            plan = self.folder / "attention.tplan"
            compiled = self.command("tcc", model, "--recipe", recipe, "--precision", "bf16", "--target", target, "--entry", "train",
                                    "-o", plan)
            if compiled.status and "this machine cannot run" in compiled.err:
                self.skipTest(compiled.err)
            self.assertEqual(compiled.status, 0, compiled)
            profile = self.profile(plan, data)
            kernels = [kernel for kernel in profile["kernels"] if kernel["what"].startswith("attention")]
            self.assertGreaterEqual(len(kernels), 2)
            self.assertEqual({kernel["dtype"] for kernel in kernels}, {wanted}, target)

    def test_the_recipe_says_it_too(self):
        model, recipe, data, _ = case("mlp")
        option = self.losses(self.compile(model, "--recipe", recipe, "--precision", "bf16", plan="a.tplan"), data, out="a", steps=3)
        key = self.losses(self.compile(model, "--recipe", recipe, "--set", "train.precision=bf16", plan="b.tplan"), data, out="b",
                          steps=3)
        self.assertEqual(option, key)
        plain = self.compile(model, "--recipe", recipe, "--set", "train.precision=bf16", "--precision", "f32", plan="c.tplan")
        self.assertEqual(self.report(plain)["precision"], "f32", "the option goes before the recipe")

    def test_what_no_cpu_multiplies_is_refused(self):
        model, recipe, _, _ = case("mlp")
        for words in (["--precision", "tf32"], ["--set", "train.precision=tf32"]):
            self.refuse(2, ["--precision tf32: cpu:.* does not multiply in TF32; .*--target cuda:sm_80"], "tcc", model, "--recipe", recipe,
                        *words)


if __name__ == "__main__":
    unittest.main()
