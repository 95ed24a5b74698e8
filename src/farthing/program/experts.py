"""A mixture of experts as the native player plays it: one :class:`Moe` in six steps.

The router's logits of each row; its experts and their weights; each row copied for its experts and
grouped by expert, which a row's results never depend on; the experts' gate and up matrices, their
gate, their down matrices; the weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from farthing.errors import UnsupportedOperationError
from farthing.program.ops import Gated, Linear, Moe, Op, Program, Rows, Tap, Value


@dataclass(frozen=True, slots=True)
class Routing:
    """How rows go to experts, the same in every layer."""

    num_experts: int
    experts_per_token: int


@dataclass(frozen=True, slots=True)
class Route:
    """From router logits ``x`` (T, experts) to each row's experts and, in ``out``, their weights.

    Groups the rows for the operations that follow, up to the :class:`Combine` of the same Moe.
    """

    out: Value  # (T, experts per token)
    x: Value
    normalize: bool


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """Each routed row times its own expert's matrix of every stack, side by side.

    ``x`` has the rows of the step, which are gathered, or routed rows.
    """

    out: Value  # (E, outputs)
    x: Value
    stacks: tuple[tuple[str, ...], ...]  # each the weights of all experts


@dataclass(frozen=True, slots=True)
class Combine:
    """Sum of each row's expert outputs ``x`` times ``weights``, then ``+ add``."""

    out: Value  # (T, width)
    x: Value  # (E, width)
    weights: Value  # of Route
    add: Value | None


ExpandedOp = Op | Route | ExpertLinear | Combine
"""Operations of programs except Moe, and the steps of Moe."""


def expand(program: Program) -> tuple[ExpandedOp, ...]:
    """The operations of ``program`` with every Moe in its steps."""
    ids = [op.out.id for op in program.ops if not isinstance(op, Tap)]
    next_id = max(ids, default=-1) + 1
    ops: list[ExpandedOp] = []
    for op in program.ops:
        if isinstance(op, Moe):
            steps = _steps(op, next_id)
            ops += steps
            next_id += len(steps)
        else:
            ops.append(op)
    return tuple(ops)


def find_routing(program: Program) -> Routing | None:
    """The routing of every Moe of ``program``, or None if it has none.

    Raises :class:`UnsupportedOperationError` if they differ.
    """
    found = {Routing(len(op.down), op.top_k) for op in program.ops if isinstance(op, Moe)}
    if len(found) > 1:
        listed = ", ".join(
            f"{r.experts_per_token} of {r.num_experts}"
            for r in sorted(found, key=lambda r: (r.num_experts, r.experts_per_token))
        )
        raise UnsupportedOperationError(
            f"the native executor takes one number of experts in all layers, not {listed}"
        )
    return found.pop() if found else None


def _steps(op: Moe, first_id: int) -> list[ExpandedOp]:
    logits = Value(first_id, Rows.TOKENS, len(op.down))
    weights = Value(first_id + 1, Rows.TOKENS, op.top_k)
    gate_up = Value(first_id + 2, Rows.EXPERT, 2 * op.inner)
    hidden = Value(first_id + 3, Rows.EXPERT, op.inner)
    outputs = Value(first_id + 4, Rows.EXPERT, op.out.width)
    return [
        Linear(logits, op.x, (op.router,), (None,), None),
        Route(weights, logits, op.normalize),
        ExpertLinear(gate_up, op.x, (op.gate, op.up)),
        Gated(hidden, gate_up, op.activation),
        ExpertLinear(outputs, hidden, (op.down,)),
        Combine(op.out, outputs, weights, op.add),
    ]
