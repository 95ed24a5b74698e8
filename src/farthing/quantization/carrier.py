"""Schemes without kernels of their own, served in the layout of one that holds the same values.

A scheme's *carrier* is a served scheme with at least its levels and at least its scales: codes are
counted from another zero, and a scale that more columns share is written once for each group of the
carrier. Nothing is rounded again (``docs/decisions/carried-schemes.md``).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from farthing.errors import InvalidParameterError
from farthing.quantization.schemes import (
    GRANULARITIES,
    SCHEME_ALIASES,
    SCHEMES,
    WHOLE_ROW,
    WHOLE_TENSOR,
    Scheme,
)
from farthing.quantization.tensor import QuantizedTensor


def carrier_of(scheme: Scheme) -> Scheme:
    """The scheme that kernels serve ``scheme`` in: itself, or the smallest that holds its values.

    Raises :class:`InvalidParameterError` where none does, naming schemes near it that are served.
    """
    if scheme.served:
        return scheme
    found = [row for row in SCHEMES.values() if carries(row, scheme)]
    if found:
        return min(found, key=lambda row: (row.code_bits, -_columns(row)))
    near = " or ".join(_near(scheme))
    raise InvalidParameterError(
        f"no kernel can serve {scheme.name}" + (f"; {near} would do" if near else "")
    )


def can_serve(scheme: Scheme) -> bool:
    """Whether kernels serve the scheme, in its own layout or that of a carrier."""
    return scheme.served or any(carries(row, scheme) for row in SCHEMES.values())


def carry(tensor: QuantizedTensor) -> QuantizedTensor:
    """The same values in the arrays of the carrier; the tensor itself if it is served.

    Raises as :func:`carrier_of`.
    """
    row, cols = tensor.row, tensor.shape[1]
    carrier = carrier_of(row)
    if carrier is row:
        return tensor
    codes, codebook = tensor.codes, None
    if carrier.has_codebook:
        codebook = tensor.codebook
    elif row.has_codebook:
        codes = (tensor.levels.astype(np.int16) + carrier.zero).astype(np.uint8)[codes]
    elif carrier.zero != row.zero:
        codes = codes + np.uint8(carrier.zero - row.zero)

    def spread(numbers: npt.NDArray[np.float16]) -> npt.NDArray[np.float16]:
        """One a group, row or matrix to one a group of the carrier."""
        groups = carrier.groups(cols)
        if row.group > 0:
            return np.repeat(numbers, row.group // carrier.group, axis=1)[:, :groups]
        return np.array(np.broadcast_to(numbers, (tensor.shape[0], groups)))

    minimums = None if tensor.minimums is None else spread(tensor.minimums)
    return QuantizedTensor(carrier.name, codes, spread(tensor.scales), minimums, codebook)


def _columns(scheme: Scheme) -> float:
    """How many columns share a scale."""
    return math.inf if scheme.group in (WHOLE_ROW, WHOLE_TENSOR) else scheme.group


def carries(row: Scheme, scheme: Scheme) -> bool:
    """Whether the served ``row`` holds every matrix of ``scheme``."""
    if not (row.served and row.coded and scheme.coded) or row.minimum != scheme.minimum:
        return False
    assert row.code_bits is not None
    assert scheme.code_bits is not None
    if scheme.has_codebook and row.has_codebook:
        same = scheme.codebook == row.codebook
        fits = same or (scheme.codebook_learnt and row.gguf_type is None)  # is given its levels
    elif scheme.has_codebook:
        fits = row.code_bits == 8  # its levels are signed bytes
    else:
        fits = not row.has_codebook and row.code_bits >= scheme.code_bits
    if row.group == WHOLE_ROW or not fits:
        return fits and _columns(scheme) == math.inf
    return _columns(scheme) == math.inf or scheme.group % row.group == 0


def _near(scheme: Scheme) -> list[str]:
    """The widest codes, the next wider groups, and no minimum: what of that kernels can serve."""
    if not scheme.coded:
        return []
    granularity = next(n for n, group in GRANULARITIES.items() if group == scheme.group)
    families = [f"w{bits}" for bits in range(scheme.code_bits or 0, 1, -1)]
    wider = sorted(g for g in GRANULARITIES.values() if g > scheme.group > 0)
    candidates = (
        [f"{family}{granularity}m" for family in families] if scheme.minimum else [],
        [f"{scheme.name.split('g')[0]}g{group}{'m' * scheme.minimum}" for group in wider],
        [f"{families[0]}{granularity}"] if scheme.minimum and families else [],
    )
    names = []
    for few in candidates:
        rows = ((name, SCHEMES[SCHEME_ALIASES.get(name, name)]) for name in few)
        names += [name for name, row in rows if can_serve(row)][:1]
    return names
