#!/usr/bin/env python3
"""Time one training step of a standard workload in JAX: the same nets, arguments and JSON line as torch_step.py.

    jax_step.py gpt2-124m --batch 4 --seq 64 [--precision bf16] [--steps 10] [--init FROM_ORT_STEP_EXPORT/init.safetensors]

One jitted function with donated state: forward, backward, optax.adamw. bf16 is used as by torch's autocast: parameters,
residual stream, normalisations and loss in f32, matrix products and convolutions in bf16. Images are NHWC inside, which XLA
prefers. Weights are drawn by NumPy; --init takes PyTorch's weights and batch, so that losses can be compared digit by digit.
"""
import argparse, math
import numpy as np, jax, jax.numpy as jnp, optax
from jax import lax
import measure

GPTS = {"gpt2-124m": (50257, 1024, 768, 12, 12), "gpt-small": (65, 256, 128, 4, 4)}
COMPUTE = jnp.float32                                                       # bf16 under --precision bf16


def linear(p, n, x): return x.astype(COMPUTE) @ p[n + ".weight"].T.astype(COMPUTE) + p[n + ".bias"].astype(COMPUTE)


def layer_norm(p, n, x):
    m = x.mean(-1, keepdims=True); v = jnp.square(x - m).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * p[n + ".weight"] + p[n + ".bias"]


