"""Writes the models of docs/guide/recipes.md: small networks with random weights, as torch's exporter gives them.

    python export.py NAME... | all

Needs torch, onnx and onnxscript. The results lie beside this script, so that nobody needs torch to run the recipes.
"""
import sys
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent


class Block(nn.Module):
    """A layer of a transformer, layer norm first."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None, causal=False):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).transpose(1, 2).reshape(b, t, c)
        x = x + self.dropout(self.proj(y))
        return x + self.dropout(self.out(F.gelu(self.fc(self.ln_2(x)))))


class Transformer(nn.Module):
    """Embeddings, layers and a last norm. With `tied` the token embedding also reads out the logits."""

    def __init__(self, vocabulary, length, width, heads, layers, dropout=0.0, tied=False):
        super().__init__()
        self.tokens, self.positions, self.tied = nn.Embedding(vocabulary, width), nn.Embedding(length, width), tied
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.08 / (2 * layers) ** 0.5 if name.endswith(("proj.weight", "out.weight")) else 0.08)

    def forward(self, ids, mask=None, causal=False):
        x = self.dropout(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, mask, causal)
        x = self.norm(x)
        return F.linear(x, self.tokens.weight) if self.tied else x


class GPT(Transformer):
    def __init__(self):
        super().__init__(vocabulary=65, length=64, width=48, heads=3, layers=2, dropout=0.1, tied=True)

    def forward(self, ids):
        return super().forward(ids, causal=True)


class MaskedLM(Transformer):
    """66 tokens: 65 characters and one that masks."""

    def __init__(self):
        super().__init__(vocabulary=66, length=32, width=48, heads=3, layers=2, dropout=0.1, tied=True)


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Transformer(vocabulary=64, length=24, width=32, heads=2, layers=2, dropout=0.1)
        self.classifier = nn.Linear(32, 3)

    def forward(self, input_ids, attention_mask):
        x = self.encoder(input_ids, attention_mask[:, None, None, :] > 0)
        return self.classifier(x[:, 0])


def convolution(channels, width, stride=1):
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv1, self.conv2 = convolution(channels, width, 2), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn, self.down = nn.BatchNorm2d(width), nn.Conv2d(channels, width, 1, 2, bias=False)

    def forward(self, x):
        return F.relu(self.bn(self.conv2(self.conv1(x))) + self.down(x))


class ImageClassifier(nn.Module):
    """A small residual network. What fine-tuning changes: the number of classes, and norms of frozen layers."""

    def __init__(self, classes, frozen=()):
        super().__init__()
        self.stem, self.layer1, self.layer2 = convolution(3, 12, 2), Residual(12, 16), Residual(16, 32)
        self.fc = nn.Linear(32, classes)
        self.frozen = frozen

    def train(self, mode=True):
        """Frozen layers stay in eval(): their norms keep the running statistics that they came with."""
        super().train(mode)
        for name in self.frozen:
            getattr(self, name).eval()
        return self

    def forward(self, image):
        return self.fc(self.layer2(self.layer1(self.stem(image))).mean((2, 3)))


class UNet(nn.Module):
    """Logits of 3 classes for each pixel."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = convolution(3, 12), convolution(12, 16, 2), convolution(16, 24, 2)
        self.up2, self.up1 = convolution(24 + 16, 16), convolution(16 + 12, 12)
        self.head = nn.Conv2d(12, 3, 1)

    def forward(self, image):
        a = self.down1(image)
        b = self.down2(a)
        c = self.bottom(b)
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0, mode="nearest"), b], 1))
        return self.head(self.up1(torch.cat([F.interpolate(b, scale_factor=2.0, mode="nearest"), a], 1)))


