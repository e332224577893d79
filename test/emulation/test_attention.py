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
            losses, steps = {}, {}
            for calls in ways:
                plan = self.network(name, calls, precision=precision)
                self.assertEqual(self.names(plan), CALLS[calls])
                runs = [self.run_on_card(name, plan, out=f"{precision}-{calls}-{order}", mode="checked", order=order, seed=seed)
                        for order, seed in [("ascending", 1), ("seeded", 3)]]
                losses[calls], other = map(self.losses, runs)
                self.assertEqual(losses[calls], other, "the order of threads and of queued work changes no bit")
                program = self.report(plan)["memory"]["entries"]["train"]["programs"]["step"]["timeline"]
                steps[calls] = [at for at, row in enumerate(program) if "scaled_dot_product_attention" in row["node"]]
                for at in steps[calls][:3]:
                    self.assertRegex(program[at - 1]["instruction"], "^matmul", "the product is read as it is")
            exact = json.loads((ZOO / name / "expected.json").read_text())["loss"][:3]
            for calls in ways[1:]:
                self.assertNotEqual(losses[calls], losses["none"], "cuDNN rounds elsewhere")
                for got, kernels, wanted in zip(losses[calls], losses["none"], exact, strict=True):
                    self.assertLess(abs(got - kernels), 2e-3 * kernels)
                    self.assertLess(abs(got - wanted), 5e-3 * wanted)
                self.assertEqual(len(steps[calls]), 6, "an instruction forward and one backward for each layer: no copy is made for a call")

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

    # -- without the library ---------------------------------------------------------------------------------------------

    def without_library(self):
        """The stand-in's folder without cuDNN."""
        folder = self.folder / "no-cudnn"
        folder.mkdir(exist_ok=True)
        for file in STANDIN.iterdir():
            if not file.name.startswith("libcudnn") and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
        return {"LD_LIBRARY_PATH": str(folder)}

    MISSING = (({"dnn": 91800}, r"cuDNN 9\.19 or later.*9\.18\.0"), ({"engines": 0}, r"lists .* engines"), ({"dnn_cuda": 12090}, r"NVRTC.*libnvrtc\.so\.12"))

    def test_kernels_take_the_place_of_a_missing_library(self):
        """The plan's kernels compute what the library would, to the same tolerance; trun says so, and its record too."""
        for name, precision in (("vit-tiny", "f16"), ("mha-need-weights", "bf16")):
            words = ("--set", "compiler.convolutions=kernels")
            plan = self.network(name, "auto", *words, precision=precision)
            self.assertEqual(self.names(plan), CALLS["both"])
            self.assertEqual(self.report(plan)["attention"]["calls_without_kernels"], 0)
            library = self.losses(self.run_on_card(name, plan, out=f"{name}-library"))
            kernels = self.losses(self.run_on_card(name, self.network(name, "none", *words, precision=precision), out=f"{name}-none"))
            runs = []
            for order, seed, env in [("ascending", 1, self.without_library()), ("seeded", 3, stand_in(dnn=91800))]:
                env |= {"TCC_EMULATION_MODE": "checked", "TCC_EMULATION_ORDER": order, "TCC_EMULATION_SEED": str(seed)}
                run = self.train(plan, ZOO / name / "data.safetensors", "--no-shuffle", "--device", "cuda", "--no-release", out=f"{name}-without-{order}",
                                 steps=3, env=env)
                runs.append(self.losses(run))
                self.assertEqual(set(self.attention(run).values()), {"kernels"})
                self.assertRegex((run / "log.txt").read_text(), "attention: generated kernels in place of cuDNN: ")
            self.assertEqual(*runs, "the order of threads and of queued work changes no bit")
            self.assertNotEqual(runs[0], library)
            for got, other, of_none in zip(runs[0], library, kernels, strict=True):
                self.assertLess(abs(got - other), 2e-3 * other)
                self.assertLess(abs(got - of_none), 2e-3 * of_none)

    def test_why_kernels_run(self):
        plan = self.network("vit-tiny", "both", "--set", "compiler.convolutions=kernels")
        for i, (settings, said) in enumerate(self.MISSING):
            run = self.run_on_card("vit-tiny", plan, out=f"missing-{i}", steps=1, **settings)
            self.assertRegex((run / "log.txt").read_text(), "attention: generated kernels in place of cuDNN: .*" + said)
        for settings, computed_by, kind in (({"dnn": 91800}, "kernels", "generated"), ({}, "cuDNN", "library")):
            profile = json.loads(self.succeed("trun", "profile", plan, "--data", ZOO / "vit-tiny" / "data.safetensors", "--steps", 1,
                                              "--warmup", 0, "--json", env=stand_in(mode="fast", **settings)).out)
            found = {(f" by {computed_by}" in kernel["what"], kernel["kind"]) for kernel in profile["kernels"] if kernel["what"].startswith("attention")}
            self.assertEqual(found, {(True, kind)})
        run = self.run_on_card("vit-tiny", plan, out="there", steps=1)
        self.assertRegex((run / "log.txt").read_text(), r"attention: cuDNN 9\.26\.0, compiled by NVRTC 13\.0")

    def test_a_resumed_run_keeps_what_computed_its_attention(self):
        plan = self.network("vit-tiny", "both", "--set", "compiler.convolutions=kernels")
        whole = self.run_on_card("vit-tiny", plan, out="whole-kernels", steps=4, engines=0)
        part = self.run_on_card("vit-tiny", plan, out="part-kernels", steps=2, engines=0)
        self.succeed("trun", "--resume", part, "--steps", 4, env=stand_in())  # the library is there now
        self.assertEqual(self.losses(part), self.losses(whole))
        self.assertEqual(set(self.attention(part).values()), {"kernels"})
        part = self.run_on_card("vit-tiny", plan, out="part-library", steps=2)
        for settings, said in self.MISSING[::2]:  # without a list of engines, the recorded one still runs
            self.refuse(1, [rf"algorithms.json: .*{said}.*--tune"], "trun", "--resume", part, "--steps", 4, env=stand_in(**settings))
        self.refuse(1, [r"algorithms.json: .*cuDNN.*--tune"], "trun", "--resume", part, "--steps", 4, env=self.without_library())
        self.succeed("trun", "--resume", part, "--steps", 4, "--tune", env=stand_in(dnn=91800))
        self.assertEqual(set(self.attention(part).values()), {"kernels"})

    def test_a_call_without_kernels_needs_the_library(self):
        """No kernel sums the gradient of a bias as the library does."""
        data = self.save("biased.safetensors", **attention_biases.columns())
        plan = self.biased("both", ["table"])
        self.assertEqual(self.report(plan)["attention"]["calls_without_kernels"], 1)
        for settings, said in self.MISSING:
            self.refuse(1, [said + ".*attention_calls=none"], "trun", plan, "--data", data, "--device", "cuda", "--steps", 1, "--out", "refused",
                        env=stand_in(**settings))

    def test_kernels_of_calls_with_biases(self):
        """Kernels read the bias of the call, in 16 bits."""
        data = self.save("biased.safetensors", **attention_biases.columns())
        layers = ["slopes", "window", "causal"]
        plan = self.biased("both", layers)
        self.assertEqual(self.report(plan)["attention"]["calls_without_kernels"], 0)
        losses = [self.losses(self.train(plan, data, "--device", "cuda", "--no-shuffle", "--no-release", steps=2, out=name, env=stand_in(**settings)))
                  for name, settings in (("kernels", {"mode": "checked", "dnn": 91800}), ("library", {"mode": "checked"}))]
        self.assertNotEqual(*losses)
        for got, library in zip(*losses, strict=True):
            self.assertLess(abs(got - library), 4e-3 * library)

    # -- the default -----------------------------------------------------------------------------------------------------

    def test_the_default_follows_what_cards_have_shown(self):
        plan = self.network("vit-tiny", "auto")
        self.assertEqual(self.names(plan), CALLS["both"])
        rows = self.report(plan)["attention"]["by_library"]
        self.assertEqual({row["what"] for row in rows}, {"attention", "gradient"})
        for row in rows:
            self.assertRegex(row["reason"], "the default for cuda:sm_90: H100: .* ms in place of")
        other = self.compile(ZOO / "vit-tiny" / "model.onnx", "--recipe", ZOO / "vit-tiny" / "recipe.toml", "--target", "cuda:sm_80", "--precision",
                             "bf16", plan="sm_80.tplan")
        self.assertFalse(self.names(other))
        for row in self.report(other)["attention"]["kept_from_library"]:
            self.assertEqual(row["reason"], "the default for cuda:sm_80: not measured")
        biased = self.biased("auto", ["slopes"])
        self.assertFalse(self.counts(biased).get("attention cuDNN"))
        self.assertEqual(self.kept(biased)["slopes", "attention"], "the default with a bias or mask for cuda:sm_90: not measured")

    # -- memory ----------------------------------------------------------------------------------------------------------

    def long_model(self, positions):
        """Two layers of attention without a bias, whose scores' gradients are larger than all other values."""
        model = self.folder / f"plain-{positions}.onnx"
        attention_biases.save(model, ["plain", "plain"], positions)
        return model, "--recipe", self.write("plain.toml", models.SQUARES + models.SGD), "--entry", "train", "--target", "cuda:sm_90", "--precision", "bf16", "--set", "offload.what=none"

    def peak(self, plan):
        memory = self.report(plan)["memory"]
        return memory["resident_bytes"] + memory["arena_bytes"]

    def test_budgets(self):
        """A budget is met with the library if it can be, else with kernels; a smaller one never gives a larger peak."""
        words = self.long_model(512)
        peaks = {calls: self.peak(self.compile(*words, "--set", f"compiler.attention_calls={calls}", plan=f"{calls}.tplan")) for calls in ("none", "both", "auto")}
        self.assertEqual(peaks["auto"], peaks["both"])
        self.assertGreater(peaks["both"], 2 * peaks["none"])
        self.refuse(3, ["memory budget"], "tcc", *words, "--set", "compiler.attention_calls=both", "--memory-budget", peaks["none"], "-o", "no.tplan")
        frontier = json.loads(self.succeed("tcc", "frontier", *words, "--json").out)
        least = frontier["resident_bytes"] + frontier["programs"]["step"]["points"][-1]["arena_bytes"]
        self.assertLessEqual(least, peaks["none"])
        previous, found = 0, set()
        for budget in sorted({least, peaks["none"], (peaks["none"] + peaks["both"]) // 2, peaks["both"] - 1, peaks["both"], 2 * peaks["both"]}):
            plan = self.compile(*words, "--memory-budget", budget, plan=f"{budget}.tplan")
            taken, names = self.peak(plan), self.names(plan)
            self.assertLessEqual(taken, budget)
            self.assertGreaterEqual(taken, previous)
            previous = taken
            found.add(frozenset(names))
            if not peaks["none"] < budget < peaks["both"]:
                self.assertEqual(names, CALLS["both"] if budget >= peaks["both"] else set())
            if not names:
                for reason in self.kept(plan).values():
                    self.assertRegex(reason, "no plan fits into the memory budget|an update takes less time")
        self.assertEqual(len(found), 2)
        self.refuse(3, ["memory budget"], "tcc", *words, "--memory-budget", least - 1, "-o", "no.tplan")

    def test_scratch_that_raises_the_memory_a_lot(self):
        """Without a budget the default takes no scratch that makes the plan much larger; what the recipe asks for is taken."""
        words = self.long_model(8192)
        plans = {calls: self.compile(*words, "--set", f"compiler.attention_calls={calls}", plan=f"{calls}.tplan") for calls in ("none", "both", "auto")}
        self.assertEqual(self.names(plans["both"]), CALLS["both"])
        self.assertGreater(self.peak(plans["both"]), self.peak(plans["none"]) + (1 << 30))
        self.assertFalse(self.names(plans["auto"]))
        self.assertEqual(self.peak(plans["auto"]), self.peak(plans["none"]))
        for reason in self.kept(plans["auto"]).values():
            self.assertRegex(reason, "its library's scratch would raise the memory from .* to ")

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
