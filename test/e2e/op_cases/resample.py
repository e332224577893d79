"""Resizing, sampling at positions, regions."""
import numpy as np

from .table import C, Each, F, IV, S, Table, V

case = Table("resample").case

# Upsample and opset 10's Resize have scales only.
case("Upsample", F(1, 2, 3, 4), mode=Each(..., "nearest", "linear"), scales=[1.0, 1.0, 2.0, 3.0], until=8, judge="onnxruntime",
     why="the reference lacks the op")
case("Upsample", F(1, 2, 3, 4), S([1, 1, 2, 3], np.float32), mode=Each("nearest", "linear"), since=9, until=9, judge="onnxruntime",
     why="the reference lacks the op")
for scales in ([1, 1, 2, 3], [1, 1, 0.6, 1.5]):
    case("Resize", F(1, 2, 5, 4), S(scales, np.float32), mode=Each("nearest", "linear"), name=f"scales {scales}", since=10, until=10,
         judge="onnxruntime", why="the reference has opset 11's meaning")

EMPTY = S([], np.float32)


# Cases in which only the reference differs: docs/guide/ops.md, "Where ONNX's reference and onnxruntime differ".
CORNERS = {"judge": "onnxruntime", "why": "the reference aligns corners with a fractional length"}


def scaled(scales, name, **options):
    if options.get("coordinate_transformation_mode") == "align_corners":
        options = CORNERS | options
    case("Resize", F(1, 1, 5, 4), EMPTY, S([1, 1, *scales], np.float32), name=f"{name} x{scales[0]},{scales[1]}", **options)


def sized(sizes, name, **options):
    case("Resize", F(1, 1, 5, 4), EMPTY, EMPTY, S([1, 1, *sizes]), name=f"{name} to {sizes[0]},{sizes[1]}", **options)


MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
for coordinates in MODES:
    for mode in ("nearest", "linear", "cubic"):
        scaled((2, 1.7), f"{mode} {coordinates}", mode=mode, coordinate_transformation_mode=coordinates, since=11)
        sized((3, 7), f"{mode} {coordinates}", mode=mode, coordinate_transformation_mode=coordinates, since=11)
for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    for coordinates in ("half_pixel", "asymmetric", "align_corners"):
        scaled((1.7, 0.7), f"{nearest} {coordinates}", mode="nearest", nearest_mode=nearest, coordinate_transformation_mode=coordinates,
               since=11)
# Products of scale and length that are fractions, and some that are integers only after rounding: 10 · 0.7, 3 · 10/3.
for scales in ((1.7, 1.7), (0.6, 0.6)):
    for mode in ("linear", "cubic"):
        scaled(scales, f"{mode} align_corners", mode=mode, coordinate_transformation_mode="align_corners", since=11)
    case("Resize", F(1, 1, 5, 4, 6), EMPTY, S([1, 1, *scales, scales[0]], np.float32), name=f"trilinear align_corners x{scales[0]}", mode="linear",
         coordinate_transformation_mode="align_corners", since=11, **CORNERS)
FLOATS = {"judge": "onnxruntime", "why": "the reference multiplies and divides by scales in double precision, and interpolates where no extent changes"}
for length, scale in ((3, 1.1), (10, 0.7), (3, 10 / 3), (7, 0.6), (5, 1.4)):
    for mode, coordinates, nearest in (("linear", "half_pixel", ...), ("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_floor"),
                                       ("nearest", "tf_half_pixel_for_nn", "ceil")):
        case("Resize", F(1, 1, length), EMPTY, S([1, 1, scale], np.float32), name=f"{length} x{scale:.3g} {mode} {coordinates}", mode=mode,
             coordinate_transformation_mode=coordinates, **({} if nearest is ... else {"nearest_mode": nearest}), since=13, **FLOATS)
scaled((1.6, 0.7), "cubic", mode="cubic", cubic_coeff_a=Each(..., -0.5), exclude_outside=Each(..., 1), since=11)
for mode in ("linear", "cubic"):
    scaled((0.6, 0.4), f"antialias {mode}", mode=mode, antialias=1, since=18)
    scaled((0.6, 1.7), f"antialias {mode}, excluding", mode=mode, antialias=1, exclude_outside=1, since=18)
    scaled((0.5, 1.5), f"{mode} half_pixel_symmetric", mode=mode, coordinate_transformation_mode="half_pixel_symmetric", since=19)
    case("Resize", F(1, 1, 5, 4), S([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.3], np.float32), EMPTY, S([1, 1, 4, 6]), name=f"tf_crop_and_resize {mode}",
         mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=Each(..., 3.0), since=11)
