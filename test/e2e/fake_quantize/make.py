"""Writes pytorch.json: PyTorch's fake quantisation of a few tensors, with gradients. Needs torch; the tests do not.

    python make.py
"""
import json
import pathlib

import torch

TYPES = {"INT8": (-128, 127), "UINT8": (0, 255), "INT16": (-32768, 32767)}


def case(name, type, shape, scale, zero_point, axis=None, spread=1.3):
    """The range of values is `spread` times that of the integers. Scales that are powers of two give ties; with others, quotients near
    a tie are left out, since PyTorch multiplies by 1/scale and ONNX divides."""
    low, high = TYPES[type]
    generator = torch.Generator().manual_seed(len(name))
    s, z = torch.tensor(scale), torch.tensor(zero_point)
    view = [-1 if i == axis else 1 for i in range(len(shape))] if axis is not None else [1] * len(shape)
    steps = torch.rand(shape, generator=generator) * (high - low) * spread + low - (spread - 1) / 2 * (high - low) - z.reshape(view)
    if all(float(v).hex().startswith("0x1.0000000000000p") for v in scale):
        steps = (steps * 2).round() / 2
    else:
        steps = steps.round() + torch.rand(shape, generator=generator) * 0.8 - 0.4
    x = (steps * s.reshape(view)).float().requires_grad_()
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(x, scale[0], zero_point[0], low, high)
    else:
        y = torch.fake_quantize_per_channel_affine(x, s.float(), z.int(), axis, low, high)
    g = torch.randint(-8, 9, shape, generator=generator).float() / 4
    (y * g).sum().backward()
    flat = lambda t: [float(v) for v in t.detach().reshape(-1)]
    return {"name": name, "type": type, "shape": list(shape), "axis": axis, "scale": [float(v) for v in s.float()],
            "zero_point": zero_point, "x": flat(x), "g": flat(g), "y": flat(y), "gradient": flat(x.grad)}


cases = [case("ties", "INT8", (6, 8), [0.25], [0]), case("unsigned ties", "UINT8", (6, 8), [0.125], [93]),
         case("tensor", "INT8", (5, 7), [0.0371], [-11]), case("unsigned tensor", "UINT8", (5, 7), [0.0529], [128]),
         case("last axis", "INT8", (4, 3), [0.021, 0.3, 1.7], [0, 5, -40], axis=1),
         case("first axis", "UINT8", (3, 4, 2), [0.02, 0.31, 1.1], [0, 255, 7], axis=0),
         case("wide", "INT16", (4, 5), [0.0013], [400])]
path = pathlib.Path(__file__).with_name("pytorch.json")
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(path, torch.__version__)
