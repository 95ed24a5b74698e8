"""Types of the KV cache for tests that take each of them."""

from __future__ import annotations

from typing import Any

import pytest

from farthing.program.kv_types import KV_DTYPES

ALIKE = ("k16v8", "k16v4")
"""Their loops over keys are those of fp16, those over values int8's and int4's: slow tests."""


def kv_type_params(*without: str) -> list[Any]:
    """Every type but those named."""
    return [
        pytest.param(dtype, marks=pytest.mark.slow) if dtype in ALIKE else dtype
        for dtype in KV_DTYPES
        if dtype not in without
    ]
