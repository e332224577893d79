"""Attention and related ops, in ONNX and in onnxruntime's own domain."""
import numpy as np
from onnx import TensorProto

from . import judges
from .table import Each, F, I, IV, S, Table

case = Table("attention").case


def qkv(heads=2, shared=2, queries=3, keys=5, size=4, values=4):
    return F(2, heads, queries, size), F(2, shared, keys, size), F(2, shared, keys, values)


case("Attention", *qkv(), name="4-D")
case("Attention", *qkv(values=3), name="4-D, values of another size")
case("Attention", *qkv(), name="scale", scale=0.3)
case("Attention", *qkv(), name="causal", is_causal=1)
case("Attention", *qkv(queries=5), name="causal, square", is_causal=1)
case("Attention", *qkv(), name="softcap", softcap=1.5)
case("Attention", *qkv(heads=4), name="grouped queries")
case("Attention", *qkv(heads=4, shared=1), name="one head of keys")
case("Attention", *qkv(), F(3, 5), name="float mask")
case("Attention", *qkv(), F(2, 1, 3, 5), name="float mask of rank 4")
case("Attention", *qkv(), IV(np.tril(np.ones((3, 5)), 1).astype(bool), bool), name="bool mask")
case("Attention", *qkv(queries=3, keys=3), F(3, 3), name="causal with mask", is_causal=1)
case("Attention", *qkv(keys=2), None, F(2, 2, 3, 4), F(2, 2, 3, 4), name="past", outputs=3)
case("Attention", *qkv(keys=2), F(3, 5), F(2, 2, 3, 4), F(2, 2, 3, 4), name="past and mask", outputs=3)
case("Attention", F(2, 3, 8), F(2, 5, 8), F(2, 5, 6), name="3-D", q_num_heads=2, kv_num_heads=2)
case("Attention", F(2, 3, 16), F(2, 5, 8), F(2, 5, 8), name="3-D, grouped queries", q_num_heads=4, kv_num_heads=2, is_causal=Each(..., 1))
for mode in (0, 1, 2, 3):
    # The reference also caps the scores of mode 0; by the standard's text and function body they are not capped.
    case("Attention", *qkv(), F(3, 5), name="qk_matmul_output", qk_matmul_output_mode=mode, outputs=["o0", "", "", "o3"],
         softcap=Each(..., 1.5) if mode else ...)
case("Attention", *qkv(), None, None, None, IV([3, 5]), name="nonpad_kv_seqlen", since=24)
case("Attention", *qkv(queries=4, keys=6), name="window", left_window_size=2, right_window_size=Each(..., 1), since=25)

CACHE = (F(6, 2, lo=-1, hi=1), F(6, 2, lo=-1, hi=1))
case("RotaryEmbedding", F(2, 3, 5, 4), *CACHE, I(2, 5, below=6), interleaved=Each(..., 1), name="4-D")
case("RotaryEmbedding", F(2, 5, 12), *CACHE, I(2, 5, below=6), interleaved=Each(..., 1), num_heads=3, name="3-D")
case("RotaryEmbedding", F(2, 3, 5, 4), F(2, 5, 2, lo=-1, hi=1), F(2, 5, 2, lo=-1, hi=1), name="no positions")
case("RotaryEmbedding", F(2, 3, 5, 6), *CACHE, I(2, 5, below=6), rotary_embedding_dim=4, interleaved=Each(..., 1), name="a part rotates")

for rule in ("linear", "gated", "delta", "gated_delta"):
    decay = F(2, 3, 8, lo=-1.5, hi=-0.1) if "gated" in rule else None
    beta = F(2, 3, 2, lo=0.1, hi=0.9) if "delta" in rule else None
    case("LinearAttention", F(2, 3, 8, lo=-1, hi=1), F(2, 3, 8, lo=-0.5, hi=0.5), F(2, 3, 6), None, decay, beta, name=rule, update_rule=rule,
         q_num_heads=2, kv_num_heads=2, outputs=2)
    case("LinearAttention", F(2, 3, 16, lo=-1, hi=1), F(2, 3, 8, lo=-0.5, hi=0.5), F(2, 3, 6), F(2, 2, 4, 3), decay, beta, outputs=2,
         name=f"{rule}, grouped queries and a past", update_rule=rule, q_num_heads=4, kv_num_heads=2, scale=0.5)
case("CausalConvWithState", F(2, 3, 5), F(3, 1, 3), name="no bias, no past", outputs=2)
case("CausalConvWithState", F(2, 3, 5), F(3, 1, 3), F(3), F(2, 3, 2), outputs=2, activation=Each(..., "silu", "swish"), name="bias and past")



