"""The table of storage schemes: how a weight is kept, in a file and in memory.

One row a scheme; tests, ``farthing show`` and the checkpoint readers walk the table, so a new
scheme is a new row. Those with a ``gguf_type`` are GGUF's, the others our own: any bits in any
granularity. Block layouts of the GGUF types are those of the GGUF specification (ggml
``docs/gguf.md`` and the block structures it names).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from farthing.errors import InvalidParameterError

Family = Literal[
    "dense", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "ternary", "cb4", "grid", "integer"
]
"""What a block's codes are: floats; integers of n bits with an offset or a minimum (``w``); -1, 0
and 1; indices into 16 levels (``cb4``); indices into a table of whole vectors (``grid``); or
integers without a scale."""

Reading = Literal["kept", "f16", "refused", "unserved"]
"""What is done with a tensor of the scheme: its codes are kept (kernels serve them), a checkpoint
reader dequantizes it through the ``gguf`` package to fp16, or it is refused (nothing can dequantize
it). ``unserved`` ones are in no checkpoint: weights can be rounded to them, and kernels serve their
values in the layout of another scheme if one holds them (``quantization/carrier.py``)."""

WHOLE_ROW = 0
"""The ``group`` of schemes that give a row of weights one scale."""

WHOLE_TENSOR = -1
"""The ``group`` of schemes that give a matrix one scale."""

GRANULARITIES = MappingProxyType(
    {"tensor": WHOLE_TENSOR, "row": WHOLE_ROW, **{f"g{n}": n for n in (16, 32, 64, 128, 256)}}
)
"""What shares a scale, as names of our own schemes say it, to ``group``."""

IQ4_NL_CODEBOOK = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The 16 levels of GGUF's IQ4_NL."""

