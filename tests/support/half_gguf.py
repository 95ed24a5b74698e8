"""A quantized GGUF file with its matrices written out in float16."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np

from farthing.models.checkpoint.gguf_file import read_gguf

_STORED = {1: gguf.GGMLQuantizationType.F32, 2: gguf.GGMLQuantizationType.F16}


def write_half_gguf(source: Path, path: Path) -> Path:
    """Writes ``source`` to ``path``: the keys as they are, vectors in float32; returns ``path``."""
    file = read_gguf(source)
    pad = file.alignment
    directory, end = [], 0
    for tensor in file.tensors:
        stored = _STORED[len(tensor.shape)]
        name = tensor.name.encode()
        directory.append(struct.pack("<Q", len(name)) + name)
        directory.append(
            struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        )
        directory.append(struct.pack("<IQ", stored, end))
        nbytes = int(np.prod(tensor.shape)) * (4 if stored == 0 else 2)
        end += -(-nbytes // pad) * pad
    with source.open("rb") as old, path.open("wb") as new:
        new.write(old.read(min(tensor.entry_offset for tensor in file.tensors)))
        new.write(b"".join(directory))
        new.write(bytes(-new.tell() % pad))
        for tensor in file.tensors:
            old.seek(tensor.offset)
            raw = np.frombuffer(old.read(tensor.nbytes), np.uint8)
            kind = gguf.GGMLQuantizationType[tensor.scheme.name.upper()]
            values = gguf.dequantize(raw, kind)
            new.write(values.astype(np.float32 if len(tensor.shape) == 1 else np.float16).tobytes())
            new.write(bytes(-new.tell() % pad))
    return path
