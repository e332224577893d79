"""Which of the official ONNX node tests are in scope, and which of their inputs decide shapes."""
import re

import onnx
from onnx import AttributeProto, TensorProto

SMALL_TYPES = {getattr(TensorProto, name): name for name in (
    "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "FLOAT4E2M1", "INT4", "UINT4", "INT2",
    "UINT2") if hasattr(TensorProto, name)}
QUANTISED = {"QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger"}
# The extent of a result depends on the values of the data.
DATA_DEPENDENT = {"NonZero", "Unique", "NonMaxSuppression"}
# Cases whose expected numbers depend on a particular order of rounding, by pattern, with the reason.
ROUNDING = {
    r"test_attention_.*(_bf16|4d_causal_fp16)(_expanded)?$":
        "16-bit results held to 0.1 %, less than one or two of their own roundings: numpy's order of operations alone gives them",
    r"test_dft_inverse(_opset19)?$":
        "expects 1.9e-7, the rounding of single precision, where the result is 0, and allows 1e-7 beside it",
}
# Cases whose numbers differ from those of onnxruntime and torch (docs/guide/ops.md lists them), by pattern, with the reason.
REFERENCE_ALONE = {
    r"test_resize_downsample_scales_(linear|cubic)_align_corners$":
        "corners aligned with a fractional length, where onnxruntime and torch align them with the last element",
}
# op: positions of the inputs that decide shapes, trip counts or branches.
SHAPE_INPUTS = {
    "Reshape": [1], "Expand": [1], "Tile": [1, 2], "Slice": [1, 2, 3, 4], "Pad": [1, 3], "Resize": [1, 2, 3], "Upsample": [1],
    "ConstantOfShape": [0], "Range": [0, 1, 2], "OneHot": [1], "TopK": [1], "Squeeze": [1], "Unsqueeze": [1], "Split": [1],
    "CumSum": [1], "CumProd": [1], "Trilu": [1], "CenterCropPad": [1], "Col2Im": [1, 2], "AffineGrid": [1], "DFT": [1, 2],
    "STFT": [1, 3], "HannWindow": [0], "HammingWindow": [0], "BlackmanWindow": [0], "MelWeightMatrix": [0, 1, 2, 3, 4],
    "Dropout": [1, 2], "If": [0], "Loop": [0, 1], "MaxUnpool": [2], "SplitToSequence": [1], "SequenceAt": [1],
    "SequenceInsert": [2], "SequenceErase": [1], "Compress": [1],
    **{op: [1] for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                          "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")}}


def shape_inputs(node):
    """Names of the inputs of a node that are known at compile time in models that people export."""
    return [node.input[i] for i in SHAPE_INPUTS.get(node.op_type, []) if i < len(node.input) and node.input[i]]


def only_shapes(name):
    """Whether only types and shapes are compared, since the expected numbers are random ones of numpy."""
    return (name.startswith("test_bernoulli") or
            name.startswith("test_training_dropout") and "zero_ratio" not in name)


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _changed(graph, version):
    """Whether a node means something else in opset 7 than in this older version."""
    since = lambda node, opset: onnx.defs.get_schema(node.op_type, opset, node.domain).since_version  # noqa: E731
    return any(since(node, version) != since(node, 7) for node in _nodes(graph) if node.domain in ("", "ai.onnx"))


def reason_to_skip(case):
    """Why a case is out of scope; None where it is in scope."""
    model = case.model
    if case.data_sets is None or not case.data_sets:
        return "no data in the package"
    for value in [*model.graph.input, *model.graph.output]:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return "optionals" if kind == "optional_type" else "sequences as inputs or outputs" if kind == "sequence_type" else kind
        element = value.type.tensor_type.elem_type
        if element == TensorProto.STRING:
            return "strings"
        if element in SMALL_TYPES:
            return "4- and 8-bit floats, 2- and 4-bit integers"
        if element in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            return "complex numbers"
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < 7 and _changed(model.graph, entry.version):
            return "ops as they were before opset 7"
    for pattern, reason in (ROUNDING | REFERENCE_ALONE).items():
        if re.match(pattern, case.name):
            return reason
    for node in _nodes(model.graph):
        if node.domain == "ai.onnx.ml":
            return "ai.onnx.ml"
        if node.op_type in QUANTISED:
            return "quantised products"
        if node.op_type in DATA_DEPENDENT:
            return "data-dependent output shapes"
        if node.op_type in ("Optional", "OptionalGetElement", "OptionalHasElement"):
            return "optionals"
        if node.op_type == "ImageDecoder":
            return "encoded images"
        for attribute in node.attribute:
            if attribute.name == "block_size" and attribute.i:
                return "quantisation in blocks"
            if attribute.name == "to" and attribute.i in SMALL_TYPES:
                return "4- and 8-bit floats, 2- and 4-bit integers"
    return None
