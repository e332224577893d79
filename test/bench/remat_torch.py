#!/usr/bin/env python3
"""PyTorch's memory budget beside tcc-plan on the graphs that PyTorch itself traces, as a table for docs/measurements/recomputation.md.

    remat_torch.py WORKLOAD [--batch N] [--seq N] [--fractions 0.9,0.7,...] [--work N]      (workloads of torch_step.py)

aot_autograd traces forward and backward into one joint graph, and the min-cut partitioner cuts it under
`activation_memory_budget`: a fraction of the activations that may be saved between the two. Executing its two graphs one after the other
is a schedule of the joint graph, and is measured by the definitions of Rematerialization.h like one of ours: the bytes live at each
step (without parameters and inputs, views counted with their base, all gradients kept to the end), and the cost by PyTorch's own
estimate, floating-point operations. A cheap operation with several outputs (a norm) becomes one node for each output, so that its
statistics can outlive its result. tcc-plan then gets the same graph and costs, and the peak of PyTorch's schedule as its budget.
"""
import argparse
import copy
import json
import operator
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config, partitioners

import remat
import torch_step


class Captured(Exception):
    pass


def capture(workload, batch, seq):
    """The joint graph of the workload's forward and backward, with its number of forward outputs and the partitioner's other arguments."""
    torch.manual_seed(0)
    net, shape, classes = torch_step.build(workload)
    net.train()
    if shape == "tokens":
        x, y = torch.randint(0, classes, (batch, seq)), torch.randint(0, classes, (batch, seq))
    else:
        x, y = torch.randn(batch, *shape), torch.randint(0, classes, (batch, *shape[1:]) if workload == "unet" else (batch,))
    found = {}

    def partition(joint, inputs, **others):
        found.update(joint=joint, inputs=inputs, others=others)
        raise Captured

    def loss(x, y):
        logits = net(x)
        return F.cross_entropy(logits.flatten(0, -2) if shape == "tokens" else logits, y.flatten() if shape == "tokens" else y)

    try:
        torch.compile(loss, backend=aot_autograd(fw_compiler=lambda module, _: module, partition_fn=partition))(x, y)
    except Exception:
        if not found:
            raise
    return found["joint"], found["inputs"], found["others"]


def bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(bytes_of, value)) if isinstance(value, (list, tuple)) else 0


def is_view(node):
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info for result in schema.returns)


class Graph:
    """The joint graph without views, in tcc-plan's format. The last node reads all values that are needed at the end."""

    def __init__(self, joint):
        self.index, self.nodes, self.edges, self.maker, self.split = {}, [], set(), {}, {}
        for node in joint.graph.nodes:
            made_from = sorted({self.maker[source] for source in node.all_input_nodes if source in self.maker})
            cost = max(1, int(partitioners.estimate_runtime(node))) if node.op == "call_function" and not is_view(node) else 0
            if node.op == "call_function" and node.all_input_nodes and node.all_input_nodes[0].name in self.split:
                cost, made_from = 1, self.split[node.all_input_nodes[0].name]
            if node.op == "call_function" and cost == 0:
                if made_from:
                    self.maker[node] = made_from[0]
            elif cost == 1 and isinstance(node.meta.get("val"), (list, tuple)):
                self.split[node.name] = made_from
            elif node.op in ("call_function", "output"):
                self.maker[node] = self.index[node.name] = len(self.nodes)
                self.nodes.append({"name": node.name, "cost": cost, "bytes": bytes_of(node.meta.get("val")) if cost else 0, "backward": False})
                self.edges |= {(source, self.maker[node]) for source in made_from}

    def write(self, path):
        path.write_text(json.dumps({"format": 1, "name": path.stem, "nodes": self.nodes, "edges": sorted(self.edges)}))

    def measure(self, schedule):
        """(cost, peak): an output lives from an execution to its last use before the next one."""
        inputs = [[] for _ in self.nodes]
        for source, node in self.edges:
            inputs[node].append(source)
        newest, last = {}, list(range(len(schedule)))
        for step, node in enumerate(schedule):
            for source in inputs[node]:
                last[newest[source]] = step
            newest[node] = step
        change = [0] * (len(schedule) + 1)
        for step, node in enumerate(schedule):
            change[step] += self.nodes[node]["bytes"]
            change[last[step] + 1] -= self.nodes[node]["bytes"]
        live = peak = 0
        for delta in change:
            live += delta
            peak = max(peak, live)
        return sum(self.nodes[node]["cost"] for node in schedule), peak

    def scheduled(self, modules):
        order = [self.index[node.name] for module in modules for node in module.graph.nodes if node.op == "call_function" and node.name in self.index]
        unknown = [node.name for module in modules for node in module.graph.nodes
                   if node.op == "call_function" and not is_view(node) and node.name not in self.index and node.name not in self.split]
        if unknown:
            raise SystemExit(f"the partitioner made nodes of its own: {unknown[:5]}")
        return order + [len(self.nodes) - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--fractions", default="1.0,0.9,0.8,0.7,0.6,0.5,0.4,0.3")
    parser.add_argument("--work", default="1500000000", help="of tcc-plan")
    options = parser.parse_args()
    joint, inputs, others = capture(options.workload, options.batch, options.seq)
    graph = Graph(joint)
    base, once = graph.measure(range(len(graph.nodes)))
    print(f"{options.workload}: {len(graph.nodes)} nodes, {base:.4g} operations, {once / 2**20:.0f} MiB at the peak when each is executed once\n")
    print("| fraction | saved | peak | PyTorch: extra | ours within that peak: extra | bound, any order |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{options.workload}.json"
        graph.write(path)
        for fraction in options.fractions.split(","):
            config.activation_memory_budget = float(fraction)
            parts = min_cut_rematerialization_partition(copy.deepcopy(joint), inputs, **others)
            saved = {node.name for node in parts[1].graph.nodes if node.op == "placeholder" and "tangents" not in node.name}
            held = {graph.maker[node] for node in joint.graph.nodes if node.name in saved and node in graph.maker}
            cost, peak = graph.measure(graph.scheduled(parts))
            run = subprocess.run([remat.TOOL, "remat", path, "--budget", str(peak), "--work", options.work, "--json"], capture_output=True, text=True)
            ours = json.loads(run.stdout) if run.returncode == 0 else None
            extra = lambda cost: f"{100 * (cost / base - 1):.3f} %"
            print(f"| {fraction} | {sum(graph.nodes[node]['bytes'] for node in held) / 2**20:.0f} MiB | {peak / 2**20:.0f} MiB ({100 * peak / once:.0f} %) | {extra(cost)} | "
                  f"{extra(ours['cost']) if ours else 'none found'} | {extra(ours['lower_bound_cost']) if ours else '–'} |", flush=True)


if __name__ == "__main__":
    main()
