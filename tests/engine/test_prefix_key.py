"""Equal keys mean equal bits; equal bits from other files and threads have equal keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.engine.prefix_key import prefix_key
from farthing.models.adapter import open_adapter
from farthing.models.checkpoint.packed_manifest import MANIFEST, read_manifest
from farthing.program import numerics
from farthing.program.kv_types import KV_DTYPES
from support.packing import pack
from support.tiny_adapters import make_tiny_adapter
from support.tiny_models import make_tiny_model

KIND = "qwen2-tied"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(KIND, tmp_path_factory.mktemp("tiny"))


def key(path: Path, **options: Any) -> bytes:
    loaded = load_model(path, LoadOptions(**{"num_threads": 1, "kv_cache_tokens": 256} | options))
    found = prefix_key(loaded)
    assert len(found) == 32
    return found


def test_threads_and_rooms_and_names_are_not_in_it(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(directory)
    expected = key(directory)
    for options in (
        {"num_threads": 3},
        {"kv_cache_tokens": 64},
        {"max_num_batched_tokens": 16},
        {"max_model_len": 100},
    ):
        assert key(directory, **options) == expected
    assert key(tmp_path / "elsewhere") == expected


def test_each_of_these_has_its_own(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [make_tiny_model(KIND, tmp_path / f"seed{seed}", seed) for seed in (1, 2)]
    adapters = [
        open_adapter(make_tiny_adapter(directory, tmp_path / f"adapter{seed}", seed=seed))
        for seed in (1, 2)
    ]
    packed = [pack(directory, tmp_path / name, name) for name in ("w4g32", "w4g64", "nf4g64")]
    keys = [
        key(directory),
        *(key(path) for path in seeds),
        *(key(directory, kv_cache_dtype=dtype) for dtype in KV_DTYPES if dtype != "fp16"),
        *(key(directory, adapter=adapter) for adapter in adapters),
        *(key(path) for path in packed),
    ]
    monkeypatch.setattr(numerics, "NUMERICS_VERSION", numerics.NUMERICS_VERSION + 1)
    keys.append(key(directory))
    assert len(set(keys)) == len(keys) == 15


def test_a_scale_of_the_adapter_is_in_it(directory: Path, tmp_path: Path) -> None:
    path = make_tiny_adapter(directory, tmp_path / "adapter")
    before = key(directory, adapter=open_adapter(path))
    config = path / "adapter_config.json"
    text = config.read_text()
    assert '"lora_alpha": 16' in text
    config.write_text(text.replace('"lora_alpha": 16', '"lora_alpha": 17'))
    assert key(directory, adapter=open_adapter(path)) != before


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_file_that_is_replaced_by_one_of_equal_size_and_time(
    at: str, directory: Path, tmp_path: Path
) -> None:
    path = make_tiny_model(KIND, tmp_path / "model")
    assert key(path) == key(directory)
    file = path / "model.safetensors"
    status = file.stat()
    tensors = load_file(file)
    name = min(tensors) if at == "first" else max(tensors)
    tensors[name].view("u4").reshape(-1)[-1] ^= 1  # the last bit of one number
    save_file(tensors, file, {"format": "pt"})
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert key(path) != key(directory)


def test_numbers_of_the_configuration_are_in_it(directory: Path, tmp_path: Path) -> None:
    path = make_tiny_model(KIND, tmp_path / "model")
    config = path / "config.json"
    text = config.read_text()
    for old, new in (('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1.1e-06'), ("1000000.0", "1e7")):
        assert old in text
        config.write_text(text.replace(old, new))
        assert key(path) != key(directory)
    config.write_text(text)
    assert key(path) == key(directory)


def test_a_context_is_in_it_where_rotary_embeddings_depend_on_it(tmp_path: Path) -> None:
    """Phi-3's long factors are for contexts above the original 32 tokens."""
    path = make_tiny_model("phi3-longrope", tmp_path / "model")
    assert key(path, max_model_len=32) != key(path, max_model_len=33)
    assert key(path, max_model_len=33) == key(path, max_model_len=200)


def test_packed_weights_have_the_key_of_where_they_lie_and_of_their_copy(
    directory: Path, tmp_path: Path
) -> None:
    packed = pack(directory, tmp_path / "packed", "w4g32")
    assert key(packed, weights="mmap") == key(packed, weights="copy")


def test_a_codebook_is_in_it(directory: Path, tmp_path: Path) -> None:
    """Levels of codes are not in the packed bytes."""
    packed = pack(directory, tmp_path / "packed", "nf4g64")
    before = key(packed)
    manifest = read_manifest(packed / MANIFEST)
    text = (packed / MANIFEST).read_text()
    levels = "[-128, -96, -80, -64, -48, -32, -16, -8, 0, 8, 16, 32, 48, 64, 96, 127]"
    name, entry = next(iter(manifest.matrices.items()))
    old = f'"{name}": ["{entry.scheme}", {entry.rows}, {entry.cols}]'
    assert old in text
    changed = text.replace(old, f"{old[:-1]}, {levels}]")
    (packed / MANIFEST).write_text(changed)
    other = numerics.fingerprint(
        (n, e.scheme, e.codebook) for n, e in read_manifest(packed / MANIFEST).matrices.items()
    )
    (packed / MANIFEST).write_text(changed.replace(manifest.fingerprint, other))
    assert key(packed) != before


def test_the_fingerprint_is_that_of_the_packed_directory(directory: Path, tmp_path: Path) -> None:
    packed = pack(directory, tmp_path / "packed", "w4g32")
    loaded = load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))
    assert loaded.fingerprint == read_manifest(packed / MANIFEST).fingerprint
