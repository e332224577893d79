"""Models whose files hold weights in 4 bits, as onnxruntime's quantiser and others write them: predictions against onnxruntime,
training against that of a file with the widened weights."""
import json
import logging
import re

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import matmul_nbits_quantizer as nbits
from onnxruntime.quantization.quant_utils import QuantFormat

from common import EndToEnd, case, metrics

logging.getLogger(nbits.__name__).setLevel(logging.WARNING)
MICROSOFT = "com.microsoft"
LOSS = ("--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set", "loss.class_axis=-1", "--set",
        "optimizer.lr=1e-2")
ADAPTER = ("--set", "adapter.rank=4", "--set", "adapter.alpha=8")
KINDS = {TensorProto.INT4: "sint4", TensorProto.UINT4: "uint4"}


def base_model(words=50, width=48, hidden=80, classes=7, dtype=np.float32, seed=1):
    """Embedding, an MLP with a residual, a norm's scale, and a head: widths that are no multiples of most blocks."""
    rng = np.random.default_rng(seed)
    weights = {"emb.weight": rng.standard_normal((words, width)), "up.weight": rng.standard_normal((width, hidden)) / 7,
               "up.bias": rng.standard_normal(hidden) / 5, "down.weight": rng.standard_normal((hidden, width)) / 9,
               "head.weight": rng.standard_normal((width, classes)) / 4}
    weights = {name: value.astype(dtype) for name, value in weights.items()}
    nodes = [helper.make_node("Gather", ["emb.weight", "ids"], ["x"], "/emb/Gather"),
             helper.make_node("MatMul", ["x", "up.weight"], ["u"], "/up/MatMul"), helper.make_node("Add", ["u", "up.bias"], ["v"], "/up/Add"),
             helper.make_node("Relu", ["v"], ["r"], "/Relu"), helper.make_node("MatMul", ["r", "down.weight"], ["d"], "/down/MatMul"),
             helper.make_node("Add", ["d", "x"], ["s"], "/Add"), helper.make_node("MatMul", ["s", "head.weight"], ["logits"], "/head/MatMul")]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("ids", TensorProto.INT64, [4, 6])],
                              [helper.make_tensor_value_info("logits", kind, [4, 6, classes])],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)], ir_version=10)


def quantised(model, form, symmetric, block, bits=4):
    """What onnxruntime's quantiser makes of the model."""
    ops = ("MatMul", "Gather") if form == QuantFormat.QOperator and bits == 4 else ("MatMul",)
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, quant_format=form, op_types_to_quantize=ops,
                                                bits=bits)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantizer = nbits.MatMulNBitsQuantizer(copy, algo_config=config)
    quantizer.process()
    return quantizer.model.model


def halves(packed, count):
    """Unsigned codes of 4 bits, the first of a byte in its lower half."""
    flat = np.asarray(packed, np.uint8).ravel()
    return np.stack([flat & 15, flat >> 4], 1).ravel()[:count]


