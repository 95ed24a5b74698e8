"""From a path to a checkpoint, whatever its format."""

from __future__ import annotations

import stat
from collections.abc import Collection
from pathlib import Path

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.files.reader import FileReader
from farthing.models.checkpoint.checkpoint import Checkpoint
from farthing.models.checkpoint.gguf import open_gguf
from farthing.models.checkpoint.gguf_file import MAGIC
from farthing.models.checkpoint.huggingface import open_huggingface
from farthing.models.checkpoint.packed import is_packed, open_packed
from farthing.models.checkpoint.packed_manifest import MANIFEST, METADATA
from farthing.models.family import Family

_FOREIGN = (
    ((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04"), "a PyTorch file"),
    ((b"lmgg", b"fmgg", b"tjgg", b"algg"), "a GGML file older than GGUF"),
)


def open_checkpoint(path: Path, families: Collection[Family]) -> Checkpoint:
    """Opens a GGUF file, a Hugging Face or a packed directory as far as its metadata.

    ``families`` are those there is a program for. Raises
    :class:`ModelNotFoundError` if there is no such path or no model in it,
    :class:`ModelFormatError` and :class:`UnsupportedArchitectureError` as the readers do, and
    :class:`FarthingError` if the system refuses to read it.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ModelNotFoundError(f"{path}: no such file or directory") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FarthingError(f"{path}: cannot be read: {reason}") from error
    if stat.S_ISDIR(status.st_mode):
        return open_packed(path, families) if is_packed(path) else open_huggingface(path, families)
    reader = FileReader(path)
    head = reader.read(0, min(reader.size, 4))
    of_packed = path.name in (MANIFEST, METADATA) and is_packed(path.parent)
    if of_packed or path.suffix == ".safetensors" or path.name == "config.json":
        raise ModelFormatError(path, f"is part of a model; name its directory, {path.parent}")
    if head == MAGIC or path.suffix.lower() == ".gguf":
        return open_gguf(path, families)
    for magics, what in _FOREIGN:
        if head.startswith(magics):
            raise ModelFormatError(
                path, f"is {what}; a GGUF file or a directory of safetensors is needed"
            )
    raise ModelFormatError(path, "is neither a GGUF file nor a Hugging Face model directory")
