"""The table of storage schemes: how a weight is kept, in a file and in memory.

One row a scheme; tests, ``farthing show`` and the checkpoint readers walk the table, so a new
scheme is a new row. Block layouts of the GGUF types are those of the GGUF specification
(ggml ``docs/gguf.md`` and the block structures it names).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from farthing.errors import InvalidParameterError

Family = Literal[
    "dense", "w1", "w2", "w3", "w4", "w5", "w6", "w8", "ternary", "cb4", "grid", "integer"
]
"""What a block's codes are: floats; integers of n bits with an offset or a minimum (``w``); -1, 0
and 1; indices into 16 levels (``cb4``); indices into a table of whole vectors (``grid``); or
integers without a scale."""

Reading = Literal["kept", "f16", "refused"]
"""What a checkpoint reader does with a tensor of the scheme: keeps its bytes (kernels serve them),
dequantizes it through the ``gguf`` package to fp16, or refuses it (nothing can dequantize it)."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to store a row of weights as blocks of ``block_cols`` columns."""

    name: str  # lower-case GGUF spelling
    family: Family
    block_cols: int
    block_bytes: int
    group: int  # columns that share one scale; 1 where there is no scale
    scale_levels: int  # 0: none; 1: a scale a group; 2: group scales themselves scaled by block
    minimum: bool  # the group stores a minimum beside its scale; otherwise symmetric around zero
    activation_group: int  # columns of an int8 activation that share a scale; 0: float activations
    reading: Reading
    gguf_type: int | None  # tensor type number in a GGUF file

    @property
    def bits_per_weight(self) -> Fraction:
        """Exact bits a weight takes, scales and minimums included."""
        return Fraction(8 * self.block_bytes, self.block_cols)

    @property
    def served(self) -> bool:
        """Whether kernels compute with the stored bytes as they are."""
        return self.reading == "kept"

    def row_bytes(self, cols: int) -> int:
        """Bytes of one row of ``cols`` columns, a multiple of ``block_cols``."""
        if cols % self.block_cols:
            raise InvalidParameterError(
                f"a {self.name} row has a multiple of {self.block_cols} columns, not {cols}"
            )
        return cols // self.block_cols * self.block_bytes


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
    Scheme("iq4_nl", "cb4", 32, 18, 32, 1, False, 0, "f16", 20),
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
)

SCHEMES = MappingProxyType({row.name: row for row in _ROWS})
"""Every scheme by name, in the table's order."""

SCHEMES_BY_GGUF_TYPE = MappingProxyType(
    {row.gguf_type: row for row in _ROWS if row.gguf_type is not None}
)
"""The schemes a GGUF file can hold, by its tensor type number."""


def scheme(name: str) -> Scheme:
    """The row called ``name``; raises :class:`InvalidParameterError` naming those there are."""
    try:
        return SCHEMES[name]
    except KeyError:
        raise InvalidParameterError(
            f"no storage scheme is called {name!r}; there are {', '.join(SCHEMES)}"
        ) from None