def fast_gelu(x):
    return 0.5 * x * (1 + np.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))


def split_gelu(x):
    left, right = np.split(x, 2, axis=-1)
    return left * judges.run("Gelu", [right])


MS = {"domain": "com.microsoft", "judge": "onnxruntime", "why": "onnxruntime's own op"}
for transA in (0, 1):
    for transB in (0, 1):
        case("FusedMatMul", F(2, *((4, 3) if transA else (3, 4))), F(2, *((5, 4) if transB else (4, 5))), transA=transA, transB=transB,
             alpha=Each(..., 0.5), **MS)
case("Gelu", F(2, 3), **MS)
case("BiasGelu", F(2, 3, 4), F(4), **MS)
case("FastGelu", F(2, 3, 4), **MS)
case("FastGelu", F(2, 3, 4), F(4), name="bias", **MS)
case("QuickGelu", F(2, 3), alpha=Each(..., 1.0), **MS)
case("SkipLayerNormalization", F(2, 3, 4), F(2, 3, 4), F(4), F(4), F(4), name="bias", epsilon=Each(..., 0.1), **MS)
case("SkipLayerNormalization", F(2, 3, 4), F(2, 3, 4), F(4), name="gamma alone", **MS)
case("SkipLayerNormalization", F(2, 3, 4), F(2, 3, 4), F(4), F(4), name="sum", outputs=["o0", "", "", "o3"], **MS)
case("SkipSimplifiedLayerNormalization", F(2, 3, 4), F(2, 3, 4), F(4), **MS)
case("RotaryEmbedding", F(2, 5, 12), IV([0], np.int64), *(c.still for c in CACHE), name="ms", num_heads=3, interleaved=Each(..., 1), **MS)
case("MultiHeadAttention", F(2, 3, 8), F(2, 5, 8), F(2, 5, 8), num_heads=2, scale=Each(..., 0.3), **MS)
case("MultiHeadAttention", F(2, 3, 8), F(2, 5, 8), F(2, 5, 8), F(24), num_heads=2, name="bias", **MS)
case("MultiHeadAttention", F(2, 3, 8), F(2, 3, 8), F(2, 3, 8), None, None, F(1, 2, 3, 3), num_heads=2, name="attention_bias, causal",
     unidirectional=1, **MS)
case("GroupQueryAttention", F(1, 3, 32), F(1, 3, 16), F(1, 3, 16), None, None, IV([2], np.int32), S(3, np.int32), num_heads=4,
     kv_num_heads=2, outputs=3, read=[0], **MS)
case("SimplifiedLayerNormalization", F(2, 3, 4), F(4), epsilon=Each(..., 0.1), name="ms", values=lambda a, attributes, opset: a[0] * a[1] /
     np.sqrt(np.mean(a[0] ** 2, -1, keepdims=True) + attributes.get("epsilon", 1e-5)), domain="com.microsoft",
     why="onnxruntime has it in the domain of ONNX")
case("BiasAdd", F(1, 4, 320), F(320), F(1, 4, 320), values=lambda a, *_: a[0] + a[1] + a[2], domain="com.microsoft", why="onnxruntime has it for GPUs")
case("BiasSplitGelu", F(1, 2, 8), F(8), values=lambda a, *_: split_gelu(a[0] + a[1]), domain="com.microsoft", why="onnxruntime has it for GPUs")
case("BiasDropout", F(2, 3, 4), F(4), F(2, 3, 4), values=lambda a, *_: a[0] + a[1] + a[2], domain="com.microsoft",
     why="onnxruntime has it for training")
case("GatherND", F(3, 4, 2), IV([[0, 1], [2, 3], [2, 3]]), name="ms", **MS)
case("GemmFastGelu", F(2, 3), F(3, 4), F(4), values=lambda a, *_: fast_gelu(a[0] @ a[1] + a[2]), domain="com.microsoft",
     why="onnxruntime has it for GPUs")
case("Range", S(1, np.float32), S(7, np.float32), S(1.5, np.float32), name="ms", **MS)
case("TransposeMatMul", F(2, 4, 3), F(2, 4, 5), transA=1, alpha=Each(..., 0.5), **MS)
case("SimplifiedLayerNormalization", F(2, 3, 4), F(4), epsilon=Each(..., 0.1), opset=21, judge="onnxruntime", why="onnxruntime's own op")
case("LayerNormalization", F(2, 3, 4), F(4), F(4), epsilon=Each(..., 0.1), name="ms", domain="com.microsoft",
     values=lambda a, attributes, opset: judges.run("LayerNormalization", a, **attributes), why="ONNX took it over")
