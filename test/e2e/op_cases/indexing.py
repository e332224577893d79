"""Reads and writes at positions that depend on data."""
import numpy as np

from .table import B, Each, F, I, IV, S, Table, V

case = Table("indexing").case

case("Gather", F(4, 3), I(2, 5, below=4), axis=Each(..., 0))
case("Gather", F(2, 4, 3), IV([0, 3, 3, 1]), axis=1, name="repeated indices")
case("Gather", F(2, 4, 3), IV(2), axis=-1, name="rank 0", since=11)
case("Gather", F(2, 4, 3), IV([-1, 0, -2]), axis=2, name="negative indices", since=11)
case("Gather", F(2, 4, 3), I(2, 2, below=4, dtype=np.int32), axis=1, name="int32")
case("Gather", F(4, 3), S([1, 1, 0]), name="constant indices")
case("GatherElements", F(3, 4), I(2, 4, below=3), axis=Each(..., 0))
case("GatherElements", F(3, 4), I(3, 5, above=-4, below=4), axis=Each(1, -1), name="negative indices", judge="onnxruntime",
     why="the reference compares extents along the negative axis")
case("GatherND", F(3, 4, 2), IV([[0, 1], [2, 3], [2, 3], [1, 0]]), name="pairs, repeated")
case("GatherND", F(3, 4, 2), IV([[[2]], [[0]]]), name="rows")
case("GatherND", F(2, 3, 4), IV([[[1, 2], [0, -1]], [[2, 0], [2, 0]]]), batch_dims=1, since=12)
case("OneHot", IV([1, 3, -2, 9]), S(4), F(2), axis=Each(..., 0, 1))
case("OneHot", I(2, 3, below=4), S(4), F(2), axis=Each(0, -2), name="rank 2")
case("Compress", F(3, 4), S([True, False, True], bool), axis=0)
case("Compress", F(3, 4), S([False, True, True, False, True], bool), name="flattened")
case("Compress", F(3, 4), S([False, True, True], bool), axis=-1, name="short condition", since=11)

# Scattering: with repeated indices the last one writes, or they are combined. The former is undefined in ONNX, so that values are
# tested without repetitions.
case("Scatter", F(3, 4), I(1, 4, below=3), F(1, 4), axis=Each(..., 0), until=10, judge="onnxruntime",
     why="the reference lacks the op")
case("ScatterElements", F(3, 4), I(1, 4, below=3), F(1, 4), axis=Each(..., 0))
case("ScatterElements", F(2, 5), IV([[4, -5, 1], [0, 2, -1]]), F(2, 3), axis=Each(1, -1), name="negative indices")
case("ScatterND", F(4, 3), IV([[2], [0]]), F(2, 3), name="rows")
case("ScatterND", F(4, 3), IV([[2, 1], [0, -1], [3, 0]]), F(3), name="elements")
for op, shape, indices, count in (("ScatterElements", (3, 3), [[0, 1, 2], [0, 1, 0], [0, 2, 2]], (3, 3)),
                                  ("ScatterND", (3, 3), [[1], [1], [0], [1]], (4, 3))):
    for reduction in ("add", "mul", "max", "min"):
        case(op, F(*shape), IV(indices), F(*count), name="repeated indices", reduction=reduction,
             since=16 if reduction in ("add", "mul") else 18)
# A product with factors of 0, in the target and among the updates.
case("ScatterElements", V([[0, 2, 3, 5]]), IV([[1, 0, 1, 2]]), V([[0, 4, 6, 0]]), axis=1, reduction="mul", name="through zeros",
     since=16)
case("ScatterND", V([[0, 2], [3, 0], [5, 7]]), IV([[0], [1], [1]]), V([[2, 0], [0, 3], [0, 4]]), reduction="mul",
     name="through zeros", since=16)
# Ties: PyTorch's scatter_reduce divides the gradient among all elements that equal the extremum, including the target.
for reduction in ("max", "min"):
    sign = 1 if reduction == "max" else -1
    case("ScatterElements", V([[sign * 2, 0, sign * 5]]), IV([[0, 0, 1, 2]]), V([[sign * 2, sign * 2, sign * 1, 0]]), axis=1,
         reduction=reduction, name="ties", since=18, gradients={0: [[1 / 3, 0, 3]], 2: [[1 / 3, 1 / 3, 2, 0]]})
case("TensorScatter", F(2, 5, 3), F(2, 2, 3), IV([1, 3]))
case("TensorScatter", F(2, 5, 3), F(2, 2, 3), name="no indices")
case("TensorScatter", F(2, 5, 3), F(2, 2, 3), IV([4, 3]), mode="circular")
case("TensorScatter", F(2, 3, 5), F(2, 3, 2), IV([1, 3]), axis=-1)
case("ScatterElements", I(3, 4, below=9), I(1, 4, below=3), I(1, 4, below=9), name="int64")
case("Where", B(3), IV([1, 2, 3]), IV([-1, -2, -3]), name="int64")

# Counts of n-grams: lengths and skips, two n-grams with one column, a column without n-grams, tokens wider than the input's type.
GRAMS = {"pool_int64s": [2, 3, 5, 4, 2**33, 5, 6, 7, 8, 6, 7, 5, 6, 7], "ngram_counts": [0, 5, 11], "ngram_indexes": [0, 1, 2, 3, 8, 4, 5, 4, 6]}
TOKENS = [[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8], [5, 6, 2, 7, 5, 4]]
case("TfIdfVectorizer", IV(TOKENS), name="TF", mode="TF", max_gram_length=3, max_skip_count=1, min_gram_length=1, **GRAMS)
# The two n-grams of column 4 have the same weight, since which one onnxruntime takes depends on their order.
for mode in ("IDF", "TFIDF"):
    case("TfIdfVectorizer", IV(TOKENS), name=mode, mode=mode, max_gram_length=3, max_skip_count=1, min_gram_length=1,
         weights=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 5.5, 8.5], **GRAMS, judge="onnxruntime",
         why="the reference gives weights to columns, the standard and onnxruntime to n-grams")
case("TfIdfVectorizer", IV(TOKENS, np.int32), name="skips", mode="TF", max_gram_length=2, max_skip_count=Each(0, 3, 9), min_gram_length=2, **GRAMS)
case("TfIdfVectorizer", IV(TOKENS[1]), name="one row", mode=Each("IDF", "TFIDF"), max_gram_length=3, max_skip_count=0, min_gram_length=2,
     weights=[1.0] * 9, **GRAMS)
