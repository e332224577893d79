#!/usr/bin/env python3
"""Graphs of about a thousand nodes for remat.py, of the two families that the public instances are of: `remat_graphs.py FOLDER`.

random1000    random layered graph (Gagrani et al., "Neural Topological Ordering for Computation Graphs", NeurIPS 2022): layers of
              random width, edges to the next layer and, fewer, beyond it
training1000  a residual network and its gradient, a node an operation, as in Jain et al., "Checkmate" (MLSys 2020)
"""
import json
import random
import sys
from pathlib import Path


def layered(nodes, seed):
    draw = random.Random(seed)
    width = 0.36 * nodes ** 0.5
    layers, count = [], 0
    while count < nodes:
        size = min(max(1, round(draw.gauss(width, 0.75 * width / 2))), nodes - count)
        layers.append(list(range(count, count + size)))
        count += size
    edges = set()
    for number, layer in enumerate(layers[1:], 1):
        for node in layer:
            edges |= {(source, node) for source in layers[number - 1] if draw.random() < 0.2}
            edges |= {(draw.choice(draw.choice(layers[:number - 1])), node) for _ in range(3) if number > 1 and draw.random() < 0.14}
            if not any(target == node for _, target in edges):
                edges.add((draw.choice(layers[number - 1]), node))
    listed = [{"name": f"n{i}", "cost": draw.randint(0, 1000), "bytes": 10 * draw.randint(20, 600), "backward": False} for i in range(nodes)]
    return {"format": 1, "name": f"layered-{nodes}-{seed}", "nodes": listed, "edges": sorted(edges)}


def training(blocks, seed):
    """`blocks` residual blocks of three convolutions, each with a norm and an activation; then their gradients in reverse order."""
    draw = random.Random(seed)
    nodes, edges, forward = [], [], []              # forward: (node, its inputs, the values that its gradient reads)

    def node(name, cost, size, inputs, backward=False):
        nodes.append({"name": name, "cost": cost, "bytes": size, "backward": backward})
        edges.extend([source, len(nodes) - 1] for source in inputs)
        return len(nodes) - 1

    def layer(name, kind, inputs, size):
        made = node(name, {"conv": draw.randint(300, 900), "bn": 40, "relu": 15, "add": 20}[kind], size, inputs)
        # The gradient of a convolution or norm reads its inputs, that of an activation its result.
        forward.append((made, inputs, {"conv": inputs, "bn": inputs, "relu": [made], "add": []}[kind], kind, name, size))
        return made

    last = layer("stem", "conv", [node("input", 0, 4 << 20, [])], 64 << 20)
    for block in range(blocks):
        size = (64 << 20) >> (4 * block // blocks)
        start, at = last, last
        for part in range(3):
            at = layer(f"b{block}.conv{part}", "conv", [at], size // (1 if part == 2 else 4))
            at = layer(f"b{block}.bn{part}", "bn", [at], size // (1 if part == 2 else 4))
            if part < 2:
                at = layer(f"b{block}.relu{part}", "relu", [at], size // 4)
        last = layer(f"b{block}.relu", "relu", [layer(f"b{block}.add", "add", [at, start], size)], size)
    gradients = {last: [node("loss'", 10, nodes[last]["bytes"], [last], True)]}
    for made, inputs, reads, kind, name, _ in reversed(forward):
        arriving = gradients.pop(made)
        gradient = arriving[0] if len(arriving) == 1 else node(name + ".sum'", 20, nodes[made]["bytes"], arriving, True)
        if kind == "conv":
            node(name + ".dw", draw.randint(300, 900), 1 << 20, [gradient, *reads], True)
        for source in inputs:
            if source == 0:
                continue
            passed = node(f"{name}.dx", nodes[made]["cost"], nodes[source]["bytes"], [gradient, *reads], True)
            gradients.setdefault(source, []).append(passed)
    return {"format": 1, "name": f"training-{len(nodes)}", "nodes": nodes, "edges": [list(edge) for edge in sorted(set(map(tuple, edges)))]}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in (("random1000", layered(1000, 1)), ("training1000", training(40, 1))):
        (folder / f"{name}.json").write_text(json.dumps(graph))
        print(name, len(graph["nodes"]), "nodes,", len(graph["edges"]), "edges")