class Forecaster(nn.Module):
    """The next 8 values of the first of 3 series, from 32 values of each."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(3, 24, batch_first=True), nn.Linear(24, 8)

    def forward(self, history):
        states, _ = self.rnn(history)
        return self.head(states[:, -1]) + history[:, -1:, 0]


class Contrastive(nn.Module):
    """SimCLR: the loss is low where the two views of an image are closer to each other than to other images' views."""

    def __init__(self, temperature=0.2):
        super().__init__()
        self.encoder = nn.Sequential(convolution(3, 12, 2), convolution(12, 16, 2), convolution(16, 32, 2))
        self.project = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
        self.temperature = temperature

    def forward(self, view1, view2):
        z = F.normalize(self.project(self.encoder(torch.cat([view1, view2])).mean((2, 3))), dim=1)
        n = z.shape[0]
        scores = (z @ z.T / self.temperature).masked_fill(torch.eye(n, dtype=torch.bool), -1e9)
        partner = torch.arange(n).roll(n // 2)
        loss = F.cross_entropy(scores, partner)
        agreement = (scores.argmax(1) == partner).float()
        return loss, agreement


class Gan(nn.Module):
    """A generator and a discriminator in one graph. The noise is drawn in the graph, anew in each phase."""

    def __init__(self, noise=16):
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(
            nn.Linear(noise, 32 * 4 * 4), nn.Unflatten(1, (32, 4, 4)), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 4 * 4, 1))

    def forward(self, image):
        samples = self.generator(torch.randn(image.shape[0], self.noise))
        d_loss = F.softplus(-self.discriminator(image)).mean() + F.softplus(self.discriminator(samples.detach())).mean()
        g_loss = F.softplus(-self.discriminator(samples)).mean()
        return d_loss, g_loss, samples


class Tabular(nn.Module):
    """Six numbers and two categories become one logit."""

    def __init__(self):
        super().__init__()
        self.city, self.plan = nn.Embedding(12, 4), nn.Embedding(4, 2)
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, city, plan):
        return self.layers(torch.cat([numbers, self.city(city), self.plan(plan)], 1))[:, 0]


def ids(vocabulary, *shape):
    return torch.randint(vocabulary, shape)


# name → (module, example inputs by name, outputs). The examples' first axis is the batch.
MODELS = {
    "images": lambda: (ImageClassifier(4), {"image": torch.rand(32, 3, 32, 32)}, ["logits"]),
    "finetune": lambda: (ImageClassifier(3, ("stem", "layer1")), {"image": torch.rand(16, 3, 32, 32)}, ["logits"]),
    "gpt": lambda: (GPT(), {"ids": ids(65, 8, 64)}, ["logits"]),
    "bert": lambda: (TextClassifier(), {"input_ids": ids(64, 16, 24), "attention_mask": torch.ones(16, 24, dtype=torch.int64)}, ["logits"]),
    "mlm": lambda: (MaskedLM(), {"ids": ids(66, 16, 32)}, ["logits"]),
    "segmentation": lambda: (UNet(), {"image": torch.rand(8, 3, 32, 32)}, ["logits"]),
    "series": lambda: (Forecaster(), {"history": torch.randn(32, 32, 3)}, ["forecast"]),
    "contrastive": lambda: (Contrastive(), {"view1": torch.rand(32, 3, 32, 32), "view2": torch.rand(32, 3, 32, 32)}, ["loss", "agreement"]),
    "gan": lambda: (Gan(), {"image": torch.rand(32, 3, 16, 16)}, ["d_loss", "g_loss", "samples"]),
    "tabular": lambda: (Tabular(), {"numbers": torch.randn(64, 6), "city": ids(12, 64), "plan": ids(4, 64)}, ["logits"]),
}


def without_traces(model):
    """Drops what shows the exporting machine (stack traces, doc strings)."""
    graph = model.graph
    for holder in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        holder.ClearField("doc_string")
        kept = [(p.key, p.value) for p in holder.metadata_props if "stack_trace" not in p.key]
        holder.ClearField("metadata_props")
        for key, value in kept:
            holder.metadata_props.add(key=key, value=value)
    return model


def export(name):
    torch.manual_seed(0)
    model, inputs, outputs = MODELS[name]()
    path = HERE / f"{name}.onnx"
    torch.onnx.export(model.train(), tuple(inputs.values()), str(path), dynamo=True, optimize=False, external_data=False,
                      verbose=False, opset_version=20, input_names=list(inputs), output_names=outputs)
    onnx.save(without_traces(onnx.load(path)), path)
    print(f"{path.name}: {sum(p.numel() for p in model.parameters()):,} parameters, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in MODELS if sys.argv[1:] == ["all"] else sys.argv[1:]:
        export(name)
