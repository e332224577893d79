"""Convolutions and pooling."""
import numpy as np

from . import judges
from .table import Each, F, IV, S, Table, V

case = Table("windows").case

# Convolution in one to three dimensions, then each attribute.
case("Conv", F(2, 3, 8), F(4, 3, 3), F(4), name="1-D")
case("Conv", F(2, 3, 6, 5), F(4, 3, 3, 2), F(4), name="2-D")
case("Conv", F(1, 2, 4, 4, 3), F(3, 2, 2, 3, 2), F(3), name="3-D")
case("Conv", F(2, 3, 6, 5), F(4, 3, 3, 2), name="no bias")
case("Conv", F(1, 2, 7, 6), F(2, 2, 3, 3), name="strides", strides=[2, 3])
case("Conv", F(1, 2, 7, 8), F(2, 2, 3, 2), name="dilations", dilations=[2, 3])
case("Conv", F(1, 2, 5, 4), F(2, 2, 3, 3), name="pads", pads=[1, 0, 2, 1])
case("Conv", F(1, 2, 5, 4), F(2, 2, 3, 3), name="kernel_shape, strides and pads", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
case("Conv", F(2, 4, 5, 4), F(6, 2, 2, 3), F(6), name="groups", group=2)
case("Conv", F(2, 3, 5), F(6, 1, 3), name="depthwise", group=3, pads=[1, 1])
PADS = {"SAME_UPPER": [3, 0, 3, 1], "SAME_LOWER": [3, 1, 3, 0], "VALID": [0, 0, 0, 0]}
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("Conv", F(1, 2, 5, 6), F(2, 2, 2, 3), name=mode, auto_pad=mode, strides=Each(..., [2, 3]))
    case("Conv", F(1, 2, 7, 6), F(2, 2, 4, 2), name=f"{mode} dilated", auto_pad=mode, dilations=[2, 1],
         values=lambda a, *_, pads=PADS[mode]: judges.run("Conv", a, pads=pads, dilations=[2, 1]),
         why="neither the reference nor onnxruntime pads for a dilated kernel")

case("ConvTranspose", F(2, 3, 5), F(3, 4, 3), F(4), name="1-D")
case("ConvTranspose", F(2, 3, 4, 3), F(3, 2, 3, 2), F(2), name="2-D")
case("ConvTranspose", F(1, 2, 3, 2, 3), F(2, 2, 2, 3, 2), name="3-D")
case("ConvTranspose", F(1, 2, 3, 4), F(2, 3, 3, 2), name="strides", strides=[2, 3])
case("ConvTranspose", F(1, 2, 3, 4), F(2, 3, 3, 2), name="dilations", dilations=[2, 3])
case("ConvTranspose", F(1, 2, 4, 4), F(2, 3, 3, 3), name="pads", pads=[1, 0, 2, 1], strides=[2, 2])
case("ConvTranspose", F(1, 2, 3, 4), F(2, 3, 3, 3), name="output_padding", strides=[3, 2], output_padding=[2, 1], pads=[1, 1, 1, 1])
case("ConvTranspose", F(1, 2, 3, 3), F(2, 3, 3, 3), name="output_shape", strides=[3, 2], output_shape=[10, 8], judge="onnxruntime", why="see SAME")
# Inputs longer than the windows cover.
for mode in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
    case("ConvTranspose", F(1, 2, 5), F(2, 3, 4), name=f"long output_shape {mode}", strides=[3], output_shape=Each([17], [18]), auto_pad=mode,
         kernel_shape=[4], judge="onnxruntime", why="the reference pads in front")
case("ConvTranspose", F(2, 4, 3, 4), F(4, 3, 2, 3), F(6), name="groups", group=2, judge="onnxruntime", why="the reference adds the bias per group")
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("ConvTranspose", F(1, 2, 3, 4), F(2, 3, 3, 4), name=mode, auto_pad=mode, strides=[2, 3], judge="onnxruntime",
         why="the reference lacks VALID and splits odd pads the other way")

case("MaxPool", F(2, 3, 7), kernel_shape=[3], name="1-D")
case("MaxPool", F(1, 2, 6, 5), kernel_shape=[3, 2], name="2-D", strides=Each(..., [2, 2]))
case("MaxPool", F(1, 2, 4, 5, 3), kernel_shape=[2, 2, 2], name="3-D", strides=[1, 2, 1])
case("MaxPool", F(1, 2, 6, 5), kernel_shape=[3, 3], name="pads", pads=[1, 1, 1, 1], strides=[2, 2])
case("MaxPool", F(1, 2, 6, 6), kernel_shape=[3, 3], name="ceil", ceil_mode=1, strides=[2, 2], since=10)
case("MaxPool", F(1, 2, 7, 6), kernel_shape=[2, 3], name="dilations", dilations=[3, 2], since=10)
case("MaxPool", F(1, 2, 6, 5), kernel_shape=[3, 2], name="Indices", outputs=2, storage_order=Each(..., 1), strides=[2, 1], since=8)
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("MaxPool", F(1, 2, 6, 5), kernel_shape=[3, 2], name=mode, auto_pad=mode, strides=[2, 2], judge="onnxruntime",
         why="the reference rounds SAME_LOWER's extents down")
# Ties: the first element of a window takes all of the gradient, as in PyTorch.
case("MaxPool", V([[[1, 3, 3, 3, 0]]]), kernel_shape=[3], name="ties", gradients={0: [0, 3, 3, 0, 0]})
case("MaxPool", V(np.zeros((1, 1, 3, 3))), kernel_shape=[2, 2], name="all equal", gradients={0: [[1, 2, 0], [3, 4, 0], [0, 0, 0]]})

case("AveragePool", F(2, 3, 7), kernel_shape=[3], name="1-D")
case("AveragePool", F(1, 2, 4, 5, 3), kernel_shape=[2, 2, 2], name="3-D", strides=[1, 2, 1])
case("AveragePool", F(1, 2, 6, 5), kernel_shape=[3, 3], name="pads", pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=Each(..., 1))
case("AveragePool", F(1, 2, 6, 6), kernel_shape=[3, 3], name="ceil", ceil_mode=1, strides=[2, 2], since=10)
case("AveragePool", F(1, 2, 6, 6), kernel_shape=[3, 3], name="ceil and pads", ceil_mode=1, strides=[2, 2], pads=[1, 1, 0, 0],
     count_include_pad=Each(..., 1), since=19)
case("AveragePool", F(1, 2, 7, 6), kernel_shape=[2, 3], name="dilations", dilations=[3, 2], since=19, strides=[1, 2])
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("AveragePool", F(1, 2, 6, 5), kernel_shape=[3, 2], name=mode, auto_pad=mode, strides=[2, 2], count_include_pad=Each(..., 1))

case("LpPool", F(1, 2, 6, 5), kernel_shape=[3, 2], p=Each(..., 1, 3), strides=[2, 1], name="2-D")
case("LpPool", F(2, 2, 6), kernel_shape=[3], name="pads", pads=[1, 1], strides=[2])
case("LpPool", F(1, 2, 6, 5), kernel_shape=[3, 2], name="ceil and dilations", dilations=[1, 2], ceil_mode=1, strides=[2, 2], since=18,
     judge="onnxruntime", why="the reference takes the mean of what it has for the mean of the window")
case("LpPool", F(1, 2, 6, 5), kernel_shape=[3, 2], name="SAME_UPPER", auto_pad="SAME_UPPER", strides=[2, 2])
for op in ("GlobalAveragePool", "GlobalMaxPool"):
    case(op, F(2, 3, 5), name="1-D", judge="onnxruntime", why="the reference wants two axes")
    case(op, F(2, 3, 4, 2), name="2-D")
# torch.amax: ties share the gradient.
case("GlobalMaxPool", V([[[2, 1, 2, 0]]]), name="ties", gradients={0: [[[0.5, 0, 0.5, 0]]]}, judge="onnxruntime", why="as above")
case("GlobalLpPool", F(2, 3, 4, 2), p=Each(..., 1, 3), judge="onnxruntime", judge_at=21,
     why="the reference lacks the op")

case("MaxUnpool", F(1, 1, 2, 2), IV([[[[1, 2], [9, 15]]]]), kernel_shape=[2, 2], strides=[2, 2], name="2-D")
case("MaxUnpool", F(1, 1, 2, 2), IV([[[[1, 2], [9, 15]]]]), S([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2], name="output_shape")
case("MaxUnpool", F(1, 1, 3), IV([[[0, 3, 5]]]), kernel_shape=[2], strides=[2], name="1-D")
case("Col2Im", F(1, 12, 9), S([4, 5]), S([2, 3]), name="2-D")
case("Col2Im", F(1, 4, 4), S([5, 5]), S([2, 2]), name="dilations and strides", dilations=[2, 2], strides=[2, 2])
case("DeformConv", F(1, 2, 5, 5), F(3, 2, 2, 2), F(1, 8, 4, 4, lo=-0.8, hi=0.8), F(3), F(1, 4, 4, 4), name="offset, bias and mask")
case("DeformConv", F(1, 2, 5, 5), F(3, 2, 3, 3), F(1, 18, 3, 3, lo=-0.8, hi=0.8), name="strides and pads", pads=[1, 1, 1, 1], strides=[2, 2])
case("DeformConv", F(1, 4, 5, 5), F(4, 2, 2, 2), F(1, 16, 3, 3, lo=-0.8, hi=0.8), name="groups and dilations", group=2, offset_group=2,
     dilations=[2, 2])
