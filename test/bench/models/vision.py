"""Models of images: classification, segmentation, detection, diffusion."""
import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional as F

from common import Made, Wrapped, images


def classifier(net, batch, size=224, classes=1000, **more):
    return Made(net, {"x": images(batch, size)}, torch.randint(0, classes, (batch,)), **more)


def resnet50():
    return classifier(torchvision.models.resnet50(), 8, torchscript=True)


def vit_b16():
    return classifier(torchvision.models.vit_b_16(dropout=0.0, attention_dropout=0.0), 8)


def swin_t():
    return classifier(torchvision.models.SwinTransformer([4, 4], 96, [2, 2, 6, 2], [3, 6, 12, 24], [7, 7], stochastic_depth_prob=0.0), 8)


def convnext_t():
    return classifier(torchvision.models.convnext_tiny(stochastic_depth_prob=0.0), 8)


def efficientnet_b0():
    return classifier(torchvision.models.efficientnet_b0(stochastic_depth_prob=0.0, dropout=0.0), 8, torchscript=True)


def mobilenet_v3():
    return classifier(torchvision.models.mobilenet_v3_large(dropout=0.0), 16, torchscript=True)


def regnet_y():
    return classifier(torchvision.models.regnet_y_800mf(), 8, torchscript=True)


def densenet121():
    return classifier(torchvision.models.densenet121(), 4, torchscript=True)


def mixer():
    import timm
    return classifier(timm.create_model("mixer_s16_224", drop_rate=0.0), 8)


def deeplab():
    net = Wrapped(torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21),
                  lambda net, x: net(x)["out"])
    net.net.classifier[0].project[3].p = 0.0      # its only dropout
    return Made(net, {"x": images(2, 256)}, torch.randint(0, 21, (2, 256, 256)), class_axis=1, torchscript=True)


def segformer():
    config = transformers.SegformerConfig(num_labels=19, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0,
                                          classifier_dropout_prob=0.0)
    net = Wrapped(transformers.SegformerForSemanticSegmentation(config), lambda net, x: net(pixel_values=x).logits)
    return Made(net, {"x": images(2, 256)}, torch.randint(0, 19, (2, 64, 64)), class_axis=1, torchscript=True)


class Detr(nn.Module):
    """Carion et al. 2020's demo: ResNet-50, six layers of encoder and decoder, 100 queries. The loss needs matched queries: here
    query i has object i, so that only the network is measured."""

    def __init__(self, classes=91, width=256, queries=100, cells=8):
        super().__init__()
        self.backbone = nn.Sequential(*list(torchvision.models.resnet50().children())[:-2])
        self.reduce = nn.Conv2d(2048, width, 1)
        self.transformer = nn.Transformer(width, 8, 6, 6, dropout=0.0, batch_first=True)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.positions = nn.Parameter(torch.randn(cells * cells, width))
        self.classes, self.boxes = nn.Linear(width, classes + 1), nn.Linear(width, 4)

    def forward(self, x, labels, boxes):
        seen = self.reduce(self.backbone(x)).flatten(2).transpose(1, 2) + self.positions
        found = self.transformer(seen, self.queries.expand(len(x), -1, -1))
        return F.cross_entropy(self.classes(found).flatten(0, 1), labels.flatten()) + 5 * (self.boxes(found).sigmoid() - boxes).abs().mean()


def detr():
    return Made(Detr(), {"x": images(2, 256), "labels": torch.randint(0, 92, (2, 100)), "boxes": torch.rand(2, 100, 4)}, loss="output",
                torchscript=True)


def _block(inputs, outputs, kernel=1, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())


class Stage(nn.Module):
    """A stage of YOLO's backbone: half of the channels through residual pairs, all of them concatenated."""

    def __init__(self, width, pairs):
        super().__init__()
        self.split, self.join = _block(width, width), _block(width // 2 * (pairs + 2), width)
        self.pairs = nn.ModuleList(nn.Sequential(_block(width // 2, width // 2, 3), _block(width // 2, width // 2, 3)) for _ in range(pairs))

    def forward(self, x):
        parts = list(self.split(x).chunk(2, 1))
        for pair in self.pairs:
            parts.append(parts[-1] + pair(parts[-1]))
        return self.join(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector of YOLOv8's kind at width 32: five halvings, a pyramid of three levels, a map of numbers for each."""

    def __init__(self, numbers=84, width=32):
        super().__init__()
        wide = [width << i for i in range(5)]
        self.stem = _block(3, wide[0], 3, 2)
        self.down = nn.ModuleList(nn.Sequential(_block(i, o, 3, 2), Stage(o, n)) for i, o, n in zip(wide, wide[1:], (1, 2, 2, 1)))
        self.up = nn.ModuleList(Stage(o, 1) for o in (wide[3], wide[2]))
        self.lateral = nn.ModuleList((_block(wide[4] + wide[3], wide[3]), _block(wide[3] + wide[2], wide[2])))
        self.heads = nn.ModuleList(nn.Conv2d(w, numbers, 1) for w in (wide[2], wide[3], wide[4]))

    def forward(self, x):
        x = self.stem(x)
        levels = []
        for stage in self.down:
            x = stage(x)
            levels.append(x)
        outputs = [self.heads[2](x)]
        for stage, lateral, skip, head in zip(self.up, self.lateral, (levels[2], levels[1]), (self.heads[1], self.heads[0])):
            x = stage(lateral(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), skip], 1)))
            outputs.append(head(x))
        return torch.cat([o.flatten(2) for o in outputs], 2)


def yolo():
    return Made(Yolo(), {"x": images(4, 256)}, torch.rand(4, 84, 1344).round(), loss="bce_with_logits", torchscript=True)


def unet_diffusion():
    import diffusers
    net = diffusers.UNet2DModel(sample_size=32, block_out_channels=(64, 128, 128, 256), norm_num_groups=32)
    made = Wrapped(net, lambda net, x, t: net(x, t, return_dict=False)[0])
    return Made(made, {"x": images(4, 32), "t": torch.randint(0, 1000, (4,))}, images(4, 32), loss="mse")


MODELS = {"resnet50": resnet50, "vit-b16": vit_b16, "swin-t": swin_t, "convnext-t": convnext_t, "efficientnet-b0": efficientnet_b0,
          "mobilenet-v3": mobilenet_v3, "regnet-y": regnet_y, "densenet121": densenet121, "mixer-s16": mixer, "deeplab-v3": deeplab,
          "segformer-b0": segformer, "detr-r50": detr, "yolo": yolo, "unet-diffusion": unet_diffusion}