case("Resize", F(1, 1, 5, 4), None, None, S([8, 6]), name="axes", mode="linear", axes=[2, 3], since=18)
for policy in ("not_larger", "not_smaller"):
    case("Resize", F(1, 1, 5, 4), None, None, S([8, 8]), name=policy, mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy, since=18)
case("Resize", F(1, 2, 5), EMPTY, S([1, 1, 1.7], np.float32), name="1-D linear", mode="linear", since=11)
case("Resize", F(1, 1, 3, 2, 3), EMPTY, S([1, 1, 2, 1.5, 0.7], np.float32), name="3-D linear", mode="linear", since=11)

for mode in ("linear", "nearest", "cubic"):
    older = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    for padding in ("zeros", "border", "reflection"):
        for align in (0, 1):
            def options(mode):
                return {"mode": mode, "padding_mode": padding, "align_corners": align, "name": f"{mode} {padding} align_corners={align}"}
            grid = F(1, 3, 4, 2, lo=-1.27, hi=1.31)
            other = {"judge": "onnxruntime", "why": "PyTorch and onnxruntime clamp the elements of a cubic window, the reference its position"}
            case("GridSample", F(1, 2, 4, 5), grid if mode != "nearest" else grid.still, since=20, **options(mode),
                 **(other if (mode, padding) == ("cubic", "border") else {}))
            case("GridSample", F(1, 2, 4, 5), grid if mode != "nearest" else grid.still, since=16, until=19, judge="onnxruntime",
                 why="the reference has opset 20's names", **options(older))
case("GridSample", F(1, 2, 3, 4, 3), F(1, 2, 3, 2, 3, lo=-1.2, hi=1.2), name="3-D", mode="linear", since=20)
case("AffineGrid", F(2, 2, 3), S([2, 3, 4, 5]), align_corners=Each(..., 1), name="2-D")
case("AffineGrid", F(2, 3, 4), S([2, 3, 3, 4, 2]), align_corners=Each(..., 1), name="3-D")

ROIS = IV([[0.3, 0.2, 3.7, 4.1], [1.2, 0.6, 2.9, 3.3], [0.1, 2.3, 4.2, 4.9]], np.float32)
for mode in ("avg", "max"):
    case("RoiAlign", F(2, 2, 6, 5), ROIS, IV([0, 1, 1]), name=mode, mode=mode, output_height=2, output_width=3, sampling_ratio=Each(..., 2),
         spatial_scale=Each(..., 0.8), since=16)
case("RoiAlign", F(2, 2, 6, 5), ROIS, IV([0, 1, 1]), name="output_half_pixel", mode="avg", coordinate_transformation_mode="output_half_pixel",
     output_height=2, output_width=3, sampling_ratio=2, since=16)
case("RoiAlign", F(2, 2, 6, 5), ROIS, IV([0, 1, 1]), name="before half pixels", output_height=2, output_width=3, sampling_ratio=2, until=15,
     judge="onnxruntime", why="the reference has opset 16's meaning")
# For constant regions the number of samples follows from their size, also beyond the tensor.
for mode in ("avg", "max"):
    case("RoiAlign", F(1, 2, 4, 5), C([[-3.3, -9.1, 21.4, 17.2], [0.4, 1.1, 2.3, 3.2]], np.float32), IV([0, 0]), name=f"{mode}, beyond the tensor",
         mode=mode, output_height=2, output_width=1, since=16)
case("RoiAlign", F(2, 2, 6, 5), V([[0.3, 0.2, 3.7, 4.1]]), IV([1]), name="regions have no gradient", output_height=2, output_width=2,
     sampling_ratio=2, since=16, gradients={1: [[0, 0, 0, 0]]})
case("MaxRoiPool", F(2, 2, 6, 5), IV([[0, 0, 0, 3, 4], [1, 1, 1, 3, 5]], np.float32), pooled_shape=[2, 2], spatial_scale=Each(..., 0.7),
     judge="onnxruntime", why="the reference lacks the op", judge_at=21)
