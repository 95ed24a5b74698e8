"""What of a model gets a scheme of its own."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.program.ops import Embed, Linear, Moe, Op, Program, Value


@dataclass(frozen=True, slots=True)
class Unit:
    """Matrices that share a scheme: one, or that of all experts of a layer.

    The kernels want the experts of a layer stored alike.
    """

    name: str  # of its first weight
    weights: tuple[str, ...]
    first: int  # index of the first operation that reads it
    last: int  # and of the last: another one for an embedding that is also the output matrix
    multiplied: bool  # false of a table that is only looked up


def find_units(program: Program) -> list[Unit]:
    """The units of ``program`` in the order of their first use. Routers are none."""
    units: dict[str, Unit] = {}
    for at, op in enumerate(program.ops):
        for weights, _ in products(op):
            known = units.get(weights[0])
            first = at if known is None else known.first
            units[weights[0]] = Unit(weights[0], weights, first, at, not isinstance(op, Embed))
    return list(units.values())


def products(op: Op) -> list[tuple[tuple[str, ...], Value | None]]:
    """The weights of each unit that ``op`` reads, and what it multiplies.

    None for a table that is looked up, and where that is known only inside the operation.
    """
    match op:
        case Embed(table=table):
            return [((table,), None)]
        case Linear(weights=weights, x=x):
            return [((weight,), x) for weight in weights]
        case Moe(gate=gate, up=up, down=down, x=x):
            return [(gate, x), (up, x), (down, None)]
    return []