class Tensors:
    """A model's initializers, widened by the formulas of the ops."""

    def __init__(self, model):
        self.all = {i.name: i for i in model.graph.initializer}

    def shape(self, name):
        return list(self.all[name].dims)

    def codes(self, name):
        tensor = self.all[name]
        count = int(np.prod(tensor.dims)) if tensor.dims else 1
        raw = np.frombuffer(tensor.raw_data, np.uint8)
        if tensor.data_type == TensorProto.UINT8:
            return raw.reshape(tensor.dims)
        codes = halves(raw, count).astype(np.float32)
        return np.where(codes > 7, codes - 16, codes).reshape(tensor.dims) if tensor.data_type == TensorProto.INT4 else codes.reshape(tensor.dims)

    def floats(self, name):
        return numpy_helper.to_array(self.all[name]).astype(np.float32)

    def mat_mul(self, node):
        """[K, N] of a MatMulNBits."""
        a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
        k, n, block = a["K"], a["N"], a["block_size"]
        blocks = -(-k // block)
        codes = halves(self.codes(node.input[1]), n * blocks * block).reshape(n, blocks, block).astype(np.float32)
        scales = self.floats(node.input[2]).reshape(n, blocks, 1)
        zeros = np.float32(8)
        if len(node.input) > 3 and node.input[3]:
            if self.all[node.input[3]].data_type == TensorProto.UINT8:
                rows = self.codes(node.input[3]).reshape(n, -1)
                zeros = np.stack([halves(row, blocks) for row in rows]).reshape(n, blocks, 1).astype(np.float32)
            else:
                zeros = self.floats(node.input[3]).reshape(n, blocks, 1)
        return ((codes - zeros) * scales).reshape(n, blocks * block)[:, :k].T

    def dequantized(self, node, data, scale, zero, axis, block):
        if self.all[data].data_type == TensorProto.UINT8:  # GatherBlockQuantized
            shape = self.shape(data)
            q = np.stack([halves(row, 2 * shape[-1]) for row in self.codes(data).reshape(-1, shape[-1])]).astype(np.float32)
            q = q.reshape(*shape[:-1], 2 * shape[-1])
            z = np.float32(8)
            if zero:
                count = self.shape(scale)[-1]
                z = np.stack([halves(row, count) for row in self.codes(zero).reshape(-1, (count + 1) // 2)]).astype(np.float32)
                z = z.reshape(self.shape(scale))
        else:
            q, z = self.codes(data), self.codes(zero) if zero else np.float32(0)
        s = self.floats(scale)

        def spread(x):
            if np.ndim(x) == 0 or x.size == 1:
                return np.reshape(x, ())
            if block:
                return np.repeat(x, block, axis)[tuple(slice(0, d) for d in q.shape)]
            return x.reshape([-1 if d == axis else 1 for d in range(q.ndim)])

        return ((q - spread(z)) * spread(s)).astype(np.float32)


def widened(model, dtype=np.float32):
    """The model with floating-point weights of the same values, under the names that the 4-bit ones were made from."""
    tensors, copy = Tensors(model), onnx.ModelProto()
    copy.CopyFrom(model)
    nodes, new = [], {}

    def plain(name):
        return name.split("_DQ")[0].split("_Q4")[0]

    for node in copy.graph.node:
        a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
        inputs = list(node.input) + [""] * 6
        if node.op_type == "MatMulNBits":
            name = plain(inputs[1])
            new[name] = tensors.mat_mul(node)
            product = node.output[0] + "/product" if inputs[5] else node.output[0]
            nodes.append(helper.make_node("MatMul", [inputs[0], name], [product], node.name))
            if inputs[5]:
                nodes.append(helper.make_node("Add", [product, inputs[5]], [node.output[0]], node.name + "/bias"))
        elif node.op_type == "GatherBlockQuantized":
            name = plain(inputs[0])
            new[name] = tensors.dequantized(node, inputs[0], inputs[2], inputs[3], a.get("quantize_axis", 1), a.get("block_size", 128))
            nodes.append(helper.make_node("Gather", [name, inputs[1]], [node.output[0]], node.name, axis=a.get("gather_axis", 0)))
        elif node.op_type == "DequantizeLinear":
            name = plain(inputs[0])
            new[name] = tensors.dequantized(node, inputs[0], inputs[1], inputs[2], a.get("axis", 1), a.get("block_size", 0))
            nodes.append(helper.make_node("Identity", [name], [node.output[0]], node.name))
        else:
            nodes.append(node)
    read = {i for node in nodes for i in node.input}
    kept = [i for i in copy.graph.initializer if i.name in read and i.name not in new]
    del copy.graph.node[:], copy.graph.initializer[:]
    for node in nodes:  # a matrix behind Identity is read under its own name
        for i, name in enumerate(node.input):
            made = next((m for m in nodes if m.op_type == "Identity" and m.output[0] == name), None)
            if made is not None:
                node.input[i] = made.input[0]
    copy.graph.node.extend(node for node in nodes if node.op_type != "Identity")
    copy.graph.initializer.extend(kept + [numpy_helper.from_array(np.ascontiguousarray(v.astype(dtype)), k) for k, v in new.items()])
    return copy


class StoredFourBits(EndToEnd):
    def store(self, model, name):
        onnx.save(model, self.folder / name)
        return self.folder / name

    def runtime(self, file, **inputs):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # a form of an op leaves initializers of others unread
        # Optimised, DequantizeLinear and MatMul become a MatMulNBits of accuracy_level 4, which rounds x to 8 bits.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return session.run(None, inputs)[0]

    def ours(self, file, plan="predict.tplan", **inputs):
        self.compile(file, plan=plan)
        self.save("in.safetensors", **inputs)
        self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        return next(iter(safetensors.numpy.load_file(self.folder / "out.safetensors").values()))

    def read(self, name):
        return safetensors.numpy.load_file(self.folder / name)

    def losses(self, run):
        return [line["loss"] for line in metrics(run)[0]]

    def state(self, run, step):
        return next((run / "checkpoints" / f"step-{step}").glob("*.safetensors"))

    def data(self, rows=24, words=50, classes=7):
        rng = np.random.default_rng(5)
        return self.save("data.safetensors", ids=rng.integers(0, words, (rows, 6)), labels=rng.integers(0, classes, (rows, 6)))

    def agree(self, model, name="net.onnx", tolerance=1e-4, **inputs):
        file = self.store(model, name)
        expected, found = self.runtime(file, **inputs), self.ours(file, **inputs)
        self.assertEqual(expected.shape, found.shape)
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), atol=tolerance, rtol=tolerance)

    # What onnxruntime's quantiser writes.

    def test_predictions_are_those_of_onnxruntime(self):
        ids = np.random.default_rng(3).integers(0, 50, (4, 6))
        for form in (QuantFormat.QOperator, QuantFormat.QDQ):
            for symmetric in (True, False):
                for block in (16, 32, 64, 128):
                    with self.subTest(form=form, symmetric=symmetric, block=block):
                        self.agree(quantised(base_model(), form, symmetric, block), ids=ids)

    def test_training_is_that_on_the_widened_weights(self):
        data = self.data()
        targets = ("--set", 'adapter.targets=["up", "down", "head"]')
        for form in (QuantFormat.QOperator, QuantFormat.QDQ):
            for symmetric in (True, False):
                with self.subTest(form=form, symmetric=symmetric):
                    model, tag = quantised(base_model(), form, symmetric, 32), f"{form.name}-{symmetric}"
                    runs = []
                    for name, graph in (("four", model), ("wide", widened(model))):
                        self.compile(self.store(graph, f"{name}.onnx"), *LOSS, *ADAPTER, *targets, plan=f"{name}.tplan")
                        runs.append(self.train(self.folder / f"{name}.tplan", data, steps=8, out=f"{tag}-{name}"))
                    four, wide = map(self.losses, runs)
                    np.testing.assert_allclose(four, wide, rtol=2e-6)
                    self.assertLess(four[-1], four[0])
                    for run, folder in zip(runs, (f"{tag}-a", f"{tag}-b")):
                        self.succeed("trun", "export", run, "-o", folder, "--adapter")
                    first, second = (self.read(f"{tag}-{x}/adapter_model.safetensors") for x in "ab")
                    self.assertEqual(sorted(first), sorted(f"base_model.model.{m}.lora_{x}.weight" for m in ("up", "down", "head") for x in "AB"))
                    for name, value in second.items():
                        np.testing.assert_allclose(first[name], value, atol=1e-5, err_msg=name)

    def test_products_in_bf16_unpack_too(self):
        """No level widens a matrix in memory, and losses are those of a file with the widened weights, which products round."""
        data, targets = self.data(), ("--set", 'adapter.targets=["up", "down", "head"]', "--precision", "bf16")
        for symmetric in (True, False):
            with self.subTest(symmetric=symmetric):
                model = quantised(base_model(width=56), QuantFormat.QOperator, symmetric, 32)
                self.store(model, "four.onnx")
                self.store(widened(model), "wide.onnx")
                for target in ("cpu:v3", "cpu:v4", "cpu:v4-bf16"):
                    self.compile("four.onnx", *LOSS, *ADAPTER, *targets, "--target", target)
                    for entry in self.report(self.folder / "plan.tplan")["memory"]["entries"].values():
                        for program in entry["programs"].values():
                            matrices = [b for b in program["buffers"] if b["bytes"] in (56 * 80 * 2, 56 * 80 * 4) and b["purpose"] != "scratch"]
                            self.assertEqual(matrices, [], target)
                both = []
                # At this level all products run on panels, so that both plans add in one order.
                for name in ("four", "wide"):
                    self.compile(f"{name}.onnx", *LOSS, *ADAPTER, *targets, "--target", "cpu:v3", plan=f"{name}.tplan")
                    both.append(self.losses(self.train(self.folder / f"{name}.tplan", data, steps=8, out=f"{symmetric}-{name}")))
                self.assertEqual(*both)
                self.compile("four.onnx", *LOSS, *ADAPTER, *targets, plan="native.tplan")
                run = self.train(self.folder / "native.tplan", data, steps=8, out=f"{symmetric}-native")
                np.testing.assert_allclose(self.losses(run), both[1], rtol=5e-3)

    def test_a_small_llama(self):
        """torch's export, quantised: its matrices, of which only notes at their old names tell the parameters, keep those names."""
        path, recipe, data, _ = case("hf-llama-tiny")
        model = onnx.load(path)
        model.ir_version = 10
        for opset in model.opset_import:
            opset.version = 21 if not opset.domain else opset.version
        settings = ("--recipe", recipe, "--set", 'adapter.targets=["q_proj", "v_proj", "down_proj", "lm_head"]', *ADAPTER)
        for form in QuantFormat:
            with self.subTest(form=form):
                four, wide = quantised(model, form, False, 32), onnx.ModelProto()
                wide.CopyFrom(model)
                values = {i.name: i for i in widened(four).graph.initializer}
                for i in wide.graph.initializer:
                    i.CopyFrom(values[i.name])
                runs = []
                for name, graph in (("four", four), ("wide", wide)):
                    self.compile(self.store(graph, f"{name}.onnx"), *settings, plan=f"{name}.tplan")
                    runs.append(self.train(self.folder / f"{name}.tplan", data, steps=8, out=f"{form.name}-{name}"))
                np.testing.assert_allclose(*map(self.losses, runs), rtol=2e-6)
                for run in runs:
                    self.succeed("trun", "export", run, "-o", f"{run.name}-adapter", "--adapter")
                first, second = (self.read(f"{run.name}-adapter/adapter_model.safetensors") for run in runs)
                self.assertEqual(sorted(first), sorted(second))
                self.assertIn("base_model.model.model.model.layers.0.self_attn.q_proj.lora_A.weight", first)

    def test_exports_keep_nodes_and_bytes(self):
        """Without adapters the other parameters are trained; a run is exported with the file's nodes, codes, scales and zero points."""
        data = self.data()
        for form in (QuantFormat.QOperator, QuantFormat.QDQ):
            with self.subTest(form=form):
                model = quantised(base_model(), form, False, 32)
                file = self.store(model, "net.onnx")
                self.compile(file, *LOSS)
                run = self.train(self.folder / "plan.tplan", data, steps=25, out=form.name)
                losses = self.losses(run)
                self.assertLess(losses[24], losses[0])  # the same six batches again
                after = onnx.load(run / "model.onnx")
                self.assertEqual([(n.op_type, list(n.input)) for n in after.graph.node], [(n.op_type, list(n.input)) for n in model.graph.node])
                old, new = ({i.name: i for i in m.graph.initializer} for m in (model, after))
                trained = {"up.bias"} | ({"emb.weight"} if form == QuantFormat.QDQ else set())
                for name, tensor in old.items():
                    self.assertEqual((new[name].data_type, list(new[name].dims)), (tensor.data_type, list(tensor.dims)))
                    if name not in trained:
                        self.assertEqual(new[name].raw_data, tensor.raw_data, name)
                    else:
                        self.assertFalse(np.array_equal(numpy_helper.to_array(new[name]), numpy_helper.to_array(tensor)), name)
                ids = np.random.default_rng(3).integers(0, 50, (4, 6))
                self.save("in.safetensors", ids=ids)
                self.succeed("trun", "predict", "plan.tplan", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--from", run)
                np.testing.assert_allclose(self.read("out.safetensors")["logits"], self.runtime(run / "model.onnx", ids=ids), atol=1e-4)

    def test_adapters_resume_start_and_leave(self):
        data, targets = self.data(), ("--set", 'adapter.targets=["up", "down", "head", "emb"]')
        self.compile(self.store(quantised(base_model(), QuantFormat.QOperator, False, 32), "net.onnx"), *LOSS, *ADAPTER, *targets, "--set",
                     "adapter.dropout=0.1")
        plan = self.folder / "plan.tplan"
        whole = self.train(plan, data, steps=6, out="whole")
        for threads in (1, 3):
            self.assertEqual(self.losses(self.train(plan, data, "--threads", threads, steps=6, out=f"threads-{threads}")), self.losses(whole))
        part = self.train(plan, data, steps=3, out="part")
        self.succeed("trun", "--resume", part, "--steps", "6")
        self.assertEqual(self.state(part, 6).read_bytes(), self.state(whole, 6).read_bytes())
        self.assertIn("eval_loss", self.succeed("trun", "eval", plan, "--data", data, "--from", whole).out)
        # 4 bits cannot hold the sum: nothing is merged, and the message says what to do instead.
        self.assertFalse((whole / "model.onnx").exists())
        for words in (("-o", "merged.onnx"), ("-o", "merged.safetensors"), ("-o", "w.safetensors", "--names", "torch"), ("-o", "m.onnx", "--merge")):
            self.refuse(1, ["_Q4' is adapted", "in 4 bits", "--adapter"], "trun", "export", whole, *words)
        self.succeed("trun", "export", whole, "-o", "adapter", "--adapter")
        held = self.read("adapter/adapter_model.safetensors")
        names = {f"{m}.lora_{x}.weight" for m in ("up", "down", "head") for x in "AB"} | {"emb.lora_embedding_A", "emb.lora_embedding_B"}
        self.assertEqual(set(held), {f"base_model.model.{name}" for name in names})
        config = json.loads((self.folder / "adapter" / "adapter_config.json").read_text())
        self.assertEqual((sorted(config["target_modules"]), config["fan_in_fan_out"], config["modules_to_save"]),
                         (["down", "emb", "head", "up"], False, None))
        # The adapter starts another run, which predicts as the first one does, and as numpy does with the widened weights.
        second = self.train(plan, data, "--init", self.folder / "adapter" / "adapter_model.safetensors", steps=0, out="second")
        ids = np.random.default_rng(3).integers(0, 50, (4, 6))
        self.save("in.safetensors", ids=ids)
        for run in (whole, second):
            self.succeed("trun", "predict", plan, "--inputs", "in.safetensors", "--outputs", f"{run.name}.safetensors", "--from", run)
        np.testing.assert_array_equal(self.read("whole.safetensors")["logits"], self.read("second.safetensors")["logits"])
        wide = widened(onnx.load(self.folder / "net.onnx"))
        for i in wide.graph.initializer:
            module, part = i.name.rsplit(".", 1)
            a, b = (held.get(f"base_model.model.{module}.lora_{x}") for x in (("embedding_A", "embedding_B") if module == "emb" else ("A.weight", "B.weight")))
            if part == "weight":
                i.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(i) + 2 * (b @ a).T).astype(np.float32), i.name))
        np.testing.assert_allclose(self.read("whole.safetensors")["logits"], self.runtime(self.store(wide, "wide.onnx"), ids=ids), atol=1e-4)

    # What other tools write.

    def linear(self, node_inputs, initializers, attributes, k=40, op="MatMulNBits", kind=TensorProto.FLOAT, rows=5, name="product", n=None,
               extra=()):
        """A model with one op on x [rows, k], or on ids."""
        tensors = [t if isinstance(t, onnx.TensorProto) else numpy_helper.from_array(t, key) for key, t in initializers.items()]
        first = helper.make_tensor_value_info("ids", TensorProto.INT64, [rows]) if "ids" in node_inputs else \
            helper.make_tensor_value_info("x", kind, [rows, k])
        domain = MICROSOFT if op in ("MatMulNBits", "GatherBlockQuantized") else ""
        nodes = [helper.make_node(op, node_inputs, ["y" if not extra else "v"], name, domain=domain, **attributes), *extra]
        graph = helper.make_graph(nodes, "one", [first], [helper.make_tensor_value_info("y", kind, None)], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)], ir_version=10)

    @staticmethod
    def parts(rng, n, k, block, dtype=np.float32):
        blocks = -(-k // block)
        return (rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8), (rng.standard_normal((n, blocks)) / 8).astype(dtype),
                rng.integers(0, 256, (n, (blocks + 1) // 2)).astype(np.uint8), rng.uniform(3, 12, (n, blocks)).astype(dtype))

    def test_forms_of_mat_mul_nbits(self):
        rng = np.random.default_rng(7)
        for n, k, block in ((9, 40, 16), (33, 64, 64), (7, 300, 32), (16, 512, 256), (1, 16, 16)):
            b, s, z, f = self.parts(rng, n, k, block)
            blocks, a = s.shape[1], {"K": k, "N": n, "bits": 4, "block_size": block}
            bias = rng.standard_normal(n).astype(np.float32)
            x = rng.standard_normal((5, k)).astype(np.float32)
            order = (np.arange(k) // block).astype(np.int32)
            forms = {"plain": (["x", "b", "s"], {}), "zeros": (["x", "b", "s", "z"], {}), "numbers": (["x", "b", "s", "f"], {}),
                     "bias": (["x", "b", "s", "z", "", "bias"], {"accuracy_level": 1}), "default bits": (["x", "b", "s"], {"bits": None})}
            for name, (inputs, more) in forms.items():
                with self.subTest(name, n=n, k=k, block=block):
                    model = self.linear(inputs, {"b": b, "s": s, "z": z, "f": f, "bias": bias}, {key: v for key, v in {**a, **more}.items() if v is not None}, k)
                    self.agree(model, x=x)
            with self.subTest("flat tensors, as Olive and onnxruntime-genai write them, and the order of groups", n=n, k=k, block=block):
                name = "model.layers.0.mlp.up_proj.MatMulNBits"
                held = {f"{name}.qweight": b, f"{name}.scales": s.ravel(), f"{name}.qzeros": z.ravel()}
                self.agree(self.linear(["x", *held], held, a, k), x=x)
                held[f"{name}.g_idx"] = order
                file = self.store(self.linear(["x", *held], held, a, k), "ordered.onnx")
                wide = Tensors(onnx.load(file)).mat_mul(onnx.load(file).graph.node[0])
                np.testing.assert_allclose(self.ours(file, x=x), x @ wide, atol=1e-4, rtol=1e-4)

    def test_sixteen_bits(self):
        """A, scales and results of f16: values are rounded once, products are those of f16 matrices."""
        rng = np.random.default_rng(8)
        b, s, z, f = self.parts(rng, 9, 40, 16, np.float16)
        x = rng.standard_normal((5, 40)).astype(np.float16)
        for zeros in ((), ("z",), ("f",)):
            model = self.linear(["x", "b", "s", *zeros], {"b": b, "s": s, "z": z, "f": f}, {"K": 40, "N": 9, "bits": 4, "block_size": 16},
                                kind=TensorProto.FLOAT16)
            file = self.store(model, "half.onnx")
            wide = Tensors(model).mat_mul(model.graph.node[0]).astype(np.float16).astype(np.float32)
            found = self.ours(file, x=x)
            self.assertEqual(found.dtype, np.float16)
            np.testing.assert_allclose(found.astype(np.float32), x.astype(np.float32) @ wide, atol=4e-3, rtol=2e-3)
        # Scales of f16 beside values of f32.
        model = self.linear(["x", "b", "s"], {"b": b, "s": s}, {"K": 40, "N": 9, "bits": 4, "block_size": 16})
        wide = Tensors(model).mat_mul(model.graph.node[0])
        x = x.astype(np.float32)
        np.testing.assert_allclose(self.ours(self.store(model, "mixed.onnx"), x=x), x @ wide, atol=1e-4)

    def four(self, name, kind, shape, rng):
        count = int(np.prod(shape))
        return helper.make_tensor(name, kind, shape, rng.integers(0, 256, (count + 1) // 2).astype(np.uint8).tobytes(), raw=True)

    def test_forms_of_dequantize_linear(self):
        rng = np.random.default_rng(9)
        for kind in KINDS:
            for k, n in ((40, 9), (33, 7), (16, 64)):
                x = rng.standard_normal((5, k)).astype(np.float32)
                for name, shape, a in (("blocks of K", (-(-k // 16), n), {"axis": 0, "block_size": 16}),
                                       ("blocks of N", (k, -(-n // 32)), {"axis": -1, "block_size": 32}),
                                       ("columns", (n,), {"axis": 1}), ("rows", (k,), {"axis": 0}), ("one", (), {}), ("one of rank 1", (1,), {})):
                    for zeros in (False, True):
                        with self.subTest(name, kind=KINDS[kind], k=k, n=n, zeros=zeros):
                            held = {"w": self.four("w", kind, (k, n), rng), "s": np.asarray(rng.uniform(0.02, 0.3, shape), np.float32)}
                            if zeros:
                                held["z"] = self.four("z", kind, shape, rng)
                            product = helper.make_node("Gemm" if k == 33 else "MatMul", ["x", "v"], ["y"], "product")
                            model = self.linear(list(held), held, a, k, op="DequantizeLinear", name="weight", extra=(product,))
                            self.agree(model, x=x)

    def test_forms_of_lookups(self):
        rng = np.random.default_rng(10)
        ids = np.array([0, 10, -1, 3, 3])
        for kind in (*KINDS, TensorProto.UINT8):
            for width in (32, 64, 96):
                for zeros in (False, True):
                    with self.subTest(kind=kind, width=width, zeros=zeros):
                        scales = rng.standard_normal((11, -(-width // 32))).astype(np.float32)
                        packed = kind == TensorProto.UINT8
                        held = {"t": rng.integers(0, 256, (11, width // 2)).astype(np.uint8) if packed else self.four("t", kind, (11, width), rng),
                                "ids": None, "s": scales}
                        if zeros:
                            held["z"] = rng.integers(0, 256, (11, (scales.shape[1] + 1) // 2)).astype(np.uint8) if packed else \
                                self.four("z", kind, scales.shape, rng)
                        a = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32} | ({"bits": 4} if packed else {})
                        inputs = list(held)
                        del held["ids"]
                        self.agree(self.linear(inputs, held, a, op="GatherBlockQuantized"), ids=ids)
        # A lookup in what DequantizeLinear makes.
        held = {"w": self.four("w", TensorProto.INT4, (11, 40), rng), "s": rng.standard_normal((11, 3)).astype(np.float32)}
        lookup = helper.make_node("Gather", ["v", "ids"], ["y"], "lookup")
        model = self.linear(["w", "s"], held, {"axis": 1, "block_size": 16}, op="DequantizeLinear", extra=(lookup,))
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("ids", TensorProto.INT64, [5]))
        self.agree(model, ids=ids)

    def test_external_data_and_no_widened_matrix(self):
        """Large weights stay outside the plan, as the file has them, and no program has a buffer of a widened one."""
        k, n, block = 1024, 1536, 32
        rng = np.random.default_rng(11)
        b, s, z, _ = self.parts(rng, n, k, block)
        model = self.linear(["x", "fc.weight_Q4", "s", "z"], {"fc.weight_Q4": b, "s": s, "z": z}, {"K": k, "N": n, "bits": 4, "block_size": block},
                            k, rows=4)
        onnx.save(model, self.folder / "large.onnx", save_as_external_data=True, location="large.bin", size_threshold=64)
        x = rng.standard_normal((4, k)).astype(np.float32)
        np.testing.assert_allclose(self.ours(self.folder / "large.onnx", x=x), self.runtime(self.folder / "large.onnx", x=x), atol=1e-3, rtol=1e-4)
        data = self.save("data.safetensors", x=rng.standard_normal((8, k)).astype(np.float32), t=rng.standard_normal((8, n)).astype(np.float32))
        self.compile(self.folder / "large.onnx", "--set", 'loss.kind="mse"', "--set", 'loss.target="t"', *ADAPTER, "--set", 'adapter.targets=["fc"]')
        report = self.report(self.folder / "plan.tplan")
        widest = max(program["arena_bytes"] for program in report["workers"]["programs"][0]["counts"])
        self.assertLess(widest, k * n * 4)
        self.assertLess(report["memory"]["resident"]["frozen"], k * n * 3 // 4)
        losses = self.losses(self.train(self.folder / "plan.tplan", data, steps=4, out="large"))
        self.assertLess(losses[-1], losses[0])

    def test_plans_for_cards(self):
        """Kernels of a card widen the matrices; nothing of the plan is refused."""
        for form in QuantFormat:
            self.compile(self.store(quantised(base_model(), form, False, 32), "net.onnx"), *LOSS, *ADAPTER, "--set", 'adapter.targets=["up"]',
                         "--target", "cuda:sm_90")
            self.assertEqual(self.report(self.folder / "plan.tplan")["adapters"]["rank"], 4)

    def test_mistakes(self):
        rng = np.random.default_rng(12)
        b, s, z, f = self.parts(rng, 6, 40, 16)
        a = {"K": 40, "N": 6, "bits": 4, "block_size": 16}
        held = {"b": b, "s": s, "z": z, "f": f, "order": (np.arange(40)[::-1] // 16).astype(np.int32), "bias": np.zeros(6, np.float32)}

        def refused(patterns, inputs=("x", "b", "s"), op="MatMulNBits", extra=(), **changes):
            tensors = held | changes.pop("tensors", {})
            attributes = a | changes if op == "MatMulNBits" else changes
            used = {key: v for key, v in tensors.items() if key in inputs}
            self.store(self.linear(list(inputs), used, attributes, op=op, extra=extra), "bad.onnx")
            result = self.refuse(1, [r"bad\.onnx", "product", *patterns], "tcc", "bad.onnx", "-o", "bad.tplan")
            self.assertEqual(len(re.findall(r"^error: ", result.err, re.MULTILINE)), 1, result.err)

        refused(["weights of 8 bits", "bits=4", 'adapter.base = "int8"'], bits=8)
        refused(["weights of 3 bits"], bits=3)
        refused(["block_size is 8", "at least 16"], block_size=8)
        refused(["block_size is 48", "power of two"], block_size=48)
        refused(["weights .*6x3x8", r"need UINT8 \[6, 2, 16\]"], block_size=32)
        refused([r"last dimension must be K = 41"], K=41)
        refused([r"need UINT8 \[7, 3, 8\]"], N=7)
        refused(["matrix of K = 40 and N = 0"], N=0)
        refused(["scales f32.6x2.:", r"need \[6, 3\]"], tensors={"s": s[:, :2].copy()})
        refused(["scales .* must be floating-point"], tensors={"s": s.astype(np.int32)})
        refused(["zero points .*6x1", r"two in each byte, need \[6, 2\]"], ("x", "b", "s", "z"), tensors={"z": z[:, :1].copy()})
        refused([r"zero points f32.6x2.*need \[6, 3\]"], ("x", "b", "s", "f"), tensors={"f": f[:, :2].copy()})
        refused(["zero points .*must be UINT8"], ("x", "b", "s", "z"), tensors={"z": z.astype(np.int64)})
        refused(["g_idx puts element 0 into block 2", "actorder=False"], ("x", "b", "s", "", "order"))
        refused([r"bias f32.5.: it must be \[6\]"], ("x", "b", "s", "", "", "bias"), tensors={"bias": np.zeros(5, np.float32)})
        refused(["weight_prepacked is 1"], weight_prepacked=1)
        refused(["weights .*i8"], tensors={"b": b.view(np.int8)})
        four = self.four("w", TensorProto.INT4, (6, 40), rng)
        rounds = {"op": "DequantizeLinear", "inputs": ("w", "s"), "extra": (helper.make_node("MatMul", ["x", "v"], ["y"]),)}
        refused([r"scales f32.6x3.:", r"blocks of 32 along axis 1 of \[6, 40\] need \[6, 2\]"], **rounds, tensors={"w": four}, axis=1,
                block_size=32)
        refused(["neither one, nor one for each of 40 indices"], **rounds, tensors={"w": four}, axis=1)
        refused(["axis 5 is outside"], **rounds, tensors={"w": four}, axis=5, block_size=16)
        other = self.four("z", TensorProto.UINT4, (6, 3), rng)
        refused(["x_zero_point has inconsistent type"], op="DequantizeLinear", inputs=("w", "s", "z"), extra=rounds["extra"],
                tensors={"w": four, "z": other}, axis=1, block_size=16)
        refused(["zero point of UINT4 has another type than its tensor, INT4"], op="GatherBlockQuantized", inputs=("w", "ids", "s", "z"),
                tensors={"w": four, "z": other}, block_size=16)
        refused([r"zero points \[6, 2\] have another shape than its scales \[6, 3\]"], op="GatherBlockQuantized", inputs=("w", "ids", "s", "z"),
                tensors={"w": four, "z": self.four("z", TensorProto.INT4, (6, 2), rng)}, block_size=16)
        refused(["tensor of 4-bit integers, which DequantizeLinear"], op="Cast", inputs=("w",), tensors={"w": four}, to=TensorProto.FLOAT)
        refused(["block_size is 24"], op="GatherBlockQuantized", inputs=("w", "ids", "s"), tensors={"w": four, "s": s}, block_size=24)
        refused(["has 8 bits", "bits=4"], op="GatherBlockQuantized", inputs=("b", "ids", "s"), tensors={"b": b.reshape(6, 24)}, bits=8, block_size=16)
        refused(["has no elements"], **rounds, tensors={"w": self.four("w", TensorProto.INT4, (0, 40), rng), "s": np.zeros((0, 3), np.float32)}, axis=1,
                block_size=16)
        # Nothing is trained without adapters, which the suggested recipe has.
        self.store(quantised(base_model(), QuantFormat.QOperator, True, 32), "four.onnx")
        self.refuse(1, ["nothing to train", r"\[adapter\]"], "tcc", "four.onnx", *LOSS, "--set", 'model.frozen=["up.bias"]', "-o", "p.tplan")
        shown = self.succeed("tcc", "inspect", "four.onnx").out
        self.assertRegex(shown, r"up\.weight_Q4 +UINT8 .*stored in 4 bits")
        self.assertRegex(shown, r"up\.weight_scales .*input 2 of /up/MatMul_Q4, scales or zero points of quantised values")
        self.assertRegex(shown, r"emb\.weight_Q4 +INT4 +\[50, 48\].*stored in 4 bits")
        self.succeed("tcc", "four.onnx", "--suggest-recipe", "suggested.toml")
        self.assertIn("[adapter]", (self.folder / "suggested.toml").read_text())
        self.succeed("tcc", "four.onnx", "--recipe", "suggested.toml", "-o", "p.tplan")
        # Adapters whose pattern matches only scales; and a recipe that trains the stored codes.
        self.store(self.linear(["x", "fc.weight_Q4", "fc.weight_scales"], {"fc.weight_Q4": b, "fc.weight_scales": s}, a), "net.onnx")
        loss = ("--set", 'loss.kind="mse"', "--set", 'loss.target="t"', "-o", "p.tplan")
        self.refuse(1, ["adapter.targets", "no matrix, filter or table", "there is fc|there are fc|nearest is .?fc"], "tcc", "net.onnx", *loss, *ADAPTER,
                    "--set", 'adapter.targets=["*_scales"]')
        self.refuse(1, ["model.trainable: fc.weight_Q4 is not floating-point"], "tcc", "net.onnx", *loss, "--set",
                    'model.trainable=["fc.weight_Q4"]')


if __name__ == "__main__":
    import unittest
    unittest.main()
