#!/usr/bin/env python3
"""One of the benchmark's models in PyTorch: `step.py MODEL [--compile] [--turns]` times its training steps as measure.py describes;
`step.py MODEL --onnx FOLDER` trains nothing: it writes the model, the recipe and the batch into model.onnx, recipe.toml and data.safetensors.

Configurations stand in the makers; weights and the one batch come from a seed. Parameters get a little noise first, since PyTorch's
exporter merges those that start out equal.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import measure                                                                  # noqa: E402
import torch                                                                    # noqa: E402

import language                                                                 # noqa: E402
import others                                                                   # noqa: E402
import vision                                                                   # noqa: E402

MODELS = language.MODELS | vision.MODELS | others.MODELS


def make(name):
    torch.manual_seed(0)
    made = MODELS[name]()
    made.net.train()
    with torch.no_grad():
        for parameter in made.net.parameters():
            parameter += 1e-4 * torch.randn_like(parameter)
    return made


def export(made, folder):
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    path, inputs = os.path.join(folder, "model.onnx"), tuple(made.inputs.values())
    names = {"input_names": list(made.inputs), "output_names": ["loss" if made.loss == "output" else "logits"]}
    if made.torchscript:
        torch.onnx.export(made.net, inputs, path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                          opset_version=17, **names)
    else:
        torch.onnx.export(made.net, inputs, dynamo=True, optimize=False, **names).save(path, external_data=True)
    data = dict(made.inputs) if made.target is None else made.inputs | {"target": made.target}
    save_file({name: value.contiguous() for name, value in data.items()}, os.path.join(folder, "data.safetensors"))
    with open(os.path.join(folder, "recipe.toml"), "w") as f:
        f.write(made.recipe())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--onnx", metavar="FOLDER")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--perturb", action="store_true", help="start from parameters that are off by at most one rounding to f32")
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    measure.add_arguments(parser)
    options = parser.parse_args()
    peak = measure.Peak()
    made = make(options.model)
    if options.onnx:
        return export(made, options.onnx)
    if options.perturb:
        with torch.no_grad():
            for parameter in made.net.parameters():
                parameter *= 1 + (2 * torch.rand_like(parameter) - 1) * 2 ** -24
    optimizer, inputs = made.update(), tuple(made.inputs.values())

    def forward(*inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            return made.loss_of(*inputs, target=made.target)
    if options.compile:
        forward = torch.compile(forward)

    def step():
        loss = forward(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    measure.run(options, step, peak, lambda: {"workload": options.model, "peer": f"torch {torch.__version__} {'compile' if options.compile else 'eager'}",
                                              "precision": options.precision,
                                              "parameter_bytes": sum(p.numel() * p.element_size() for p in made.net.parameters())})


if __name__ == "__main__":
    main()
