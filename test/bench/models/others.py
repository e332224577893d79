"""Models of speech, recommendations, graphs, series and tables."""
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from common import Made, Wrapped, tokens


def whisper_tiny():
    config = transformers.WhisperConfig(vocab_size=51865, d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
                                        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, dropout=0.0, use_cache=False)
    net = Wrapped(transformers.WhisperForConditionalGeneration(config),
                  lambda net, sound, ids: net(input_features=sound, decoder_input_ids=ids, use_cache=False).logits)
    return Made(net, {"sound": torch.randn(2, 80, 3000), "ids": tokens(51865, 2, 32)}, tokens(51865, 2, 32))


def wav2vec2():
    config = transformers.Wav2Vec2Config(hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0,
                                         layerdrop=0.0, mask_time_prob=0.0, mask_feature_prob=0.0, num_hidden_layers=6)
    net = Wrapped(transformers.Wav2Vec2ForCTC(config), lambda net, sound: net(sound).logits)
    with torch.no_grad():
        frames = net(torch.zeros(2, 16000)).shape[1]
    return Made(net, {"sound": torch.randn(2, 16000)}, torch.randint(0, 32, (2, frames)))


class Dlrm(nn.Module):
    """Naumov et al. 2019: eight tables of 200,000 rows, products of all pairs, two small networks."""

    def __init__(self, tables=8, rows=200_000, width=32, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
        left, right = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", left * (tables + 1) + right)

    def forward(self, dense, ids):
        x = self.bottom(dense)
        vectors = torch.stack([x] + [table(ids[:, i]) for i, table in enumerate(self.tables)], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([x, products], 1)).squeeze(1)


def _dlrm(optimizer, lr):
    batch = 512
    return Made(Dlrm(), {"dense": torch.randn(batch, 13), "ids": torch.randint(0, 200_000, (batch, 8))}, torch.rand(batch).round(),
                loss="bce_with_logits", optimizer=optimizer, lr=lr)


def dlrm_sgd():
    return _dlrm("sgd", 0.1)


def dlrm_adam():
    return _dlrm("adamw", 1e-3)


class GraphAttention(nn.Module):
    """Two layers of Veličković et al. 2018 over a list of edges: scores by gather, their softmax and sum by scatter."""

    def __init__(self, inputs=128, width=64, heads=4, classes=16):
        super().__init__()
        self.project = nn.ModuleList((nn.Linear(inputs, heads * width, bias=False), nn.Linear(heads * width, heads * width, bias=False)))
        self.source = nn.ParameterList(nn.Parameter(torch.randn(heads, width) * 0.1) for _ in range(2))
        self.sink = nn.ParameterList(nn.Parameter(torch.randn(heads, width) * 0.1) for _ in range(2))
        self.head, self.heads, self.width = nn.Linear(heads * width, classes), heads, width

    def forward(self, x, sources, sinks):
        nodes = x.shape[0]
        for project, source, sink in zip(self.project, self.source, self.sink):
            h = project(x).view(nodes, self.heads, self.width)
            score = F.leaky_relu((h * source).sum(-1)[sources] + (h * sink).sum(-1)[sinks], 0.2).exp()
            total = torch.zeros(nodes, self.heads, dtype=x.dtype).index_add(0, sinks, score)
            weight = score / total[sinks]
            x = torch.zeros(nodes, self.heads, self.width, dtype=x.dtype).index_add(0, sinks, h[sources] * weight[..., None])
            x = F.elu(x.flatten(1))
        return self.head(x)


def graph_attention():
    nodes, edges = 4096, 32768
    sinks = torch.cat([torch.arange(nodes), torch.randint(0, nodes, (edges - nodes,))])      # every node has an edge
    return Made(GraphAttention(), {"x": torch.randn(nodes, 128), "sources": torch.randint(0, nodes, (edges,)), "sinks": sinks},
                torch.randint(0, 16, (nodes,)))


class Temporal(nn.Module):
    """Bai et al. 2018: residual pairs of causal convolutions whose dilation doubles."""

    def __init__(self, inputs=8, width=64, levels=6, kernel=3, classes=10):
        super().__init__()
        self.levels = nn.ModuleList()
        for level in range(levels):
            first = inputs if level == 0 else width
            self.levels.append(nn.ModuleList((nn.Conv1d(first, width, kernel, dilation=1 << level), nn.Conv1d(width, width, kernel, dilation=1 << level),
                                              nn.Conv1d(first, width, 1))))
        self.head, self.kernel = nn.Linear(width, classes), kernel

    def forward(self, x):
        for level, (one, two, around) in enumerate(self.levels):
            pad = (self.kernel - 1) << level
            y = F.relu(one(F.pad(x, (pad, 0))))
            x = F.relu(F.relu(two(F.pad(y, (pad, 0)))) + around(x))
        return self.head(x.mean(2))


def tcn():
    return Made(Temporal(), {"x": torch.randn(16, 8, 1024)}, torch.randint(0, 10, (16,)))


def patch_tst():
    config = transformers.PatchTSTConfig(num_input_channels=7, context_length=512, patch_length=16, patch_stride=8, prediction_length=96,
                                         d_model=128, num_attention_heads=8, num_hidden_layers=3, ffn_dim=256, dropout=0.0, attention_dropout=0.0,
                                         head_dropout=0.0, ff_dropout=0.0, positional_dropout=0.0, path_dropout=0.0, scaling=None, loss="mse")
    net = Wrapped(transformers.PatchTSTForPrediction(config), lambda net, x: net(past_values=x).prediction_outputs)
    return Made(net, {"x": torch.randn(16, 512, 7)}, torch.randn(16, 96, 7), loss="mse")


class TableTransformer(nn.Module):
    """Gorishniy et al. 2021: a token for each number and category, three layers, and a class token."""

    def __init__(self, numbers=16, categories=8, values=100, width=192, classes=10):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(numbers, width) * 0.1), nn.Parameter(torch.randn(numbers, width) * 0.1)
        self.values = nn.ModuleList(nn.Embedding(values, width) for _ in range(categories))
        self.token, self.head = nn.Parameter(torch.randn(1, 1, width) * 0.1), nn.Linear(width, classes)
        layer = nn.TransformerEncoderLayer(width, 8, 256, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, numbers, categories):
        columns = [table(categories[:, i:i + 1]) for i, table in enumerate(self.values)]
        rows = torch.cat([self.token.expand(len(numbers), -1, -1), numbers[..., None] * self.scale + self.shift, *columns], 1)
        return self.head(self.layers(rows)[:, 0])


def table_transformer():
    return Made(TableTransformer(), {"numbers": torch.randn(256, 16), "categories": torch.randint(0, 100, (256, 8))}, torch.randint(0, 10, (256,)))


MODELS = {"whisper-tiny": whisper_tiny, "wav2vec2": wav2vec2, "dlrm-sgd": dlrm_sgd, "dlrm-adam": dlrm_adam, "graph-attention": graph_attention,
          "tcn": tcn, "patch-tst": patch_tst, "table-transformer": table_transformer}
