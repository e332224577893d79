"""Low-rank adapters, and torch's names in exports: on the exports of adapters/, against peft's results."""
import hashlib
import json
import re
import shutil

import numpy as np
import onnx
import safetensors.numpy

from common import ROOT, EndToEnd, case, metrics

HERE = ROOT / "test" / "e2e" / "adapters"
EXPECTED = json.loads((HERE / "expected.json").read_text())
LOSS = ("--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set", "loss.class_axis=-1",
        "--set", "optimizer.lr=5e-3", "--set", "optimizer.weight_decay=0.1")
ADAPTER = ("--set", 'adapter.targets=["c_attn", "c_proj", "up", "h.*.down"]', "--set", "adapter.rank=4", "--set", "adapter.alpha=8",
           "--set", 'adapter.train=["ln_f.*"]')
INIT = ("--init", HERE / "initial" / "adapter_model.safetensors")
KEYS = ("peft_type", "r", "lora_alpha", "lora_dropout", "bias", "use_rslora", "modules_to_save", "fan_in_fan_out", "inference_mode")


def checksum(tensor):
    flat = tensor.astype(np.float64).ravel()
    return float(flat @ np.cos(0.37 * np.arange(flat.size)))


def rounded(weight, axes):
    """To 8 bits and a scale for the elements along `axes` together."""
    scale = np.maximum(np.abs(weight).max(axes, keepdims=True) / np.float32(127), np.finfo(np.float32).tiny)
    return (np.clip(np.rint(weight / scale), -127, 127) * scale).astype(np.float32)


