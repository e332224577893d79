"""Makes torchvision.safetensors: what torchvision 0.29.2 on Pillow 13.0.0 gives for each transform with fixed parameters.

    python make_fixtures.py        (needs torch, torchvision, Pillow, numpy, safetensors; CI does not run it)

`photo` and `square` are the inputs, [3, height, width] of u8; every other tensor is the result of the call that its
name states, which TorchvisionTest.cpp makes, too. Names: INPUT/OPERATION/ARGUMENTS.
"""
import pathlib

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms import autoaugment
from torchvision.transforms import functional as F

FILTERS = {"nearest": InterpolationMode.NEAREST, "bilinear": InterpolationMode.BILINEAR,
           "bicubic": InterpolationMode.BICUBIC, "lanczos": InterpolationMode.LANCZOS}


def picture(height, width, seed):
    """Smooth colours with an edge, saturated corners and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 120 * np.sin(x / 5 + c) * np.cos(y / (4 + c)) + rng.normal(0, 12, (height, width)) for c in range(3)]
    image = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    image[: height // 4, : width // 4] = (255, 0, 3)
    image[-height // 4 :, : width // 5] = 255
    image[height // 2, width // 2 :] = 0
    return Image.fromarray(image)


IMAGES = {"photo": picture(23, 31, 1), "square": picture(20, 20, 2)}
RESULTS = {}


def keep(name, image):
    if isinstance(image, Image.Image):
        image = np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
    assert name not in RESULTS, name
    RESULTS[name] = np.ascontiguousarray(image)


for name, image in IMAGES.items():
    keep(name, image)
    tensor = F.pil_to_tensor(image)
    for filter, mode in FILTERS.items():
        for size in ([11], [40], [9, 50], [23, 16], [31, 31]):
            keep(f"{name}/resize/{filter}/{'x'.join(map(str, size))}", F.resize(image, size, mode))
        keep(f"{name}/resized_crop/{filter}/3,2,13,17,12x12", F.resized_crop(image, 3, 2, 13, 17, [12, 12], mode))
    keep(f"{name}/resize/bilinear/12,most 14", F.resize(image, [12], FILTERS["bilinear"], max_size=14))
    for filter in ("bilinear", "bicubic"):
        for size in ([11], [9, 50]):
            # On tensors torchvision computes differently; results agree within one grey level.
            text = "x".join(map(str, size))
            if filter == "bilinear":  # bicubic filters overshoot, and Pillow clips that between its passes
                keep(f"{name}/tensor_resize/{filter}/{text}", F.resize(tensor, size, FILTERS[filter], antialias=True).numpy())
            keep(f"{name}/no_antialias/{filter}/{text}", F.resize(tensor, size, FILTERS[filter], antialias=False).numpy())
    for size in ([10], [8, 30], [33, 40], [21, 18]):
        keep(f"{name}/center_crop/{'x'.join(map(str, size))}", F.center_crop(image, size))
    for mode in ("constant", "edge", "reflect", "symmetric"):
        keep(f"{name}/pad/{mode}", F.pad(image, [1, 2, 3, 4], 77 if mode == "constant" else 0, mode))
    keep(f"{name}/hflip", F.hflip(image))
    keep(f"{name}/vflip", F.vflip(image))
    for filter in ("nearest", "bilinear", "bicubic"):
        for angle in (17.5, -90, 90, 180, 301.25):
            keep(f"{name}/rotate/{filter}/{angle}", F.rotate(image, angle, FILTERS[filter], fill=[10, 20, 30]))
        keep(f"{name}/affine/{filter}/mixed", F.affine(image, 25, [3, -2], 1.2, [10, -5], FILTERS[filter], fill=[9, 8, 7]))
        keep(f"{name}/affine/{filter}/shift", F.affine(image, 0, [4, -3], 1.0, [0, 0], FILTERS[filter]))
        keep(f"{name}/affine/{filter}/scale", F.affine(image, 0, [0, 0], 0.7, [0, 0], FILTERS[filter]))
    for factor in (0.0, 0.37, 1.0, 1.9):
        keep(f"{name}/brightness/{factor}", F.adjust_brightness(image, factor))
        keep(f"{name}/contrast/{factor}", F.adjust_contrast(image, factor))
        keep(f"{name}/saturation/{factor}", F.adjust_saturation(image, factor))
        keep(f"{name}/sharpness/{factor}", F.adjust_sharpness(image, factor))
    for shift in (-0.5, -0.13, 0.0, 0.31):
        keep(f"{name}/hue/{shift}", F.adjust_hue(image, shift))
    keep(f"{name}/grayscale", F.rgb_to_grayscale(image, 3))
    for bits in (1, 4, 8):
        keep(f"{name}/posterize/{bits}", F.posterize(image, bits))
    for threshold in (0, 85.5, 255):
        keep(f"{name}/solarize/{threshold}", F.solarize(image, threshold))
    keep(f"{name}/autocontrast", F.autocontrast(image))
    keep(f"{name}/equalize", F.equalize(image))
    keep(f"{name}/normalise", F.normalize(F.to_tensor(image), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).numpy())
    keep(f"{name}/to_float", F.to_tensor(image).numpy())

# Magnitudes by bin, as f32, of images 31 wide and 23 high.
for name, augment, arguments in (("rand", autoaugment.RandAugment(), (31, (23, 31))),
                                 ("trivial", autoaugment.TrivialAugmentWide(), (31,))):
    for op, (values, signed) in augment._augmentation_space(*arguments).items():
        values = values.to(torch.float32) if values.ndim else torch.zeros(31)
        keep(f"magnitudes/{name}/{op}", values.numpy())

# Mixes of a batch of four samples, λ = 0.3.
batch = torch.arange(4 * 2 * 3 * 4, dtype=torch.float32).reshape(4, 2, 3, 4) / 7
keep("mix/batch", batch.numpy())
keep("mix/mixup", batch.roll(1, 0).mul(1 - 0.3).add(batch.mul(0.3)).numpy())
cut = batch.clone()
cut[..., 1:3, 0:2] = batch.roll(1, 0)[..., 1:3, 0:2]
keep("mix/cutmix", cut.numpy())

save_file(RESULTS, pathlib.Path(__file__).with_name("torchvision.safetensors"))
print(len(RESULTS), "tensors")