def conv(p, n, x, pad):
    y = lax.conv_general_dilated(x.astype(COMPUTE), p[n + ".weight"].astype(COMPUTE), (1, 1), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p[n + ".bias"].astype(COMPUTE) if n + ".bias" in p else y


def pool(x, k): return lax.reduce_window(x, -jnp.inf, lax.max, (1, k, k, 1), (1, k, k, 1), "VALID")
def flatten(x): return x.transpose(0, 3, 1, 2).reshape(len(x), -1)          # PyTorch's order of features


def gpt(p, stats, ids, layers, heads):
    x = p["wte.weight"][ids] + p["wpe.weight"][:ids.shape[1]]
    B, T, D = x.shape
    for i in range(layers):
        n = f"blocks.{i}."
        qkv = linear(p, n + "qkv", layer_norm(p, n + "ln1", x)).reshape(B, T, 3, heads, D // heads)
        y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + linear(p, n + "proj", y.reshape(B, T, D))
        x = x + linear(p, n + "out", jax.nn.gelu(linear(p, n + "fc", layer_norm(p, n + "ln2", x)), approximate=True))
    return layer_norm(p, "lnf", x).astype(COMPUTE) @ p["wte.weight"].T.astype(COMPUTE), stats


def mlp(p, stats, x):
    for n in ("1", "3"): x = jax.nn.relu(linear(p, n, x))
    return linear(p, "5", x), stats


def cnn(p, stats, x):
    x = jax.nn.relu(conv(p, "2", jax.nn.relu(conv(p, "0", x, 0)), 0))
    return linear(p, "8", jax.nn.relu(linear(p, "6", flatten(pool(x, 2))))), stats


RESNET9 = {"0": (3, 64), "1": (64, 128), "3.f.0": (128, 128), "3.f.1": (128, 128), "4": (128, 256), "6": (256, 512), "8.f.0": (512, 512), "8.f.1": (512, 512)}


def resnet9(p, stats, x):
    stats = dict(stats)

    def block(n, x):                                                        # convolution, batch norm of this batch, ReLU
        x = conv(p, n + ".0", x, 1).astype(jnp.float32); count = x.size // x.shape[-1]
        m = x.mean((0, 1, 2)); v = jnp.square(x - m).mean((0, 1, 2))
        for k, s in (("mean", m), ("var", v * count / (count - 1))): stats[f"{n}.1.{k}"] = 0.9 * stats[f"{n}.1.{k}"] + 0.1 * s
        return jax.nn.relu((x - m) * (lax.rsqrt(v + 1e-5) * p[n + ".1.weight"]) + p[n + ".1.bias"]).astype(COMPUTE)

    x = pool(block("1", block("0", x)), 2); x = x + block("3.f.1", block("3.f.0", x))
    x = pool(block("6", pool(block("4", x), 2)), 2); x = x + block("8.f.1", block("8.f.0", x))
    return linear(p, "11", flatten(pool(x, 4))), stats


def parameters(name, rng):
    """Named as PyTorch names them; convolutions as HWIO. Distributions are PyTorch's defaults."""
    p = {}
    def uniform(n, shape, fan): p[n] = rng.uniform(-1, 1, shape).astype(np.float32) / math.sqrt(fan)
    def dense(n, i, o): uniform(n + ".weight", (o, i), i); uniform(n + ".bias", (o,), i)
    def kernel(n, i, o): uniform(n + ".weight", (3, 3, i, o), 9 * i)
    def norm(n, d): p[n + ".weight"] = np.ones(d, np.float32); p[n + ".bias"] = np.zeros(d, np.float32)
    if name in GPTS:
        vocab, ctx, d, layers, _ = GPTS[name]
        for i in range(layers):
            n = f"blocks.{i}."; norm(n + "ln1", d); norm(n + "ln2", d)
            for k, a, b in (("qkv", d, 3 * d), ("proj", d, d), ("fc", d, 4 * d), ("out", 4 * d, d)): dense(n + k, a, b)
        norm("lnf", d); p["wte.weight"] = np.empty((vocab, d)); p["wpe.weight"] = np.empty((ctx, d))
        for n in p:
            if p[n].ndim > 1: p[n] = 0.02 * rng.standard_normal(p[n].shape, np.float32)
    if name == "mlp": dense("1", 784, 512); dense("3", 512, 512); dense("5", 512, 10)
    if name == "cnn":
        for n, i, o in (("0", 1, 32), ("2", 32, 64)): kernel(n, i, o); uniform(n + ".bias", (o,), 9 * i)
        dense("6", 64 * 144, 128); dense("8", 128, 10)
    if name == "resnet9":
        for n, (i, o) in RESNET9.items(): kernel(n + ".0", i, o); norm(n + ".1", o)
        dense("11", 512, 10)
    return p


def from_torch(path, images):
    from safetensors.numpy import load_file
    t = load_file(path); x, y = t.pop("x"), t.pop("y")
    p = {n: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v for n, v in t.items() if "running" not in n and "num_batches" not in n}
    return p, x.transpose(0, 2, 3, 1) if images else x, y


def main():
    global COMPUTE
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("workload", choices=[*GPTS, "mlp", "cnn", "resnet9"]); a.add_argument("--batch", type=int, default=4); a.add_argument("--seq", type=int, default=64)
    measure.add_arguments(a); a.add_argument("--lr", type=float, default=3e-4)
    a.add_argument("--precision", default="f32", choices=["f32", "bf16"]); a.add_argument("--init"); o = a.parse_args()
    if o.precision == "bf16": COMPUTE = jnp.bfloat16
    peak = measure.Peak(); rng = np.random.default_rng(0); images = {"cnn": (28, 28, 1), "resnet9": (32, 32, 3)}.get(o.workload)
    if o.init: p, x, y = from_torch(o.init, images)
    elif o.workload in GPTS:
        p = parameters(o.workload, rng); x, y = rng.integers(0, GPTS[o.workload][0], (2, o.batch, o.seq))
    else:
        p = parameters(o.workload, rng); x = rng.standard_normal((o.batch, *(images or (784,))), np.float32); y = rng.integers(0, 10, o.batch)
    stats = {f"{n}.1.{k}": jnp.full(c[1], float(k == "var")) for n, c in RESNET9.items() for k in ("mean", "var")} if o.workload == "resnet9" else {}
    layers, heads = GPTS.get(o.workload, (0,) * 5)[3:]
    net = {"mlp": mlp, "cnn": cnn, "resnet9": resnet9}.get(o.workload) or (lambda p, s, x: gpt(p, s, x, layers, heads))
    adamw = optax.adamw(o.lr, weight_decay=0.01)

    def loss(p, stats, x, y):
        logits, stats = net(p, stats, x)
        logits = logits.astype(jnp.float32).reshape(-1, logits.shape[-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, y.reshape(-1)).mean(), stats

    def update(state, x, y):
        p, stats, moments = state
        (l, stats), g = jax.value_and_grad(loss, has_aux=True)(p, stats, x, y)
        u, moments = adamw.update(g, moments, p)
        return (optax.apply_updates(p, u), stats, moments), l

    p = jax.tree.map(jnp.asarray, p); state = p, stats, adamw.init(p); x, y = jnp.asarray(x), jnp.asarray(y, jnp.int32); del p
    fast = jax.jit(update, donate_argnums=0)

    def step():
        nonlocal state
        state, l = fast(state, x, y); jax.block_until_ready(state)
        return l
    measure.run(o, step, peak, lambda: {"workload": o.workload, "peer": "jax " + jax.__version__, "precision": o.precision, "batch": o.batch,
                                        "seq": o.seq if o.workload in GPTS else None})


if __name__ == "__main__": main()
