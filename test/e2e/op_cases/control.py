"""Recurrent layers, control flow and sequences."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .table import B, Each, F, I, IV, S, Table

case = Table("control").case

ORT = {"judge": "onnxruntime", "judge_at": 21, "why": "the reference has no activations, directions and lengths beyond the plain ones"}


def weights(gates, hidden=3, size=2, directions=1):
    return F(directions, gates * hidden, size, lo=-1, hi=1), F(directions, gates * hidden, hidden, lo=-1, hi=1)


def bias(gates, hidden=3, directions=1):
    return F(directions, 2 * gates * hidden, lo=-1, hi=1)


for op, gates, outputs in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)):
    x = F(4, 2, 2, lo=-1, hi=1)
    case(op, x, *weights(gates), hidden_size=3, outputs=outputs, name="plain", **ORT)
    for direction in ("reverse", "bidirectional"):
        d = 2 if direction == "bidirectional" else 1
        start = [F(d, 2, 3, lo=-1, hi=1)] * (outputs - 1)
        case(op, x, *weights(gates, directions=d), bias(gates, directions=d), None, *start, hidden_size=3, outputs=outputs,
             direction=direction, name=f"{direction}, bias, initial state", **ORT)
        case(op, x, *weights(gates, directions=d), bias(gates, directions=d), IV([2, 4], np.int32), *start, hidden_size=3,
             outputs=outputs, direction=direction, name=f"{direction}, lengths", **ORT)
    case(op, x, *weights(gates), bias(gates), IV([3, 1], np.int32), hidden_size=3, outputs=outputs, name="lengths", **ORT)
    case(op, x, *weights(gates), hidden_size=3, outputs=outputs, name="clip", clip=0.4, **ORT)
    case(op, F(2, 4, 2, lo=-1, hi=1), *weights(gates), hidden_size=3, outputs=outputs, name="layout 1", layout=1, since=14)
    case(op, x, *weights(gates), hidden_size=3, outputs=["", "o1"], name="last state alone", **ORT)
case("RNN", F(4, 2, 2), *weights(1), hidden_size=3, outputs=2, name="activation", activations=Each(["Relu"], ["Sigmoid"], ["Softsign"]), **ORT)
case("RNN", F(4, 2, 2), *weights(1), hidden_size=3, outputs=2, name="parameters", activations=["LeakyRelu"], activation_alpha=[0.2], **ORT)
case("RNN", F(4, 2, 2), *weights(1), hidden_size=3, outputs=2, name="affine", activations=["HardSigmoid"], activation_alpha=[0.3],
     activation_beta=[0.4], **ORT)
case("GRU", F(4, 2, 2), *weights(3), bias(3), hidden_size=3, outputs=2, name="linear_before_reset", linear_before_reset=1, **ORT)
case("GRU", F(4, 2, 2), *weights(3), hidden_size=3, outputs=2, name="activations", activations=["HardSigmoid", "Softsign"], **ORT)
case("LSTM", F(4, 2, 2), *weights(4), bias(4), None, None, None, F(1, 9), hidden_size=3, outputs=3, name="peepholes", **ORT)
case("LSTM", F(4, 2, 2), *weights(4), bias(4), None, None, None, F(1, 9), hidden_size=3, outputs=3, name="input_forget", input_forget=1, **ORT)
case("LSTM", F(4, 2, 2), *weights(4), hidden_size=3, outputs=3, name="activations", activations=["Sigmoid", "Softsign", "Relu"], **ORT)


def tensor(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def branch(op, result):
    """A branch that reads the case's inputs from the outer graph."""
    return lambda opset: helper.make_graph([helper.make_node(op, ["i1", "i2"], [result])], result, [], [tensor(result, 2, 3)])




for condition in (True, False):
    case("If", S(condition, bool), F(2, 3), F(2, 3), outer=(1, 2), name=f"condition {condition}", then_branch=branch("Mul", "a"),
         else_branch=branch("Sub", "b"))


