"""Attention on cuDNN: `test_attention.py STANDIN` trains models on the stand-in with values of compiler.attention_calls."""
import json
import unittest

from standin import STANDIN, stand_in  # first: it takes its argument, and makes common importable
import attention_biases
import models
import numpy as np
import safetensors.numpy
from common import ZOO, EndToEnd, metrics

CALLS = {"none": set(), "forward": {"attention cuDNN"}, "both": {"attention cuDNN", "attention gradient cuDNN"}}


class Attention(EndToEnd):
    def network(self, name, calls, *words, precision="bf16"):
        return self.compile(ZOO / name / "model.onnx", "--recipe", ZOO / name / "recipe.toml", "--target", "cuda:sm_90", "--precision",
                            precision, "--set", f"compiler.attention_calls={calls}", *words, plan=f"{name}-{precision}-{calls}.tplan")

    def run_on_card(self, name, plan, *words, out="run", steps=3, **settings):
        return self.train(plan, ZOO / name / "data.safetensors", "--no-shuffle", "--device", "cuda", "--no-release", *words, out=out,
                          steps=steps, env=stand_in(**settings))

    def losses(self, run):
        return [update["loss"] for update in metrics(run)[0]]

    def names(self, plan):
        return {kernel["name"] for kernel in self.report(plan)["kernels"] if kernel["name"].endswith("cuDNN") and "attention" in kernel["name"]}

    def attention(self, run):
        calls = json.loads((run / "algorithms.json").read_text())["calls"]
        return {call["call"].split(",")[0]: call["algorithm"] for call in calls if call["call"].startswith("attention")}

    def test_losses_are_those_of_kernels(self):
        """vit-tiny's attention has no mask, and its heads are slices of one product: calls read and write them in place."""
        for name, precision, ways in (("vit-tiny", "bf16", ("none", "forward", "both")), ("vit-tiny", "f16", ("none", "forward", "both"))):
            losses, launches = {}, {}
            for calls in ways:
                plan = self.network(name, calls, precision=precision)
                self.assertEqual(self.names(plan), CALLS[calls])
                runs = [self.run_on_card(name, plan, out=f"{precision}-{calls}-{order}", mode="checked", order=order, seed=seed)
                        for order, seed in [("ascending", 1), ("seeded", 3)]]
                losses[calls], other = map(self.losses, runs)
                self.assertEqual(losses[calls], other, "the order of threads and of queued work changes no bit")
                launches[calls] = sum(part["count"] for part in self.report(plan)["kernels"])
            exact = json.loads((ZOO / name / "expected.json").read_text())["loss"][:3]
            for calls in ways[1:]:
                self.assertNotEqual(losses[calls], losses["none"], "cuDNN rounds elsewhere")
                for got, kernels, wanted in zip(losses[calls], losses["none"], exact, strict=True):
                    self.assertLess(abs(got - kernels), 2e-3 * kernels)
                    self.assertLess(abs(got - wanted), 5e-3 * wanted)
                self.assertLessEqual(launches[calls], launches["none"], "no copy is made for a call")

    def test_a_run_records_engines_and_what_compiled_them(self):
        plan = self.network("vit-tiny", "both")
        whole = self.run_on_card("vit-tiny", plan, out="whole", steps=4)
        record = json.loads((whole / "algorithms.json").read_text())
        self.assertEqual(record["library"], "cuBLASLt 13.1.0, cuDNN 9.26.0, NVRTC 13.0")
        self.assertEqual(self.attention(whole), {"attention forward BF16": "22 2=1", "attention gradient BF16": "22 2=1"})
        part = self.run_on_card("vit-tiny", plan, out="part", steps=2)
        self.succeed("trun", "--resume", part, "--steps", 4, env=stand_in(engines=0))
        self.assertEqual(self.losses(part), self.losses(whole))
        self.refuse(1, [r"algorithms.json: .*NVRTC 13\.0.*NVRTC 13\.2.*install NVRTC 13\.0.*--tune"], "trun", "--resume", part, "--steps", 6,
                    env=stand_in(nvrtc=13020))
        self.refuse(1, [r"algorithms.json: .*cuDNN 9\.26\.0.*cuDNN 9\.27\.0"], "trun", "--resume", part, "--steps", 6, env=stand_in(dnn=92700))

    def test_tuning_takes_the_fastest_engine(self):
        plan = self.network("vit-tiny", "both")
        tuned = self.run_on_card("vit-tiny", plan, "--tune", out="tuned", steps=1)
        self.assertEqual(set(self.attention(tuned).values()), {"22 2=2"}, "two parts take half the time")

    def test_what_is_missing(self):
        plan = self.network("vit-tiny", "both", "--set", "compiler.convolutions=kernels")
        data = ZOO / "vit-tiny" / "data.safetensors"
        for settings, said in (({"dnn": 91800}, r"cuDNN 9\.19 or later.*9\.18\.0.*attention_calls=none"),
                               ({"engines": 0}, r"lists .* engines.*bytes of workspace.*attention_calls=none"),
                               ({"dnn_cuda": 12090}, r"NVRTC.*libnvrtc\.so\.12.*attention_calls=none")):
            self.refuse(1, [said], "trun", plan, "--data", data, "--device", "cuda", "--steps", 1, "--out", "refused", env=stand_in(**settings))

    # -- biases ----------------------------------------------------------------------------------------------------------

    def biased(self, calls, layers, *words, precision="bf16", entry="train", positions=attention_biases.T):
        model = self.folder / f"biased-{'-'.join(layers)}.onnx"
        attention_biases.save(model, layers, positions)
        recipe = self.write("biased.toml", models.SQUARES + models.SGD)
        return self.compile(model, "--recipe", recipe, "--entry", entry, "--precision", precision, "--target", "cuda:sm_90", "--set",
                            f"compiler.attention_calls={calls}", *words, plan=f"{model.stem}-{precision}-{calls}-{entry}.tplan")

    def counts(self, plan):
        return {kernel["name"]: kernel["count"] for kernel in self.report(plan)["kernels"] if "attention" in kernel["name"]}

    def kept(self, plan):
        rows = self.report(plan)["attention"].get("kept_from_library", [])
        return {(row["node"].split("/")[0], row["what"]): row["reason"] for row in rows}

    def test_biases_and_masks(self):
        """Attention with learned tables, activations, slopes and windows becomes calls; with a mask that depends on data it does not,
        since that may exclude all keys."""
        data = self.save("biased.safetensors", **attention_biases.columns())
        layers = list(attention_biases.LAYERS)
        for precision, most in (("bf16", 4e-3), ("f16", 1e-3)):
            losses = {}
            for calls in CALLS:
                plan = self.biased(calls, layers, precision=precision)
                counts, kept = self.counts(plan), self.kept(plan)
                wanted = len(layers) - 1
                self.assertEqual(counts.get("attention cuDNN", 0), 0 if calls == "none" else wanted)
                self.assertEqual(counts.get("attention gradient cuDNN", 0), wanted if calls == "both" else 0)
                self.assertEqual(list(kept), [] if calls == "none" else [("padding", "attention")])
                if kept:
                    self.assertRegex(kept["padding", "attention"], "mask may exclude all keys of a query")
                runs = [self.train(plan, data, "--device", "cuda", "--no-shuffle", "--no-release", steps=2, out=f"{precision}-{calls}-{order}",
                                   env=stand_in(mode="checked", order=order, seed=seed))
                        for order, seed in [("ascending", 1), ("seeded", 5)][:2 if precision == "bf16" else 1]]
                losses[calls] = self.losses(runs[0])
                self.assertEqual(losses[calls], self.losses(runs[-1]))
            for calls in ("forward", "both"):
                self.assertNotEqual(losses[calls], losses["none"], "cuDNN rounds elsewhere")
                for got, kernels in zip(losses[calls], losses["none"], strict=True):
                    self.assertLess(abs(got - kernels), most * kernels)

    def test_gradients_of_biases(self):
        """Each parameter's gradient, those of tables and shared biases too, is as near to the one in f32 as with kernels."""
        data = self.save("biased.safetensors", **attention_biases.columns(attention_biases.B))
        layers = list(attention_biases.LAYERS)

        def gradients(plan, name, *words, **options):
            self.succeed("trun", "gradients", plan, "--inputs", data, "--outputs", name, *words, **options)
            return safetensors.numpy.load_file(self.folder / name)

        model = self.folder / "cpu.onnx"
        attention_biases.save(model, layers)
        cpu = self.compile(model, "--recipe", self.write("cpu.toml", models.SQUARES), "--entry", "gradients", plan="cpu.tplan")
        exact = gradients(cpu, "cpu.safetensors")
        errors = {}
        for calls in CALLS:
            plan = self.biased(calls, layers, precision="f16", entry="gradients")
            got = gradients(plan, f"{calls}.safetensors", "--device", "cuda", env=stand_in(mode="fast"))
            for name, value in exact.items():
                if name != "loss":
                    largest = float(np.abs(value).max())
                    self.assertGreater(largest, 0, name)
                    errors[calls, name] = float(np.abs(got[name].astype(np.float64) - value).max()) / largest
        named = {name for _, name in errors}
        self.assertLess({"table.table", "shared.bias", "pairs.w"}, named)
        for name in named:
            for calls in ("forward", "both"):
                self.assertLess(errors[calls, name], max(2 * errors["none", name], 4e-3), f"{calls}: {name}")

    def test_a_bias_whose_gradient_has_no_engine(self):
        """The forward pass is a call; a kernel computes the gradient from the values that the call keeps."""
        plan = self.biased("both", ["table"], positions=64)
        self.assertEqual(self.counts(plan).get("attention cuDNN"), 1)
        self.assertNotIn("attention gradient cuDNN", self.counts(plan))
        self.assertRegex(self.kept(plan)["table", "gradient"], "no engine that repeats its bits for these sizes")

    def test_other_forms_stay_kernels(self):
        """Attention in f32 and TF32 makes no calls."""
        for name, precision in (("vit-tiny", "tf32"), ("nano-gpt", "f32")):
            self.assertFalse(self.names(self.network(name, "both", precision=precision)))


if __name__ == "__main__":
    unittest.main()
