"""Makes a plan of a torch module: exports it, writes its part of the recipe, compiles, and compares the gradients with
autograd's.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy
import torch
from torch import nn

from .. import _plan
from .._layout import Layout, leaves, rebuilt
from .._library import Error
from .._module import Module
from .._plan import CompileError, Plan
from .losses import for_export, recipe_of
from .optimizers import Rates, read_optimizer, read_scheduler
from .proof import Reference, difference, first_node, unchanged

# Keys of a dict that hold what the loss compares with.
TARGETS = ("labels", "label", "targets", "target", "y")
# What torch's norms write in a forward pass; a plan does the same. Other buffers that change are not in an export.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _unwrapped(module: Any) -> nn.Module:
    if isinstance(module, torch.jit.ScriptModule):
        raise CompileError(
            "the module is scripted by torch.jit, which torch.export cannot follow; give the module that it was made "
            "from"
        )
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        module = module.module
    found: nn.Module = getattr(module, "_orig_mod", module)  # of torch.compile
    return found


class _Call:
    """How a batch becomes the loss and the outputs of a module."""

    def __init__(self, module: nn.Module, batch: Any, loss: Any, labels: Any):
        self.module, self.loss, self.forward = module, loss, module.forward
        is_mapping = isinstance(batch, Mapping)
        if not is_mapping and not isinstance(batch, (tuple, list)):
            batch = (batch,)
        self.batch = batch
        if labels is None and loss is not None:
            if not is_mapping:
                labels = len(batch) - 1
            else:
                found = [key for key in TARGETS if key in batch]
                if len(found) != 1:
                    raise CompileError(
                        f"the batch is a dict with the keys {', '.join(map(str, batch))}; say which one the loss "
                        f"compares with: "
                        "labels='…'"
                    )
                labels = found[0]
        self.labels = labels
        if loss is not None:
            if (labels not in batch) if is_mapping else not 0 <= labels < len(batch):
                raise CompileError(f"labels={labels!r}: the batch has no such item")
            if not is_mapping and len(batch) < 2:
                raise CompileError(
                    "a loss compares with a target, and the batch is one tensor; give (x, target), or leave the loss "
                    "out if "
                    "the module returns it"
                )
        self.layout = self._layout()
        constants = [
            words
            for words, value in self.layout.constants
            if not isinstance(value, (type(None), bool, int, float, str))
        ]
        if constants:
            raise CompileError(f"the batch holds {constants[0]}, which is no tensor, number or text")

    def _layout(self) -> Layout:
        is_mapping = isinstance(self.batch, Mapping)
        parameters = [] if is_mapping else list(inspect.signature(self.forward).parameters)
        tensors, constants, taken = [], [], set()
        for path, value in leaves(self.batch):
            if not isinstance(value, (torch.Tensor, numpy.ndarray)):
                constants.append((path, value))
                continue
            first = path[0]
            if self.loss is not None and first == self.labels:
                first = self.labels if is_mapping else "target"
            elif not is_mapping:
                first = parameters[first] if first < len(parameters) else f"input_{first}"
            name = "_".join(str(one) for one in (first, *path[1:]))
            while name in taken:
                name += "_"
            taken.add(name)
            tensors.append((path, name))
        if not tensors:
            raise CompileError("the batch holds no tensors")
        return Layout(tensors, constants, is_mapping, len(self.batch))

    def targets(self) -> list[str]:
        """Inputs that the loss alone reads."""
        return [name for path, name in self.layout.tensors if self.loss is not None and path[0] == self.labels]

    def filled(self, tensors: Mapping[str, Any]) -> Any:
        """The example with other tensors in place of those that are named."""
        names = dict(self.layout.tensors)
        return rebuilt(
            self.batch,
            iter([tensors.get(names[path], value) if path in names else value for path, value in leaves(self.batch)]),
        )

    def result(self, batch: Any) -> Any:
        """What the module returns for a batch, without the loss's part."""
        if isinstance(batch, Mapping):
            return self.forward(
                **{key: value for key, value in batch.items() if self.loss is None or key != self.labels}
            )
        return self.forward(*(value for index, value in enumerate(batch) if self.loss is None or index != self.labels))

    def loss_of(self, result: Any, batch: Any, exporting: bool = False) -> Any:
        if self.loss is not None:
            target = batch[self.labels]
            return (for_export(self.loss, target) if exporting else self.loss)(result, target)
        if isinstance(result, Mapping) and "loss" in result:
            return result["loss"]
        if getattr(result, "loss", None) is not None:
            return result.loss
        return result[0] if isinstance(result, (tuple, list)) else result


