"""Every binding that takes an array takes that array, or says that it is of the wrong kind.

The bindings and their arguments are those that the module itself lists, so a new one is tested by
existing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from farthing import _native

_SHAPE = re.compile(r"shape=\(([*, ]+)\)")
_DTYPE = re.compile(r"dtype=(\w+)")
_DTYPES = ("float16", "float32", "float64", "int8", "uint8", "uint16", "int32", "uint32", "int64")
_TEXTS = {
    "isa": "scalar",
    "scheme": "q4_0",
    "dtype": "fp16",
    "activation": "silu",
    "method": "absmax",
}


@dataclass(frozen=True)
class Argument:
    name: str
    type: str

    @property
    def is_array(self) -> bool:
        return "ndarray[" in self.type

    @property
    def is_written(self) -> bool:
        return self.is_array and "writable=False" not in self.type

    @property
    def dtype(self) -> str:
        found = _DTYPE.search(self.type)
        assert found is not None, self
        return found[1]

    def array(self, dtype: str | None = None) -> np.ndarray[Any, Any]:
        shape = _SHAPE.search(self.type)
        dims = 1 if shape is None else shape[1].count("*")
        return np.ones((4,) * dims, dtype or self.dtype)

    def holding(self, array: object) -> object:
        """An argument of this type: the array, or a sequence of it."""
        return [array] if "Sequence" in self.type else array


@dataclass(frozen=True)
class Binding:
    name: str
    call: Callable[..., Any]
    arguments: tuple[Argument, ...]

    def values(self) -> dict[str, object]:
        """A value of the right type for every argument."""
        return {argument.name: _value(argument) for argument in self.arguments}

    def run(self, values: dict[str, object]) -> None:
        """Calls it; nonsense of the right types may be refused by value."""
        given = dict(values)
        own = [given.pop("self")] if "self" in given else []
        with contextlib.suppress(ValueError):
            self.call(*own, **given)


def _instances() -> dict[str, Callable[[], object]]:
    return {
        "Controls": lambda: _native.Controls(4, [0]),
        "Matrix": lambda: _native.Matrix("q4_0", 4, 32),
        "Program": lambda: _native.Program(4, "scalar"),
        "ThreadPool": lambda: _native.ThreadPool(1, 1),
        "KvPool": lambda: _native.KvPool("fp16", 1, 1, 16, 4),
        "RowSampler": lambda: _native.RowSampler(None),
        "TestPool": lambda: _native.TestPool("scalar", "fp16", 1, 1, 16, np.zeros(4096, np.uint8)),
        "SentencePieceBpe": lambda: _native.SentencePieceBpe.__new__(_native.SentencePieceBpe),
    }


def _value(argument: Argument) -> object:
    if argument.is_array:
        return argument.holding(argument.array())
    if argument.name in _TEXTS:
        return _TEXTS[argument.name]
    name = argument.type.removeprefix("farthing._native.")
    if name in _instances():
        return _instances()[name]()
    if "Sequence" in argument.type:
        return []
    return {"int": 1, "float": 1.0, "bool": False}[argument.type.removesuffix(" | None")]


def _split(text: str) -> Iterator[str]:
    """The arguments of a signature: parted by commas that stand in no bracket."""
    depth, part = 0, ""
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += character
    yield part.strip()


def _binding(name: str, owner: str | None, call: Callable[..., Any], signature: str) -> Binding:
    inside = signature.partition("(")[2].rpartition("->")[0].rstrip()[:-1]
    arguments = []
    for part in _split(inside):
        if part in ("*", "/", ""):
            continue
        title, _, kind = part.partition(":")
        kind = kind.partition(" = \\")[0]  # without the number of its default
        arguments.append(Argument(title, kind.strip() or str(owner)))
    return Binding(name, call, tuple(arguments))


def _bindings() -> Iterator[Binding]:
    for name, member in vars(_native).items():
        owner = name if isinstance(member, type) else None
        members = vars(member) if isinstance(member, type) else {name: member}
        for own_name, function in members.items():
            for signature, *_ in getattr(function, "__nb_signature__", ()):
                call = getattr(member, own_name) if owner else function
                title = f"{owner}.{own_name}" if owner else own_name
                binding = _binding(title, owner, call, signature)
                if own_name == "__init__":  # called on the class, which makes the instance
                    rest = tuple(a for a in binding.arguments if a.name != "self")
                    binding = Binding(title, member, rest)
                yield binding


BINDINGS = {b.name: b for b in _bindings() if any(a.is_array for a in b.arguments)}
ARRAYS = {
    f"{name}-{argument.name}": (binding, argument)
    for name, binding in sorted(BINDINGS.items())
    for argument in binding.arguments
    if argument.is_array
}
WRITTEN = sorted(case for case, (_, argument) in ARRAYS.items() if argument.is_written)


def test_the_module_lists_its_bindings() -> None:
    known = {"linear", "Matrix.__init__", "Matrix.from_packed", "Program.run", "RowSampler.draw"}
    assert known < set(BINDINGS)
    assert len(BINDINGS) >= 35
    assert {"Program.run-argmax", "rope_rows-heads", "TestPool.__init__-pool"} < set(WRITTEN)


@pytest.mark.parametrize("case", ARRAYS)
def test_an_array_of_another_kind_is_refused(case: str) -> None:
    binding, argument = ARRAYS[case]
    values = binding.values()
    binding.run(values)  # the types are right, or this raises TypeError
    right = argument.array()
    wrong: list[object] = [argument.array(dtype) for dtype in _DTYPES if dtype != argument.dtype]
    wrong.append(right.tolist())
    wrong.append(np.repeat(right, 2, axis=-1)[..., ::2])  # with gaps
    if right.itemsize > 1:
        wrong.append(right.astype(right.dtype.newbyteorder(">")))
    if right.ndim > 1:
        wrong.append(np.asfortranarray(right))
    for value in wrong:
        with pytest.raises(TypeError) as caught:
            binding.run({**values, argument.name: argument.holding(value)})
        assert f"dtype={argument.dtype}" in str(caught.value)


@pytest.mark.parametrize("case", WRITTEN)
def test_an_array_that_is_written_to_must_be_writable(case: str) -> None:
    binding, argument = ARRAYS[case]
    locked = argument.array()
    locked.flags.writeable = False
    with pytest.raises(TypeError):
        binding.run({**binding.values(), argument.name: argument.holding(locked)})
