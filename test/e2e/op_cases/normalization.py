"""Normalisations and losses."""
import numpy as np

from .table import Each, F, I, IV, Table, V

case = Table("normalization").case

case("LayerNormalization", F(2, 3, 4), F(4), F(4), name="scale and bias")
case("LayerNormalization", F(2, 3, 4), F(4), name="no bias", epsilon=Each(..., 0.1))
case("LayerNormalization", F(2, 3, 4), F(3, 4), F(3, 4), axis=1, name="two axes")
case("LayerNormalization", F(2, 3, 4), F(2, 3, 4), axis=0, name="all axes")
case("LayerNormalization", F(2, 3, 4), F(4), F(4), name="Mean and InvStdDev", outputs=3)
case("LayerNormalization", F(2, 3, 4), F(3, 4), F(3, 4), axis=-2, name="Mean and InvStdDev of two axes", outputs=3)
case("LayerNormalization", F(2, 3, 4), F(4), F(4), name="InvStdDev alone", outputs=["o0", "", "o2"], read=[1], unread=(1, 2))
case("LayerNormalization", F(2, 3, 4), F(4), F(4), name="Mean alone", outputs=3, read=[1], unread=(1, 2))
case("LayerNormalization", F(2, 3, 4), F(4), F(1), name="broadcast bias")
case("RMSNormalization", F(2, 3, 4), F(4), axis=Each(..., -1), epsilon=Each(..., 0.1))
case("RMSNormalization", F(2, 3, 4), F(3, 4), axis=1, name="two axes")
case("GroupNormalization", F(2, 6, 4), F(6), F(6), num_groups=Each(1, 2, 3, 6), epsilon=Each(..., 0.1), since=21)
case("GroupNormalization", F(2, 4, 3, 2), F(4), F(4), num_groups=2, name="rank 4", since=21)
case("InstanceNormalization", F(2, 3, 5), F(3), F(3), epsilon=Each(..., 0.1))
case("InstanceNormalization", F(2, 3, 4, 2), F(3), F(3), name="rank 4")
case("LpNormalization", F(2, 3, 4), axis=Each(..., 0, 1), p=Each(..., 1), judge="onnxruntime",
     why="the reference adds what is negative for p = 1")
case("MeanVarianceNormalization", F(2, 3, 4, 2), axes=Each(..., [0, 2], [1]))


def local_response(arrays, attributes, opset):
    x, (size, alpha, beta, bias) = arrays[0], (attributes.get(k, v) for k, v in (("size", 0), ("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    before, after = (size - 1) // 2, size // 2
    sums = [np.sum(x[:, max(0, c - before):c + after + 1] ** 2, axis=1) for c in range(x.shape[1])]
    return x / (bias + alpha / size * np.stack(sums, axis=1)) ** beta


# A scalar is a vector of one element: docs/guide/ops-differences.md.
for axis in (0, -1):
    case("LayerNormalization", V(np.float32(-1.7)).still, V(np.float32(2)).still, V(np.float32(0.5)), name=f"scalar {axis}", axis=axis,
         values=lambda a, *_: a[2], why="not all run")
    case("RMSNormalization", V(np.float32(-1.7)).still, V(np.float32(2)), name=f"scalar {axis}", axis=axis, epsilon=0.5,
         values=lambda a, *_: np.float32(a[0] / np.sqrt(a[0] ** 2 + 0.5) * a[1]), why="not all run")
    case("LpNormalization", V(np.float32(-1.7)).still, name=f"scalar {axis}", axis=axis, values=lambda a, *_: np.float32(-1), why="it returns a vector",
         differentiable=False)

for size in (1, 2, 3, 5):
    case("LRN", F(2, 6, 3), size=size, name=f"size {size}", alpha=0.3, values=local_response, why="the reference wants rank 4, and as many channels as samples")
case("LRN", F(2, 5, 3, 2), size=3, alpha=Each(..., 0.5), beta=Each(..., 0.6), bias=Each(..., 2.0), name="rank 4", values=local_response, why="as above")


def statistics(channels):
    return F(channels).still, F(channels, lo=0.5, hi=2).still


for shape in ((4, 3, 5), (4, 3), (2, 3, 2, 2)):
    case("BatchNormalization", F(*shape), F(3), F(3), *statistics(3), name=f"inference, rank {len(shape)}", epsilon=Each(..., 0.1),
         judge="onnxruntime", why="the reference trains before opset 14")
case("BatchNormalization", F(4, 3, 5), F(3), F(3), *statistics(3), name="training", training_mode=1, outputs=3,
     momentum=Each(..., 0.7), since=14, read=[0])
case("BatchNormalization", F(4, 3, 2, 2), F(3), F(3), *statistics(3), name="training, rank 4", training_mode=1, outputs=3, since=14, read=[0])

for ratio in (None, 0.0):
    case("Dropout", F(3, 4), name=f"inference ratio={ratio}", **({} if ratio is None else {"ratio": ratio}), until=11)
case("Dropout", F(3, 4), name="inference", since=12)

# Losses: with class weights, an ignored index, all reductions; log_prob is an output of its own.
CLASS = IV([1, 0, 4, 1])
for reduction in ("none", "sum", "mean"):
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        case(op, F(4, 5), CLASS, name=f"{reduction}", reduction=reduction)
        case(op, F(4, 5), CLASS, F(5, lo=0.3, hi=2).still, name=f"{reduction}, weights", reduction=reduction)
        case(op, F(4, 5), CLASS, name=f"{reduction}, ignored", reduction=reduction, ignore_index=1)
        case(op, F(4, 5), IV([1, -1, 4, 1]), F(5, lo=0.3, hi=2).still, name=f"{reduction}, weights, ignored", reduction=reduction,
             ignore_index=-1, since=13)
        case(op, F(2, 5, 3), I(2, 3, below=5), name=f"{reduction}, rank 3", reduction=reduction)
    case("SoftmaxCrossEntropyLoss", F(4, 5), CLASS, name=f"{reduction}, log_prob", reduction=reduction, outputs=2)
    case("SoftmaxCrossEntropyLoss", F(2, 5, 3, 2), I(2, 3, 2, below=5), F(5, lo=0.3, hi=2).still, name=f"{reduction}, log_prob, rank 4",
         reduction=reduction, outputs=2, ignore_index=2)
case("SoftmaxCrossEntropyLoss", F(4, 5), CLASS, name="log_prob alone", outputs=2, read=[1])
case("SoftmaxCrossEntropyLoss", V([[90, -90, 3], [0, 0, 0]]), IV([0, 2]), name="far apart")