def _outputs(result: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors that a module returns, except the loss, as (name, tensor)."""
    if isinstance(result, torch.Tensor):
        return [("output", result)]
    if not isinstance(result, (Mapping, tuple, list)):
        result = {key: value for key, value in vars(result).items()} if hasattr(result, "__dict__") else {}
    found = [("_".join(map(str, path)), value) for path, value in leaves(result) if isinstance(value, torch.Tensor)]
    return [(name if name[0].isalpha() else f"output_{name}", value) for name, value in found]


def _check_devices(call: _Call, parameters: dict[str, Any]) -> None:
    places: dict[str, str] = {}
    for name, value in [*parameters.items(), *call.module.named_buffers()]:
        places.setdefault(str(value.device), f"the module's '{name}'")
    for path, value in leaves(call.batch):
        if isinstance(value, torch.Tensor):
            places.setdefault(str(value.device), f"the batch's {dict(call.layout.tensors)[path]}")
    if isinstance(call.loss, nn.Module):
        for name, value in [*call.loss.named_parameters(), *call.loss.named_buffers()]:
            places.setdefault(str(value.device), f"the loss's '{name}'")
    if "meta" in places and len(places) == 1:
        raise CompileError(f"{places['meta']} is on the device meta, which has no values; load the weights first")
    if len(places) > 1:
        raise CompileError(
            "tensors are on several devices: "
            + ", ".join(f"{what} on {device}" for device, what in places.items())
            + "; move them to one by .to(…)"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch's exporter from warning and logging: what goes wrong comes as an exception."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(max(disabled, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(disabled)


def _cause(problem: BaseException) -> str:
    """The first line of torch's error message."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[0] if lines else type(problem).__name__


def _samples(tensors: Mapping[str, torch.Tensor]) -> int:
    """Samples of the example: the first axis of its first tensor."""
    count = next((len(one) for one in tensors.values() if one.dim()), 0)
    if count < 2:
        raise CompileError(
            f"fit, batch, lengths: another batch size needs an example of at least 2 samples, and this one has {count}: torch "
            "takes a size of 1 for a constant"
        )
    return count


def _length(tensors: Mapping[str, torch.Tensor]) -> int:
    """The length of the example's samples: the second axis of its first tensor that has one."""
    length = next((one.shape[1] for one in tensors.values() if one.dim() > 1), 0)
    if length < 2:
        raise CompileError(
            "lengths: the example holds no tensor of [samples, length, …] with a length of at least 2; torch takes 1 "
            "for a constant"
        )
    return int(length)


def _exported(
    call: _Call,
    forward: Callable[..., Any],
    tensors: dict[str, torch.Tensor],
    outputs: list[str],
    path: Path,
    samples: int | None,
    length: int | None,
) -> Any:
    """Writes the graph of `forward`, a function of tensors by name, in the module's own names, and returns torch's
    exported program. samples: the length of the first axes that may change, length: of the second axes; None: none may.
    """
    module = call.module
    axes = {0: (torch.export.Dim("batch"), samples), 1: (torch.export.Dim("length"), length)}
    shapes = [
        {axis: dim for axis, (dim, size) in axes.items() if size is not None and one.shape[axis : axis + 1] == (size,)}
        for one in tensors.values()
    ]
    had = module.__dict__.get("forward")
    module.forward = types.MethodType(lambda self, *given: forward(dict(zip(tensors, given))), module)
    try:
        with _quiet(), unchanged(module):
            program = torch.export.export(
                module, tuple(tensors.values()), dynamic_shapes=(tuple(shapes),) if samples else None
            )
            size = sum(value.numel() * value.element_size() for value in [*module.parameters(), *module.buffers()])
            torch.onnx.export(
                program,
                (),
                str(path),
                dynamo=True,
                optimize=False,
                external_data=size > 1_500_000_000,
                verbose=False,
                input_names=list(tensors),
                output_names=outputs,
            )
        return program
    except CompileError:
        raise
    except Exception as problem:
        name = type(module).__name__
        if samples:
            constant = "its code makes their number a constant, as len(x) does and x.shape[0] does not"
            cause = constant if "specialized" in str(problem) else _cause(problem)
            raise CompileError(
                f"{name}: torch cannot export its forward for other batches than the example's {samples} samples: "
                f"{cause}; or leave fit= and batch= out, and give an example of the size to train with"
            ) from problem
        raise CompileError(
            f"{name}: torch cannot export its forward: {_cause(problem)}; a branch or a shape that depends on values "
            "of tensors is written with torch.where or torch.cond, or stays outside of forward"
        ) from problem
    finally:
        if had is None:
            del module.forward
        else:
            module.forward = had


def _buffers(module: nn.Module) -> dict[str, tuple[int, int]]:
    """What differs after a forward that has written or replaced a buffer."""
    return {name: (id(value), value._version) for name, value in module.named_buffers()}


def _check_buffers(module: nn.Module, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> None:
    """Refuses a forward that changes buffers which a plan does not change. before, after: `_buffers` around it."""
    for name, value in after.items():
        owner, _, own = name.rpartition(".")
        norm = isinstance(module.get_submodule(owner), nn.modules.batchnorm._NormBase) and own in _STATISTICS
        if value != before[name] and not norm and not own.endswith(("_u", "_v")):  # of spectral_norm
            raise CompileError(
                f"{type(module).__name__}: forward changes the buffer '{name}', and a plan changes running statistics "
                "of norms alone; compute it outside of forward"
            )


def _initializers(path: Path) -> set[str]:
    import onnx

    return {one.name for one in onnx.load(str(path), load_external_data=False).graph.initializer}


def _symbols(path: Path, axis: int) -> list[str]:
    """The names that the export gave to this axis of the graph's inputs: of axes with one size they are one name."""
    import onnx

    inputs = onnx.load(str(path), load_external_data=False).graph.input
    dims = [list(one.type.tensor_type.shape.dim)[axis : axis + 1] for one in inputs]
    return sorted({dim.dim_param for found in dims for dim in found if dim.dim_param})


def _values(path: Path) -> set[str]:
    import onnx

    return {name for node in onnx.load(str(path), load_external_data=False).graph.node for name in node.output}


def _named_state(module: nn.Module, graph: set[str]) -> dict[str, str]:
    """{name in state_dict: the initializer that holds it}. Names of one tied weight have one initializer."""
    state = module.state_dict(keep_vars=True)
    owner = {id(value): name for name, value in state.items() if name in graph}
    return {name: owner[id(value)] for name, value in state.items() if id(value) in owner}


def compile_module(
    module: Any,
    batch: Any,
    *,
    loss: Any,
    optimizer: Any,
    scheduler: Any,
    schedule_per: str,
    labels: Any,
    recipe: dict[str, Any],
    phases: list[Any],
    prove: bool,
    output: Any,
    options: dict[str, Any],
) -> Plan:
    """tcc.compile for a torch module."""
    module = _unwrapped(module)
    if batch is None:
        raise CompileError(
            "a torch module is compiled for an example batch, as the loop's loader gives it: tcc.compile(model, "
            "batch, …)"
        )
    if isinstance(loss, type):
        raise CompileError(f"loss: {loss.__name__} is a class; give an object of it, {loss.__name__}()")
    call = _Call(module, batch, loss, labels)
    parameters = dict(module.named_parameters())
    if not any(p.requires_grad for p in parameters.values()):
        raise CompileError(
            f"{type(module).__name__} has no parameters that require gradients; call requires_grad_() on those to train"
        )
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise CompileError(
            f"loss: {type(loss).__name__} has parameters of its own; make it a submodule of the module, which returns "
            f"the loss"
        )
    _check_devices(call, parameters)
    given_loss = loss is None and any(key in recipe for key in ("loss", "loss.kind", "loss.output")) or bool(phases)
    if not module.training:
        warnings.warn(
            f"{type(module).__name__} is in eval() mode: dropout and norms stay as in inference; call train() before "
            f"compile",
            stacklevel=4,
        )
    names = dict(call.layout.tensors)
    tensors = {
        names[path]: value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
        for path, value in leaves(call.batch)
        if path in names
    }
    # torch.export makes one input of a tensor that is given twice, as ids and labels of a language model may be.
    objects: set[int] = set()
    for name, tensor in tensors.items():
        if id(tensor) in objects:
            tensors[name] = tensor.clone()
        objects.add(id(tensor))

    # One forward pass tells what the module returns and whether the loss is one number.
    try:
        with torch.no_grad(), unchanged(module):
            buffers = _buffers(module)
            example = call.filled(tensors)
            result = call.result(example)
            value = None if given_loss else call.loss_of(result, example)
            buffers_after = _buffers(module)
    except Exception as problem:
        raise CompileError(
            f"{type(module).__name__}: the example batch cannot be computed: {_cause(problem)}"
        ) from problem
    _check_buffers(module, buffers, buffers_after)
    if not given_loss and (not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point()):
        what = (
            f"a {value.dtype} of shape {list(value.shape)}".replace("torch.", "")
            if isinstance(value, torch.Tensor)
            else type(value).__name__
        )
        raise CompileError(
            f"the loss is {what}, and must be one floating-point number; "
            + ("use reduction='mean'" if loss is not None else "give loss=, or return the loss first")
        )

    made: dict[str, Any] = {}
    in_recipe = recipe_of(loss, result, example[call.labels]) if loss is not None else None
    if in_recipe is not None:
        made |= in_recipe | {"loss.of": "output", "loss.target": call.targets()[0]}
    inside = in_recipe is None and not given_loss
    if inside:
        made["loss.output"] = "loss"
    outputs = [name for name, one in _outputs(result) if one is not value]

    def forward(given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        own = call.filled(given)
        returned = call.result(own)
        rest = tuple(one for name, one in _outputs(returned) if name in outputs)
        return (call.loss_of(returned, own, exporting=True).reshape(()), *rest) if inside else rest

    folder = _plan.Folder(output, type(module).__name__)
    path = folder.path / f"{type(module).__name__}.onnx"
    read = {name: one for name, one in tensors.items() if inside or name not in call.targets()}
    lengths = options.pop("lengths")
    samples = _samples(tensors) if options["fit"] or options["batch"] or lengths else None
    length = _length(tensors) if lengths else None
    program = _exported(call, forward, read, (["loss"] if inside else []) + outputs, path, samples, length)

    graph = _initializers(path)
    state = _named_state(module, graph)
    by_id = {id(value): state[name] for name, value in module.state_dict(keep_vars=True).items() if name in state}
    requiring = {by_id[id(p)]: p for p in parameters.values() if p.requires_grad and id(p) in by_id}
    rates = None
    trained = list(requiring)
    if optimizer is not None:
        keys, trained, scales = read_optimizer(optimizer, by_id, scheduler is not None)
        made |= keys
        rates = Rates(optimizer, scales)
    elif scheduler is not None:
        raise CompileError("scheduler: it needs the optimizer whose rates it moves; give optimizer=")
    if scheduler is not None:
        made |= read_scheduler(scheduler, optimizer, schedule_per)
    if not trained:
        raise CompileError(
            "the optimizer has no parameters that require gradients and that the loss depends on; make it of "
            "model.parameters()"
        )
    if phases:
        recipe["phase"] = [_phase(phase, by_id) for phase in phases]
    elif not any(key.startswith("adapter.") for key in recipe):
        made["model.trainable"] = [_plan.exact(name) for name in trained]
    elif "optimizer.group" in made:
        raise CompileError(
            "adapter: the optimizer's groups are of the base's parameters, which an adapter freezes; make it of one "
            "group"
        )
    recipe = made | recipe

    facts = Module(
        call.layout,
        call.targets() if inside else [],
        "loss" if inside else None,
        state,
        {
            name: (
                value.detach().cpu().float().numpy()
                if value.dtype == torch.bfloat16
                else value.detach().cpu().numpy().copy()
            )
            for name, value in module.state_dict().items()
            if name not in state
        },
        [
            name + ("." if name else "") + "num_batches_tracked"
            for name, one in module.named_modules()
            if isinstance(one, nn.modules.batchnorm._NormBase) and one.training and one.num_batches_tracked is not None
        ],
        list(module.state_dict()),
    )
    facts.rates = rates
    if lengths:
        batches = options.pop("batch") or samples
        options["batch"] = None
        batches = list(batches) if isinstance(batches, (list, tuple)) else [batches] * len(lengths)
        (rows,), (columns,) = _symbols(path, 0), _symbols(path, 1)
        shapes = [{rows: batch, columns: size} for batch, size in zip(batches, lengths)]
        shaped: dict[str, Any] = {"model.dims": {columns: list(lengths)}} if options["fit"] else {"model.buckets": shapes}
        for name in call.targets() if inside else []:
            if tensors[name].dim() > 1 and not tensors[name].is_floating_point():
                shaped[f"data.pad.{name}"] = -100  # what torch's losses ignore
    if prove:
        compared = {"entries": ("train", "gradients"), "target": options["target"], "batch": samples}
        exact = recipe | ({"model.dims": {columns: length}} if lengths else {})
        _prove(call, path, program, exact, {name: requiring[name] for name in trained}, tensors, read, compared)
    plan = _plan.run(path, (shaped | recipe) if lengths else recipe, folder, options)
    plan.module = facts
    return plan


def _phase(phase: _plan.Phase, names: dict[int, str]) -> dict[str, Any]:
    """The table of a phase, whose optimizer may be torch's."""
    if phase.optimizer is None or isinstance(phase.optimizer, dict):
        return phase.table()
    keys, trained, _ = read_optimizer(phase.optimizer, names, False)
    if "optimizer.group" in keys:
        raise CompileError(f"phase '{phase.name}': its optimizer has groups of several rates; give its keys as a dict")
    return phase.table({key.removeprefix("optimizer."): value for key, value in keys.items()})


def _prove(
    call: _Call,
    path: Path,
    program: Any,
    recipe: dict[str, Any],
    parameters: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    read: dict[str, torch.Tensor],
    compared: dict[str, Any],
) -> None:
    """Raises CompileError if loss or gradients of the example differ from autograd's. Of a recipe's own loss there is
    nothing to compare.

    tensors: of the example; read: those that are inputs of the graph, in their order. compared: options of the
    compiles.
    """
    if "loss.output" not in recipe and "loss.of" not in recipe:
        return
    module = call.module

    def loss_of() -> torch.Tensor:
        batch = call.filled(tensors)
        loss: torch.Tensor = call.loss_of(call.result(batch), batch)
        return loss

    reference = Reference(module, loss_of, parameters)
    if reference.random:
        warnings.warn(
            f"{type(module).__name__} draws random numbers ({', '.join(sorted(set(reference.random)))}): its "
            f"gradients cannot be compared "
            "with autograd's before training",
            stacklevel=5,
        )
        return
    if not numpy.isfinite(reference.loss):
        raise CompileError(f"the loss of the example is {reference.loss}; give a batch for which it is finite")
    from .._trainer import Trainer

    kept = {key: value for key, value in recipe.items() if key.startswith(("model.", "loss.", "data."))}
    kept["model.trainable"] = [_plan.exact(name) for name in parameters]
    if reference.dropped:
        kept["model.dropout"] = 0.0
    kept["optimizer.kind"] = "sgd"  # keeps no state
    found = Trainer(_plan.run(path, kept, _plan.Folder(), compared)).gradients(**tensors)
    wrong = difference(reference, float(found.pop("loss").reshape(-1)[0]), found)
    if wrong is None:
        return

    def mean_square(name: str, shape: tuple[int, ...]) -> float | None:
        """The mean square of a value of the graph: its loss for a target of zeros."""
        keys = {key: value for key, value in kept.items() if key.startswith(("model.", "data."))}
        keys |= {"optimizer.kind": "sgd", "loss.kind": "mse", "loss.of": name, "loss.target": "tcc_zeros"}
        try:
            trainer = Trainer(_plan.run(path, keys, _plan.Folder(), compared))
            return float(trainer.gradients(**read, tcc_zeros=numpy.zeros(shape, numpy.float32))["loss"].reshape(-1)[0])
        except Error:
            return None

    node = "" if wrong[0] else first_node(program, list(read.values()), _values(path), mean_square)
    where = f", first at the value '{node}' of the graph" if node else ""
    raise CompileError(
        f"{type(module).__name__}: {wrong[1]}{where}; the export lost something (docs/guide/pytorch.md says what can "
        f"be lost), or "
        "the compiler is wrong: prove=False trains it all the same"
    )
