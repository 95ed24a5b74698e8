"""The layout of packed bytes cannot change without its version."""

from __future__ import annotations

import zlib

import numpy as np

from farthing.models.checkpoint.packed_manifest import LAYOUT_VERSION
from farthing.program.weights import new_matrix, pack_quantized, packed_shape
from farthing.quantization import SCHEMES, QuantizedTensor

ROWS, COLS = 19, 300
CHECKSUMS = {
    "f32": "1426ec4c", "f16": "a45c0c10", "bf16": "2dc00204", "q4_0": "fa6ba545",
    "q4_1": "0b46c985", "q5_0": "e437e042", "q5_1": "390bf09f", "q8_0": "ddefc5c7",
    "q4_k": "ba6f5acd", "q5_k": "6974b173", "q6_k": "45e3b555", "iq4_nl": "e253b420",
    "w4g64": "38ec6cf8", "w4g128": "f92fe45d", "w4row": "04b4c281", "w4g64m": "9613e4da",
    "w4g128m": "c8ab448d", "nf4g32": "9adc48e3", "nf4g64": "3413e1b2", "nf4g128": "b0a0fef7",
    "w5g16": "e5ed7a82", "w5g64": "fb2017c6", "w5g128": "0d923d83", "w5row": "b5ef3cf6",
    "w6g16": "6fa8e002", "w6g32": "24f3cbd1", "w6g64": "2517ebe6", "w6g128": "d1efea90",
    "w6row": "0d286044", "w8g16": "e9fc84e4", "w8g64": "74f036b0", "w8g128": "a28928ed",
    "w8row": "7f2da1e3",
}  # fmt: skip
"""Of every served scheme, for version 1. Those of a new scheme are added; where others change, so
does the version."""


def packed_checksums() -> dict[str, str]:
    sums = {}
    for scheme in SCHEMES.values():
        if not scheme.served:
            continue
        rng = np.random.default_rng(zlib.crc32(scheme.name.encode()))
        if scheme.scale_levels == 1 and scheme.code_bits is not None:
            groups = (ROWS, scheme.groups(COLS))
            codes = rng.integers(0, 1 << scheme.code_bits, (ROWS, COLS), np.uint8)
            scales, minimums = rng.random((2, *groups)).astype(np.float16)
            tensor = QuantizedTensor(
                scheme.name, codes, scales, minimums if scheme.minimum else None
            )
            matrix = pack_quantized(tensor)
        else:
            cols = 512 if scheme.scale_levels else COLS
            matrix = new_matrix(scheme.name, ROWS, cols)
            matrix.pack(0, rng.integers(0, 256, (ROWS, scheme.row_bytes(cols)), np.uint8))
        sums[scheme.name] = f"{zlib.crc32(matrix.packed_bytes().data):08x}"
        rows, nbytes = packed_shape(scheme.name, matrix.rows, matrix.cols)
        assert rows * nbytes == matrix.nbytes
        assert nbytes % 64 == 0
    return sums


def test_packed_bytes_are_those_of_the_version() -> None:
    assert LAYOUT_VERSION == 1
    assert packed_checksums() == CHECKSUMS
