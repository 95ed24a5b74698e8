"""The ways to store a model: how large each is, and which is predicted to do the least harm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farthing.errors import InvalidParameterError
from farthing.mixed.allocation import Option, allocate
from farthing.mixed.harm import Harm
from farthing.mixed.units import Unit, find_units
from farthing.models.checkpoint import TensorSource
from farthing.packing.plan import KEEP, Plan
from farthing.program.ops import Program
from farthing.program.weights import packed_shape
from farthing.quantization import SCHEMES

LADDER = (
    "w4row", "w4g128", "w4g64", "nf4g64", "q4_0", "nf4g32", "iq4_nl", "w4g64m",
    "w5g128", "w5g64", "q5_0", "w6g128", "w6g64", "w8g64", "f16", KEEP,
)  # fmt: skip
"""Schemes that a unit may get. Those of fewer bits are carried in four and save nothing."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to store the model."""

    schemes: Mapping[str, str]  # by matrix; routers are none of them
    nbytes: int  # of all tensors
    predicted: float  # the sum of what each unit does alone, nats a token


class Candidates:
    """All of them; ``work`` is the model's plan with every matrix as its file has it."""

    def __init__(self, program: Program, work: Plan) -> None:
        self._units = find_units(program)
        self._sources = {m.name: m.source for m in work.matrices}
        ours = {weight for unit in self._units for weight in unit.weights}
        self._fixed = sum(4 * vector.cols for _, vector in work.vectors)
        self._fixed += sum(
            _packed_bytes(m.source, m.scheme.name) for m in work.matrices if m.name not in ours
        )

    def check(self, budget: int) -> None:
        """Raises :class:`InvalidParameterError` for fewer bytes than the smallest takes."""
        smallest = self._fixed
        smallest += sum(min(self._nbytes(unit, s) for s in LADDER) for unit in self._units)
        if budget < smallest:
            raise InvalidParameterError(
                f"{budget:,} bytes are too few: the smallest that this model can be is "
                f"{smallest:,} bytes ({smallest / 2**20:,.1f} MiB)"
            )

    def floats(self) -> Candidate:
        """Every matrix in 16 bits or as its file has it, if those are floats."""
        chosen = []
        for unit in self._units:
            dense = SCHEMES[self._sources[unit.name].dtype].family == "dense"
            scheme = KEEP if dense else "f16"
            chosen.append(Option(scheme, self._nbytes(unit, scheme), 0.0))
        return self._candidate(chosen)

    def best(self, budget: int, harms: Mapping[str, Harm]) -> Candidate:
        """That of at most ``budget`` bytes with the least predicted harm.

        Raises :class:`InvalidParameterError` if none fits.
        """
        options = [self._options(unit, harms[unit.name]) for unit in self._units]
        chosen = allocate(options, budget - self._fixed)
        if chosen is None:
            raise InvalidParameterError(f"{budget:,} bytes are too few for this model")
        return self._candidate(chosen)

    def best_uniform(self, budget: int, harms: Mapping[str, Harm]) -> tuple[str, Candidate] | None:
        """The same with one scheme for all, and its name; None if none fits."""
        found = []
        options = [self._options(unit, harms[unit.name]) for unit in self._units]
        for scheme in LADDER:
            chosen = [o for unit in options for o in unit if o.scheme == scheme]
            if len(chosen) == len(self._units):
                found.append((scheme, self._candidate(chosen)))
        fitting = [pair for pair in found if pair[1].nbytes <= budget]
        return min(fitting, key=lambda pair: pair[1].predicted, default=None)

    def _candidate(self, chosen: Sequence[Option]) -> Candidate:
        return Candidate(
            {
                weight: option.scheme
                for unit, option in zip(self._units, chosen, strict=True)
                for weight in unit.weights
            },
            self._fixed + sum(option.nbytes for option in chosen),
            sum(option.harm for option in chosen),
        )

    def _options(self, unit: Unit, harm: Harm) -> list[Option]:
        """Those whose harm is known to be finite."""
        options = [Option(s, self._nbytes(unit, s), harm.of(s)) for s in LADDER]
        return [option for option in options if option.harm != float("inf")]

    def _nbytes(self, unit: Unit, scheme: str) -> int:
        sources = [self._sources[weight] for weight in unit.weights]
        return sum(_packed_bytes(s, s.dtype if scheme == KEEP else scheme) for s in sources)


def _packed_bytes(source: TensorSource, scheme: str) -> int:
    blocks, nbytes = packed_shape(scheme, source.rows, source.cols)
    return blocks * nbytes
