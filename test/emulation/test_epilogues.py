"""Epilogues of the calls for products and convolutions: `test_epilogues.py STANDIN` compiles models at each level of
compiler.epilogues and runs them on the stand-in. (test_models.py has products in f32.)"""
import json
import re
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
import safetensors.numpy
from common import ROOT, ZOO, EndToEnd, metrics

GELU = {"+ bias, gelu and its input", "times gelu' with sums of its rows"}


class Epilogues(EndToEnd):
    def plan(self, model, recipe, level, *words, entry="train", plan=None):
        return self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--entry", entry, "--set", f"compiler.epilogues={level}",
                            *words, plan=plan or f"{level}.tplan")

    def kernels(self, plan):
        """The names of an update's kernels and calls, and its number of launches."""
        kernels = self.report(plan)["kernels"]
        return {kernel["name"] for kernel in kernels}, sum(kernel["count"] for kernel in kernels)

    def losses(self, plan, data, out, *words, steps=3, **settings):
        run = self.train(plan, data, "--device", "cuda", "--no-release", "--no-shuffle", *words, steps=steps, out=out,
                         env=stand_in(**({"mode": "checked"} | settings)))
        return [update["loss"] for update in metrics(run)[0]]

    def predict(self, plan, inputs, out):
        self.succeed("trun", "predict", plan, "--inputs", inputs, "--outputs", out, "--device", "cuda", env=stand_in(mode="checked"))
        return safetensors.numpy.load_file(self.folder / out)["prediction"]

    # -- products of 16 bits --------------------------------------------------------------------------------------------

    def test_levels_in_16_bits(self):
        """Each level has fewer launches than the one before, and losses near PyTorch's, as far as 16 bits allow."""
        for model, precision, levels, most in [
                ("nano-gpt", "bf16", {"exact": set(), "gelu": GELU | {"+ bias"}, "all": GELU | {"+ bias", "with sums of A"}}, 1e-2),
                ("nano-gpt", "f16", {"all": GELU | {"+ bias", "with sums of A"}}, 2e-3),
                ("vit-tiny", "bf16", {"exact": set(), "bias": {"+ bias"}, "all": {"+ bias", "with sums of A"}}, 1e-2)]:
            case = ZOO / model
            pytorch = json.loads((case / "expected.json").read_text())["loss"]
            launches, losses = {}, {}
            for level, kinds in ({"none": set()} | levels).items():
                with self.subTest(model=model, precision=precision, level=level):
                    name = f"{model}-{precision}-{level}"
                    plan = self.plan(case / "model.onnx", case / "recipe.toml", level, "--precision", precision, plan=f"{name}.tplan")
                    names, launches[level] = self.kernels(plan)
                    found = {kind for kind in GELU | {"+ bias", "with sums of A"} if any(name.endswith(kind) for name in names)}
                    self.assertEqual(found, kinds, names)
                    losses[level] = self.losses(plan, case / "data.safetensors", name)
                    for got, exact in zip(losses[level], pytorch):
                        self.assertLess(abs(got - exact), most * exact)
            print(model, precision, "launches", launches)
            ordered = list(launches.values())
            self.assertEqual(sorted(ordered, reverse=True), ordered)
            self.assertLess(ordered[-1], ordered[0])
            if "exact" in losses:
                self.assertEqual(losses["exact"], losses["none"], "in 16 bits no bias keeps its bits: exact takes none")
            self.assertNotEqual(losses["all"], losses["none"], "a call rounds once, a kernel twice")

    def test_a_call_rounds_once(self):
        """In bf16, 256 + 1 is 256. A kernel adds a bias of 1 to that rounded sum; a call adds the bias before it rounds."""
        nodes = [models.helper.make_node("Gemm", ["x", "w", "b"], ["h"], "product", transB=1),
                 models.helper.make_node("Gemm", ["h", "unit"], ["prediction"], "identity")]
        weights = {"w": np.ones((8, 2), np.float32), "b": np.ones(8, np.float32), "unit": np.eye(8, dtype=np.float32)}
        model = models.save(self.folder / "sum.onnx", nodes, {"x": [4, 2]}, {"prediction": [4, 8]}, weights)
        recipe = self.write("sum.toml", models.SQUARES)
        inputs = self.save("x.safetensors", x=np.tile(np.array([256, 1], np.float32), (4, 1)))
        for level, wanted in [("exact", 256), ("bias", 258), ("all", 258)]:  # 257 becomes 256 as the next product reads it
            plan = self.plan(model, recipe, level, "--precision", "bf16", entry="predict")
            got = self.predict(plan, inputs, f"{level}.safetensors")
            self.assertEqual(set(got.ravel().tolist()), {float(wanted)}, level)

    def test_biases_of_batches(self):
        """One bias for all products of a batch, and one for each product: calls give the bits of kernels."""
        rng = np.random.default_rng(3)
        for name, shape in [("all", [24]), ("each", [3, 1, 24])]:
            nodes = [models.helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
                     models.helper.make_node("Add", ["p", "b"], ["prediction"], "bias")]
            model = models.save(self.folder / f"{name}.onnx", nodes, {"x": [3, 5, 16]}, {"prediction": [3, 5, 24]},
                                {"w": models.random(1, 3, 16, 24), "b": models.random(2, *shape)})
            recipe = self.write(f"{name}.toml", models.SQUARES)
            inputs = self.save(f"{name}-x.safetensors", x=rng.standard_normal((3, 5, 16), np.float32))
            results = []
            for level in ("none", "exact"):
                plan = self.plan(model, recipe, level, entry="predict", plan=f"{name}-{level}.tplan")
                named = " ".join(self.kernels(plan)[0])
                self.assertEqual("cuBLASLt + bias" in named, level == "exact", named)
                results.append(self.predict(plan, inputs, f"{name}-{level}.safetensors"))
            self.assertEqual(results[0].tobytes(), results[1].tobytes(), name)
            self.assertGreater(np.abs(results[0]).max(), 0)

    # -- convolutions ---------------------------------------------------------------------------------------------------

    def network(self):
        """Convolutions with biases: after the first two comes ReLU, after the third nothing, after the last one the loss, whose
        kernel adds the bias."""
        nodes, weights = [], {}
        for i, (source, to, inside, outside) in enumerate([("x", "a", 3, 8), ("ra", "b", 8, 8), ("rb", "c", 8, 8), ("c", "prediction", 8, 4)]):
            nodes.append(models.helper.make_node("Conv", [source, f"w{i}", f"b{i}"], [to], f"conv{i}", pads=[1, 1, 1, 1]))
            weights |= {f"w{i}": models.random(i, outside, inside, 3, 3) / np.float32(4), f"b{i}": models.random(i + 9, outside)}
            if to in "ab":
                nodes.append(models.helper.make_node("Relu", [to], [f"r{to}"], f"relu{i}"))
        model = models.save(self.folder / "net.onnx", nodes, {"x": [4, 3, 8, 8]}, {"prediction": [4, 4, 8, 8]}, weights)
        rng = np.random.default_rng(11)
        data = self.save("net.safetensors", x=rng.standard_normal((8, 3, 8, 8), np.float32),
                         y=rng.standard_normal((8, 4, 8, 8), np.float32))
        return model, self.write("net.toml", models.SQUARES + models.SGD), data

    def test_convolutions(self):
        """The stand-in's engines with a bias sum like those without one: in f32 losses keep their bits, in other types they stay near."""
        model, recipe, data = self.network()
        cpu = self.compile(model, "--recipe", recipe, "--entry", "train", plan="cpu.tplan")
        run = self.train(cpu, data, "--no-shuffle", steps=3, out="cpu")
        expected = [update["loss"] for update in metrics(run)[0]]
        for precision, most in [("f32", 1e-5), ("tf32", 2e-3), ("bf16", 1e-2), ("f16", 3e-3)]:
            launches, losses = {}, {}
            for level in ("none", "bias"):
                with self.subTest(precision=precision, level=level):
                    name = f"{precision}-{level}"
                    plan = self.plan(model, recipe, level, "--precision", precision, plan=f"{name}.tplan")
                    names, launches[level] = self.kernels(plan)
                    forward = {kernel.removeprefix("convolution cuDNN") for kernel in names if kernel.startswith("convolution cuDNN")}
                    self.assertEqual(forward, {"", " + bias"} if level == "bias" else {""}, names)
                    runs = [self.losses(plan, data, f"{name}-{order}", order=order, seed=seed)
                            for order, seed in (("ascending", 1), ("seeded", 5))]
                    self.assertEqual(*runs)
                    losses[level] = runs[0]
                    for got, exact in zip(losses[level], expected, strict=True):
                        self.assertLess(abs(got - exact), most * exact, f"{precision} {level}")
            print(precision, "launches", launches)
            if precision in ("f32", "tf32"):  # in 16 bits a small kernel casts the bias
                self.assertLess(launches["bias"], launches["none"])
                self.assertEqual(losses["bias"], losses["none"])
            else:
                self.assertNotEqual(losses["bias"], losses["none"], "a call rounds once")

    def test_biases_of_convolutions_give_pytorchs_losses(self):
        case = ZOO / "unet-tiny"
        plan = self.plan(case / "model.onnx", case / "recipe.toml", "all")
        self.assertIn("convolution cuDNN + bias", self.kernels(plan)[0])
        expected = json.loads((case / "expected.json").read_text())
        for got, exact in zip(self.losses(plan, case / "data.safetensors", "unet", steps=5, mode="fast"), expected["loss"]):
            self.assertLess(abs(got - exact), expected["tolerance"] * exact)

    def test_depthwise_convolutions_are_left_out(self):
        node = models.helper.make_node("Conv", ["x", "w", "b"], ["prediction"], "conv", group=8, pads=[1, 1, 1, 1])
        model = models.save(self.folder / "depthwise.onnx", [node], {"x": [2, 8, 6, 6]}, {"prediction": [2, 8, 6, 6]},
                            {"w": models.random(1, 8, 1, 3, 3), "b": models.random(2, 8)})
        names, _ = self.kernels(self.plan(model, self.write("depthwise.toml", models.SQUARES), "all", entry="predict"))
        self.assertIn("convolution cuDNN", names)

    # -- libraries without algorithms for epilogues ---------------------------------------------------------------------

    def by_kernels(self, run):
        """What kernels finished in a run: by its log, and by its record."""
        said = re.findall("(epilogues of products|biases of convolutions): generated kernels in place of (?:cuBLASLt|cuDNN): (.*)",
                          (run / "log.txt").read_text())
        calls = {call["call"]: call["algorithm"] for call in json.loads((run / "algorithms.json").read_text())["calls"]}
        recorded = {call for call, algorithm in calls.items() if algorithm == "kernels"}
        finished = {call for call in calls if ", epilogue " in call or " + bias " in call}
        self.assertIn(recorded, (set(), finished), "one choice holds for all calls of a plan")
        return dict(said), recorded

    def test_kernels_in_place_of_epilogues_of_products(self):
        """The bits of a plan without epilogues; in 16 bits gelu's sums are rounded to 16 bits, as in a call."""
        for model, precision, level, lacks, same in [
                ("nano-gpt", "f32", "all", 2, True), ("nano-gpt", "bf16", "all", 2, False), ("vit-tiny", "bf16", "auto", 0, True)]:
            with self.subTest(model=model, precision=precision, level=level):
                case = ZOO / model
                losses = {}
                for how in (level, "none"):
                    name = f"{model}-{precision}-{level}-{how}"
                    words = ["--precision", precision, "--set", "compiler.attention_calls=none"]
                    plan = self.plan(case / "model.onnx", case / "recipe.toml", how, *words, plan=f"{name}.tplan")
                    run = self.train(plan, case / "data.safetensors", "--device", "cuda", "--no-release", steps=3, out=name,
                                     env=stand_in(mode="checked", order="seeded", seed=3, epilogues=lacks))
                    losses[how] = [update["loss"] for update in metrics(run)[0]]
                    said, recorded = self.by_kernels(run)
                    self.assertEqual((set(said), bool(recorded)), ({"epilogues of products"}, True) if how == level else (set(), False))
                    if how == level:
                        self.assertRegex(said["epilogues of products"], "cuBLASLt 13.1.0 has no algorithm for .* epilogue "
                                         + ("GELU_GRADIENT SUMS_OF_RESULT" if lacks else "(BIAS|GELU)"))
                        self.assertEqual([row["without_kernels"] for row in self.report(plan)["epilogues"] if row["what"] == "products"], [0])
                if same:
                    self.assertEqual(losses[level], losses["none"])
                else:
                    self.assertEqual(losses[level][0], losses["none"][0])
                    for got, none in zip(losses[level], losses["none"], strict=True):
                        self.assertLess(abs(got - none), 1e-3 * none)

    def test_kernels_in_place_of_biases_of_convolutions(self):
        model, recipe, data = self.network()
        for precision in ("f32", "bf16"):
            losses = []
            for level in ("bias", "none"):
                plan = self.plan(model, recipe, level, "--precision", precision, plan=f"{precision}-{level}.tplan")
                losses.append(self.losses(plan, data, f"{precision}-{level}", epilogues=0))
                said, recorded = self.by_kernels(self.folder / f"{precision}-{level}")
                self.assertEqual(set(said), {"biases of convolutions"} if level == "bias" else set())
                self.assertEqual(bool(recorded), level == "bias")
            self.assertRegex(self.by_kernels(self.folder / f"{precision}-bias")[0]["biases of convolutions"], "lists 0 engines")
            self.assertEqual(*losses)
        for epilogues, computed_by in ((0, " by cuDNN and kernels + bias"), (1, " by cuDNN + bias")):
            profile = json.loads(self.succeed("trun", "profile", "f32-bias.tplan", "--data", data, "--steps", 1, "--warmup", 0,
                                              "--json", env=stand_in(mode="fast", epilogues=epilogues)).out)
            self.assertTrue(any(computed_by in kernel["what"] for kernel in profile["kernels"]), profile["kernels"])

    def test_a_resumed_run_keeps_what_finished_its_products(self):
        case = ZOO / "nano-gpt"
        plan = self.plan(case / "model.onnx", case / "recipe.toml", "gelu")
        words = ["--no-shuffle", "--device", "cuda", "--no-release"]

        def losses(run):
            return [update["loss"] for update in metrics(run)[0]]
        whole = self.train(plan, case / "data.safetensors", *words, steps=4, out="whole", env=stand_in(mode="fast", epilogues=2))
        part = self.train(plan, case / "data.safetensors", *words, steps=2, out="part", env=stand_in(mode="fast", epilogues=2))
        self.succeed("trun", "--resume", part, "--steps", 4, env=stand_in(mode="fast"))  # the library has them now
        self.assertEqual(losses(part), losses(whole))
        reasons, calls = self.by_kernels(part)
        self.assertRegex(reasons["epilogues of products"], "algorithms.json has them")
        self.assertTrue(calls)
        self.succeed("trun", "--resume", part, "--steps", 5, "--tune", env=stand_in(mode="fast"))
        self.assertFalse(self.by_kernels(part)[1])

    def test_the_default_follows_what_cards_have_shown(self):
        case = ZOO / "vit-tiny"
        for target, precision, found, reason in [
                ("cuda:sm_90", "bf16", True, "the default for cuda:sm_90: H100: .* ms in place of"), ("cuda:sm_80", "bf16", False, None),
                ("cuda:sm_90", "f32", True, "the default: biases keep their bits")]:
            plan = self.compile(case / "model.onnx", "--recipe", case / "recipe.toml", "--target", target, "--precision", precision, "--entry",
                                "train", plan="default.tplan")
            report = self.report(plan)
            names = {kernel["name"] for kernel in report["kernels"]}
            biased = {name.split()[0] for name in names if name.endswith(" + bias")}
            self.assertEqual(biased, {"matmul"} if found else set(), f"{target} {precision}: convolutions are not measured")
            if found:
                self.assertEqual([row["what"] for row in report["epilogues"]], ["products"])
                self.assertRegex(" ".join(report["epilogues"][0]["reasons"]), reason)
            else:
                self.assertEqual(report["epilogues"], [])

    def test_a_resume_takes_the_recorded_engines(self):
        model, recipe, data = self.network()
        plan = self.plan(model, recipe, "bias")
        words = ["--no-shuffle", "--device", "cuda", "--no-release"]
        whole = self.train(plan, data, *words, steps=4, out="whole", env=stand_in(mode="fast"))
        calls = [call["call"] for call in json.loads((whole / "algorithms.json").read_text())["calls"]]
        self.assertTrue([call for call in calls if call.startswith("convolution forward + bias")], calls)
        part = self.train(plan, data, *words, steps=2, out="part", env=stand_in(mode="fast"))
        self.succeed("trun", "--resume", part, "--steps", 4, env=stand_in(mode="fast"))
        self.assertEqual(*([update["loss"] for update in metrics(run)[0]] for run in (whole, part)))


if __name__ == "__main__":
    print(f"root {ROOT}, stand-in {STANDIN}")
    unittest.main(verbosity=2)
