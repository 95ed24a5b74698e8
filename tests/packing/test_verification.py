"""A packed directory is as it was written, or what differs is named."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farthing.errors import FarthingError, InvalidParameterError, ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.packing import PackOptions, Verified, quantize_model, verify_packed
from fuzz.corpus import write_gguf
from support.packing import pack
from support.tiny_models import make_tiny_model


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    source = make_tiny_model("qwen2-tied", folder / "source")
    (source / "LICENSE").write_text("terms\n")
    return pack(source, folder / "packed", "w4g64m", shard_bytes=40_000)


@pytest.fixture
def packed(good: Path, tmp_path: Path) -> Path:
    return shutil.copytree(good, tmp_path / "packed")


def verify(packed: Path, steps: list[tuple[int, int]] | None = None) -> Verified:
    manifest = open_checkpoint(packed, FAMILIES).manifest
    assert manifest is not None
    told = steps if steps is not None else []
    return verify_packed(packed, manifest, lambda done, total: told.append((done, total)))


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_what_was_written_is_found(packed: Path) -> None:
    steps: list[tuple[int, int]] = []
    verified = verify(packed, steps)
    checkpoint = open_checkpoint(packed, FAMILIES)
    others = [
        path
        for path in packed.iterdir()
        if path.suffix != ".safetensors" and path.name != "farthing.json"
    ]
    assert {"LICENSE", "config.json", "model.safetensors.index.json"} < {p.name for p in others}
    nbytes = checkpoint.nbytes + sum(path.stat().st_size for path in others)
    assert verified == Verified(len(checkpoint.tensors), len(others), nbytes)
    assert steps[-1] == (nbytes, nbytes)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_a_flipped_bit_of_any_tensor_is_named(packed: Path) -> None:
    tensors = open_checkpoint(packed, FAMILIES).tensors
    rng = np.random.default_rng(1)
    for name, tensor in tensors.items():
        offset = tensor.offset + int(rng.integers(tensor.nbytes))
        bit = int(rng.integers(8))
        flip(tensor.file, offset, bit)
        with pytest.raises(ModelFormatError) as caught:
            verify(packed)
        start = f"{tensor.file}: tensor {name} (byte {tensor.offset}): is not as it was written: "
        assert str(caught.value).startswith(start)
        assert "differ" not in str(caught.value)
        flip(tensor.file, offset, bit)
    verify(packed)


def test_how_much_differs_is_told(packed: Path) -> None:
    tensors = list(open_checkpoint(packed, FAMILIES).tensors.values())
    for tensor in tensors[3:6]:
        flip(tensor.file, tensor.offset)
    with pytest.raises(ModelFormatError, match=rf"tensor {tensors[3].name} .*, and 2 more differ;"):
        verify(packed)


def test_files_beside_the_weights_are_verified_too(packed: Path) -> None:
    path = packed / "tokenizer_config.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(ModelFormatError, match=f"^{path}: is not as it was written: its checksum"):
        verify(packed)
    (packed / "LICENSE").unlink()
    with pytest.raises(FarthingError, match=f"{packed}/LICENSE: no such file"):
        verify(packed)


def test_metadata_of_a_gguf_file_is_verified(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    packed = pack(tmp_path / "model.gguf", tmp_path / "packed")
    assert verify(packed).files == 1
    flip(packed / "metadata.gguf", (packed / "metadata.gguf").stat().st_size - 1)
    manifest = json.loads((packed / "farthing.json").read_text())
    wrong = zlib.crc32((packed / "metadata.gguf").read_bytes())
    words = f"its checksum is {wrong:08x}, not {manifest['file_crc32']['metadata.gguf']}"
    with pytest.raises(ModelFormatError, match=words):
        verify(packed)


@pytest.mark.parametrize("scheme", ["w4g64m", "w4tensor", "km4g64"])
def test_a_resumed_run_writes_what_one_that_was_not_does(
    scheme: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksums and learnt codebooks of what the first run wrote come from its journal."""
    from farthing.packing.folder import PartialFolder

    written = PartialFolder.append

    def stop(self: PartialFolder, *tensor: Any) -> None:
        if self.done == 5:
            raise KeyboardInterrupt
        written(self, *tensor)

    source, target = good.parent / "source", tmp_path / "packed"
    whole = pack(source, tmp_path / "whole", scheme, shard_bytes=40_000)
    monkeypatch.setattr(PartialFolder, "append", stop)
    with pytest.raises(KeyboardInterrupt):
        pack(source, target, scheme, shard_bytes=40_000)
    monkeypatch.undo()
    again = PackOptions(scheme, "absmax", num_threads=2, shard_bytes=40_000)
    assert quantize_model(source, target, again).resumed == 5
    one, other = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (whole, target)
    )
    assert one == other
    verify(target)


def test_one_without_checksums_is_refused(packed: Path) -> None:
    path = packed / "farthing.json"
    manifest = json.loads(path.read_text())
    del manifest["tensor_crc32"], manifest["file_crc32"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidParameterError, match="was packed before checksums were written"):
        verify(packed)
