"""Frozen bases in 4 bits, against bitsandbytes' NF4 and MatMulNBits' integers as numpy computes them, with nested scales and without."""
import re

import models
import numpy as np
import onnx
import safetensors.numpy
import test_moments as moments
from onnx import helper, numpy_helper

from common import ROOT, EndToEnd, case, metrics

HERE = ROOT / "test" / "e2e" / "adapters"
LOSS = ("--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set", "loss.class_axis=-1",
        "--set", "optimizer.lr=5e-3")
ADAPTER = ("--set", 'adapter.targets=["c_attn", "c_proj", "up", "h.*.down"]', "--set", "adapter.rank=4", "--set", "adapter.alpha=8",
           "--set", 'adapter.train=["ln_f.*"]')
DATA = HERE / "data.safetensors"

# bitsandbytes: the code book of functional.create_normal_map and the tree of comparisons in dQuantizeNF4 (csrc/kernels.cu). Four
# of its literals are ties between two numbers of f32, which C++ rounds otherwise than Python does by way of f64.
NUMBERS = np.float32([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                      -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                      0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


def nearest(x):
    if x > np.float32(0.03979014977812767):
        if x > np.float32(0.3893125355243683):
            if x > np.float32(0.6427869200706482):
                return 15 if x > np.float32(0.861478388309478759765625) else 14
            return 13 if x > np.float32(0.501663386821746826171875) else 12
        if x > np.float32(0.2035212516784668):
            return 11 if x > np.float32(0.2920137718319893) else 10
        return 9 if x > np.float32(0.120255254209041595458984375) else 8
    if x > np.float32(-0.33967943489551544):
        if x > np.float32(-0.13791173323988914):
            return 7 if x > np.float32(-0.045525018125772476) else 6
        return 5 if x > np.float32(-0.23460740596055984) else 4
    if x > np.float32(-0.6106329262256622):
        return 3 if x > np.float32(-0.4599952697753906) else 2
    return 1 if x > np.float32(-0.848096430301666259765625) else 0


def nf4(w, block):
    """(bytes, scales, values) of a matrix as torch stores it: quantize_4bit and dequantize_4bit."""
    flat = w.astype(np.float32).ravel()
    scales = np.float32([np.abs(flat[i:i + block]).max() for i in range(0, flat.size, block)])
    each = np.repeat(scales, block)[:flat.size]
    codes = np.array([nearest(x) for x in flat * (np.float32(1) / np.maximum(each, np.float32(1e-38)))], np.uint8)
    halves = np.append(codes, [7] * (codes.size % 2)).astype(np.uint8)
    return halves[0::2] << 4 | halves[1::2], scales, (NUMBERS[codes] * each).reshape(w.shape)


def int4(w, block):
    """The same in integers, with the layout and the values of MatMulNBits without zero points; the end of the last row is not padded."""
    w = w.astype(np.float32)
    rows, columns = w.shape
    blocks = -(-columns // block)
    codes, scales, values = np.zeros((rows, blocks * block), np.uint8), np.zeros((rows, blocks), np.float32), np.zeros_like(w)
    for r in range(rows):
        for b in range(blocks):
            part = w[r, b * block:(b + 1) * block]
            largest = part.min() if -part.min() >= part.max() else part.max()
            scale = largest / np.float32(-8)
            q = np.clip(np.rint(part / scale), -8, 7) if scale else np.zeros_like(part)
            scales[r, b] = scale
            codes[r, b * block:b * block + part.size] = q + 8
            values[r, b * block:b * block + part.size] = q * scale
    halves = codes.ravel()[:(rows - 1) * blocks * block + columns]
    halves = np.append(halves, [0] * (halves.size % 2)).astype(np.uint8)
    return halves[0::2] | halves[1::2] << 4, scales.ravel(), values


def nested_nf4(w, block):
    """(bytes, (codes of scales, their numbers), values): quantize_4bit with compress_statistics; the mean is rounded once."""
    codes, scales, _ = nf4(w, block)
    mean = np.float32(scales.astype(np.float64).sum() / scales.size)
    nested, absmax = moments.quantized(scales - mean, True)
    wide = (moments.NUMBERS[True][nested] * np.repeat(absmax, moments.BLOCK) + mean)[:scales.size]
    halves = np.stack([codes >> 4, codes & 15], axis=1).ravel()[:w.size]
    return codes, (nested[:scales.size], np.append(mean, absmax)), (NUMBERS[halves] * np.repeat(wide, block)[:w.size]).reshape(w.shape)


BASES = {"nf4": (nf4, "absmax"), "int4": (int4, "scale"), "nested": (nested_nf4, "absmax")}


def base_of(name):
    """The words that choose one of BASES."""
    return ("--set", 'adapter.base="nf4"', "--set", "adapter.nested=true") if name == "nested" else ("--set", f'adapter.base="{name}"')


def scales_of(name, scales, scale):
    """The tensors of a checkpoint that hold the scales of a weight."""
    return {f"{name}/absmax": scales[0], f"{name}/nested_absmax": scales[1]} if isinstance(scales, tuple) else {f"{name}/{scale}": scales}


def initializers(model):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(model).graph.initializer}


class FourBits(EndToEnd):
    def adapt(self, *settings, model=HERE / "dynamo.onnx", steps=6, out="run", plan="plan.tplan", more=()):
        self.compile(model, *LOSS, *ADAPTER, *settings, plan=plan)
        return self.train(self.folder / plan, DATA, *more, steps=steps, out=out)

    def read(self, name):
        return safetensors.numpy.load_file(self.folder / name)

    def losses(self, run):
        return [line["loss"] for line in metrics(run)[0]]

    def state(self, run, step):
        return safetensors.numpy.load_file(next((run / "checkpoints" / f"step-{step}").glob("*.safetensors")))

    def odd_model(self, seed, inputs, hidden, outputs):
        """A table, a matrix stored [inputs, hidden] and one stored [outputs, hidden], with blocks of zeros and of one magnitude."""
        rng = np.random.default_rng(seed)
        weights = {"table": rng.standard_normal((11, inputs)), "a.weight": rng.standard_normal((inputs, hidden)),
                   "b.weight": rng.standard_normal((outputs, hidden)) * 1e-3}
        weights = {name: value.astype(np.float32) for name, value in weights.items()}
        weights["a.weight"][:, :2] = 0
        weights["b.weight"][0] = np.where(rng.random(hidden) < 0.5, -0.25, 0.25)
        nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]), helper.make_node("MatMul", ["x", "a.weight"], ["h"], "a"),
                 helper.make_node("Gemm", ["h", "b.weight"], ["y"], "b", transB=1)]
        graph = helper.make_graph(nodes, "odd", [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [6])],
                                  [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [6, outputs])],
                                  [numpy_helper.from_array(value, name) for name, value in weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "odd.onnx")
        return weights

    def test_values_bytes_and_scales_are_those_of_numpy(self):
        data = self.save("data.safetensors", ids=np.arange(24) % 11, labels=np.arange(24) % 3)
        for base, (rounding, scale) in BASES.items():
            for seed, (block, inputs, hidden, outputs) in enumerate(((64, 13, 37, 5), (32, 65, 31, 3), (128, 64, 96, 7), (256, 129, 3, 33))):
                with self.subTest(base=base, block=block, sizes=(inputs, hidden, outputs)):
                    weights = self.odd_model(seed, inputs, hidden, outputs)
                    self.compile("odd.onnx", "--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set",
                                 'adapter.targets=["a", "b", "table"]', "--set", "adapter.rank=2", *base_of(base),
                                 "--set", f"adapter.block={block}")
                    # The same values, read from a file, are the run's own: its checkpoint holds them.
                    other = {name: value * np.float32(1.5) for name, value in weights.items()}
                    init = self.save("init.safetensors", **other)
                    for values, more in ((weights, ()), (other, ("--init", init))):
                        out = f"run-{base}-{seed}-{len(more)}"
                        run = self.train(self.folder / "plan.tplan", data, *more, steps=1, out=out)
                        first = self.train(self.folder / "plan.tplan", data, "--no-release", *more, steps=0, out=f"{out}-0")
                        self.succeed("trun", "export", first, "-o", "w.safetensors")
                        held, state = self.read("w.safetensors"), self.state(run, 1)
                        for name, value in values.items():
                            torchs = value.T if name == "a.weight" else value
                            codes, scales, rounded = rounding(torchs, block)
                            rounded = rounded.T if name == "a.weight" else rounded
                            held_scales = scales_of(name, scales, scale)
                            if codes.nbytes + sum(part.nbytes for part in held_scales.values()) >= value.nbytes:
                                rounded = value  # stays as it is
                            elif more:
                                for key, part in {name: codes, **held_scales}.items():
                                    np.testing.assert_array_equal(state[key], part, key)
                            np.testing.assert_array_equal(held[name], rounded, name)
                    self.assertEqual(sorted(n for n in held if "lora" not in n), sorted(weights))

    def test_training_is_that_on_the_rounded_weights(self):
        """A small Llama: the losses are those of a base in f32 that holds the rounded values."""
        model, recipe, data, _ = case("hf-llama-tiny")
        settings = ("--recipe", recipe, "--set", 'adapter.targets=["q_proj", "v_proj", "down_proj"]', "--set", "adapter.rank=4")
        for base, (rounding, _) in BASES.items():
            with self.subTest(base):
                graph = onnx.load(model)
                self.compile(model, *settings, *base_of(base), plan="four.tplan")
                four = self.train(self.folder / "four.tplan", data, steps=12, out=f"four-{base}")
                report = self.report(self.folder / "four.tplan")
                kept = {one["name"] for one in report["adapters"]["base"]["kept"]}
                for initializer in graph.graph.initializer:
                    value = numpy_helper.to_array(initializer)
                    if value.ndim != 2 or initializer.name in kept or value.dtype != np.float32:
                        continue
                    torchs = value if "embed" in initializer.name else value.T
                    rounded = rounding(torchs, 64)[2]
                    rounded = rounded if "embed" in initializer.name else rounded.T
                    initializer.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(rounded), initializer.name))
                onnx.save(graph, self.folder / "rounded.onnx")
                self.compile("rounded.onnx", *settings, plan="whole.tplan")
                whole = self.train(self.folder / "whole.tplan", data, steps=12, out=f"whole-{base}")
                # Products of this size are one block of K, whose sums run in one order whoever computes them.
                self.assertEqual(self.losses(four), self.losses(whole))
                if base != "int4":
                    both = []
                    for file, kind in ((model, base), ("rounded.onnx", "f32")):
                        self.compile(file, *settings, "--target", "cpu:v3", *base_of(kind), plan="v3.tplan")
                        both.append(self.losses(self.train(self.folder / "v3.tplan", data, steps=6, out=f"v3-{base}-{kind}")))
                    self.assertEqual(*both)
                old, new = self.report(self.folder / "whole.tplan"), report
                base_report = new["adapters"]["base"]
                kind = "nf4" if base == "nested" else base
                self.assertEqual((base_report["kind"], base_report["block"], base_report["nested"]), (kind, 64, base == "nested"))
                self.assertEqual(old["memory"]["resident"]["frozen"] - new["memory"]["resident"]["frozen"],
                                 base_report["model_bytes"] - base_report["bytes"])
                map_bytes = 256 * 4 if base == "nested" else 0 # of the scales' codes, one for all matrices
                self.assertEqual(new["memory"]["resident"]["constants"] - old["memory"]["resident"]["constants"],
                                 base_report["scale_bytes"] + map_bytes)
                # Products unpack into their panels: no widened matrix is in memory.
                self.assertEqual(base_report["widened"], [])

    def test_products_in_bf16_unpack_too(self):
        """No level widens a matrix in memory, and the losses are those of a base in f32 that holds the rounded values."""
        model, recipe, data, _ = case("hf-llama-tiny")
        settings = ("--recipe", recipe, "--precision", "bf16", "--set", 'adapter.targets=["q_proj", "v_proj", "down_proj"]', "--set",
                    "adapter.rank=4")
        for base, (rounding, _) in BASES.items():
            with self.subTest(base):
                for target in ("cpu:v3", "cpu:v4", "cpu:v4-bf16"):
                    self.compile(model, *settings, "--target", target, *base_of(base), plan="four.tplan")
                    found = self.report(self.folder / "four.tplan")["adapters"]["base"]
                    self.assertEqual(found["widened"], [], target)
                kept = {one["name"] for one in found["kept"]}
                graph = onnx.load(model)
                for initializer in graph.graph.initializer:
                    value = numpy_helper.to_array(initializer)
                    if value.ndim == 2 and initializer.name not in kept and value.dtype == np.float32:
                        table = "embed" in initializer.name
                        rounded = rounding(value if table else value.T, 64)[2]
                        initializer.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(rounded if table else rounded.T), initializer.name))
                onnx.save(graph, self.folder / "rounded.onnx")
                # At this level all products run on panels, so that both plans add in one order.
                both = []
                for file, kind in ((model, base), ("rounded.onnx", "f32")):
                    self.compile(file, *settings, "--target", "cpu:v3", *base_of(kind), plan="v3.tplan")
                    both.append(self.losses(self.train(self.folder / "v3.tplan", data, steps=6, out=f"v3-{base}-{kind}")))
                self.assertEqual(*both)
                self.compile(model, *settings, *base_of(base), plan="four.tplan")
                run = self.train(self.folder / "four.tplan", data, steps=6, out=f"four-{base}")
                np.testing.assert_allclose(self.losses(run), both[1], rtol=2e-3)

    def test_memory_is_that_of_4_bits(self):
        report = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--set", 'adapter.base="nf4"'))
        weights = initializers(HERE / "dynamo.onnx")
        matrices = {n: v for n, v in weights.items() if v.ndim == 2 and n != "wpe" and v.shape != (12, 12) and v.dtype == np.float32}
        base = report["adapters"]["base"]
        self.assertEqual(base["tensors"], len(matrices))
        self.assertEqual(base["bytes"], sum((v.size + 1) // 2 for v in matrices.values()))
        self.assertEqual(base["scale_bytes"], sum(4 * -(-v.size // 64) for v in matrices.values()))
        self.assertEqual(base["model_bytes"], sum(4 * v.size for v in matrices.values()))
        self.assertIn("wpe", {one["name"] for one in base["kept"]})
        nested = self.report(self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, *base_of("nested"), plan="nested.tplan"))["adapters"]["base"]
        blocks = [-(-v.size // 64) for v in matrices.values()]
        self.assertEqual(nested["scale_bytes"], sum(count + 4 + 4 * -(-count // 256) for count in blocks))
        self.assertIn("nf4, blocks of 64, nested scales", self.succeed("tcc", "report", "nested.tplan").out)
        text = self.succeed("tcc", "report", "plan.tplan").out
        self.assertRegex(text, rf"base in 4 bits \(nf4, blocks of 64\): {len(matrices)} tensors, .* in place of")
        self.assertRegex(text, "frozen tensors? of .* in the model's type")

    def test_cards_widen_one_matrix_at_a_time(self):
        """A kernel makes the copy right before its product, in the product's type and in the order of the codes: forward, and again from
        the same codes for the gradient of the input."""
        sizes = {f"l{i}.weight": shape for i, shape in enumerate([(256, 512), (512, 256), (256, 384), (384, 256)])}
        nodes = []
        for i, name in enumerate(sizes):
            nodes += [helper.make_node("MatMul", [f"r{i}" if i else "x", name], [f"h{i}"], name), helper.make_node("Relu", [f"h{i}"], [f"r{i + 1}"])]
        weights = {name: models.random(i, *shape) for i, (name, shape) in enumerate(sizes.items())}
        model = models.save(self.folder / "mlp.onnx", nodes, {"x": (64, 256)}, {"r4": (64, 256)}, weights)
        words = ("--set", 'loss.kind="mse"', "--set", 'loss.target="t"', "--set", 'adapter.targets=["l*"]', "--set", "adapter.rank=4",
                 "--target", "cuda:sm_90", "--entry", "train")
        for precision, wide, bases in (("f32", 4, ("nf4", "int8")), ("bf16", 2, ("nf4", "int4", "nested"))):
            plain = self.report(self.compile(model, *words, "--set", f'adapter.base="{precision}"', "--precision", precision))["memory"]
            largest = max(a * b for a, b in sizes.values()) * wide
            for base in bases:
                with self.subTest(precision=precision, base=base):
                    report = self.report(self.compile(model, *words, *base_of(base), "--precision", precision, "--dump-phases-to", f"{precision}-{base}"))
                    program, = report["adapters"]["base"]["widened"]
                    # The first layer's input needs no gradient.
                    expected = sorted((name, a * b * wide) for i, (name, (a, b)) in enumerate(sizes.items()) for _ in range(2 if i else 1))
                    self.assertEqual(sorted((copy["name"], copy["bytes"]) for copy in program["copies"]), expected)
                    # The products of the adapter, to whose sum the product adds, may come between.
                    self.assertLessEqual(max(copy["last"] - copy["first"] for copy in program["copies"]), 3)
                    self.assertEqual(program["most_bytes"], largest)
                    self.assertLessEqual(report["memory"]["arena_bytes"], plain["arena_bytes"] + largest)
                    self.assertLess(report["memory"]["resident"]["frozen"], plain["resident"]["frozen"] / (2 if base == "int8" else 3))
                    ordered = next((self.folder / f"{precision}-{base}").glob("*-decompose.mlir")).read_text()
                    self.assertEqual(re.findall(r"train\.unpack.* strides = \[1, ", ordered), [])

    def test_threads_and_resume_change_no_bit(self):
        four = (*base_of("nested"), "--set", "adapter.dropout=0.1")
        whole = self.adapt(*four, steps=6, out="whole")
        states = [next((whole / "checkpoints" / "step-6").glob("*.safetensors")).read_bytes()]
        for threads in (1, 3):
            run = self.train(self.folder / "plan.tplan", DATA, "--threads", threads, steps=6, out=f"threads-{threads}")
            self.assertEqual(self.losses(run), self.losses(whole))
        part = self.train(self.folder / "plan.tplan", DATA, steps=3, out="part")
        self.succeed("trun", "--resume", part, "--steps", "6")
        states.append(next((part / "checkpoints" / "step-6").glob("*.safetensors")).read_bytes())
        self.assertEqual(*states)

    def runs_from_others(self, base):
        """Trains and exports an adapter on one of BASES; then starts a run from the weights of another file, whose base is rounded, and a
        run from that one. Both predict what the run predicts that is exported and compiled again. Returns the other weights, their file,
        both runs."""
        run = self.adapt(*base_of(base), steps=3)
        self.succeed("trun", "export", run, "-o", "adapter", "--adapter")
        self.assertIn("base_model.model.h.0.up.lora_A.weight", self.read("adapter/adapter_model.safetensors"))
        other = {n: v * np.float32(0.75) for n, v in initializers(HERE / "dynamo.onnx").items() if v.dtype == np.float32 and n != "val_58"}
        init = self.save("init.safetensors", **other)
        second = self.train(self.folder / "plan.tplan", DATA, "--init", init, steps=3, out="second")
        third = self.train(self.folder / "plan.tplan", DATA, "--init", second, steps=0, out="third")
        inputs = self.save("in.safetensors", ids=safetensors.numpy.load_file(DATA)["ids"][:4])
        self.succeed("trun", "export", second, "-o", "merged.onnx")
        self.compile("merged.onnx", plan="merged.tplan")
        self.succeed("trun", "predict", "merged.tplan", "--inputs", inputs, "--outputs", "merged.safetensors")
        for n, source in enumerate((second, third)):
            self.succeed("trun", "predict", "plan.tplan", "--inputs", inputs, "--outputs", f"{n}.safetensors", "--from", source)
            np.testing.assert_allclose(self.read(f"{n}.safetensors")["logits"], self.read("merged.safetensors")["logits"], atol=2e-5)
        return other, init, second, third

    def test_runs_and_exports_start_others(self):
        other, _, second, third = self.runs_from_others("nf4")
        self.assertEqual(self.state(third, 0)["wte.weight"].dtype, np.uint8)
        np.testing.assert_array_equal(self.state(third, 0)["wte.weight"], nf4(other["wte.weight"], 64)[0])
        # Codes of one base are none of the other, and nothing without their scales.
        self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--set", 'adapter.base="int4"', plan="int4.tplan")
        self.refuse(1, ["'wte.weight/scale' belong together|the model's is"], "trun", "int4.tplan", "--data", DATA, "--init", second,
                    "--steps", 1, "--out", "x")
        bare = self.save("bare.safetensors", **{"wte.weight": self.state(third, 0)["wte.weight"]})
        self.refuse(1, ["'wte.weight/absmax' belong together"], "trun", "plan.tplan", "--data", DATA, "--init", bare, "--init-partial",
                    "--steps", 1, "--out", "bare")

    def test_nested_runs_and_exports_start_others(self):
        other, init, second, third = self.runs_from_others("nested")
        state = self.state(third, 0)
        codes, scales, _ = nested_nf4(other["wte.weight"], 64)
        for key, part in {"wte.weight": codes, **scales_of("wte.weight", scales, "")}.items():
            np.testing.assert_array_equal(state[key], part, key)
        self.assertEqual({n for n in state if n.startswith("wte.weight/")}, {"wte.weight/absmax", "wte.weight/nested_absmax"})
        # Codes of scales are nothing without their numbers, and scales in f32 are none.
        for lost in ("absmax", "nested_absmax"):
            parts = {n: v for n, v in state.items() if n.startswith("wte.weight") and n != f"wte.weight/{lost}" and "lora" not in n}
            bare = self.save("bare.safetensors", **parts)
            self.refuse(1, [f"'wte.weight/{lost}' belong together"], "trun", "plan.tplan", "--data", DATA, "--init", bare, "--init-partial",
                        "--steps", 1, "--out", "bare")
        self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--set", 'adapter.base="nf4"', plan="plain.tplan")
        self.refuse(1, [r"val_190/absmax' \(u8\[18\], the model's is f32\[18\]"], "trun", "plain.tplan", "--data", DATA, "--init", second,
                    "--steps", 1, "--out", "x")
        fourth = self.train(self.folder / "plain.tplan", DATA, "--init", init, steps=0, out="fourth")
        self.refuse(1, [r"val_190/absmax' \(f32\[18\], the model's is u8\[18\]"], "trun", "plan.tplan", "--data", DATA, "--init", fourth,
                    "--steps", 1, "--out", "x")

    def test_other_programs(self):
        """bf16 products, no fusion, a budget, external data, filters: all train on the rounded weights."""
        reference = self.losses(self.adapt("--set", 'adapter.base="nf4"', steps=4))
        for name, more, tolerance in (("bf16", ("--precision", "bf16"), 2e-2), ("plain", ("--set", "compiler.fuse=false"), 1e-6)):
            run = self.adapt("--set", 'adapter.base="nf4"', *more, steps=4, out=name, plan=f"{name}.tplan")
            np.testing.assert_allclose(self.losses(run), reference, rtol=tolerance)
        onnx.save(onnx.load(HERE / "dynamo.onnx"), self.folder / "outside.onnx", save_as_external_data=True, location="outside.bin",
                  size_threshold=64)
        run = self.adapt("--set", 'adapter.base="nf4"', model=self.folder / "outside.onnx", steps=4, out="outside", plan="outside.tplan")
        self.assertEqual(self.losses(run), reference)
        convs = HERE / "convs"
        for base in BASES:
            self.compile(convs / "model.onnx", "--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set",
                         'adapter.targets=["first", "tall", "words", "head"]', "--set", "adapter.rank=4", *base_of(base),
                         "--set", "adapter.block=32", plan="convs.tplan")
            run = self.train(self.folder / "convs.tplan", convs / "data.safetensors", steps=0, out=f"convs-{base}")
            self.succeed("trun", "export", run, "-o", "w.safetensors", "--names", "torch")
            held, old = self.read("w.safetensors"), initializers(convs / "model.onnx")
            kept = {one["name"] for one in self.report(self.folder / "convs.tplan")["adapters"]["base"]["kept"]}
            for name in ("first.weight", "dilated.weight", "depthwise.weight"):
                flat = old[name].reshape(old[name].shape[0], -1)
                rounded = flat if name in kept else BASES[base][0](flat, 32)[2]
                np.testing.assert_array_equal(held[name].reshape(flat.shape), rounded, name)

    def test_quantize(self):
        """Weights of every type and by every name give the codes that --init rounds them to, and the run is the same."""
        weights = {n: v * np.float32(0.75) for n, v in initializers(HERE / "dynamo.onnx").items() if v.dtype == np.float32 and n != "val_58"}
        wide = self.save("wide.safetensors", **weights)
        narrow = self.save("narrow.safetensors", **{n: v.astype(np.float16) for n, v in weights.items()})
        for base, (rounding, scale) in BASES.items():
            with self.subTest(base):
                whole = self.adapt(*base_of(base), more=("--init", wide), out=f"{base}-whole")
                found = self.succeed("trun", "quantize", "plan.tplan", wide, "-o", "q.safetensors").out
                count = self.report(self.folder / "plan.tplan")["adapters"]["base"]["tensors"]
                self.assertRegex(found, rf"q.safetensors: {len(weights)} tensors, {count} of them rounded, ")
                self.assertLess((self.folder / "q.safetensors").stat().st_size, 0.5 * wide.stat().st_size)
                held = self.read("q.safetensors")
                codes, scales, _ = rounding(weights["wte.weight"], 64)
                for key, part in {"wte.weight": codes, **scales_of("wte.weight", scales, scale)}.items():
                    np.testing.assert_array_equal(held[key], part, key)
                np.testing.assert_array_equal(held["wpe"], weights["wpe"])
                again = self.train(self.folder / "plan.tplan", DATA, "--init", "q.safetensors", steps=6, out=f"{base}-again")
                self.assertEqual(self.losses(again), self.losses(whole))
                states = [next((run / "checkpoints/step-6").glob("*.safetensors")).read_bytes() for run in (whole, again)]
                self.assertEqual(*states)
                # From a run, from names of torch, and from codes: the same file.
                self.succeed("trun", "quantize", "plan.tplan", "q.safetensors", "-o", "q2.safetensors")
                self.assertEqual((self.folder / "q2.safetensors").read_bytes(), (self.folder / "q.safetensors").read_bytes())
                self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, plan="f32.tplan")
                first = self.train(self.folder / "f32.tplan", DATA, "--init", wide, steps=0, out=f"{base}-f32")
                self.succeed("trun", "export", first, "-o", "torch.safetensors", "--names", "torch", "--keep-mode")
                self.succeed("trun", "quantize", "plan.tplan", "torch.safetensors", "-o", "t.safetensors")
                torchs = self.read("t.safetensors")
                self.assertLessEqual({name for name, value in held.items() if value.dtype == np.uint8}, set(torchs))
                for name, value in torchs.items():  # without folded masks
                    np.testing.assert_array_equal(held[name], value, name)
                # f16 is exact in f32: codes are those of the rounded values.
                self.succeed("trun", "quantize", "plan.tplan", narrow, "-o", "n.safetensors")
                half = self.read("n.safetensors")
                codes, scales, _ = rounding(weights["wte.weight"].astype(np.float16).astype(np.float32), 64)
                np.testing.assert_array_equal(half["wte.weight"], codes)
                np.testing.assert_array_equal(half["wpe"], weights["wpe"].astype(np.float16).astype(np.float32))
                self.train(self.folder / "plan.tplan", DATA, "--init", "n.safetensors", steps=1, out=f"{base}-half")
        self.refuse(1, ["keeps no weights in 8 or 4 bits", "adapter.base"], "trun", "quantize", "f32.tplan", wide, "-o", "x.safetensors")
        self.refuse(2, ["--output x.npz: must end in .safetensors"], "trun", "quantize", "plan.tplan", wide, "-o", "x.npz")
        other = self.save("other.safetensors", strange=np.zeros(3, np.float32))
        self.refuse(1, ["other.safetensors.*strange"], "trun", "quantize", "plan.tplan", other, "-o", "x.safetensors")
        bad = self.save("bad.safetensors", **{"wte.weight": np.where(np.arange(weights["wte.weight"].size) == 7, np.nan, 1).reshape(
            weights["wte.weight"].shape).astype(np.float32)})
        self.refuse(1, ["bad.safetensors.*'wte.weight' holds a value that is infinite or NaN"], "trun", "quantize", "plan.tplan", bad, "-o",
                    "x.safetensors")
        self.assertFalse((self.folder / "x.safetensors").exists())
        self.refuse(1, ["^trun: error: absent/x.safetensors: cannot write"], "trun", "quantize", "plan.tplan", wide, "-o", "absent/x.safetensors")

    def test_mistakes(self):
        words = (HERE / "dynamo.onnx", *LOSS, *ADAPTER, "-o", "p.tplan")
        recipe = self.write("recipe.toml", '[adapter]\nbase = "nf4"\nblock = 48\n')
        self.refuse(1, [r"recipe.toml:3.*adapter.block: 48", "32, 64, 128 or 256"], "tcc", *words, "--recipe", recipe)
        for base in ("", "int8"):
            more = ("--set", f'adapter.base="{base}"') if base else ()
            self.refuse(1, ["adapter.block needs a base in 4 bits", "\"nf4\" or \"int4\", or leave adapter.block out"], "tcc", *words, *more,
                        "--set", "adapter.block=64")
        self.refuse(1, ["adapter.base", "nf4"], "tcc", *words, "--set", 'adapter.base="nf5"')
        recipe = self.write("nested.toml", '[adapter]\nbase = "int4"\nnested = true\n')
        self.refuse(1, [r"nested.toml:3.*adapter.nested: scales of \"int4\" have either sign", "adapter.base to \"nf4\", or leave"], "tcc", *words,
                    "--recipe", recipe)
        self.refuse(1, ["adapter.nested needs the scales of a base in 4 bits, and adapter.base is \"int8\"", "adapter.base to \"nf4\", or leave"],
                    "tcc", *words, "--set", 'adapter.base="int8"', "--set", "adapter.nested=true")
        self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--set", "adapter.nested=false")
        for value in (np.inf, np.nan):
            model = onnx.load(HERE / "dynamo.onnx")
            table = next(i for i in model.graph.initializer if i.name == "wte.weight")
            values = numpy_helper.to_array(table).copy()
            values[3, 4] = value
            table.CopyFrom(numpy_helper.from_array(values, "wte.weight"))
            onnx.save(model, self.folder / "bad.onnx")
            self.refuse(1, ["adapter.base", "`wte.weight`", "infinite or NaN, which 4 bits", "leave adapter.base out"], "tcc", "bad.onnx",
                        *LOSS, *ADAPTER, "--set", 'adapter.base="nf4"', "-o", "p.tplan")
            self.compile(HERE / "dynamo.onnx", *LOSS, *ADAPTER, "--set", 'adapter.base="int4"')
            bad = self.save("bad.safetensors", **{"wte.weight": values})
            self.refuse(1, ["'wte.weight'", "infinite or NaN, which 4 bits cannot hold", "compile without adapter.base"], "trun", "plan.tplan",
                        "--data", DATA, "--init", bad, "--init-partial", "--steps", 1, "--out", f"bad-{value}")
        # A quantised model has a rounding of its own.
        rng = np.random.default_rng(1)
        weights = {"w": rng.integers(-9, 9, (4, 8)).astype(np.int8), "s": np.float32(0.1), "z": np.int8(0)}
        nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), helper.make_node("Gemm", ["x", "d"], ["y"], transB=1)]
        graph = helper.make_graph(nodes, "q", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])],
                                  [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])],
                                  [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "q.onnx")
        self.refuse(1, ["adapter.base \"nf4\"", "quantised model", "leave adapter.base out"], "tcc", "q.onnx", "--set", 'loss.kind="mse"',
                    "--set", 'loss.target="t"', "--set", 'adapter.targets=["w"]', "--set", "adapter.rank=2", "--set", 'adapter.base="nf4"',
                    "-o", "q.tplan")


if __name__ == "__main__":
    import unittest
    unittest.main()
