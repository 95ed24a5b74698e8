"""Which saved blocks a loaded model may use: those that it would have computed, bit for bit."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.model_loader import LoadedModel
from farthing.program.weights import NativeMatrix, NativeWeight

_PIECE = 4 << 20  # bytes hashed at a time by a thread


def prefix_key(loaded: LoadedModel) -> bytes:
    """A SHA-256 of all that keys and values depend on, but for the tokens.

    That is the numerics fingerprint, the program (with the adapter, and with what its rotary
    embeddings make of the context), every byte of the packed weights, and how blocks are stored.
    Where the weights came from is not in it, and neither are threads and instruction sets.
    """
    executor, kv = loaded.runner.executor, loaded.runner.kv
    facts = (
        f"numerics {loaded.fingerprint}",
        f"kv {kv.dtype} {kv.block_bytes} {BLOCK_TOKENS} {sys.byteorder}",
        f"weights {_digest(executor.weights, executor.num_threads)}",
        f"program {executor.program!r}",
    )
    return hashlib.sha256("\n".join(facts).encode()).digest()


def _digest(weights: Mapping[str, NativeWeight], num_threads: int) -> str:
    pieces = []
    for weight in weights.values():
        array = weight.packed_bytes() if isinstance(weight, NativeMatrix) else weight
        data = array.data.cast("B")
        pieces += [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
    total = hashlib.sha256()
    for name, weight in weights.items():
        if isinstance(weight, NativeMatrix):
            total.update(f"{name} {weight.scheme} {weight.rows} {weight.cols}\n".encode())
        else:
            total.update(f"{name} {weight.shape}\n".encode())
    with ThreadPoolExecutor(num_threads) as threads:
        for digest in threads.map(_sha256, pieces):
            total.update(digest)
    return total.hexdigest()


def _sha256(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()