class Adapters(EndToEnd):
    def adapt(self, export="dynamo", *settings, steps=50, init=INIT, out="run", plan="plan.tplan", more=()):
        self.compile(HERE / f"{export}.onnx", *LOSS, *ADAPTER, *settings, plan=plan)
        return self.train(self.folder / plan, HERE / "data.safetensors", *init, *more, steps=steps, out=out)

    def read(self, name):
        return safetensors.numpy.load_file(self.folder / name)

    def test_losses_and_adapters_are_those_of_peft(self):
        wanted = safetensors.numpy.load_file(HERE / "final" / "adapter_model.safetensors")
        config = json.loads((HERE / "final" / "adapter_config.json").read_text())
        for export in ("dynamo", "torchscript"):
            with self.subTest(export):
                self.setUp()
                run = self.adapt(export)
                for ours, torchs in zip([line["loss"] for line in metrics(run)[0]], EXPECTED["f32"], strict=True):
                    self.assertLess(abs(ours - torchs), 1e-6 * torchs)
                self.succeed("trun", "export", run, "-o", "adapter", "--adapter")
                written = self.read("adapter/adapter_model.safetensors")
                self.assertEqual({k: v.shape for k, v in written.items()}, {k: v.shape for k, v in wanted.items()})
                for name, tensor in wanted.items():
                    np.testing.assert_allclose(written[name], tensor, rtol=0, atol=2e-5, err_msg=name)
                ours = json.loads((self.folder / "adapter" / "adapter_config.json").read_text())
                self.assertEqual({key: ours[key] for key in KEYS}, {key: config[key] for key in KEYS})
                # trun writes whole paths; the recipe and peft name the last components.
                self.assertEqual({path.rpartition(".")[2] for path in ours["target_modules"]}, set(config["target_modules"]))
                self.assertEqual(len(ours["target_modules"]), 8)

    def test_exports_hold_the_merged_weights(self):
        run = self.adapt("dynamo")
        self.succeed("trun", "export", run, "-o", "merged.safetensors", "--merge", "--names", "torch")
        for name, tensor in self.read("merged.safetensors").items():
            self.assertLess(abs(checksum(tensor) - EXPECTED["merged"][name]), 1e-4, name)
        self.assertEqual(self.read("merged.safetensors").keys(), EXPECTED["merged"].keys())
        self.succeed("trun", "export", run, "-o", "merged.onnx")
        self.succeed("trun", "export", run, "-o", "onnx.safetensors", "--names", "onnx")
        graph, old = onnx.load(self.folder / "merged.onnx").graph, onnx.load(HERE / "dynamo.onnx").graph
        self.assertEqual([n.op_type for n in graph.node], [n.op_type for n in old.node])
        named = self.read("onnx.safetensors")
        before = {i.name: onnx.numpy_helper.to_array(i) for i in old.initializer}
        changed = set()
        for initializer in graph.initializer:
            value = onnx.numpy_helper.to_array(initializer)
            if initializer.name in named:
                np.testing.assert_array_equal(value, named[initializer.name])
            if not np.array_equal(value, before[initializer.name]):
                changed.add(initializer.name)
        # Only the adapted matrices and the other trained parameters changed; the rest of the base kept every bit.
        self.assertEqual(len(changed), 8 + 2, changed)
        # The run itself ends with the same model.
        self.assertEqual((run / "model.onnx").read_bytes(), (self.folder / "merged.onnx").read_bytes())
        data = safetensors.numpy.load_file(HERE / "data.safetensors")
        inputs = self.save("in.safetensors", ids=data["ids"][:4])
        self.compile(self.folder / "merged.onnx", plan="merged.tplan")
        self.succeed("trun", "predict", "merged.tplan", "--inputs", inputs, "--outputs", "merged-out.safetensors")
        self.succeed("trun", "predict", "plan.tplan", "--inputs", inputs, "--outputs", "out.safetensors", "--from", run)
        np.testing.assert_allclose(self.read("merged-out.safetensors")["logits"], self.read("out.safetensors")["logits"],
                                   atol=2e-5)

    def test_a_resumed_run_has_the_same_bits(self):
        self.adapt("dynamo", "--set", "adapter.dropout=0.2", steps=8, out="whole")
        self.train(self.folder / "plan.tplan", HERE / "data.safetensors", *INIT, steps=5, out="part")
        self.succeed("trun", "--resume", "part", "--steps", "8")
        for run in ("whole", "part"):
            self.succeed("trun", "export", run, "-o", f"{run}.safetensors", "--adapter")
        self.assertEqual((self.folder / "whole.safetensors").read_bytes(), (self.folder / "part.safetensors").read_bytes())
        states = [next((self.folder / run / "checkpoints" / "step-8").glob("*.safetensors")).read_bytes() for run in ("whole", "part")]
        self.assertEqual(*states)

    def test_an_adapter_starts_as_peft_starts_it(self):
        first = self.adapt(init=(), steps=0, more=("--no-release",))
        self.succeed("trun", "export", first, "-o", "a.safetensors", "--adapter")
        start = self.read("a.safetensors")
        for name, tensor in start.items():
            if "lora_B" in name:
                self.assertFalse(tensor.any(), name)
            elif "lora_A" in name:
                bound = tensor.shape[1] ** -0.5
                self.assertLessEqual(np.abs(tensor).max(), bound)
                self.assertGreater(np.abs(tensor).max(), 0.8 * bound)
                self.assertLess(abs(tensor.mean()), 0.25 * bound)
        values = [t.tobytes() for n, t in start.items() if "lora_A" in n]
        self.assertEqual(len(set(values)), len(values))
        # Before the first update the model is the base.
        self.succeed("trun", "export", first, "-o", "w.safetensors", "--names", "torch")
        self.compile(HERE / "dynamo.onnx", *LOSS, plan="base.tplan")
        base = self.train(self.folder / "base.tplan", HERE / "data.safetensors", "--no-release", steps=0, out="base")
        self.succeed("trun", "export", base, "-o", "b.safetensors", "--names", "torch")
        self.assertEqual((self.folder / "w.safetensors").read_bytes(), (self.folder / "b.safetensors").read_bytes())
        again = self.adapt("dynamo", "--set", "train.seed=1", init=(), steps=0, out="other", plan="other.tplan", more=("--no-release",))
        self.succeed("trun", "export", again, "-o", "c.safetensors", "--adapter")
        self.assertNotEqual((self.folder / "a.safetensors").read_bytes(), (self.folder / "c.safetensors").read_bytes())

    def test_a_base_in_bf16_takes_half_the_memory(self):
        whole = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER))
        run = self.adapt("dynamo", "--set", 'adapter.base="bf16"')
        for ours, torchs in zip([line["loss"] for line in metrics(run)[0]], EXPECTED["bf16"], strict=True):
            self.assertLess(abs(ours - torchs), 1e-6 * torchs)
        half = self.report(self.folder / "plan.tplan")
        matrices = sum(2 * np.prod(onnx.numpy_helper.to_array(i).shape) for i in onnx.load(HERE / "dynamo.onnx").graph.initializer
                       if i.data_type == 1 and len(i.dims) == 2 and i.dims[0] != i.dims[1] or i.name.endswith("c_proj.weight"))
        saved = whole["memory"]["resident"]["frozen"] - half["memory"]["resident"]["frozen"]
        self.assertEqual(saved, matrices)
        # An export has the model's own type again.
        model = onnx.load(run / "model.onnx").graph
        self.assertEqual({i.data_type for i in model.initializer if i.name == "wte.weight"}, {onnx.TensorProto.FLOAT})

    def test_a_base_in_8_bits_takes_a_quarter_of_the_memory(self):
        whole = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER))["memory"]["resident"]
        run = self.adapt("dynamo", "--set", 'adapter.base="int8"')
        for ours, torchs in zip([line["loss"] for line in metrics(run)[0]], EXPECTED["int8"], strict=True):
            self.assertLess(abs(ours - torchs), 1e-6 * torchs)
        report = self.report(self.folder / "plan.tplan")
        old = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(HERE / "dynamo.onnx").graph.initializer}
        # All matrices except the positions and a mask, which are added. A table has one scale for each row, a matrix one for each feature.
        matrices = {n: v for n, v in old.items() if v.ndim == 2 and n != "wpe" and v.shape != (12, 12) and v.dtype == np.float32}
        elements = sum(v.size for v in matrices.values())
        base = report["adapters"]["base"]
        self.assertEqual((base["tensors"], base["bytes"], base["model_bytes"]), (len(matrices), elements, 4 * elements))
        memory = report["memory"]["resident"]
        self.assertEqual(whole["frozen"] - memory["frozen"], 3 * elements)
        self.assertEqual(memory["constants"] - whole["constants"], base["scale_bytes"])
        self.assertLess(base["scale_bytes"] * 5, elements)
        self.assertEqual(base["widened"], [], "products read the integers, forward and for the gradient of the input")
        self.assertRegex(self.succeed("tcc", "report", "plan.tplan").out, rf"base in 8 bits: {len(matrices)} tensors, .* in place of")
        # Exports have the model's own type again, with the rounded values; what is not rounded keeps its bits.
        new = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(run / "model.onnx").graph.initializer}
        np.testing.assert_array_equal(new["wpe"], old["wpe"])
        np.testing.assert_array_equal(new["wte.weight"], rounded(old["wte.weight"], 1))
        self.assertEqual(new["wte.weight"].dtype, np.float32)

    def test_a_base_in_8_bits_resumes_and_starts_from_another_base(self):
        eight = ("--set", 'adapter.base="int8"')
        self.adapt("dynamo", *eight, steps=6, out="whole")
        self.train(self.folder / "plan.tplan", HERE / "data.safetensors", *INIT, steps=3, out="part")
        self.succeed("trun", "--resume", "part", "--steps", "6")
        states = [next((self.folder / run / "checkpoints" / "step-6").glob("*.safetensors")).read_bytes() for run in ("whole", "part")]
        self.assertEqual(*states)
        # A file of floating-point weights is rounded, and its rounded values belong to the run.
        self.compile(HERE / "dynamo.onnx", *LOSS, plan="base.tplan")
        base = self.train(self.folder / "base.tplan", HERE / "data.safetensors", steps=3, out="base")
        self.succeed("trun", "export", base, "-o", "base.safetensors", "--names", "torch")
        for source, out in (("base.safetensors", "other"), ("other", "again")):
            run = self.train(self.folder / "plan.tplan", HERE / "data.safetensors", "--init", source, steps=0, out=out)
            self.succeed("trun", "export", run, "-o", f"{out}.safetensors", "--names", "torch")
            self.succeed("trun", "eval", "plan.tplan", "--data", HERE / "data.safetensors", "--from", run)
            held = self.read(f"{out}.safetensors")
            np.testing.assert_array_equal(held["wte.weight"], rounded(self.read("base.safetensors")["wte.weight"], 1))
            np.testing.assert_array_equal(held["h.0.up.weight"], rounded(self.read("base.safetensors")["h.0.up.weight"], 1))
            state = safetensors.numpy.load_file(next((run / "checkpoints" / "step-0").glob("*.safetensors")))
            self.assertEqual((state["wte.weight"].dtype, state["wte.weight/scale"].shape), (np.int8, (40, 1)))
        self.succeed("trun", "--resume", "other", "--steps", "2")
        # Integers without their scales are refused.
        bare = self.save("bare.safetensors", **{"wte.weight": state["wte.weight"]})
        self.refuse(1, ["'wte.weight'", "'wte.weight/scale' belong together"], "trun", "plan.tplan", "--data", HERE / "data.safetensors",
                    "--init", bare, "--init-partial", "--steps", 1, "--out", "bare")
        # With bf16 products; without fusion.
        for more in (("--precision", "bf16"), ("--set", "compiler.fuse=false")):
            run = self.adapt("dynamo", *eight, *more, steps=8, out=more[-1], plan="more.tplan")
            for line, torchs in zip(metrics(run)[0], EXPECTED["int8"]):
                self.assertLess(abs(line["loss"] - torchs), (2e-2 if "bf16" in more else 1e-6) * torchs)

    def test_products_read_8_bits_as_they_are(self):
        """No matrix is widened in memory, and the losses are those of a base in f32 that holds the rounded values: at this level all
        products run on panels, so that both plans add in one order."""
        model, recipe, data, _ = case("hf-llama-tiny")
        settings = ("--recipe", recipe, "--target", "cpu:v3", "--set", 'adapter.targets=["q_proj", "v_proj", "down_proj"]', "--set",
                    "adapter.rank=4")
        graph = onnx.load(model)
        self.compile(model, *settings, "--set", 'adapter.base="int8"')
        kept = {one["name"] for one in self.report(self.folder / "plan.tplan")["adapters"]["base"]["kept"]}
        for initializer in graph.graph.initializer:
            value = onnx.numpy_helper.to_array(initializer)
            if value.ndim == 2 and initializer.name not in kept and value.dtype == np.float32:
                wide = rounded(value, 1 if "embed" in initializer.name else 0)
                initializer.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(wide), initializer.name))
        onnx.save(graph, self.folder / "rounded.onnx")
        for precision in ("f32", "bf16"):
            losses = []
            for file, kind in ((model, "int8"), ("rounded.onnx", "f32")):
                plan = self.compile(file, *settings, "--precision", precision, "--set", f'adapter.base="{kind}"')
                if kind == "int8":
                    self.assertEqual(self.report(plan)["adapters"]["base"]["widened"], [])
                losses.append([line["loss"] for line in metrics(self.train(plan, data, steps=6, out=f"{kind}-{precision}"))[0]])
            self.assertEqual(*losses)

    def test_no_8_bits_hold_infinity(self):
        model = onnx.load(HERE / "dynamo.onnx")
        table = next(i for i in model.graph.initializer if i.name == "wte.weight")
        values = onnx.numpy_helper.to_array(table).copy()
        values[3, 4] = np.inf
        table.CopyFrom(onnx.numpy_helper.from_array(values, "wte.weight"))
        onnx.save(model, self.folder / "infinite.onnx")
        self.refuse(1, ["adapter.base", "`wte.weight`", "infinite or NaN", "leave adapter.base out"], "tcc", "infinite.onnx", *LOSS, *ADAPTER,
                    "--set", 'adapter.base="int8"', "-o", "p.tplan")

    def test_nothing_is_kept_for_a_frozen_base(self):
        adapted = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER))
        whole = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, plan="whole.tplan"))
        self.assertEqual(len(adapted["parameters"]["trainable"]), 2 * 8 + 2)
        self.assertEqual(len(adapted["adapters"]["list"]), 8)
        self.assertIsNone(whole["adapters"])
        trained = adapted["memory"]["resident"]["parameters"]
        self.assertEqual(adapted["memory"]["resident"]["optimizer"], 2 * trained)
        self.assertLess(adapted["memory"]["peak_bytes"], whole["memory"]["peak_bytes"])
        text = self.succeed("tcc", "report", "plan.tplan").out
        self.assertIn("adapters: 8 of rank 4, scale 2", text)
        # Within a budget, the same bits.
        budget = adapted["memory"]["arena_bytes"] + adapted["memory"]["resident_bytes"]
        tight = self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--memory-budget", int(0.97 * budget), plan="tight.tplan")
        within = self.report(tight)["memory"]
        self.assertLessEqual(within["arena_bytes"] + within["resident_bytes"], 0.97 * budget)
        for plan in ("plan", "tight"):
            run = self.train(self.folder / f"{plan}.tplan", HERE / "data.safetensors", steps=4, out=plan)
            self.succeed("trun", "export", run, "-o", f"{plan}.safetensors", "--adapter")
        self.assertEqual((self.folder / "plan.safetensors").read_bytes(), (self.folder / "tight.safetensors").read_bytes())

    def test_dropout_is_trainings_alone(self):
        run = self.adapt("dynamo", "--set", "adapter.dropout=0.5", "--set", "adapter.rank_stabilized=true", steps=3)
        plain = self.adapt("dynamo", "--set", "adapter.rank_stabilized=true", steps=3, out="plain", plan="plain.tplan")
        losses = [[line["loss"] for line in metrics(r)[0]] for r in (run, plain)]
        self.assertEqual(losses[0][0], losses[1][0])  # B is zero before the first update
        self.assertNotEqual(losses[0][2], losses[1][2])
        results = [json.loads(self.succeed("trun", "eval", p, "--data", HERE / "data.safetensors", "--from", run).out)
                   for p in ("plan.tplan", "plain.tplan")]
        self.assertEqual(*results)
        self.succeed("trun", "export", run, "-o", "adapter", "--adapter")
        config = json.loads((self.folder / "adapter" / "adapter_config.json").read_text())
        self.assertEqual((config["lora_dropout"], config["use_rslora"]), (0.5, True))

    def test_bf16_averages_groups_and_accumulation_work_with_adapters(self):
        run = self.adapt("dynamo", "--set", "train.ema.decay=0.5", "--set", "train.accumulate=2", "--set", "train.clip_norm=1",
                         "--set", 'optimizer.decay_exempt=["*.lora_B.weight"]', "--precision", "bf16", steps=4)
        groups = {g["name"]: g["parameters"] for g in self.report(self.folder / "plan.tplan")["parameters"]["groups"]}
        self.assertEqual(len(groups["no weight decay"]), 8)
        self.succeed("trun", "export", run, "-o", "last.safetensors", "--adapter")
        self.succeed("trun", "export", run, "-o", "ema.safetensors", "--adapter", "--ema")
        last, averaged = self.read("last.safetensors"), self.read("ema.safetensors")
        self.assertEqual(last.keys(), averaged.keys())
        name = "base_model.model.h.0.up.lora_B.weight"
        self.assertLess(np.linalg.norm(averaged[name]), np.linalg.norm(last[name]))

    def test_messages_of_the_recipe(self):
        for settings, patterns in (
                (['adapter.targets=["wpe"]'], ["adapter.targets", "`wpe`, which is read by broadcast", "nearest is wte"]),
                (['adapter.targets=["h.0.up.bias"]'], ["`h.0.up.bias`, which is no matrix"]),
                (['adapter.targets=["q_proj"]'], ['"q_proj" matches no matrix, filter or table that can be adapted']),
                (['adapter.targets=["up"]', "adapter.rank=25"], ["adapter.rank", "24 inputs and 48 results"]),
                (["adapter.rank=4"], ["adapter.rank needs adapter.targets"]),
                (["adapter.lora_alpha=4"], ["nearest known one is adapter.alpha"]),
                (['adapter.targets=["up"]', 'adapter.match=["up"]'], ["adapter.match is another name"]),
                (['adapter.targets=["up"]', 'adapter.train=["ln_g.*"]'], ["adapter.train: `ln_g.\\*` matches no parameter"]),
                (['adapter.targets=["up"]', 'model.trainable=["wte.weight"]'], ["model.trainable", "adapter.train"])):
            with self.subTest(settings):
                self.refuse(1, patterns, "tcc", HERE / "dynamo.onnx", *LOSS, "-o", "p.tplan",
                            *(word for setting in settings for word in ("--set", setting)))

    def test_messages_of_the_export(self):
        run = self.adapt(steps=1)
        self.compile(HERE / "dynamo.onnx", *LOSS, plan="whole.tplan")
        whole = self.train(self.folder / "whole.tplan", HERE / "data.safetensors", steps=1, out="whole")
        for flag in ("--adapter", "--merge"):
            self.refuse(2, ["trained no adapter"], "trun", "export", whole, "-o", "x.safetensors", flag)
        self.refuse(2, ["--adapter", "--merge"], "trun", "export", run, "-o", "x", "--adapter", "--merge")
        self.refuse(2, ["--names torch", "safetensors"], "trun", "export", run, "-o", "x.onnx", "--names", "torch")
        self.refuse(2, ["--root j: no weight's name begins"], "trun", "export", run, "-o", "x.safetensors", "--root", "j")
        self.refuse(2, ["ln_f", "outside"], "trun", "export", run, "-o", "x", "--adapter", "--root", "h")
        self.succeed("trun", "export", run, "-o", "h.safetensors", "--root", "h.0")
        self.assertIn("up.weight", self.read("h.safetensors"))
        bias = self.adapt("dynamo", "--set", 'adapter.train=["h.0.up.bias"]', init=(), steps=1, out="bias", plan="bias.tplan")
        self.refuse(1, ["h.0.up.bias", "peft has no place", "model.onnx"], "trun", "export", bias, "-o", "x", "--adapter")

    def test_runs_without_the_adapter_that_is_asked_for(self):
        run = self.adapt(steps=2)
        words = ("trun", "export")

        def changed(name, change):
            shutil.copytree(run, self.folder / name)
            change(self.folder / name)
            return name
        # Folders that are no run, or only a part of one.
        (self.folder / "foreign").mkdir()
        self.write("foreign/notes", "thesis")
        self.refuse(1, ["foreign: it is no run folder: it has neither run.json nor a lock that trun wrote; give the folder that trun --out named"],
                    *words, "foreign", "-o", "x", "--adapter")
        self.refuse(1, ["nowhere: no such run folder"], *words, "nowhere", "-o", "x", "--adapter")
        (run / "ranks").mkdir()
        for part, selector in (("checkpoints/step-2", "@2"), ("checkpoints", ""), ("plan.tplan", ""), ("ranks", "")):
            self.refuse(1, [rf"run/{part}: it is a part of the run (\S+); give \1{selector}$"], *words, f"run/{part}", "-o", "x", "--adapter")
        self.succeed(*words, f"{run}@2", "-o", "two", "--adapter")
        self.refuse(1, ["two: it is no run folder"], *words, "two", "-o", "x", "--adapter")
        empty = changed("empty", lambda folder: shutil.rmtree(folder / "checkpoints"))
        self.refuse(1, ["empty: the run has no checkpoint"], *words, empty, "-o", "x", "--adapter")
        self.refuse(1, ["no checkpoint of step 1; there are 2"], *words, f"{run}@1", "-o", "x", "--adapter")
        # Another plan than the checkpoint's; no plan.
        self.compile(HERE / "dynamo.onnx", *LOSS, plan="whole.tplan")
        other = changed("other", lambda folder: shutil.copy(self.folder / "whole.tplan", folder / "plan.tplan"))
        self.refuse(1, ["it is not the plan that the checkpoint of step 2 was made with", "bring that plan back"], *words, other, "-o", "x",
                    "--adapter")
        bare = changed("bare", lambda folder: (folder / "plan.tplan").unlink())
        self.refuse(1, ["bare/plan.tplan: cannot open", "tcc makes the same one"], *words, bare, "-o", "x", "--adapter")
        shutil.copy(self.folder / "plan.tplan", self.folder / "bare/plan.tplan")
        self.succeed(*words, bare, "-o", "again", "--adapter")
        self.assertEqual((self.folder / "again/adapter_model.safetensors").read_bytes(),
                         (self.folder / "two/adapter_model.safetensors").read_bytes())
        # The merged model has no adapter.
        self.succeed(*words, run, "-o", "merged.onnx")
        self.compile("merged.onnx", *LOSS, plan="merged.tplan")
        merged = self.train(self.folder / "merged.tplan", HERE / "data.safetensors", steps=1, out="merged")
        self.refuse(2, ["trained no adapter; leave --adapter out"], *words, merged, "-o", "x", "--adapter")
        for name in ("x.onnx", "x.npz"):
            self.refuse(2, [f"{name}: --adapter writes a folder, or NAME.safetensors"], *words, run, "-o", name, "--adapter")
        self.assertFalse([p for p in self.folder.iterdir() if p.name.startswith("x")])

    def test_a_module_around_the_adapted_one_is_named(self):
        """If all names begin with one module, peft's model may be that module: the export says how to change the names."""
        model = onnx.load(HERE / "dynamo.onnx")
        def inside(name):
            return re.sub(r"^(?=(h|wte|wpe|ln_f|lm_head)\b)", "model.", name)
        for tensor in model.graph.initializer:
            tensor.name = inside(tensor.name)
        for node in model.graph.node:
            node.input[:] = [inside(name) for name in node.input]
        for value in model.graph.value_info:
            value.name = inside(value.name)
            for note in value.metadata_props:
                if note.key.endswith("folded_from"):
                    note.value = re.sub(r"'([^']+)'", lambda found: f"'{inside(found[1])}'", note.value)
        onnx.save(model, self.folder / "wrapped.onnx")
        adapter = ("--set", 'adapter.targets=["model.h.0.c_proj*"]')
        self.compile("wrapped.onnx", *LOSS, *adapter)
        run = self.train(self.folder / "plan.tplan", HERE / "data.safetensors", steps=1)
        said = self.succeed("trun", "export", run, "-o", "a.safetensors", "--adapter").err
        self.assertRegex(said, r"note: a\.safetensors: every name begins with 'model\.': .*--root model")
        self.assertNotIn("--root", self.succeed("trun", "export", run, "-o", "b.safetensors", "--adapter", "--root", "model").err)
        self.assertTrue(all(".model.h.0." in name for name in self.read("b.safetensors")))
        self.assertNotIn("--root", self.succeed("trun", "export", self.adapt(steps=1, out="plain"), "-o", "c.safetensors", "--adapter").err)

    def test_a_run_may_start_from_another_base(self):
        run = self.adapt(init=(), steps=0, more=("--no-release",))
        self.succeed("trun", "export", run, "-o", "w.safetensors", "--names", "torch")
        weights = self.read("w.safetensors")
        weights["h.0.up.weight"] = weights["h.0.up.weight"] + 1
        base = self.save("base.safetensors", **weights)
        for steps in (0, 3):
            other = self.train(self.folder / "plan.tplan", HERE / "data.safetensors", "--init", base, steps=steps, out=f"other{steps}")
            self.succeed("trun", "export", other, "-o", "o.safetensors", "--names", "torch")
            self.succeed("trun", "export", other, "-o", "a.safetensors", "--adapter")
            merged, adapter = self.read("o.safetensors"), self.read("a.safetensors")
            a, b = (adapter[f"base_model.model.h.0.up.lora_{part}.weight"].astype(np.float64) for part in "AB")
            self.assertEqual(bool(b.any()), steps > 0)
            np.testing.assert_allclose(merged["h.0.up.weight"], weights["h.0.up.weight"] + 2 * b @ a, rtol=0, atol=1e-6)


