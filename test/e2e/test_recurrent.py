"""RNN, GRU and LSTM over their attributes: values against onnxruntime, gradients against finite differences in f64."""
import re
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from common import EndToEnd
from onnx import TensorProto, helper, numpy_helper

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ALL = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"]

# op, attributes, optional inputs, opset
CASES = {
    "rnn": ("RNN", {}, "", 7),
    "rnn both ways, all inputs": ("RNN", {"direction": "bidirectional"}, "B h", 14),
    "rnn backwards with lengths": ("RNN", {"direction": "reverse"}, "B lens h", 14),
    "rnn clipped": ("RNN", {"clip": 0.4}, "B h", 14),
    **{f"rnn {name}": ("RNN", {"activations": [name], "activation_alpha": [0.6], "activation_beta": [0.3]}, "B h", 14) for name in ALL},
    "rnn activations of both directions": ("RNN", {"direction": "bidirectional", "activations": ["LeakyRelu", "Elu"],
                                                   "activation_alpha": [0.3, 0.7]}, "B h", 22),
    "gru": ("GRU", {}, "", 7),
    "gru both ways, all inputs": ("GRU", {"direction": "bidirectional"}, "B lens h", 14),
    "gru reset after": ("GRU", {"linear_before_reset": 1}, "B h", 14),
    "gru reset after, both ways, lengths": ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, "B lens h", 22),
    "gru reset after without bias": ("GRU", {"linear_before_reset": 1, "direction": "reverse"}, "h", 14),
    "gru other activations": ("GRU", {"activations": ["HardSigmoid", "Softsign"], "clip": 0.7}, "B h", 14),
    "lstm": ("LSTM", {}, "", 7),
    "lstm both ways, all inputs": ("LSTM", {"direction": "bidirectional"}, "B lens h c P", 14),
    "lstm backwards": ("LSTM", {"direction": "reverse"}, "B h c", 22),
    "lstm peepholes": ("LSTM", {}, "B h c P", 14),
    "lstm coupled gates": ("LSTM", {"input_forget": 1}, "B h c", 14),
    "lstm other activations": ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.8],
                                        "activation_beta": [0.4]}, "B h c", 14),
}


def inputs_of(op, attributes, optional, random):
    """Name → value of each input that the node has."""
    directions, gates = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[op]
    draw = lambda *shape: random.uniform(-0.8, 0.8, shape).astype(np.float32)  # noqa: E731
    every = {"W": draw(directions, gates * HIDDEN, FEATURES), "R": draw(directions, gates * HIDDEN, HIDDEN),
             "B": draw(directions, 2 * gates * HIDDEN), "lens": np.array([STEPS, 2, 3], np.int32),
             "h": draw(directions, BATCH, HIDDEN), "c": draw(directions, BATCH, HIDDEN), "P": draw(directions, 3 * HIDDEN)}
    return {name: value for name, value in every.items() if name in "W R".split() + optional.split()}


def node_of(op, attributes, given):
    names = ["x"] + [name if name in given else "" for name in ["W", "R", "B", "lens", "h"] + (["c", "P"] if op == "LSTM" else [])]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "LSTM" else [])
    return helper.make_node(op, names, outputs, "layer", hidden_size=HIDDEN, **attributes), outputs


def save(path, nodes, inputs, outputs, weights, opset):
    """A model whose outputs have the shapes that onnx infers."""
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


