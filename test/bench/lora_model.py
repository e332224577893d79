"""Llama's graphs for lora.py, with weights by the rule of filled.py: `lora_model.py FOLDER NAME [--length N]`.

Writes model.onnx, its weights (model.onnx.data, f32), data.safetensors and recipe.toml. torch traces fake tensors and the weights are
written one at a time, so that a model of 7 billion parameters takes no more memory than its largest matrix. Needs torch, transformers,
onnxscript and safetensors.
"""
import argparse
import math
from pathlib import Path

import filled

SIZES = {  # width, layers, heads, heads of keys and values, hidden width, vocabulary, base of the rotary positions, tied
    "tiny": (256, 2, 4, 2, 512, 1024, 10000.0, True),
    "llama-1b": (2048, 16, 32, 8, 8192, 128256, 500000.0, True),       # Llama 3.2 1B
    "llama-7b": (4096, 32, 32, 32, 11008, 32000, 10000.0, False),      # Llama 2 7B
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK, ALPHA, BLOCK, RATE = 16, 32, 64, 2e-4
SAMPLES = 8


def config(name):
    import transformers
    width, layers, heads, pairs, hidden, vocabulary, theta, tied = SIZES[name]
    made = transformers.LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                                    num_attention_heads=heads, num_key_value_heads=pairs, max_position_embeddings=2048, rms_norm_eps=1e-5,
                                    rope_theta=theta, tie_word_embeddings=tied, use_cache=False)
    made._attn_implementation = "sdpa"
    return made


def skeleton(made):
    """The model with its buffers and without memory for its parameters."""
    import torch
    import transformers
    with torch.device("meta"):
        net = transformers.LlamaForCausalLM(made)
    net.model.rotary_emb = type(net.model.rotary_emb)(made)
    net.tie_weights()
    return net


def tokens(vocabulary, length):
    import torch
    return torch.randint(vocabulary, (SAMPLES, length), generator=torch.Generator().manual_seed(1))


def write(name, folder, length):
    import onnx_ir as ir
    import torch
    import transformers
    from safetensors.torch import save_file
    from torch._subclasses.fake_tensor import FakeTensorMode
    folder.mkdir(parents=True, exist_ok=True)
    made = config(name)
    buffers = {key: value.clone() for key, value in skeleton(made).named_buffers()}

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = transformers.LlamaForCausalLM(made)
            if made.tie_word_embeddings:     # the head reads the table itself: it would be exported as a parameter of its own
                del self.net.lm_head

        def forward(self, ids):
            hidden = self.net.model(input_ids=ids, use_cache=False).last_hidden_state
            head = self.net.model.embed_tokens if made.tie_word_embeddings else self.net.lm_head
            return torch.nn.functional.linear(hidden, head.weight)

    with FakeTensorMode(allow_non_fake_inputs=True):
        net = Logits().eval()
        ids = torch.zeros((1, length), dtype=torch.int64)
        # The exporter's optimiser is off: it would give the tied head a transposed weight of its own.
        program = torch.onnx.export(net, (ids,), dynamo=True, optimize=False, input_names=["ids"], output_names=["logits"],
                                    verbose=False)
    parameters = dict(net.named_parameters())
    offset = 0
    with open(folder / "model.onnx.data", "wb") as file:
        for value in program.model.graph.initializers.values():
            path = value.name.removeprefix("net.")
            if path in buffers:
                value.const_value = ir.tensor(buffers[path].numpy(), name=value.name)
            elif value.name in parameters:
                shape = [int(extent) for extent in value.shape]
                filled.fill(path, shape).tofile(file)
                size = 4 * math.prod(shape)
                value.const_value = ir.ExternalTensor("model.onnx.data", offset, size, value.dtype, shape=value.shape, name=value.name,
                                                      base_dir=str(folder))
                offset += size
    ir.save(program.model, folder / "model.onnx")
    data = tokens(made.vocab_size, length)
    save_file({"ids": data, "labels": data.roll(-1, 1).contiguous()}, folder / "data.safetensors")
    names = ", ".join(f'"{one}"' for one in PROJECTIONS)
    (folder / "recipe.toml").write_text(f"""[loss]
kind = "cross_entropy"
of = "logits"
target = "labels"
class_axis = -1

[optimizer]
kind = "adamw"
lr = {RATE}
weight_decay = 0.0

[adapter]
targets = [{names}]
rank = {RANK}
alpha = {ALPHA}
base = "nf4"
block = {BLOCK}
""")
    print(f"{folder}: {offset // 4:,} parameters", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", choices=SIZES)
    parser.add_argument("--length", type=int, default=512)
    given = parser.parse_args()
    write(given.name, given.folder, given.length)
