"""Reasons why ops have no derivative, or are not supported at all. All other ops must have cases of their gradients."""

NO_DERIVATIVE = {
    "booleans": ["And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"],
    "integers": ["ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "DynamicQuantizeLinear",
                 "GatherBlockQuantized", "NonMaxSuppression",
                 "NonZero", "QuantizeLinear", "SequenceLength", "Shape", "Size", "TfIdfVectorizer"],
    "the bits of a number": ["BitCast"],
    "one-hot, constant between ties": ["Hardmax"],
    "made of constants": ["BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix",
                          "Range", "SequenceEmpty"],
    "random numbers": ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"],
    "read where its input is a constant, since the result's extent depends on values": ["Unique"],
    "an optimizer's step": ["ai.onnx.preview.training::Adagrad", "ai.onnx.preview.training::Adam",
                            "ai.onnx.preview.training::Momentum"],
}

OUT_OF_SCOPE = {
    "optionals": ["Optional", "OptionalGetElement", "OptionalHasElement"],
    "read with `--dequantize` ([quantization.md](quantization.md))": ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"],
    "strings": ["RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"],
    "encoded images": ["ImageDecoder"],
}


def reason(table, name):
    """The reason under which a table lists an op (with its domain where that is not ONNX's own); None if it does not."""
    return next((why for why, ops in table.items() if name in ops or name.removeprefix("com.microsoft::") in ops), None)
