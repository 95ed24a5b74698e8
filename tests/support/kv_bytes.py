"""What a token takes in the KV cache."""

from __future__ import annotations

from farthing.program.kv_types import KvDtype

TOKEN_BYTES: dict[KvDtype, tuple[tuple[int, int], tuple[int, int]]] = {
    "fp32": ((32, 0), (32, 0)),
    "fp16": ((16, 0), (16, 0)),
    "int8": ((8, 4), (8, 4)),
    "int4": ((4, 4), (4, 4)),
    "k16v8": ((16, 0), (8, 4)),
    "k16v4": ((16, 0), (4, 4)),
    "k8v4": ((8, 4), (4, 4)),
}
"""Bits of a number and bytes of a scale, of a head's key and of its value."""
