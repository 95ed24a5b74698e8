"""Proves the kernels of every instruction set bit-equal to the scalar ones on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from farthing import machine
from farthing.cli.doctor.kernel_cases import KernelCase, kernel_cases

REFERENCE = "scalar"


@dataclass(frozen=True, slots=True)
class Proof:
    """One kernel of one instruction set against the scalar one, over ``inputs`` inputs."""

    kernel: str
    isa: str
    inputs: int
    difference: str = ""  # where the first one is; empty if all bits are equal

    @property
    def equal(self) -> bool:
        """Whether every bit of every output is that of the scalar kernel."""
        return not self.difference

    def as_json(self) -> dict[str, Any]:
        """What ``doctor --json`` prints."""
        return {
            "kernel": self.kernel,
            "isa": self.isa,
            "inputs": self.inputs,
            "equal": self.equal,
            "difference": self.difference or None,
        }


def prove_kernels(
    isas: Iterable[str] | None = None, cases: Iterable[KernelCase] | None = None
) -> list[Proof]:
    """Runs every case with the scalar kernels and those of ``isas``, by default all others here."""
    if isas is None:
        isas = [isa for isa in machine.supported_isas() if isa != REFERENCE]
    isas = tuple(isas)
    inputs: dict[tuple[str, str], int] = {}
    differences: dict[tuple[str, str], str] = {}
    for case in kernel_cases() if cases is None else cases:
        expected = case.run(REFERENCE)
        for isa in isas:
            key = (case.kernel, isa)
            inputs[key] = inputs.get(key, 0) + 1
            found = first_difference(expected, case.run(isa))
            if found:
                differences.setdefault(key, f"{case.input}: {found}")
    return [
        Proof(kernel, isa, count, differences.get((kernel, isa), ""))
        for (kernel, isa), count in inputs.items()
    ]


def first_difference(
    expected: tuple[npt.NDArray[Any], ...], actual: tuple[npt.NDArray[Any], ...]
) -> str:
    """Where two results first differ in a bit, or nothing."""
    if len(expected) != len(actual):
        return f"{len(actual)} outputs, not {len(expected)}"
    for number, (left, right) in enumerate(zip(expected, actual, strict=True)):
        if left.shape != right.shape or left.dtype != right.dtype:
            return f"output {number} is {right.dtype}{right.shape}, not {left.dtype}{left.shape}"
        unequal = np.flatnonzero(_bits(left) != _bits(right))
        if unequal.size:
            at = int(unequal[0]) // left.itemsize
            return (
                f"output {number}[{at}] is {right.reshape(-1)[at]!r}, not {left.reshape(-1)[at]!r}"
            )
    return ""


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
