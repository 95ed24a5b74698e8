"""A model as data: a short flat list of operations over named weights.

A :class:`Program` is frozen. Values have a symbolic row count (:class:`Rows`) and a width; weights
are named slots with shapes. What each operation computes is defined by ``reference.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

from farthing.config import Activation, Rope

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Rows(Enum):
    """Symbolic row counts of a step."""

    TOKENS = "T"  # tokens of this step, all sequences together
    LOGITS = "R"  # rows whose logits are wanted, then rows of which only the argmax is
    HIDDEN = "H"  # rows whose hidden state is asked for (embeddings)
    KEPT = "K"  # of R, those whose logits are wanted: what a step hands out
    EXPERT = "E"  # every row of T once for each of its experts, grouped by expert


@dataclass(frozen=True, slots=True)
class Value:
    """A (rows, width) matrix produced by one operation. ``id`` is its index in the program."""

    id: int
    rows: Rows
    width: int


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """A weight the program needs: its canonical (Hugging Face) name and shape.

    Matrices are (outputs, inputs); vectors (width,).
    """

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Embed:
    out: Value
    table: str  # (vocab, width)


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` for each row."""

    out: Value
    x: Value
    weight: str
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """``concat_i(x @ weights[i].T + biases[i])`` along the outputs, then ``+ add``."""

    out: Value
    x: Value
    weights: tuple[str, ...]
    biases: tuple[str | None, ...]  # one per weight
    add: Value | None


@dataclass(frozen=True, slots=True)
class Attention:
    """Norms and rope on q and k, store k and v, then causal attention over stored values.

    ``qkv`` rows are ``num_heads`` query heads, ``num_kv_heads`` key heads, as many value heads.
    ``q_norm`` and ``k_norm`` name RMS norm weights as wide as one head (each head by itself) or as
    all heads together. A row at position p sees positions from p - window + 1 to p.
    """

    out: Value
    qkv: Value
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None
    window: int | None = None
    softcap: float | None = None
    q_norm: str | None = None
    k_norm: str | None = None
    norm_eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Gated:
    """``act(x[:, :width]) * x[:, width:]``."""

    out: Value
    x: Value
    activation: Activation


@dataclass(frozen=True, slots=True)
class Moe:
    """Mixture of gated experts, then ``+ add``. ``gate``, ``up`` and ``down`` name a weight each.

    Each row alone: probabilities are ``softmax(x @ router.T)`` over all experts; the ``top_k``
    largest are chosen, ties by lower expert id, and weigh the outputs of their experts
    ``down[e] @ (act(gate[e] @ x) * (up[e] @ x))``. The weighted outputs are added in ascending
    expert id. A row whose router logits have a NaN or an infinite maximum becomes NaN.
    """

    out: Value
    x: Value
    router: str  # (experts, width)
    gate: tuple[str, ...]  # of each expert, (inner, width)
    up: tuple[str, ...]  # (inner, width)
    down: tuple[str, ...]  # (width, inner)
    inner: int
    top_k: int
    normalize: bool  # divide the chosen probabilities by their sum
    activation: Activation
    add: Value | None


@dataclass(frozen=True, slots=True)
class Add:
    out: Value
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Scale:
    out: Value
    x: Value
    factor: float


@dataclass(frozen=True, slots=True)
class Softcap:
    """``cap * tanh(x / cap)``."""

    out: Value
    x: Value
    cap: float


@dataclass(frozen=True, slots=True)
class LogitRows:
    """Keeps the rows whose logits or argmax are wanted (T to R)."""

    out: Value
    x: Value


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """Keeps the rows whose hidden state is asked for (T to H); a side output of the step."""

    out: Value
    x: Value


@dataclass(frozen=True, slots=True)
class Tap:
    """Hands ``x`` to whoever listens under ``name`` (calibration, inspection)."""

    x: Value
    name: str


ValueOp = (
    Embed
    | RmsNorm
    | Linear
    | Attention
    | Gated
    | Moe
    | Add
    | Scale
    | Softcap
    | LogitRows
    | HiddenRows
)
"""Operations that make a value, their ``out``."""

Op = ValueOp | Tap


def inputs(op: DataclassInstance) -> tuple[Value, ...]:
    """The values that ``op`` reads."""
    read = (getattr(op, field.name) for field in fields(op) if field.name != "out")
    return tuple(value for value in read if isinstance(value, Value))


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in execution order. ``output`` is the logits (R, vocab)."""

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    weights: tuple[WeightSlot, ...]  # in order of first use, without repetition
    output: Value

    @property
    def num_layers(self) -> int:
        """Layers that own a KV cache."""
        return sum(isinstance(op, Attention) for op in self.ops)

    @property
    def routers(self) -> frozenset[str]:
        """Names of the weights that choose experts."""
        return frozenset(op.router for op in self.ops if isinstance(op, Moe))