class Recurrent(EndToEnd):
    def predict(self, name, feeds):
        self.compile(name, "--entry", "predict")
        self.save("in.safetensors", **feeds)
        self.succeed("trun", "predict", "plan.tplan", "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        return safetensors.numpy.load_file(self.folder / "out.safetensors")

    def test_values(self):
        for name, (op, attributes, optional, opset) in CASES.items():
            with self.subTest(name):
                random = np.random.default_rng(1)
                given = inputs_of(op, attributes, optional, random)
                x = random.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)
                node, outputs = node_of(op, attributes, given)
                # In about half of the cases, the lengths are an input of the graph.
                late = {"lens"} if len(name) % 2 else set()
                inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
                inputs += [helper.make_tensor_value_info(n, TensorProto.INT32, [BATCH]) for n in late if n in given]
                save(self.folder / "m.onnx", [node], inputs, outputs, {k: v for k, v in given.items() if k not in late}, opset)
                feeds = {"x": x, **{n: given[n] for n in late if n in given}}
                expected = onnxruntime.InferenceSession(self.folder / "m.onnx").run(outputs, feeds)
                actual = self.predict("m.onnx", feeds)
                for output, value in zip(outputs, expected):
                    np.testing.assert_allclose(actual[output], value, rtol=2e-5, atol=2e-6, err_msg=f"{name}: {output}")

    def test_gradients(self):
        paths = []
        for number, (name, (op, attributes, optional, opset)) in enumerate(CASES.items()):
            random = np.random.default_rng(2)
            given = inputs_of(op, attributes, optional, random)
            x = random.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)
            node, outputs = node_of(op, attributes, given)
            # loss = Σ over the outputs y of |y + y²|
            nodes, constants, terms = [node], {"flat": np.array([-1], np.int64)}, []
            for output in outputs:
                nodes += [helper.make_node("Reshape", [output, "flat"], [output + "_flat"]),
                          helper.make_node("Mul", [output + "_flat", output + "_flat"], [output + "_square"]),
                          helper.make_node("Add", [output + "_flat", output + "_square"], [output + "_both"]),
                          helper.make_node("ReduceL2", [output + "_both"], [output + "_term"], keepdims=0)]
                terms.append(output + "_term")
            nodes.append(helper.make_node("Sum", terms, ["loss"]))
            path = self.folder / f"g{number}.onnx"
            weights = {f"m{number}.{k}" if k != "lens" else k: v for k, v in given.items()}
            renamed = [f"m{number}.{n}" if n in given and n != "lens" else n for n in node.input]
            del node.input[:]
            node.input.extend(renamed)
            save(path, nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], ["loss"],
                 weights | constants, max(opset, 13))
            paths.append((name, path, {k for k in weights if k != "lens"}))
        for name, path, parameters in paths:
            with self.subTest(name):
                out = self.succeed("tcc", "gradcheck", path).out
                rows = re.findall(r"^(\S+) +(\S+) +(\d+) +([\d.e+-]+) +(\d+) +([\d.e+-]+)  ", out, re.MULTILINE)
                errors = {row[0]: float(row[5]) for row in rows}
                self.assertEqual(set(errors), parameters, out)
                self.assertLess(max(errors.values()), 1e-6, out)

    def test_batch_first(self):
        """layout = 1 gives the values of layout = 0 with the axes in another order."""
        for op, optional in (("RNN", "B h"), ("GRU", "B lens h"), ("LSTM", "B lens h c P")):
            random = np.random.default_rng(3)
            attributes = {"direction": "bidirectional"}
            given = inputs_of(op, attributes, optional, random)
            x = random.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)
            results = []
            for layout in (0, 1):
                own = dict(given)
                if layout:
                    for state in ("h", "c"):
                        if state in own:
                            own[state] = np.ascontiguousarray(own[state].transpose(1, 0, 2))
                node, outputs = node_of(op, attributes | {"layout": layout}, own)
                shown = np.ascontiguousarray(x.transpose(1, 0, 2)) if layout else x
                save(self.folder / "m.onnx", [node], [helper.make_tensor_value_info("x", TensorProto.FLOAT, shown.shape)],
                     outputs, own, 14)
                results.append(self.predict("m.onnx", {"x": shown}))
            np.testing.assert_array_equal(results[1]["Y"].transpose(1, 2, 0, 3), results[0]["Y"])
            for output in outputs[1:]:
                np.testing.assert_array_equal(results[1][output].transpose(1, 0, 2), results[0][output])

    def test_what_is_wrong_is_said(self):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, FEATURES])
        for attributes, change, message in (({"activations": ["Tanh", "Gelu", "Tanh"]}, {}, "layer.*Gelu is unknown"),
                                            ({}, {"R": np.zeros((1, 4 * HIDDEN, HIDDEN + 1), np.float32)}, "layer.*hidden_size is 6"),
                                            ({}, {"B": np.zeros((1, 3), np.float32)}, r"layer.*B has the shape \[1, 3\]")):
            given = inputs_of("LSTM", {}, "B", np.random.default_rng(4)) | change
            node, outputs = node_of("LSTM", attributes, given)
            graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
                                      [numpy_helper.from_array(value, name) for name, value in given.items()])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), self.folder / "m.onnx")
            self.refuse(1, [message], "tcc", "m.onnx", "-o", "p.tplan", "--entry", "predict")

    def test_compile_time_does_not_grow_with_the_length(self):
        """All steps are one kernel: a plan of 400 steps has as many instructions as one of 2."""
        counts = []
        for steps in (2, 400):
            given = inputs_of("LSTM", {}, "B", np.random.default_rng(5))
            node, outputs = node_of("LSTM", {}, given)
            square = helper.make_node("ReduceSumSquare", ["Y"], ["loss"], keepdims=0)
            save(self.folder / "m.onnx", [node, square], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, BATCH, FEATURES])],
                 ["loss"], given, 13)
            self.compile("m.onnx", "--set", "compiler.fuse=true")     # without it a long sum is two kernels
            report = self.report("plan.tplan")
            # Which kernel multiplies depends on the number of rows; the number of instructions must not.
            counts.append((len([k for k in report["kernels"] if not k["name"].startswith("matmul")]),
                           [program["instructions"] for entry in report["memory"]["entries"].values() for program in entry["programs"].values()]))
        self.assertEqual(counts[0], counts[1])


if __name__ == "__main__":
    unittest.main()
