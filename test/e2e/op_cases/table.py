"""The notation for cases of ops: one call of `case`, with inputs, attributes and the versions for which it holds.

    case("LeakyRelu", F(2, 3), alpha=Each(..., 0.3))

makes two cases (`...`: the attribute is left out), each at every opset from 7 to 28 where the op's schema changed. Inputs are
made from the case's name, so that they are the same everywhere. Floats are spread evenly: all are different, also between inputs,
which keeps finite differences away from kinks and ties.
"""
import dataclasses
import functools
import itertools
import zlib

import numpy as np
from onnx import defs

OLDEST, NEWEST = 7, 28


@dataclasses.dataclass(frozen=True)
class Input:
    make: object                  # (random, position) -> array
    differentiated: bool = False
    shape_like: bool = False      # always an initializer, since it decides shapes
    node: bool = False            # made by a Constant node
    scalar: bool = False          # rank 0 and differentiated: stored with one axis, since scalars are not trained

    @property
    def still(self):
        """The same input, not differentiated: a graph input."""
        return dataclasses.replace(self, differentiated=False)

    @property
    def constant(self):
        """The same input as an initializer that is not differentiated."""
        return dataclasses.replace(self, differentiated=False, shape_like=True)


def F(*shape, lo=-2.0, hi=2.0, dtype=np.float32):
    """Floats spread over (lo, hi), differentiated."""
    def make(random, position):
        count = int(np.prod(shape))
        steps = (random.permutation(count) + 0.31 + 0.13 * (position % 5)) / max(count, 1)
        return np.asarray(lo + (hi - lo) * steps, dtype).reshape(shape)
    return Input(make, differentiated=True, scalar=shape == ())


def V(values, dtype=np.float32):
    """These floats, differentiated."""
    array = np.asarray(values, dtype)
    return Input(lambda random, position: array, differentiated=True, scalar=array.shape == ())


def I(*shape, below=2, above=0, dtype=np.int64):  # noqa: E743
    """Integers in [above, below)."""
    return Input(lambda random, position: np.asarray(random.integers(above, below, shape), dtype))


def IV(values, dtype=np.int64):
    """These integers (or any other values), at run time."""
    return Input(lambda random, position: np.asarray(values, dtype))


def B(*shape):
    """Booleans."""
    return Input(lambda random, position: random.integers(0, 2, shape).astype(bool))


def S(values, dtype=np.int64):
    """Values that decide shapes: known when the model is compiled."""
    return Input(lambda random, position: np.asarray(values, dtype), shape_like=True)


def C(values, dtype=np.int64):
    """The same, made by a Constant node: for floats that would be a weight as an initializer."""
    return dataclasses.replace(S(values, dtype), node=True)


class Each(tuple):
    """One case for each value of an attribute; `...` leaves it out."""

    def __new__(cls, *values):
        return super().__new__(cls, values)


@dataclasses.dataclass
class Case:
    op: str
    inputs: list                  # of Input, or None where an optional one is absent
    attributes: dict              # values, or functions of the opset that make a graph
    name: str
    family: str
    domain: str = ""
    since: int = OLDEST
    until: int = NEWEST
    outputs: list = None          # names: o0, o1, …; "" is an output left out
    read: list = None             # outputs that reach the loss of the gradient model; None: all floating-point ones
    then: list = None             # nodes after it: (op, inputs, outputs, attributes)
    before: list = None           # nodes before it, the same
    results: list = None          # what the model returns where `then` makes it
    values: object = None         # (inputs, attributes, opset) -> outputs; where the reference cannot judge
    judge: str = "reference"      # or "onnxruntime"
    judge_at: int = NEWEST        # newest opset at which the judge supports the op, if later ones mean the same
    why: str = ""                 # why the reference is not asked
    ir: int = 0                   # 3: initializers are graph inputs, too
    gradients: dict = None        # input -> expected gradient of Σ (1, 2, 3, …) · output: a convention, not a limit
    outer: tuple = ()             # inputs that only the node's graphs read
    unread: tuple = ()            # inputs without a gradient though they are floats
    differentiable: bool = True
    tolerance: float = 2e-5
    random: bool = False          # only types and shapes are compared
    opset: int = 0                # the only opset to test, whatever the schemas say; 21 for ops of other domains

    @property
    def differentiated(self):
        return [i for i, each in enumerate(self.inputs) if each is not None and each.differentiated and
                i not in self.unread] if self.differentiable else []

    @property
    def ops(self):
        """Names of all ops in the case."""
        own = f"{self.domain}::{self.op}" if self.domain else self.op
        return {own} | {node[0] for node in [*(self.before or []), *(self.then or [])]}

    @property
    def opsets(self):
        """The opsets in the case's range where the schema changed, and the first of the range."""
        if self.domain or self.opset:
            return [self.opset or 21]
        changes = schema_versions(self.op)
        first = max(self.since, OLDEST)
        if first < min(changes):
            first = min(changes)
        return sorted({first} | {v for v in changes if first < v <= self.until})

    def formula_changes(self, opset):
        """Whether attributes, inputs or outputs differ from the case's previous opset; new types alone do not change the formula."""
        before = [v for v in self.opsets if v < opset]
        return not before or signature(self.op, before[-1]) != signature(self.op, opset)

    def arrays(self):
        """Elements of each input; None where it is absent."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [None if each is None else each.make(random, i) for i, each in enumerate(self.inputs)]


@functools.cache
def schema_versions(op, domain=""):
    """The opsets in which the op's schema changed, ascending, without deprecations."""
    return sorted(s.since_version for s in defs.get_all_schemas_with_history()
                  if s.name == op and s.domain == domain and not s.deprecated)


@functools.cache
def signature(op, opset):
    """The content of a schema except types."""
    schema = defs.get_schema(op, opset)
    return ([(p.name, p.option) for p in [*schema.inputs, *schema.outputs]],
            sorted((a.name, str(a.default_value)) for a in schema.attributes.values()))


class Table:
    """The cases of one family: `case = Table("activations").case`."""
    every = []

    def __init__(self, family):
        self.family = family

    def case(self, op, *inputs, name="", outputs=1, **options):
        fields = {field.name for field in dataclasses.fields(Case)}
        given = {key: options.pop(key) for key in list(options) if key in fields}
        # An attribute may have the name of a Python keyword or of a field above: an underscore at the end is dropped.
        choices = [(key.removesuffix("_"), value if isinstance(value, Each) else Each(value)) for key, value in options.items()]
        for values in itertools.product(*(values for _, values in choices)):
            attributes = {key: value for (key, _), value in zip(choices, values) if value is not ...}
            label = [op, name] + [f"{key}={_short(value)}" for (key, several), value in zip(choices, values)
                                  if len(several) > 1 or not name and len(choices) <= 3]
            text = " ".join(part for part in label if part)
            taken = sum(case.name == text or case.name.startswith(text + " #") for case in Table.every)
            if taken:
                text += f" #{taken + 1}"
            names = [f"o{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
            Table.every.append(Case(op, list(inputs), attributes, text, self.family, outputs=names, **given))


def _short(value):
    if value is ...:
        return "default"
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return "graph" if callable(value) else str(value)