def loop_body(opset):
    """state × 1.5 + x[iteration]; each state is an output."""
    nodes = [helper.make_node("Gather", ["i3", "iteration"], ["row"]),
             helper.make_node("Add", ["before", "row"], ["after"]),
             helper.make_node("Tanh", ["after"], ["seen"]),
             helper.make_node("Identity", ["going"], ["on"])]
    return helper.make_graph(nodes, "body", [tensor("iteration", kind=TensorProto.INT64), tensor("going", kind=TensorProto.BOOL),
                                             tensor("before", 3)],
                             [tensor("on", kind=TensorProto.BOOL), tensor("after", 3), tensor("seen", 3)])


case("Loop", S(4), S(True, bool), F(3), F(4, 3), outer=(3,), name="fixed count", body=loop_body, outputs=["o0", "o1"])


def scan_body(opset):
    nodes = [helper.make_node("Mul", ["before", "element"], ["product"]), helper.make_node("Tanh", ["product"], ["after"]),
             helper.make_node("Add", ["product", "element"], ["seen"])]
    return helper.make_graph(nodes, "body", [tensor("before", 3), tensor("element", 3)], [tensor("after", 3), tensor("seen", 3)])


case("Scan", F(3), F(4, 3), name="forward", body=scan_body, num_scan_inputs=1, outputs=2, since=9)
case("Scan", F(3), F(4, 3), name="backward", body=scan_body, num_scan_inputs=1, outputs=2, scan_input_directions=[1],
     scan_output_directions=[1], since=9, judge="onnxruntime", judge_at=21, why="the reference scans forwards only")
case("Scan", F(3), F(3, 4), name="axes", body=scan_body, num_scan_inputs=1, outputs=2, scan_input_axes=[1], scan_output_axes=[-1], since=9,
     judge="onnxruntime", judge_at=21, why="the reference scans axis 0 only")
case("Scan", None, F(2, 3), F(2, 4, 3), name="batches", body=scan_body, num_scan_inputs=1, outputs=2, until=8, judge="onnxruntime",
     why="the reference lacks opset 8's form")

# Sequences that are split at positions known when the model is compiled.
case("SplitToSequence", F(4, 3), S([1, 3]), axis=0, then=[("Constant", [], ["k"], {"value": numpy_helper.from_array(np.array(1))}),
     ("SequenceAt", ["o0", "k"], ["r0"], {})], results=["r0"], name="one part")
case("SequenceConstruct", F(2, 3), F(2, 3), then=[("ConcatFromSequence", ["o0"], ["r0"], {"axis": 1})], results=["r0"], name="concatenated")
case("SequenceConstruct", F(2, 3), F(2, 3), then=[("ConcatFromSequence", ["o0"], ["r0"], {"axis": 0, "new_axis": 1})], results=["r0"], name="stacked")


def number(value):
    return ("Constant", [], ["k"], {"value": numpy_helper.from_array(np.array(value))})


case("Identity", F(2, 3), name="put in front of a sequence, then another taken out", then=[
    ("Neg", ["i0"], ["n"], {}), ("SequenceConstruct", ["o0", "o0"], ["s"], {}), number(0), ("SequenceInsert", ["s", "n", "k"], ["t"], {}),
    ("Constant", [], ["two"], {"value": numpy_helper.from_array(np.array(2))}), ("SequenceErase", ["t", "two"], ["u"], {}),
    ("ConcatFromSequence", ["u"], ["r0"], {"axis": 0})], results=["r0"], since=14, until=15)
case("Identity", F(2, 3), name="an empty sequence filled", then=[
    ("SequenceEmpty", [], ["s"], {}), ("SequenceInsert", ["s", "o0"], ["t"], {}), ("SequenceLength", ["t"], ["r1"], {}), number(0),
    ("SequenceAt", ["t", "k"], ["r0"], {})], results=["r0", "r1"], since=14, until=15)


def mapped(opset):
    return helper.make_graph([helper.make_node("Tanh", ["one"], ["made"])], "body", [tensor("one", 2, 3)], [tensor("made", 2, 3)])


case("SequenceConstruct", F(2, 3), F(2, 3), name="mapped", then=[("SequenceMap", ["o0"], ["m"], {"body": mapped(17)}),
     ("ConcatFromSequence", ["m"], ["r0"], {"axis": 0})], results=["r0"], opset=17)
