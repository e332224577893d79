"""The peer of lora.py: the same adapters on the same model by peft and bitsandbytes' kernels for CPUs.

    lora_peft.py llama-1b FOLDER [--precision bf16] [--checkpoint] [--steps 5] [--turns]

FOLDER is lora_model.py's, with the start of the adapters in FOLDER/adapter as `trun export --adapter` writes it. Each projection is a Linear4bit of NF4 in blocks of 64 without nested scales; the table, which the head shares,
holds the numbers that its rounding to NF4 gives, since adapter.base rounds it too and bitsandbytes has no table in 4 bits. Prints the JSON
lines of measure.py. Needs torch, transformers, peft, bitsandbytes and safetensors.
"""
import argparse

import measure
import torch
from torch.nn import functional as F

import filled
import lora_model


def weight(name, shape):
    return torch.frombuffer(filled.fill(name, shape), dtype=torch.float32).view(shape)


def build(name, folder, dtype):
    import bitsandbytes as bnb
    import peft
    from safetensors.torch import load_file
    made = lora_model.config(name)
    net = lora_model.skeleton(made)
    for path, module in list(net.named_modules()):
        if isinstance(module, torch.nn.Linear) and not path.startswith("lm_head"):
            four = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=dtype, compress_statistics=False,
                                     quant_type="nf4", device="meta")
            values = weight(path + ".weight", module.weight.shape)
            four.weight = bnb.nn.Params4bit(values, requires_grad=False, compress_statistics=False, quant_type="nf4",
                                            blocksize=lora_model.BLOCK, module=four).to("cpu")
            parent, _, leaf = path.rpartition(".")
            setattr(net.get_submodule(parent), leaf, four)
        elif hasattr(module, "weight") and module.weight.is_meta and not path.startswith("lm_head"):
            values = weight(path + ".weight", module.weight.shape)
            if values.dim() > 1:
                codes, state = bnb.functional.quantize_4bit(values, blocksize=lora_model.BLOCK, quant_type="nf4")
                values = bnb.functional.dequantize_4bit(codes, state)
            module.weight = torch.nn.Parameter(values.to(dtype).clone(), requires_grad=False)
    if made.tie_word_embeddings:
        net.lm_head.weight = net.model.embed_tokens.weight
    else:
        values = weight("lm_head.weight", net.lm_head.weight.shape)
        codes, state = bnb.functional.quantize_4bit(values, blocksize=lora_model.BLOCK, quant_type="nf4")
        net.lm_head.weight = torch.nn.Parameter(bnb.functional.dequantize_4bit(codes, state).to(dtype), requires_grad=False)
    net = peft.get_peft_model(net, peft.LoraConfig(r=lora_model.RANK, lora_alpha=lora_model.ALPHA, lora_dropout=0.0,
                                                   target_modules=lora_model.PROJECTIONS))
    found = peft.set_peft_model_state_dict(net, load_file(folder / "adapter" / "adapter_model.safetensors"))
    if found.unexpected_keys:
        raise SystemExit(f"not in the model: {found.unexpected_keys[:3]}")
    return net.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=lora_model.SIZES)
    parser.add_argument("folder", type=lora_model.Path)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--checkpoint", action="store_true", help="activation checkpointing, block by block")
    parser.add_argument("--threads", type=int)
    measure.add_arguments(parser, steps=4, warmup=1)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    import bitsandbytes, peft, transformers      # noqa: F401, before the memory of the process is taken
    from safetensors.torch import load_file
    peak = measure.Peak()
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    net = build(options.name, options.folder, dtype)
    if options.checkpoint:
        net.enable_input_require_grads()
        net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    data = load_file(options.folder / "data.safetensors")
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lora_model.RATE, weight_decay=0.0, fused=True)
    number = 0

    def step():
        nonlocal number
        sample = number % lora_model.SAMPLES
        number += 1
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            logits = net(input_ids=data["ids"][sample:sample + 1], use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, -2).float(), data["labels"][sample])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    measure.run(options, step, peak, lambda: {"peer": f"peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}",
                                              "precision": options.precision, "trained": sum(p.numel() for p in trained),
                                              "whole_peak_bytes": peak.before + peak.report()["peak_rss_bytes"]})


if __name__ == "__main__":
    main()
