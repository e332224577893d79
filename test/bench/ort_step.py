#!/usr/bin/env python3
"""Time one training step of a standard workload in ONNX Runtime Training's on-device API (the last release, 1.19.2).

    ort_step.py export gpt2-124m --batch 4 --seq 64 DIR      with PyTorch's Python: forward.onnx, init.safetensors, workload.json
    ort_step.py artifacts DIR                                with ORT Training's Python: gradient graph, optimiser graph, checkpoint
    ort_step.py step DIR [--steps 10]                        likewise; prints the JSON line of torch_step.py

Environment of the last two: onnxruntime-training-cpu==1.19.2 "onnx==1.16.2" "numpy<2" "protobuf<5" safetensors, Python ≤ 3.11.
In the JSON line first_step_s includes loading (load_s); artifacts_s and artifacts_peak_bytes are those of generate_artifacts.
Workarounds, without which these models fail:
- `import onnxruntime.training` imports PyTorch for an FP16 optimiser that this API never uses: that module is replaced.
- LayerNormalization with one output has no gradient ("i < OutputDefs().size()"): its two optional outputs are added.
- CrossEntropyLoss makes labels [B,T] for logits [B,T,V], then its own kernel refuses them: logits are flattened to [B·T,V].
- With optimisation PyTorch's present exporter folds BatchNorm into Conv even in training mode, merges parameters that start
  out equal (every LayerNorm of a GPT becomes one) and renames transposed weights; without it, it writes CastLike, which has no
  gradient here. So the old exporter is used, which is as old as this release.
- Its AdamW has eps 1e-6 and no weight decay by default: PyTorch's are given.
"""
import argparse, json, os, sys, time, types
import measure


def export(o):
    import torch, onnx, safetensors.torch
    import torch_step
    torch.manual_seed(0); os.makedirs(o.dir, exist_ok=True); path = os.path.join(o.dir, "forward.onnx")
    net, shape, classes = torch_step.build(o.workload); net.train()
    if shape == "tokens": x, y = torch.randint(0, classes, (o.batch, o.seq)), torch.randint(0, classes, (o.batch, o.seq))
    else: x, y = torch.randn(o.batch, *shape), torch.randint(0, classes, (o.batch,))
    safetensors.torch.save_file({**{n: p.detach().clone() for n, p in net.state_dict().items()}, "x": x, "y": y}, os.path.join(o.dir, "init.safetensors"))
    t = time.perf_counter()
    torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["logits"], opset_version=o.opset, dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    t = time.perf_counter() - t; m = onnx.load(path)
    trainable = [n for n, _ in net.named_parameters()]
    assert set(trainable) <= {i.name for i in m.graph.initializer}
    for k, n in enumerate(m.graph.node):
        if n.op_type == "LayerNormalization" and len(n.output) == 1: n.output.extend([f"ln_mean_{k}", f"ln_inverse_deviation_{k}"])
    if shape == "tokens":
        m.graph.node.append(onnx.helper.make_node("Flatten", ["logits"], ["logits_2d"], axis=2))
        m.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("logits_2d", 1, [o.batch * o.seq, classes]))
    onnx.save(m, path)
    with open(os.path.join(o.dir, "workload.json"), "w") as f:
        json.dump({"workload": o.workload, "precision": "f32", "batch": o.batch, "seq": o.seq, "opset": o.opset, "export_s": t, "trainable": trainable}, f)


def training():
    """onnxruntime.training without PyTorch."""
    try: import torch                                                       # noqa: F401
    except ImportError: sys.modules["onnxruntime.training.optim"] = types.ModuleType("onnxruntime.training.optim")
    import onnxruntime; onnxruntime.set_default_logger_severity(3)
    from onnxruntime.training import api, artifacts, onnxblock
    return onnxruntime, api, artifacts, onnxblock


def make_artifacts(o):
    _, _, artifacts, onnxblock = training(); info = workload(o.dir)
    peak = measure.Peak(); t = time.perf_counter()
    import onnx
    model = onnx.load(os.path.join(o.dir, "forward.onnx"))
    frozen = [i.name for i in model.graph.initializer if i.name not in set(info["trainable"])]
    artifacts.generate_artifacts(model, requires_grad=info["trainable"], frozen_params=frozen, loss=artifacts.LossType.CrossEntropyLoss,
                                 optimizer=onnxblock.optim.AdamW(eps=1e-8, weight_decay=0.01), artifact_directory=o.dir)
    info.update(artifacts_s=time.perf_counter() - t, artifacts_peak_bytes=peak.report()["peak_rss_bytes"])
    with open(os.path.join(o.dir, "workload.json"), "w") as f: json.dump(info, f)


def workload(d):
    with open(os.path.join(d, "workload.json")) as f: return json.load(f)


def step(o):
    from safetensors.numpy import load_file
    runtime, api, *_ = training(); info = workload(o.dir); at = lambda n: os.path.join(o.dir, n)
    data = load_file(at("init.safetensors")); x, y = data["x"], data["y"].reshape(-1); del data
    peak = measure.Peak(); t = time.perf_counter()
    state = api.CheckpointState.load_checkpoint(at("checkpoint"))
    net = api.Module(at("training_model.onnx"), state, at("eval_model.onnx") if o.eval else None, device="cpu")
    opt = api.Optimizer(at("optimizer_model.onnx"), net); opt.set_learning_rate(o.lr); net.train(); load = time.perf_counter() - t

    def one():
        loss = net(x, y); opt.step(); net.lazy_reset_grad()
        return loss
    measure.run(o, one, peak, lambda: {**{k: info[k] for k in ("workload", "precision", "batch", "seq", "artifacts_s", "artifacts_peak_bytes", "export_s")},
                                       "peer": "onnxruntime-training " + runtime.__version__, "load_s": load}, load)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter); c = a.add_subparsers(dest="do", required=True)
    e = c.add_parser("export"); e.add_argument("workload"); e.add_argument("dir"); e.add_argument("--batch", type=int, default=4)
    e.add_argument("--seq", type=int, default=64); e.add_argument("--opset", type=int, default=17)
    c.add_parser("artifacts").add_argument("dir")
    s = c.add_parser("step"); s.add_argument("dir"); measure.add_arguments(s)
    s.add_argument("--lr", type=float, default=3e-4); s.add_argument("--eval", action="store_true", help="load the evaluation graph as well")
    o = a.parse_args(); {"export": export, "artifacts": make_artifacts, "step": step}[o.do](o)


if __name__ == "__main__": main()