NF4_LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The 16 NormalFloat levels as published (Dettmers et al., "QLoRA", 2023, appendix E)."""

NF4_CODEBOOK = (-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127)
"""round(127 * level) of ``NF4_LEVELS``: what kernels serve."""

CODEBOOK_REACH = 127
"""The level of NF4 and of learnt codebooks that ``absmax`` gives the largest weight of a group."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to store a row of weights.

    GGUF's are blocks of ``block_cols`` columns. Our own (``gguf_type`` None) are codes, an fp16
    scale a ``group`` and, with ``minimum``, an fp16 minimum a group; a row may have any number of
    columns, the last group counting whole. A learnt codebook is 16 bytes more a matrix.
    """

    name: str  # GGUF's in lower-case spelling
    family: Family
    block_cols: int  # 1 where a row or matrix has one scale
    block_bytes: int  # 0 where a row or matrix has one scale
    group: int  # columns that share one scale; 1 where there is no scale; WHOLE_ROW, WHOLE_TENSOR
    scale_levels: int  # 0: none; 1: a scale a group; 2: group scales themselves scaled by block
    minimum: bool  # the group stores a minimum beside its scale; otherwise symmetric around zero
    activation_group: int  # columns of an int8 activation that share a scale; 0: float activations
    reading: Reading
    gguf_type: int | None  # tensor type number in a GGUF file
    codebook: tuple[int, ...] | None = None  # 16 int8 values, where kernels serve a codebook
    codebook_learnt: bool = False  # each matrix has 16 int8 values of its own

    @property
    def has_codebook(self) -> bool:
        """Whether codes are indices into 16 int8 values, the scheme's or the matrix's own."""
        return self.codebook is not None or self.codebook_learnt

    @property
    def code_bits(self) -> int | None:
        """Bits of a code, of integer families and codebooks kernels serve; else None."""
        if self.has_codebook:
            return 4
        number = self.family.removeprefix("w")
        return int(number) if number.isdigit() else None

    @property
    def zero(self) -> int:
        """What is taken off a code, in the arrays of a ``QuantizedTensor``, to get its integer."""
        if self.code_bits is None or self.minimum or self.has_codebook:
            return 0
        return 1 << (self.code_bits - 1)

    @property
    def bits_per_weight(self) -> Fraction:
        """Exact bits a weight takes, scales and minimums included.

        Where that depends on the shape (:meth:`bits`) this is the limit for large ones.
        """
        if self.group in (WHOLE_ROW, WHOLE_TENSOR):
            return Fraction(self.code_bits or 0)
        return Fraction(8 * self.block_bytes, self.block_cols)

    def bits(self, rows: int, cols: int) -> Fraction:
        """Exact bits a weight takes in a matrix, a last group of a row counted whole."""
        return Fraction(8 * self.matrix_bytes(rows, cols), rows * cols)

    @property
    def served(self) -> bool:
        """Whether kernels compute with the stored codes as they are."""
        return self.reading == "kept"

    @property
    def coded(self) -> bool:
        """Whether weights can be rounded to it: codes with one level of fp16 scales."""
        return self.scale_levels == 1 and self.reading in ("kept", "unserved")

    def groups(self, cols: int) -> int:
        """Scales that a row of ``cols`` columns has or shares; 0 where there are none."""
        if self.scale_levels == 0 or cols == 0:
            return 0
        return 1 if self.group in (WHOLE_ROW, WHOLE_TENSOR) else -(-cols // self.group)

    def scale_shape(self, rows: int, cols: int) -> tuple[int, int]:
        """Shape of the scales of a matrix: (rows, groups), or (1, 1) where it has one."""
        return (1 if self.group == WHOLE_TENSOR else rows), self.groups(cols)

    def matrix_bytes(self, rows: int, cols: int) -> int:
        """Bytes of a matrix: its rows, a last group of each counted whole, and what they share."""
        shared = self._number_bytes if self.group == WHOLE_TENSOR else 0
        return rows * self._whole_row_bytes(cols) + shared + (16 if self.codebook_learnt else 0)

    @property
    def _number_bytes(self) -> int:
        return 4 if self.minimum else 2

    def _whole_row_bytes(self, cols: int) -> int:
        if self.group in (WHOLE_ROW, WHOLE_TENSOR):
            scale = self._number_bytes if self.group == WHOLE_ROW else 0
            return -(-cols * (self.code_bits or 0) // 8) + scale
        return -(-cols // self.block_cols) * self.block_bytes

    def row_bytes(self, cols: int) -> int:
        """Bytes of one row of ``cols`` columns, without what the matrix shares.

        Raises :class:`InvalidParameterError` where GGUF has no such row: ``cols`` is a multiple of
        ``block_cols`` there.
        """
        if self.gguf_type is not None and cols % self.block_cols:
            raise InvalidParameterError(
                f"a {self.name} row has a multiple of {self.block_cols} columns, not {cols}"
            )
        return self._whole_row_bytes(cols)


_KERNELS = MappingProxyType(
    {
        "w4": ("g64", "g128", "row"),
        "w4m": ("g64", "g128"),
        "nf4": ("g32", "g64", "g128"),
        "w5": ("g16", "g64", "g128", "row"),
        "w6": ("g16", "g32", "g64", "g128", "row"),
        "w8": ("g16", "g64", "g128", "row"),
    }
)
"""Granularities of our own schemes that kernels serve, by codes; ``m``: with a minimum."""


def _own(codes: str, granularity: str, minimum: bool = False) -> Scheme:
    """A row for codes that no checkpoint format has."""
    suffix = "m" if minimum else ""
    family: Family = "cb4" if codes in ("nf4", "km4") else codes  # type: ignore[assignment]
    bits, group = int(family[-1]), GRANULARITIES[granularity]
    served = granularity in _KERNELS.get(codes + suffix, ())
    return Scheme(
        codes + granularity + suffix,
        family,
        block_cols=max(group, 1),
        block_bytes=group * bits // 8 + (4 if minimum else 2) if group > 0 else 0,
        group=group,
        scale_levels=1,
        minimum=minimum,
        activation_group=(group or 64) if served else 0,
        reading="kept" if served else "unserved",
        gguf_type=None,
        codebook=NF4_CODEBOOK if codes == "nf4" else None,
        codebook_learnt=codes == "km4",
    )


SCHEME_ALIASES = MappingProxyType(
    {"w4g32": "q4_0", "w4g32m": "q4_1", "w5g32": "q5_0", "w5g32m": "q5_1", "w8g32": "q8_0"}
)
"""What our naming calls GGUF schemes that are of our families, to their names."""

_OWN_ROWS = tuple(
    row
    for codes in (*(f"w{bits}" for bits in range(2, 9)), "nf4", "km4")
    for minimum in ((False, True) if codes.startswith("w") else (False,))
    for granularity in GRANULARITIES
    for row in (_own(codes, granularity, minimum),)
    if row.name not in SCHEME_ALIASES
)

_ROWS = (
    #      name       family    cols bytes group lv  min  act  reading   gguf
    Scheme("f32", "dense", 1, 4, 1, 0, False, 0, "kept", 0),
    Scheme("f16", "dense", 1, 2, 1, 0, False, 0, "kept", 1),
    Scheme("bf16", "dense", 1, 2, 1, 0, False, 0, "kept", 30),
    Scheme("q4_0", "w4", 32, 18, 32, 1, False, 32, "kept", 2),
    Scheme("q4_1", "w4", 32, 20, 32, 1, True, 32, "kept", 3),
    Scheme("q5_0", "w5", 32, 22, 32, 1, False, 32, "kept", 6),
    Scheme("q5_1", "w5", 32, 24, 32, 1, True, 32, "kept", 7),
    Scheme("q8_0", "w8", 32, 34, 32, 1, False, 32, "kept", 8),
    Scheme("q4_k", "w4", 256, 144, 32, 2, True, 256, "kept", 12),
    Scheme("q5_k", "w5", 256, 176, 32, 2, True, 256, "kept", 13),
    Scheme("q6_k", "w6", 256, 210, 16, 2, False, 256, "kept", 14),
    Scheme("q2_k", "w2", 256, 84, 16, 2, True, 0, "f16", 10),
    Scheme("q3_k", "w3", 256, 110, 16, 2, False, 0, "f16", 11),
    Scheme("iq1_s", "grid", 256, 50, 32, 2, False, 0, "f16", 19),
    Scheme("iq1_m", "grid", 256, 56, 16, 2, False, 0, "f16", 29),
    Scheme("iq2_xxs", "grid", 256, 66, 32, 2, False, 0, "f16", 16),
    Scheme("iq2_xs", "grid", 256, 74, 16, 2, False, 0, "f16", 17),
    Scheme("iq2_s", "grid", 256, 82, 16, 2, False, 0, "f16", 22),
    Scheme("iq3_xxs", "grid", 256, 98, 32, 2, False, 0, "f16", 18),
    Scheme("iq3_s", "grid", 256, 110, 32, 2, False, 0, "f16", 21),
    Scheme("iq4_nl", "cb4", 32, 18, 32, 1, False, 32, "kept", 20, IQ4_NL_CODEBOOK),
    Scheme("iq4_xs", "cb4", 256, 136, 32, 2, False, 0, "f16", 23),
    Scheme("tq1_0", "ternary", 256, 54, 256, 1, False, 0, "f16", 34),
    Scheme("tq2_0", "ternary", 256, 66, 256, 1, False, 0, "f16", 35),
    Scheme("mxfp4", "cb4", 32, 17, 32, 1, False, 0, "f16", 39),
    Scheme("nvfp4", "cb4", 64, 36, 16, 1, False, 0, "f16", 40),
    Scheme("q1_0", "w1", 128, 18, 128, 1, False, 0, "refused", 41),
    Scheme("q8_1", "w8", 32, 40, 32, 1, False, 0, "refused", 9),
    Scheme("q8_k", "w8", 256, 292, 256, 1, False, 0, "refused", 15),
    Scheme("f64", "dense", 1, 8, 1, 0, False, 0, "refused", 28),
    Scheme("i8", "integer", 1, 1, 1, 0, False, 0, "refused", 24),
    Scheme("i16", "integer", 1, 2, 1, 0, False, 0, "refused", 25),
    Scheme("i32", "integer", 1, 4, 1, 0, False, 0, "refused", 26),
    Scheme("i64", "integer", 1, 8, 1, 0, False, 0, "refused", 27),
    *_OWN_ROWS,
)  # fmt: skip

SCHEMES = MappingProxyType({row.name: row for row in _ROWS})
"""Every scheme by name, in the table's order."""

OWN_NAMES = (
    "w4g64 (w2 to w8; tensor, row or g16 to g256; w4g64m with a minimum), nf4g64 and km4g64 alike"
)
"""How our own schemes are named, for messages."""

SCHEMES_BY_GGUF_TYPE = MappingProxyType(
    {row.gguf_type: row for row in _ROWS if row.gguf_type is not None}
)
"""The schemes a GGUF file can hold, by its tensor type number."""


def scheme(name: str) -> Scheme:
    """The row called ``name``, also by an alias.

    Raises :class:`InvalidParameterError` saying how those there are are named.
    """
    try:
        return SCHEMES[SCHEME_ALIASES.get(name, name)]
    except KeyError:
        raise InvalidParameterError(
            f"no storage scheme is called {name!r}; there are {OWN_NAMES}, and GGUF's "
            + ", ".join(row.name for row in SCHEMES_BY_GGUF_TYPE.values())
        ) from None
