"""The other fused ops of onnxruntime's own domain (see attention.py); onnxruntime gives the expected results."""
import numpy as np

from .table import Each, F, IV, S, Table

case = Table("contrib").case
MS = {"domain": "com.microsoft", "judge": "onnxruntime", "why": "onnxruntime's own op"}


def ints(values):
    return IV(values, np.int32)


case("FusedMatMul", F(3, 2, 4), F(5, 2, 4), transBatchA=1, transBatchB=1, transB=1, name="batch behind", **MS)
case("FusedGemm", F(3, 4), F(4, 5), F(5), activation="LeakyRelu", activation_alpha=0.2, alpha=0.5, beta=2.0, name="leaky", **MS)
case("FusedGemm", F(4, 3), F(4, 5), activation=Each("Sigmoid", "Tanh", "Relu"), transA=1, name="no bias", **MS)
case("FusedConv", F(2, 3, 6, 6), F(4, 3, 3, 3), F(4), activation="HardSigmoid", activation_params=[0.3, 0.4], pads=[1, 1, 1, 1],
     name="padded", **MS)
case("FusedConv", F(2, 3, 6, 6), F(4, 3, 3, 3), F(4), F(2, 4, 4, 4), activation="Relu", name="with an addend", **MS)
case("SkipLayerNormalization", F(2, 3, 4), F(3, 4), F(4), name="skip broadcasts", epsilon=1e-5, **MS)
case("SkipSimplifiedLayerNormalization", F(2, 3, 4), F(2, 3, 4), F(4), F(4), name="bias and sum", outputs=["o0", "", "", "o3"], **MS)

IDS, SEGMENTS, MASK = ints([[1, 8, 0], [3, 3, 2]]), ints([[0, 0, 1], [1, 1, 0]]), ints([[1, 1, 0], [1, 1, 1]])
case("EmbedLayerNormalization", IDS, SEGMENTS, F(9, 4), F(5, 4), F(2, 4), F(4), F(4), MASK, outputs=3, read=[0], epsilon=1e-5,
     name="segments and mask", **MS)
case("EmbedLayerNormalization", IDS, None, F(9, 4), F(5, 4), None, F(4), F(4), outputs=2, read=[0], epsilon=1e-5, name="words alone", **MS)

TABLES = (F(10, 4, lo=-1, hi=1), F(10, 4, lo=-1, hi=1))
ROWS = IV([[0, 1, 2], [4, 5, 6]])
case("RotaryEmbedding", F(2, 3, 16), IV([2]), *TABLES, name="from a position on", **MS)
case("RotaryEmbedding", F(2, 2, 3, 8), ROWS, *TABLES, name="heads apart", **MS)
case("RotaryEmbedding", F(2, 3, 24), IV([1]), *TABLES, num_heads=2, rotary_embedding_dim=8, name="in part", **MS)

LONG = (F(2, 3, 8), F(2, 5, 8), F(2, 5, 8))
case("MultiHeadAttention", *LONG, None, ints([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), num_heads=2, name="padding", **MS)
case("MultiHeadAttention", *LONG, None, ints([3, 5]), num_heads=2, name="lengths", **MS)
case("MultiHeadAttention", *LONG, None, ints([[[1, 1, 0, 1, 0]] * 3, [[0, 1, 1, 1, 1]] * 3]), num_heads=2, mask_filter_value=-50.0,
     name="a mask for each query", **MS)
case("MultiHeadAttention", F(2, 3, 8), F(2, 3, 8), F(2, 3, 8), None, None, None, F(2, 2, 4, 4), F(2, 2, 4, 4), outputs=3, num_heads=2,
     unidirectional=1, name="past", **MS)
case("MultiHeadAttention", F(2, 3, 8), F(2, 2, 5, 4), F(2, 2, 5, 4), num_heads=2, name="cross", **MS)

OWN = (F(2, 3, 6), F(6, 24), F(24))
case("Attention", *OWN, num_heads=2, unidirectional=Each(..., 1), name="ms", **MS)
case("Attention", F(2, 3, 6), F(6, 20), F(20), num_heads=2, qkv_hidden_sizes=[8, 8, 4], name="ms, sizes", **MS)
case("Attention", *OWN, MASK, num_heads=2, name="ms, mask", **MS)
case("Attention", *OWN, None, F(2, 2, 2, 4, 4), outputs=2, num_heads=2, name="ms, past", **MS)

GROUPED = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3, "read": [0], **MS}
LENGTHS = (ints([2, 2]), S([3], np.int32))
FEW = (F(2, 3, 32), F(2, 3, 16), F(2, 3, 16), None, None, *LENGTHS)
case("GroupQueryAttention", F(2, 3, 64), None, None, None, None, *LENGTHS, name="packed", **GROUPED)
case("GroupQueryAttention", F(2, 3, 64), F(2, 3, 32), F(2, 3, 32), None, None, *LENGTHS, F(10, 8, lo=-1, hi=1).still,
     F(10, 8, lo=-1, hi=1).still, do_rotary=1, rotary_interleaved=Each(..., 1), name="rotary", **GROUPED)
case("GroupQueryAttention", *FEW, softcap=1.5, local_window_size=2, name="window", **GROUPED)
case("GroupQueryAttention", *FEW, smooth_softmax=1, name="smooth", **GROUPED)
case("GroupQueryAttention", *FEW, None, None, None, None, F(4), name="sink", **GROUPED)
case("GroupQueryAttention", *FEW, None, None, None, F(1, 4, 3, 3), name="scores", **GROUPED)
case("GroupQueryAttention", F(1, 1, 32), F(1, 1, 16), F(1, 1, 16), F(1, 2, 4, 8), F(1, 2, 4, 8), S([4], np.int32), S([5], np.int32),
     name="past", **GROUPED)
case("Trilu", F(3, 4), upper=Each(..., 0), name="ms", **MS)
case("ExpandDims", F(3, 4), S(1, np.int32), name="ms", **MS)

# Weights in 4 bits: 3 features of 40 inputs in blocks of 16, whose last one is padded, so that a row has 24 bytes.
CODES, SCALES = S((np.arange(72) * 37 % 256).reshape(3, 3, 8), np.uint8), S(np.linspace(-0.4, 0.5, 9).reshape(3, 3), np.float32)
NBITS = {"K": 40, "N": 3, "bits": 4, "block_size": 16}
case("MatMulNBits", F(2, 4, 40), CODES, SCALES, name="symmetric", **NBITS, **MS)
case("MatMulNBits", F(5, 40), CODES, SCALES, S([[0x5a, 3], [0xf0, 9], [0x81, 0]], np.uint8), name="zero points", **NBITS, **MS)
case("MatMulNBits", F(5, 40), CODES, SCALES, S(np.linspace(4, 9, 9).reshape(3, 3), np.float32), None, F(3), name="zero points in f32, bias",
     **NBITS, **MS)
TABLE, STEPS = S((np.arange(7 * 24) * 53 % 256).reshape(7, 24), np.uint8), S(np.linspace(-0.4, 0.5, 21).reshape(7, 3), np.float32)
case("GatherBlockQuantized", TABLE, IV([[0, 6, -1], [3, 3, 2]]), STEPS, name="two in a byte", differentiable=False, bits=4, block_size=16,
     quantize_axis=1, gather_axis=0, **MS)
case("GatherBlockQuantized", TABLE, IV([[0, 6, -1], [3, 3, 2]]), STEPS, S((np.arange(14) * 91 % 256).reshape(7, 2), np.uint8),
     name="two in a byte, zero points", differentiable=False, bits=4, block_size=16, quantize_axis=1, gather_axis=0, **MS)
