"""Models packed for tests, and the same weights packed in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from farthing.models.checkpoint import TensorSource
from farthing.packing import PackOptions, quantize_model
from farthing.program.weights import NativeWeight, load_weights, pack_quantized
from farthing.quantization import scheme as find_scheme
from farthing.quantization.carrier import carry
from farthing.quantization.rounding import RoundingMethod, round_weights
from support.native_runs import NativeModel


def pack(
    source: Path,
    target: Path,
    scheme: str = "w4g32",
    method: RoundingMethod = "absmax",
    *,
    head_scheme: str | None = None,
    force: bool = False,
    shard_bytes: int = 1 << 40,
) -> Path:
    """Packs a model on two threads; returns ``target``."""
    options = PackOptions(scheme, method, head_scheme, force, 2, shard_bytes)
    assert quantize_model(source, target, options).path == target
    return target


class RoundedInMemory(NativeModel):
    """A model whose matrices are rounded whole, without a file between."""

    def __init__(self, path: Path, scheme: str, method: RoundingMethod = "absmax") -> None:
        super().__init__(path)
        whole = load_weights(self.program, self.tensors, num_threads=1)
        for name, source in self.tensors.items():
            weight = whole.get(name)
            if weight is None or isinstance(weight, np.ndarray) or name in self.program.routers:
                continue
            assert isinstance(source, TensorSource)
            values = source.dequantize().reshape(source.shape)
            rounded = round_weights(values, find_scheme(scheme), method)
            whole[name] = pack_quantized(carry(rounded))
        self.weights: dict[str, NativeWeight] = whole
