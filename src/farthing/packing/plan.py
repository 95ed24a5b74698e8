"""Which scheme each weight of a model is packed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import Checkpoint, TensorSource
from farthing.models.checkpoint.checkpoint import (
    EMBEDDING,
    LM_HEAD,
    ROPE_FACTORS,
    ROPE_LONG,
    ROPE_SHORT,
)
from farthing.program.ops import Program
from farthing.program.weights import served_scheme
from farthing.quantization import SCHEME_ALIASES, SCHEMES, Scheme
from farthing.quantization.carrier import can_serve, carrier_of
from farthing.quantization.schemes import OWN_NAMES

KEEP = "keep"
"""In the place of a scheme: the codes that the file has, or fp16 where no kernel serves them."""

TARGETS = (
    KEEP,
    *SCHEME_ALIASES,
    *(s.name for s in SCHEMES.values() if can_serve(s) and (s.coded or s.family == "dense")),
)
"""What weights can be packed in."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A matrix, where it comes from and what it becomes."""

    name: str
    source: TensorSource
    scheme: Scheme  # its values

    @property
    def carrier(self) -> Scheme:
        """The scheme whose layout it is packed in and served from."""
        return carrier_of(self.scheme)

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        rows, cols = self.source.shape
        return rows, cols

    @property
    def kept(self) -> bool:
        """Whether its codes stay what they are."""
        return self.scheme.name == self.source.dtype


@dataclass(frozen=True, slots=True)
class Plan:
    """Every weight of a model."""

    matrices: tuple[Placement, ...]
    vectors: tuple[tuple[str, TensorSource], ...]

    @property
    def rounded(self) -> bool:
        """Whether weights of any matrix are rounded to codes, so that scales are chosen."""
        return any(m.scheme.scale_levels and not m.kept for m in self.matrices)

    @property
    def requantized(self) -> tuple[str, ...]:
        """Schemes of the file whose codes are given up for others, in the order met."""
        return tuple(
            dict.fromkeys(
                m.source.stored_dtype
                for m in self.matrices
                if m.source.stored.family != "dense" and not m.kept
            )
        )

    @property
    def carried(self) -> Mapping[str, str]:
        """Schemes served in the layout of another, to that, in the order met."""
        return {m.scheme.name: m.carrier.name for m in self.matrices if not m.scheme.served}


def find_target(name: str) -> Scheme | None:
    """The scheme called ``name``, None for ``keep``.

    Raises :class:`InvalidParameterError` naming those that weights can be packed in.
    """
    if name == KEEP:
        return None
    if name in TARGETS:
        return SCHEMES[SCHEME_ALIASES.get(name, name)]
    refused = f"weights cannot be packed in {name!r}"
    if name in SCHEMES and SCHEMES[name].coded:
        try:
            carrier_of(SCHEMES[name])
        except InvalidParameterError as error:
            raise InvalidParameterError(f"{refused}: {error}") from None
    others = [
        s for s in TARGETS if s == KEEP or (s in SCHEMES and SCHEMES[s].gguf_type is not None)
    ]
    raise InvalidParameterError(f"{refused}; there are {OWN_NAMES}, {', '.join(others)}")


def plan(
    checkpoint: Checkpoint,
    program: Program,
    scheme: str,
    head_scheme: str | None,
    schemes: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Where the weights of ``program`` come from and what they become.

    ``head_scheme`` is for the output matrix, and with it for an embedding that is one with it;
    ``schemes``, of single matrices by name, go before both. Routers of experts are decided in
    floats and stay what they are, or become float32. Raises :class:`InvalidParameterError` for a
    scheme that weights cannot be packed in or one for what is no matrix, and
    :class:`UnsupportedOperationError` for a model that is packed already.
    """
    body = find_target(scheme)
    head = body if head_scheme is None else find_target(head_scheme)
    matrices: list[Placement] = []
    vectors: list[tuple[str, TensorSource]] = []
    routers = program.routers
    targets = {name: find_target(target) for name, target in schemes.items()}
    known = {slot.name for slot in program.weights if len(slot.shape) == 2} - routers
    for name in targets:
        if name not in known:
            raise InvalidParameterError(f"the model has no matrix {name!r} to be given a scheme")
    last = EMBEDDING if checkpoint.config.tie_word_embeddings else LM_HEAD
    for slot in program.weights:
        source = checkpoint.unpacked(slot.name)
        if len(slot.shape) == 1:
            vectors.append((slot.name, source))
            continue
        target = targets.get(slot.name, head if slot.name == last else body)
        if target is None or slot.name in routers:
            target = SCHEMES[served_scheme(source.dtype, router=slot.name in routers)]
        matrices.append(Placement(slot.name, source, target))
    for name in (ROPE_FACTORS, ROPE_LONG, ROPE_SHORT):  # part of a GGUF file's configuration
        vectors += [(name, checkpoint.unpacked(name))] if name in checkpoint.tensors else []
    return Plan(tuple(matrices), tuple(vectors))