class Names(EndToEnd):
    def test_exports_have_the_names_and_values_of_state_dict(self):
        state = json.loads((HERE / "state.json").read_text())
        for export in ("dynamo", "torchscript"):
            with self.subTest(export):
                self.setUp()
                self.compile(HERE / f"{export}.onnx", *LOSS)
                run = self.train(self.folder / "plan.tplan", HERE / "data.safetensors", "--no-release", steps=0)
                said = self.succeed("trun", "export", run, "-o", "w.safetensors", "--names", "torch").err
                written = safetensors.numpy.load_file(self.folder / "w.safetensors")
                self.assertEqual({name: {"shape": list(t.shape), "sha256": hashlib.sha256(t.tobytes()).hexdigest()}
                                  for name, t in written.items()}, state)
                # The older exporter writes no notes about weights: the export says that it used the nodes' names.
                self.assertEqual("lm_head.weight" in said and "names of the nodes" in said, export == "torchscript")
                self.succeed("trun", "export", run, "-o", "graph.safetensors", "--names", "onnx")
                graphs = set(safetensors.numpy.load_file(self.folder / "graph.safetensors"))
                self.assertLessEqual({i.name for i in onnx.load(HERE / f"{export}.onnx").graph.initializer
                                      if i.data_type == 1 and len(i.dims) == 2 and i.dims[0] != i.dims[1]}, graphs)
                # --init reads the same weights from both files.
                for name in ("w", "graph"):
                    again = self.train(self.folder / "plan.tplan", HERE / "data.safetensors", "--no-release",
                                       "--init", f"{name}.safetensors", steps=2, out=name)
                    self.succeed("trun", "export", again, "-o", f"{name}-2.safetensors", "--names", "torch")
                self.assertEqual((self.folder / "w-2.safetensors").read_bytes(), (self.folder / "graph-2.safetensors").read_bytes())

    def test_every_parameter_of_the_zoo_has_its_name(self):
        """Also for hf-llama-tiny and unet-tiny, whose exporter renamed and reshaped weights."""
        for name in ("hf-llama-tiny", "unet-tiny"):
            model, recipe, data, _ = case(name)
            self.compile(model, "--recipe", recipe)
            run = self.train(self.folder / "plan.tplan", data, "--no-release", steps=0, out=name)
            self.succeed("trun", "export", run, "-o", "w.safetensors", "--names", "torch")
            written = safetensors.numpy.load_file(self.folder / "w.safetensors")
            self.assertFalse([n for n in written if n.startswith(("val_", "unsqueeze"))])
            file = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(model).graph.initializer}
            if name == "hf-llama-tiny":
                np.testing.assert_array_equal(written["model.model.layers.0.self_attn.k_proj.weight"], file["val_117"].T)
            else:
                np.testing.assert_array_equal(written["down1.1.weight"], file["val_20"].ravel())


