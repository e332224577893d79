"""How a loader's batches become the inputs of a graph: names for the tensors of tuples, dicts and nests of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ._library import DataError

Path = tuple[Any, ...]  # of keys and indices, from the batch to a leaf of it


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, leaf) of everything in nested dicts, tuples and lists, in their order."""
    if isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], path + (key,))
    elif isinstance(value, (tuple, list)):
        for index, one in enumerate(value):
            yield from leaves(one, path + (index,))
    else:
        yield path, value


def rebuilt(like: Any, values: Iterator[Any]) -> Any:
    """A batch of plain dicts, tuples and lists with the structure of `like` and the given leaves."""
    if isinstance(like, Mapping):
        return {key: rebuilt(like[key], values) for key in like}
    if isinstance(like, (tuple, list)):
        made = [rebuilt(one, values) for one in like]
        return made if isinstance(like, list) else tuple(made)
    return next(values)


def is_tensor(value: Any) -> bool:
    """True for NumPy arrays, torch tensors and whatever else offers its memory."""
    return hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")


def words(path: Path) -> str:
    return "batch" + "".join(f"[{key!r}]" for key in path)


class Layout:
    """The structure of an example batch.

    tensors: for each tensor, its path in the batch and the name of its graph input. constants: for each other value, its
    path and the value, which is compiled into the graph. Batches of a loop must have the same structure and constants.
    """

    def __init__(
        self, tensors: list[tuple[Path, str]], constants: list[tuple[Path, Any]], is_mapping: bool, count: int
    ):
        self.tensors, self.constants, self.is_mapping, self.count = tensors, constants, is_mapping, count
        self._names = dict(tensors)

    def batch_of(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """The batch that a call was given: f(x, y), f((x, y)), f({"x": …}) or f(x=…)."""
        if self.is_mapping:
            if named and not arguments:
                return named
            if len(arguments) == 1 and isinstance(arguments[0], Mapping) and not named:
                return arguments[0]
            raise DataError("the example was a dict, so a batch is one dict, or its items by name")
        if named:
            raise DataError(f"the example was a tuple of {self.count}, so a batch has no names: {', '.join(named)}")
        if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)) and self.count != 1:
            return tuple(arguments[0])
        return arguments

    def named(self, batch: Any) -> list[tuple[str, Any]]:
        """(input, tensor) of a batch. Raises DataError if its structure, or a constant, is not the example's."""
        if not self.is_mapping and not isinstance(batch, (tuple, list)):
            batch = (batch,)
        found, seen = [], 0
        constants = dict(self.constants)
        for path, value in leaves(batch):
            if path in self._names:
                if not is_tensor(value):
                    raise DataError(f"{words(path)} is {type(value).__name__}, and was a tensor in the example")
                found.append((self._names[path], value))
            elif path in constants:
                if is_tensor(value) or value != constants[path]:
                    raise DataError(
                        f"{words(path)} is {value!r}, and {constants[path]!r} was compiled in; compile again for "
                        f"another "
                        "value, or make it a tensor"
                    )
                seen += 1
            else:
                raise DataError(
                    f"{words(path)} was not in the example, which has {', '.join(words(one) for one in self._names)}"
                )
        if len(found) != len(self._names) or seen != len(constants):
            given = {name for name, _ in found}
            lacking = [words(path) for path, name in self.tensors if name not in given] or [
                words(path) for path in constants
            ]
            raise DataError(f"the batch lacks {', '.join(lacking)}, which the example has")
        return found

    def record(self) -> dict[str, Any]:
        """What a run folder keeps of it; of_record is the inverse."""
        return {
            "tensors": [[list(path), name] for path, name in self.tensors],
            "is_mapping": self.is_mapping,
            "count": self.count,
            "constants": [[list(path), value] for path, value in self.constants],
        }

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Layout:
        return cls(
            [(tuple(path), name) for path, name in record["tensors"]],
            [(tuple(path), value) for path, value in record["constants"]],
            record["is_mapping"],
            record["count"],
        )
