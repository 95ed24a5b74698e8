"""What rounding one unit of a model costs its predictions: measured once, and how it scales.

One scheme is probed: with nothing but the unit rounded to it, the model's next-token distributions
are compared with its own. Divergence is quadratic in a small error, so for another scheme it is the
probed one times the ratio of the squared errors of what the unit gives out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from farthing.mixed.float_model import FloatArray, FloatModel
from farthing.mixed.output_error import output_errors
from farthing.mixed.units import Unit, find_units
from farthing.models.checkpoint import TensorSource
from farthing.packing.matrices import packed_matrices
from farthing.packing.plan import KEEP, Placement
from farthing.packing.worker_threads import worker_threads
from farthing.program.ops import Program
from farthing.program.parts import seams
from farthing.program.weights import NativeWeight
from farthing.quantization import SCHEMES
from farthing.quantization.rounding import RoundingMethod

PROBE = "w4g64"
"""The scheme that is measured on the model: of medium size among the coarse ones, so that most of
what is decided is near what was measured."""


@dataclass(frozen=True, slots=True)
class Harm:
    """Of one unit."""

    probed: float  # mean divergence with the unit in PROBE, nats a token
    errors: Mapping[str, float]  # squared, of what the unit gives out; PROBE is among the schemes

    def of(self, scheme: str) -> float:
        """The divergence that the unit alone causes in ``scheme``; infinite if it has no place.

        Where PROBE leaves no error, there is nothing to tell by how much others harm: their errors
        stand for it, which at least are in order.
        """
        error, measured = self.errors[scheme], self.errors[PROBE]
        return self.probed * (error / measured) if measured else error


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement is."""

    units: int
    of_units: int
    share: float  # of the time that all take


def measure_harms(
    model: FloatModel,
    sources: Mapping[str, TensorSource],
    schemes: tuple[str, ...],
    method: RoundingMethod,
    *,
    known: Mapping[str, Harm],
    found: Callable[[Unit, Harm, Progress], None],
) -> dict[str, Harm]:
    """The harm of every unit of ``model`` by its name; those ``known`` are not measured again.

    ``schemes`` may have "keep", a unit as its file has it. ``found`` is told each as it comes.
    """
    units = find_units(model.program)
    end = len(model.program.ops)
    costs = {unit.name: _cost(model.program, unit) for unit in units}
    harms = {unit.name: known[unit.name] for unit in units if unit.name in known}
    states = model.embeddings()
    with worker_threads(model.num_threads) as threads:

        def rounded(unit: Unit) -> dict[str, NativeWeight]:
            placements = [Placement(w, sources[w], SCHEMES[PROBE]) for w in unit.weights]
            matrices = packed_matrices(placements, method, threads, 2 * model.num_threads)
            return {w: made.matrix for w, made in zip(unit.weights, matrices, strict=True)}

        for at, to in pairwise([0, *seams(model.program), end]):
            inputs: dict[str, FloatArray] = {}
            if at > 0:
                before = states
                states, inputs = model.advance(before, at, to)
            for unit in units:
                if unit.name in harms or not at <= unit.last < to:
                    continue
                if unit.first < max(at, 1):
                    probed = model.divergence(rounded(unit))
                else:
                    probed = model.divergence_from(before, at, rounded(unit))
                errors = output_errors(
                    unit,
                    sources,
                    inputs.get(unit.name),
                    model.tokens,
                    (*schemes, PROBE),
                    method,
                    threads,
                )
                harms[unit.name] = Harm(probed, errors)
                share = sum(costs[name] for name in harms) / sum(costs.values())
                found(unit, harms[unit.name], Progress(len(harms), len(units), share))
    return {unit.name: harms[unit.name] for unit in units}


def measure_whole(
    model: FloatModel,
    sources: Mapping[str, TensorSource],
    schemes: Mapping[str, str],
    method: RoundingMethod,
    progress: Callable[[float], None] = lambda share: None,
) -> float:
    """Mean divergence of ``model`` with its matrices in ``schemes``, nats a token.

    They are rounded as they will be packed, those of a section of the model at a time. ``progress``
    is told the share that is done.
    """
    placements = [
        Placement(name, sources[name], SCHEMES[scheme])
        for unit in find_units(model.program)
        for name in unit.weights
        for scheme in (sources[name].dtype if schemes[name] == KEEP else schemes[name],)
    ]
    total = sum(p.source.rows * p.source.cols for p in placements)
    done = 0
    with worker_threads(model.num_threads) as threads:
        matrices = packed_matrices(placements, method, threads, 2 * model.num_threads)
        rounded = zip(placements, matrices, strict=True)

        def next_matrix(name: str) -> NativeWeight:
            nonlocal done
            placement, made = next(rounded)
            assert placement.name == name
            done += placement.source.rows * placement.source.cols
            progress(done / total)
            return made.matrix

        return model.divergence_of(next_matrix)


def _cost(program: Program, unit: Unit) -> int:
    """Weights that a probe of ``unit`` computes with, about: those behind it, and its own."""
    sizes = {slot.name: slot.shape[0] * slot.shape[-1] for slot in program.weights}
    behind = [u for u in find_units(program) if u.last >= unit.first]
    return sum(sizes[w] for u in (*behind, unit) for w in u.weights)