CONVS = HERE / "convs"
CONV_LOSS = ("--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set", "optimizer.lr=5e-3", "--set",
             "optimizer.weight_decay=0.1", "--set", "adapter.rank=4", "--set", "adapter.alpha=8")
ALL = ("--set", 'adapter.targets=["first", "tall", "point", "line", "words", "head"]')


class Convolutions(EndToEnd):
    """Adapters of filters and of a table of embeddings, against peft (adapters/make_convs.py)."""

    def adapt(self, *settings, steps=30, init=("--init", CONVS / "initial" / "adapter_model.safetensors"), out="run", plan="plan.tplan"):
        self.compile(CONVS / "model.onnx", *CONV_LOSS, *settings, plan=plan)
        return self.train(self.folder / plan, CONVS / "data.safetensors", *init, steps=steps, out=out)

    def test_losses_adapters_and_merged_weights_are_those_of_peft(self):
        expected = json.loads((CONVS / "expected.json").read_text())
        wanted = safetensors.numpy.load_file(CONVS / "final" / "adapter_model.safetensors")
        run = self.adapt(*ALL)
        for ours, torchs in zip([line["loss"] for line in metrics(run)[0]], expected["losses"], strict=True):
            self.assertLess(abs(ours - torchs), 1e-6 * torchs)
        self.succeed("trun", "export", run, "-o", "adapter", "--adapter")
        written = safetensors.numpy.load_file(self.folder / "adapter" / "adapter_model.safetensors")
        self.assertEqual({k: v.shape for k, v in written.items()}, {k: v.shape for k, v in wanted.items()})
        for name, tensor in wanted.items():
            np.testing.assert_allclose(written[name], tensor, rtol=0, atol=2e-5, err_msg=name)
        config = json.loads((CONVS / "final" / "adapter_config.json").read_text())
        ours = json.loads((self.folder / "adapter" / "adapter_config.json").read_text())
        self.assertEqual({key: ours[key] for key in KEYS}, {key: config[key] for key in KEYS})
        self.assertEqual(set(ours["target_modules"]), set(config["target_modules"]))
        self.succeed("trun", "export", run, "-o", "merged.safetensors", "--merge", "--names", "torch")
        merged = safetensors.numpy.load_file(self.folder / "merged.safetensors")
        self.assertEqual(merged.keys(), expected["merged"].keys())
        for name, tensor in merged.items():
            self.assertLess(abs(checksum(tensor) - expected["merged"][name]), 1e-4, name)
        self.check_merged(run)

    def check_merged(self, run):
        """Expects that the merged model computes the same as the adapted one, whose plan is plan.tplan."""
        data = safetensors.numpy.load_file(CONVS / "data.safetensors")
        inputs = self.save("in.safetensors", image=data["image"][:4], ids=data["ids"][:4])
        self.compile(run / "model.onnx", plan="merged.tplan")
        results = []
        for plan, more in (("merged.tplan", ()), ("plan.tplan", ("--from", run))):
            self.succeed("trun", "predict", plan, "--inputs", inputs, "--outputs", "out.safetensors", *more)
            results.append(safetensors.numpy.load_file(self.folder / "out.safetensors")["logits"])
        np.testing.assert_allclose(*results, atol=2e-5)

    def test_they_start_as_peft_starts_them(self):
        run = self.adapt(*ALL, init=(), steps=0)
        self.succeed("trun", "export", run, "-o", "a.safetensors", "--adapter")
        start = safetensors.numpy.load_file(self.folder / "a.safetensors")
        names = {name.removeprefix("base_model.model."): tensor for name, tensor in start.items()}
        for name in ("first.lora_B.weight", "line.lora_B.weight", "words.lora_embedding_A"):
            self.assertFalse(names[name].any(), name)
        for name, inputs in (("first.lora_A.weight", 27), ("line.lora_A.weight", 40)):
            self.assertLessEqual(np.abs(names[name]).max(), inputs ** -0.5)
            self.assertGreater(np.abs(names[name]).max(), 0.8 * inputs ** -0.5)
        table = names["words.lora_embedding_B"]
        self.assertLess(abs(table.std() - 1), 0.4)
        self.assertGreater(np.abs(table).max(), 1.2)

    def test_a_base_in_8_bits_has_a_scale_for_each_channel(self):
        run = self.adapt(*ALL, "--set", 'adapter.base="int8"', init=(), steps=4)
        base = self.report(self.folder / "plan.tplan")["adapters"]["base"]
        self.assertEqual(base["tensors"], 8)
        # A widened filter is live only for its reader and the kernel before it, in both directions.
        self.assertEqual({p["name"] for p in base["widened"]}, {"step", "evaluate", "predict"})
        step = next(p for p in base["widened"] if p["name"] == "step")
        times = {}
        for copy in step["copies"]:
            times[copy["name"]] = times.get(copy["name"], 0) + 1
        self.assertEqual(max(times.values()), 2, "once for the forward pass, once for the gradient of the input")
        self.assertNotIn("words.weight", times)
        self.assertLessEqual(max(c["last"] - c["first"] for c in step["copies"]), 2)
        self.assertLessEqual(step["most_bytes"], 2 * max(c["bytes"] for c in step["copies"]))
        self.succeed("trun", "export", run, "-o", "w.safetensors", "--names", "torch")
        held = safetensors.numpy.load_file(self.folder / "w.safetensors")
        old = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(CONVS / "model.onnx").graph.initializer}
        for name in ("depthwise.weight", "dilated.weight"):
            np.testing.assert_array_equal(held[name], rounded(old[name], (1, 2, 3)), name)

    def test_dilated_filters_are_merged_and_groups_refused(self):
        run = self.adapt("--set", 'adapter.targets=["dilated"]', init=(), steps=5)
        losses = [line["loss"] for line in metrics(run)[0]]
        self.assertNotEqual(losses[0], losses[4])
        self.refuse(1, ["'dilated.weight'", "no dilation", "-o model.onnx"], "trun", "export", run, "-o", "x", "--adapter")
        self.check_merged(run)
        self.refuse(1, ["adapter.targets", "`depthwise.weight`, which is the filter of a convolution in 8 groups", "first"], "tcc",
                    CONVS / "model.onnx", *CONV_LOSS, "--set", 'adapter.targets=["depthwise"]', "-o", "p.tplan")
        self.refuse(1, ["adapter.rank", "`first.weight`, a filter of 27 inputs and 8 results"], "tcc", CONVS / "model.onnx", *CONV_LOSS,
                    "--set", 'adapter.targets=["first"]', "--set", "adapter.rank=9", "-o", "p.tplan")


if __name__ == "__main__":
    import unittest
    unittest.main()
