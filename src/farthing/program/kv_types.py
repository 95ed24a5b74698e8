"""What the KV cache stores keys and values as, by the names of its types."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

KvDtype = Literal["fp32", "fp16", "int8", "int4", "k16v8", "k16v4", "k8v4"]
"""``k8v4``: keys in int8, values in int4; and so on."""

KV_DTYPES: tuple[KvDtype, ...] = get_args(KvDtype)

StoredAs = Literal["fp32", "fp16", "int8", "int4"]

BITS: dict[StoredAs, int] = {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4}

LARGEST_CODE: dict[StoredAs, int] = {"int8": 127, "int4": 7}
"""Of the types whose numbers are codes: integers of that magnitude at most, times a scale."""

SCALE_BYTES = 4
"""A float32 for the keys, or the values, of a token and kv head."""


class KvSides(NamedTuple):
    """The types of keys and of values."""

    keys: StoredAs
    values: StoredAs

    def token_bytes(self, head_dim: int) -> int:
        """Bytes of a token's key and value of one kv head, scales included."""
        return sum(
            BITS[side] * head_dim // 8 + (SCALE_BYTES if side in LARGEST_CODE else 0)
            for side in self
        )


KV_SIDES: dict[KvDtype, KvSides] = {
    "fp32": KvSides("fp32", "fp32"),
    "fp16": KvSides("fp16", "fp16"),
    "int8": KvSides("int8", "int8"),
    "int4": KvSides("int4", "int4"),
    "k16v8": KvSides("fp16", "int8"),
    "k16v4": KvSides("fp16", "int4"),
    "k8v4": KvSides("int8", "int4"),
}
